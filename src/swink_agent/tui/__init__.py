"""The terminal UI: a conversation with the standard agent, full-screen or line by line.

The command line calls `run_tui`. `app.talk` holds the conversation, `transcript` lays it out as lines, `composing`
edits prompts, and `widgets` draws all of it with Textual. The first three do not use Textual, so `inline` shows the
same conversation without a screen. Importing this module loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swink_agent.app.talk.options import TalkOptions

__all__ = ["run_tui"]


def run_tui(options: TalkOptions, *, inline: bool = False) -> int:
    """Runs a conversation at this terminal until the user leaves; returns the exit code. `inline` needs no Textual."""
    if inline:
        from .inline import run_inline

        return run_inline(options)
    from .full_screen import run_full_screen

    return run_full_screen(options)
