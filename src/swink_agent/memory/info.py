"""What is known of a session without reading it whole.

Owns `SessionInfo`, the `Problem`s that it tells of, what a search gives (`SearchHit`), how a title is made of the
first thing that was said, and how a folder is named.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from swink_agent.core.types import Cost, ModelSpec, Usage
from swink_agent.core.values.value import Value

__all__ = ["Problem", "SearchHit", "SessionInfo", "folder_name", "title_from"]

_LONGEST_TITLE = 80


class Problem(NamedTuple):
    """What is wrong with a session's file."""

    words: str
    is_damage: bool = True
    """Whether something is lost. What is whole, but of a type that only its application knows, is not."""


class SessionInfo(Value, frozen=True, kw_only=True):
    """One session, as a list shows it. Times are milliseconds since the epoch."""

    id: str
    title: str = ""
    """As it was given, else the start of the first user message."""
    created: int = 0
    updated: int = 0
    cwd: str = ""
    model: ModelSpec | None = None
    """The one that was asked last, or is to be asked next."""
    messages: int = 0
    usage: Usage = Usage()
    cost: Cost = Cost()
    parent: str | None = None
    """The id of the session that this one was forked from."""
    version: int = 1
    """Of the file's format."""
    metadata: dict[str, object] = {}
    """What the application gave when it created the session."""
    problems: tuple[str, ...] = ()
    """What was wrong with the file, in words."""
    damage: tuple[str, ...] = ()
    """Those of the problems by which something is lost: all but an application's own messages, if their types were not
    given to the store."""


class SearchHit(Value, frozen=True):
    """A message in which everything was found that was asked for."""

    session: SessionInfo
    position: int
    """The index of the message in the session's history, from 0."""
    snippet: str
    """The text around the hit, on one line."""


def title_from(text: str) -> str:
    """The start of a text, on one line."""
    line = " ".join(text[: 8 * _LONGEST_TITLE].split())
    return line if len(line) <= _LONGEST_TITLE else line[: _LONGEST_TITLE - 1].rstrip() + "…"


def folder_name(folder: str | os.PathLike[str]) -> str:
    """A folder as sessions name it, to compare with: bytes of its name that are no text are question marks on disk."""
    return os.fspath(folder).encode("utf-8", "replace").decode()
