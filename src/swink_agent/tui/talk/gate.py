"""The gate that everything a person sends passes: shut while an agent is made, or another takes its place.

Owns who waits and for how long. A prompt that came in between would go to an agent that is being left, in a session
that is being closed, and no key could stop it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["SendGate"]


class SendGate:
    """Shut when it is made. `open` opens it once and for all, `shut` shuts it for as long as something is done."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._holders = 1

    @property
    def is_open(self) -> bool:
        return not self._holders

    def open(self) -> None:
        """Ends the first wait: there is an agent, or it is known that there is none."""
        self._let_go()

    @contextmanager
    def shut(self) -> Generator[None]:
        """Nobody passes in the meantime; it may be shut by several at once."""
        self._holders += 1
        self._open.clear()
        try:
            yield
        finally:
            self._let_go()

    async def passed(self) -> None:
        """Returns when it is open: at that moment, and until the caller waits for something else."""
        while not self.is_open:
            await self._open.wait()

    def _let_go(self) -> None:
        self._holders = max(self._holders - 1, 0)
        if self.is_open:
            self._open.set()
