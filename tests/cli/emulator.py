"""A small terminal emulator: what a person sees after all the writing, wrapping and erasing.

It supports only what the program may use (line ends, colours, going up, erasing to the end): any other control
character or sequence fails the test. `narrow` draws joined emoji and flags as newer terminals do, in two cells;
otherwise each part takes its own.
"""

from __future__ import annotations

import re
import unicodedata

_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r|\n)|([^\x1b\r\n])", re.DOTALL)


class Emulator:
    """A window of so many columns. Lines that have left at the top are kept."""

    def __init__(self, columns: int, *, narrow: bool = False) -> None:
        self.columns = columns
        self._narrow = narrow
        self._rows: list[list[str]] = [[]]
        self._wrapped: list[bool] = [False]
        self._row = self._column = 0
        self._is_joined = False

    def feed(self, text: str) -> None:
        place = 0
        while place < len(text):
            token = _TOKEN.match(text, place)
            assert token is not None, f"a control sequence that nothing of ours has: {text[place : place + 20]!r}"
            place = token.end()
            numbers, letter, end, character = token.groups()
            self._is_joined = self._is_joined and character is not None  # nothing is joined over a line end
            if letter is not None:
                self._obey(numbers, letter)
            elif end == "\r":
                self._column = 0
            elif end == "\n":
                self._go_down(was_wrapped=False)
                self._column = 0
            else:
                self._put(character)

    def _obey(self, numbers: str, letter: str) -> None:
        match letter:
            case "m":
                pass
            case "K" | "J":
                self._rows[self._row] = self._rows[self._row][: self._column]
                if letter == "J":
                    del self._rows[self._row + 1 :], self._wrapped[self._row + 1 :]
            case "A":
                self._row = max(0, self._row - int(numbers or 1))
            case _:
                raise AssertionError(f"a sequence that nothing of ours has: {numbers}{letter}")

    def _go_down(self, *, was_wrapped: bool) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])
            self._wrapped.append(was_wrapped)
        else:
            self._wrapped[self._row] = was_wrapped

    def _put(self, character: str) -> None:
        assert character == "\t" or character >= " ", f"a control character: {character!r}"
        assert not "\x7f" <= character < "\xa0", f"a control character: {character!r}"
        assert character not in "\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
        if character == "\t":
            for _ in range(min(8 - self._column % 8, self.columns - 1 - self._column)):
                self._put(" ")
            return
        width = self._width(character)
        if width == 0:
            if self._column:
                self._rows[self._row][self._column - 1] += character
            return
        if self._column + width > self.columns:
            self._go_down(was_wrapped=True)
            self._column = 0
        row = self._rows[self._row]
        row += [" "] * (self._column - len(row))
        row[self._column : self._column + width] = [character, *[""] * (width - 1)]
        self._column += width

    def _width(self, character: str) -> int:
        joined, self._is_joined = self._is_joined, character == "\u200d"
        if unicodedata.category(character) in ("Mn", "Me", "Cf"):
            return 0
        if self._narrow and (joined or 0x1F3FB <= ord(character) <= 0x1F3FF):
            return 0
        is_wide = unicodedata.east_asian_width(character) in "WF" or 0x1F1E6 <= ord(character) <= 0x1F1FF
        return 2 if is_wide or 0x1F300 <= ord(character) <= 0x1FAFF else 1

    @property
    def rows(self) -> list[str]:
        """What stands in each row, from the first one on."""
        return ["".join(row).rstrip() for row in self._rows]

    @property
    def wrapped(self) -> list[str]:
        """The rows that the terminal began by itself, because a line was too wide."""
        return [row for row, was_wrapped in zip(self.rows, self._wrapped, strict=True) if was_wrapped]
