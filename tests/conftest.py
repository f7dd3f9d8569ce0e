"""Async tests, and checks that each of them leaves nothing running."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from .alone import taken
from .tables import as_one_test
from .warm import WarmStarts, open_warm_starts

# Loading the tests makes millions of permanent objects: searching them for garbage takes a quarter of the time.
gc.disable()

# Compiled files are kept, even if the environment disables that: otherwise each worker would compile all tests, and
# many started programs the whole package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# No test reads or changes the clipboard of the user who runs it, or opens a window on their screen.
for _name in ("DISPLAY", "WAYLAND_DISPLAY"):
    os.environ.pop(_name, None)

# A shell starts background jobs with interrupts ignored, and their children inherit that. The programs that these tests
# interrupt must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    from hypothesis import HealthCheck, settings  # compiled with its assertions, hence after the lines above

    # The time of an example depends more on the machine than on the tested code, and all examples of a test may share
    # its fixtures. A test sets only the number of its examples: the sweep tries all of them, other runs a part. The
    # examples are the same in every run, so that results can be repeated; `--hypothesis-profile=search` tries others.
    search = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
    settings.register_profile("search", search)
    settings.register_profile("repeatable", search, derandomize=True, database=None)
    settings.load_profile("repeatable")  # the profile of the option is loaded after this one


class TooSlowError(AssertionError):
    """The block succeeded, but took longer than promised."""


@pytest.fixture
def promptly() -> Callable[[float], AbstractContextManager[None]]:
    """`with promptly(0.1):` fails if the block takes longer than that many seconds.

    A busy machine may be slow once; a hang is slow every time. So an `async def` test that was too slow is repeated,
    twice at most, and must be able to start again with the same fixtures.
    """

    @contextmanager
    def measured(seconds: float) -> Iterator[None]:
        start = time.monotonic()
        yield
        took = time.monotonic() - start
        if took >= seconds:
            raise TooSlowError(f"took {took:.3f} s, promised are {seconds} s")

    return measured


@pytest.fixture
def no_usual_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are looked for in `PATH` alone, and not in the usual folders too: what is installed does not matter."""
    monkeypatch.setattr("swink_agent.sandbox.starting.USUAL_FOLDERS", ())


@pytest.fixture(scope="session")
def warm_starts() -> Callable[[Mapping[str, str]], AbstractContextManager[WarmStarts | None]]:
    """Programs that use the package and share one loaded copy, if the system allows that."""
    return open_warm_starts


LONG_TABLES = {
    "test_no_file_tool_leaves_the_folder",
    "test_without_walls_the_same_attack_succeeds",
    "test_ordinary_work_is_done_without_extra_questions",
    "test_no_attempt_gets_out",
    "test_no_command_gets_out",
    "test_without_walls_the_same_command_succeeds",
    "test_what_the_schema_does_not_have_reaches_no_tool",
    "test_arguments_that_read_in_two_ways_write_nothing_they_should_not",
    "test_a_name_that_is_almost_one_is_none",
    "test_a_command_that_hides_something_is_asked_about_and_shown",
    "test_ordinary_work_goes_on",
    "test_deep_and_huge_settings_are_refused_or_read_at_once",
    "test_no_link_brings_what_lies_elsewhere_into_the_prompt",
    "test_nothing_is_sent_and_nothing_hidden_is_seen",
    "test_a_secret_that_is_known_is_masked_wherever_it_turns_up",
    "test_credentials_are_hidden_where_a_variable_has_moved_them",
    "test_a_command_does_not_change_what_a_hook_is_a_link_to",
    "test_a_poisoned_file_is_marked_and_obeying_it_gets_nowhere",
    "test_closing_while_a_command_starts_ends_both",
    "test_another_provider_answers_the_tool_results_that_one_asked_for",
    "test_what_is_left_is_taken_by_every_provider_and_begins_alike_for_many_turns",
    "test_the_theme_goes_by_what_the_terminal_says_and_the_answer_is_no_input",
    "test_keys_at_every_moment_of_the_start_arrive_in_their_order",
    "test_a_question_about_anything_can_be_read_and_answered",
    "test_a_list_of_completions_leaves_the_input_in_sight",
    "test_a_picker_or_a_dialog_leaves_the_input_in_sight",
    "test_nothing_is_imported_from_the_working_folder",
    "test_nothing_is_imported_from_there_after_our_first_line_in_any_set_up",
    "test_what_python_would_run_before_us_is_put_away",
    "test_older_landlock_holds_as_well",
    "test_a_process_that_is_always_another_is_ended",
    "test_what_cannot_be_started_is_told",
    "test_a_bubblewrap_that_is_none_is_found_out",
    "test_in_a_read_only_folder_commands_that_only_read_run",
    "test_a_folder_whose_files_run_by_themselves_is_not_written_by_commands",
    "test_a_write_outside_the_folder_is_told",
    "test_what_programs_say",
    "test_a_program_that_ends_takes_its_commands_along",
    "test_however_many_signals_come_the_outcome_is_written_once",
    "test_an_interrupt_takes_running_commands_with_it",
    "test_trust_is_asked_for_after_the_files_were_shown",
    "test_an_odd_value_in_one_session_takes_no_command_away",
    "test_in_the_lowest_window_a_question_has_its_keys_and_the_screen_no_scrollbar",
    "test_a_window_of_any_size_is_drawn_with_a_question_in_it",
    "test_control_c_twice_leaves_from_a_window_over_the_conversation",
    "test_each_key_means_one_thing",
    "test_no_attack_adds_a_heading_of_ours_or_html",
    "test_no_attack_adds_an_element_or_a_speaker",
    "test_what_hides_or_moves_text_is_written_out",
    "test_no_markdown_takes_longer_than_its_length",
    "test_no_code_takes_longer_than_its_length",
    "test_a_long_text_takes_no_longer_than_its_length_explains",
    "test_a_hostile_pattern_troubles_no_engine",
    "test_models_of_other_kinds_take_the_history_too",
    "test_nothing_in_a_folder_switches_off_what_is_stricter_above_it",
    "test_other_arguments_are_held_against_the_schema_again",
    "test_shell_blocks_with_a_run_comment_run",
    "test_a_request_for_a_summary_takes_no_more_of_the_window_than_any_other",
    "test_a_long_request_leaves_room_for_several_turns_after_each_summary",
    "test_stopped_at_any_step_it_leaves_what_was_sent_before_or_all_of_the_new",
    "test_what_an_application_puts_into_the_history_is_on_record",
    "test_texts_made_to_be_hard_take_a_bounded_number_of_steps",
    "test_commits_work_and_what_git_runs_stays",
    "test_no_signal_reaches_anybody_outside",
    "test_a_hostile_file_is_refused_in_no_time",
    "test_poison_is_marked_by_whatever_way_it_comes",
    "test_a_kill_while_mending_loses_neither_the_good_nor_the_bad",
    "test_a_password_in_an_address_is_never_shown",
    "test_one_signal_stops_it_cleanly",
    "test_a_long_diff_leaves_the_path_and_the_keys_in_the_window",
    "test_a_long_draft_leaves_room_for_the_status_and_its_own_frame",
    "test_the_first_screen_asks_about_the_folder_and_a_key_answers",
    "test_the_screen_at_a_width",
    "test_a_choice_leaves_the_input_in_sight",
    "test_it_is_drawn_at_any_width",
    "test_threads_may_meet_a_type_for_the_first_time_at_once",
    "test_deep_details_of_an_approved_call_and_of_updates_are_survived",
    "test_deep_state_is_no_matter_for_a_run_without_a_session",
    "test_deep_details_do_not_cost_the_result_that_they_belong_to",
    "test_every_misbehaviour_ends_in_one_typed_failure",
    "test_an_odd_count_spoils_no_reply",
    "test_every_value_of_an_error_frame_may_be_odd",
    "test_three_turns_with_the_same_provider",
    "test_a_history_with_tools_goes_on_without_them",
    "test_call_ids_that_recur_have_an_answer_each",
    "test_a_damaged_row_does_not_take_the_other_sessions_away",
    "test_whichever_write_fails_the_run_ends_and_nothing_acknowledged_is_lost",
    "test_memory_is_counted_once_however_many_share_it",
    "test_rules_decide_as_git_does",
    "test_packed_answers_are_unpacked_up_to_a_limit",
    "test_readers_see_the_old_file_or_the_new_one",
    "test_a_public_name_is_the_same_whatever_modules_were_loaded_before",
    "test_dir_lists_the_public_names_before_any_is_used",
    "test_all_hunks_are_the_call_as_it_is_and_none_is_a_no",
    "test_an_address_that_is_not_a_server_s_is_told_with_the_reason",
    "test_an_index_that_is_no_good_is_made_anew",
    "test_whenever_the_power_goes_while_mending_neither_the_good_nor_the_bad_is_lost",
    "test_a_process_that_is_killed_loses_nothing_that_was_relied_on",
    "test_it_is_gone_when_its_parent_was_killed",
    "test_a_line_of_a_million_messages_holds_nobody_up",
    "test_answers_of_wrong_shapes_end_their_own_call_at_once",
    "test_every_example_runs_and_prints_something",
    "test_the_code_in_the_documents_runs",
    "test_wrong_usage_is_one_line_and_makes_no_store",
    "test_a_fork_of_the_program_that_ends_takes_nothing_along",
    "test_later_commands_reach_its_server_and_nothing_else_does",
    "test_nothing_is_left_of_it_when_the_program_is_killed",
    "test_foreground_and_background_commands_start_at_once_in_several_threads",
    "test_updates_hold_what_is_new_and_come_no_faster_than_twenty_a_second",
    "test_a_status_is_reported_as_it_is",
    "test_a_stopped_search_leaves_no_process",
    "test_in_a_forked_child_a_session_is_the_parents",
    "test_signals_among_its_own_processes_work",
    "test_escape_stops_a_run_before_all_that_waits_unless_it_closes_something",
    "test_end_follows_the_conversation_again_also_from_the_end_of_what_is_written",
}
"""Tests whose rows each start processes, or take long: one row in `ONE_OF` runs, and the others in the sweep."""

ONE_OF = 10

FOLDERS_WITH_TABLES = {"sandbox", "security"}
"""In these folders, the same applies to every test of more than `MOST_ROWS` rows."""

LONG_FOLDERS = {"cli", "contracts", "crash", "sandbox", "security", "tools", "tui"}
"""Folders whose tests start processes or whole programs. Those run first."""

MOST_ROWS = 4

MOST_EXAMPLES = 8
"""The most Hypothesis examples for a test outside the sweep."""

CORE = Path(__file__).with_name("core")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not even load tests outside the core for `-m fast`."""
    is_elsewhere = collection_path.parent == CORE.parent and collection_path.is_dir() and collection_path != CORE
    return True if is_elsewhere and config.getoption("markexpr") == "fast" else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Workers load the tests in different orders, so that each finds files that another has compiled."""
    report: pytest.CollectReport = yield
    if isinstance(collector, pytest.Directory) and (worker := getattr(collector.config, "workerinput", None)):
        random.Random(worker["workerid"]).shuffle(report.result)
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--each-row", action="store_true", help="run each row of a test marked table as a test")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> pytest.Item | None:
    """Makes the rows of a test marked `table` one test: pytest's overhead for each would exceed its own time."""
    is_table = any(mark.name == "table" for mark in getattr(obj, "pytestmark", ()))
    if not is_table or not inspect.isfunction(obj) or collector.config.getoption("each_row"):
        return None
    return pytest.Function.from_parent(collector, name=name, callobj=as_one_test(obj, _run))


OPTIONAL_PROGRAMS = {"git", "rg", "bwrap", "tmux", "zsh", "fish"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    with _skipped_without_its_program():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    with _skipped_without_its_program():
        return (yield)


@contextmanager
def _skipped_without_its_program() -> Iterator[None]:
    """Skips a test if it, or one of its fixtures, starts an optional program that is not installed.

    The package itself starts none of these by name, so this hides no bug: `tests/contracts/test_starts.py`.
    """
    try:
        yield
    except (FileNotFoundError, PermissionError) as error:  # missing, or hidden
        if error.filename in OPTIONAL_PROGRAMS and shutil.which(error.filename) is None:
            pytest.skip(f"it starts {error.filename}, which is not installed")
        raise


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the core's tests as fast, except those with another mark, and selects rows and examples.

    Tests for both Linux sandboxes run with the one that most machines use, or with the other if that is missing; the
    sweep runs them with both. Only some rows of long tables and some Hypothesis examples run; the sweep runs all.
    """
    from hypothesis import is_hypothesis_test

    if hasattr(config, "workerinput"):
        # The same order for all workers, in whatever order they loaded the tests: the slowest files come first, so that
        # no worker is left with one at the end.
        items.sort(key=_order)
    for item in items:
        if is_hypothesis_test(test := getattr(item, "obj", None)):
            if config.getoption("markexpr") == "sweep":
                item.add_marker(pytest.mark.sweep)
            else:
                _shorten(test)
    of_core = {path for path in {item.path for item in items} if path.is_relative_to(CORE)}
    for item in items:
        if item.path in of_core and not any(map(item.get_closest_marker, ("slow", "sweep", "integration"))):
            item.add_marker(pytest.mark.fast)
    ids = {item.nodeid for item in items} if shutil.which("bwrap") is not None else set[str]()
    names = [getattr(item, "originalname", "") for item in items if FOLDERS_WITH_TABLES & {*item.path.parts}]
    tables = LONG_TABLES | {name for name, count in Counter(names).items() if count > MOST_ROWS}
    rows: Counter[tuple[str, bool]] = Counter()
    for item in items:
        name = getattr(item, "originalname", "")
        is_other = "landlock" in item.name
        place = item.nodeid.removesuffix(item.name)
        if is_other and any(place + item.name.replace("landlock", usual) in ids for usual in ("bubblewrap", "auto")):
            item.add_marker(pytest.mark.sweep)
        elif name in tables:
            if rows[name, is_other] % ONE_OF:  # some rows of each, if both are tested
                item.add_marker(pytest.mark.sweep)
            rows[name, is_other] += 1


def _order(item: pytest.Item) -> tuple[bool, tuple[str, ...]]:
    folders = item.path.relative_to(CORE.parent).parts[:-1]
    return not LONG_FOLDERS & {*folders}, item.path.parts


def _shorten(test: Any) -> None:
    """Sets a third of the examples, at most `MOST_EXAMPLES`. There is no public way to change them for an existing
    test."""
    from hypothesis import settings

    given: settings = test._hypothesis_internal_use_settings
    few = settings(given, max_examples=min(given.max_examples // 3, MOST_EXAMPLES) or 1)
    test._hypothesis_internal_use_settings = few


def pytest_collection_finish() -> None:
    """Freezes the collected tests, so that the garbage collection after each test has less to search."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Makes a test marked `alone` wait for the tests of other workers, before its own time limit starts."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    # A worker's temporary folder is one of those in the folder of the run.
    with taken(Path(item.config.option.basetemp).parent, alone=item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs each `async def` test in its own event loop, and fails it if it leaves a task running."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    _run(pyfuncitem.obj, {name: pyfuncitem.funcargs[name] for name in names})
    return True


def _run(test: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Runs a test, or one row of it. If it is `async def`, it gets its own event loop."""
    if not inspect.iscoroutinefunction(test):
        test(**arguments)
        return
    for tries_left in (2, 1, 0):
        try:
            asyncio.run(_without_leftovers(test(**arguments)))
        except TooSlowError:
            if not tries_left:
                raise
        else:
            break


async def _without_leftovers(test: Any) -> None:
    await test
    await asyncio.sleep(0)
    # Async generators that lost their last reference close themselves: a session's connections, for instance. The check
    # of a stopped command's leftovers is awaited too, which its caller did not wait for.
    closing = [task for task in asyncio.all_tasks() if _ends_by_itself(repr(task.get_coro()))]
    if closing:
        await asyncio.wait(closing, timeout=30)
        await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.done()]
    assert not left, f"the test left tasks running: {left}"


def _ends_by_itself(coroutine: str) -> bool:
    return "async_generator" in coroutine or "look_behind" in coroutine


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """Fails a test whose threads still run a moment after its end, and collects objects that would warn later."""
    before = set(threading.enumerate())
    yield
    gc.collect(1)  # objects of a test are young; everything is searched once more at the very end
    deadline = time.monotonic() + 20.0
    while (left := _ours(set(threading.enumerate()) - before)) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not left, f"the test left threads running: {left}"


def pytest_sessionfinish() -> None:
    gc.collect()


def _ours(threads: set[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in threads if thread.name.startswith("swink") and thread.is_alive()]
