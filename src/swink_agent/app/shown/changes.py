"""One reading of a run's events: what a reader sees of them, as values that a front end draws.

Owns which event is worth telling, and its words. A front end maps the values and does not look at events. Feed it
events that are masked, such as those of `Redactor.events`: the words quote them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

from swink_agent.core import events
from swink_agent.core.errors import ErrorKind
from swink_agent.core.events import AgentEvent, DelegateEvent
from swink_agent.core.stream import TextDelta, ThinkingDelta
from swink_agent.core.tool import AgentToolResult
from swink_agent.core.types import AgentResult, AssistantMessage, PolicyStop, StopReason, extract_text

from ..runs.telling import seconds, shortening_of, summary_of
from ..talk.delegates import DelegateProgress, is_streamed
from .other_models import OtherModels

CallState: TypeAlias = Literal["pending", "asking", "running", "waiting", "done", "failed"]
"""`asking`: a person is asked now. `waiting`: the answer comes later, perhaps in another run."""
StopKind: TypeAlias = Literal["policy", "refusal", "error", "aborted"]
LIMITS = frozenset({"max_turns", "max_duration", "budget"})
"""The policies whose stop means that a limit of the user is reached."""
CUT_OFF = "cut off at the model's limit of output"


class Begun(NamedTuple):
    """The model is asked for a reply. What comes next belongs to it."""


class Text(NamedTuple):
    """A piece of the reply."""

    kind: Literal["text", "thinking"]
    piece: str


class Discarded(NamedTuple):
    """The reply so far is not part of the answer: the model is asked again. `had_text` is whether any was shown."""

    why: str
    had_text: bool


class Call(NamedTuple):
    """A call of the reply, or of an earlier one, and its state now."""

    id: str
    name: str
    arguments: dict[str, Any]
    state: CallState
    words: str = ""
    """Output of a running call, a failed attempt, or why a call waits."""
    result: AgentToolResult | None = None
    """The result of a call that is done or failed."""
    seconds: float | None = None


class Delegate(NamedTuple):
    """The progress of the delegate that a call runs."""

    call_id: str
    progress: DelegateProgress


class Notice(NamedTuple):
    """Something that the user should know."""

    kind: Literal["info", "warning", "error"]
    words: str


class Stopped(NamedTuple):
    """The run ended before it was done. `is_limit`: a limit of the user was reached."""

    kind: StopKind
    why: str
    is_limit: bool = False


Change: TypeAlias = Begun | Text | Discarded | Call | Delegate | Notice | Stopped


class Changes:
    """Turns the events of runs, one after another, into changes."""

    def __init__(self) -> None:
        self._had_text = False
        """Whether a piece of the reply was told, of its text or of its thinking."""
        self._had_answer = False
        self._others = OtherModels()
        self._progress: dict[str, DelegateProgress] = {}

    def of(self, event: AgentEvent) -> Iterator[Change]:
        """The changes for an event, in order."""
        other = self._others.of(event)
        match event:
            case events.MessageUpdate(delta=TextDelta() as delta) if delta.delta:
                self._had_text = self._had_answer = True
                yield Text("text", delta.delta)
            case events.MessageUpdate(delta=ThinkingDelta() as delta) if delta.delta:
                self._had_text = True
                yield Text("thinking", delta.delta)
            case events.MessageStart():
                self._had_text = self._had_answer = False
                self._progress.clear()
                yield Begun()
            case events.MessageRetry() | events.ModelFallback():
                had_text, self._had_text, self._had_answer = self._had_text, False, False
                yield Discarded(why_discarded(event), had_text)
            case events.MessageEnd(message=message):
                yield from self._ended(message)
            case events.ContextCompacted(report=report):
                yield Notice("info", shortening_of(report))
            case DelegateEvent():
                if not is_streamed(event):
                    yield self._delegate(event)
            case events.AgentEnd(result=result, stopped_by=stopped_by):
                yield from _end(result, stopped_by)
            case _:
                yield from _call(event)
        if other is not None:
            yield Notice("warning", other)

    def _ended(self, message: AssistantMessage) -> Iterator[Change]:
        if not self._had_answer and message.text:  # a policy has replaced the reply, or it came in one piece
            yield Text("text", message.text)
        self._had_text = self._had_answer = False
        if message.stop_reason is StopReason.LENGTH:
            yield Notice("warning", CUT_OFF)
        for call in message.tool_calls:
            yield Call(call.id, call.name, call.arguments, "pending")

    def _delegate(self, event: DelegateEvent) -> Delegate:
        progress = self._progress.get(event.call_id)
        if progress is None or progress.is_over:
            progress = self._progress[event.call_id] = DelegateProgress()
        progress.feed(event.event, lambda name, arguments: (name, summary_of(name, arguments)))
        return Delegate(event.call_id, progress)


def why_discarded(event: events.MessageRetry | events.ModelFallback) -> str:
    """Why the text of an attempt does not count, and what follows."""
    if isinstance(event, events.ModelFallback):
        return f"continuing with {event.to_model}: {event.error}"
    return f"attempt {event.attempt} failed, the next is in {seconds(round(event.delay, 1))}: {event.error}"


def stopped_words(stop: PolicyStop) -> str:
    return f"{stop.policy} stopped it: {stop.reason}"


def delegate_words(progress: DelegateProgress) -> str:
    """A delegate's calls so far, one in each row, and what they count."""
    rows = [progress.counted]
    for call, depth in progress.every():
        took = "" if call.seconds is None else f" {seconds(call.seconds)}"
        rows.append(f"{'  ' * (depth + 1)}{call.name} {call.summary}: {_STATES[call.status]}{took}")
    if not progress.is_over and progress.newest() is None:
        rows.append("  thinking")
    return "\n".join(rows)


_STATES = {"asking": "waits for you", "running": "runs", "done": "done", "failed": "failed"}


def _call(event: AgentEvent) -> Iterator[Call]:
    match event:
        case events.ToolApprovalRequested(call_id=call_id, name=name, arguments=arguments):
            yield Call(call_id, name, arguments, "asking")
        case events.ToolCallDeferred(call_id=call_id, name=name, arguments=arguments, reason=reason):
            yield Call(call_id, name, arguments, "waiting", reason)
        case events.ToolExecutionStart(call_id=call_id, name=name, arguments=arguments):
            yield Call(call_id, name, arguments, "running")
        case events.ToolExecutionUpdate(call_id=call_id, name=name, update=update):
            yield Call(call_id, name, {}, "running", extract_text(update.content))
        case events.ToolExecutionRetry(call_id=call_id, name=name, attempt=attempt, error=error):
            yield Call(call_id, name, {}, "running", f"attempt {attempt} failed: {error}")
        case events.ToolExecutionEnd(call_id=call_id, name=name, result=result, seconds=took):
            state: CallState = "failed" if event.is_error else "done"
            yield Call(call_id, name, event.arguments or {}, state, event.reason, result, took)
        case _:
            pass


def _end(result: AgentResult | None, stopped_by: PolicyStop | None) -> Iterator[Change]:
    if stopped_by is not None:
        yield Stopped("policy", stopped_words(stopped_by), stopped_by.policy in LIMITS)
    elif result is None:
        return
    elif result.stop_reason is StopReason.ABORTED:
        yield Stopped("aborted", "stopped")
    elif result.error is not None:
        is_refused = result.error_kind is ErrorKind.CONTENT_FILTERED
        yield Stopped("refusal" if is_refused else "error", result.error)
    elif count := len(result.pending):
        yield Notice("warning", "a call waits for an answer" if count == 1 else f"{count} calls wait for an answer")
