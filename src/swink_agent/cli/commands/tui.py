"""`swink` without `-p`: the terminal UI, full-screen or in lines.

Before the screen starts, checks that there is a terminal, that the extra is installed, and that folder, settings and
session can be used. The UI itself is in `swink_agent.tui`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from os import isatty
from typing import Any

from msgspec import structs

from swink_agent.app.agent.models import model_of_settings
from swink_agent.app.agent.opening import Opening, OpeningOptions
from swink_agent.app.agent.prompt_commands import filled
from swink_agent.app.agent.skills import with_skill
from swink_agent.app.errors import UsageProblem
from swink_agent.app.runs.answers import answers_for
from swink_agent.app.runs.input_files import attachment, encodable, picture
from swink_agent.app.runs.sessions import RunSession, WantedSession
from swink_agent.core.machine.extras import install

from ..screen.screen import Screen

_NO_TERMINAL = (
    '{what} is not a terminal. For one answer: swink -p "…", or swink -p - to read the prompt from stdin{also}'
)


def run_talk(options: Mapping[str, Any], prompt: str) -> int:
    """Runs the UI and returns its exit code. Raises `ApplicationError` for problems before it starts."""
    for descriptor, name in enumerate(("stdin", "stdout")):
        if not isatty(descriptor):
            goes_on = options["continue"] or options["resume"] is not None
            also = ", or -p alone to continue a session without a new prompt" if goes_on else ""
            raise UsageProblem(_NO_TERMINAL.format(what=name, also=also))
    inline = options["inline"] or os.environ.get("TERM", "") in ("", "dumb")
    if not inline and find_spec("textual") is None:
        raise UsageProblem(f"the terminal UI is not installed: {install('tui')}; swink --inline does not need it")
    opening = Opening(OpeningOptions.of(options))
    if opening.settings.value("model") is not None:
        model_of_settings(opening.settings)  # an unusable model is reported here too
    for name in options["image"]:
        picture(name)  # an unusable file is reported here, not in the middle of a conversation
    for name in options["file"]:
        attachment(name)
    from swink_agent.app.talk.options import TalkOptions
    from swink_agent.tui import run_tui

    images = (*options["image"], *options["file"])
    if options["command"] is not None:
        prompt = filled(options["command"], prompt, opening.project)
    if options["skill"] is not None:
        prompt = with_skill(options["skill"], prompt, opening.project)
    with _session_to_go_on_with(opening) as session:
        if options["answer"]:
            answers_for(options["answer"], () if session is None else session.pending)
        talk = TalkOptions(
            opening=opening, session=session, prompt=encodable(prompt), images=images, answers=options["answer"]
        )
        try:
            return run_tui(talk, inline=inline)
        finally:
            if (warning := opening.telemetry.close()) is not None:
                Screen(sys.stderr).say("warning: ", warning, "yellow")


@contextmanager
def _session_to_go_on_with(opening: Opening) -> Generator[RunSession | None]:
    """Opens the session that the command line asks for, so that a problem with it is reported now."""
    if not opening.options.session.goes_on:
        yield None
        return
    with opening.session() as session:
        if session.info is not None:  # opening it again finds this session, even if another is then the newest
            opening.options = structs.replace(opening.options, session=WantedSession(id=session.info.id))
        yield session
