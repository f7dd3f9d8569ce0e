"""What happens in a run, told as blocks of the transcript.

Owns the mapping from events to blocks: which event opens, feeds and closes which. Text of the model and of tools passes
the redactor on its way, also where a secret is split between two pieces. How a block looks is its own business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from swink_agent.app.telling import seconds, shortening_of, summary_of
from swink_agent.core.events import (
    AgentEnd,
    AgentEvent,
    ContextCompacted,
    MessageEnd,
    MessageRetry,
    MessagesInjected,
    MessageStart,
    MessageUpdate,
    ModelFallback,
    ToolApprovalRequested,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
)
from swink_agent.core.secrets.redaction import Redactor, RedactorStream
from swink_agent.core.stream import TextDelta, ThinkingDelta
from swink_agent.core.types import AssistantMessage, StopReason, ToolOutcome, UserMessage, extract_text

from ..transcript import NoticeBlock, ReplyBlock, ToolBlock, Transcript, UserBlock
from ..transcript.parts import Cutter

__all__ = ["Narration"]

_LONGEST_SUMMARY = 400
_LABELS: dict[str, str] = {"steering": "steering", "follow_up": "follow-up"}
_Kind: TypeAlias = Literal["text", "thinking"]


class Narration:
    """Listens to an agent and keeps a transcript of it. `label` says what replies are marked with at the moment."""

    def __init__(
        self,
        transcript: Transcript,
        redactor: Redactor,
        *,
        label: Callable[[], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transcript = transcript
        self._redactor = redactor
        self._label = label
        self._clock = clock
        self._reply: ReplyBlock | None = None
        self._cutter = Cutter()
        self._kind: _Kind | None = None
        self._stream: RedactorStream = redactor.stream()
        self._calls: dict[str, _Call] = {}
        self.answer = ""
        """What the model said last that was no way to a call, masked."""

    @property
    def running(self) -> list[ToolBlock]:
        """The calls that run, in the order in which they began."""
        return [call.block for call in self._calls.values() if call.since is not None]

    def seconds_of(self, block: ToolBlock) -> float:
        """How long a call has been running."""
        call = next((call for call in self._calls.values() if call.block is block), None)
        return 0.0 if call is None or call.since is None else self._clock() - call.since

    def on_event(self, event: AgentEvent) -> None:
        """Takes one event, in the thread of the event loop."""
        match event:
            case MessageUpdate(delta=delta):
                if type(delta) is TextDelta:
                    self._say("text", delta.delta)
                elif type(delta) is ThinkingDelta:
                    self._say("thinking", delta.delta)
            case MessageStart():
                self._calls = {}
            case MessageRetry(attempt=attempt, error=error, delay=delay):
                self._discard(f"attempt {attempt} failed, the next is in {seconds(round(delay, 1))}: {error}")
            case ModelFallback(to_model=model, error=error):
                self._discard(f"going on with {model}: {error}")
            case MessageEnd(message=message):
                self._on_message(message)
            case ToolApprovalRequested(call_id=call_id):
                if (call := self._calls.get(call_id)) is not None:
                    call.block.ask()
            case ToolExecutionStart(call_id=call_id, name=name, arguments=arguments):
                call = self._call(call_id, name, arguments)
                call.since = self._clock()
                call.block.begin()
            case ToolExecutionUpdate(call_id=call_id, update=update):
                call = self._calls.get(call_id)
                if call is not None and (text := call.output.feed(extract_text(update.content))):
                    call.block.hear(text)
            case ToolExecutionEnd():
                self._on_tool_end(event)
            case ContextCompacted(report=report):
                self.notice(shortening_of(report))
            case TurnEnd(message=message):
                if message is not None:
                    self._take_answer(message)  # a policy may have put another in its place
            case AgentEnd(stopped_by=stopped_by):
                self._close_reply("")
                if stopped_by is not None:
                    self.notice(f"{stopped_by.policy} stopped it: {stopped_by.reason}", "warning")
            case _:
                pass

    def show_injected(self, event: MessagesInjected, length: int, images: Mapping[int, Sequence[str]]) -> None:
        """Messages of the person's that were queued have entered a history, which is so long by now.

        `images` are the names of pictures by the ids of messages.
        """
        if event.source == "policy":
            return
        for position, message in enumerate(event.messages, length - len(event.messages)):
            if isinstance(message, UserMessage):
                text = self._redactor.redact(extract_text(message.content))
                shown, label = images.get(id(message), ()), _LABELS[event.source]
                self._transcript.add(UserBlock(text, images=shown, label=label, position=position))

    def notice(self, text: str, kind: Literal["info", "warning", "error", "welcome"] = "info") -> None:
        """A word of the program's own, which may quote others: it is masked."""
        self._transcript.add(NoticeBlock(self._redactor.redact(text), kind))

    # -- replies -----------------------------------------------------------------------------------------------

    def _say(self, kind: _Kind, text: str) -> None:
        if kind != self._kind:
            self._flush()
            self._kind = kind
        if shown := self._stream.feed(text):
            self._append(kind, shown)

    def _append(self, kind: _Kind, text: str) -> None:
        if self._reply is None:
            self._reply, self._cutter = ReplyBlock(label=self._label()), Cutter()
            self._transcript.add(self._reply)
        if kind == "thinking":
            self._reply.append_thinking(text)
            return
        for piece in self._cutter.feed(text):
            if piece.seam:
                self._reply.finish()
                self._reply = ReplyBlock(label=self._reply.label, seam=piece.seam, fence=piece.fence)
                self._transcript.add(self._reply)
            self._reply.append_text(piece.text)

    def _flush(self) -> None:
        """What was held back, as it may have been the beginning of a secret."""
        kind, self._kind = self._kind, None
        if kind is not None and (rest := self._stream.finish()):
            self._append(kind, rest)
        self._stream = self._redactor.stream()

    def _discard(self, why: str) -> None:
        """What was streamed does not count: it stays to be read, and says so."""
        self._flush()
        if self._reply is None:
            self.notice(why, "warning")
        else:
            self._close_reply("error", self._redactor.redact(why))

    def _on_message(self, message: AssistantMessage) -> None:
        self._flush()
        stopped: Literal["", "aborted", "error"] = ""
        note = ""
        if message.stop_reason == StopReason.ABORTED:
            stopped = "aborted"
        elif message.is_failed:
            stopped = "error"  # what went wrong is told when the run has ended
        elif message.stop_reason == StopReason.LENGTH:
            note = "cut off at the model's limit of output"
        self._close_reply(stopped, note)
        self._take_answer(message)
        # Calls that never start show too: skipped by a policy, of an unknown tool, with invalid arguments.
        for call in message.tool_calls:
            self._call(call.id, call.name, call.arguments)

    def _close_reply(self, stopped: Literal["", "aborted", "error"], note: str = "") -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.finish(stopped, note)

    def _take_answer(self, message: AssistantMessage) -> None:
        if text := message.text.strip():
            self.answer = self._redactor.redact(text)

    # -- calls -------------------------------------------------------------------------------------------------

    def _call(self, call_id: str, name: str, arguments: dict[str, Any]) -> _Call:
        call = self._calls.get(call_id)
        if call is None:
            summary = self._redactor.redact(summary_of(name, arguments))[:_LONGEST_SUMMARY]
            block = ToolBlock(call_id, name, summary, label=self._label())
            call = self._calls[call_id] = _Call(block, self._redactor.stream())
            self._transcript.add(block)
        return call

    def _on_tool_end(self, event: ToolExecutionEnd) -> None:
        call = self._calls.pop(event.call_id, None) or self._call(event.call_id, event.name, {})
        self._calls.pop(event.call_id, None)
        took = 0.0 if call.since is None else self._clock() - call.since
        text = self._redactor.redact(extract_text(event.result.content))
        found = cast("object", event.result.details)
        details = cast("dict[str, Any]", found) if isinstance(found, dict) else None
        call.block.finish(event.outcome, text, is_error=event.is_error, details=details, seconds=took)

    def leave_open_calls(self) -> None:
        """Closes what a run that was left behind has no end for, so that nothing seems to go on."""
        self._flush()
        self._close_reply("aborted")
        for call in self._calls.values():
            if call.since is not None:
                took = self._clock() - call.since
                call.block.finish(ToolOutcome.CANCELLED, "", is_error=True, details=None, seconds=took)
        self._calls = {}


class _Call:
    """A call of the turn that goes on."""

    __slots__ = ("block", "output", "since")

    def __init__(self, block: ToolBlock, output: RedactorStream) -> None:
        self.block = block
        self.output = output
        self.since: float | None = None
