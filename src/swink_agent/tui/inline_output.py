"""A transcript as lines that are written once, one after the other, and never taken back.

Owns which lines are final and when they are written: a block when it is finished, a reply as far as its rows stay what
they are, a call when it begins and when it has ended. No cursor is moved, nothing moves, and where the terminal knows
no colours none are written. What the lines look like is in `transcript`, as on the full screen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

from swink_agent.rendering.escaping import safe_line

from .patience import own_descriptor, write_patiently
from .themes import Theme, sgr
from .transcript import Block, Line, ReplyBlock, ToolBlock, Transcript, UserBlock, gap_before

__all__ = ["LineWriter", "TranscriptPrinter", "is_dumb"]

_MOST_COLUMNS = 200
_LEAST_COLUMNS = 20
_MOST_EARLIER = 30
"""Blocks of an earlier conversation that are written when it goes on."""
_MOST_TYPED = 20
_RESET = "\x1b[0m"
_PATIENCE = 1.0
"""Seconds that a terminal may take nothing before it is left, once the program ends."""


def is_dumb(environ: Mapping[str, str]) -> bool:
    """Whether the terminal is one that nothing but text should be sent to."""
    return environ.get("TERM", "") in ("", "dumb")


class LineWriter:
    """Rows onto a descriptor, in the colours of a theme where there are any."""

    def __init__(self, descriptor: int, theme: Theme, *, is_plain: bool) -> None:
        self._descriptor = own_descriptor(descriptor)
        self.theme = theme
        self._is_plain = is_plain
        self._styles: dict[str, str] = {}
        self._is_ending = False
        self._held: list[str] | None = None
        self.is_lost = False
        """Whether nobody can read it any more."""

    @property
    def width(self) -> int:
        try:
            columns = os.get_terminal_size(self._descriptor).columns or 80
        except OSError:
            columns = 80
        # The last column is left free: some terminals break the row after it, others do not.
        return max(min(columns - 1, _MOST_COLUMNS), _LEAST_COLUMNS)

    def set_theme(self, theme: Theme) -> None:
        self.theme = theme
        self._styles.clear()

    def lines(self, lines: Sequence[Line]) -> None:
        """Writes rows, without the blanks at their ends."""
        self.write("".join([f"{self._row(line)}\n" for line in lines]))

    def line(self, text: str = "", role: str = "text") -> None:
        """Writes one row of our own; what it quotes was made safe."""
        self.write(f"{self._styled(text, role)}\n")

    @contextmanager
    def held(self) -> Generator[None]:
        """Writes nothing while it lasts, and all of it then: another program has the terminal."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            self.write("".join(held))

    def write(self, text: str) -> None:
        if self._held is not None:
            self._held.append(text)
            return
        if not self.is_lost and not write_patiently(self._descriptor, text, is_over=self._is_over):
            self.is_lost = True

    def end_soon(self) -> None:
        """A terminal that takes nothing is not waited for any more. May be called by a handler of a signal."""
        self._is_ending = True

    def _is_over(self, seconds: float) -> bool:
        return self._is_ending and seconds > _PATIENCE

    def _row(self, line: Line) -> str:
        spans = list(line.spans)
        while spans and not spans[-1].text.strip():
            spans.pop()
        if spans:
            spans[-1] = spans[-1]._replace(text=spans[-1].text.rstrip())
        return "".join([self._styled(span.text, span.role) for span in spans])

    def _styled(self, text: str, role: str) -> str:
        if self._is_plain or not text:
            return text
        style = self._styles.get(role)
        if style is None:
            style = self._styles[role] = sgr(self.theme.style_of(role))
        return f"{style}{text}{_RESET}" if style else text


class TranscriptPrinter:
    """Writes the blocks of a transcript as they come to their end. `draw` is called when something may be final."""

    def __init__(self, transcript: Transcript, writer: LineWriter, *, on_write: Callable[[], None]) -> None:
        self._transcript = transcript
        self._writer = writer
        self._on_write = on_write
        self._place = 0
        """The first block that is not written to its end."""
        self._rows = 0
        """How many rows of it are."""
        self._last: Block | None = None
        self._begun: set[int] = set()
        self._typed: list[str] = []

    def expect(self, text: str) -> None:
        """Says that the person typed this: the terminal shows it already."""
        self._typed = [*self._typed[-_MOST_TYPED:], text.strip()]

    def start_over(self) -> None:
        """The view was cleared: what comes now is new."""
        self._place = self._rows = 0
        self._last = None
        self._begun.clear()

    def skip_earlier(self) -> None:
        """Of a long conversation that goes on, only the end is written."""
        blocks = self._transcript.blocks
        if not self._place and len(blocks) > _MOST_EARLIER:
            self._writer.line(f"… {len(blocks) - _MOST_EARLIER:,} earlier parts of the conversation", "dim")
            self._place = len(blocks) - _MOST_EARLIER

    def draw(self) -> None:
        """Writes what is final by now."""
        blocks = self._transcript.blocks
        if self._place > len(blocks):
            self.start_over()
        while self._place < len(blocks):
            block = blocks[self._place]
            self._announce(blocks[self._place :])
            if not self._write(block):
                return
            self._last, self._rows = block, 0
            self._place += 1

    def _announce(self, blocks: Sequence[Block]) -> None:
        """A row for each call that has begun: a screen reader says it, and a log knows what was going on."""
        for block in blocks:
            if isinstance(block, ToolBlock) and block.status in ("running", "asking") and id(block) not in self._begun:
                self._begun.add(id(block))
                if block.status == "running":
                    summary = safe_line(block.summary, self._writer.width)
                    self._put([], f"▸ {safe_line(block.name, 60)} {summary} …".replace("  ", " "))

    def _write(self, block: Block) -> bool:
        """Writes what is final of a block; says whether that is all of it."""
        if isinstance(block, UserBlock) and self._is_known(block):
            return True
        if isinstance(block, ToolBlock) and not block.is_finished:
            return False
        rows = block.lines(self._writer.width)
        is_whole = not isinstance(block, ReplyBlock) or block.is_finished
        end = min(block.final_rows, len(rows)) if isinstance(block, ReplyBlock) else len(rows)
        if end > self._rows:
            gap = gap_before(block, self._last) if not self._rows else 0
            self._put([*[Line(())] * gap, *rows[self._rows : end]])
            self._rows = end
        return is_whole

    def _is_known(self, block: UserBlock) -> bool:
        text = block.text.strip()
        if not block.label and text in self._typed:
            self._typed.remove(text)
            return True
        return False

    def _put(self, lines: Sequence[Line], text: str = "") -> None:
        self._on_write()
        if text:
            self._writer.line(text, "dim")
        if lines:
            self._writer.lines(lines)
