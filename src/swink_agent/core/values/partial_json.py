"""Reads JSON that is still being written: the value of the text so far.

Strings grow as they come. A number or a word such as `true` appears when it is complete, and a property when its value
has begun.
"""

from __future__ import annotations

from typing import Any

import msgspec

_BLANK = frozenset(" \t\r\n")
_OPENERS = {"{": "}", "[": "]"}
_SHORT = 10_000
"""Characters of a text that may be read after each piece."""


class PartialJson:
    """A JSON text that comes in pieces. `feed` looks at each character once.

    To read the value whenever `feed` says that it has grown takes linear time: of a long text, `feed` says so after
    each hundredth, and at the end.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._closers: list[str] = []  # the brackets that close the open objects and lists, the outermost first
        self._has_key: list[bool] = []
        """For each open object or list, whether a value may begin: always in a list, and in an object after a key."""
        self._in_string = False
        self._in_key = False
        self._escape = 0  # how many more characters belong to an escape sequence
        self._is_word = False  # whether a number, `true`, `false` or `null` has begun and not ended
        self._cut = (0, "")  # the length of the text that can be decoded, and the characters that complete it
        self._is_bad = False
        self._told = self._cut  # when `feed` last said that the value has grown

    def feed(self, piece: str) -> bool:
        """Adds a piece; returns whether the value may have grown, by enough to read it again."""
        position = self._length
        self._pieces.append(piece)
        self._length += len(piece)
        for character in piece:
            position += 1
            if self._in_string:
                self._inside_string(character, position)
            else:
                self._between(character, position)
        length = self._cut[0]
        is_whole = not self._closers and not self._in_string
        if self._cut == self._told or not (length <= _SHORT or is_whole or length - self._told[0] >= length // 100):
            return False
        self._told = self._cut
        return True

    def value(self) -> Any:
        """Returns the value so far. Raises `ValueError` if there is none, or the text is not JSON."""
        length, rest = self._cut
        if not length or self._is_bad:
            raise ValueError("no JSON value has begun")
        try:
            return msgspec.json.decode("".join(self._pieces)[:length] + rest)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise ValueError(str(error)) from error

    def _may_end(self, length: int, quote: str = "") -> None:
        self._cut = (length, quote + "".join(reversed(self._closers)))

    def _inside_string(self, character: str, position: int) -> None:
        if self._escape:
            self._escape += 3 if character == "u" else -1
        elif character == "\\":
            self._escape = 1
            return
        elif character == '"':
            self._in_string = False
            if not self._in_key:
                self._may_end(position)
            return
        if not self._escape and not self._in_key:
            self._may_end(position, '"')

    def _between(self, character: str, position: int) -> None:
        if character in _BLANK or character in ",:]}":
            if self._is_word:
                self._is_word = False
                self._may_end(position - 1)
            if character == ":" and self._has_key:
                self._has_key[-1] = True
            elif character == "," and self._has_key:
                self._has_key[-1] = self._closers[-1] == "]"
            elif character in "]}":
                self._close(character, position)
        elif character == '"':
            self._in_string = True
            self._in_key = bool(self._has_key) and not self._has_key[-1]
            if not self._in_key:
                self._may_end(position, '"')
        elif character in _OPENERS:
            self._closers.append(_OPENERS[character])
            self._has_key.append(character == "[")
            self._may_end(position)
        else:
            self._is_word = True

    def _close(self, character: str, position: int) -> None:
        if self._closers and self._closers.pop() == character:
            self._may_end(position)
        else:
            self._is_bad = True
        del self._has_key[len(self._closers) :]
