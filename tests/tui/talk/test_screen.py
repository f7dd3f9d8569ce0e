"""The whole screen around a conversation: what its keys do to the view, without a terminal."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from swink_agent.app.opening import Opening, OpeningOptions
from swink_agent.testing import scripted, text
from swink_agent.tui.app import SwinkApp
from swink_agent.tui.talk.options import TalkOptions

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
