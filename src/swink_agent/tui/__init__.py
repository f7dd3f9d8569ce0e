"""The terminal UI: a conversation with the standard agent, on the whole screen or line by line.

`run_tui` is all that the command line needs. Rooms: `talk` is what is said and done, `transcript` what it looks like as
lines, `composing` what a person writes, `widgets` what Textual draws of all that; the first three know no Textual, so
that `inline` shows the same without a screen. Importing this module loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .talk.options import TalkOptions

__all__ = ["run_tui"]


def run_tui(options: TalkOptions, *, inline: bool = False) -> int:
    """Talks with a person at this terminal until they leave; the exit code. Without lines it needs Textual."""
    if inline:
        from .inline import run_inline

        return run_inline(options)
    from .running import run_full_screen

    return run_full_screen(options)
