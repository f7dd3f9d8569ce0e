"""The terminal UI: a full-screen conversation, and the same renderer without a screen for `--inline`.

Importing this module loads nothing: a front end loads what it needs when it is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .talk import TalkOptions

__all__ = ["run_tui"]


def run_tui(request: TalkOptions, *, inline: bool) -> int:
    """Talks until the person leaves; returns the exit code. Without `inline` it needs the extra `tui`."""
    if inline:
        from .inline import run_inline

        return run_inline(request)
    from .running import run_full_screen

    return run_full_screen(request)
