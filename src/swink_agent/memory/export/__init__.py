"""A session as a document for people and programs: Markdown, one HTML page, or JSON.

Each is a function from plain values to a string; nothing is read, fetched or written. The pieces that they are made of
are in `swink_agent.rendering`. Importing this module loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .document import export_json
    from .markdown import export_markdown
    from .page import export_html

_HOMES = {"export_html": ".page", "export_json": ".document", "export_markdown": ".markdown"}

__all__ = ["export_html", "export_json", "export_markdown"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)
