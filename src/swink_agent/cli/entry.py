"""From the process to a command and back: streams that may be missing, errors that need no traceback, an exit code.

Owns the outermost frame. Loads click and nothing else of weight.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, cast

import click

from .discarding import discard_stdout
from .errors_text import DEBUG_VARIABLE, FAILED, INTERRUPTED, is_foreseen, text_of

__all__ = ["run"]


def run(arguments: Sequence[str] | None = None) -> int:
    """The program, with every way out of it."""
    if arguments is None:
        _import_nothing_from_here()
    _fill_missing_streams()
    _write_anything()
    if arguments is None:  # it is the process's own command line, so the process is ours
        _hush_python()
    if "_SWINK_COMPLETE" in os.environ:
        from .completion import speak_to_shells

        speak_to_shells()
    from .root import swink

    try:
        code = _run(swink, arguments)
        _flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return _lost_output(error)
    return code


def _import_nothing_from_here() -> None:
    """A process of its own loads no module from the working folder, where a model may have written: `PYTHONPATH=.`"""
    try:
        here = os.getcwd()
    except OSError:
        here = ""
    sys.path[:] = [entry for entry in sys.path if os.path.isabs(entry) and os.path.realpath(entry) != here]


def _run(command: click.Command, arguments: Sequence[str] | None) -> int:
    try:
        outcome: object = command.main(arguments, prog_name="swink", standalone_mode=False)
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        _show(error)
        _answer_wrong_usage(error, sys.argv[1:] if arguments is None else arguments)
        return error.exit_code
    except Exception as error:
        if _is_lost_output(error):
            raise
        return _report(error)
    return outcome if isinstance(outcome, int) else 0


def _answer_wrong_usage(error: click.ClickException, arguments: Sequence[str]) -> None:
    """A script that asked for an object gets one, also for a command line that nobody understands."""
    from .unanswered import format_in, write_unanswered

    write_unanswered(format_in(arguments), error.format_message(), error.exit_code)


def _report(error: Exception) -> int:
    """One line for an error that says what to do; a bug in the program is one line too, and a way to see more."""
    if os.environ.get(DEBUG_VARIABLE):
        import traceback

        click.echo(_safe("".join(traceback.format_exception(error))), err=True)
    text, code = text_of(error)
    complain(_safe(text))
    if not is_foreseen(error):
        _tell(f"(this should not happen; {DEBUG_VARIABLE}=1 shows where)")
    return code


def _show(error: click.ClickException) -> None:
    """What click has to say, with the words of the command line, a file name among them, made safe."""
    from .screen import Screen

    said = io.StringIO()
    error.show(said)
    usage, mark, message = said.getvalue().partition("Error: ")
    screen = Screen(sys.stderr)
    for line in usage.splitlines():
        screen.line(line)
    screen.say(mark, message.rstrip("\n"))


def _tell(line: str) -> None:
    """A line of our own on stderr, if there is a stderr."""
    from .screen import Screen

    Screen(sys.stderr).line(line)


def complain(message: str) -> None:
    """An error on stderr, if there is a stderr. The message may quote anything."""
    from .screen import Screen

    Screen(sys.stderr).say("error: ", message, "red", "bold")


def _safe(text: str) -> str:
    """Text that may quote a file, a name or a key, without what a terminal would obey or nobody should read."""
    from swink_agent.core.secrets.redaction import Redactor
    from swink_agent.rendering.escaping import safe_text

    return safe_text(Redactor().redact(text))


def _hush_python() -> None:
    """Keeps what the interpreter says of our own mistakes to those who look for them.

    Who runs Python with options for warnings looks for them too.
    """
    if os.environ.get(DEBUG_VARIABLE) or sys.warnoptions:
        return
    import threading
    import warnings

    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda unraisable, /: None
    threading.excepthook = lambda arguments, /: None


# -- streams -------------------------------------------------------------------------------------------------


def _fill_missing_streams() -> None:
    """Puts something in the place of streams that the caller closed.

    Otherwise the next file or socket to be opened would get the number of stdout, and be written to as if it were.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # stdout becomes one that cannot be written to, so that nobody takes silence for an answer.
            os.open(os.devnull, os.O_RDONLY if number < 2 else os.O_WRONLY)
            if getattr(sys, name) is None and number == 1:
                sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole process
            elif getattr(sys, name) is None and number == 2:
                sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def _write_anything() -> None:
    """Lets characters that the terminal's encoding lacks be written out, instead of failing on them."""
    stream: object = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        cast("io.TextIOWrapper[Any]", stream).reconfigure(errors="backslashreplace")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it is when the caller closed it
            stream.flush()


def _is_lost_output(error: Exception) -> bool:
    """Whether the error is about a stream that was being written, and not about some file."""
    broken = (errno.EPIPE, errno.ENOSPC, errno.EBADF, errno.EIO)
    return isinstance(error, OSError) and error.errno in broken and error.filename is None


def _lost_output(error: OSError) -> int:
    """Nobody reads any more, or the disk is full: the first is no news, the second is said."""
    if error.errno not in (errno.EPIPE, errno.EBADF):
        complain(f"the output cannot be written: {error.strerror or error}")
    elif error.errno == errno.EBADF:
        complain("the output cannot be written: stdout is closed")
    discard_stdout()
    return FAILED
