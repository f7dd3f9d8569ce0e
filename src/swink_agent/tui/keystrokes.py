"""Sorts the input from a terminal before it is read as keys.

Handles five cases that Textual's parser reads wrongly or slowly: Alt+Enter and Alt+Backspace of terminals without the
kitty protocol (an escape, then the key); Shift+Enter in xterm's form (`CSI 27;2;13~`); Escape alone, or followed at
once by a key that has no meaning with Alt; pastes, which are collected and bounded; and the terminal's answer to the
question for its background colour. Everything else passes through unchanged.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

LARGEST_PASTE = 2_000_000
"""Most characters of a paste; longer pastes are refused."""

_PASTE, _END = "\x1b[200~", "\x1b[201~"
_KNOWN = re.compile(
    r"\x1b(?:(\r|\n|\x7f|\x08|(?=[^\[\]NOPX^_bdf]))|\[200~|\[27;(\d{1,3});(\d{1,7})~"
    r"|\]11;([^\x07\x1b]{0,64})(?:\x07|\x1b\\))"
)
"""Beginnings of longer sequences keep their escape, and so do b, d and f: with Alt they move or delete by words."""
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;]{0,16}|\](?:1(?:1(?:;[^\x07\x1b]{0,64}\x1b?)?)?)?)?\Z")
_ANSWER = "\x1b]11;"
"""Text that begins with this is never a key, even if the rest is late."""
_AFTER_ESCAPE = {"\r": "alt+enter", "\n": "alt+enter", "\x7f": "alt+backspace", "\x08": "alt+backspace", "": "escape"}
_NAMES = {8: "backspace", 9: "tab", 13: "enter", 27: "escape", 32: "space", 127: "backspace"}
_MODIFIERS = ((2, "alt"), (4, "ctrl"), (1, "shift"))


class Pressed(NamedTuple):
    """A key: its name, and the character that it types, if any."""

    key: str
    character: str | None = None


class Pasted(NamedTuple):
    """A paste. If it is too large, `text` is "" and `refused` is its number of characters."""

    text: str
    refused: int = 0


class Background(NamedTuple):
    """The background colour that the terminal reports: `rgb:ffff/ffff/ffff`."""

    colour: str


Piece: TypeAlias = "str | Pressed | Pasted | Background"
"""A piece of input: text for Textual's parser, a key, a paste, or the terminal's background colour."""


class Keystrokes:
    """Sorts input, which may arrive cut at any place."""

    def __init__(self) -> None:
        self._held = ""
        self._paste: list[str] | None = None
        self._size = 0

    @property
    def is_waiting(self) -> bool:
        """Whether an unfinished sequence is held; `settle` decides what it is if nothing follows soon."""
        return bool(self._held) and self._paste is None and not self._held.startswith(_ANSWER)

    @property
    def is_pasting(self) -> bool:
        """Whether a paste has begun and not ended."""
        return self._paste is not None

    def give_up(self) -> list[Piece]:
        """Ends a paste whose end was lost; returns the text that arrived."""
        return self.feed(_END) if self.is_pasting else []

    def feed(self, text: str) -> list[Piece]:
        """Returns the complete pieces of the input so far."""
        data, self._held = self._held + text, ""
        pieces: list[Piece] = []
        while data:
            data = self._take_paste(data, pieces) if self._paste is not None else self._take_keys(data, pieces)
        return pieces

    def settle(self) -> list[Piece]:
        """Returns the held input, once nothing has followed: an escape alone is the Escape key."""
        if self._held.startswith(_ANSWER):
            return []
        held, self._held = self._held, ""
        if held in ("\x1b", "\x1b["):
            return [Pressed("escape", "\x1b"), *([] if held == "\x1b" else ["["])]
        return [held] if held else []

    def _take_keys(self, data: str, pieces: list[Piece]) -> str:
        at = 0
        while found := _KNOWN.search(data, at):
            _add(pieces, data[at : found.start()])
            at = found.end()
            if found.group() == _PASTE:
                self._paste, self._size = [], 0
                return data[at:]
            pieces.append(_pressed(found) if found.group(4) is None else Background(found.group(4)))
        rest = _UNFINISHED.search(data, at)
        end = len(data) if rest is None else rest.start()
        _add(pieces, data[at:end])
        self._held = data[end:]
        return ""

    def _take_paste(self, data: str, pieces: list[Piece]) -> str:
        assert self._paste is not None
        end = data.find(_END)
        taken = data[: end if end >= 0 else max(len(data) - len(_END) + 1, 0)]
        self._size += len(taken)
        if self._size <= LARGEST_PASTE:
            self._paste.append(taken)
        else:
            self._paste.clear()
        if end < 0:
            self._held = data[len(taken) :]  # may be the first part of the end mark
            return ""
        is_refused = self._size > LARGEST_PASTE
        pieces.append(Pasted("", self._size) if is_refused else Pasted("".join(self._paste).replace("\x00", "")))
        self._paste = None
        return data[end + len(_END) :]


def _add(pieces: list[Piece], text: str) -> None:
    if text:
        pieces.append(text)


def _pressed(found: re.Match[str]) -> Pressed:
    after, modifiers, code, _ = found.groups()
    if after is not None:
        return Pressed(_AFTER_ESCAPE[after], "\x1b" if after == "" else None)
    number, bits = int(code), int(modifiers) - 1
    character = chr(number) if number <= 0x10FFFF and not 0xD800 <= number < 0xE000 else "\ufffd"
    is_written = number not in _NAMES and number > 32
    held = [name for bit, name in _MODIFIERS if bits & bit and not (name == "shift" and is_written and bits == 1)]
    name = _NAMES.get(number) or (character.lower() if is_written else "")
    makes = character if (is_written or number == 32) and bits in (0, 1) else None
    return Pressed("+".join([*held, name]), makes)
