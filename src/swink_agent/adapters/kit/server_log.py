"""The log of our servers: one safe line for each problem with a request, and never a traceback.

Has the logger for aiohttp, and the quoting of a client's text. The servers decide what they refuse.
"""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger("swink_agent")
_LONGEST_QUOTE = 60


def quoted(text: str, most: int = _LONGEST_QUOTE) -> str:
    """Makes a client's text safe for the log: ASCII, without control characters, and short."""
    shown = ascii(text)[1:-1]
    return shown if len(shown) <= most else f"{shown[:most]}..."


class ServerLog(logging.Logger):
    """aiohttp's log as one line for each problem, without tracebacks, which a client could cause at will."""

    def debug(self, msg: object, *args: object, exc_info: object = None, **_: Any) -> None:
        if exc_info is not None:
            self._tell(exc_info)

    def exception(self, msg: object, *args: object, exc_info: object = True, **_: Any) -> None:
        self._tell(exc_info)

    def _tell(self, problem: object) -> None:
        name = type(problem).__name__ if isinstance(problem, BaseException) else "an error"
        log.warning("refused a request that cannot be read: %s", name)
