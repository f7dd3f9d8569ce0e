"""Lines and spans: everything on the screen is a line of spans, each with a role that a theme gives a style.

Owns these two values and the operations on them: width, plain text, cutting and padding. Independent of colours
(`themes`) and widgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from swink_agent.rendering.cells import cell_width, cut


class Span(NamedTuple):
    """A piece of a line. `role` is a name in `themes.ROLES`, optionally with `+` and further roles that override its
    style; `link` is an address that is safe to follow."""

    text: str
    role: str
    link: str = ""


class Line(NamedTuple):
    """One row.

    `copied` is the text that a selection copies, if it differs from the drawn text (`""` for mere decoration). `glue`
    is set if the row continues the line of the previous row, and is the text that joins the two.
    """

    spans: tuple[Span, ...]
    copied: str | None = None
    glue: str | None = None
    gutter: int = 0
    """Cells at the left that are not copied."""


EMPTY = Line(())


def plain(spans: Iterable[Span]) -> str:
    """Returns the text of the spans."""
    return "".join([span.text for span in spans])


def width_of(spans: Iterable[Span]) -> int:
    """Returns the width of the spans in cells."""
    return sum([cell_width(span.text) for span in spans])


def padded(spans: Sequence[Span], width: int, role: str) -> tuple[Span, ...]:
    """Returns the spans, padded to `width` cells with blanks in the role `role`."""
    missing = width - width_of(spans)
    return (*spans, Span(" " * missing, role)) if missing > 0 else tuple(spans)


def cut_spans(spans: Sequence[Span], width: int) -> tuple[Span, ...]:
    """Returns the spans that fit into `width` cells, with an ellipsis if something is cut."""
    if width_of(spans) <= width:
        return tuple(spans)
    kept: list[Span] = []
    for span in spans:
        size = cell_width(span.text)
        if size >= width:
            # A span that just fits is also cut, because more text follows and needs the ellipsis.
            if text := cut(f"{span.text}\u2026" if size == width else span.text, width):
                kept.append(span._replace(text=text))
            break
        kept.append(span)
        width -= size
    return tuple(kept)


def body_of(line: Line) -> str:
    """Returns the part of a line that is copied."""
    return plain(line.spans)[line.gutter :].rstrip() if line.copied is None else line.copied
