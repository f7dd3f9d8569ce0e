"""The user's own keys on the screen: they trigger their actions, hints name them, and questions keep theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from swink_agent.app.settings.key_bindings import ACTIONS, KeyMap
from swink_agent.testing import call, text
from swink_agent.tui.screen_front import help_rows
from swink_agent.tui.widgets.question_panel import QuestionPanel

from .test_app import Made, in_app, made, rows_of, until  # noqa: F401

OWN = """
[keys]
send = "ctrl+enter"
new_line = ["enter"]
search = "f9"
editor = []
todo = "ctrl+x"
history = "ctrl+l"
delete_left = ["backspace", "ctrl+b"]
"""


@pytest.fixture
def own(made: Made, tmp_path: Path) -> Made:  # noqa: F811
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text(OWN)
    return made


async def test_they_do_what_they_are_bound_to_and_the_usual_ones_do_not(own: Made) -> None:
    app = own(text("Hello."))

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press(*"ax", "ctrl+b", "enter", "b")
        assert app.composer.text == "a\nb"
        await pilot.press("ctrl+f")
        assert not app._search_bar.display
        await pilot.press("f9", *"foo")
        assert app._search_bar.display
        assert app.composer.text == "a\nb"
        await pilot.press("escape", "ctrl+enter")
        await until(pilot, lambda: "Hello." in "\n".join(rows_of(app)))
        await pilot.press("ctrl+l", "ctrl+l")
        await until(pilot, lambda: "Ctrl+L older" in "\n".join(rows_of(app)))
        await pilot.press("escape", "f1")
        await until(pilot, lambda: "search the conversation" in app.shown.transcript.blocks[-1].text)
        helped = app.shown.transcript.blocks[-1].text
        assert "F9" in helped
        assert "Ctrl+F" not in helped
        assert "Ctrl+G" not in helped
        assert "Ctrl+Enter" in app.shown.transcript.blocks[0].text
        await pilot.press(*"/them")  # a list of completions takes Enter, whatever that is bound to
        await until(pilot, lambda: "the colours" in "\n".join(rows_of(app)))
        await pilot.press("enter")
        assert app.composer.text == "/theme "
        await app.talk.submit("/bindings")
        listed = app.shown.transcript.blocks[-1].text
        for action in ACTIONS:
            assert f"  {action.name} " in listed
        assert "F9: search the conversation" in listed
        assert "no key: edit the draft in your own editor" in listed

    await in_app(app, work, (120, 40))


async def test_a_question_has_its_own_keys(own: Made) -> None:
    app = own(call("write_file", path="b.txt", content="x"), text("Done."), approve="ask")

    async def work(pilot: Pilot[int]) -> None:
        await pilot.press(*"go", "ctrl+enter")
        await until(pilot, lambda: app._question is not None)
        panel = app._question
        assert isinstance(panel, QuestionPanel)
        await until(pilot, lambda: panel._drawn_at is not None)
        panel._drawn_at = -1e9  # the grace period is over
        await pilot.press("ctrl+enter", "ctrl+b", "enter", "ctrl+x")  # what is bound answers nothing
        assert app._question is panel
        await pilot.press("n")
        await until(pilot, lambda: not app.talk.is_running)
        assert not (app.talk.opening.folder / "b.txt").exists()

    await in_app(app, work)


def test_the_help_is_as_ever_without_keys_of_ones_own() -> None:
    rows = help_rows(KeyMap())
    assert ("Shift+Enter, Alt+Enter, Ctrl+J", "a new line") in rows
    assert ("Ctrl+C twice, Ctrl+Q", "leave") in rows
    assert ("F2, Shift+Left, Shift+Right", "open and fold a tool's block; the one before, the next") in rows
    assert all("{" not in words for _, words in rows)
