"""The text that the front end prints on the normal screen after a conversation, even after a crash.

It has the last answer and the command that resumes the session.
"""

from __future__ import annotations

import shlex

from swink_agent.core.values.value import Value
from swink_agent.rendering.escaping import safe_text


class Farewell(Value, frozen=True):
    """The last answer, with secrets masked, and the command that resumes the session. Either may be empty."""

    answer: str = ""
    resume: str = ""
    problem: str = ""
    """A message about what could not be written to the session; empty if everything was."""

    @property
    def text(self) -> str:
        """The whole text, escaped for a terminal and ready to print."""
        parts = [safe_text(self.answer.strip())] if self.answer.strip() else []
        if self.problem:
            parts.append(f"warning: {safe_text(self.problem)}")
        if self.resume:
            parts.append(f"To go on with this: {safe_text(self.resume)}")
        return "\n\n".join(parts)


def resuming(session_id: str, cwd: str | None) -> str:
    """Returns the command line that resumes a session, with `-C` if the program was started with a folder."""
    where = f" -C {shlex.quote(cwd)}" if cwd else ""
    return f"swink{where} --resume {session_id}"
