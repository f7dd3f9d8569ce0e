"""Prints a transcript as lines that are written once and never changed.

Owns which lines are final and when they are written: a block when it is finished, the rows of a reply that can no
longer change, a call when it begins and when it ends. The cursor never moves, and a terminal without colours gets none.
`transcript` lays out the lines, as on the full screen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

from swink_agent.rendering.escaping import safe_line

from .terminal_output import own_descriptor, write_patiently
from .themes import Theme, sgr
from .transcript import Block, Line, ReplyBlock, ToolBlock, Transcript, UserBlock, gap_before
from .transcript.messages import HelpBlock

_MOST_COLUMNS = 200
_LEAST_COLUMNS = 20
_MOST_EARLIER = 30
"""Most blocks of an earlier conversation that are written when it is resumed."""
_MOST_TYPED = 20
_RESET = "\x1b[0m"
_PATIENCE = 1.0
"""Seconds without progress after which the program ends anyway."""


def is_dumb(environ: Mapping[str, str]) -> bool:
    """Whether the terminal accepts plain text only."""
    return environ.get("TERM", "") in ("", "dumb")


class LineWriter:
    """Writes rows to a descriptor, in a theme's colours if the terminal has colours."""

    def __init__(self, descriptor: int, theme: Theme, *, is_plain: bool) -> None:
        self._descriptor = own_descriptor(descriptor)
        self.theme = theme
        self._is_plain = is_plain
        self._styles: dict[str, str] = {}
        self._is_ending = False
        self._held: list[str] | None = None
        self.is_lost = False
        """Whether the terminal is gone."""

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
        """Writes one row; the caller has made its text safe."""
        self.write(f"{self._styled(text, role)}\n")

    @contextmanager
    def held(self) -> Generator[None]:
        """Holds the output back while another program has the terminal."""
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
        """Stops waiting for a terminal that does not read. A signal handler may call this."""
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
    """Writes the blocks of a transcript as they finish. Call `draw` when something may have become final."""

    def __init__(self, transcript: Transcript, writer: LineWriter, *, on_write: Callable[[], None]) -> None:
        self._transcript = transcript
        self._writer = writer
        self._on_write = on_write
        self._place = 0
        """The first block that is not completely written."""
        self._rows = 0
        """The number of its rows that are written."""
        self._last: Block | None = None
        self._begun: set[int] = set()
        self._waiting: list[ToolBlock] = []
        """Calls that were written while they waited for an answer."""
        self._typed: list[str] = []

    def expect(self, text: str) -> None:
        """Notes that the user typed this, so that it is not printed again."""
        self._typed = [*self._typed[-_MOST_TYPED:], text.strip()]

    def start_over(self) -> None:
        """Starts again after the view was cleared."""
        self._place = self._rows = 0
        self._last = None
        self._begun.clear()
        self._waiting.clear()

    def skip_earlier(self) -> None:
        """Skips all but the end of a long conversation that was resumed."""
        blocks = self._transcript.blocks
        if not self._place and len(blocks) > _MOST_EARLIER:
            self._place = len(blocks) - _MOST_EARLIER
            while blocks[self._place].is_hidden:  # the row of an earlier block represents it
                self._place -= 1
            if self._place:
                parts = "1 earlier part" if self._place == 1 else f"{self._place:,} earlier parts"
                self._writer.line(f"… {parts} of the conversation", "dim")

    def draw(self) -> None:
        blocks = self._transcript.blocks
        if self._place > len(blocks):
            self.start_over()
        self._write_answered()
        while self._place < len(blocks):
            block = blocks[self._place]
            self._announce(blocks[self._place :])
            if not self._write(block):
                return
            self._last, self._rows = block, 0
            self._place += 1

    def _write_answered(self) -> None:
        """Writes calls again that waited when they were written, and have an answer now."""
        if not self._waiting:
            return
        self._announce(self._waiting)
        for block in [block for block in self._waiting if block.is_finished and not block.is_pending]:
            self._waiting.remove(block)
            self._put(block.lines(self._writer.width))

    def _announce(self, blocks: Sequence[Block]) -> None:
        """Writes a row for each call that has begun, for screen readers and logs."""
        for block in blocks:
            if isinstance(block, ToolBlock) and block.status == "running" and id(block) not in self._begun:
                self._begun.add(id(block))
                summary = safe_line(block.summary, self._writer.width)
                self._put([], f"▸ {safe_line(block.name, 60)} {summary} …".replace("  ", " "))

    def asked_about(self, call_id: str) -> None:
        """Notes that a question has shown this call, so that it is not announced again when it begins."""
        for block in (*self._transcript.blocks[self._place :], *self._waiting):
            if isinstance(block, ToolBlock) and block.call_id == call_id:
                self._begun.add(id(block))

    def _write(self, block: Block) -> bool:
        """Writes the final rows of a block; returns whether the block is complete."""
        if isinstance(block, UserBlock) and self._is_known(block):
            return True
        if isinstance(block, ToolBlock) and not block.is_finished:
            return False
        if isinstance(block, ToolBlock) and block.is_pending:
            self._waiting.append(block)
        width = self._writer.width
        if isinstance(block, HelpBlock):
            width = min(width, block.WIDEST_COLUMN)  # a screen reader reads across columns
        rows = block.lines(width)
        is_whole = not isinstance(block, ReplyBlock) or block.is_finished
        if isinstance(block, ReplyBlock):
            rows = block.final_lines
        end = len(rows)
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
