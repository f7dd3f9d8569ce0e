"""Runs the agent, or other work such as a compaction, one at a time.

`Runner` owns the state that the user sees, the elapsed time, and stopping. `AgentRun` is one run of the agent in a
conversation, and tells how it ended; `runs.one_run` has what every run needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from swink_agent.app.errors import ApplicationError
from swink_agent.app.runs.one_run import OneRun, Reason
from swink_agent.core.agent.agent import Agent
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted, AgentError, AuthError, ErrorKind
from swink_agent.core.run.pending import Answer
from swink_agent.core.types import AgentMessage, AgentResult, AssistantMessage, StopReason

from ..agent.open_agent import OpenAgent

State: TypeAlias = Literal["idle", "running", "error", "aborted"]
Work: TypeAlias = Coroutine[object, object, State]
"""Returns the state at its end. It may raise `Aborted`, or any other error, which is shown to the user."""


class Runner:
    """Runs work in a task. `on_end` is called when the work ends, even by an error."""

    def __init__(
        self, *, on_error: Callable[[str], None], on_end: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        self.state: State = "idle"
        """`error` and `aborted` remain until the next work begins."""
        self.waiting = CancellationToken()
        """Cancelled when the work is stopped, so that threads stop waiting."""
        self._on_error = on_error
        self._on_end = on_end
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._since: float | None = None
        self._took = 0.0

    @property
    def is_running(self) -> bool:
        """Whether work is active; also true while stopped work is still ending."""
        return self._task is not None

    @property
    def elapsed(self) -> float:
        return self._took if self._since is None else self._clock() - self._since

    def begin(self, work: Work) -> None:
        """Starts the work. No other work may be active."""
        assert self._task is None
        self.state = "running"
        self._since, self.waiting = self._clock(), CancellationToken()
        self._task = asyncio.ensure_future(self._drive(work))

    def stop(self) -> None:
        """Marks the work as aborted and asks it to end soon."""
        if self._task is not None:
            self.state = "aborted"
            self.waiting.cancel()

    async def wait(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - it returns whether it ended
        """Waits for the current work; returns whether it ended in time."""
        task = self._task
        if task is None:
            return True
        done, _ = await asyncio.wait([task], timeout=timeout)
        return bool(done)

    async def give_up(self) -> None:
        """Cancels work that does not end when it is stopped."""
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
        except Exception as error:  # a bug: it is shown, and the conversation continues
            self._on_error(f"this is a bug in swink ({type(error).__name__}: {error}). The conversation goes on")
        finally:
            self._task = None
            if self._since is not None:
                self._took, self._since = self._clock() - self._since, None
            self.state = "aborted" if self.state == "aborted" else state
            self._on_end()


class RunEnd(NamedTuple):
    """How a run ended. `result` is `None` if it did not begin; `reason` is why it was stopped from outside."""

    result: AgentResult | None
    reason: Reason | None
    error_kind: ErrorKind | None


class AgentRun:
    """One run of a conversation: with prompts, with answers to calls that wait, or with queued messages."""

    def __init__(
        self,
        opened: OpenAgent,
        prompts: Sequence[AgentMessage] | None,
        *,
        answers: Mapping[str, Answer] | None = None,
        notice: Callable[[str, Literal["warning", "error"]], None],
        waiting: CancellationToken,
    ) -> None:
        self._opened = opened
        self.prompts = () if prompts is None else tuple(prompts)
        self.has_begun = False
        """Whether the agent has got the prompts."""
        self.has_no_reply = False
        """Whether the run failed before the model replied."""
        self.end = RunEnd(None, None, None)
        self._given = prompts
        self._answers = answers
        self._notice = notice
        timeout: float | None = opened.opening.settings.value("timeout")
        self._run = OneRun(opened.agent, timeout=timeout, prepare=opened.made.prepare, waiting=waiting)

    async def run(self) -> State:
        """Runs to the end. The caller cancels `waiting` to stop it. Raises `AgentError` and `ApplicationError`."""
        await self._prepare()
        self.has_begun = True
        try:
            with self._run.in_time():
                result = await self._start(self._opened.agent)
        except AgentError as error:
            self.end = RunEnd(None, self._run.reason, error.kind)
            raise
        self.end = RunEnd(result, self._run.reason, result.error_kind)
        if self._run.reason == "timeout":
            self._notice(self._run.timeout_words, "warning")
        if result.stop_reason == StopReason.ABORTED:
            return "aborted"
        if result.error is not None:
            replies = [message for message in result.messages if type(message) is AssistantMessage]
            self.has_no_reply = not any(reply.content for reply in replies)
            self._notice(f"{result.error}{await self._key_hint(result)}", "error")
            return "error"
        return "idle"

    def _start(self, agent: Agent) -> Coroutine[object, object, AgentResult]:
        if self._answers is not None:
            return agent.resume(self._answers)
        return agent.continue_loop() if self._given is None else agent.prompt(list(self.prompts))

    async def _key_hint(self, result: AgentResult) -> str:
        """Returns, for a refused key, its provider, its source and what to do, but never the key itself."""
        if not isinstance(result.exception, AuthError):
            return ""
        provider = self._opened.agent.model.provider
        refusal = await asyncio.to_thread(self._opened.opening.credentials.refusal, provider)
        return f"\n{refusal}; /key {provider} stores another"

    async def _prepare(self) -> None:
        """Prepares the model in a thread that stops when the run is stopped."""
        if (work := self._run.preparing()) is not None:
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                self._run.waiting.cancel()
                await asyncio.gather(work, return_exceptions=True)
                raise
        if self._run.waiting.is_cancelled:
            raise Aborted
