"""What is known of a session without its messages.

Owns one value. Where it is read from is the store's.
"""

from __future__ import annotations

from msgspec import field

from swink_agent.core.types import Cost, ModelSpec, Usage
from swink_agent.core.value import Value

__all__ = ["SessionInfo"]


class SessionInfo(Value, frozen=True, kw_only=True):
    """A session at a glance: what it is about, whose model it talks to, how long it is and what it cost."""

    id: str
    title: str = ""
    created: int = 0
    updated: int = 0
    cwd: str = ""
    model: ModelSpec | None = None
    messages: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    parent: str | None = None
    version: int = 1
    problems: tuple[str, ...] = ()
    """What was wrong with the file, in words; empty when nothing was."""
