"""One prompt, from the question to an exit code.

Owns how a run ends: done, failed, out of a limit, out of time, interrupted. Does not own where the outcome goes: that
is in `output`; nor signals and terminals: those are the command line's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar

from swink_agent.core.agent import Agent, Prompt
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import (
    Aborted,
    AgentError,
    AuthError,
    ErrorKind,
    InvalidContinue,
    NoMessages,
    StructuredOutputFailed,
)
from swink_agent.core.events import (
    AgentEnd,
    AgentEvent,
    ContextCompacted,
    MessageEnd,
    MessageStart,
    ToolExecutionEnd,
    TurnEnd,
)
from swink_agent.core.types import (
    AgentResult,
    AssistantMessage,
    Cost,
    ModelSpec,
    PolicyStop,
    StopReason,
    ToolOutcome,
    Usage,
    extract_text,
)
from swink_agent.core.values.value import Value

from .errors import ApplicationError, ExitCode

__all__ = ["HeadlessRun", "Outcome", "PrepareFn", "PromptFn", "Reason", "RejectedCall"]

_REFUSALS = (ToolOutcome.REJECTED, ToolOutcome.SKIPPED)

T = TypeVar("T")
PrepareFn: TypeAlias = Callable[[CancellationToken], None]
"""What is done before a run, in a thread. It raises `ApplicationError`, or `Aborted` when cancelled."""
PromptFn: TypeAlias = Callable[[CancellationToken], "Prompt | None"]
"""What gives the prompt when it has to be waited for, in a thread. It raises as `PrepareFn` does.

`None` stands for none: the conversation goes on where it stopped.
"""

Reason: TypeAlias = Literal["interrupted", "timeout", "output"]
"""Why a run was cut short from outside: a person, the clock, or nobody left to read."""


class RejectedCall(Value, frozen=True):
    """A call that was not approved, or not let through by a rule or a policy."""

    tool: str
    arguments: dict[str, Any]
    reason: str


class Outcome(Value, frozen=True, kw_only=True):
    """How it ended, with what there is to show for it."""

    exit_code: ExitCode
    model: ModelSpec | None = None
    """Which model was asked, or would have been, as far as it came to that."""
    text: str = ""
    """The last reply, whole or as far as it came."""
    value: Any = None
    """With a schema: the answer."""
    has_value: bool = False
    stop_reason: StopReason = StopReason.STOP
    stopped_by: PolicyStop | None = None
    error: str | None = None
    error_kind: ErrorKind | None = None
    usage: Usage = Usage()
    cost: Cost = Cost()
    turns: int = 0
    """Requests to the model; one that was repeated after a failure counts once."""
    tool_calls: int = 0
    rejected: tuple[RejectedCall, ...] = ()
    seconds: float = 0.0
    session: str | None = None
    """The id of the session that the run is recorded in."""

    @property
    def is_answer(self) -> bool:
        """Whether the text is an answer, and not what was said on the way to one."""
        was_cut = self.exit_code == ExitCode.LIMIT and self.stop_reason == StopReason.LENGTH
        return self.exit_code == ExitCode.DONE or was_cut


class HeadlessRun:
    """One prompt given to one agent. `interrupt` may be called from a signal handler, or from any thread."""

    def __init__(
        self,
        agent: Agent,
        *,
        schema: dict[str, Any] | None = None,
        timeout: float | None = None,
        prepare: PrepareFn | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.agent = agent
        self._schema = schema
        self._timeout = timeout
        self._prepare = prepare
        self._waiting = CancellationToken()
        self._clock = clock
        self._reason: Reason | None = None
        self._tally = _Tally()
        self._start: float | None = None

    def interrupt(self, reason: Reason = "interrupted") -> None:
        """Ends the run soon and cleanly. The first reason is the one that counts."""
        self._reason = self._reason or reason
        self._waiting.cancel()
        self.agent.abort()

    def as_it_stands(self) -> Outcome:
        """The outcome of a run that is left where it is: interrupted, with what has come so far. From any thread."""
        seconds = 0.0 if self._start is None else self._clock() - self._start
        return self._cut_short(self._reason or "interrupted")(seconds)

    async def run(self, prompt: Prompt | PromptFn | None) -> Outcome:
        """Runs to the end, whatever that is. Nothing that the model or the provider does raises.

        A prompt that has to be waited for is waited for while the model is made ready; the time that is limited and
        told begins when it is.
        """
        given = self._in_thread(prompt) if callable(prompt) else prompt
        reading = given if isinstance(given, asyncio.Future) else None
        try:
            problem = await self._get_ready(reading)
            if problem is not None:
                return problem(0.0)
            start = self._start = self._clock()
            timer = None
            if self._timeout is not None:
                timer = asyncio.get_running_loop().call_later(self._timeout, self.interrupt, "timeout")
            try:
                with self.agent.subscribe(self._tally.add):
                    outcome = await self._read_and_ask(given)
            finally:
                if timer is not None:
                    timer.cancel()
            return outcome(self._clock() - start)
        finally:
            if reading is not None:
                self._waiting.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    def _in_thread(self, work: Callable[[CancellationToken], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(None, work, self._waiting)

    async def _get_ready(self, reading: asyncio.Future[Any] | None) -> Callable[[float], Outcome] | None:
        """Does what comes before the run, and says how it went wrong if it did. No limit of time holds here."""
        if self._prepare is None:
            return None
        preparing = self._in_thread(self._prepare)
        both = {preparing} if reading is None else {preparing, reading}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if reading is not None and reading.done() and reading.exception() is not None:
            self._waiting.cancel()  # what is wrong with the prompt is told without fetching a model first
            await asyncio.gather(preparing, return_exceptions=True)
            return await self._tried(reading)
        return await self._tried(preparing)

    async def _tried(self, work: asyncio.Future[Any]) -> Callable[[float], Outcome] | None:
        """Waits for it, and says how it went wrong if it did."""
        try:
            await work
        except ApplicationError as error:
            return self._made(error.exit_code, error=str(error), stop_reason=StopReason.ERROR)
        except Aborted:
            return self._cut_short(self._reason or "interrupted")
        return None

    async def _read_and_ask(self, prompt: Prompt | asyncio.Future[Prompt | None] | None) -> Callable[[float], Outcome]:
        if isinstance(prompt, asyncio.Future):
            problem = await self._tried(prompt)
            if problem is not None:
                return problem
            prompt = prompt.result()
        if self._reason is not None:
            return self._cut_short(self._reason)
        work = asyncio.ensure_future(self._answer(prompt))
        await asyncio.sleep(0)
        if self._reason is not None:  # a signal that came before there was a run to abort
            self.agent.abort()
        return await work

    async def _answer(self, prompt: Prompt | None) -> Callable[[float], Outcome]:
        try:
            if prompt is None:
                return await self._go_on()
            if self._schema is not None:
                try:
                    value = await self.agent.structured_output(prompt, self._schema)
                finally:
                    self._count_all(self.agent.last_result)
                return self._made(ExitCode.DONE, value=value, has_value=True)
            result = await self.agent.prompt(prompt)
        except AgentError as error:
            return self._failed(error)
        return self._ended(result)

    async def _go_on(self) -> Callable[[float], Outcome]:
        """Goes on where the conversation stopped, if it stopped before an answer."""
        problem = "a schema (--schema) goes with a prompt, not with going on where a conversation stopped"
        if self._schema is None:
            try:
                return self._ended(await self.agent.continue_loop())
            except InvalidContinue:
                problem = 'there is nothing to go on with: the model has said all it had to say; give a prompt: -p "…"'
            except NoMessages:
                problem = 'there is nothing to go on with: nothing has been said yet; give a prompt: -p "…"'
        return self._made(ExitCode.USAGE, error=problem, stop_reason=StopReason.ERROR)

    def _ended(self, result: AgentResult) -> Callable[[float], Outcome]:
        self._count_all(result)
        tally = self._tally
        if result.exception is not None:
            return self._failed(result.exception)
        if tally.stopped_by is not None:
            return self._made(ExitCode.LIMIT, error=f"{tally.stopped_by.policy} stopped it: {tally.stopped_by.reason}")
        if tally.stop_reason == StopReason.LENGTH:
            return self._made(ExitCode.LIMIT, error="the reply was cut off at the model's limit of output")
        return self._made(ExitCode.DONE)

    def _count_all(self, result: AgentResult | None) -> None:
        """Counts attempts that were repeated and summaries of no use too, of which no event tells."""
        if result is not None:
            self._tally.usage, self._tally.cost = result.usage, result.cost

    def _failed(self, error: AgentError) -> Callable[[float], Outcome]:
        if self._reason is not None and isinstance(error, Aborted):
            return self._cut_short(self._reason)
        stop = self._tally.stopped_by
        if (
            isinstance(error, StructuredOutputFailed)
            and stop is not None
            and not stop.policy.startswith("final_answer")
        ):
            return self._made(ExitCode.LIMIT, error=f"{stop.policy} stopped it: {stop.reason}")
        code = ExitCode.NO_MODEL if isinstance(error, AuthError) else ExitCode.FAILED
        return self._made(code, error=str(error), error_kind=error.kind)

    def _cut_short(self, reason: Reason) -> Callable[[float], Outcome]:
        match reason:
            case "interrupted":
                code, error = ExitCode.INTERRUPTED, "interrupted"
            case "timeout":
                code, error = ExitCode.LIMIT, f"stopped after {self._timeout:g} seconds (--timeout)"
            case "output":
                code, error = ExitCode.FAILED, "stopped: nobody reads the output any more"
        return self._made(code, error=error, stop_reason=StopReason.ABORTED)

    def _made(self, code: ExitCode, **fields: Any) -> Callable[[float], Outcome]:
        tally = self._tally
        common: dict[str, Any] = {
            "model": self.agent.model,
            "text": tally.text,
            "stop_reason": tally.stop_reason,
            "stopped_by": None if fields.get("has_value") else tally.stopped_by,
            "usage": tally.usage,
            "cost": tally.cost,
            "turns": tally.turns,
            "tool_calls": tally.tool_calls,
            "rejected": tuple(tally.rejected),
        }
        return lambda seconds: Outcome(exit_code=code, seconds=seconds, **{**common, **fields})


class _Tally:
    """What a run's events add up to."""

    def __init__(self) -> None:
        self.text = ""
        self.stop_reason = StopReason.STOP
        self.stopped_by: PolicyStop | None = None
        self.usage, self.cost = Usage(), Cost()
        self.turns = self.tool_calls = 0
        self.rejected: list[RejectedCall] = []
        self._asked: dict[str, dict[str, Any]] = {}
        """The arguments of the calls of this turn, by id."""

    def add(self, event: AgentEvent) -> None:
        match event:
            case MessageStart():
                self.turns += 1
            case MessageEnd(message=message):
                self.usage += message.usage
                self.cost += message.cost
                self._take(message)
            case ContextCompacted(report=report):
                self.usage += report.usage
                self.cost += report.cost
            case ToolExecutionEnd():
                self.tool_calls += 1
                self._note_rejection(event)
            case TurnEnd(message=message):
                if message is not None:
                    self._take(message)  # a policy may have put another in its place
            case AgentEnd(stopped_by=stopped_by):
                self.stopped_by = stopped_by
            case _:
                pass

    def _note_rejection(self, event: ToolExecutionEnd) -> None:
        arguments = self._asked.pop(event.call_id, {})
        if event.outcome in _REFUSALS:
            text = extract_text(event.result.content)
            self.rejected.append(RejectedCall(event.name, arguments, text.partition(": ")[2] or text))

    def _take(self, message: AssistantMessage) -> None:
        self.text, self.stop_reason = message.text, message.stop_reason
        self._asked = {call.id: call.arguments for call in message.tool_calls}
