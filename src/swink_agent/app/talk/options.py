"""The options of a conversation, and the text that is printed on the normal screen after it.

The caller opens folder, settings and session before the screen starts, so that errors appear on the normal screen.
"""

from __future__ import annotations

import shlex

from swink_agent.app.agent.opening import Opening
from swink_agent.app.runs.sessions import RunSession
from swink_agent.core.stream import StreamFn
from swink_agent.core.values.value import Value
from swink_agent.rendering.escaping import safe_text


class TalkOptions(Value, frozen=True, kw_only=True):
    """The options of a conversation: folder and settings, session, and first prompt."""

    opening: Opening
    session: RunSession | None = None
    """An open session to resume; `None` starts a new one."""
    prompt: str = ""
    """Sent as soon as the agent is ready."""
    images: tuple[str, ...] = ()
    """Paths of pictures for the first prompt, whether it is `prompt` or typed by the user."""
    answers: tuple[str, ...] = ()
    """Answers to waiting calls of the session, in the form of `--answer`. Their form is already checked."""
    stream_fn: StreamFn | None = None
    """Replaces the model's own stream function, for tests."""

    @property
    def theme(self) -> str:
        """The theme in the settings; with `auto` the front end chooses."""
        return self.opening.settings.value("theme")

    @property
    def has_motion(self) -> bool:
        """Whether animations are allowed."""
        return self.opening.settings.value("motion")


class Farewell(Value, frozen=True):
    """The last answer, with secrets masked, and the command that resumes the session. Either may be empty."""

    answer: str = ""
    resume: str = ""
    problem: str = ""
    """A message if records could not be written to the session; else empty."""

    @property
    def text(self) -> str:
        """The whole text, escaped for a terminal and ready to print."""
        parts = [safe_text(self.answer.strip())] if self.answer.strip() else []
        if self.problem:
            parts.append(f"warning: {safe_text(self.problem)}")
        if self.resume:
            parts.append(f"To continue this session: {safe_text(self.resume)}")
        return "\n\n".join(parts)


def resuming(session_id: str, cwd: str | None) -> str:
    """Returns the command line that resumes a session, with `-C` if the program was started with a folder."""
    where = f" -C {shlex.quote(cwd)}" if cwd else ""
    return f"swink{where} --resume {session_id}"
