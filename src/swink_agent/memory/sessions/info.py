"""Descriptions of sessions, for lists and searches.

Owns `SessionInfo`, `Problem`, the result of a search (`SearchHit`), how a title is made from the first message, and
how a folder is named.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from msgspec import field

from swink_agent.core.types import Cost, ModelSpec, Usage
from swink_agent.core.values.value import Value

_LONGEST_TITLE = 80


class Problem(NamedTuple):
    """A problem with a session's file."""

    words: str
    is_damage: bool = True
    """Whether something is lost. A message of a type that only its application knows is not lost."""


class SessionInfo(Value, frozen=True, kw_only=True):
    """One session, as a list shows it. Times are milliseconds since the epoch."""

    id: str
    title: str = ""
    """The title that was given, else the start of the first user message that is neither a summary nor the output of a
    shell command."""
    created: int = 0
    updated: int = 0
    cwd: str = ""
    model: ModelSpec | None = None
    """The model of the last request, or of the next one."""
    messages: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    parent: str | None = None
    """The id of the session that this one was forked from."""
    version: int = 1
    """The version of the file's format."""
    metadata: dict[str, object] = {}
    """The metadata that the application gave when it created the session."""
    problems: tuple[str, ...] = ()
    """Descriptions of the problems with the file."""
    pending: int = 0
    """How many calls wait for an answer, which `agent.resume` gives."""
    damage: tuple[str, ...] = ()
    """The problems that lost something: all but custom messages whose types the store was not given."""


class SearchHit(Value, frozen=True):
    """A message that matches a search."""

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
    """A folder's name as sessions record it, for comparisons: bytes that are not text become question marks."""
    return os.fspath(folder).encode("utf-8", "replace").decode()
