"""Turns generated text into stream events.

Reads text, `<think>` spans, calls between `<tool_call>` tags, and the internal `answer` call, whose argument is the
text of the reply. The grammar in `text` decides what the model may generate.
"""

from __future__ import annotations

import re
from uuid import uuid4

from swink_agent.core.encoding.stream_writer import ReplyWriter
from swink_agent.core.errors import ErrorKind
from swink_agent.core.stream import AssistantMessageEvent
from swink_agent.core.types import StopReason, Usage

ANSWER = "answer"
CALL_START, CALL_END = "<tool_call>\n", "\n</tool_call>"
_THINK_START, _THINK_END = "<think>", "</think>"
_NAME_START, _NAME_END = '{"name": "', '", "arguments": '
_LOOP_CHARACTERS, _LOOP_PERIOD = 400, 80
_STRING_PART = re.compile(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*')
"""The content of a JSON string, up to its end or to an escape of which a part has not arrived yet."""
_ESCAPE = re.compile(r"\\(?:u(....)|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class ReplyParser:
    """Reads one reply as it is generated. `take()` returns the events since the last call, without a start event.

    A call is passed on piece by piece. If `is_held`, it is kept until `release()`, so that the caller can check it.
    """

    def __init__(self, *, in_call: bool = False, is_held: bool = False) -> None:
        self._writer = ReplyWriter()
        self._writer.take()  # the start, which the caller has sent
        self._state = self._call if in_call else self._text
        self._buffer = ""
        self._speech = ""
        """The kind of the open block: `text`, `thinking` or none."""
        self._is_held = is_held
        self._arguments: list[str] = []
        self._name = ""
        self._scanner = _ObjectScanner()
        self._answer = _AnswerScanner()
        self._tail = ""
        self.calls: list[tuple[str, str]] = []
        """Name and arguments, as JSON text, of the complete calls, without the `answer` call."""

    def take(self) -> list[AssistantMessageEvent]:
        return self._writer.take()

    def feed(self, text: str) -> None:
        self._tail = (self._tail + text)[-_LOOP_CHARACTERS:]
        self._buffer += text
        while self._state():
            pass

    @property
    def is_looping(self) -> bool:
        """Whether the model repeats the same few words, as small ones do until they are stopped."""
        tail = self._tail
        is_long = len(tail) >= _LOOP_CHARACTERS
        return is_long and any(tail[period:] == tail[:-period] for period in range(1, _LOOP_PERIOD + 1))

    # -- states: each method returns whether the state changed -----------------------------------------------

    def _text(self) -> bool:
        start, marker = _first(self._buffer, (_THINK_START, CALL_START.strip()))
        if marker:
            self._write("text", self._buffer[:start] if marker == _THINK_START else self._buffer[:start].rstrip("\n"))
            self._close()
            self._buffer = self._buffer[start + len(marker) :]
            self._state = self._thinking if marker == _THINK_START else self._call
            return True
        self._write("text", self._buffer[:start])
        self._buffer = self._buffer[start:]
        return False

    def _thinking(self) -> bool:
        start, marker = _first(self._buffer, (_THINK_END,))
        self._write("thinking", self._buffer[:start])
        if marker:
            self._close()
            self._buffer = self._buffer[start + len(marker) :].lstrip("\n")
            self._state = self._text
            return True
        self._buffer = self._buffer[start:]
        return False

    def _call(self) -> bool:
        """The beginning of a call, up to its arguments."""
        head = self._buffer.lstrip()
        if _NAME_END not in head:
            return False
        name, _, self._buffer = head.removeprefix(_NAME_START).partition(_NAME_END)
        self._name = name
        if name == ANSWER:
            self._answer = _AnswerScanner()
            self._state = self._answering
        else:
            self._scanner, self._arguments = _ObjectScanner(), []
            self._close()
            if not self._is_held:
                self._start_call(len(self.calls), name)
            self._state = self._in_arguments
        return True

    def _in_arguments(self) -> bool:
        end = self._scanner.end_in(self._buffer)
        piece = self._buffer if end is None else self._buffer[:end]
        self._arguments.append(piece)
        self._writer.arguments(len(self.calls), piece)
        if end is None:
            self._buffer = ""
            return False
        self._writer.end_call(len(self.calls))
        self.calls.append((self._name, "".join(self._arguments)))
        self._buffer = self._buffer[end:]
        self._state = self._after_call
        return True

    def _answering(self) -> bool:
        text, used, is_over = self._answer.read(self._buffer)
        self._write("text", text)
        self._buffer = self._buffer[used:]
        if is_over:
            self._close()
            self._state = self._after_call
        return is_over

    def _after_call(self) -> bool:
        """After a call: brackets and tags, and perhaps another call."""
        start, marker = _first(self._buffer, (CALL_START.strip(),))
        self._buffer = self._buffer[start + len(marker) :]
        if marker:
            self._state = self._call
        return bool(marker)

    # -- blocks ----------------------------------------------------------------------------------------------

    def _write(self, kind: str, text: str) -> None:
        text = text if self._speech == kind else text.lstrip("\n")  # the line break before a block is not part of it
        if text:
            self._speech = kind
            write = self._writer.text if kind == "text" else self._writer.thinking
            write(text)

    def _start_call(self, number: int, name: str, arguments: str = "") -> None:
        self._writer.start_call(number, f"call_{uuid4().hex[:24]}", name)
        self._writer.arguments(number, arguments)

    def _close(self) -> None:
        self._writer.end_speech()
        self._speech = ""

    def release(self) -> None:
        """Passes on the calls that were held."""
        for number, (name, arguments) in enumerate(self.calls if self._is_held else ()):
            self._start_call(number, name, arguments)
            self._writer.end_call(number)

    # -- the end ---------------------------------------------------------------------------------------------

    def done(self, usage: Usage, *, is_cut: bool) -> None:
        """Ends the reply. If it was cut at the length limit, an incomplete call stays open."""
        if self._state == self._text or self._state == self._thinking:
            self._write("text" if self._state == self._text else "thinking", self._buffer)
            self._buffer = ""
        if is_cut and self._is_held and self._state == self._in_arguments:
            self._start_call(len(self.calls), self._name, "".join(self._arguments))
        reason = StopReason.LENGTH if is_cut else StopReason.TOOL_USE if self.calls else StopReason.STOP
        self._writer.done(reason, usage)

    def fail(self, message: str, kind: ErrorKind, usage: Usage | None = None) -> None:
        self._writer.fail(message, kind, usage=usage)


def _first(text: str, markers: tuple[str, ...]) -> tuple[int, str]:
    """The position of the first marker, and the marker. If none is found: where one may begin at the end of the text,
    and an empty string."""
    found = [(position, marker) for marker in markers if (position := text.find(marker)) >= 0]
    if found:
        return min(found)
    longest = max(map(len, markers))
    for start in range(max(0, len(text) - longest + 1), len(text)):
        if any(marker.startswith(text[start:]) for marker in markers):
            return start, ""
    return len(text), ""


class _ObjectScanner:
    """Finds the end of a JSON object that arrives in pieces."""

    __slots__ = ("_depth", "_escaped", "_in_string")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def end_in(self, piece: str) -> int | None:
        """The position after the object's end, if it is in this piece."""
        for position, character in enumerate(piece):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                if character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return position + 1
        return None


class _AnswerScanner:
    """Decodes the string of the `answer` call while the model writes it."""

    __slots__ = ("_has_begun",)

    def __init__(self) -> None:
        self._has_begun = False

    def read(self, piece: str) -> tuple[str, int, bool]:
        """Returns the decoded text, how much of the piece was read, and whether the string ended."""
        position = 0
        if not self._has_begun:
            opening = piece.find(': "')
            if opening < 0:
                return "", 0, False
            self._has_begun = True
            position = opening + 3
        match = _STRING_PART.match(piece, position)
        text, end = ("", position) if match is None else (match[0], match.end())
        is_over = piece[end : end + 1] == '"'
        return _ESCAPE.sub(_unescaped, text), end + is_over, is_over


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else _ESCAPES.get(escape[2], escape[2])
