"""The conversation behind every front end of the terminal UI. It does not use Textual and does not draw."""

from __future__ import annotations

from .conversation import Conversation
from .farewell import Farewell
from .front import Front, PickItem, PreviewFn
from .options import TalkOptions

__all__ = ["Conversation", "Farewell", "Front", "PickItem", "PreviewFn", "TalkOptions"]
