"""Async tests, and checks that each of them leaves nothing running."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from .alone import taken
from .shares import SECONDS, Share
from .tables import as_one_test
from .turns import TURNS, has_turn, mark_turns, turn_of
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


@pytest.fixture
def promptly() -> Callable[[float], AbstractContextManager[None]]:
    """`with promptly(0.1):` fails if the block takes longer than that many seconds.

    The time in which our threads were ready, and other programs had the processors, does not count.
    """

    @contextmanager
    def measured(seconds: float) -> Iterator[None]:
        start, before = time.monotonic(), _waits()
        yield
        took = time.monotonic() - start
        waited = sum(seconds - before.get(thread, 0.0) for thread, seconds in _waits().items())
        bound = seconds if before else 20 * seconds
        assert took - waited < bound, f"took {took:.3f} s, of which {waited:.3f} without a processor; promised: {bound}"

    return measured


@pytest.fixture
def no_usual_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are looked for in `PATH` alone, and not in the usual folders too: what is installed does not matter."""
    monkeypatch.setattr("swink_agent.sandbox.starting.USUAL_FOLDERS", ())


def _waits() -> dict[str, float]:
    """How long each of our threads was ready to run and did not. Empty where the system does not tell."""
    waits: dict[str, float] = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError):  # it has just ended
            waits[path.parent.name] = int(path.read_text().split()[1]) / 1e9
    return waits


@pytest.fixture(scope="session")
def warm_starts() -> Callable[[Mapping[str, str]], AbstractContextManager[WarmStarts | None]]:
    """Programs that use the package and share one loaded copy, if the system allows that."""
    return open_warm_starts


MOST_EXAMPLES = 8
"""The most Hypothesis examples for a test outside the sweep."""

CORE = Path(__file__).with_name("core")

SWEEPS = {"sweep", "turn"}
"""The expressions of `-m` that run tests of the sweep."""

SHARE = pytest.StashKey[Share | None]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not even load tests outside the core for `-m fast`, nor those of other workers."""
    is_elsewhere = collection_path.parent == CORE.parent and collection_path.is_dir() and collection_path != CORE
    if is_elsewhere and config.getoption("markexpr") == "fast":
        return True
    if (share := _share(config)) is not None and collection_path.is_file() and not share.has(collection_path):
        return True
    return None


def _seconds(config: pytest.Config) -> dict[str, float]:
    """Processor time of each folder, of the tests that this run selects."""
    selected = config.getoption("markexpr")
    if selected not in SWEEPS:
        return {name: default for name, (default, _) in SECONDS.items()}
    in_full = {*(config.getoption("all_of").split(",") if selected == "turn" else SECONDS)}
    return {name: sweep if name in in_full else sweep / TURNS for name, (_, sweep) in SECONDS.items()}


def _keep_share(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what other workers run: a file that an argument names is collected by all."""
    if (share := _share(config)) is not None:
        items[:] = [item for item in items if share.has(item.path)]


def _share(config: pytest.Config) -> Share | None:
    """The files of this worker, if it is one of several."""
    if SHARE not in config.stash:
        worker = getattr(config, "workerinput", None)
        config.stash[SHARE] = worker and Share.of(
            config.args,
            CORE.parent,
            int(worker["workerid"].removeprefix("gw")),
            worker["workercount"],
            seconds=_seconds(config),
        )
    return config.stash[SHARE]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--each-row", action="store_true", help="run each row of a test marked table as a test")
    parser.addoption(
        "--turn",
        type=int,
        choices=range(TURNS),
        default=turn_of(date.today()),
        help="which tenth of the rows of long tables runs, and of the sweep with -m turn; today it is %(default)s",
    )
    parser.addoption(
        "--one-of", type=int, choices=range(1, TURNS + 1), default=1, help="run one test in so many, others each day"
    )
    parser.addoption("--all-of", default="", metavar="FOLDER,...", help="with -m turn, these folders' whole sweep")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from .scheduling import Scheduling  # it needs pytest-xdist

    return Scheduling(config, log)


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

    _keep_share(config, items)
    items[:] = [item for item in items if has_turn(item.nodeid, config.getoption("turn"), config.getoption("one_of"))]
    for item in items:
        test = getattr(item, "obj", None)
        if is_hypothesis_test(test := getattr(test, "row", test)):
            if config.getoption("markexpr") in SWEEPS:
                item.add_marker(pytest.mark.sweep)
            else:
                _shorten(test)
    of_core = {path for path in {item.path for item in items} if path.is_relative_to(CORE)}
    for item in items:
        if item.path in of_core and not any(map(item.get_closest_marker, ("slow", "sweep", "integration"))):
            item.add_marker(pytest.mark.fast)
    in_full = [CORE.parent / name for name in config.getoption("all_of").split(",") if name]
    mark_turns(items, config.getoption("turn"), lambda item: any(map(item.path.is_relative_to, in_full)))


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
    asyncio.run(_without_leftovers(test(**arguments)))


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
