"""An approval question as lines, and laid out in rows of a window: the call, warnings, and the keys that answer.

Every row begins with our own text: rows of the call with a bar (`│`), others with other marks. Text of the model is
wrapped here, never by the terminal, so that it cannot look like one of our rows. The question, with its title and its
keys, is cut to the height of the window, however long the call is. The result is plain text; the front ends read the
keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from swink_agent.core.approval import REASON
from swink_agent.rendering.cells import FOLLOWING, cell_width, cut, cut_middle, laid_out, wrap
from swink_agent.rendering.escaping import safe_line

from .answers import offered_answers
from .approvals import ApprovalChoice, ApprovalQuestion
from .display import CallLine, LineKind, call_lines

_TITLE, _NOTE, _WARNING, _GAP = "◆ ", "  · ", "  ! ", "  … "
_GUTTERS: dict[LineKind, tuple[str, str, tuple[str, ...]]] = {
    "added": ("│+ ", "│↳ ", ("green",)),
    "removed": ("│- ", "│↳ ", ("red",)),
    "context": ("│  ", "│↳ ", ()),
    "hunk": ("│", "│↳ ", ("cyan",)),
    "access": ("│! ", "│↳ ", ("yellow",)),
}
"""The marks of a line's first and following rows, and their styles."""
_PLAIN = ("│ ", "│↳ ", ())
_LONG_LINE = 6  # a line of more rows than this is shown without its middle
_LEAST_CONTENT = 3
_MOST_TOLD, _TOLD_ROWS = 4, 3
_SLICE = 4096  # how many characters of a very long line are measured at once, when rows are made one by one


class Row(NamedTuple):
    """A row, no wider than the window, and its styles."""

    text: str
    styles: tuple[str, ...] = ()


class QuestionView:
    """The text of one question and its rows. `redact` masks secrets in each line before it is laid out."""

    def __init__(self, question: ApprovalQuestion, redact: Callable[[str], str] = str) -> None:
        request = question.shown or question.request
        if question.access is not None:  # the reason is in the sentence on it
            arguments = {key: value for key, value in request.arguments.items() if key != REASON}
            request = replace(request, arguments=arguments)
        lines = call_lines(request, command=question.command, details=question.details, limit=None)
        lines = _redacted(lines, redact)
        self.title = lines[0].text
        """What would run, and on which file."""
        self.lines = [line for line in lines[1:] if line.kind != "note"]
        """The whole call without its title: a command, a diff, or the arguments."""
        self.notes = [line.text for line in lines[1:] if line.kind == "note"]
        self.warnings = [redact(text) for text in question.warnings]
        self.why = redact(question.why)
        if question.access is not None:  # as a warning, the sentence is visible in every window
            self.warnings, self.why = [self.why, *self.warnings], ""
        self._low_rows = 1 if question.access is not None else _TOLD_ROWS
        # Answers that trust for longer come after yes and no; the view of the whole call comes last.
        longer = {*ApprovalChoice, "keep"} - {ApprovalChoice.ONCE, ApprovalChoice.NO}
        offered = [each for each in offered_answers(question, has_view=True) if each.in_line]
        every = sorted(offered, key=lambda answer: (answer.means == "view", answer.means in longer))
        self.keys = {answer.key: answer._replace(foreign=redact(safe_line(answer.foreign))) for answer in every}
        """The keys of a question that is asked on one line, in their order there."""

    def named(self, key: str) -> str:
        """What this letter or number means in a question that is asked on one line; "" if it means nothing here."""
        return next((each.means for each in self.keys.values() if key and key in (each.key, each.number)), "")

    def rows(self, width: int, height: int) -> list[Row]:
        """Everything but the keys, in the rows that the window has left for it."""
        height -= 1 + len(self.offer(width))
        title = self.title_rows(width)
        told = self.told_rows(width)
        room = height - 1 - len(title) - len(told)
        if room >= min(_LEAST_CONTENT, len(self.lines)):
            return [Row(""), *title, *self._content(width, room), *told]
        # A low window: the path directly above the keys, and as much of the rest as fits.
        warnings = self.warning_rows(width)
        title = self.title_rows(width, 1)
        room = max(height - len(title) - len(warnings), 1)
        return [*self._content(width, room), *warnings, *title]

    def offer(self, width: int) -> list[str]:
        """The keys, in rows; the last row has space left for the answer."""
        rows: list[str] = []
        row = "Run it? "
        for answer in self.keys.values():
            words = f"{answer.in_line} {answer.foreign}".rstrip()
            is_whole = cell_width(words) < width - 2
            words = words if is_whole else answer.in_line
            piece = words if answer.foreign or answer.means == "view" else f"{words}, "
            if cell_width(row + piece) > width - 2 and row.strip():
                rows.append(row.rstrip())
                row = "  "
            row += cut_middle(piece, max(width - 4, 8))
            if answer.foreign:  # the model's words end their row, so that they cannot look like words of ours
                rows.append(row.rstrip())
                rows += [] if is_whole else [f"     │ {part}" for part in wrap(answer.foreign, max(width - 7, 4))]
                row = "  "
        return [*rows, row if row.endswith(" ") else f"{row} "]

    def all_rows(self, width: int) -> list[Row]:
        """The whole call, for a pager."""
        rows = [row for line in self.lines for row in _laid(line, width, None)]
        return [*self.title_rows(width, 20), *rows, *_told(_NOTE, self.notes, width, ("cyan",))]

    def title_rows(self, width: int, most: int = 3) -> list[Row]:
        """What would run, and on which file. These rows are always visible."""
        title = cut_middle(self.title, most * (width - len(FOLLOWING)) - 2)
        return [Row(row, ("bold",)) for row in laid_out(title, _TITLE, FOLLOWING, width)]

    def content_rows(self, width: int) -> Iterator[Row]:
        """The whole call without its title, row by row on demand."""
        return (row for line in self.lines for row in _streamed(line, width))

    def told_rows(self, width: int) -> list[Row]:
        """Notes, warnings about the call, and the reason for the question."""
        return [
            *_told(_NOTE, self.notes, width, ("cyan",)),
            *_told(_WARNING, self.warnings, width, ("red", "bold")),
            *_told(_NOTE, [self.why] if self.why else [], width, ("dim",)),
        ]

    def warning_rows(self, width: int) -> list[Row]:
        """The warnings alone, for a low window."""
        return _told(_WARNING, self.warnings, width, ("red", "bold"), self._low_rows)

    def _content(self, width: int, room: int) -> list[Row]:
        """The lines in at most `room` rows: the first ones, how many are left out, the last ones."""
        lines = self.lines
        for most in (room, _LONG_LINE) if len(lines) <= room else ():
            rows = [row for line in lines for row in _laid(line, width, most)]
            if len(rows) <= room:
                return rows
        if room <= 1:
            return [Row(_counted(len(lines), width), ("dim",))]
        tail_room = max((room - 1) * 2 // 5, 0)
        head, used_head = _filled(lines, width, room - 1 - tail_room)
        tail, used_tail = _filled(lines[::-1], width, tail_room, backwards=True)
        missing = max(len(lines) - used_head - used_tail, 1)
        return [*head, Row(_counted(missing, width), ("dim",)), *tail]


def hunk_rows(lines: Iterable[tuple[LineKind, str]], width: int, redact: Callable[[str], str] = str) -> Iterator[Row]:
    """A part of a change in rows like those of a question, made safe and masked."""
    masked = _redacted([CallLine(kind, safe_line(text)) for kind, text in lines], redact)
    return (row for line in masked for row in _streamed(line, width))


def _filled(lines: list[CallLine], width: int, room: int, *, backwards: bool = False) -> tuple[list[Row], int]:
    """Rows of the first lines, at most `room`, and the number of lines that are complete."""
    taken: list[Row] = []
    whole = 0
    for line in islice(lines, room):
        rows = _laid(line, width, _LONG_LINE)
        if len(taken) + len(rows) > room:
            part = room - len(taken)
            taken = [*rows[len(rows) - part :], *taken] if backwards else [*taken, *rows[:part]]
            break
        taken = [*rows, *taken] if backwards else [*taken, *rows]
        whole += 1
    return taken, whole


def _counted(count: int, width: int) -> str:
    return cut(f"{_GAP}{count:,} more line{'s' * (count != 1)} (v shows all)", width)


def _laid(line: CallLine, width: int, most: int | None) -> list[Row]:
    first, following, styles = _GUTTERS.get(line.kind, _PLAIN)
    room = width - cell_width(following)
    far = None if most is None else 4 * most * room  # of a very long line, only its ends are measured
    if far is None or len(line.text) <= 2 * far:
        parts = wrap(line.text, room)
    else:
        parts = wrap(line.text[:far], room) + wrap(line.text[-far:], room)
    rows = [Row(f"{first if number == 0 else following}{part}", styles) for number, part in enumerate(parts)]
    if most is None or len(rows) <= max(most, 5):
        return rows
    hidden = len(line.text) - sum([len(part) for part in (*parts[: most - 3], *parts[-2:])])
    gap = Row(cut(f"{_GAP}{hidden:,} characters of this line", width), ("dim",))
    return [*rows[: most - 3], gap, *rows[-2:]]


def _streamed(line: CallLine, width: int) -> Iterator[Row]:
    """The rows of a line, made a slice at a time, so that a reader of its beginning does not wait for its end."""
    first, following, styles = _GUTTERS.get(line.kind, _PLAIN)
    room = width - cell_width(following)
    mark, rest = first, ""
    for start in range(0, max(len(line.text), 1), _SLICE):
        *whole, rest = wrap(rest + line.text[start : start + _SLICE], room)
        for row in whole:
            yield Row(f"{mark}{row}", styles)
            mark = following
    yield Row(f"{mark}{rest}", styles)


def _told(mark: str, texts: Sequence[str], width: int, styles: tuple[str, ...], most: int = _TOLD_ROWS) -> list[Row]:
    """Our sentences, which may quote the model, in a few rows each."""
    rows: list[Row] = []
    for text in texts[:_MOST_TOLD]:
        short = cut_middle(text, most * (width - len(mark)))
        rows += [Row(row, styles) for row in laid_out(short, mark, FOLLOWING, width)]
    if len(texts) > _MOST_TOLD:
        rows.append(Row(cut(f"{mark}and {len(texts) - _MOST_TOLD} more of these", width), styles))
    return rows


def _redacted(lines: list[CallLine], redact: Callable[[str], str]) -> list[CallLine]:
    """The lines with secrets masked, also secrets that span several lines."""
    single = [CallLine(line.kind, redact(line.text)) for line in lines]
    joined = "\n".join([line.text for line in single])
    masked = redact(joined)
    if masked == joined:
        return single
    texts = masked.split("\n")
    if len(texts) == len(lines):
        return [CallLine(line.kind, text) for line, text in zip(lines, texts, strict=True)]
    return [CallLine("title" if number == 0 else "field", text) for number, text in enumerate(texts)]
