"""The traces of a provider's own web search in a reply: the sources, as text, and the parts to be sent back.

A thinking block shows the queries, and its signature keeps the parts that only the provider can read. So they stay in
their place in the history, are not sent to other providers, and are stored unchanged in sessions.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from swink_agent.core.types import Thinking
from swink_agent.rendering.texts.invisible import is_deceptive

SEARCHES = "web_searches"
"""The name of the number of searches in `Usage.extra`, and of their cost in `Cost.extra`."""
TOOL_NAME = "web_search"
"""The provider's tool. A tool of the application with this name replaces it."""
_KEPT = "search:"
_ADDRESS = re.compile(r"https?://[^\s<>\"]+")
_MOST_SOURCES = 20
_LONGEST_LINE = 120
_LONGEST_ADDRESS = 2_000


class Sources:
    """The sources of a reply, each once, in the order in which the provider names them."""

    def __init__(self) -> None:
        self._titles: dict[str, str] = {}

    def add(self, url: object, title: object) -> None:
        """Adds a source. One that is not a valid web address, and any beyond the twentieth, is left out."""
        if not isinstance(url, str) or len(url) > _LONGEST_ADDRESS or not _ADDRESS.fullmatch(url):
            return
        if any(map(is_deceptive, url)) or (url not in self._titles and len(self._titles) >= _MOST_SOURCES):
            return
        self._titles.setdefault(url, _line(title))

    def take(self) -> str:
        """Returns the sources as the end of a text, and forgets them; empty without any."""
        titles, self._titles = self._titles, {}
        lines = [f"- {title}: {url}" if title else f"- {url}" for url, title in titles.items()]
        return "\n\nSources:\n" + "\n".join(lines) if lines else ""


def searched(*queries: object) -> str:
    """Returns the line that shows a search to readers; empty if the provider does not name the queries."""
    shown = [line for query in queries if (line := _line(query))]
    return f"Searched the web: {'; '.join(shown)}\n" if shown else ""


def _line(value: object) -> str:
    """Returns a foreign text as one short line without hidden characters."""
    shown = "".join(" " if is_deceptive(one) else one for one in value) if isinstance(value, str) else ""
    return " ".join(shown.split())[:_LONGEST_LINE]


def kept(parts: list[dict[str, Any]]) -> str:
    """Returns the signature of the thinking block that keeps parts of a reply."""
    return _KEPT + msgspec.json.encode(parts).decode()


def is_kept(block: object) -> bool:
    """Whether a block keeps parts of a search."""
    return type(block) is Thinking and block.signature is not None and block.signature.startswith(_KEPT)


def kept_parts(block: Thinking) -> list[dict[str, Any]]:
    """Returns the parts that a block keeps."""
    try:
        return msgspec.json.decode((block.signature or "").removeprefix(_KEPT), type=list[dict[str, Any]])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
