"""Runs a command in this process: repairs missing streams, turns errors into one line, returns an exit code.

The only large package that it loads is click.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, cast

import click

from .error_text import DEBUG_VARIABLE, FAILED, INTERRUPTED, is_foreseen, text_of


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit code, whatever happens."""
    if arguments is None:
        _do_not_import_from_here()
    _fill_missing_streams()
    _write_anything()
    if arguments is None:  # the command line is the process's own, so the process is ours
        _hide_warnings()
    if "_SWINK_COMPLETE" in os.environ:
        from ..completion.scripts import speak_to_shells

        speak_to_shells()
    from ..root import swink

    try:
        code = _run(swink, arguments)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:  # it is None if the caller closed it
                stream.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return _lost_output(error)
    return code


def _do_not_import_from_here() -> None:
    """Prevents imports from the current folder, such as with `PYTHONPATH=.`: a model may have written there."""
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
        from .unanswered import format_in, write_unanswered

        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            error.show()  # a group without a command shows its help
        else:
            complain(text_of(error)[0])
        asked_for = format_in(sys.argv[1:] if arguments is None else arguments)
        write_unanswered(asked_for, text_of(error)[0], error.exit_code)  # the object, even for a wrong command line
        return error.exit_code
    except Exception as error:
        if _is_lost_output(error):
            raise
        return _report(error)
    return outcome if isinstance(outcome, int) else 0


def _report(error: Exception) -> int:
    """Reports an error in one line. For a bug in the program, a hint follows how to see more."""
    if os.environ.get(DEBUG_VARIABLE):
        import traceback

        click.echo(_safe("".join(traceback.format_exception(error))), err=True)
    text, code = text_of(error)
    complain(_safe(text))
    if not is_foreseen(error):
        from ..screen.screen import Screen

        Screen(sys.stderr).line(f"(this should not happen; {DEBUG_VARIABLE}=1 shows where)")
    return code


def complain(message: str) -> None:
    """Writes an error to stderr, if there is a stderr. The message may quote any text."""
    from ..screen.screen import Screen

    Screen(sys.stderr).say("error: ", message, "red", "bold")


def _safe(text: str) -> str:
    """The text without secrets and terminal control characters. It may quote anything."""
    from swink_agent.core.secrets.redaction import Redactor
    from swink_agent.rendering.escaping import safe_text

    return safe_text(Redactor().redact(text))


def _hide_warnings() -> None:
    """Hides Python's own warnings unless debugging is on, or Python was started with options for warnings."""
    if os.environ.get(DEBUG_VARIABLE) or sys.warnoptions:
        return
    import threading
    import warnings

    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda unraisable, /: None
    threading.excepthook = lambda arguments, /: None


# -- streams -------------------------------------------------------------------------------------------------


def _fill_missing_streams() -> None:
    """Opens `/dev/null` for each standard stream that the caller closed.

    Otherwise the next file or socket would get the number of stdout, and the program would write its output to it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # Opened for reading, so that writing to stdout fails: a caller must not take silence for an answer.
            os.open(os.devnull, os.O_RDONLY if number < 2 else os.O_WRONLY)
            if getattr(sys, name) is None:
                mode, errors = "r" if number == 0 else "w", "backslashreplace" if number == 2 else None
                stream = open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115 - stays open
                setattr(sys, name, stream)


def _write_anything() -> None:
    """Escapes characters that the terminal's encoding lacks, instead of failing on them."""
    stream: object = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        cast("io.TextIOWrapper[Any]", stream).reconfigure(errors="backslashreplace")


def _is_lost_output(error: Exception) -> bool:
    """Whether the error is about writing a stream, not about a file."""
    broken = (errno.EPIPE, errno.ENOSPC, errno.EBADF, errno.EIO)
    return isinstance(error, OSError) and error.errno in broken and error.filename is None


def _lost_output(error: OSError) -> int:
    """Reports output that cannot be written, such as on a full disk. A closed pipe is not reported."""
    if error.errno not in (errno.EPIPE, errno.EBADF):
        complain(f"the output cannot be written: {error.strerror or error}")
    elif error.errno == errno.EBADF:
        complain("the output cannot be written: stdout is closed")
    from ..screen.screen import discard_stdout

    discard_stdout()
    return FAILED
