"""Text in files: its encoding and line ends, and how it is written back with the same.

Converts bytes to text and back. A file that is not text is `None` here; the tools report it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

_SAMPLE = 8192
_LONG_SAMPLE = 128 * 1024
_LARGE_SLICE = 1024 * 1024
_SLICE = 128 * 1024
"""Bytes handled at once where each stray byte costs much, so that other threads can run in between."""
_STRAY = re.compile("[\udc80-\udcff]")
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")
_CONTROLS = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")  # without those that are common in text
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class TextFormat(NamedTuple):
    """How a file stores its text. `newline` is the most common line end, empty if there is none."""

    encoding: str = "utf-8"
    errors: str = "strict"
    mark: bytes = b""
    newline: str = ""

    @property
    def name(self) -> str:
        """The encoding for people, if it is not plain UTF-8."""
        if self.errors != "strict":
            return "UTF-8 with stray bytes"
        return {"utf-8": "", "latin-1": "Latin-1"}.get(self.encoding, "UTF-16")


NEW_FILE = TextFormat()


class Decoded(NamedTuple):
    """The text of a file, with its line ends, and how it is stored."""

    text: str
    format: TextFormat


def decode_text(data: bytes) -> Decoded | None:
    """The text in the bytes, or `None` if they are not text.

    Reads UTF-8, UTF-16 with its mark, else Latin-1. If at least half of the characters beyond ASCII in the first 128 KB
    are valid UTF-8, it reads UTF-8, and the stray bytes are kept when the text is written back.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                text = data[len(mark) :].decode(encoding)
            except UnicodeDecodeError:
                break
            return None if "\0" in text else _decoded(text, encoding, "strict", mark)
    if b"\0" in data:
        return None
    try:
        return _decoded(data.decode(), "utf-8", "strict")
    except UnicodeDecodeError:
        pass
    sample = data[:_SAMPLE]
    if len(_CONTROLS.findall(sample)) * 50 > len(sample):
        return None
    beginning = data[:_LONG_SAMPLE].decode("utf-8", "surrogateescape")
    stray = len(_STRAY.findall(beginning))
    if stray * 2 <= len(_BEYOND_ASCII.findall(beginning)):
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        pieces = [decoder.decode(data[start : start + _SLICE]) for start in range(0, len(data), _SLICE)]
        return _decoded("".join([*pieces, decoder.decode(b"", True)]), "utf-8", "surrogateescape")
    return _decoded(data.decode("latin-1"), "latin-1", "strict")


def encode_text(text: str, held: TextFormat) -> bytes:
    """The bytes of a text, as the file stores it. Raises `UnicodeEncodeError` for characters that its encoding
    lacks."""
    if held.errors == "strict":
        return held.mark + text.encode(held.encoding)
    return held.mark + b"".join([piece.encode(held.encoding, held.errors) for piece in _slices(text)])


def with_newlines(text: str, newline: str) -> str:
    """The text with the line ends of a file; unchanged if the file has none."""
    if not newline:
        return text
    text = text.replace("\r\n", "\n")
    return text if newline == "\n" else text.replace("\n", newline)


def showable(text: str) -> str:
    """The text for a model or a log: `\\n` as line ends, stray bytes as U+FFFD."""
    plain = text.replace("\r\n", "\n")
    if plain.isascii() or _STRAY.search(plain) is None:
        return plain
    return "".join([_STRAY.sub("\ufffd", piece) for piece in _slices(plain)])


def split_lines(text: str) -> list[str]:
    """Like `text.split("\\n")`, one megabyte at a time."""
    lines: list[str] = []
    start = 0
    while (end := text.find("\n", start + _LARGE_SLICE)) >= 0:
        lines += text[start:end].split("\n")
        start = end + 1
    return [*lines, *text[start:].split("\n")] if lines else text.split("\n")


def _slices(text: str) -> Iterator[str]:
    return (text[start : start + _SLICE] for start in range(0, len(text), _SLICE))


def _decoded(text: str, encoding: str, errors: str, mark: bytes = b"") -> Decoded:
    pairs = text.count("\r\n")
    singles = text.count("\n") - pairs
    newline = "\r\n" if pairs > singles else "\n" if singles else ""
    return Decoded(text, TextFormat(encoding, errors, mark, newline))
