"""Text in files: which encoding and line ends it has, and how it is written back with the same.

Owns the way from bytes to text and back. A file that is no text is `None` here; what to say of it is the tools'
business.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = [
    "NEW_FILE",
    "Decoded",
    "TextFormat",
    "decode_text",
    "encode_text",
    "showable",
    "split_lines",
    "with_newlines",
]

_SAMPLE = 8192
_LONG_SAMPLE = 128 * 1024
_LARGE_SLICE = 1024 * 1024
_SLICE = 128 * 1024
"""What is handled at once where each stray byte costs much: other threads have their turn in between."""
_STRAY = re.compile("[\udc80-\udcff]")
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")
_CONTROLS = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")  # none of those that text is full of
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class TextFormat(NamedTuple):
    """How a file holds its text. `newline` is the line end that most lines have, empty if there is none."""

    encoding: str = "utf-8"
    errors: str = "strict"
    mark: bytes = b""
    newline: str = ""

    @property
    def name(self) -> str:
        """For people: the encoding, where it is not plain UTF-8."""
        if self.errors != "strict":
            return "UTF-8 with stray bytes"
        return {"utf-8": "", "latin-1": "Latin-1"}.get(self.encoding, "UTF-16")


NEW_FILE = TextFormat()


class Decoded(NamedTuple):
    """The text of a file, with the line ends that it has there, and how it is held."""

    text: str
    format: TextFormat


def decode_text(data: bytes) -> Decoded | None:
    """The text that the bytes hold, or `None` if they hold none.

    UTF-8, UTF-16 with its mark, and else Latin-1, unless most of what is beyond ASCII, in the first 128 KB, is UTF-8
    after all: the stray bytes in it then stay what they are when the text is written back.
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
    """The bytes of a text, as the file holds it. Raises `UnicodeEncodeError` for what its encoding does not have."""
    if held.errors == "strict":
        return held.mark + text.encode(held.encoding)
    return held.mark + b"".join([piece.encode(held.encoding, held.errors) for piece in _slices(text)])


def with_newlines(text: str, newline: str) -> str:
    """The text with its line ends changed to those of a file; as it is, where that has none."""
    if not newline:
        return text
    text = text.replace("\r\n", "\n")
    return text if newline == "\n" else text.replace("\n", newline)


def showable(text: str) -> str:
    """The text as a model or a log can carry it: line ends as they write them, stray bytes as U+FFFD."""
    plain = text.replace("\r\n", "\n")
    if plain.isascii() or _STRAY.search(plain) is None:
        return plain
    return "".join([_STRAY.sub("\ufffd", piece) for piece in _slices(plain)])


def split_lines(text: str) -> list[str]:
    """As `text.split("\\n")`, a megabyte at a time."""
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
