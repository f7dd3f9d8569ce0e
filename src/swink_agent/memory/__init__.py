"""Memory: what an agent keeps of a conversation, and what of it is still sent when it outgrows the model.

`SlidingWindow` (the core's own) leaves the oldest messages out, `SummarizingCompactor` has a model sum them up;
`tiktoken_counter` counts tokens as OpenAI's models do. `export_markdown`, `export_html` and `export_json` make a
document of a session. Importing this module loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swink_agent.core.context import SlidingWindow

    from .export import export_html, export_json, export_markdown
    from .info import SessionInfo
    from .summary import SummarizingCompactor
    from .token_counters import tiktoken_counter

_HOMES = {
    "SessionInfo": ".info",
    "SlidingWindow": "swink_agent.core.context",
    "SummarizingCompactor": ".summary",
    "export_html": ".export",
    "export_json": ".export",
    "export_markdown": ".export",
    "tiktoken_counter": ".token_counters",
}

__all__ = [
    "SessionInfo",
    "SlidingWindow",
    "SummarizingCompactor",
    "export_html",
    "export_json",
    "export_markdown",
    "tiktoken_counter",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)
