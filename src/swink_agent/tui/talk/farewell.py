"""What is left on the normal screen when a conversation is over.

Owns the words: the last answer, and the command that goes on from there. How they come to the screen, also after a
crash, is for the front end.
"""

from __future__ import annotations

import shlex

from swink_agent.core.values.value import Value
from swink_agent.rendering.escaping import safe_text

__all__ = ["Farewell", "resuming"]


class Farewell(Value, frozen=True):
    """The last answer, masked, and how to resume; either may be empty."""

    answer: str = ""
    resume: str = ""
    problem: str = ""
    """What could not be written of the session, if something could not."""

    @property
    def text(self) -> str:
        """All of it, safe for a terminal, ready to be printed."""
        parts = [safe_text(self.answer.strip())] if self.answer.strip() else []
        if self.problem:
            parts.append(f"warning: {safe_text(self.problem)}")
        if self.resume:
            parts.append(f"To go on with this: {safe_text(self.resume)}")
        return "\n\n".join(parts)


def resuming(session_id: str, cwd: str | None) -> str:
    """The command line that goes on with a session, from here."""
    where = f" -C {shlex.quote(cwd)}" if cwd else ""
    return f"swink{where} --resume {session_id}"
