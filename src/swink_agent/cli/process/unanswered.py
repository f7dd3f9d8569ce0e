"""Writes the object that `--output json` promises when no model was asked.

Used for a wrong command line, an interrupt before the run, and a bug in the program.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from .error_text import INTERRUPTED, text_of

if TYPE_CHECKING:
    from swink_agent.core.types import ModelSpec

_FORMATS = ("json", "stream-json")
_VARIABLE = "SWINK_OUTPUT"


class UnansweredOutput:
    """Writes an outcome if an exception leaves the block before `is_answered` is set. The exception is raised again."""

    def __init__(self, format_name: str | None) -> None:
        self.format_name = format_name or os.environ.get(_VARIABLE, "")
        self.model: ModelSpec | None = None
        self.session: str | None = None
        self.is_answered = False

    def __enter__(self) -> UnansweredOutput:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a caller may have set it to be ignored
            signal.signal(signal.SIGINT, _interrupt_once)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            self.answer(error)
            if text_of(error)[1] == INTERRUPTED:
                return  # SIGINT stays ignored until the process has ended
            signal.signal(signal.SIGINT, before)
        if signal.getsignal(signal.SIGINT) is _interrupt_once:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def answer(self, error: BaseException) -> None:
        """Writes the outcome for an exception, unless an outcome was already written."""
        if self.is_answered:
            return
        self.is_answered = True
        text, code = text_of(error)
        write_unanswered(self.format_name, text, code, self.model, self.session)


def _interrupt_once(number: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt for the first Ctrl+C only: a second one would interrupt writing the outcome."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def format_in(arguments: Sequence[str]) -> str:
    """Guesses the output format from a command line that could not be parsed."""
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
    """Writes the outcome if the format has one. Does nothing if stdout cannot be written."""
    if format_name not in _FORMATS:
        return
    from swink_agent.app.errors import ExitCode
    from swink_agent.app.runs.headless import Outcome
    from swink_agent.app.runs.output import output_for
    from swink_agent.core.secrets.redaction import Redactor
    from swink_agent.core.types import StopReason

    from ..screen.screen import write_answer

    was_stopped = code == ExitCode.INTERRUPTED
    outcome = Outcome(
        exit_code=ExitCode(code),
        model=model,
        error=text,
        stop_reason=StopReason.ABORTED if was_stopped else StopReason.ERROR,
        session=session,
    )
    output_for(format_name, write_answer, Redactor(), lambda: None).finish(outcome)
