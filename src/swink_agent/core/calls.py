"""One tool call: what the model asked for, what will run, and the result; and how its tool is run.

What happens to the calls of a batch, and when, is in `dispatch`.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Any, Literal

import msgspec

from .approval import Grant
from .errors import ToolError
from .events import ToolExecutionRetry
from .journal import CallFacts
from .output import Relay
from .record import CallRecord
from .run.pending import Pending
from .run.state import Run
from .tool import AgentTool, AgentToolResult, ToolContext, ToolOptions
from .types import Cost, ToolResultMessage, Usage
from .values.checks import a_kind
from .values.nesting import too_deep
from .values.value import copy_json

_LONGEST_EXCERPT = 200
_GRACE = 0.05  # seconds that a tool gets to end after its time is up
_NO_OPTIONS = ToolOptions()

log = logging.getLogger("swink_agent")


class CallState(msgspec.Struct, eq=False):
    """One call, from the reply to its result."""

    run: Run
    tool: AgentTool | None
    index: int  # among the calls of its reply
    id: str
    name: str
    asked: dict[str, Any]  # what the model asked for
    arguments: dict[str, Any]  # what will run: frozen, so that events, grants and records can share it
    options: ToolOptions = _NO_OPTIONS  # the options of the tool
    grant: Grant | None = None
    approval: Literal["asked", "approved", "rejected"] | None = None
    """The answer, or `asked` while there is none; `None` if the call needed no approval."""
    note: str = ""  # a text for the model after the result
    began: float | None = None  # when the tool started, by the monotonic clock; `None` if it never did
    ended: float | None = None
    context: ToolContext | None = None  # the tool's context, while it runs
    task: asyncio.Task[Any] | None = None  # `None` before the start
    given: AgentToolResult | None = None  # the tool's result
    masked: AgentToolResult | None = None  # the same without secrets
    spent: tuple[Usage, Cost] | None = None  # the usage of the delegate that the call ran, its own delegates included
    message: ToolResultMessage | None = None  # the result as it enters the history: set before the batch ends
    reason: str = ""  # the bare cause of the outcome, without secrets
    waits_for: Pending | None = None
    """What the call waits for, if its tool has started and must wait because a call of its delegate waits."""
    waiting: ToolResultMessage | None = None
    """The pending result of a deferred call, as it enters the history if nothing cancels the call."""
    has_slot: bool = False  # whether it counts among the calls of a tool with `max_concurrent`
    has_timed_out: bool = False
    relay: Relay | None = None  # passes its partial results on, if there were any

    @property
    def is_done(self) -> bool:
        return self.task is None or self.task.done()

    @property
    def is_listening(self) -> bool:
        """Whether the tool uses its token, and so gets time to end by itself."""
        return self.context is not None and self.context.is_listening

    @property
    def finishes_when_steered(self) -> bool:
        return getattr(self.tool, "on_steer", "cancel") == "finish"

    @property
    def seconds(self) -> float:
        """How long the tool ran, or has run so far."""
        if self.began is None:
            return 0.0
        return (monotonic() if self.ended is None else self.ended) - self.began

    def facts(self, reason: str, kind: type[CallFacts]) -> CallFacts:
        """Returns the facts that the journal entry adds to the result."""
        # If the call was started, the entry of its start has the arguments.
        is_changed = self.began is None and self.arguments is not self.asked and self.arguments != self.asked
        return kind(
            approval=self.approval,
            note=self.run.entered(self.note) if self.note else "",
            scope=None if self.grant is None or self.began is None else self.grant.scope,
            reason=reason,
            seconds=self.seconds,
            is_started=self.began is not None,
            arguments=self.arguments if is_changed else None,
            usage=None if self.spent is None else self.spent[0],
            cost=None if self.spent is None else self.spent[1],
        )

    def approval_facts(self, kind: type[CallFacts]) -> CallFacts:
        """Returns the facts for the journal entry of an approved call's start."""
        note = self.run.entered(self.note) if self.note else ""
        return kind(approval=self.approval, note=note, scope=None if self.grant is None else self.grant.scope)

    def record(self) -> CallRecord:
        """Returns what is known of the call, as a `RunRecord` has it."""
        message, has_started = self.message, self.began is not None
        usage, cost = self.spent or (Usage(), Cost())
        return CallRecord(
            self.id,
            self.name,
            self.arguments,
            self.approval,
            self.run.entered(self.note) if self.note else "",
            Grant(self.name, self.arguments, self.grant.scope) if self.grant is not None and has_started else None,
            has_started,
            None if message is None else message.outcome,
            self.reason,
            self.seconds,
            None if message is None else AgentToolResult(message.content, message.details, message.is_error),
            usage,
            cost,
        )

    def call_off(self) -> None:
        """Cancels the token of the tool: its result is no longer wanted."""
        if self.context is not None:
            self.context.cancel.cancel()

    def report(self, update: AgentToolResult) -> None:
        """Takes a partial result, from any thread."""
        if self.context is None:
            return  # it is over
        if self.relay is None:
            with self.run.cancel.lock:  # two threads that report at once get the same relay
                if self.relay is None:
                    self.relay = Relay(self.id, self.name, self.run)
        self.relay.post(update)

    def close(self) -> None:
        """Emits the buffered updates, and accepts no more."""
        self.context = None  # it refers to this object: without the cycle, no garbage collection is needed
        if self.relay is not None:
            self.relay.close()


def not_an_object(text: str) -> str:
    """Describes arguments that are not a JSON object, with an excerpt for the model."""
    try:
        value = msgspec.json.decode(text)
        is_object = isinstance(value, dict)
        problem = too_deep() if is_object else f"JSON, but {a_kind(value)} and not an object"
    except RecursionError:
        problem = too_deep()
    except (msgspec.DecodeError, UnicodeError) as error:
        problem = f"not JSON ({error})"
    sent = text if len(text) <= _LONGEST_EXCERPT else f"{text[:_LONGEST_EXCERPT]}…"
    return f"they are {problem}; send one JSON object. What was sent: {sent}"


# -- the tool, with its time limit and retries ----------------------------------------------------------------------


async def run_attempts(run: Run, call: CallState, tool: AgentTool, context: ToolContext) -> Any:
    """Returns the tool's result, or raises the error of its last attempt."""
    options, attempt = call.options, 0
    while True:
        attempt += 1
        try:
            if options.timeout is None:
                return await tool.execute(copy_json(call.arguments), context)
            return await _within(options.timeout, run, call, tool, context)
        except ToolError as error:
            if error.retry_after is None or attempt > options.retries or call.context is None:
                raise
            delay = max(0.0, error.retry_after)
            run.emit(ToolExecutionRetry(call.id, call.name, attempt, run.entered(str(error)), delay))
            await run.config.sleep(delay)


async def _within(seconds: float, run: Run, call: CallState, tool: AgentTool, context: ToolContext) -> Any:
    """Waits for the tool. When the time is up, cancels it and raises a `ToolError`."""
    task = run.supervisor.spawn(_executed(tool, call, context))
    task.add_done_callback(_heard)
    try:
        await asyncio.wait((task,), timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait((task,))  # the run waits for this, as long as it waits for any tool that it stops
        raise
    if task.done():
        return task.result()
    call.has_timed_out = True
    if context.is_listening:
        context.cancel.cancel()
    task.cancel()
    is_delegate = context in run.accounts.live  # it always ends soon, and in order
    await asyncio.wait((task,), timeout=None if is_delegate else _GRACE)
    problem = f"{call.name} timed out after {seconds:g} s"
    if getattr(tool, "runs_in_thread", False):
        raise ToolError(f"{problem}; it runs in a thread, and may still be running")
    if not task.done():
        log.warning("a tool did not end when its time was up; the run continues without it")
    raise ToolError(problem)


async def _executed(tool: AgentTool, call: CallState, context: ToolContext) -> Any:
    return await tool.execute(copy_json(call.arguments), context)


def _heard(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it
