"""The keys of vim on the screen: the mode in the last row, Escape and Enter, pastes, completions, the history."""

from __future__ import annotations

from textual import events
from textual.pilot import Pilot

from swink_agent.testing import text

from .test_app import Made, in_app, made, rows_of, until  # noqa: F401


async def test_the_mode_is_in_the_last_row_and_enter_sends_from_both(made: Made) -> None:  # noqa: F811
    app = made(text("Hello."), text("Again."), vim=True)

    async def work(pilot: Pilot[int]) -> None:
        await until(pilot, lambda: "INSERT" in rows_of(app)[-1])
        await pilot.press(*"one two", "escape")
        await until(pilot, lambda: "NORMAL" in rows_of(app)[-1])
        await pilot.press("0", "d", "w")
        assert app.composer.text == "two"
        await pilot.press("v")
        await until(pilot, lambda: "VISUAL" in rows_of(app)[-1])
        await pilot.press("escape", "enter")
        await until(pilot, lambda: "Hello." in "\n".join(rows_of(app)) and not app.talk.is_running)
        assert app.composer.vim_mode == "INSERT"
        assert app.composer.text == ""
        await pilot.press(*"more", "enter")
        await until(pilot, lambda: "Again." in "\n".join(rows_of(app)))

    await in_app(app, work)


async def test_escape_stops_what_runs_only_from_normal_mode(made: Made) -> None:  # noqa: F811
    app = made(vim=True)

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press(*"!sleep 60", "enter")
        await until(pilot, lambda: "sleep 60" in rows_of(app)[-5])  # above the input, while it runs
        await pilot.press(*"hi", "escape")
        assert app.composer.vim_mode == "NORMAL"
        await pilot.press("d", "escape")  # which only ends what was begun
        await pilot.pause(0.1)
        assert app.shown.running
        await pilot.press("escape")
        await until(pilot, lambda: not app.shown.running)
        assert app.composer.text == "hi"

    await in_app(app, work)


async def test_pastes_completions_and_the_history_work_in_both_modes(made: Made) -> None:  # noqa: F811
    app = made(text("Hello."), vim=True)

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press(*"first", "enter")
        await until(pilot, lambda: "Hello." in "\n".join(rows_of(app)) and not app.talk.is_running)
        await pilot.press(*"/the")
        await until(pilot, lambda: "the colours" in "\n".join(rows_of(app)))
        await pilot.press("escape")  # closes the list and leaves insert mode
        assert app.composer.vim_mode == "NORMAL"
        await until(pilot, lambda: "the colours" not in "\n".join(rows_of(app)))
        await pilot.press("d", "d", "k")
        assert app.composer.text == "first"
        await pilot.press("j")
        assert app.composer.text == ""
        app.post_message(events.Paste("line one\nline two"))
        await until(pilot, lambda: app.composer.text == "line one\nline two")
        await pilot.press("g", "g", "d", "d")
        assert app.composer.text == "line two"
        app.post_message(events.Paste("x\n" * 3000))
        await until(pilot, lambda: "3,000" in "\n".join(rows_of(app)) or "3000" in "\n".join(rows_of(app)))
        await pilot.press("u")
        assert app.composer.text == "line two"
        await pilot.press("ctrl+r")  # makes it again, and does not search the history
        assert app.composer.text.count("x\n") == 3000

    await in_app(app, work)
