"""An exception as a user is told of it, and the exit code that goes with it.

Owns the words for what is no error of ours to have foreseen: nothing of Python shows in them.
"""

from __future__ import annotations

__all__ = ["is_foreseen", "text_of"]

DEBUG_VARIABLE = "SWINK_DEBUG"
FAILED, USAGE, INTERRUPTED = 1, 2, 130  # as in app.errors, which is not loaded for this


def text_of(error: BaseException) -> tuple[str, int]:
    """What to say, and the exit code."""
    import click

    from swink_agent.app.errors import ApplicationError

    match error:
        case ApplicationError():
            return str(error), int(error.exit_code)
        case click.exceptions.Abort() | KeyboardInterrupt():
            return "interrupted", INTERRUPTED
        case click.ClickException():
            return error.format_message(), error.exit_code
        case MemoryError():
            return "there is not enough memory", FAILED
        case FileNotFoundError(filename=None) if not _has_folder():
            return "the current folder is gone: change into one that is there", USAGE
        case OSError(strerror=str(reason)):
            return f"{error.filename}: {reason}" if isinstance(error.filename, str) else reason, FAILED
        case _:
            return str(error).strip() or "no reason is known", FAILED


def is_foreseen(error: BaseException) -> bool:
    """Whether it is an error of the caller or the machine; any other is a bug."""
    from swink_agent.app.errors import ApplicationError

    return isinstance(error, (ApplicationError, MemoryError, OSError))


def _has_folder() -> bool:
    import os

    try:
        return bool(os.getcwd())
    except OSError:
        return False
