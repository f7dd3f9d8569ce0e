"""The transcript: what was said and done as blocks that make lines of themselves. No terminal and no Textual here.

`Transcript` holds blocks (`UserBlock`, `ReplyBlock`, `ToolBlock`, `ShellBlock`, `NoticeBlock`); `blocks_of` makes them
of a history; `markdown_lines` lays out a text. A `Line` is spans with roles, which a theme gives colours.
"""

from __future__ import annotations

from .block import Block, Transcript, gap_before
from .history import blocks_of
from .line import Line, Span
from .markdown import MarkdownStream, markdown_lines
from .messages import NoticeBlock, UserBlock
from .reply import ReplyBlock
from .tool import ShellBlock, ToolBlock

__all__ = [
    "Block",
    "Line",
    "MarkdownStream",
    "NoticeBlock",
    "ReplyBlock",
    "ShellBlock",
    "Span",
    "ToolBlock",
    "Transcript",
    "UserBlock",
    "blocks_of",
    "gap_before",
    "markdown_lines",
]
