"""The whole screen around a conversation: what its keys do to the view, without a terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from swink_agent.app.agent.opening import Opening, OpeningOptions
from swink_agent.app.talk.options import TalkOptions
from swink_agent.core.events import MessageUpdate
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.stream import TextDelta
from swink_agent.testing import scripted, stall, text
from swink_agent.tui.app import SwinkApp
from swink_agent.tui.narration import Narration
from swink_agent.tui.transcript import Transcript

from .conftest import MODEL, Talk

LONG = "\n\n".join([f"line {number}" for number in range(80)])


def app_of(talk: Talk, *replies: object) -> SwinkApp:
    opening = Opening(OpeningOptions(flags={"model": MODEL, "sessions": False}, cwd=str(talk.folder)))
    return SwinkApp(TalkOptions(opening=opening, prompt="go", stream_fn=scripted(*replies)))


async def until_answered(app: SwinkApp, pilot: Pilot[int]) -> None:
    for _ in range(1000):
        await pilot.pause(0.01)
        if app.talk.answer and not app.talk.is_running:
            return
    raise AssertionError("there was no answer")


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("written", ["", "a draft\nof two lines"])
async def test_end_follows_the_conversation_again_also_from_the_end_of_what_is_written(
    talk: Talk, written: str
) -> None:
    app = app_of(talk, text(LONG))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_answered(app, pilot)
        app.composer.set_text(written)
        await pilot.press("pageup", "pageup")
        await pilot.pause()
        assert not app.view.is_following
        await pilot.press("end")
        await pilot.pause()
        assert app.view.is_following
        assert app.composer.text == written
        await pilot.press("ctrl+q")
    await app.talk.close()


async def test_end_goes_to_the_end_of_the_line_first(talk: Talk) -> None:
    app = app_of(talk, text(LONG))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_answered(app, pilot)
        app.composer.set_text("words")
        await pilot.press("home", "pageup", "end")
        await pilot.pause()
        assert not app.view.is_following
        await pilot.press("!")
        assert app.composer.text == "words!"
        await pilot.press("ctrl+q")
    await app.talk.close()


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("typed", ["", "/"], ids=["nothing open", "a list is open"])
async def test_escape_stops_a_run_before_all_that_waits_unless_it_closes_something(talk: Talk, typed: str) -> None:
    app = app_of(talk, stall())
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(1000):
            await pilot.pause(0.01)
            if app.talk.state == "running":
                break
        app.composer.set_text(typed)
        await pilot.pause()
        app._escape_at_once()
        assert app.talk.state == ("running" if typed else "aborted")
        app.talk.stop()
        await app.talk.settled()
    await app.talk.close()


def test_a_flood_of_deltas_is_taken_in_once_for_each_frame() -> None:
    transcript, due = Transcript(), list[Callable[[], None]]()
    narration = Narration(transcript, Redactor(), later=due.append)
    changes: list[object] = []
    transcript.on_change(changes.append)
    for _ in range(1000):
        narration.hear(MessageUpdate(TextDelta(0, "word ")))
    assert len(due) == 1
    assert changes == []
    due.pop()()
    assert len(changes) <= 2
    narration.hear(MessageUpdate(TextDelta(0, "last")))
    narration.leave_open_calls()
    (reply,) = transcript.blocks
    assert reply.text == "word " * 1000 + "last"
