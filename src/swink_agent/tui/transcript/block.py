"""What a transcript is made of: blocks that change, tell of it, and are drawn as lines.

Owns the base of every block and the list that holds them. Nothing here draws: a block makes lines of a width when it
is asked to, keeps them until it changes, and gives them up when whoever draws says that they are not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .line import Line

__all__ = ["Block", "Transcript", "gap_before"]


class Block:
    """A part of the conversation. Every change counts `version` up and tells the transcript that the block is in."""

    is_compact = False
    """Whether it may stand right beneath another that is compact as well."""
    is_joined = False
    """Whether it goes on right beneath the one before, as a part of it."""
    is_selectable = False
    """Whether it can be selected and opened by key, as tool calls can."""

    def __init__(self) -> None:
        self.version = 0
        self.first_change = 0
        """From which line on the last `lines` differ from those before; 0 when nothing is known."""
        self._listener: Callable[[Block], None] | None = None
        self._lines: Sequence[Line] = ()
        self._drawn: tuple[int, int] | None = None
        self._restore: Callable[[], None] | None = None

    # -- what a front end asks -------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """All that it says, as plain text: what is searched and copied."""
        self._restored()
        return self._plain()

    def lines(self, width: int) -> Sequence[Line]:
        """The block as rows of at most so many cells; kept for this width until it changes."""
        self._restored()
        now = (width, self.version)
        if self._drawn != now:
            self.first_change = 0
            self._lines = self._draw(width)
            self._drawn = now
        return self._lines

    def drawn_lines(self, width: int) -> Sequence[Line]:
        """The lines as they were last drawn at this width, whatever has changed since; drawn now if they never were."""
        return self._lines if self._drawn is not None and self._drawn[0] == width else self.lines(width)

    def estimated_height(self, width: int) -> int:
        """About how many rows it takes, without drawing it."""
        return 1

    def forget(self) -> None:
        """Gives the drawn lines up; they are made again when asked for."""
        self._lines, self._drawn = (), None

    def open(self) -> bool:
        """Shows what is folded; says whether something was."""
        return False

    def toggle(self, row: int = 0) -> bool:
        """Opens or folds it, by hand, at a row of its lines; says whether there was something to fold."""
        return False

    # -- what a block does -----------------------------------------------------------------------------------------

    def _plain(self) -> str:
        return ""

    def _draw(self, width: int) -> Sequence[Line]:
        raise NotImplementedError

    def _changed(self) -> None:
        self.version += 1
        if self._listener is not None:
            self._listener(self)

    def restore_with(self, fill: Callable[[], None]) -> None:
        """Has the content filled in when it is first needed: what is never looked at costs nothing."""
        self._restore = fill

    def _restored(self) -> None:
        fill, self._restore = self._restore, None
        if fill is not None:
            listener, self._listener = self._listener, None
            fill()
            self._listener = listener


class Transcript:
    """The blocks from the oldest to the newest, and the one listener that is told when they change."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._callback: Callable[[Block | None], None] | None = None

    @property
    def blocks(self) -> Sequence[Block]:
        """The blocks, live: to be looked at, not to be changed."""
        return self._blocks

    def add(self, block: Block) -> None:
        """Puts a block at the end."""
        block._listener = self._tell  # pyright: ignore[reportPrivateUsage]
        self._blocks.append(block)
        self._tell(None)

    def extend(self, blocks: Sequence[Block]) -> None:
        """Puts many blocks at the end, and tells of it once."""
        for block in blocks:
            block._listener = self._tell  # pyright: ignore[reportPrivateUsage]
        self._blocks.extend(blocks)
        self._tell(None)

    def clear(self) -> None:
        """Forgets the blocks; those that still change tell nobody."""
        for block in self._blocks:
            block._listener = None  # pyright: ignore[reportPrivateUsage]
        self._blocks.clear()
        self._tell(None)

    def on_change(self, callback: Callable[[Block | None], None]) -> None:
        """Calls back with the block that changed, or with `None` when blocks came or went. One listener at a time."""
        self._callback = callback

    def _tell(self, block: Block | None) -> None:
        if self._callback is not None:
            self._callback(block)


def gap_before(block: Block, previous: Block | None) -> int:
    """Empty rows between two blocks: none between tool calls of one line each."""
    if previous is None or block.is_joined:
        return 0
    return 0 if block.is_compact and previous.is_compact else 1
