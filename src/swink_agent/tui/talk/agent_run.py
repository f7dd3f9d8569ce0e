"""One run of the agent, from what has to be there before it to how it ended.

Owns the order: making the model ready, the limit of time, the run itself, and what of its end is told. That there is
one run at a time, and its state, are the business of `running`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted
from swink_agent.core.types import AgentMessage, AgentResult, StopReason

from .open_agent import OpenAgent
from .running import State

__all__ = ["AgentRun"]


class AgentRun:
    """A run with these messages, or with what is queued if there are none. `stop` ends it from outside."""

    def __init__(
        self,
        opened: OpenAgent,
        prompts: Sequence[AgentMessage] | None,
        *,
        notice: Callable[[str, Literal["warning", "error"]], None],
        stop: Callable[[], None],
    ) -> None:
        self._opened = opened
        self.prompts = () if prompts is None else tuple(prompts)
        self.has_begun = False
        """Whether the agent has been given what there is to say."""
        self._goes_on = prompts is None
        self._notice = notice
        self._stop = stop

    async def run(self, waiting: CancellationToken, on_result: Callable[[AgentResult], None]) -> State:
        """Runs to the end; `waiting` is cancelled when it is stopped. Raises `AgentError` and `ApplicationError`."""
        await self._prepare(waiting)
        agent = self._opened.agent
        limit: float | None = self._opened.opening.settings.value("timeout")
        timer = None if limit is None else asyncio.get_running_loop().call_later(limit, self._out_of_time, limit)
        self.has_begun = True
        try:
            result = await (agent.continue_loop() if self._goes_on else agent.prompt(list(self.prompts)))
        finally:
            if timer is not None:
                timer.cancel()
        on_result(result)
        if result.stop_reason == StopReason.ABORTED:
            return "aborted"
        if result.error is not None:
            self._notice(result.error, "error")
            return "error"
        return "idle"

    def _out_of_time(self, limit: float) -> None:
        self._notice(f"stopped after {limit:g} seconds (--timeout)", "warning")
        self._stop()

    async def _prepare(self, waiting: CancellationToken) -> None:
        """What comes before a first prompt, such as fetching a model, in a thread that a stop ends."""
        if (prepare := self._opened.made.prepare) is not None:
            work = asyncio.get_running_loop().run_in_executor(None, prepare, waiting)
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                waiting.cancel()
                await asyncio.gather(work, return_exceptions=True)
                raise
        if waiting.is_cancelled:
            raise Aborted
