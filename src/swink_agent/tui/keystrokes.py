"""What a terminal sends, sorted before it is read as keys: pastes as a whole, and keys that would be taken for others.

Owns four things that a reader of single characters gets wrong or slow: Alt+Enter and Alt+Backspace of terminals
without the kitty protocol (an escape and then the key), Shift+Enter in the form of xterm (`CSI 27;2;13~`), Escape
(alone, told apart after a moment, or with a key right behind it that means nothing with Alt: it still stops a run), and
pastes, which are taken in pieces and bounded. The rest is passed on as it came.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

__all__ = ["LARGEST_PASTE", "Keystrokes", "Pasted", "Piece", "Pressed"]

LARGEST_PASTE = 2_000_000
"""Characters of a paste past which it is refused."""

_PASTE, _END = "\x1b[200~", "\x1b[201~"
_KNOWN = re.compile(r"\x1b(?:(\r|\n|\x7f|\x08|(?=[^\[\]NOPX^_bdf]))|\[200~|\[27;(\d{1,3});(\d{1,7})~)")
"""Passed on with their escape are the beginnings of longer sequences, and b, d and f, which go by words with Alt."""
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;]{0,16})?\Z")
_AFTER_ESCAPE = {"\r": "alt+enter", "\n": "alt+enter", "\x7f": "alt+backspace", "\x08": "alt+backspace", "": "escape"}
_NAMES = {8: "backspace", 9: "tab", 13: "enter", 27: "escape", 32: "space", 127: "backspace"}
_MODIFIERS = ((2, "alt"), (4, "ctrl"), (1, "shift"))


class Pressed(NamedTuple):
    """A key, by the name that it has among ours, and the character it makes if it makes one."""

    key: str
    character: str | None = None


class Pasted(NamedTuple):
    """A paste. One that was too large has no text, and its size."""

    text: str
    refused: int = 0


Piece: TypeAlias = "str | Pressed | Pasted"
"""A piece of input: text to be read character by character, a key, or a paste."""


class Keystrokes:
    """Sorts input, however it is cut into pieces on its way."""

    def __init__(self) -> None:
        self._held = ""
        self._paste: list[str] | None = None
        self._size = 0

    @property
    def is_waiting(self) -> bool:
        """Whether what has come may be the beginning of something: `settle` decides, if nothing follows soon."""
        return bool(self._held) and self._paste is None

    @property
    def is_pasting(self) -> bool:
        """Whether a paste has begun and not ended."""
        return self._paste is not None

    def give_up(self) -> list[Piece]:
        """Ends a paste whose end does not come: what there is of it."""
        return self.feed(_END) if self.is_pasting else []

    def feed(self, text: str) -> list[Piece]:
        """The pieces of this input that are whole."""
        data, self._held = self._held + text, ""
        pieces: list[Piece] = []
        while data:
            data = self._take_paste(data, pieces) if self._paste is not None else self._take_keys(data, pieces)
        return pieces

    def settle(self) -> list[Piece]:
        """What was held, now that nothing followed: Escape, if it stands alone."""
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
            pieces.append(_pressed(found))
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
            self._held = data[len(taken) :]  # its end may have come in part
            return ""
        is_refused = self._size > LARGEST_PASTE
        pieces.append(Pasted("", self._size) if is_refused else Pasted("".join(self._paste).replace("\x00", "")))
        self._paste = None
        return data[end + len(_END) :]


def _add(pieces: list[Piece], text: str) -> None:
    if text:
        pieces.append(text)


def _pressed(found: re.Match[str]) -> Pressed:
    after, modifiers, code = found.groups()
    if after is not None:
        return Pressed(_AFTER_ESCAPE[after], "\x1b" if after == "" else None)
    number, bits = int(code), int(modifiers) - 1
    character = chr(number) if number <= 0x10FFFF and not 0xD800 <= number < 0xE000 else "\ufffd"
    is_written = number not in _NAMES and number > 32
    held = [name for bit, name in _MODIFIERS if bits & bit and not (name == "shift" and is_written and bits == 1)]
    name = _NAMES.get(number) or (character.lower() if is_written else "")
    makes = character if (is_written or number == 32) and bits in (0, 1) else None
    return Pressed("+".join([*held, name]), makes)
