"""`swink` without `-p`: the terminal UI, full-screen or in lines.

Owns what has to be right before there is a screen: that there is a terminal, that what it needs is installed, and that
folder, settings and session are what was asked for. The UI itself is in `swink_agent.tui`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from os import isatty
from typing import Any

from msgspec import structs

from swink_agent.app.errors import UsageProblem
from swink_agent.app.input_files import encodable, picture
from swink_agent.app.models import named_model
from swink_agent.app.opening import Opening, OpeningOptions
from swink_agent.app.sessions import WantedSession, newest, open_store, session_ids, session_problems, sessions_folder

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
    opening = _with_session(Opening(OpeningOptions.of(options)))
    if model := opening.settings.value("model"):
        named_model(model)  # one that cannot be is told here too
    for name in options["image"]:
        picture(name)  # what is wrong with one is told here, and not in the middle of a conversation
    from swink_agent.tui import run_tui
    from swink_agent.tui.talk.options import TalkOptions

    images = tuple(options["image"])
    return run_tui(TalkOptions(opening=opening, prompt=encodable(prompt), images=images), inline=inline)


def _with_session(opening: Opening) -> Opening:
    """The same, in which the session to go on with is named by its whole id: one that is not there is told now."""
    wanted = opening.options.session
    if not wanted.goes_on or not opening.settings.value("sessions"):
        return opening
    with session_problems():
        if wanted.id is None:
            found = newest(open_store(opening.settings), opening.folder.resolve()).id
        else:
            found = session_ids(sessions_folder(opening.settings), [wanted.id])[0]
    opening.options = structs.replace(opening.options, session=WantedSession(id=found))
    return opening
