"""Passes partial results from a running tool to the event stream.

Each call has a bounded buffer: if a tool reports faster than the reader reads, its updates are joined, so that it
neither fills the memory nor waits. Tools may report from any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from ..cancel import call_in, running_loop
from ..events import ToolExecutionUpdate
from ..tool import AgentToolResult
from ..types import Document, Extension, Text, UserBlock, encodable, extract_text
from ..values.nesting import inside, kept_shallow
from ..values.value import frozen_json

if TYPE_CHECKING:
    from ..secrets.redaction import Redactor, RedactorStream
    from .state import Run

GAP = "[…]"  # replaces text that an update omits
SHORTEST_SECRET = 6  # a redactor masks nothing in a text of fewer characters
_MOST_UPDATES = 32
_MOST_CHARACTERS = 64 * 1024
_LONG = 64 * 1024
_TEXTS = frozenset({str, bytes, bytearray})
_NUMBERS = frozenset({int, float, bool, type(None)})
# Masking a short text, or another value, takes as long as masking so many characters of a long text.
_PER_TEXT, _PER_VALUE = 100, 8
_SURELY_REPEATED = 8
"""If an update begins with the whole last one, and that has this many characters, the tool repeats a growing text."""


class Relay:
    """The updates of one call, in order; if there are too many, the last ones are joined."""

    __slots__ = ("_buffer", "_call_id", "_is_closed", "_is_scheduled", "_last_text", "_lock", "_name", "_run", "_text")

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
        """Takes an update, from any thread; ignores it after the call has ended."""
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
        """Emits updates until the channel is full."""
        if self._call_id not in self._run.executing:  # a thread reported while its call ended
            self._buffer.clear()
        channel = self._run.channel
        while self._buffer and not (channel is not None and channel.is_full):
            self._emit_first()
        if channel is not None:
            if self._buffer:
                channel.backlog[self] = None
            else:
                channel.backlog.pop(self, None)

    def close(self) -> None:
        """Emits the rest, even if the channel is full: it must come before the call's end."""
        with self._lock:
            self._is_closed = True
        while self._buffer:
            self._emit_first()
        if self._run.channel is not None:
            self._run.channel.backlog.pop(self, None)
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
        """Masks secrets in the update; keeps the end of its text back if a secret may begin there."""
        text = extract_text(update.content)
        if self._text is None or (len(self._last_text) >= _SURELY_REPEATED and text.startswith(self._last_text)):
            self._text = self._run.redactor.stream()  # a tool that repeats its whole text needs nothing kept back
        shown = self._text.feed(text) if GAP not in text else self._fed_around_gaps(text)
        self._last_text = text
        redactor = self._run.redactor
        others = [_masked_block(redactor, block) for block in update.content if not isinstance(block, Text)]
        if shown == text and update.details is None and not others:
            return update
        details = _masked_details(redactor, update.details)
        return AgentToolResult([*([Text(shown)] if shown else []), *others], details, update.is_error)

    def _fed_around_gaps(self, text: str) -> str:
        """Masks secrets in the text, and the remains of secrets next to omitted text."""
        stream = self._text or self._run.redactor.stream()
        before, *others = text.split(GAP)
        shown = [stream.feed(before)]
        for after in others:
            stream = self._text = self._run.redactor.stream()  # drops the text that was kept back
            shown += (GAP, stream.feed(self._run.redactor.after_a_cut(after)))
        return "".join(shown)


def masked_unless_long(run: Run, result: AgentToolResult) -> AgentToolResult | None:
    """Returns the result without secrets, or `None` if searching it for them would block the event loop."""
    content, details = result.content, result.details
    if details is None and len(content) == 1 and type(first := content[0]) is Text:  # as most are
        if len(first.text) > _LONG:
            return None
        if len(first.text) < SHORTEST_SECRET and first.text.isascii():
            return result
        text = encodable(run.redactor.redact(first.text))
        return result if text == first.text else AgentToolResult((Text(text),), None, result.is_error)
    searched: list[Any] = [details]
    for block in content:
        if type(block) is Text:
            searched.append(block.text)
        elif type(block) is Extension:
            searched.append(block.data)
    return None if _takes_long(searched) else masked_result(run.redactor, result)


def _takes_long(values: list[Any]) -> bool:
    """Whether the values, with all that is in them, take as long to mask as a long text. Adds to the list."""
    size = 0
    for value in values:  # the list grows meanwhile
        kind: type = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind in _TEXTS:
            size += _PER_TEXT + len(value)
        elif kind in _NUMBERS:
            size += _PER_VALUE
        elif kind is dict or kind is list:
            size += _PER_VALUE + len(value)
            if size <= _LONG:
                values += value
                if kind is dict:
                    values += value.values()
        else:
            size += _PER_TEXT
            values += inside(value)
        if size > _LONG:
            return True
    return False


def masked_result(redactor: Redactor, result: AgentToolResult) -> AgentToolResult:
    """Returns the result without secrets, lone surrogates and data that is nested too deep; the same object if it has
    none of them and no details."""
    from ..secrets.messages import masked_texts  # on use: runs without tools do not need it

    is_clean = result.details is None
    content: list[UserBlock] = []
    texts = iter(masked_texts([block.text for block in result.content if type(block) is Text], redactor))
    for block in result.content:
        if type(block) is Text and (text := encodable(next(texts))) != block.text:
            is_clean = False
            block = Text(text)
        elif type(block) is not Text and (masked := _masked_block(redactor, block)) is not block:
            is_clean = False
            block = masked
        content.append(block)
    if is_clean:
        return result
    details = _masked_details(redactor, result.details)
    return AgentToolResult(content, details, result.is_error)


def _masked_block(redactor: Redactor, block: UserBlock) -> UserBlock:
    """Masks secrets in a block that is not a text. Returns the same object if nothing changes."""
    if type(block) is Extension:
        data = _masked_details(redactor, block.data)
        return block if data is block.data else Extension(block.type_name, data)
    if type(block) is Document and (name := redactor.redact(block.name)) != block.name:
        return Document(block.source, name)
    return block


def _masked_details(redactor: Redactor, details: Any) -> Any:
    """Masks secrets in the details, and replaces data that is nested too deep to be recorded. Refuses later changes."""
    return None if details is None else frozen_json(redactor.redact_value(kept_shallow(details)))


def joined(first: AgentToolResult, second: AgentToolResult) -> AgentToolResult:
    """Joins two updates; keeps the end of a very long text."""
    text = extract_text(first.content) + extract_text(second.content)
    if len(text) > _MOST_CHARACTERS:
        text = GAP + text[-_MOST_CHARACTERS:]
    others: list[UserBlock] = [block for block in (*first.content, *second.content) if not isinstance(block, Text)]
    content = [*([Text(text)] if text else []), *others[-_MOST_UPDATES:]]
    return AgentToolResult(content, second.details if second.details is not None else first.details, second.is_error)
