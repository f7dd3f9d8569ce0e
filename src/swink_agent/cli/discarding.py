"""What is left in stdout's buffer when nobody reads it any more, or nothing more is to be said there."""

from __future__ import annotations

import os
import sys

__all__ = ["discard_stdout"]


def discard_stdout() -> None:
    """Lets whatever is still in stdout's buffer go nowhere, so that the interpreter does not stumble on it at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
        sys.stdout.flush()
    except (OSError, ValueError):
        pass
