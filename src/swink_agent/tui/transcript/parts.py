"""Cuts a very long reply into parts, each a separate block, so that only visible parts are laid out after a resize.

Owns where a text may be cut: between two paragraphs; inside code at the end of a line (the next part then begins with
the same fence); and if neither comes for long, at a line or a word. The deltas in which a text arrives do not affect
where it is cut, except inside extremely long lines.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from swink_agent.rendering.block_marks import Fence, fence_of

LONG = 60_000
"""A part with more characters ends at the next paragraph or line of code."""
_TOO_LONG = 2 * LONG
"""A part with more characters ends at any line."""
_SEEN = 200
"""Characters of a line that are searched for a fence."""

Seam: TypeAlias = Literal["", "apart", "joined"]


class Piece(NamedTuple):
    """Text, and whether a new part begins with it: `apart` from the previous one, or `joined` to it without a gap.

    `fence` is the line that opened the code block in which the part begins.
    """

    text: str
    seam: Seam = ""
    fence: str = ""


class Cutter:
    """Cuts one reply as it streams in."""

    def __init__(self) -> None:
        self._size = 0
        self._line = ""
        self._is_at_start = True
        self._is_after_blank = False
        self._fence: Fence | None = None
        self._opened = ""

    def feed(self, text: str) -> list[Piece]:
        """Returns the text in pieces; usually one that begins no new part."""
        pieces: list[Piece] = []
        seam: Seam = ""
        fence = ""
        parts: list[str] = []
        for number, line in enumerate(text.split("\n")):
            if number:
                parts.append("\n")
                self._size += 1
                self._end_line()
            for words in self._words(line):
                if cut := self._seam_before(words):
                    if parts:
                        pieces.append(Piece("".join(parts), seam, fence))
                    seam, fence, parts = cut, self._opened, []
                    self._size = 0
                parts.append(words)
                self._size += len(words)
                if len(self._line) < _SEEN:
                    self._line += words[:_SEEN]
                self._is_at_start = False
        if parts:
            pieces.append(Piece("".join(parts), seam, fence))
        return pieces

    def _words(self, line: str) -> list[str]:
        """Splits a line into pieces that are no longer than a part."""
        if self._size + len(line) <= _TOO_LONG:
            return [line] if line else []
        words: list[str] = []
        while line:
            blank = line.rfind(" ", LONG // 2, LONG)
            end = blank + 1 if blank > 0 and len(line) > LONG else LONG
            words.append(line[:end])
            line = line[end:]
        return words

    def _seam_before(self, words: str) -> Seam:
        if self._size < LONG:
            return ""
        if not self._is_at_start:
            return "joined" if self._size + len(words) > _TOO_LONG + LONG else ""
        if self._fence:
            return "" if words[0] in "`~" or (words[0] == " " and self._size < _TOO_LONG) else "joined"
        if self._is_after_blank and not words[0].isspace():
            return "apart"
        return "joined" if self._size > _TOO_LONG and not words[0].isspace() else ""

    def _end_line(self) -> None:
        line, self._line = self._line, ""
        self._is_at_start = True
        self._is_after_blank = not line.strip()
        if "`" not in line and "~" not in line:
            return
        if self._fence is None:
            self._fence = fence_of(line)
            self._opened = line if self._fence is not None else ""
        elif self._fence.is_closed_by(line.removeprefix(" " * self._fence.indent)):
            self._fence, self._opened = None, ""
