"""The transcript of a conversation as blocks that draw themselves as lines. Independent of the terminal and of Textual.

`Transcript` holds blocks (`UserBlock`, `ReplyBlock`, `ToolBlock`, `ShellBlock`, `NoticeBlock`); `blocks_of` makes them
from a history. A `Line` consists of spans with roles; a theme colours the roles.
"""

from __future__ import annotations

from .block import Block, Transcript, gap_before
from .history import blocks_of
from .line import Line, Span
from .messages import NoticeBlock, UserBlock
from .reply import ReplyBlock
from .tool import ShellBlock, ToolBlock

__all__ = [
    "Block",
    "Line",
    "NoticeBlock",
    "ReplyBlock",
    "ShellBlock",
    "Span",
    "ToolBlock",
    "Transcript",
    "UserBlock",
    "blocks_of",
    "gap_before",
]
