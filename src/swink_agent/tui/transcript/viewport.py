"""The part of a transcript that is in sight: where the reader is, and whether the end is followed.

Owns scrolling and what is new below. Moving measures the blocks that are passed and no others, and the top is kept by
its block, so that nothing jumps when estimated heights turn out otherwise. Knows no widget.
"""

from __future__ import annotations

from .rows import Place, Rows

__all__ = ["Viewport"]


class Viewport:
    """A window of `height` rows onto the rows of a transcript."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.height = 0
        self.top = Place(0, 0)
        self.is_following = True
        self._seen_end = (0, 0)
        """What was there when following ended: how many blocks, and the height of the last."""

    @property
    def top_row(self) -> int:
        return self._rows.row(self.top)

    @property
    def new_below(self) -> int:
        """Rows that came since following ended and have not been in sight."""
        rows = self._rows
        if self.is_following or not rows.count:
            return 0
        count, height = self._seen_end
        grown = sum([rows.height(index) for index in range(count, rows.count)])
        if 0 < count <= rows.count:
            grown += max(rows.height(count - 1) - height, 0)
        return max(min(grown, rows.total - self.top_row - self.height), 0)

    def thumb(self) -> tuple[int, int]:
        """From which row to which the thumb of a scrollbar goes; below 0 where all is in sight."""
        height, total = self.height, self._rows.total
        if total <= height or height < 2:
            return -1, -1
        size = max(height * height // total, 1)
        room = height - size
        start = room if self.is_following else round(room * min(self.top_row / (total - height), 1.0))
        return start, start + size

    def place_at(self, row: int) -> Place:
        """The place of a row of the window; behind the last block where nothing is."""
        index, row = self.top.block, self.top.row + row
        rows = self._rows
        while index < rows.count and row >= rows.height(index):
            row -= rows.height(index)
            index += 1
        return Place(index, row)

    # -- moving ----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Another transcript: back to its end."""
        self.top, self.is_following = Place(0, 0), True

    def settle(self) -> None:
        """Measures what is in sight, and puts the top where the reader is."""
        rows = self._rows
        if self.is_following:
            self.top = rows.last_page(self.height)
            return
        self.top = rows.moved(self.top, 0)
        if not rows.measure_page(self.top, self.height):
            self.top = rows.last_page(self.height)

    def resize(self, width: int) -> None:
        """Another width: the reader stays at the same part of the same block."""
        rows = self._rows
        share = 0.0
        if not self.is_following and self.top.block < rows.count:
            share = self.top.row / max(rows.height(self.top.block), 1)
        rows.resize(width)
        if share:
            self.top = Place(self.top.block, int(share * rows.measure(self.top.block)))

    def follow(self) -> None:
        self.is_following = True

    def let_go(self) -> None:
        """Stays where it is while more comes."""
        if self.is_following:
            last = self._rows.count - 1
            self.is_following = False
            self._seen_end = (last + 1, self._rows.height(last) if last >= 0 else 0)

    def scroll(self, count: int) -> None:
        """Moves by rows: down until the end, which is then followed, or up, which lets go of it."""
        rows = self._rows
        if not rows.count or not self.height or (count > 0 and self.is_following):
            return
        top = rows.moved(self.top, count)
        if count < 0:
            if top != self.top:
                self.let_go()
                self.top = top
            return
        self.top = top
        self._follow_at_end()

    def to_start(self) -> None:
        if self._rows.total > self.height:
            self.let_go()
            self.top = Place(0, 0)

    def to_share(self, share: float) -> None:
        """Goes to a part of the whole, as a scrollbar does: 0 is the start, 1 the end."""
        total = self._rows.total
        if total <= self.height:
            return
        if share >= 1.0:
            self.follow()
            return
        self.let_go()
        self.top = self._rows.place(round(max(share, 0.0) * (total - self.height)))

    def show(self, place: Place) -> bool:
        """Brings a place into sight, a third from the top, if it is not there; says whether it moved."""
        rows = self._rows
        rows.measure(place.block)
        row, top = rows.row(place), self.top_row
        if top <= row < top + self.height - 1:
            return False
        self.let_go()
        self.top = rows.moved(place, -(self.height // 3))
        self._follow_at_end()
        return True

    def _follow_at_end(self) -> None:
        rows = self._rows
        if not rows.measure_page(rows.moved(self.top, 1), self.height):
            self.is_following = True
