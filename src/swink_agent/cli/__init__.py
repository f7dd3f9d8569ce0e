"""The `swink` command.

Handles arguments, signals, streams and exit codes; code that another front end could use is in `app`. Importing this
module loads nothing, and a command loads only what it needs: `swink --help` must be quick.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program with the arguments, by default those of the process, and returns its exit code."""
    from .process.entry import run

    return run(arguments)
