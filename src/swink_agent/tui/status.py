"""The one row that always says where things stand: mode, state, model, window, tokens, cost, time, folder.

Owns its words and what gives way when the window is narrow: the folder loses its beginning, the model its middle, the
gauge its bar; the words for mode and state never go. Pure: a widget draws it, and `--inline` prints it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from swink_agent.core.value import Value
from swink_agent.policies.cells import cell_width, cut_middle, cut_start
from swink_agent.policies.escaping import safe_display

from .transcript.line import Line, Span

__all__ = ["Mode", "State", "Status", "status_line"]

Mode: TypeAlias = Literal["Plan", "Execute"]
State: TypeAlias = Literal["idle", "running", "error", "aborted"]

_BETWEEN = " · "
_BAR = 8
_LEAST_MODEL, _LEAST_FOLDER = 8, 6


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
    for parts in _layouts(status, width):
        line = _joined(parts)
        if _width(line) <= width:
            return Line(tuple(line))
    return _cut(_joined([_mode(status), _state(status)]), width)


def _layouts(status: Status, width: int) -> list[list[list[Span]]]:
    """The row at its best, then with less and less of what can be spared."""
    head = [_mode(status), _state(status)]
    if status.note:
        head.append([Span(status.note, "status.note")])
    tokens, cost, elapsed = _tokens(status.tokens), _cost(status.cost), _elapsed(status.elapsed)
    plain = [[Span(text, "status")] for text in (tokens, cost, elapsed)]
    approve = [] if status.approve == "smart" else [[Span(f"approve {status.approve}", "status.warning")]]
    short = [[Span(tokens.replace(" tokens", ""), "status")], *plain[1:]]
    model, folder = safe_display(status.model, 200), safe_display(status.folder, 400)
    bare = model.rpartition(":")[2].rpartition("/")[2]
    wanted: list[list[list[Span]]] = []
    bar, percent = _gauge(status.fill, _BAR), _gauge(status.fill, 0)
    for gauge, figures, name, is_cut in (
        (bar, plain, model, False),
        (bar, short, bare, False),
        (percent, short, bare, False),
        (percent, short, bare, True),
    ):
        rest = [gauge, *figures, *approve]
        room = width - _width(_joined([*head, [Span("", "status")], *rest, [Span("", "status")]]))
        model_room = max(_LEAST_MODEL, room - _LEAST_FOLDER) if is_cut else cell_width(name)
        folder_room = max(room - min(cell_width(name), model_room), _LEAST_FOLDER)
        shown = [Span(cut_middle(name, model_room), "status.model")]
        where = [Span(cut_start(folder, folder_room), "status.folder")]
        wanted.append([*head, shown, *rest, where])
    tight = [[Span(text, "status")] for text in (tokens.replace(" tokens", ""), cost)]
    wanted.append([*head, [Span(cut_middle(bare, _LEAST_MODEL), "status.model")], _gauge(status.fill, 0), *tight])
    wanted.append([*head, _gauge(status.fill, 0)])
    return wanted


def _joined(parts: list[list[Span]]) -> list[Span]:
    spans: list[Span] = [Span(" ", "status")]
    for number, part in enumerate(parts):
        if number:
            spans.append(Span(_BETWEEN, "status.dim"))
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
