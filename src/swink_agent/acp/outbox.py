"""The notifications of one session, sent one after another.

The conversation tells what happens at once and waits for nobody. For an editor that reads slowly, pieces of text are
joined.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from acp.schema import AgentMessageChunk, AgentThoughtChunk

_LONGEST_PIECE = 16 * 1024


class Outbox:
    """Sends notifications in order. Until `open`, they wait: the editor does not know the session yet."""

    def __init__(self, send: Callable[[Any], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: deque[Any] = deque()
        self._is_open = False
        self._sending: asyncio.Task[None] | None = None

    def add(self, update: Any) -> None:
        last = self._waiting[-1] if self._waiting else None
        if last is None or not _join(last, update):
            self._waiting.append(update)
        self._begin()

    def open(self) -> None:
        self._is_open = True
        self._begin()

    async def sent(self) -> None:
        """Returns when everything is sent, or the editor is gone."""
        while self._sending is not None:
            await asyncio.wait([self._sending])

    def _begin(self) -> None:
        if self._is_open and self._waiting and self._sending is None:
            self._sending = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await self._send(self._waiting.popleft())
        except ConnectionError:  # the editor is gone, and with it the connection
            self._waiting.clear()
        finally:
            self._sending = None


def _join(last: Any, update: Any) -> bool:
    """Adds a piece of text to the one that waits, if both are of one message."""
    is_piece = type(last) is type(update) and isinstance(update, AgentMessageChunk | AgentThoughtChunk)
    if not is_piece or last.message_id != update.message_id:
        return False
    before, after = getattr(last.content, "text", None), getattr(update.content, "text", None)
    if before is None or after is None or len(before) > _LONGEST_PIECE:
        return False
    last.content.text = before + after
    return True
