"""`swink` without `-p`: the terminal UI, full-screen or in lines.

Owns what has to be right before there is a screen: that there is a terminal, that what it needs is installed, and that
folder, settings and session are what was asked for. The UI itself is in `swink_agent.tui`.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from os import isatty
from typing import Any

from msgspec import structs

from swink_agent.app.errors import UsageProblem
from swink_agent.app.input_files import encodable, picture
from swink_agent.app.models import named_model
from swink_agent.app.opening import Opening, OpeningOptions
from swink_agent.app.sessions import RunSession, WantedSession

__all__ = ["TUI_EXTRA", "run_talk"]

TUI_EXTRA = "pip install 'swink-agent[tui]'"
_NO_TERMINAL = (
    'the terminal UI needs a terminal, and {what} is none: swink -p "…" asks one thing and prints the answer{also}, '
    "swink --help tells more"
)


def run_talk(options: Mapping[str, Any], prompt: str) -> int:
    """The UI, to its exit code. Raises `ApplicationError` for what is wrong before there is one."""
    for descriptor, name in enumerate(("stdin", "stdout")):
        if not isatty(descriptor):
            goes_on = options["continue"] or options["resume"] is not None
            also = ", -p alone goes on with a session without a new one" if goes_on else ""
            raise UsageProblem(_NO_TERMINAL.format(what=name, also=also))
    inline = options["inline"] or os.environ.get("TERM", "") in ("", "dumb")
    if not inline and find_spec("textual") is None:
        raise UsageProblem(f"the terminal UI is not installed: {TUI_EXTRA}; swink --inline does without")
    opening = Opening(OpeningOptions.of(options))
    if model := opening.settings.value("model"):
        named_model(model)  # one that cannot be is told here too
    for name in options["image"]:
        picture(name)  # what is wrong with one is told here, and not in the middle of a conversation
    from swink_agent.tui import run_tui
    from swink_agent.tui.talk.options import TalkOptions

    images = tuple(options["image"])
    with _session_to_go_on_with(opening) as session:
        talk = TalkOptions(opening=opening, session=session, prompt=encodable(prompt), images=images)
        return run_tui(talk, inline=inline)


@contextmanager
def _session_to_go_on_with(opening: Opening) -> Generator[RunSession | None]:
    """The session that the command line asks for, open: one that cannot be had is told now."""
    if not opening.options.session.goes_on:
        yield None
        return
    with opening.session() as session:
        if session.info is not None:  # should it have to be opened again: the same one, whichever is the newest then
            opening.options = structs.replace(opening.options, session=WantedSession(id=session.info.id))
        yield session
