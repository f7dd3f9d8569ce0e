"""What stdout gets when nothing was asked: with `--output json` an object with every field, also then.

Owns the outcome of a command line that cannot be used, of an interrupt before the run, and of a bug in the program.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from .errors_text import INTERRUPTED, text_of

if TYPE_CHECKING:
    from swink_agent.core.types import ModelSpec

__all__ = ["UnansweredOutput", "format_in", "write_unanswered"]

_FORMATS = ("json", "stream-json")
_VARIABLE = "SWINK_OUTPUT"


class UnansweredOutput:
    """Writes the outcome if the block is left by an exception before `is_answered`; the exception goes on."""

    def __init__(self, format_name: str | None) -> None:
        self.format_name = format_name or os.environ.get(_VARIABLE, "")
        self.model: ModelSpec | None = None
        self.session: str | None = None
        self.is_answered = False

    def __enter__(self) -> UnansweredOutput:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            return
        # No second Ctrl+C comes between the first and the object that tells of it, nor between that and the exit.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.answer(error)
        if text_of(error)[1] != INTERRUPTED:
            signal.signal(signal.SIGINT, before)

    def answer(self, error: BaseException) -> None:
        """Writes the outcome that an exception makes, unless there is one already."""
        if self.is_answered:
            return
        self.is_answered = True
        text, code = text_of(error)
        write_unanswered(self.format_name, text, code, self.model, self.session)


def format_in(arguments: Sequence[str]) -> str:
    """The format that a command line asks for, as far as that can be told of one that cannot be used."""
    found = ""
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if argument == "--":
            break
        if name == "--output":
            found = value if equals else arguments[position + 1] if position + 1 < len(arguments) else ""
    has_prompt = any(argument.startswith(("-p", "--prompt")) for argument in arguments)
    return found or (os.environ.get(_VARIABLE, "") if has_prompt else "")


def write_unanswered(
    format_name: str, text: str, code: int, model: ModelSpec | None = None, session: str | None = None
) -> None:
    """Writes the outcome, if the format has one for this. A stdout that cannot be written is left alone."""
    if format_name not in _FORMATS:
        return
    from swink_agent.app.errors import ExitCode
    from swink_agent.app.headless import Outcome
    from swink_agent.app.output import output_for
    from swink_agent.core.secrets.redaction import Redactor
    from swink_agent.core.types import StopReason

    from .screen import write_answer

    was_stopped = code == ExitCode.INTERRUPTED
    outcome = Outcome(
        exit_code=ExitCode(code),
        model=model,
        error=text,
        stop_reason=StopReason.ABORTED if was_stopped else StopReason.ERROR,
        session=session,
    )
    output_for(format_name, write_answer, Redactor(), lambda: None).finish(outcome)
