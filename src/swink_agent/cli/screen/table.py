"""Writes columns of text that fit the window."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from swink_agent.approvals.display import safe_display
from swink_agent.rendering.cells import cell_width, cut, cut_middle

from .screen import width_of

_LEAST = 8


def table(
    rows: Sequence[Sequence[str]], right: Sequence[int] = (), *, room: int | None = None, whole: Sequence[int] = ()
) -> str:
    """The rows as aligned columns; those named in `right` are aligned to the right.

    A row is one line, no wider than `room`, by default the window. The widest columns are shortened first, those named
    in `whole` never. Without a window nothing is shortened.
    """
    if not rows:
        return ""
    room = width_of(sys.stdout) if room is None else room
    cells = [[safe_display(cell, None) for cell in row] for row in rows]
    widths = [max(cell_width(row[column]) for row in cells) for column in range(len(cells[0]))]
    flexible = [column for column in range(len(widths)) if column not in whole and widths[column] > _LEAST]
    while room is not None and sum(widths) + 2 * (len(widths) - 1) > room and flexible:
        widest = max(flexible, key=lambda column: widths[column])
        widths[widest] -= 1
        if widths[widest] <= _LEAST:
            flexible.remove(widest)
    lines = ("  ".join([_padded(*cell, right) for cell in enumerate(zip(row, widths, strict=True))]) for row in cells)
    return "\n".join([line.rstrip() if room is None else cut(line.rstrip(), room) for line in lines])


def _padded(column: int, cell_and_width: tuple[str, int], right: Sequence[int]) -> str:
    cell, width = cell_and_width
    cell = cut_middle(cell, width)
    padding = " " * (width - cell_width(cell))
    return padding + cell if column in right else cell + padding
