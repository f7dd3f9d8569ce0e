"""A command's output as text for a model and for people.

Keeps a bounded part of an output and cleans it: removes colours and other escape sequences, and shows an overwritten
line as it was at the end. Running the command is in `shell`.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

from swink_agent.core.output import GAP

from ._bounded import OUTPUT_LIMIT, Bounded, bound_text

if TYPE_CHECKING:
    from swink_agent.core.secrets.redaction import Redactor

_KEPT = 4 * OUTPUT_LIMIT  # bytes kept of each end: more than is shown, as cleaning shortens a text
_LONGEST_UPDATE = 8 * 1024
_LONGEST_SEQUENCE = 256
_HINT = "to see them, send the output to a file and read parts of it"

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links
    r"|\x1b[PX^_][^\x1b\n]*(?:\x1b\\)?"  # strings for devices
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)
_OVERSTRUCK = re.compile(r"[^\n\x08]\x08")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_UNFINISHED = re.compile(
    r"(?:\x1b\[[0-?]*[ -/]*|\x1b\][^\x07\x1b\n]*\x1b?|\x1b[PX^_][^\x1b\n]*\x1b?|\x1b[ -/]*|\x9b[0-?]*[ -/]*|\r)\Z"
)


def clean(text: str) -> str:
    """The text without escape sequences and control characters, each line as it was at the end."""
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if "\x08" in text:
        text = _OVERSTRUCK.sub("", text)
    if "\r" in text:
        text = "\n".join([line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")])
    return _CONTROLS.sub("", text)


class Output:
    """The output of a command in constant memory: both ends, and the number of bytes."""

    def __init__(self) -> None:
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = _KEPT - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * _KEPT:
                del self._tail[:-_KEPT]

    def text(self, limit: int = OUTPUT_LIMIT, redactor: Redactor | None = None) -> Bounded:
        """The output, cleaned and masked, in at most `limit` bytes with a note on what is missing in the middle."""
        missing = self.total - len(self._head) - len(self._tail)
        if not missing:
            text = _masked(clean((self._head + self._tail).decode("utf-8", "replace")), redactor)
            return bound_text(text, limit, hint=_HINT)
        note = f"\n[… {missing:,} bytes and more left out; {_HINT} …]\n"
        half = (limit - len(note.encode())) // 2
        start = clean(self._head[: _last_line(self._head)].decode("utf-8", "replace"))
        end = clean(self._tail[_first_line(self._tail) :].decode("utf-8", "replace"))
        if redactor is not None and redactor.enabled:
            # If the missing part begins or ends inside a secret, the visible half is not shown either.
            start, end = start[: redactor.safe_length(start)], redactor.after_a_cut(end)
        head, tail = _masked(start, redactor).encode(), _masked(end, redactor).encode()
        head = head[: _last_line(head[:half])] if len(head) > half else head
        tail = tail[-half:][_first_line(tail[-half:]) :] if len(tail) > half else tail
        text = head.decode("utf-8", "ignore").removesuffix("\n") + note + tail.decode("utf-8", "ignore")
        return Bounded(text, self.total - len(head) - len(tail))


def _masked(text: str, redactor: Redactor | None) -> str:
    return text if redactor is None else redactor.redact(text)


def _last_line(data: bytes | bytearray) -> int:
    """Where the last whole line ends; the end of the data if no line ends in its second half."""
    newline = data.rfind(b"\n", len(data) // 2)
    return newline + 1 if newline >= 0 else len(data)


def _first_line(data: bytes | bytearray) -> int:
    """Where the first whole line begins; the first whole character if no line ends in the first half."""
    newline = data.find(b"\n", 0, len(data) // 2)
    if newline >= 0:
        return newline + 1
    position = 0
    while position < min(3, len(data)) and 0x80 <= data[position] < 0xC0:  # the rest of a character that was cut
        position += 1
    return position


class LiveText:
    """The output in updates: each has the text since the last one, never half a character or sequence.

    At most twice `longest` bytes wait for an update; `longest` is 8 KiB by default. If more arrive, the oldest are left
    out, and the update begins with a mark. `left_out` counts the bytes that were in no update.
    """

    def __init__(self, longest: int = _LONGEST_UPDATE) -> None:
        self.left_out = 0
        self._longest = longest
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = bytearray()
        self._held = ""
        self._is_cut = False

    def add(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) > 2 * self._longest:
            self._leave_out(len(self._waiting) - self._longest)
            self._is_cut = True

    def _leave_out(self, count: int) -> None:
        self.left_out += count
        del self._waiting[:count]

    def take(self, *, is_last: bool = False) -> str:
        """The new text; empty if there is nothing to show yet."""
        mark = ""
        if self._is_cut:
            mark, self._is_cut, self._held = GAP, False, ""
            self._decoder.reset()
            self._leave_out(_first_line(self._waiting))
        text = self._held + self._decoder.decode(bytes(self._waiting), is_last)
        self._waiting.clear()
        self._held = ""
        if not is_last:
            unfinished = _UNFINISHED.search(text, max(0, len(text) - _LONGEST_SEQUENCE))
            if unfinished is not None:
                text, self._held = text[: unfinished.start()], text[unfinished.start() :]
        # An overwritten line that began in an earlier update begins again: text that was shown stays.
        starts_over = text.startswith("\r") and not text.startswith("\r\n")
        return mark + ("\n" if starts_over else "") + clean(text)
