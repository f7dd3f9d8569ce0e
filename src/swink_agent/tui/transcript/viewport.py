"""The visible part of a transcript: the scroll position, and whether it follows the end.

Owns scrolling and the count of new rows below. Scrolling measures only the blocks that it passes. The top is stored as
a block and a row in it, so that the text does not jump when an estimated height was wrong. Independent of widgets.
"""

from __future__ import annotations

from .rows import Place, Rows


class Viewport:
    """A window of `height` rows onto the rows of a transcript."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.height = 0
        self.top = Place(0, 0)
        self.is_following = True
        self._seen_end = (0, 0)
        """The number of blocks, and the height of the last one, when following ended."""

    @property
    def top_row(self) -> int:
        return self._rows.row(self.top)

    @property
    def new_below(self) -> int:
        """The number of rows that were added since following ended and that have not been visible yet."""
        rows = self._rows
        if self.is_following or not rows.count:
            return 0
        count, height = self._seen_end
        grown = sum([rows.height(index) for index in range(count, rows.count)])
        if 0 < count <= rows.count:
            grown += max(rows.height(count - 1) - height, 0)
        return max(min(grown, rows.total - self.top_row - self.height), 0)

    def thumb(self) -> tuple[int, int]:
        """Returns the first row of the scrollbar's thumb and the one after the last; (-1, -1) if all rows fit."""
        height, total = self.height, self._rows.total
        if total <= height or height < 2:
            return -1, -1
        size = max(height * height // total, 1)
        room = height - size
        start = room if self.is_following else round(room * min(self.top_row / (total - height), 1.0))
        return start, start + size

    def place_at(self, row: int) -> Place:
        """Returns the place of a row of the window; for an empty row at the bottom, a place after the last block."""
        index, row = self.top.block, self.top.row + row
        rows = self._rows
        while index < rows.count and row >= rows.height(index):
            row -= rows.height(index)
            index += 1
        return Place(index, row)

    # -- moving ----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Goes back to the end, for another transcript."""
        self.top, self.is_following = Place(0, 0), True

    def settle(self) -> None:
        """Measures the visible blocks and corrects the top accordingly."""
        rows = self._rows
        if self.is_following:
            self.top = rows.last_page(self.height)
            return
        self.top = rows.moved(self.top, 0)
        if not rows.measure_page(self.top, self.height):
            self.top = rows.last_page(self.height)

    def resize(self, width: int) -> None:
        """Changes the width; the top stays at the same part of the same block."""
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
        """Stops following: the position stays while more rows arrive."""
        if self.is_following:
            last = self._rows.count - 1
            self.is_following = False
            self._seen_end = (last + 1, self._rows.height(last) if last >= 0 else 0)

    def scroll(self, count: int) -> None:
        """Scrolls by rows. Reaching the end starts following; scrolling up ends it."""
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
        """Scrolls to a fraction of the transcript, as a scrollbar does: 0 is the start, 1 the end."""
        total = self._rows.total
        if total <= self.height:
            return
        if share >= 1.0:
            self.follow()
            return
        self.let_go()
        self.top = self._rows.place(round(max(share, 0.0) * (total - self.height)))

    def show(self, place: Place) -> bool:
        """Scrolls a place to a third from the top if it is not visible; returns whether it scrolled."""
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
