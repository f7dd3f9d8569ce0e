"""Runs one prompt and returns its outcome with an exit code.

A run ends as done, failed, stopped by a limit, timed out, interrupted, or waiting for answers about calls. The outcome
comes from the run's `RunRecord`. Writing it is in `output`; signals and terminals are handled by the command line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import field

from swink_agent.core.agent.agent import Agent, Prompt
from swink_agent.core.approval import Approve, ApproveWith, PendingCall, Reject
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import (
    Aborted,
    AgentError,
    AuthError,
    ErrorKind,
    InvalidContinue,
    NoMessages,
    PolicyStopped,
)
from swink_agent.core.record import CallRecord, RunRecord, TurnRecord
from swink_agent.core.types import AgentResult, Cost, ModelSpec, PolicyStop, StopReason, ToolCall, ToolOutcome, Usage
from swink_agent.core.values.value import Value

from ..errors import ApplicationError, ExitCode
from .one_run import OneRun, PrepareFn, Reason

_REFUSALS = (ToolOutcome.REJECTED, ToolOutcome.SKIPPED)

PromptFn: TypeAlias = Callable[[CancellationToken], "Prompt | None"]
"""Waits for the prompt, called in a thread. Raises as `PrepareFn` does.

`None` means no prompt: the conversation continues where it stopped.
"""


class RejectedCall(Value, frozen=True):
    """A call that the user, a rule or a policy rejected."""

    tool: str
    arguments: dict[str, Any]
    reason: str


class Outcome(Value, frozen=True, kw_only=True):
    """How a run ended, and what it produced."""

    exit_code: ExitCode
    model: ModelSpec | None = None
    """The model of the run, if it is known."""
    served_models: tuple[str, ...] = ()
    """The models that answered, by the providers' own words, each once."""
    text: str = ""
    """The last reply, complete or not."""
    value: Any = None
    """With a schema: the answer."""
    has_value: bool = False
    stop_reason: StopReason = StopReason.STOP
    stopped_by: PolicyStop | None = None
    error: str | None = None
    error_kind: ErrorKind | None = None
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    turns: int = 0
    """Requests to the model. A request repeated after a failure counts once."""
    tool_calls: int = 0
    rejected: tuple[RejectedCall, ...] = ()
    pending: tuple[PendingCall, ...] = ()
    """The calls that wait for an answer."""
    seconds: float = 0.0
    session: str | None = None
    """The id of the session that the run is recorded in."""

    @property
    def is_answer(self) -> bool:
        """Whether the text is an answer, not just text before one."""
        was_cut = self.exit_code == ExitCode.LIMIT and self.stop_reason == StopReason.LENGTH
        return self.exit_code == ExitCode.DONE or was_cut


class HeadlessRun:
    """One prompt for one agent, or answers to calls that wait. Any thread, and a signal handler, may `interrupt`."""

    def __init__(
        self,
        agent: Agent,
        *,
        schema: dict[str, Any] | None = None,
        answers: Mapping[str, Approve | ApproveWith | Reject] | None = None,
        timeout: float | None = None,
        prepare: PrepareFn | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.agent = agent
        self._schema = schema
        self._answers = answers
        self._one = OneRun(agent, timeout=timeout, prepare=prepare)
        self._clock = clock
        self._record = RunRecord()
        self._start: float | None = None

    def interrupt(self, reason: Reason = "interrupted") -> None:
        """Ends the run soon and cleanly. The first reason counts."""
        self._one.interrupt(reason)

    def as_it_stands(self) -> Outcome:
        """The outcome if the run is abandoned now: interrupted, with the results so far. Call it from any thread."""
        return self._cut_short(self._one.reason or "interrupted")

    async def run(self, prompt: Prompt | PromptFn | None) -> Outcome:
        """Runs to the end. Failures of the model or the provider are outcomes, not exceptions.

        While the prompt is awaited, the model is prepared. The time limit and the reported time start when the model
        is ready.
        """
        given = self._one.in_thread(prompt) if callable(prompt) else prompt
        reading = given if isinstance(given, asyncio.Future) else None
        try:
            problem = await self._get_ready(reading)
            if problem is not None:
                return problem
            self._start = self._clock()
            with self._one.in_time(), self.agent.subscribe(self._record.feed):
                return await self._read_and_ask(given)
        finally:
            if reading is not None:
                self._one.waiting.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _get_ready(self, reading: asyncio.Future[Any] | None) -> Outcome | None:
        """Prepares the run. Returns the outcome if that failed. The time limit does not apply here."""
        if (preparing := self._one.preparing()) is None:
            return None
        both = {preparing} if reading is None else {preparing, reading}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if reading is not None and reading.done() and reading.exception() is not None:
            self._one.waiting.cancel()  # a wrong prompt is reported at once, not after a model is fetched
            await asyncio.gather(preparing, return_exceptions=True)
            return await self._tried(reading)
        return await self._tried(preparing)

    async def _tried(self, work: asyncio.Future[Any]) -> Outcome | None:
        try:
            await work
        except ApplicationError as error:
            return self._made(error.exit_code, error=str(error), stop_reason=StopReason.ERROR)
        except Aborted:
            return self._cut_short(self._one.reason or "interrupted")
        return None

    async def _read_and_ask(self, prompt: Prompt | asyncio.Future[Prompt | None] | None) -> Outcome:
        if isinstance(prompt, asyncio.Future):
            problem = await self._tried(prompt)
            if problem is not None:
                return problem
            prompt = prompt.result()
        if self._one.reason is not None:
            return self._cut_short(self._one.reason)
        work = asyncio.ensure_future(self._answer(prompt))
        await asyncio.sleep(0)
        if self._one.reason is not None:  # a signal that arrived before there was a run to abort
            self.agent.abort()
        return await work

    async def _answer(self, prompt: Prompt | None) -> Outcome:
        try:
            asked = prompt if self._answers is None else self._answers
            if asked is None:
                return await self._go_on()
            if self._schema is not None:
                given = await self.agent.structured_run(asked, self._schema)
                if not given.pending:
                    return self._made(ExitCode.DONE, value=given.value, has_value=True)
                result = given.result
                if result.has_value:  # the answer stopped the run, but counts only when no call waits
                    return self._made(ExitCode.WAITING, pending=result.pending, stopped_by=None)
            elif isinstance(asked, Mapping):
                result = await self.agent.resume(asked)
            else:
                result = await self.agent.prompt(asked)
        except AgentError as error:
            return self._failed(error)
        return self._ended(result)

    async def _go_on(self) -> Outcome:
        """Continues where the conversation stopped, if it stopped before an answer and no call waits."""
        if pending := self.agent.pending:
            return self._made(ExitCode.WAITING, pending=pending, stop_reason=StopReason.TOOL_USE)
        problem = "a schema (--schema) needs a prompt: it cannot be used to continue a conversation without one"
        if self._schema is None:
            try:
                return self._ended(await self.agent.continue_loop())
            except InvalidContinue:
                problem = 'there is nothing to continue: the model has finished its answer; give a prompt: -p "…"'
            except NoMessages:
                problem = 'there is nothing to continue: the session has no messages yet; give a prompt: -p "…"'
        return self._made(ExitCode.USAGE, error=problem, stop_reason=StopReason.ERROR)

    def _ended(self, result: AgentResult) -> Outcome:
        if result.exception is not None:
            return self._failed(result.exception)
        if result.stopped_by is not None:
            return self._made(ExitCode.LIMIT, error=_stopped(result.stopped_by))
        if result.pending:
            return self._made(ExitCode.WAITING, pending=result.pending)
        if result.stop_reason == StopReason.LENGTH:
            return self._made(ExitCode.LIMIT, error="the reply was cut off at the model's output limit")
        return self._made(ExitCode.DONE)

    def _failed(self, error: AgentError) -> Outcome:
        if self._one.reason is not None and isinstance(error, Aborted):
            return self._cut_short(self._one.reason)
        if isinstance(error, PolicyStopped):
            return self._made(ExitCode.LIMIT, error=_stopped(PolicyStop(error.policy, error.reason)))
        code = ExitCode.NO_MODEL if isinstance(error, AuthError) else ExitCode.FAILED
        return self._made(code, error=str(error), error_kind=error.kind)

    def _cut_short(self, reason: Reason) -> Outcome:
        match reason:
            case "interrupted":
                code, error = ExitCode.INTERRUPTED, "interrupted"
            case "timeout":
                code, error = ExitCode.LIMIT, self._one.timeout_words
            case "output":
                code, error = ExitCode.FAILED, "stopped: the output was closed"
        return self._made(code, error=error, stop_reason=StopReason.ABORTED)

    def _made(self, code: ExitCode, **fields: Any) -> Outcome:
        record = self._record
        reply = next((turn.reply for turn in reversed(record.turns) if turn.reply is not None), None)
        common: dict[str, Any] = {
            "model": self.agent.model,
            "served_models": tuple(dict.fromkeys(filter(None, map(_served, record.turns)))),
            "text": record.text,
            "stop_reason": StopReason.STOP if reply is None else reply.stop_reason,
            "stopped_by": None if fields.get("has_value") else record.stopped_by,
            "usage": record.total_usage,
            "cost": record.total_cost,
            # The first turn of a run with answers belongs to an earlier reply.
            "turns": len(record.turns) if self._answers is None else max(len(record.turns) - 1, 0),
            "tool_calls": len([call for call in record.calls if call.outcome is not None]),
            "rejected": _rejected(record),
        }
        seconds = 0.0 if self._start is None else self._clock() - self._start
        return Outcome(exit_code=code, seconds=seconds, **{**common, **fields})


def _stopped(stop: PolicyStop) -> str:
    return f"{stop.policy} stopped the run: {stop.reason}"


def _rejected(record: RunRecord) -> tuple[RejectedCall, ...]:
    """The calls that were rejected or skipped, with the arguments that the model gave."""
    replies = [(turn.reply.tool_calls, turn.calls) for turn in record.turns if turn.reply is not None]
    pairs = [pair for reply in replies for pair in _asked(*reply) if pair[1].outcome in _REFUSALS]
    return tuple(
        [RejectedCall(call.name, asked.arguments, call.reason or "tool call rejected") for asked, call in pairs]
    )


def _served(turn: TurnRecord) -> str | None:
    return None if turn.reply is None else turn.reply.served_model


def _asked(asked: Sequence[ToolCall], calls: Sequence[CallRecord]) -> Iterator[tuple[ToolCall, CallRecord]]:
    """Pairs calls with the model's requests, in call order. A run with answers has only some calls of a reply."""
    remaining = iter(asked)
    for call in calls:
        for one in remaining:
            if one.id == call.id:
                yield one, call
                break
