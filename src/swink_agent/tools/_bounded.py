"""Cuts text to a limit: between characters, at line ends where possible, with a note on what is missing.

Has the limit for every tool's output, and shows names of files. The caller decides which part of a file or an output
matters.
"""

from __future__ import annotations

import unicodedata
from typing import Literal, NamedTuple

OUTPUT_LIMIT = 100 * 1024  # the most bytes of UTF-8 that a tool returns to a model in one result, including notes

_CONTINUATION = range(0x80, 0xC0)
_UNSHOWN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"})


class Bounded(NamedTuple):
    """A text within its limit, and how many bytes of it were left out."""

    text: str
    left_out: int = 0

    @property
    def is_cut(self) -> bool:
        return self.left_out > 0


def bound_text(
    text: str | bytes, limit: int = OUTPUT_LIMIT, *, keep: Literal["ends", "head"] = "ends", hint: str = ""
) -> Bounded:
    """The text in at most `limit` bytes of UTF-8, including the note on what was left out.

    `keep="ends"` keeps the beginning and the end, which matter most in a command's output; `keep="head"` keeps only the
    beginning. `hint`, how to see the rest, is added to the note. Bytes are decoded as UTF-8, invalid ones become
    U+FFFD. If the limit is too small for a note, only the beginning is returned.
    """
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text.decode("utf-8", "replace").encode()
    if len(data) <= limit:
        return Bounded(data.decode())
    room = limit - len(_note(len(data), data.count(b"\n"), hint).encode())
    if room < 16:
        head = data[: cut_bytes(data, max(limit, 0))]
        return Bounded(head.decode(), len(data) - len(head))
    first = _line_end(data, room if keep == "head" else room // 2)
    last = len(data) if keep == "head" else _line_start(data, len(data) - (room - first))
    note = _note(last - first, data.count(b"\n", first, last), hint)[data[first - 1 : first] == b"\n" :]
    return Bounded(data[:first].decode() + note + data[last:].decode(), last - first)


def cut_bytes(data: bytes, end: int) -> int:
    """The last position at or before `end` that is between two characters of UTF-8."""
    if end >= len(data):
        return len(data)
    while end > 0 and data[end] in _CONTINUATION:
        end -= 1
    return end


def show_name(name: str) -> str:
    """A file's name on one line. Control, bidirectional and other invisible characters are escaped."""
    if name.isascii() and name.isprintable():
        return name
    return "".join([escaped(char) if unicodedata.category(char) in _UNSHOWN else char for char in name])


def show_size(size: int) -> str:
    """A number of bytes for people: `812 bytes`, `3.4 KB`, `5.0 GB`."""
    if size < 1000:
        return f"{size} byte{'s' * (size != 1)}"
    value = float(size)
    for unit in ("KB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} PB"


def escaped(char: str) -> str:
    """Python's escape of an invisible character."""
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("ascii", "backslashreplace").decode() if code > 0x7F else repr(char)[1:-1]


def _line_end(data: bytes, end: int) -> int:
    """Where to cut the beginning: after a line that ends in its second half, else between characters."""
    newline = data.rfind(b"\n", end // 2, end)
    return newline + 1 if newline >= 0 else cut_bytes(data, end)


def _line_start(data: bytes, start: int) -> int:
    """Where the kept end begins: at a line that starts in its first half, else between characters."""
    newline = data.find(b"\n", start - 1, start + (len(data) - start) // 2)
    if newline >= 0:
        return newline + 1
    while start < len(data) and data[start] in _CONTINUATION:
        start += 1
    return start


def _note(left_out: int, lines: int, hint: str) -> str:
    # The note never gets longer when the numbers shrink, so space is reserved for the largest ones.
    size = f"{left_out:,} bytes" + (f", {lines:,} lines" if lines > 1 else "")
    return f"\n[… {size} left out{f'; {hint}' if hint else ''} …]\n"
