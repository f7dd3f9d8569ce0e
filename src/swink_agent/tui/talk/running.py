"""The one piece of work that goes on at a time: a run of the agent, or what takes the place of one.

Owns its state as people see it, its time, and how it is stopped and told of when it fails. What the work is, is for the
conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeAlias

from swink_agent.app.errors import ApplicationError
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted, AgentError

__all__ = ["Runner", "State", "Work"]

State: TypeAlias = Literal["idle", "running", "error", "aborted"]
Work: TypeAlias = Coroutine[Any, Any, State]
"""Says how it ended; it may raise `Aborted`, or any error, which is told."""


class Runner:
    """Runs work in a task. `on_end` is called when it is over, whatever happened."""

    def __init__(
        self, *, on_error: Callable[[str], None], on_end: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        self.state: State = "idle"
        """`error` and `aborted` stay until the next work begins."""
        self.waiting = CancellationToken()
        """Cancelled when the work is stopped: for what waits in threads."""
        self._on_error = on_error
        self._on_end = on_end
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._since: float | None = None
        self._took = 0.0

    @property
    def is_running(self) -> bool:
        """Whether work goes on, be it that it was stopped and is at its end."""
        return self._task is not None

    @property
    def elapsed(self) -> float:
        """Seconds of the work that goes on, else of the last."""
        return self._took if self._since is None else self._clock() - self._since

    def begin(self, work: Work) -> None:
        """Begins it. There must be none that goes on."""
        assert self._task is None
        self.state = "running"
        self._since, self.waiting = self._clock(), CancellationToken()
        self._task = asyncio.ensure_future(self._drive(work))

    def stop(self) -> None:
        """It counts as stopped from now on, and is to end soon."""
        if self._task is not None:
            self.state = "aborted"
            self.waiting.cancel()

    async def wait(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - it says whether it ended
        """Waits for the end of what goes on; says whether it came in time."""
        task = self._task
        if task is None:
            return True
        done, _ = await asyncio.wait([task], timeout=timeout)
        return bool(done)

    async def give_up(self) -> None:
        """Ends work that does not end by itself."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=1)

    async def _drive(self, work: Work) -> None:
        state: State = "error"
        try:
            state = await work
        except Aborted:
            state = "aborted"
        except asyncio.CancelledError:
            state = "aborted"
            raise
        except (AgentError, ApplicationError) as error:
            self._on_error(str(error))
        except Exception as error:  # a mistake of ours: the conversation goes on, and it is told
            self._on_error(f"that failed, and should not have: {type(error).__name__}: {error}")
        finally:
            self._task = None
            if self._since is not None:
                self._took, self._since = self._clock() - self._since, None
            self.state = "aborted" if self.state == "aborted" else state
            self._on_end()
