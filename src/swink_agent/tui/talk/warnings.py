"""What the library warns of, as notices of a conversation.

Owns the handler on the library's log, for as long as a conversation is open.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable

from swink_agent.core.cancel import call_in

__all__ = ["LibraryWarnings"]


class LibraryWarnings(logging.Handler):
    """Calls `tell` in the event loop for every warning, from whatever thread it comes."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = contextvars.Context()

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()  # a thread has none of what a front end draws by
        logging.getLogger("swink_agent").addHandler(self)

    def close(self) -> None:
        logging.getLogger("swink_agent").removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        if self._loop is not None:  # a traceback is of no use to a person, and may hold anything
            call_in(self._loop, self._context.run, self._tell, record.getMessage())
