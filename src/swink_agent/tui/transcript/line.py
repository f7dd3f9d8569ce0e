"""What everything that is drawn is made of: a line of spans, each with the role that a theme gives a style.

Owns the two values and what is done with lines as such: their width, their plain text, cutting and padding. Knows no
colours (`themes`) and no widget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from swink_agent.rendering.cells import cell_width, cut

__all__ = ["EMPTY", "Line", "Span", "body_of", "copied_text", "cut_spans", "padded", "plain", "width_of"]


class Span(NamedTuple):
    """A piece of a line. `role` is a name of `themes.ROLES`, with others behind a `+` that are laid over it; `link` is
    an address that is safe to follow."""

    text: str
    role: str
    link: str = ""


class Line(NamedTuple):
    """One row. `copied` is what a selection copies where that is not what is drawn (`""` for what is only ornament);
    `glue` is set when the row goes on with the line before it, and is what then stands between the two."""

    spans: tuple[Span, ...]
    copied: str | None = None
    glue: str | None = None
    gutter: int = 0
    """Cells at the left that are no part of what is copied."""


EMPTY = Line(())


def plain(spans: Iterable[Span]) -> str:
    """The text of spans."""
    return "".join([span.text for span in spans])


def width_of(spans: Iterable[Span]) -> int:
    """The cells that spans take."""
    return sum([cell_width(span.text) for span in spans])


def padded(spans: Sequence[Span], width: int, role: str) -> tuple[Span, ...]:
    """The spans, filled up with blanks of a role to so many cells."""
    missing = width - width_of(spans)
    return (*spans, Span(" " * missing, role)) if missing > 0 else tuple(spans)


def cut_spans(spans: Sequence[Span], width: int) -> tuple[Span, ...]:
    """As many of the spans as fit, with an ellipsis where something is missing."""
    if width_of(spans) <= width:
        return tuple(spans)
    kept: list[Span] = []
    for span in spans:
        size = cell_width(span.text)
        if size >= width:
            # Whether more follows or not: what does not fit whole, or leaves no room for the rest, is cut.
            if text := cut(f"{span.text}\u2026" if size == width else span.text, width):
                kept.append(span._replace(text=text))
            break
        kept.append(span)
        width -= size
    return tuple(kept)


def copied_text(lines: Iterable[Line]) -> str:
    """What copying whole lines gives: no gutters, no ornaments, and rows that were wrapped as the one line they are."""
    parts: list[str] = []
    for line in lines:
        if parts:
            parts.append("\n" if line.glue is None else line.glue)
        parts.append(body_of(line))
    return "".join(parts)


def body_of(line: Line) -> str:
    """What of a line is copied."""
    return plain(line.spans)[line.gutter :].rstrip() if line.copied is None else line.copied
