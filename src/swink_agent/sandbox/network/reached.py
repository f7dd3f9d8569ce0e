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
    """The requests of one command: at most 200 different ones, in their order.

    Hosts that were reached push out hosts that could not be reached, and these push out refused ones. So no command
    can hide what it reached behind requests that fail.
    """

    def __init__(self) -> None:
        self._kinds: tuple[dict[Reached, int], ...] = ({}, {}, {})
        """Reached, failed, refused: each request with its number. Only the first 200 of a kind are kept."""
        self._count = 0

    def add(self, reached: Reached) -> None:
        kind = self._kinds[2 if not reached.allowed else 1 if reached.why else 0]
        if reached not in kind and len(kind) < _MOST:
            kind[reached] = self._count
            self._count += 1

    def entries(self) -> tuple[Reached, ...]:
        kept = [item for kind in self._kinds for item in kind.items()][:_MOST]
        return tuple([reached for reached, _ in sorted(kept, key=lambda item: item[1])])
