"""The base class of all blocks, and the transcript that holds them.

A block reports its changes to the transcript. It makes its lines for a width on request, caches them until it changes,
and drops them when the view calls `forget`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .line import Line


class Block:
    """A part of the conversation. Every change increments `version` and notifies the transcript."""

    is_compact = False
    """Whether no gap is needed between this block and another compact one."""
    is_joined = False
    """Whether the block continues the previous one without a gap."""
    is_selectable = False
    """Whether the user can select and open the block, like a tool call."""

    is_behind = False
    """Whether the block has text that the last `lines` did not lay out."""
    is_finished = False
    """Whether no more text is expected."""

    @property
    def is_hidden(self) -> bool:
        """Whether the block draws nothing because the row of a block above represents it too."""
        return False

    @property
    def opens_by_key(self) -> bool:
        """Whether a key can select and open the block: a tool call, or a reply with a thought."""
        return self.is_selectable

    def __init__(self) -> None:
        self.version = 0
        self.first_change = 0
        """The first line in which the last `lines` differ from those before; 0 if unknown."""
        self.before: Block | None = None
        self.after: Block | None = None
        """`before` and `after` are the neighbours in the transcript."""
        self._listener: Callable[[Block], None] | None = None
        self._lines: Sequence[Line] = ()
        self._drawn: tuple[int, int] | None = None
        self._restore: Callable[[], None] | None = None

    # -- for front ends --------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The whole content as plain text, for searching and copying."""
        self._restored()
        return self._plain()

    def lines(self, width: int, most_new: int | None = None) -> Sequence[Line]:
        """Returns the block as rows of at most `width` cells; kept for this width until the block changes.

        Lays out at most `most_new` characters that arrived since the last call, where a block can stop there; then
        `is_behind` is set, and the next call continues.
        """
        self._restored()
        now = (width, self.version)
        if self._drawn != now or self.is_behind:
            self.first_change = 0
            self._lines = self._draw(width)
            self._drawn = now
        return self._lines

    def drawn_lines(self, width: int) -> Sequence[Line]:
        """Returns the lines as last drawn at this width, without later changes; draws them if they never were."""
        return self._lines if self._drawn is not None and self._drawn[0] == width else self.lines(width)

    def estimated_height(self, width: int) -> int:
        """Returns roughly how many rows the block takes, without drawing it."""
        return 1

    def forget(self) -> None:
        """Drops the drawn lines; they are made again when needed."""
        self._lines, self._drawn = (), None

    def open(self) -> bool:
        """Shows folded content; returns whether anything was folded."""
        return False

    def toggle(self, row: int = 0) -> bool:
        """Opens or folds the block for the user, at one of its rows; returns whether there was anything to fold."""
        return False

    # -- for subclasses --------------------------------------------------------------------------------------------

    def _plain(self) -> str:
        return ""

    def _draw(self, width: int) -> Sequence[Line]:
        raise NotImplementedError

    def _changed(self) -> None:
        self.version += 1
        if self._listener is not None:
            self._listener(self)

    def restore_with(self, fill: Callable[[], None]) -> None:
        """Sets a function that fills in the content when it is first needed, so that unseen blocks cost nothing."""
        self._restore = fill

    def _restored(self) -> None:
        fill, self._restore = self._restore, None
        if fill is not None:
            listener, self._listener = self._listener, None
            fill()
            self._listener = listener


class Transcript:
    """The blocks from the oldest to the newest, and one listener for changes."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._callback: Callable[[Block | None], None] | None = None

    @property
    def blocks(self) -> Sequence[Block]:
        """The live list of blocks; callers must not change it."""
        return self._blocks

    def add(self, block: Block) -> None:
        self.extend([block])

    def extend(self, blocks: Sequence[Block]) -> None:
        """Adds blocks at the end and notifies the listener once."""
        last = self._blocks[-1] if self._blocks else None
        for block in blocks:
            block._listener = self._tell  # pyright: ignore[reportPrivateUsage]
            block.before, last = last, block
            if block.before is not None:
                block.before.after = block
        if blocks:
            self._blocks.extend(blocks)
            self._tell(None)

    def clear(self) -> None:
        """Removes all blocks; their later changes are no longer reported."""
        for block in self._blocks:
            block._listener = block.before = block.after = None  # pyright: ignore[reportPrivateUsage]
        self._blocks.clear()
        self._tell(None)

    def on_change(self, callback: Callable[[Block | None], None]) -> None:
        """Sets the listener, which gets the changed block, or `None` when blocks were added or removed."""
        self._callback = callback

    def _tell(self, block: Block | None) -> None:
        if self._callback is not None:
            self._callback(block)


def gap_before(block: Block, previous: Block | None) -> int:
    """Returns the number of empty rows between two blocks: 0 between compact ones, such as folded tool calls."""
    if previous is None or block.is_joined:
        return 0
    return 0 if block.is_compact and previous.is_compact else 1
