"""Tables and links of the pages about runs and evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from swink_agent.rendering.characters import one_line


def cell(text: str, *, most: int = 200) -> str:
    return f"<bdi>{escape(one_line(text, most))}</bdi>"


def link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}">{cell(text)}</a>'


def table_html(name: str, heads: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> str:
    """A table whose cells are HTML. It can be scrolled with the keyboard."""
    if not rows:
        return f'<p class="empty">{escape(empty)}</p>\n'
    head = "".join([f'<th scope="col">{escape(each)}</th>' for each in heads])
    body = "".join([f"<tr>{''.join([f'<td>{each}</td>' for each in row])}</tr>\n" for row in rows])
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="{escape(name)}"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )


def age(milliseconds: int, now: float) -> str:
    """How long ago it was, in one unit."""
    seconds = max(now - milliseconds / 1000, 0)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
