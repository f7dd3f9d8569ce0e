"""The one row that always says where things stand: mode, state, model, window, tokens, cost, time, folder.

Owns its words and what gives way when the window is narrow: the folder loses its beginning, the model its provider,
the gauge half of its bar, the model its middle, the gauge all of its bar, the parts the points between them. From 60
columns on all of it is said; the words for mode and state never go. Pure: a widget draws it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from swink_agent.core.values.value import Value
from swink_agent.rendering.cells import cell_width, cut_middle
from swink_agent.rendering.escaping import safe_display

from .transcript.line import Line, Span

__all__ = ["Mode", "State", "Status", "status_line"]

Mode: TypeAlias = Literal["Plan", "Execute"]
State: TypeAlias = Literal["idle", "running", "error", "aborted"]

_BETWEEN = " · "
_BAR, _SMALL_BAR = 8, 4
_WHOLE, _GOOD_MODEL, _LEAST_MODEL = 1000, 11, 8
_GOOD_FOLDER, _LEAST_FOLDER = 16, 8


class Status(Value, frozen=True, kw_only=True):
    """What the row says. `fill` is the part of the model's window that the conversation takes, by estimate."""

    mode: Mode
    state: State
    model: str
    fill: float
    tokens: int
    cost: float | None
    elapsed: float
    folder: str
    approve: str = "smart"
    note: str = ""
    """What a person should know for the moment, such as that a second Ctrl+C leaves."""


def status_line(status: Status, width: int) -> Line:
    """The row, no wider than the window."""
    for line in _layouts(status, width):
        if _width(line) <= width:
            return Line(tuple(line))
    return _cut(_joined(_head(status)), width)


def _layouts(status: Status, width: int) -> Iterator[list[Span]]:
    """The row at its best, then with less and less of what can be spared."""
    head = _head(status)
    model, folder = safe_display(status.model, 200), safe_display(status.folder, 400)
    bare = model.rpartition(":")[2].rpartition("/")[2]
    tokens, short = _tokens(status.tokens), _tokens(status.tokens).removesuffix(" tokens")
    bar, small, percent = [_gauge(status.fill, cells) for cells in (_BAR, _SMALL_BAR, 0)]
    approve = [] if status.approve == "smart" else [[Span(f"approve {status.approve}", "status.warning")]]
    for name, least, gauge, used, between in (
        (model, _WHOLE, bar, tokens, _BETWEEN),
        (bare, _WHOLE, bar, tokens, _BETWEEN),
        (bare, _WHOLE, bar, short, _BETWEEN),
        (bare, _WHOLE, small, short, _BETWEEN),
        (bare, _GOOD_MODEL, small, short, _BETWEEN),
        (bare, _GOOD_MODEL, percent, short, _BETWEEN),
        (bare, _WHOLE, small, short, " "),
        (bare, _LEAST_MODEL, percent, short, " "),
    ):
        if status.note and between != _BETWEEN:
            break  # what is meant to be read stands apart
        figures = [[Span(text, "status")] for text in (used, _cost(status.cost), _elapsed(status.elapsed))]
        rest = [gauge, *figures, *approve]
        nothing = [Span("", "status")]
        room = width - _width(_joined([*head, nothing, *rest, nothing], between))
        least_folder = min(cell_width(_last(folder)), _GOOD_FOLDER if between == _BETWEEN else _LEAST_FOLDER)
        model_room = min(cell_width(name), room - least_folder)
        if model_room >= min(cell_width(name), least):
            shown = [Span(cut_middle(name, model_room), "status.model")]
            where = [Span(_cut_folder(folder, room - model_room), "status.folder")]
            yield _joined([*head, shown, *rest, where], between)
    for kept in ([percent, [Span(short, "status")], [Span(_cost(status.cost), "status")]], [percent], []):
        yield _joined([*head, *kept])


def _head(status: Status) -> list[list[Span]]:
    head = [_mode(status), _state(status)]
    return [*head, [Span(status.note, "status.note")]] if status.note else head


def _last(folder: str) -> str:
    return folder.rstrip("/").rpartition("/")[2] or folder


def _cut_folder(folder: str, width: int) -> str:
    """The folder without its beginning, from a slash on if a name fits."""
    if cell_width(folder) <= width:
        return folder
    at = folder.find("/", 1)
    while at >= 0:
        if cell_width(folder) - at + 1 <= width and at < len(folder) - 1:
            return f"…{folder[at:]}"
        at = folder.find("/", at + 1)
    return cut_middle(_last(folder), width)


def _joined(parts: list[list[Span]], between: str = _BETWEEN) -> list[Span]:
    spans: list[Span] = [Span(" ", "status")]
    for number, part in enumerate(parts):
        if number:
            spans.append(Span(between, "status.dim"))
        spans += part
    return [*spans, Span(" ", "status")]


def _width(spans: list[Span]) -> int:
    return sum([cell_width(span.text) for span in spans])


def _cut(spans: list[Span], width: int) -> Line:
    kept: list[Span] = []
    for span in spans:
        room = width - _width(kept)
        if room <= 0:
            break
        kept.append(span if cell_width(span.text) <= room else Span(span.text[:room], span.role))
    return Line(tuple(kept))


def _mode(status: Status) -> list[Span]:
    return [Span(status.mode, f"status.{status.mode.lower()}")]


def _state(status: Status) -> list[Span]:
    return [Span(status.state, f"status.{status.state}")]


def _gauge(fill: float, bar: int) -> list[Span]:
    """Green below 60 %, yellow to 85 %, red above."""
    percent = round(100 * fill)
    role = "gauge.low" if fill < 0.6 else "gauge.middle" if fill <= 0.85 else "gauge.high"
    if not bar:
        return [Span(f"{percent}%", role)]
    filled = min(bar, round(bar * fill) or (1 if fill > 0 else 0))
    return [Span("█" * filled, role), Span("░" * (bar - filled), "gauge"), Span(f" {percent}%", role)]


def _tokens(count: int) -> str:
    if count < 1000:
        return f"{count} tokens"
    return f"{count / 1000:.1f}k tokens" if count < 1_000_000 else f"{count / 1_000_000:.1f}M tokens"


def _cost(cost: float | None) -> str:
    if cost is None:
        return "$?"
    return f"${cost:.2f}" if cost >= 0.1 or cost == 0 else f"${cost:.4f}"


def _elapsed(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
