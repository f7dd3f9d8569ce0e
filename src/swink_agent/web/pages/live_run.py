"""An active run as HTML: the part of a page that shows it, and the events that change that part for every reader.

Owns the ids of a run's elements and these events. `rendering.blocks` writes the messages, as in exports, so that all
text from models and tools is escaped by the same code.
"""

from __future__ import annotations

from html import escape
from math import isfinite
from typing import Any

import msgspec

from swink_agent.app.runs import telling
from swink_agent.app.runs.telling import summary_of
from swink_agent.app.shown.changes import stopped_words, why_discarded
from swink_agent.app.shown.other_models import OtherModels
from swink_agent.app.talk.delegates import DelegateProgress, is_streamed
from swink_agent.core import events
from swink_agent.core.encoding.codec import decode_event
from swink_agent.core.errors import AgentError
from swink_agent.core.events import AgentEvent, DelegateEvent, MessageUpdate, ToolExecutionEnd
from swink_agent.core.stream import TextDelta, ThinkingDelta, ToolCallStart
from swink_agent.core.types import AgentMessage, AssistantMessage, ToolResultMessage, UserMessage, extract_text
from swink_agent.core.values.decoders import json_decoder
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.blocks import Delegated, Now, Step, anchor, call_anchor, call_html, entry_html
from swink_agent.rendering.characters import one_line, visible
from swink_agent.rendering.turns import Entry, Other, Prompt, Reply, ToolUse

from ..channels import SessionChannel, State
from ..questions import Question
from ..streams import Event, EventLog
from .question_form import question_html

_QUESTIONS = json_decoder(Question)
_MOST_OUTPUT = 20_000
"""Most characters of a running call's output that are shown, from its end."""
_MOST_STEPS = 100
"""Most calls of a delegate that are shown, from the last back."""
_RUN = frozenset(
    {
        *("agent_start", "agent_end", "messages_injected", "message_start", "message_update", "message_retry"),
        *("model_fallback", "message_end", "tool_approval_requested", "tool_approval_resolved", "tool_call_deferred"),
        *("tool_execution_start", "tool_execution_update", "tool_execution_retry", "tool_execution_end"),
        *("turn_resumed", "context_compacted", "delegate_event"),
    }
)
_ALONE = frozenset({"renamed", "draft", "reset"})
"""Events that readers of the page get unchanged."""


class _Streaming:
    """A reply that streams in: its blocks of text by their index, each with its kind and its pieces so far."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.blocks: dict[int, tuple[str, list[str]]] = {}

    def html(self, goes_on: bool) -> str:
        shown = [
            f'<div class="prose plain stream {kind}" data-index="{index}">{escape("".join(pieces))}</div>\n'
            for index, (kind, pieces) in sorted(self.blocks.items())
        ]
        again = " again" if goes_on else ""
        return (
            f'<article class="assistant streaming{again}" id="{anchor(self.position)}">'
            f"<header><h2>Assistant</h2></header>\n{''.join(shown)}</article>\n"
        )


class _Shown:
    """A finished reply of the run, with the states of its calls."""

    def __init__(self, entry: Reply, goes_on: bool) -> None:
        self.entry = entry
        self.goes_on = goes_on
        self.now: dict[int, Now] = {number: Now("not started") for number in range(len(entry.uses))}
        self.delegates: dict[int, DelegateProgress] = {}

    def number_of(self, call_id: str) -> int | None:
        """Returns the number of a call; `None` if the call is unknown or already has a result."""
        uses = enumerate(self.entry.uses)
        return next((number for number, use in uses if use.call.id == call_id and use.result is None), None)


class Live:
    """The last run of a session as its page shows it, and the events for the page's readers.

    `first` is the number of messages before the run, `end` the number including the run's; both are 0 without a run.
    """

    def __init__(self, channel: SessionChannel) -> None:
        self.log = EventLog()
        self.first = 0
        self.end = 0
        self.is_running = False
        self._channel = channel
        self._model = ""
        self._entries: list[Entry | _Shown] = []
        self._others = OtherModels()
        self._streaming: _Streaming | None = None
        began = channel.began
        if began is not None and channel.is_busy and channel.log.holds(began[0]):
            for event in channel.log.events_after(began[0]):
                self._hear(event)
        channel.log.tap(self._hear)

    # -- the first HTML of a page --------------------------------------------------------------------------------

    def html(self) -> str:
        """Returns the HTML of the run's messages so far."""
        out: list[str] = []
        for entry in self._entries:
            if isinstance(entry, _Shown):
                self._reply(entry, out)
            else:
                entry_html(entry, out, goes_on=False, model=self._model)
        if self._streaming is not None:
            out.append(self._streaming.html(self._goes_on))
        return "".join(out)

    @property
    def _goes_on(self) -> bool:
        return bool(self._entries) and isinstance(self._entries[-1], _Shown)

    def _reply(self, shown: _Shown, out: list[str]) -> None:
        entry_html(shown.entry, out, goes_on=shown.goes_on, model=self._model, now=shown.now)

    # -- events --------------------------------------------------------------------------------------------------

    def _tell(self, name: str, **data: Any) -> None:
        self.log.append(name, msgspec.json.encode(data))

    def _hear(self, event: Event) -> None:
        name = event.name
        if name in _RUN:
            try:
                self._on_event(decode_event(event.data))
            except AgentError:  # a message of an application's own type: the page loads it from the session
                self._tell("reset")
        elif name == "state":
            self._tell("state", **shown_state(self._channel.state))
        elif name == "question":
            question = _QUESTIONS.decode(event.data)
            self._tell("ask", id=question.id, html=question_html(question))
        elif name == "answered":
            self._tell("answered", **msgspec.json.decode(event.data))
        elif name == "notice":
            self._notice(**msgspec.json.decode(event.data))
        elif name in _ALONE:
            if name == "reset":
                self._forget()
            self.log.append(name, event.data)
        elif name in ("bye", "deleted"):
            self.log.append(name, event.data)
            self.log.close()

    def _notice(self, text: str, kind: str, **_: Any) -> None:
        place = f"n{self.log.position}"
        if kind in ("warning", "error"):
            self._tell("alert", text=one_line(text, 500))
        newest = self._entries[-1] if self._entries else None
        if kind == "error" and isinstance(newest, _Shown) and newest.entry.message.error_message == text:
            return  # the reply shows it
        rows = ["  " in line.strip() for line in text.split("\n")]
        table = " aligned" if sum(rows) > 1 else ""  # columns, as in a terminal
        html = f'<div class="notice {escape(kind)}{table}" id="{place}" dir="auto">{escape(visible(text))}</div>'
        self._tell("put", id=place, html=html)

    def _forget(self) -> None:
        self.first = self.end = 0
        self._entries = []
        self._streaming = None

    def _on_event(self, event: AgentEvent) -> None:
        if (other := self._others.of(event)) is not None:
            self._notice(other, "warning")
        match event:
            case MessageUpdate():
                self._on_delta(event)
            case events.AgentStart():
                self._begin(event)
            case events.MessagesInjected():
                self._add(event.messages)
            case events.ContextCompacted():
                self._notice(telling.shortening_of(event.report), "info")
            case events.MessageStart() | events.MessageRetry() | events.ModelFallback():
                if not isinstance(event, events.MessageStart):
                    self._notice(why_discarded(event), "warning")
                self._streaming = _Streaming(self.end)
                self._tell("put", id=anchor(self.end), html=self._streaming.html(self._goes_on))
            case events.MessageEnd():
                self._finish(event.message)
            case events.ToolApprovalRequested():
                self._call(event.call_id, Now("waiting"))
            case events.ToolCallDeferred():
                self._call(event.call_id, Now("waiting", event.reason))
            case events.ToolApprovalResolved():
                self._call(event.call_id, Now("not started"))
            case events.ToolExecutionStart():
                self._call(event.call_id, Now("running"))
            case events.ToolExecutionRetry():
                self._call(event.call_id, Now("running", f"attempt {event.attempt} failed: {event.error}"))
            case events.ToolExecutionUpdate():
                self._call(event.call_id, Now("running", extract_text(event.update.content)[-_MOST_OUTPUT:]))
            case DelegateEvent():
                self._delegate(event)
            case ToolExecutionEnd():
                self._result(event)
            case events.TurnResumed():
                self._tell("reset")
            case events.AgentEnd():
                self._end(event)
            case _:
                pass

    def _begin(self, event: events.AgentStart) -> None:
        began = self._channel.began
        self.log.begin_run()
        self._forget()
        self.is_running = True
        self.first = self.end = 0 if began is None else began[1]
        self._model = "" if self._channel.talk is None else str(self._channel.talk.agent.model)
        self._add(event.prompts)

    def _end(self, event: events.AgentEnd) -> None:
        self.is_running = False
        if event.stopped_by is not None:
            self._notice(stopped_words(event.stopped_by), "warning")
        if self._streaming is not None:
            self._tell("drop", id=anchor(self._streaming.position))
            self._streaming = None
        self.log.end_run()

    def _add(self, messages: tuple[AgentMessage, ...]) -> None:
        for message in messages:
            entry: Entry
            if type(message) is UserMessage:
                entry = Prompt(self.end, message)
            elif type(message) is AssistantMessage:
                self._finish(message)
                continue
            elif type(message) is ToolResultMessage:
                self.end += 1
                continue
            else:
                entry = Other(self.end, message)
            self._entries.append(entry)
            out: list[str] = []
            entry_html(entry, out, goes_on=False, model=self._model)
            self._tell("put", id=anchor(self.end), html="".join(out))
            self.end += 1

    def _finish(self, message: AssistantMessage) -> None:
        self._streaming = None
        uses = tuple([ToolUse(call, None) for call in message.tool_calls])
        shown = _Shown(Reply(self.end, message, uses), self._goes_on)
        self._entries.append(shown)
        out: list[str] = []
        self._reply(shown, out)
        self._tell("put", id=anchor(self.end), html="".join(out))
        self.end += 1 + len(uses)  # every call has a result after the reply

    def _on_delta(self, event: MessageUpdate) -> None:
        delta, streaming = event.delta, self._streaming
        if streaming is None:
            return
        if isinstance(delta, TextDelta | ThinkingDelta):
            kind, text = ("thinking" if isinstance(delta, ThinkingDelta) else "text"), visible(delta.delta)
        elif isinstance(delta, ToolCallStart):
            kind, text = "calling", f"calls {one_line(delta.name, 60)}…"
        else:
            return
        streaming.blocks.setdefault(delta.index, (kind, []))[1].append(text)
        self._tell("text", id=anchor(streaming.position), index=delta.index, kind=kind, text=text)

    # -- calls ---------------------------------------------------------------------------------------------------

    def _find(self, call_id: str) -> tuple[_Shown, int] | None:
        for entry in reversed(self._entries):
            if isinstance(entry, _Shown):
                number = entry.number_of(call_id)
                return None if number is None else (entry, number)
        return None

    def _call(self, call_id: str, now: Now) -> None:
        found = self._find(call_id)
        if found is not None:
            shown, number = found
            shown.now[number] = now._replace(delegated=shown.now[number].delegated)
            self._tell_call(shown, number)

    def _delegate(self, event: DelegateEvent) -> None:
        found = self._find(event.call_id)
        if found is None or is_streamed(event):  # its streamed text is not shown, as in a terminal
            return
        shown, number = found
        progress = shown.delegates.setdefault(number, DelegateProgress())
        progress.feed(event.event, lambda name, arguments: (name, summary_of(name, arguments)))
        shown.now[number] = shown.now[number]._replace(delegated=_delegated(progress))
        self._tell_call(shown, number)

    def _result(self, event: ToolExecutionEnd) -> None:
        found = self._find(event.call_id)
        if found is None:
            return
        shown, number = found
        result = event.result
        message = ToolResultMessage(
            event.call_id, result.content, event.is_error, result.details, event.name, outcome=event.outcome
        )
        uses = list(shown.entry.uses)
        uses[number] = ToolUse(uses[number].call, message)
        shown.entry = shown.entry._replace(uses=tuple(uses))
        self._tell_call(shown, number)

    def _tell_call(self, shown: _Shown, number: int) -> None:
        place = call_anchor(shown.entry.position, number)
        out: list[str] = []
        call_html(shown.entry.uses[number], out, place, shown.now.get(number))
        self._tell("put", id=place, html="".join(out))


def _delegated(progress: DelegateProgress) -> Delegated:
    doing = "" if progress.is_over else " · thinking"
    if not progress.is_over and (newest := progress.newest()) is not None:
        waits = "waits for you: " if newest.status == "asking" else ""
        doing = f" · {waits}{newest.name} {newest.summary}"
    steps: list[Step] = []
    for call, depth in progress.every():
        took = "" if call.seconds is None else f" · {telling.seconds(call.seconds)}"
        word = "waiting" if call.status == "asking" else call.status
        steps.append(Step(word, call.name, f"{one_line(call.summary, 160)}{took}", depth))
    return Delegated(f"{progress.counted}{doing}", steps[-_MOST_STEPS:])


def shown_state(state: State) -> dict[str, Any]:
    """Returns the parts of a session's state that the page shows."""
    amount = state.cost
    return {
        "state": state.state,
        "fill": state.fill,
        "plan": state.plan,
        "cost": "cost unknown" if amount is None or not isfinite(amount) else dollars(amount),
        "model": state.model,
        "thinking": state.thinking,
        "progress": one_line(state.progress, 200),
        "queue": [{"kind": each["kind"], "text": one_line(each["text"], 200)} for each in state.queue],
    }
