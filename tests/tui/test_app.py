"""The whole screen, driven by keys: what each does in which state, and what it looks like at four widths."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from swink_agent.app.opening import Opening, OpeningOptions
from swink_agent.app.sessions import WantedSession
from swink_agent.local.events import LocalModelEvent, LocalState
from swink_agent.testing import call, scripted, text
from swink_agent.tui.app import SwinkApp
from swink_agent.tui.talk.options import TalkOptions
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

    def make(*replies: Any, environ: dict[str, str] | None = None, **flags: Any) -> SwinkApp:
        options = OpeningOptions(flags={"model": MODEL, **flags}, cwd=str(folder), session=WantedSession(is_kept=False))
        # A clock that stands still: nothing that is shown depends on how busy the machine is.
        stream = scripted(*replies) if replies else scripted(text("Nothing."))
        return SwinkApp(
            TalkOptions(opening=Opening(options), stream_fn=stream),
            environ={"HOME": str(tmp_path), "SWINK_DATA_DIR": str(tmp_path / "data"), **(environ or {})},
        )

    return make


async def opened(app: SwinkApp, pilot: Pilot[int]) -> None:
    async with asyncio.timeout(20):
        while app.talk.opened is None:
            await pilot.pause(0.02)
    await pilot.pause()


async def until(pilot: Pilot[int], is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
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


async def test_what_a_thread_tells_is_drawn_and_so_is_all_that_comes_after_it(made: Made) -> None:
    app = made()

    def tell() -> None:
        event = LocalModelEvent(LocalState.FETCHING, "qwen", done=1, total=4)
        app.talk.around.on_local_state(event)
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


@pytest.mark.parametrize("command", ["git push origin main", "make all"])
@pytest.mark.parametrize("size", [(40, 10), (60, 10), (100, 10)])
async def test_in_the_lowest_window_a_question_has_its_keys_and_the_screen_no_scrollbar(
    made: Made, command: str, size: tuple[int, int]
) -> None:
    app = made([call("bash", command=command)], text("As you wish."))

    async def work(pilot: Pilot[int]) -> None:
        app.composer.insert("go")
        await pilot.press("enter")
        await until(pilot, lambda: "no, because" in "\n".join(rows_of(app)))
        await pilot.pause()
        rows = rows_of(app)
        assert "Execute" in rows[-1]
        assert all(key in "\n".join(rows) for key in ("1 y", "4 n", "5 b"))
        assert app.screen.max_scroll_y == 0

    await in_app(app, work, size)


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


async def test_stopping_during_a_question_takes_it_away(made: Made) -> None:
    app = made(call("write_file", path="new.txt", content="x\n"), text("Done."))

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press("g", "o", "enter")
        await until(pilot, lambda: bool(app.query(QuestionPanel)))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.talk.state == "aborted" and not app.query(QuestionPanel))
        assert app.composer.display
        assert app.return_value is None

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


async def test_shift_and_arrows_choose_calls(made: Made) -> None:
    app = made(call("read_file", path="a.py"), text("Read."))

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press("g", "o", "enter")
        await until(pilot, lambda: app.talk.answer == "Read.")
        await pilot.press("a", "b", "shift+left")
        assert app.view.selected_block is not None
        assert app.composer.text == "ab"
        await pilot.press("escape")
        assert app.view.selected_block is None

    await in_app(app, work)


async def test_what_goes_wrong_in_the_screen_ends_it_without_telling_what_variables_held(made: Made) -> None:
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


@pytest.mark.parametrize("width", [60, 80, 120, 200])
async def test_the_screen_at_a_width(made: Made, width: int) -> None:
    edit = call("edit_file", path="a.py", edits=[{"old": "return 0", "new": "return 1"}])
    app = made(call("read_file", path="a.py"), edit, text(REPLY), allow=["edit_file"])

    async def work(pilot: Pilot[int]) -> None:
        app.talk.transcript.clear()
        await pilot.press("g", "o", "enter")
        await until(pilot, lambda: app.talk.state == "idle" and not app.talk.is_running and "done" in app.talk.answer)
        await until(pilot, lambda: "idle" in rows_of(app)[-1])
        await pilot.pause(0.2)
        rows = rows_of(app)
        assert all(len(row) == width for row in rows)
        compare(f"screen-{width}", [_steady(row) for row in rows])

    await in_app(app, work, size=(width, 30))


def _steady(row: str) -> str:
    """A row without how long something took, and the spaces that make up for it."""
    import re

    row = re.sub(r" +done \d+(?:\.\d+)? m?s", " done <time>", row)
    return re.sub(r"· \d+s ·", "· <time> ·", row)
