"""Decides which messages of a server matter, and when it sends too many. Both transports drop the others early."""

from __future__ import annotations

import time

LIST_CHANGED = "notifications/tools/list_changed"  # the transports report it directly to the `McpServer`
_HEARD = frozenset({"notifications/progress", "notifications/cancelled"})
"""The other notifications that are not dropped."""
_MOST_HEARD = 500
"""How many of them are taken in a second: the package needs much more time for each than the server that sends it."""
MOST_IN_A_MINUTE = 300_000
TOO_MANY = f"it sent more than {MOST_IN_A_MINUTE:,} messages within a minute"


class Flood:
    """Counts the messages of one connection."""

    def __init__(self) -> None:
        self._since = self._second = time.monotonic()
        self._count = self._heard = 0

    def grows(self) -> bool:
        """Counts one more. Returns whether these are too many."""
        self._count += 1
        if self._count <= MOST_IN_A_MINUTE:
            return False
        now = time.monotonic()
        if now - self._since < 60:
            return True
        self._since, self._count = now, 0
        return False

    def hears(self, notification: str) -> bool:
        """Whether a notification is taken. Those that do not matter, or come too fast, are dropped."""
        if notification not in _HEARD:
            return False
        now = time.monotonic()
        if now - self._second >= 1:
            self._second, self._heard = now, 0
        self._heard += 1
        return self._heard <= _MOST_HEARD
