"""Turns the events of a run into blocks of the transcript.

Decides which event opens, extends and closes which block. Tool calls are shown as the run's record describes them. Text
from the model and from tools is masked first, even if a secret is split between two pieces. Blocks decide how they
look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from swink_agent.app.runs.telling import shortening_of, summary_of
from swink_agent.app.shown.changes import CUT_OFF, stopped_words, why_discarded
from swink_agent.app.shown.other_models import OtherModels
from swink_agent.app.talk.delegates import DelegateProgress
from swink_agent.app.talk.shell import FROM_SHELL
from swink_agent.core import events
from swink_agent.core.events import AgentEvent, DelegateEvent, MessageUpdate, ToolCallDeferred, ToolExecutionEnd
from swink_agent.core.record import CallRecord, RunRecord
from swink_agent.core.secrets.redaction import Redactor, RedactorStream
from swink_agent.core.stream import TextDelta, ThinkingDelta
from swink_agent.core.types import AgentMessage, AssistantMessage, StopReason, ToolOutcome, UserMessage, extract_text

from .transcript import Block, NoticeBlock, ReplyBlock, ToolBlock, Transcript, UserBlock, blocks_of
from .transcript.parts import Cutter

_LONGEST_SUMMARY = 400
_LABELS: dict[str, str] = {"steering": "steering", "follow_up": "follow-up"}
_Kind: TypeAlias = Literal["text", "thinking"]


class Narration:
    """Adds an agent's events to a transcript. `label` returns the label of new replies and calls. `later` calls a
    function at once or a little later; deltas that arrive before the call are added together."""

    def __init__(
        self,
        transcript: Transcript,
        redactor: Redactor,
        *,
        label: Callable[[], str] = str,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[Callable[[], None]], None] = lambda call: call(),
    ) -> None:
        self._transcript = transcript
        self._redactor = redactor
        self._label = label
        self._clock = clock
        self._later = later
        self._heard: list[str] = []
        """Deltas that are not in the block yet; they are added once per frame."""
        self._reply: ReplyBlock | None = None
        self._cutter = Cutter()
        self._kind: _Kind | None = None
        self._stream: RedactorStream = redactor.stream()
        self._calls: list[_CallView] = []
        """The calls of the current turn, in the reply's order."""
        self._others = OtherModels()
        self._is_earlier = False
        """Whether the next results may belong to calls of an earlier run."""

    @property
    def running(self) -> list[ToolBlock]:
        """The calls that are running, in the reply's order."""
        return [view.block for view in self._calls if view.since is not None]

    def seconds_of(self, block: ToolBlock) -> float:
        """Returns how long a call has been running; 0 if it is not running."""
        since = next((view.since for view in self._calls if view.block is block), None)
        return 0.0 if since is None else self._clock() - since

    def on_event(self, event: AgentEvent, record: RunRecord) -> None:
        """Shows one event. Call it in the event loop's thread, after the run's `record` was fed the event."""
        if self._heard:
            self._take_heard()
        if (other := self._others.of(event)) is not None:
            self.notice(other, "warning")
        match event:
            case events.AgentStart():
                self._is_earlier = True  # results of calls that waited come first
            case events.TurnResumed():
                self._show_calls(record)
            case events.MessageStart():
                self._calls, self._is_earlier = [], False
            case events.MessageRetry() | events.ModelFallback():
                self._discard(why_discarded(event))
            case events.MessageEnd(message=message):
                self._on_message(message)
                self._show_calls(record)
            case ToolExecutionEnd() if self._is_earlier and not self._calls:
                self._close_waiting(event)
            case events.ToolApprovalRequested() | events.ToolExecutionStart() | ToolExecutionEnd() | ToolCallDeferred():
                self._show_calls(record)
            case events.ToolExecutionUpdate(call_id=call_id, update=update):
                running = [view for view in self._calls if view.since is not None and view.call.id == call_id]
                if running and (text := running[0].output.feed(extract_text(update.content))):
                    running[0].block.hear(text)
            case DelegateEvent():
                self._show_delegate(event)
            case events.ContextCompacted(report=report):
                self.notice(shortening_of(report))
            case events.AgentEnd(stopped_by=stopped_by):
                self._close_reply("")
                if stopped_by is not None:
                    self.notice(stopped_words(stopped_by), "warning")
            case _:
                pass

    def hear(self, event: MessageUpdate) -> None:
        """Adds a piece of a reply."""
        delta = event.delta
        if type(delta) is TextDelta:
            self._say("text", delta.delta)
        elif type(delta) is ThinkingDelta:
            self._say("thinking", delta.delta)

    def show_injected(self, event: events.MessagesInjected, length: int, images: Mapping[int, Sequence[str]]) -> None:
        """Shows the user's queued messages that were added to the history, which now has `length` messages.

        `images` maps `id(message)` to the names of its pictures.
        """
        if event.source == "policy":
            return
        for position, message in enumerate(event.messages, length - len(event.messages)):
            if isinstance(message, UserMessage):
                text = self._redactor.redact(extract_text(message.content))
                shown, label = images.get(id(message), ()), _LABELS[event.source]
                self._transcript.add(UserBlock(text, images=shown, label=label, position=position))

    def notice(self, text: str, kind: Literal["info", "warning", "error", "welcome"] = "info") -> None:
        """Adds a message from the program, masked because it may quote other text."""
        self._transcript.add(NoticeBlock(self._redactor.redact(text), kind))

    # -- replies -----------------------------------------------------------------------------------------------

    def _say(self, kind: _Kind, text: str) -> None:
        if kind != self._kind:
            self._flush()
            self._kind = kind
        self._heard.append(text)
        if len(self._heard) == 1:
            self._later(self._take_heard)

    def _take_heard(self) -> None:
        heard, self._heard = self._heard, []
        if heard and self._kind is not None and (shown := self._stream.feed("".join(heard))):
            self._append(self._kind, shown)

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
        """Adds the text that was held back because a secret could have begun in it."""
        self._take_heard()
        kind, self._kind = self._kind, None
        if kind is not None and (rest := self._stream.finish()):
            self._append(kind, rest)
        self._stream = self._redactor.stream()

    def _discard(self, why: str) -> None:
        """Marks the text of a failed attempt as failed; the user can still read it."""
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
            stopped = "error"  # the reason is shown when the run ends
        elif message.stop_reason == StopReason.LENGTH:
            note = CUT_OFF
        self._close_reply(stopped, note)

    def _close_reply(self, stopped: Literal["", "aborted", "error"], note: str = "") -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.finish(stopped, note)

    # -- calls -------------------------------------------------------------------------------------------------

    def _show_calls(self, record: RunRecord) -> None:
        """Shows the calls of the last turn as the record describes them, including those that never start."""
        turns = record.turns
        for position, call in enumerate(turns[-1].calls if turns else ()):
            if position == len(self._calls):
                block = self._waiting_block(call.id) if self._is_earlier else None
                if block is None:
                    block = ToolBlock(
                        call.id, call.name, self._summary_of(call.name, call.arguments), label=self._label()
                    )
                    self._transcript.add(block)
                view = _CallView(call, block, self._redactor.stream())
                self._calls.append(view)
                if self._is_earlier:
                    self._show_call(view, call)
            view = self._calls[position]
            if call is not view.call:
                self._show_call(view, call)

    def _close_waiting(self, event: ToolExecutionEnd) -> None:
        """Shows that a waiting call was given up, because the run continues without an answer."""
        block = self._waiting_block(event.call_id)
        if block is not None:
            text = self._redactor.redact(extract_text(event.result.content))
            block.finish(event.outcome, text, is_error=event.is_error)

    def _waiting_block(self, call_id: str) -> ToolBlock | None:
        """Returns the block of a call that waited before this run; `None` if it is not in the transcript."""
        for block in reversed(self._transcript.blocks):
            if isinstance(block, ToolBlock) and block.is_pending and block.call_id == call_id:
                return block
        return None

    def _show_call(self, view: _CallView, call: CallRecord) -> None:
        before, view.call = view.call, call
        if call.arguments != before.arguments:
            view.block.set_summary(self._summary_of(call.name, call.arguments))
        if call.outcome is not None and call.result is not None:
            view.since = None
            text = self._redactor.redact(extract_text(call.result.content))
            found = cast("object", call.result.details)
            details = cast("dict[str, Any]", found) if isinstance(found, dict) else None
            view.block.finish(call.outcome, text, is_error=call.result.is_error, details=details, seconds=call.seconds)
        elif call.outcome is ToolOutcome.PENDING:
            view.since = None
            view.block.finish(call.outcome, "", is_error=True)
        elif call.is_started and view.since is None:
            view.since = self._clock()
            view.block.begin()
        elif call.approval == "asked":
            view.block.ask()

    def _show_delegate(self, event: DelegateEvent) -> None:
        """Shows a delegate's progress under the call that runs it."""
        view = next((view for view in self._calls if view.since is not None and view.call.id == event.call_id), None)
        if view is None:
            return
        progress = view.block.delegate or DelegateProgress()
        progress.feed(event.event, self._described)
        view.block.show_delegate(progress)

    def _described(self, name: str, arguments: dict[str, Any]) -> tuple[str, str]:
        return self._redactor.redact(name), self._summary_of(name, arguments)

    def _summary_of(self, name: str, arguments: dict[str, Any]) -> str:
        return self._redactor.redact(summary_of(name, arguments))[:_LONGEST_SUMMARY]

    def leave_open_calls(self) -> None:
        """Closes the reply and the calls that a stopped run left open, so that they do not look active."""
        self._flush()
        self._close_reply("aborted")
        for view in self._calls:
            if view.since is not None:
                took = self._clock() - view.since
                view.block.finish(ToolOutcome.CANCELLED, "", is_error=True, details=None, seconds=took)
        self._calls = []


class _CallView:
    """A call of the current turn and its block."""

    __slots__ = ("block", "call", "output", "since")

    def __init__(self, call: CallRecord, block: ToolBlock, output: RedactorStream) -> None:
        self.call = call
        self.block = block
        self.output = output
        self.since: float | None = None
        """When the call started; `None` if it is not running."""


def shown_history(messages: Sequence[AgentMessage], redactor: Redactor) -> list[Block]:
    """Returns the blocks of a history, masked."""
    blocks = blocks_of(messages, redact=redactor.redact, summary_of=summary_of)
    for block in blocks:
        if isinstance(block, UserBlock) and block.position is not None:
            message = messages[block.position]
            if isinstance(message, UserMessage) and message.origin == "shell":
                block.label = FROM_SHELL
    return blocks
