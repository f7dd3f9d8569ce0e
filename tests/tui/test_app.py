"""The whole screen, driven by keys: what each key does in each state, and the screen at four widths."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual import events
from textual.pilot import Pilot

from swink_agent import Agent, Defer
from swink_agent.app.agent.opening import Opening, OpeningOptions
from swink_agent.app.runs.sessions import WantedSession
from swink_agent.app.talk.options import TalkOptions
from swink_agent.app.trust.folder_rules import FolderRules, WorkedFolders
from swink_agent.local.events import LocalModelEvent, LocalState
from swink_agent.memory import JsonlSessionStore
from swink_agent.sandbox import probe_backends
from swink_agent.testing import call, scripted, stall, text
from swink_agent.tools import standard_tools
from swink_agent.tui.app import SwinkApp
from swink_agent.tui.attention import Attention, title
from swink_agent.tui.transcript import ToolBlock
from swink_agent.tui.widgets import call_timers
from swink_agent.tui.widgets.completion_list import CompletionList
from swink_agent.tui.widgets.question_panel import QuestionPanel
from swink_agent.tui.widgets.search_bar import SearchBar

from .snapshots.compared import compare

MODEL = "anthropic:claude-sonnet-4-6"
REPLY = "It is **done**: see `a.py`.\n\n- one\n- two\n\n```python\nreturn 1\n```\n"
Made = Callable[..., SwinkApp]
Work = Callable[[Pilot[int]], Awaitable[None]]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """An application over a scripted model, in a folder and a home of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.py").write_text("return 0\n")
    for name, value in {
        "HOME": str(tmp_path),
        "SWINK_CONFIG_DIR": str(tmp_path / "config"),
        "SWINK_DATA_DIR": str(tmp_path / "data"),
        "ANTHROPIC_API_KEY": "key-of-a-test-0123456789",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)

    def make(*replies: Any, environ: dict[str, str] | None = None, resume: str | None = None, **flags: Any) -> SwinkApp:
        wanted = WantedSession(is_kept=resume is not None, id=resume)
        options = OpeningOptions(flags={"model": MODEL, **flags}, cwd=str(folder), session=wanted)
        # A clock that stands still: nothing that is shown depends on how busy the machine is.
        stream = scripted(*replies) if replies else scripted(text("Nothing."))
        return SwinkApp(
            TalkOptions(opening=Opening(options), stream_fn=stream),
            environ={"HOME": str(tmp_path), "SWINK_DATA_DIR": str(tmp_path / "data"), **(environ or {})},
        )

    return make


async def opened(app: SwinkApp, pilot: Pilot[int]) -> None:
    async with asyncio.timeout(60):
        while app.talk.opened is None:
            await pilot.pause(0.02)
    await pilot.pause()


async def until(pilot: Pilot[int], is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await pilot.pause(0.02)


def rows_of(app: SwinkApp) -> list[str]:
    """The screen as text."""
    size = app.size
    strips = app.screen._compositor.render_strips(size)
    return ["".join([segment.text for segment in strip]) for strip in strips]


async def in_app(
    app: SwinkApp, work: Callable[[Pilot[int]], Awaitable[None]], size: tuple[int, int] = (100, 30)
) -> None:
    async with app.run_test(size=size) as pilot:
        await opened(app, pilot)
        try:
            await work(pilot)
        finally:
            await app.talk.close()


async def test_messages_of_a_thread_are_drawn_and_so_are_later_ones(made: Made) -> None:
    app = made()

    def tell() -> None:
        event = LocalModelEvent(LocalState.FETCHING, "qwen", done=1, total=4)
        app.talk.around["on_local_state"](event)
        logging.getLogger("swink_agent").warning("the index is being made again")

    async def work(pilot: Pilot[int]) -> None:
        await until(pilot, lambda: not app._is_due)
        thread = threading.Thread(target=tell)  # which knows nothing of any application
        thread.start()
        await asyncio.to_thread(thread.join)
        await until(pilot, lambda: "the index is being made again" in "\n".join(rows_of(app)))
        await pilot.press("shift+tab")
        await until(pilot, lambda: rows_of(app)[-1].strip().startswith("Plan"))

    await in_app(app, work)
    assert app.crash is None


async def test_in_the_lowest_window_a_question_has_its_keys_and_the_screen_no_scrollbar(made: Made) -> None:
    commands = ("git push origin main", "make all")
    replies = [reply for command in commands for reply in ([call("bash", command=command)], text("As you wish."))]
    app = made(*replies, sandbox="off")

    async def work(pilot: Pilot[int]) -> None:
        for command in commands:
            app.composer.set_text("go")
            await pilot.press("enter")
            for width in (40, 60, 100):
                await pilot.resize_terminal(width, 10)
                shown = (command, "no, because", "1 y", "4 n", "5 b")
                await until(pilot, lambda shown=shown: all(text in "\n".join(rows_of(app)) for text in shown))
                await until(pilot, lambda: "Execute" in rows_of(app)[-1] and app.screen.max_scroll_y == 0)
                assert all(text in "\n".join(rows_of(app)) for text in shown)
            await answer(app, pilot, "n")
            await until(pilot, lambda: not app.talk.is_running)

    await in_app(app, work, (40, 10))


async def answer(app: SwinkApp, pilot: Pilot[int], key: str) -> None:
    """Presses a key once the question that is shown takes keys."""
    await until(pilot, lambda: bool(app.query(QuestionPanel)) and not app.query_one(QuestionPanel).is_early)
    await pilot.press(key)


async def test_f1_lists_the_keys_of_the_screen(made: Made) -> None:
    app = made()

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press("f1")
        await until(pilot, lambda: "Commands" in "\n".join(rows_of(app)))
        shown = "\n".join(rows_of(app))
        for word in ("Shift+Tab", "Ctrl+R", "F2", "!command", "Shift+Enter, Alt+Enter, Ctrl+J"):
            assert word in shown

    await in_app(app, work, (120, 60))


async def test_control_c_empties_then_leaves(made: Made) -> None:
    app = made()

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press("h", "i")
        assert app.composer.text == "hi"
        await pilot.press("ctrl+c")
        assert app.composer.text == ""
        assert app.return_value is None
        await pilot.press("x", "ctrl+c")  # another key in between: it counts anew
        assert app.return_value is None
        await pilot.press("ctrl+c")
        assert app.return_value == 0

    await in_app(app, work)


async def test_control_c_in_the_search_of_the_history_gives_the_draft_back(made: Made) -> None:
    app = made()

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press(*"draft", "ctrl+r", "x", "ctrl+c")
        assert app.composer.text == "draft"
        await pilot.press("x", "ctrl+c")
        assert app.composer.text == ""
        assert app.return_value is None

    await in_app(app, work)


async def test_a_question_takes_the_place_of_the_input_and_gives_it_back(made: Made) -> None:
    app = made(call("write_file", path="new.txt", content="x\n"), text("Done."))

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press("g", "o", "enter")
        await until(pilot, lambda: bool(app.query(QuestionPanel)))
        assert not app.composer.display
        panel = app.query_one(QuestionPanel)
        await until(pilot, lambda: panel.has_focus)
        await pilot.pause(0.4)
        await pilot.press("4")
        await until(pilot, lambda: app.talk.state == "idle" and not app.talk.is_running)
        assert app.composer.display
        assert not app.query(QuestionPanel)
        assert app.composer.has_focus_within

    await in_app(app, work)
    assert not (app.talk.opening.folder / "new.txt").exists()


async def test_stopping_during_a_question_takes_it_away_and_a_second_time_leaves(made: Made) -> None:
    app = made(call("write_file", path="new.txt", content="x\n"), text("Done."))

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press("g", "o", "enter")
        await until(pilot, lambda: bool(app.query(QuestionPanel)))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.talk.state == "aborted" and not app.query(QuestionPanel))
        assert app.composer.display
        assert app.return_value is None
        await pilot.press("ctrl+c")
        assert app.return_value == 0

    await in_app(app, work)


async def test_searching_finds_what_is_folded_and_escape_goes_back(made: Made) -> None:
    app = made(call("read_file", path="a.py"), text(REPLY))

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press("g", "o", "enter")
        await until(pilot, lambda: app.talk.state == "idle" and not app.talk.is_running and "done" in app.talk.answer)
        await pilot.press("ctrl+f", "r", "e", "t", "u", "r", "n")
        bar = app.query_one(SearchBar)
        assert bar.query_text == "return"
        await until(pilot, lambda: any("of 2" in row for row in rows_of(app)))
        await pilot.press("escape")
        assert not bar.display
        assert app.composer.has_focus_within

    await in_app(app, work)


async def test_a_theme_is_changed_while_it_runs_and_without_colours_none_is(made: Made) -> None:
    app = made()

    async def work(pilot: Pilot[int]) -> None:
        assert app.looks.theme.name == "dark"
        app.use_theme("light")
        await pilot.pause()
        assert app.theme == "swink-light"
        assert app.view.theme.name == "light"

    await in_app(app, work)
    plain = made(environ={"NO_COLOR": "1"})

    async def colourless(pilot: Pilot[int]) -> None:
        assert plain.looks.theme.name == "plain"
        plain.use_theme("light")
        assert plain.looks.theme.name == "plain"

    await in_app(plain, colourless)


async def test_shift_and_arrows_choose_calls_and_f2_opens_them(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_timers, "FOLD_AFTER", 0.01)
    app = made(call("read_file", path="a.py"), text("Read."))

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press("g", "o", "enter")
        await until(pilot, lambda: app.talk.answer == "Read.")
        await pilot.press("a", "b", "shift+left")
        block = app.view.selected_block
        assert isinstance(block, ToolBlock)
        assert app.composer.text == "ab"
        await until(pilot, lambda: not block.is_open)
        await pilot.press("f2")
        await until(pilot, lambda: any("│ 1 return 0" in row for row in rows_of(app)))
        await pilot.press("f2")
        await until(pilot, lambda: not any("│ 1 return 0" in row for row in rows_of(app)))
        await pilot.press("escape")
        assert app.view.selected_block is None

    await in_app(app, work)


async def test_typing_during_a_run_steers_or_waits_in_line_or_is_taken_back(made: Made) -> None:
    app = made([text("Working"), stall()])

    async def work(pilot: Pilot[int]) -> None:
        def shows(*words: str) -> bool:
            rows = "\n".join(rows_of(app))
            return all(each in rows for each in words)

        await pilot.press("g", "o", "enter")
        await until(pilot, lambda: shows("Working") and " running " in rows_of(app)[-1])
        await pilot.press(*"later", "tab")
        await until(pilot, lambda: shows("next  later"))
        await pilot.press(*"never", "tab")
        await until(pilot, lambda: shows("next  never"))
        await pilot.press("up")  # takes the newest back
        await until(pilot, lambda: app.composer.text == "never" and not shows("next  never"))
        assert shows("next  later")
        await pilot.press("ctrl+u", *"now", "enter")
        await until(pilot, lambda: shows("steering  now"))
        await pilot.press("escape")
        await until(pilot, lambda: " aborted " in rows_of(app)[-1])
        assert app.composer.text == "later\n\nnow"

    await in_app(app, work)


async def test_failures_of_the_screen_end_it_without_showing_variables(made: Made) -> None:
    app = made()

    def fail() -> None:
        secret = "hunter2-and-more"  # noqa: F841 - what a traceback with variables would show
        raise LookupError("the cause")

    async def go() -> None:
        async with app.run_test() as pilot:
            await opened(app, pilot)
            app.call_later(fail)
            await pilot.pause()

    with pytest.raises(LookupError):
        await go()
    await app.talk.close()
    assert isinstance(app.crash, LookupError)
    assert app._exit_renderables == []


async def test_the_screen_at_four_widths(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_timers, "FOLD_AFTER", 1e6)
    edit = call("edit_file", path="a.py", edits=[{"old": "return 0", "new": "return 1"}])
    app = made(call("read_file", path="a.py"), edit, text(REPLY), allow=["edit_file"])

    async def work(pilot: Pilot[int]) -> None:
        app.shown.transcript.clear()
        await pilot.press("g", "o", "enter")
        await until(pilot, lambda: app.talk.state == "idle" and not app.talk.is_running and "done" in app.talk.answer)
        await until(pilot, lambda: "idle" in rows_of(app)[-1])
        for width in (60, 80, 120, 200):
            await pilot.resize_terminal(width, 30)
            await pilot.pause(0.2)
            rows = rows_of(app)
            assert all(len(row) == width for row in rows)
            compare(f"screen-{width}", [_steady(row) for row in rows])

    await in_app(app, work, size=(60, 30))


def _steady(row: str) -> str:
    """A row without how long something took, and the spaces that make up for it."""
    import re

    row = re.sub(r" +done \d+(?:\.\d+)? m?s", " done <time>", row)
    return re.sub(r"· \d+s ·", "· <time> ·", row)


async def test_a_folded_paste_is_told_to_the_model_and_never_run(made: Made, tmp_path: Path) -> None:
    app = made(text("I see."), text("Again."))
    ran = tmp_path / "work" / "ran"

    async def work(pilot: Pilot[int]) -> None:
        app.composer.query_one("DraftView").post_message(events.Paste("!touch ran\n" + "# x\n" * 12))
        await pilot.pause()
        assert "[pasted 13 lines #1]" in "\n".join(rows_of(app))
        await pilot.press("enter")
        await until(pilot, lambda: "I see." in app.talk.answer)
        assert not ran.exists()
        await until(pilot, lambda: "sent to the model: its ! was not in sight" in "\n".join(rows_of(app)))
        await pilot.press("exclamation_mark", *"touch ran", "enter")
        await until(pilot, ran.exists)

    await in_app(app, work)


async def test_the_first_prompt_is_never_a_command(made: Made, tmp_path: Path) -> None:
    app = made(text("I see."))
    app.talk.options = msgspec.structs.replace(app.talk.options, prompt="!touch ran")

    async def work(pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "I see." in app.talk.answer)
        assert not (tmp_path / "work" / "ran").exists()

    await in_app(app, work)


async def test_the_title_says_that_a_question_waits_even_if_the_model_asks_at_once(made: Made) -> None:
    app = made(call("bash", command="make one"), text("As you wish."), sandbox="off")
    titles: list[str] = []
    app._attention = Attention("auto", titles.append, titles.append, is_focused=lambda: True, environ={})

    async def work(pilot: Pilot[int]) -> None:
        app.composer.set_text("go")
        await pilot.press("enter")
        await until(pilot, lambda: "waits for you" in rows_of(app)[-1] and app._was_running)
        assert titles[-1] == title("swink: waits for you: bash")

    await in_app(app, work)


@pytest.mark.sweep
async def test_several_questions_are_counted_and_the_state_says_who_is_waited_for(made: Made) -> None:
    app = made(
        [call("bash", command="make one"), call("bash", command="make two")], text("As you wish."), sandbox="off"
    )

    async def work(pilot: Pilot[int]) -> None:
        app.composer.set_text("go")
        await pilot.press("enter")
        await until(pilot, lambda: "Allow this? (call 1 of 2)" in "\n".join(rows_of(app)))
        await until(pilot, lambda: "waits for you" in rows_of(app)[-1])
        await answer(app, pilot, "n")
        await until(pilot, lambda: "Allow this? (call 2 of 2)" in "\n".join(rows_of(app)))
        await answer(app, pilot, "n")
        await until(pilot, lambda: "As you wish." in app.talk.answer)
        await until(pilot, lambda: "idle" in rows_of(app)[-1])

    await in_app(app, work)


async def test_waiting_calls_of_a_session_are_asked_when_it_opens_and_escape_leaves(made: Made, tmp_path: Path) -> None:
    agent = Agent(
        MODEL,
        tools=[one for one in standard_tools(tmp_path / "work", "off") if one.name == "write_file"],
        stream_fn=scripted([call("write_file", path=f"{name}.txt", content="x\n") for name in "abc"]),
        approve=lambda _: Defer("the office decides"),
    )
    with JsonlSessionStore(tmp_path / "data" / "sessions").create(tmp_path / "work") as session:
        session.attach(agent)
        await agent.prompt("Do it.")
    app = made(text("Two of three."), resume=session.id)

    async def asked(pilot: Pilot[int], title: str, key: str) -> None:
        await until(pilot, lambda: f"Allow this? (call {title})" in "\n".join(rows_of(app)))
        assert "7 l  later: it keeps waiting" in "\n".join(rows_of(app))
        await answer(app, pilot, key)

    async def work(pilot: Pilot[int]) -> None:
        await asked(pilot, "1 of 3", "y")
        await asked(pilot, "2 of 3", "escape")
        await asked(pilot, "3 of 3", "l")
        await until(pilot, lambda: "2 calls wait for an answer" in "\n".join(rows_of(app)))
        app.composer.set_text("/answer")
        await pilot.press("enter")
        await asked(pilot, "1 of 2", "n")
        await asked(pilot, "2 of 2", "y")
        await until(pilot, lambda: "Two of three." in app.talk.answer)
        await until(pilot, lambda: "idle" in rows_of(app)[-1])

    await in_app(app, work)
    assert [(tmp_path / "work" / f"{name}.txt").exists() for name in "abc"] == [True, False, True]


async def test_always_can_be_kept_for_this_project(made: Made, tmp_path: Path) -> None:
    (tmp_path / "work" / ".git").mkdir()
    app = made([call("bash", command="mkdir x")], text("Done."), sandbox="off")

    async def work(pilot: Pilot[int]) -> None:
        app.composer.set_text("go")
        await pilot.press("enter")
        await until(pilot, lambda: "6 k  always in this project, kept: bash: mkdir *" in "\n".join(rows_of(app)))
        await answer(app, pilot, "k")
        await until(pilot, lambda: "Done." in app.talk.answer)

    await in_app(app, work)
    below = tmp_path / "work" / "src"
    below.mkdir()
    assert FolderRules().rules(below) == ("bash: mkdir *",)
    assert Opening(OpeningOptions(cwd=str(below))).settings.value("allow") == ("bash: mkdir *",)
    assert Opening(OpeningOptions(cwd=str(tmp_path))).settings.value("allow") == ()
    assert not (tmp_path / "work" / ".swink").exists()
    assert FolderRules().remove(below, "bash: mkdir *")
    assert FolderRules().folders() == {}


# -- nothing stands over the input ---------------------------------------------------------------------------------

SIZES = ((80, 24), (40, 10))


def sees_input(app: SwinkApp, words: str) -> bool:
    """Whether the line with these words, its frame and the status are on the screen, at its end."""
    rows = rows_of(app)[: app.size.height]
    lines = [number for number, row in enumerate(rows) if row.startswith("│ ") and words in row]
    return len(lines) == 1 and rows[lines[0] + 1].startswith("╰") and lines[0] == len(rows) - 3


async def test_a_list_of_completions_leaves_the_input_in_sight(made: Made, tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / "work" / f"file-{number:02}.txt").write_text("x")
    app = made()

    async def work(pilot: Pilot[int]) -> None:
        for size in SIZES:
            await pilot.resize_terminal(*size)
            for words, listed in (("@", "file-00.txt"), ("@file", "file-0"), ("/", "/help"), ("/mo", "/model")):
                await pilot.press(*[{"/": "slash", "@": "at"}.get(key, key) for key in words])
                await until(pilot, lambda listed=listed: any(listed in row for row in rows_of(app)))
                await until(pilot, lambda words=words: sees_input(app, f" {words}"))
                await pilot.press("up")
                await pilot.pause()
                assert sees_input(app, f" {words}"), "\n".join(rows_of(app))
                chosen = app.composer.query_one(CompletionList).chosen
                assert chosen is not None
                assert any(chosen.label in row for row in rows_of(app))
                await pilot.press("ctrl+u")
                await until(pilot, lambda: app.composer.query_one(CompletionList).chosen is None)

    await in_app(app, work, SIZES[0])


async def test_a_long_draft_leaves_room_for_the_status_and_its_own_frame(made: Made) -> None:
    app = made()

    async def work(pilot: Pilot[int]) -> None:
        app.composer.set_text("".join([f"row{number}\n" for number in range(20)]))
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await pilot.press("slash")
            await pilot.pause()
            rows = rows_of(app)
            assert rows[-2].startswith("╰")
            assert rows[-3].startswith("│   /")
            assert any(row.startswith("╭") for row in rows)

    await in_app(app, work, SIZES[0])


async def test_a_dialog_leaves_the_input_in_sight(made: Made) -> None:
    app = made()
    choices = [("yes", "carry it out"), ("later", "switch only"), ("edit", "edit it first")]
    dialogs: list[tuple[Callable[[], Coroutine[Any, Any, Any]], tuple[str, ...]]] = [
        (lambda: app.talk.submit("/theme"), ("contrast",)),
        (lambda: app.talk.submit("/thinking"), ("off",)),
        (lambda: app.talk.submit("/key anthropic"), ("hidden",)),
        (lambda: app.talk.submit("/model"), ("/ ",)),
        (
            lambda: app.talk.front.confirm("Carry the plan out? " * 9, choices, "yes"),
            ("edit it first", "carry it out"),
        ),
    ]

    async def work(pilot: Pilot[int]) -> None:
        app.composer.give_back("a draft", ())
        for size in SIZES:
            for ask, shown in dialogs:
                await pilot.resize_terminal(*size)
                asked = asyncio.ensure_future(ask())
                await until(pilot, lambda: len(app.screen_stack) > 1)
                for words in shown:
                    await until(pilot, lambda words=words: any(words in row for row in rows_of(app)))
                await until(pilot, lambda: sees_input(app, "a draft"))
                await pilot.resize_terminal(size[0], size[1] + 3)
                await until(pilot, lambda: sees_input(app, "a draft"))
                await pilot.press("escape")
                await asked
                await until(pilot, lambda: len(app.screen_stack) == 1)

    await in_app(app, work, SIZES[0])


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(("key", "answer", "mode"), [("f7", True, "auto"), ("f8", False, "smart")])
async def test_the_first_screen_asks_about_the_folder_and_a_key_answers(
    made: Made, key: str, answer: bool, mode: str
) -> None:
    if not any(report.works for report in probe_backends()):
        pytest.skip("no sandbox works on this machine")
    app = made()

    async def work(pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "Run commands and edits in this folder without asking?" in "\n".join(rows_of(app)))
        app.composer.set_text("a draft")
        await pilot.press(key)
        await until(pilot, lambda: WorkedFolders().answer(app.talk.opening.folder) is answer)
        await until(pilot, lambda: app.talk.approve == mode)
        assert app.composer.text == "a draft"
        await pilot.press("shift+tab", "shift+tab")
        await until(pilot, lambda: " ask " in rows_of(app)[-1])

    await in_app(app, work)
