"""The `swink` command.

Owns arguments, signals, streams and exit codes; everything that could be of use to another front end is in `app`.
Importing this module loads nothing, and a command loads what it needs and no more: `swink --help` has to be quick.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program with the arguments, by default those of the process, and returns its exit code."""
    from .process.entry import run

    return run(arguments)
