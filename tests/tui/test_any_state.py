"""The whole screen under a pilot: invariants of every state, whatever is open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from swink_agent import ProposedCall
from swink_agent.app.agent.opening import Opening, OpeningOptions
from swink_agent.app.runs.sessions import WantedSession
from swink_agent.app.talk.options import TalkOptions
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalQuestion
from swink_agent.testing import scripted, text
from swink_agent.tui.app import SwinkApp
from swink_agent.tui.full_screen import _tell_crash
from swink_agent.tui.widgets.question_panel import GRACE

from .talk.conftest import MODEL, Talk, talk

__all__ = ["talk"]

Opener = Callable[[SwinkApp], Awaitable[Any]]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def screen(talk: Talk, *replies: Any, clock: Clock | None = None) -> AsyncIterator[tuple[SwinkApp, Pilot[int]]]:
    """The program with a scripted model, once it has opened."""
    opening = Opening(OpeningOptions(flags={"model": MODEL}, cwd=str(talk.folder), session=WantedSession()))
    app = SwinkApp(
        TalkOptions(opening=opening, stream_fn=scripted(*(replies or (text("Hello."),)))), clock=clock or Clock()
    )
    async with app.run_test(size=(100, 30)) as pilot:
        async with asyncio.timeout(60):
            while app.talk.opened is None:
                await pilot.pause(0.01)
        try:
            yield app, pilot
        finally:
            await app.talk.close()


def asked(command: str = "make") -> ApprovalQuestion:
    request = ProposedCall("1", "bash", {"command": command})
    return ApprovalQuestion(request=request, display="", why="no rule allows it", command="command", prefix="make")


async def standing(app: SwinkApp, pilot: Pilot[int]) -> None:
    """Returns when a question stands and its keys count."""
    async with asyncio.timeout(60):
        while app._question is None or app._question.is_early:
            await pilot.pause(0.02)


def drawn(app: SwinkApp) -> str:
    return "\n".join([strip.text for strip in app.screen._compositor.render_strips()])


MODALS: dict[str, Opener] = {
    "confirm": lambda app: app.talk.front.confirm("Sure?", (("yes", "yes"), ("no", "no")), "yes"),
    "pick": lambda app: app.talk.front.pick("Which?", []),
    "secret": lambda app: app.talk.front.read_secret("Key"),
}


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", MODALS)
async def test_control_c_twice_leaves_from_a_window_over_the_conversation(talk: Talk, name: str) -> None:
    async with screen(talk) as (app, pilot):
        opened = asyncio.ensure_future(MODALS[name](app))
        await pilot.pause()
        assert len(app.screen_stack) == 2
        await pilot.press("ctrl+c")
        await pilot.pause()
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert not app.is_running or app._exit
        opened.cancel()


@pytest.mark.sweep
async def test_a_search_of_the_history_takes_any_character(talk: Talk) -> None:
    async with screen(talk) as (app, pilot):
        await pilot.press("ctrl+r", *"[/]", *"[@click=app.leave(1)]x")
        await pilot.pause()
        assert "[/][@click=app.leave(1)]x" in drawn(app)
        assert app.crash is None


@pytest.mark.sweep
async def test_a_question_can_be_answered_after_the_transcript_was_searched(talk: Talk) -> None:
    async with screen(talk) as (app, pilot):
        answer = asyncio.ensure_future(app.talk.front.ask(asked()))
        await standing(app, pilot)
        await pilot.press("ctrl+f", *"hello", "escape")
        await pilot.press("y")
        await pilot.pause()
        assert isinstance(await asyncio.wait_for(answer, 30), ApprovalAnswer)


@pytest.mark.sweep
async def test_a_question_that_was_hidden_has_its_moment_of_grace_when_it_comes_to_sight(talk: Talk) -> None:
    async with screen(talk) as (app, pilot):
        for _ in range(20):
            confirming = asyncio.ensure_future(MODALS["confirm"](app))
            await pilot.pause()
            answer = asyncio.ensure_future(app.talk.front.ask(asked()))
            await pilot.pause(0.5)
            start = time.monotonic()
            await pilot.press("y", "y")
            await pilot.pause()
            assert await asyncio.wait_for(confirming, 30) == "yes"
            if not answer.done() or time.monotonic() - start < GRACE:
                break  # else a busy machine took so long to press them that the second one counts
        assert not answer.done()
        await standing(app, pilot)
        await pilot.press("y")
        assert isinstance(await asyncio.wait_for(answer, 30), ApprovalAnswer)


async def test_a_click_neither_answers_a_question_nor_takes_its_keys_away(talk: Talk) -> None:
    async with screen(talk) as (app, pilot):
        answer = asyncio.ensure_future(app.talk.front.ask(asked()))
        await standing(app, pilot)
        assert app._question is not None
        for where in (app.view, app._question, app._status):
            await pilot.click(where)
        await pilot.pause()
        assert not answer.done()
        await pilot.press("n")
        await asyncio.wait_for(answer, 30)


@pytest.mark.sweep
async def test_two_questions_stand_one_after_the_other_each_with_its_own_grace(talk: Talk) -> None:
    async with screen(talk) as (app, pilot):
        for _ in range(20):
            first = asyncio.ensure_future(app.talk.front.ask(asked("make one")))
            second = asyncio.ensure_future(app.talk.front.ask(asked("make two")))
            await standing(app, pilot)
            start = time.monotonic()
            await pilot.press("y", "y", "y")
            await pilot.pause()
            assert first.done()
            if not second.done() or time.monotonic() - start < GRACE:
                break  # else a busy machine took so long to press them that the last one counts
        assert not second.done()
        second.cancel()
        await pilot.pause()
        assert app.composer.display
        assert app._question is None


async def test_the_folder_and_the_model_cannot_speak_to_the_terminal(talk: Talk, tmp_path: Path) -> None:
    odd = tmp_path / "a\x1b]0;owned\x07\n b"
    odd.mkdir()
    talk.folder = odd
    async with screen(talk) as (app, pilot):
        await pilot.pause(0.1)
        assert "\x1b" not in drawn(app)
        assert "owned" in drawn(app)
        assert len(drawn(app).split("\n")) == 30


async def test_a_window_of_any_size_is_drawn_with_a_question_in_it(talk: Talk) -> None:
    async with screen(talk) as (app, pilot):
        for size in ((1, 1), (3, 2), (500, 200)):
            answer = asyncio.ensure_future(app.talk.front.ask(asked("x" * 3000)))
            await pilot.pause()
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert app.crash is None
            await standing(app, pilot) if size[0] > 100 else None
            await pilot.resize_terminal(80, 24)
            await standing(app, pilot)
            await pilot.press("n")
            await asyncio.wait_for(answer, 30)


async def test_a_crash_tells_no_key_that_is_known(
    talk: Talk, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with screen(talk) as (app, _):
        assert app.talk.opened is not None
        app.talk.opened.redactor.learn("shaped-like-nothing", "openai key")
    for debug in ("", "1"):
        monkeypatch.setenv("SWINK_DEBUG", debug)
        _tell_crash(app, RuntimeError("it said shaped-like-nothing \x1b[2J"))
    told = capfd.readouterr().err
    assert told.count("RuntimeError") == 2
    assert "shaped-like-nothing" not in told
    assert "\x1b" not in told


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    "commands",
    [
        ("\ud800", "[/]" * 9, "\x1b]52;c;aGk=\x07", "a\nb" * 40_000, ""),
        pytest.param(("x" * 2_000_000,), marks=pytest.mark.sweep),
    ],
    ids=["short", "long"],
)
async def test_a_question_about_anything_can_be_read_and_answered(talk: Talk, commands: tuple[str, ...]) -> None:
    async with screen(talk) as (app, pilot):
        for command in commands:
            answer = asyncio.ensure_future(app.talk.front.ask(asked(command)))
            await standing(app, pilot)
            assert "\x1b" not in drawn(app)
            drawn(app).encode()
            await pilot.press("end", "n")
            await asyncio.wait_for(answer, 60)
            assert app.crash is None


@pytest.mark.sweep
async def test_a_question_stands_though_the_history_is_searched_or_a_completion_is_open(talk: Talk) -> None:
    async with screen(talk) as (app, pilot):
        for keys in (("ctrl+r", "a"), ("/",), ("@",)):
            await pilot.press(*keys)
            answer = asyncio.ensure_future(app.talk.front.ask(asked()))
            await standing(app, pilot)
            await pilot.press("n")
            await asyncio.wait_for(answer, 30)
            app.composer.set_text("")
            await pilot.pause()
