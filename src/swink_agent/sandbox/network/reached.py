"""The hosts that a command reached or tried to reach by name, and how its proxy resolves and connects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from swink_agent.core.values.value import Value

if TYPE_CHECKING:
    import asyncio

_MOST = 200
ResolveFn = Callable[[str, int], Awaitable[Iterable[str]]]
"""Takes a host and a port and returns addresses."""
ConnectFn = Callable[[str, int], Awaitable["tuple[asyncio.StreamReader, asyncio.StreamWriter]"]]
"""Takes an address and a port and returns a connection to it."""


class WaysOut(NamedTuple):
    """Replacements for the system's resolver and connections, if given."""

    resolve: ResolveFn | None = None
    connect: ConnectFn | None = None


class Reached(Value, frozen=True):
    """A host and port that a command asked for.

    `allowed`: whether it may be reached. `why` is empty if it was reached; else it is the rest of a sentence that
    begins with host and port: why it was refused, or what failed.
    """

    host: str
    port: int
    allowed: bool
    why: str = ""


class ReachedLog:
    """The requests of one command: the first 200 different ones, in their order."""

    def __init__(self) -> None:
        self._entries: dict[Reached, None] = {}

    def add(self, reached: Reached) -> None:
        if len(self._entries) < _MOST:
            self._entries.setdefault(reached)

    def entries(self) -> tuple[Reached, ...]:
        return tuple(self._entries)
