"""Memory: sessions that survive a crash, and what of a conversation is still sent when it outgrows the model.

`JsonlSessionStore` keeps one file for each session; a `Session` is attached to an agent and records what it does, a
`LoadedSession` is one to look at; `export_markdown`, `export_html` and `export_json` make a document of it, and
`replay` runs it again, offline, and reports the first difference. `SessionIndex` finds what was said in any.
`SlidingWindow` (the core's own) leaves the oldest messages out, `SummarizingCompactor` has a model sum them up;
`tiktoken_counter` counts tokens as OpenAI's models do. Importing this module loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swink_agent.core.context import SlidingWindow

    from .divergence import Divergence, ReplayReport
    from .errors import SessionAmbiguous, SessionDamaged, SessionError, SessionInUse, SessionNotFound
    from .export import export_html, export_json, export_markdown
    from .info import SessionInfo
    from .records import (
        LabelAdded,
        NoteAdded,
        SessionRecord,
        SessionStarted,
        Summary,
        TitleChanged,
        UnknownMessage,
        UnknownRecord,
    )
    from .replaying import replay
    from .search import SearchHit, SessionIndex
    from .session import LoadedSession, Session
    from .store import AsyncSessionStore, JsonlSessionStore
    from .summary import SummarizingCompactor
    from .token_counters import tiktoken_counter

_HOMES = {
    "AsyncSessionStore": ".store",
    "Divergence": ".divergence",
    "JsonlSessionStore": ".store",
    "LabelAdded": ".records",
    "LoadedSession": ".session",
    "NoteAdded": ".records",
    "ReplayReport": ".divergence",
    "SearchHit": ".search",
    "Session": ".session",
    "SessionAmbiguous": ".errors",
    "SessionDamaged": ".errors",
    "SessionError": ".errors",
    "SessionInUse": ".errors",
    "SessionIndex": ".search",
    "SessionInfo": ".info",
    "SessionNotFound": ".errors",
    "SessionRecord": ".records",
    "SessionStarted": ".records",
    "SlidingWindow": "swink_agent.core.context",
    "SummarizingCompactor": ".summary",
    "Summary": ".records",
    "TitleChanged": ".records",
    "UnknownMessage": ".records",
    "UnknownRecord": ".records",
    "export_html": ".export",
    "export_json": ".export",
    "export_markdown": ".export",
    "replay": ".replaying",
    "tiktoken_counter": ".token_counters",
}

__all__ = [
    "AsyncSessionStore",
    "Divergence",
    "JsonlSessionStore",
    "LabelAdded",
    "LoadedSession",
    "NoteAdded",
    "ReplayReport",
    "SearchHit",
    "Session",
    "SessionAmbiguous",
    "SessionDamaged",
    "SessionError",
    "SessionInUse",
    "SessionIndex",
    "SessionInfo",
    "SessionNotFound",
    "SessionRecord",
    "SessionStarted",
    "SlidingWindow",
    "SummarizingCompactor",
    "Summary",
    "TitleChanged",
    "UnknownMessage",
    "UnknownRecord",
    "export_html",
    "export_json",
    "export_markdown",
    "replay",
    "tiktoken_counter",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)
