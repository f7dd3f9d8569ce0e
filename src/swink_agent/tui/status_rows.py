"""The rows that show the state of a run: the status row, a row for each tool that runs, and the list of things to do.

The status row shows mode, state, approvals, model, window, tokens, cost, turn, time and folder, and if there are any
the branch, the hosts that commands may reach and the background commands. In a narrow window it is shortened in this
order: the folder loses its beginning, the model its provider, the gauge half of its bar, the folder its branch, the
model its middle, the gauge the rest of its bar; the turn is left out, and the points between the parts. The usual
mode of approvals is left out first. From 60 columns on the other parts show, hosts and background commands from 80 on;
mode and state always do. Pure: widgets draw these rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from swink_agent.app.runs import telling
from swink_agent.core.values.value import Value
from swink_agent.rendering.amounts import dollars
from swink_agent.rendering.cells import cell_width, cut, cut_middle
from swink_agent.rendering.checklist import TodoItem, current
from swink_agent.rendering.escaping import safe_display

from .transcript.line import Line, Span, safe_row, width_of
from .transcript.tool import SPINNER

Mode: TypeAlias = Literal["Plan", "Execute"]
State: TypeAlias = Literal["idle", "running", "error", "aborted", "waits for you"]

_BETWEEN = " · "
_BAR, _SMALL_BAR = 8, 4
_WHOLE, _GOOD_MODEL, _LEAST_MODEL, _CUT_MODEL = 1000, 11, 8, 6
_GOOD_FOLDER, _LEAST_FOLDER = 16, 8
_LONGEST_BRANCH = 24
_LEAST_OWN = 8
"""With fewer cells left, the user's own line is not shown."""
_MOST_TODO_ROWS = 6
_LEAST_TEXT = 12
_SIGNS = {"pending": ("☐", "text"), "in_progress": ("▸", "running"), "done": ("✓", "done")}
_ROLES = {"pending": "text", "in_progress": "tool.name", "done": "dim"}


class Status(Value, frozen=True, kw_only=True):
    """The content of the row. `fill` is the estimated share of the model's window that the conversation takes."""

    mode: Mode
    state: State
    model: str
    fill: float
    tokens: int
    cost: float | None
    elapsed: float
    folder: str
    approve: str = "smart"
    branch: str = ""
    """The Git branch of the folder, if there is one."""
    hosts: int = 0
    """The number of hosts that commands may reach."""
    tasks: int = 0
    """The number of running background commands."""
    turn: int = 0
    """The current or last turn of the run; 0 before the first."""
    vim: str = ""
    """The vim mode of the input line; "" without the keys of vim."""
    own: str = ""
    """The line that the user's own program printed, shown instead of the rest; already escaped."""
    note: str = ""
    """A short-lived note, such as that a second Ctrl+C leaves."""


def status_line(status: Status, width: int) -> Line:
    """Returns the row, no wider than `width` cells."""
    for line in _layouts(status, width):
        if width_of(line) <= width:
            return Line(tuple(line))
    return Line(tuple(_fitted(_joined(_head(status)), width, sign="")))


def approve_word(approve: str) -> str:
    """Returns the mode of approvals in one or two words."""
    return f"approve {approve}" if approve in ("all", "none") else approve


def beside_parts(branch: str, hosts: int, tasks: int) -> list[str]:
    """Returns the branch and the numbers of hosts and background commands as texts, without those that are empty."""
    counted = [telling.number_of(count, name) for count, name in ((hosts, "host"), (tasks, "task")) if count]
    return [*([safe_display(branch, 80)] if branch else []), *counted]


def _layouts(status: Status, width: int) -> Iterator[list[Span]]:
    """Yields the full row, then shorter and shorter versions."""
    head = _head(status)
    if status.own:
        room = width - width_of(_joined([*head, [Span("", "status")]]))
        shown = [[Span(cut(status.own, room), "status")]] if room >= _LEAST_OWN else []
        yield _joined([*head, *shown])
        return
    model, folder = safe_display(status.model, 200), safe_display(status.folder, 400)
    bare = model.rpartition(":")[2].rpartition("/")[2]
    tokens, short = telling.tokens(status.tokens), telling.tokens(status.tokens).removesuffix(" tokens")
    bar, small, percent = [_gauge(status.fill, cells) for cells in (_BAR, _SMALL_BAR, 0)]
    word = approve_word(status.approve)
    approve = [[Span(word, "status.warning" if " " in word else "status")]] if status.mode == "Execute" else []
    branch = f" ({cut_middle(safe_display(status.branch, 80), _LONGEST_BRANCH)})" if status.branch else ""
    beside = [[Span(text, "status.note")] for text in beside_parts("", status.hosts, status.tasks)]
    turn, few = ([f"turn {status.turn:,}"], [f"t{status.turn}"]) if status.turn else ([], [])
    for name, least, gauge, used, between, count, of_branch in (
        (model, _WHOLE, bar, tokens, _BETWEEN, turn, branch),
        (bare, _WHOLE, bar, tokens, _BETWEEN, turn, branch),
        (bare, _WHOLE, bar, short, _BETWEEN, turn, branch),
        (bare, _WHOLE, small, short, _BETWEEN, turn, branch),
        (bare, _WHOLE, small, short, _BETWEEN, turn, ""),
        (bare, _GOOD_MODEL, small, short, _BETWEEN, turn, ""),
        (bare, _GOOD_MODEL, percent, short, _BETWEEN, turn, ""),
        (bare, _GOOD_MODEL, percent, short, _BETWEEN, few, ""),
        (bare, _GOOD_MODEL, percent, short, _BETWEEN, [], ""),
        (bare, _WHOLE, small, short, " ", [], ""),
        (bare, _LEAST_MODEL, percent, short, " ", [], ""),
        (bare, _CUT_MODEL, percent, short, " ", [], ""),
    ):
        if status.note and between != _BETWEEN:
            break  # keep a note readable
        numbers = [[Span(text, "status")] for text in (used, _cost(status.cost), *count, _elapsed(status.elapsed))]
        rest = [gauge, *numbers, *beside]
        nothing = [Span("", "status")]
        room = width - width_of(_joined([*head, *approve, nothing, *rest, nothing], between)) - cell_width(of_branch)
        least_folder = min(cell_width(_last(folder)), _GOOD_FOLDER if between == _BETWEEN else _LEAST_FOLDER)
        model_room = min(cell_width(name), room - least_folder)
        if model_room >= min(cell_width(name), least):
            shown = [Span(cut_middle(name, model_room), "status.model")]
            where = [Span(_cut_folder(folder, room - model_room) + of_branch, "status.folder")]
            yield _joined([*head, *approve, shown, *rest, where], between)
        if status.approve == "smart":
            approve = []  # the usual mode is left out first
    for kept in ([*approve, percent, [Span(short, "status")], [Span(_cost(status.cost), "status")]], approve, []):
        yield _joined([*head, *kept])


def _head(status: Status) -> list[list[Span]]:
    state = Span(status.state, f"status.{status.state}")
    if status.state == "waits for you":
        state = Span(f" {status.state} ", "status.asking")
    head = [[Span(status.mode, f"status.{status.mode.lower()}")], [state]]
    if status.vim:
        head.append([Span(status.vim, "status.note")])
    return [*head, [Span(status.note, "status.note")]] if status.note else head


def _last(folder: str) -> str:
    return folder.rstrip("/").rpartition("/")[2] or folder


def _cut_folder(folder: str, width: int) -> str:
    """Cuts the folder's beginning, at a slash if a name fits."""
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


def _gauge(fill: float, bar: int) -> list[Span]:
    """Green below 60 %, yellow to 85 %, red above."""
    percent = round(100 * fill)
    role = "gauge.low" if fill < 0.6 else "gauge.middle" if fill <= 0.85 else "gauge.high"
    if not bar:
        return [Span(f"{percent}%", role)]
    filled = min(bar, round(bar * fill) or (1 if fill > 0 else 0))
    return [Span("█" * filled, role), Span("░" * (bar - filled), "gauge"), Span(f" {percent}%", role)]


def _cost(cost: float | None) -> str:
    return "$?" if cost is None else dollars(cost)


def _elapsed(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


_MOST_ROWS = 4
_LEAST_NEWEST = 12
_LONGEST_NAME = 40


class Activity(NamedTuple):
    """A running tool: its name, a summary of the call, its seconds so far, and its newest output."""

    name: str
    summary: str
    seconds: float
    newest: str = ""


def activity_lines(running: Sequence[Activity], width: int, frame: int | None) -> list[Line]:
    """Returns a row for each tool, at most four; if there are more, one row counts the rest.

    `frame` is the step of the spinner; `None` shows a sign that does not move.
    """
    shown = list(running[-_MOST_ROWS:]) if len(running) <= _MOST_ROWS else list(running[-(_MOST_ROWS - 1) :])
    sign = "▸" if frame is None else SPINNER[frame % len(SPINNER)]
    lines = [_activity_line(activity, width, sign) for activity in shown]
    if len(running) > len(shown):
        lines.insert(0, Line((Span(f"  … and {len(running) - len(shown)} more", "dim"),)))
    return lines


def _activity_line(activity: Activity, width: int, sign: str) -> Line:
    name, summary = cut(safe_display(activity.name, 60), _LONGEST_NAME), safe_display(activity.summary, 400)
    took = f" {int(activity.seconds)}s" if activity.seconds >= 1 else ""
    head = [Span(f" {sign} ", "activity"), Span(name, "tool.name")]
    used = sum([cell_width(span.text) for span in head]) + len(took) + 1
    room = max(width - used, 0)
    newest = safe_display(activity.newest, 400) if room >= 2 * _LEAST_NEWEST else ""
    summary = cut_middle(summary, max(room // 2 if newest else room - 1, 1)) if summary else ""
    spans = [*head, Span(f" {summary}" if summary else "", "text"), Span(took, "dim")]
    left = width - sum([cell_width(span.text) for span in spans]) - 4
    if newest and left >= _LEAST_NEWEST:
        spans.append(Span(f" │ {cut(newest, left)}", "dim"))
    return Line(tuple(spans))


def todo_lines(items: Sequence[TodoItem], width: int, *, is_open: bool, hint: str) -> list[Line]:
    """Returns the rows of the list; none if nothing is left to do. `hint` names the key that opens and folds it."""
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
    start = max(min(items.index(now) - 1, len(items) - _MOST_TODO_ROWS), 0)
    shown = items[start : start + _MOST_TODO_ROWS]
    before, after = start, len(items) - start - len(shown)
    rows: list[Line] = []
    for item in shown:
        sign, role = _SIGNS[item.status]
        spans = [Span(f"   {sign} ", role), Span(safe_row(item.text), _ROLES[item.status])]
        rows.append(Line(tuple(_fitted(spans, width))))
    if before:
        rows.insert(0, _todo_note(f"… {before} before", width))
    if after:
        rows.append(_todo_note(f"… {after} more", width))
    return [first, *rows]


def _with_hint(head: Sequence[Span], hint: str, width: int) -> Line:
    """Returns the head, with the hint at the right edge if both fit."""
    room = width - cell_width(hint) - 3
    if room < min(width_of(head), _LEAST_TEXT):
        return Line(tuple(_fitted(head, width)))
    shown = _fitted(head, room)
    return Line((*shown, Span(" " * (room - width_of(shown) + 2), "text"), Span(hint, "dim")))


def _todo_note(text: str, width: int) -> Line:
    return Line((Span(cut(f"     {text}", width), "dim"),))


def _fitted(spans: Sequence[Span], width: int, sign: str = "…") -> list[Span]:
    kept: list[Span] = []
    for span in spans:
        room = width - width_of(kept)
        if room <= 0:
            break
        kept.append(span._replace(text=cut(span.text, room, sign=sign)))
    return kept
