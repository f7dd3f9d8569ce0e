"""The rows that show the list of things to do above the input: one if it is folded, a few if it is open.

Pure: `widgets.bars` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence

from swink_agent.rendering.cells import cell_width, cut
from swink_agent.rendering.checklist import TodoItem, current

from .transcript.line import Line, Span
from .transcript.safe import safe_row

_MOST_ROWS = 6
_LEAST_TEXT = 12
_SIGNS = {"pending": ("☐", "text"), "in_progress": ("▸", "running"), "done": ("✓", "done")}
_ROLES = {"pending": "text", "in_progress": "tool.name", "done": "dim"}


def todo_lines(items: Sequence[TodoItem], width: int, *, is_open: bool, hint: str) -> list[Line]:
    """The rows, none if nothing is left to do. `hint` names the key that opens and folds them."""
    now = current(items)
    if now is None:
        return []
    done = sum([item.status == "done" for item in items])
    head = [Span(" ☐ ", "activity"), Span(f"{done}/{len(items)}", "tool.name")]
    if not is_open:
        head.append(Span(f" {safe_row(now.text)}", "text"))
    first = _with_hint(head, hint, width)
    if not is_open:
        return [first]
    start = max(min(items.index(now) - 1, len(items) - _MOST_ROWS), 0)
    shown = items[start : start + _MOST_ROWS]
    before, after = start, len(items) - start - len(shown)
    rows = [_row(item, width) for item in shown]
    if before:
        rows.insert(0, _note(f"… {before} before", width))
    if after:
        rows.append(_note(f"… {after} more", width))
    return [first, *rows]


def _with_hint(head: Sequence[Span], hint: str, width: int) -> Line:
    """The head with the hint at the right edge, if both can be read."""
    room = width - cell_width(hint) - 3
    if room < min(_width(head), _LEAST_TEXT):
        return Line(tuple(_fitted(head, width)))
    shown = _fitted(head, room)
    return Line((*shown, Span(" " * (room - _width(shown) + 2), "text"), Span(hint, "dim")))


def _row(item: TodoItem, width: int) -> Line:
    sign, role = _SIGNS[item.status]
    return Line(tuple(_fitted([Span(f"   {sign} ", role), Span(safe_row(item.text), _ROLES[item.status])], width)))


def _note(text: str, width: int) -> Line:
    return Line((Span(cut(f"     {text}", width), "dim"),))


def _width(spans: Sequence[Span]) -> int:
    return sum([cell_width(span.text) for span in spans])


def _fitted(spans: Sequence[Span], width: int) -> list[Span]:
    kept: list[Span] = []
    for span in spans:
        room = width - _width(kept)
        if room <= 0:
            break
        kept.append(span._replace(text=cut(span.text, room)))
    return kept
