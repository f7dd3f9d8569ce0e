"""The approval question, shown instead of the composer: the tool call, and the keys that answer.

Owns the layout, scrolling, the keys, and the short time in which keys are ignored. `approvals.question` decides which
parts of a call are shown; `tools.files.hunks` finds the hunks of a change. Every row of text from the model starts with
a mark of ours, and the keys are drawn below all of it, so that the model's text cannot imitate them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from swink_agent.app.talk.questions import AskedQuestion
from swink_agent.approvals.answers import AnswerKey, answer_for, offered_answers
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion
from swink_agent.approvals.question import Row, hunk_rows
from swink_agent.core.approval import Defer
from swink_agent.rendering.cells import cell_width, cut, wrap
from swink_agent.rendering.escaping import safe_display, safe_line
from swink_agent.rendering.turns import changed_texts
from swink_agent.tools.files.hunks import ChangeHunks

from ..composing.draft import Draft, plain_text
from ..composing.question_keys import choice_rows, low_choice_rows
from ..transcript.diffs import Change
from ..transcript.line import Line

if TYPE_CHECKING:
    from .strips import ThemeStyles

GRACE = 0.3
"""Seconds after the question is first drawn in which keys are ignored, because they were meant for something else."""
_LARGE = 50_000
"""A call with more characters than this is prepared in a thread, not in the event loop."""
_LEAST_CONTENT = 4
_LOW = 20
"""A window with fewer rows than this shows only the essential parts."""
_LOWEST, _NARROW = 13, 64
"""Windows smaller than this, in rows and columns, show the answers in short form."""
_COUNTED = 500
"""Rows that are made at once, so that the total can be shown for most calls."""
_TITLE, _ACCESS_TITLE = "Allow this?", "Allow this access?"
_MOST_DRAWN, _LONGEST_DRAWN = 2_000, 4_000
"""Lines of a change, and characters of a line, up to which it is drawn as in the transcript. Larger changes are drawn
as plain rows, which are made when the user scrolls to them."""
_SHARE = 0.7
"""The largest share of the window's rows that the question takes."""


class _Rows:
    """Rows that are made only as far as the user scrolls."""

    def __init__(self, source: Iterator[Row | Line], on_error: Callable[[Exception], None]) -> None:
        self._source = source
        self._on_error = on_error
        self.made: list[Row | Line] = []
        self.is_all = False

    def at(self, number: int) -> Row | Line | None:
        self.make(number + 1)
        return self.made[number] if number < len(self.made) else None

    def make(self, count: int | None) -> int:
        """Makes rows until there are `count`, or all of them for `None`; returns how many exist."""
        while not self.is_all and (count is None or len(self.made) < count):
            try:
                row = next(self._source, None)
            except Exception as error:
                self._on_error(error)
                row = None
            if row is None:
                self.is_all = True
            else:
                self.made.append(row)
        return len(self.made)


class QuestionPanel(Widget, can_focus=True):
    """Asks one question and posts one `Answered`."""

    ALLOW_SELECT: ClassVar[bool] = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"question--{name}" for name in ("green", "red", "cyan", "yellow", "dim", "key", "cursor")
    }
    DEFAULT_CSS = """
    QuestionPanel {
        height: auto;
        width: 1fr;
        border: round $warning;
        border-title-color: $warning;
        border-title-style: bold;
        border-subtitle-color: $text-muted;
        border-subtitle-style: none;
        padding: 0 1;
        & > .question--green { color: $text-success; }
        & > .question--red { color: $text-error; }
        & > .question--cyan { color: $text-primary; }
        & > .question--yellow { color: $text-warning; }
        & > .question--dim { color: $text-muted; }
        & > .question--key { color: $text-warning; text-style: bold; }
        & > .question--cursor { text-style: reverse; }
    }
    """

    class Answered(Message):
        """The user's answer."""

        def __init__(self, panel: QuestionPanel, answer: ApprovalAnswer | Defer) -> None:
            super().__init__()
            self.panel = panel
            self.answer = answer

    def __init__(
        self,
        question: ApprovalQuestion,
        redact: Callable[[str], str] = str,
        *,
        looks: Callable[[], ThemeStyles] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.border_title = self._title = _TITLE if question.access is None else _ACCESS_TITLE
        self._looks = looks
        self.kept = ""
        """The rule that the user wants to keep for this project, or ""."""
        self._change: Change | None = None
        self.question = question
        self._redact = redact
        self._clock = clock
        self._asked: AskedQuestion | None = None
        """The call as it is shown; `None` until it is prepared, or if it cannot be shown."""
        self._problem = ""
        """Why the call cannot be shown, or "" if it can."""
        self._answers: list[AnswerKey] = []
        self._drawn_at: float | None = None
        self._is_answered = False
        self._reason: Draft | None = None
        self._hunk: int | None = None
        self._accepted: set[int] = set()
        self._rows: dict[int, _Rows] = {}
        self._top = 0
        self._content_height = 0
        self._fixed_cache: tuple[int, tuple[list[list[Segment]], list[list[Segment]]]] | None = None
        self._prepare_task: asyncio.Task[None] | None = None

    def set_place(self, number: int, total: int) -> None:
        """Shows in the title which call of a batch this is."""
        self.border_title = self._title if total < 2 else f"{self._title} (call {number} of {total})"

    # -- preparing ---------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        try:
            asked = (self.question.request.arguments, self.question.details)
            if len(repr(asked)) <= _LARGE:  # repr counts values of any type
                self._prepared(*self._prepare())
            else:
                self._prepare_task = asyncio.create_task(self._prepare_in_thread())
        except Exception as error:
            self._fail(error)

    async def _prepare_in_thread(self) -> None:
        try:
            self._prepared(*await asyncio.to_thread(self._prepare))
        except Exception as error:
            self._fail(error)

    def _prepare(self) -> tuple[AskedQuestion, Change | None]:
        return AskedQuestion(self.question, self._redact), self._change_of(self.question.details)

    def _change_of(self, details: Mapping[str, Any] | None) -> Change | None:
        """Returns the change as the transcript will draw it, or `None` if it is too long or changes nothing."""
        texts = changed_texts(details)
        if self._looks is None or details is None or texts is None:
            return None
        old, new = map(self._redact, texts)
        change = Change(str(details.get("path", "")), old, new, shown=safe_line)
        return change if 0 < change.size <= _MOST_DRAWN and change.longest <= _LONGEST_DRAWN else None

    def _prepared(self, asked: AskedQuestion, change: Change | None) -> None:
        self._asked, self._change, self._answers = asked, change, asked.answers
        self._rows.clear()
        self.refresh(layout=True)

    def _fail(self, error: Exception) -> None:
        """Reports that a bug prevents showing the call. The user can refuse it or answer later, but not allow it."""
        problem = f"this call cannot be shown ({type(error).__name__}), so it cannot be allowed"
        self._problem = safe_display(problem, 400)
        self._asked = self._hunk = self._change = None
        says_no = (ApprovalChoice.NO, "because", "later")
        self._answers = [each for each in offered_answers(self.question) if each.means in says_no]
        self._rows.clear()
        self.call_later(self.refresh, layout=True)  # later, because this may run in the middle of drawing

    @property
    def _is_ready(self) -> bool:
        return self._asked is not None or bool(self._problem)

    @property
    def _hunks(self) -> ChangeHunks | None:
        return None if self._asked is None else self._asked.hunks

    def on_unmount(self) -> None:
        if self._prepare_task is not None:
            self._prepare_task.cancel()

    # -- rows --------------------------------------------------------------------------------------------------

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        head, foot = self._fixed(width)
        window = self.screen.size.height
        most = max(int(window * _SHARE), min(window - 2, len(head) + len(foot) + 2 + _LEAST_CONTENT)) - 2
        room = max(most - len(head) - len(foot), 1)
        self._content_height = min(self._content(width).make(max(room + 1, _COUNTED)), room)
        return len(head) + self._content_height + len(foot)

    def _content(self, width: int) -> _Rows:
        rows = self._rows.get(width)
        if rows is None:
            self._rows = {width: (rows := _Rows(self._source(width), self._fail))}
        return rows

    def _source(self, width: int) -> Iterator[Row | Line]:
        if self._problem:
            return iter([Row(row, ("red",)) for row in wrap(self._problem, width, at_words=True)])
        if self._asked is None:
            return iter([Row("  … reading the call", ("dim",))])
        if self._hunk is not None and self._hunks is not None:
            lines = self._hunks.hunks[self._hunk].lines
            if self._change is None:
                return hunk_rows(lines, width, self._redact)
            return iter(self._change.part([(kind, self._redact(text)) for kind, text in lines]).lines(width - 1))
        if self._change is not None:
            return iter(self._change.lines(width - 1))
        return self._asked.view.content_rows(width)

    def _fixed(self, width: int) -> tuple[list[list[Segment]], list[list[Segment]]]:
        """Returns the rows that do not scroll: the title above, and the warnings and keys below."""
        if self._fixed_cache is None or self._fixed_cache[0] != width:
            self._fixed_cache = (width, self._lay_out(width))
        return self._fixed_cache[1]

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        self._fixed_cache = None  # every redraw needs a new layout
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def notify_style_update(self) -> None:
        self._fixed_cache = None
        super().notify_style_update()

    def _lay_out(self, width: int) -> tuple[list[list[Segment]], list[list[Segment]]]:
        if not self._is_ready:
            return [], []
        is_low = self.screen.size.height < _LOW
        head: list[list[Segment]] = []
        notes: list[list[Segment]] = []
        if self._asked is not None:
            view = self._asked.view
            head = [self._drawn(row) for row in view.title_rows(width, 1 if is_low else 2)]
            rows = view.warning_rows(width) if is_low else view.told_rows(width)
            notes = [self._drawn(row) for row in rows]
        if self._reason is not None:
            return head, [*notes, *self._reason_rows(width)]
        if self._hunk is not None and self._hunks is not None:
            return head, self._hunk_rows(width, self._hunk + 1, len(self._hunks.hunks))
        is_lowest = self.screen.size.height < _LOWEST and width < _NARROW
        keys = (low_choice_rows if is_lowest else choice_rows)(self._answers, width)
        gap: list[list[Segment]] = [] if is_low else [[]]
        return head, [*notes, *gap, *[[Segment(text, self._style(kind)) for text, kind in row] for row in keys]]

    def _reason_rows(self, width: int) -> list[list[Segment]]:
        assert self._reason is not None
        base = self.rich_style
        said = self._reason.text
        room = max(width - 14, 8)
        while cell_width(said) >= room:
            said = said[1:]  # keep the end visible, where the user types
        asked = [Segment("No, because: ", self._style("key")), Segment(said, base)]
        return [
            [*asked, Segment(" ", base + self._style("cursor"))],
            [Segment(cut("Enter says no and tells the model why · Esc back", width), self._style("dim"))],
        ]

    def _hunk_rows(self, width: int, number: int, total: int) -> list[list[Segment]]:
        heading = f"Hunk {number} of {total} · {len(self._accepted)} accepted"
        keys = "  y take it   n leave it   a take all that follow   d done   Esc back"
        return [[], [Segment(cut(heading, width), self._style("key"))], [Segment(cut(keys, width), self.rich_style)]]

    def _style(self, name: str) -> Style:
        return self.rich_style if name in ("", "bold") else self.get_component_rich_style(f"question--{name}")

    def _drawn(self, row: Row | Line) -> list[Segment]:
        if isinstance(row, Line):  # of a change: every row starts with our bar
            assert self._looks is not None
            looks = self._looks()
            return [Segment("│", self.rich_style), *[Segment(span.text, looks.style(span.role)) for span in row.spans]]
        style = self.rich_style
        for name in row.styles:
            style = style + Style(bold=True) if name == "bold" else self._style(name)
        return [Segment(row.text, style)]

    def render_line(self, y: int) -> Strip:
        if self._drawn_at is None and self._is_ready and self.screen.is_active:
            self._drawn_at = self._clock()  # not while another screen covers it, because the user cannot read it then
        width = self.content_size.width
        if y == 0:
            self._show_position(width)
        head, foot = self._fixed(width)
        content = self.content_size.height - len(head) - len(foot)
        if y < len(head):
            segments = head[y]
        elif y < len(head) + content:
            row = self._content(width).at(self._top + y - len(head))
            segments = [] if row is None else self._drawn(row)
        else:
            segments = foot[y - len(head) - content] if y - len(head) - content < len(foot) else []
        used = sum([cell_width(segment.text) for segment in segments])
        return Strip([*segments, Segment(" " * max(width - used, 0), self.rich_style)], max(used, width))

    def _show_position(self, width: int) -> None:
        """Shows in the border which rows of how many are visible."""
        rows = self._content(width)
        below = len(rows.made) - self._top - self._content_height
        position = ""
        if self._top > 0 or below > 0 or not rows.is_all:
            last = min(self._top + self._content_height, len(rows.made))
            total = f"{len(rows.made):,}{'' if rows.is_all else '+'}"
            position = f"rows {self._top + 1:,}-{last:,} of {total} · ↑↓ PgUp PgDn"
        if self.border_subtitle != position:
            self.call_later(setattr, self, "border_subtitle", position)

    def _scroll(self, step: int | None) -> None:
        """Scrolls the call by rows, or to its end for `None`."""
        rows = self._content(self.content_size.width)
        seen = self._content_height
        have = rows.make(None if step is None else self._top + seen + max(step, 0) + 1)
        most = max(have - seen, 0)
        top = most if step is None else max(0, min(self._top + step, most))
        if top != self._top:
            self._top = top
            self.refresh()

    # -- keys --------------------------------------------------------------------------------------------------

    def begin_grace(self) -> None:
        """Ignores keys for a moment again, because the question has just become visible."""
        self._drawn_at = None
        self.refresh()

    @property
    def is_early(self) -> bool:
        return self._drawn_at is None or self._clock() - self._drawn_at < GRACE

    async def on_key(self, event: events.Key) -> None:
        if event.key in ("ctrl+c", "ctrl+q"):
            return  # these keys stop and quit everywhere
        if self._is_answered or not self._is_ready or self.is_early:
            event.stop()
            event.prevent_default()
            return
        if self._scroll_key(event.key) or self._act(event):
            event.stop()
            event.prevent_default()

    def _scroll_key(self, key: str) -> bool:
        page = max(self._content_height - 1, 1)
        steps: dict[str, int | None] = {"up": -1, "down": 1, "pageup": -page, "pagedown": page, "space": page}
        steps |= {"home": -(10**9), "end": None}
        if key not in steps or (self._reason is not None and key in ("space", "home", "end")):
            return False
        rows = self._content(self.content_size.width)
        if self._top == 0 and rows.is_all and len(rows.made) <= self._content_height:
            return key in ("up", "down", "space")  # nothing to scroll here: the other keys scroll the transcript
        self._scroll(steps[key])
        return True

    def _act(self, event: events.Key) -> bool:
        if self._reason is not None:
            return self._type_reason(event, self._reason)
        key = event.key if event.character is None or not event.is_printable else event.character.lower()
        if self._hunk is not None and self._hunks is not None:
            return self._hunk_key(key, self._hunk, self._hunks)
        if key == "escape":
            self._answer(answer_for(self.question, "later" if self.question.can_wait else ApprovalChoice.NO))
            return True
        choice = next((each for each in self._answers if key in (each.number, each.key)), None)
        if choice is None:
            return event.is_printable or key in ("enter", "tab")
        if choice.means == "because":
            self._reason = Draft()
        elif choice.means == "hunks":
            self._hunk, self._top, self._accepted = 0, 0, set()
            self._rows.clear()
        else:
            self.kept = self._asked.rule if choice.means == "keep" and self._asked is not None else ""
            self._answer(answer_for(self.question, choice.means))
            return True
        self.refresh(layout=True)
        return True

    def _type_reason(self, event: events.Key, reason: Draft) -> bool:
        if event.key == "escape":
            self._reason = None
        elif event.key == "enter":
            self._answer(answer_for(self.question, "because", reason.text))
        elif event.key in ("backspace", "ctrl+h"):
            reason.delete_left()
        elif event.key in ("ctrl+w", "alt+backspace"):
            reason.delete_word_left()
        elif event.key == "ctrl+u":
            reason.set("")
        elif event.is_printable and event.character is not None:
            reason.insert(event.character, is_typed=True)
        else:
            return False
        self.refresh(layout=event.key == "escape")
        return True

    async def on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if self._reason is not None:
            self._reason.insert(" ".join(plain_text(event.text)[:2000].split()))
            self.refresh()

    def _hunk_key(self, key: str, number: int, hunks: ChangeHunks) -> bool:
        total = len(hunks.hunks)
        if key == "escape":
            self._hunk, self._top = None, 0
        elif key in ("y", "n"):
            if key == "y":
                self._accepted.add(number)
            self._hunk, self._top = number + 1, 0
        elif key == "a":
            self._accepted |= set(range(number, total))
            self._hunk = total
        elif key == "d":
            self._hunk = total
        else:
            return True
        if self._hunk == total:
            self._hunk = None
            assert self._asked is not None
            self._answer(self._asked.answer("hunks", hunks=self._accepted))
            return True
        self._rows.clear()
        self.refresh(layout=True)
        return True

    def _answer(self, answer: ApprovalAnswer | Defer) -> None:
        if not self._is_answered:
            self._is_answered = True
            self.post_message(self.Answered(self, answer))

    # -- the mouse ---------------------------------------------------------------------------------------------

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._scroll(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._scroll(3)
