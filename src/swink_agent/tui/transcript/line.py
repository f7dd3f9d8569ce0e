"""Lines and spans: everything on the screen is a line of spans, each with a role that a theme gives a style.

Owns these two values and the operations on them: width, plain text, cutting and padding; and the fast path by
which ordinary text needs no escaping (`rendering.escaping` escapes the rest). Independent of colours (`themes`) and
widgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from swink_agent.rendering.cells import cell_width, cut, expand_tabs
from swink_agent.rendering.escaping import safe_text

ORDINARY = (
    " -~"  # ASCII
    "\u00a1-\u00ac\u00ae-\u02af"  # Latin
    "\u0410-\u044f\u03b1-\u03c9"  # Cyrillic and Greek letters
    "\u2013\u2014\u2018\u2019\u201c\u201d\u2022\u2026\u20ac"
    "\u2190-\u2193\u2200-\u220f\u2500-\u257f\u2580-\u259f\u25a0-\u25cf\u2705\u2713\u2714\u2717\u274c"
    "\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
)
"""Characters that are never escaped, whatever their neighbours are."""


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
    return "".join([span.text for span in spans])


def width_of(spans: Iterable[Span]) -> int:
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
    return plain(line.spans)[line.gutter :].rstrip() if line.copied is None else line.copied


@lru_cache(1)
def _odd() -> re.Pattern[str]:
    return re.compile(f"[^{ORDINARY}]")  # compiled on first use, because that is slow for this many ranges


def safe(line: str) -> str:
    """Returns one or more lines escaped as by `safe_text`, with tabs expanded to blanks."""
    if line.isascii():
        if line.isprintable():
            return line
    elif _odd().search(line) is None:
        return line
    if "\n" in line:
        return "\n".join([safe(part) for part in line.split("\n")])
    return expand_tabs(safe_text(line.removesuffix("\r")))


def safe_row(text: str) -> str:
    """Returns text escaped and as one line: every run of white space becomes one blank."""
    return safe(" ".join(text.split()))
