"""Partial results on their way from a running tool to the event stream.

Owns a bounded buffer for one call: a tool that reports faster than the reader reads has its updates joined, and
never fills memory or waits. Tools may report from any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from ..cancel import call_in, running_loop
from ..events import ToolExecutionUpdate
from ..tool import AgentToolResult
from ..types import Extension, Text, UserBlock, extract_text
from ..values.nesting import kept_shallow

if TYPE_CHECKING:
    from ..secrets.redaction import Redactor, RedactorStream
    from .state import Run

__all__ = ["GAP", "Relay"]

GAP = "[…]"
"""Stands in an update for what was left out before it."""
_MOST_UPDATES = 32
_MOST_CHARACTERS = 64 * 1024
_LONG = 64 * 1024
_SURELY_REPEATED = 8
"""Characters of the last update with which the next must begin to be taken for the same text, grown."""


class Relay:
    """The updates of one call, in order; the last ones joined where there are too many."""

    __slots__ = (
        "_buffer",
        "_call_id",
        "_is_closed",
        "_is_scheduled",
        "_last_text",
        "_lock",
        "_name",
        "_run",
        "_text",
    )

    def __init__(self, call_id: str, name: str, run: Run) -> None:
        self._call_id = call_id
        self._name = name
        self._run = run
        self._buffer: deque[AgentToolResult] = deque()
        self._lock = threading.Lock()
        self._text: RedactorStream | None = None
        self._last_text = ""
        self._is_scheduled = False
        self._is_closed = False

    def post(self, update: AgentToolResult) -> None:
        """Takes an update, from any thread; after the call has ended, nothing is taken."""
        with self._lock:
            if self._is_closed:
                return
            if len(self._buffer) < _MOST_UPDATES:
                self._buffer.append(update)
            else:
                self._buffer[-1] = joined(self._buffer[-1], update)
            if self._is_scheduled:
                return
            is_here = running_loop() is self._run.supervisor.loop
            self._is_scheduled = not is_here
        if is_here:
            self.pump()
        else:
            call_in(self._run.supervisor.loop, self._pump_scheduled)

    def _pump_scheduled(self) -> None:
        self._is_scheduled = False
        self.pump()

    def pump(self) -> None:
        """Emits what there is room for."""
        if self._call_id not in self._run.executing:  # a thread that reported while its call came to an end
            self._buffer.clear()
        channel = self._run.channel
        while self._buffer and not (channel is not None and channel.is_full):
            self._emit_first()
        if self._buffer:
            self._run.backlog.add(self)
        else:
            self._run.backlog.discard(self)

    def close(self) -> None:
        """Emits the rest, room or not, so that it comes before the call's end."""
        with self._lock:
            self._is_closed = True
        while self._buffer:
            self._emit_first()
        self._run.backlog.discard(self)
        if self._text is not None and (rest := self._text.finish()):
            self._emit(AgentToolResult.text(rest))

    def _emit_first(self) -> None:
        with self._lock:
            update = self._buffer.popleft()
        update = self._masked(update)
        if update.content or update.details is not None:
            self._emit(update)

    def _emit(self, update: AgentToolResult) -> None:
        self._run.emit(ToolExecutionUpdate(self._call_id, self._name, update))

    def _masked(self, update: AgentToolResult) -> AgentToolResult:
        """The update without secrets; the end of its text waits for the next if it may be the beginning of one."""
        text = extract_text(update.content)
        if self._text is None or (len(self._last_text) >= _SURELY_REPEATED and text.startswith(self._last_text)):
            self._text = self._run.redactor.stream()  # a tool that says all from the start each time holds nothing back
        shown = self._text.feed(text) if GAP not in text else self._fed_around_gaps(text)
        self._last_text = text
        if shown == text and update.details is None:
            return update
        others: list[UserBlock] = [block for block in update.content if not isinstance(block, Text)]
        details = _masked_details(self._run.redactor, update.details)
        return AgentToolResult([*([Text(shown)] if shown else []), *others], details, update.is_error)

    def _fed_around_gaps(self, text: str) -> str:
        """The text without secrets, and without the halves of those that something left out was a part of."""
        stream = self._text or self._run.redactor.stream()
        before, *others = text.split(GAP)
        shown = [stream.feed(before)]
        for after in others:
            stream = self._text = self._run.redactor.stream()  # what was held back is not shown any more
            shown += (GAP, stream.feed(self._run.redactor.after_a_cut(after)))
        return "".join(shown)


def masked_unless_long(redactor: Redactor, result: AgentToolResult) -> AgentToolResult | None:
    """The result without secrets; `None` if it takes more than a moment to look through it for them."""
    content, details = result.content, result.details
    if details is None and len(content) == 1 and type(first := content[0]) is Text:  # as most are
        if len(first.text) > _LONG:
            return None
        text = redactor.redact(first.text)
        return result if text == first.text else AgentToolResult((Text(text),), None, result.is_error)
    size = sum([len(block.text) for block in content if type(block) is Text])
    if isinstance(details, dict):
        size += sum([len(value) for value in cast("dict[str, Any]", details).values() if type(value) is str])
    return None if size > _LONG else masked_result(redactor, result)


def masked_result(redactor: Redactor, result: AgentToolResult) -> AgentToolResult:
    """The result without secrets: the same object if it has none, and nothing in it is nested too deep."""
    is_clean = result.details is None
    content: list[UserBlock] = []
    for block in result.content:
        if type(block) is Text and (text := redactor.redact(block.text)) != block.text:
            is_clean = False
            block = Text(text)
        elif type(block) is Extension and (data := redactor.redact_value(kept_shallow(block.data))) != block.data:
            is_clean = False
            block = Extension(block.type_name, data)
        content.append(block)
    if is_clean:
        return result
    details = _masked_details(redactor, result.details)
    return AgentToolResult(content, details, result.is_error)


def _masked_details(redactor: Redactor, details: Any) -> Any:
    """The details without secrets, and with a text for what is nested so deep in them that nobody could record it."""
    return None if details is None else redactor.redact_value(kept_shallow(details))


def joined(first: AgentToolResult, second: AgentToolResult) -> AgentToolResult:
    """One update that says what both said; of very much text, the end."""
    text = extract_text(first.content) + extract_text(second.content)
    if len(text) > _MOST_CHARACTERS:
        text = GAP + text[-_MOST_CHARACTERS:]
    others: list[UserBlock] = [block for block in (*first.content, *second.content) if not isinstance(block, Text)]
    content = [*([Text(text)] if text else []), *others[-_MOST_UPDATES:]]
    return AgentToolResult(content, second.details if second.details is not None else first.details, second.is_error)
