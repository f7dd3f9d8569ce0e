"""What a proxy resolves names and makes connections by: the system, or what the application gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio

ResolveFn = Callable[[str, int], Awaitable[Iterable[str]]]
"""Takes a host and a port and returns addresses."""
ConnectFn = Callable[[str, int], Awaitable["tuple[asyncio.StreamReader, asyncio.StreamWriter]"]]
"""Takes an address and a port and returns a connection to it."""


class WaysOut(NamedTuple):
    """What takes the place of the system's resolver and connections, if given."""

    resolve: ResolveFn | None = None
    connect: ConnectFn | None = None
