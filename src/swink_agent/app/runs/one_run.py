"""What every run of an agent needs around it: the model is prepared, the time limit holds, and it can be interrupted.

Every front end runs an agent in this way. What the run produced, and how it is told, is the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias, TypeVar

from swink_agent.core.agent.agent import Agent
from swink_agent.core.cancel import CancellationToken

T = TypeVar("T")
PrepareFn: TypeAlias = Callable[[CancellationToken], None]
"""Preparation before a run, called in a thread. Raises `ApplicationError`, or `Aborted` when cancelled."""
Reason: TypeAlias = Literal["interrupted", "timeout", "output"]
"""Why a run was stopped from outside: by a user, by the clock, or because the output was closed."""


class OneRun:
    """One run of an agent. Any thread, and a signal handler, may `interrupt` it."""

    def __init__(
        self,
        agent: Agent[Any],
        *,
        timeout: float | None = None,
        prepare: PrepareFn | None = None,
        waiting: CancellationToken | None = None,
    ) -> None:
        self.agent = agent
        self.waiting = CancellationToken() if waiting is None else waiting
        """Cancelled when the run is interrupted, so that threads stop waiting."""
        self.reason: Reason | None = None
        """Why the run was interrupted; `None` if it was not."""
        self._timeout = timeout
        self._prepare = prepare

    @property
    def timeout_words(self) -> str:
        return f"stopped after {self._timeout:g} seconds (--timeout)"

    def interrupt(self, reason: Reason = "interrupted") -> None:
        """Ends the run soon and cleanly. The first reason counts."""
        self.reason = self.reason or reason
        self.waiting.cancel()
        self.agent.abort()

    def in_thread(self, work: Callable[[CancellationToken], T]) -> asyncio.Future[T]:
        """Starts work in a thread. It stops when the run is interrupted."""
        return asyncio.get_running_loop().run_in_executor(None, work, self.waiting)

    def preparing(self) -> asyncio.Future[None] | None:
        """Starts to prepare the model, for example to download it; `None` if nothing is to prepare."""
        return None if self._prepare is None else self.in_thread(self._prepare)

    @contextmanager
    def in_time(self) -> Generator[None]:
        """Interrupts the run if the block takes longer than the time limit."""
        timer = None
        if self._timeout is not None:
            timer = asyncio.get_running_loop().call_later(self._timeout, self.interrupt, "timeout")
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
