"""A question in the place of the composer: what would run, and the keys that answer.

Owns the rows of it, what scrolls and what stays, the keys, and the moment in which no key counts. What is shown of a
call is in `policies.question`; which hunks a change has in `tools.hunks`. Every row of what a model wrote stands behind
a mark of ours, and the keys are drawn below it, where nothing of it comes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import ClassVar, Self

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion
from swink_agent.approvals.question import QuestionView, Row, hunk_rows
from swink_agent.rendering.cells import cell_width, cut, wrap
from swink_agent.rendering.escaping import safe_display
from swink_agent.tools.files.hunks import ChangeHunks

from ..composing.draft import Draft, plain_text
from ..composing.question_keys import Choice, choice_rows, choices_of, low_choice_rows, reason_for

__all__ = ["QuestionPanel"]

GRACE = 0.3
"""Seconds after the question is drawn in which no key answers it: it was meant for something else."""
_BESIDE = 50_000
"""Characters of a call past which its rows are made beside the event loop."""
_LEAST_CONTENT = 4
_LOW = 20
"""Rows of a window in which nothing is left for what can be missed."""
_LOWEST, _NARROW = 13, 64
"""Rows and columns in which the answers are told in few words."""
_COUNTED = 500
"""Rows that are made at once, so that their number can be said of most calls."""
_SHARE = 0.7
"""How much of the window the question takes at most."""


class _Rows:
    """Rows that are made as far as somebody looks."""

    def __init__(self, source: Iterator[Row], on_error: Callable[[Exception], None]) -> None:
        self._source = source
        self._on_error = on_error
        self.made: list[Row] = []
        self.is_all = False

    def at(self, number: int) -> Row | None:
        self.make(number + 1)
        return self.made[number] if number < len(self.made) else None

    def make(self, count: int | None) -> int:
        """Makes so many rows, or all of them, and gives how many there are."""
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
    """Asks one question, and posts one `Answered`."""

    ALLOW_SELECT: ClassVar[bool] = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "question--green",
        "question--red",
        "question--cyan",
        "question--yellow",
        "question--dim",
        "question--key",
        "question--cursor",
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
        """The answer that was given."""

        def __init__(self, panel: QuestionPanel, answer: ApprovalAnswer) -> None:
            super().__init__()
            self.panel = panel
            self.answer = answer

        @property
        def control(self) -> QuestionPanel:
            return self.panel

    def __init__(
        self,
        question: ApprovalQuestion,
        redact: Callable[[str], str] = str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.border_title = "Allow this?"
        self._question = question
        self._redact = redact
        self._clock = clock
        self._view: QuestionView | None = None
        self._problem = ""
        """Why the call cannot be shown, if it cannot."""
        self._hunks: ChangeHunks | None = None
        self._choices: dict[str, Choice] = {}
        self._drawn_at: float | None = None
        self._is_answered = False
        self._reason: Draft | None = None
        self._hunk: int | None = None
        self._accepted: set[int] = set()
        self._rows: dict[int, _Rows] = {}
        self._top = 0
        self._content_height = 0
        self._laid: tuple[int, tuple[list[list[Segment]], list[list[Segment]]]] | None = None
        self._making: asyncio.Task[None] | None = None

    @property
    def question(self) -> ApprovalQuestion:
        """What is asked."""
        return self._question

    # -- making it ---------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        try:
            if _size(self._question) <= _BESIDE:
                self._prepared(*self._prepare())
            else:
                self._making = asyncio.create_task(self._prepare_beside())
        except Exception as error:
            self._fail(error)

    async def _prepare_beside(self) -> None:
        try:
            self._prepared(*await asyncio.to_thread(self._prepare))
        except Exception as error:
            self._fail(error)

    def _prepare(self) -> tuple[QuestionView, ChangeHunks | None]:
        asked = self._question
        return QuestionView(asked, self._redact), ChangeHunks.of(asked.request, asked.details)

    def _prepared(self, view: QuestionView, hunks: ChangeHunks | None) -> None:
        self._view, self._hunks = view, hunks
        self._choices = choices_of(self._question, view.name, has_hunks=hunks is not None)
        self._rows.clear()
        self.refresh(layout=True)

    def _fail(self, error: Exception) -> None:
        """The call cannot be shown, by a mistake of ours: it is told, and nothing but a no can be said to it."""
        told = safe_display(f"this call cannot be shown ({type(error).__name__}), so it cannot be allowed", 400)
        self._problem = told
        self._view = self._hunks = self._hunk = None
        every = choices_of(self._question, "", has_hunks=False)
        says_no = (ApprovalChoice.NO, "because")
        self._choices = {key: choice._replace(is_offered=choice.means in says_no) for key, choice in every.items()}
        self._rows.clear()
        self.call_later(self.refresh, layout=True)  # it may be just being drawn

    @property
    def _is_ready(self) -> bool:
        return self._view is not None or bool(self._problem)

    def on_unmount(self) -> None:
        if self._making is not None:
            self._making.cancel()

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

    def _source(self, width: int) -> Iterator[Row]:
        if self._problem:
            return iter([Row(row, ("red",)) for row in wrap(self._problem, width, at_words=True)])
        if self._view is None:
            return iter([Row("  … reading the call", ("dim",))])
        if self._hunk is not None and self._hunks is not None:
            return hunk_rows(self._hunks.hunks[self._hunk].lines, width, self._redact)
        return self._view.content_rows(width)

    def _fixed(self, width: int) -> tuple[list[list[Segment]], list[list[Segment]]]:
        """What is always in view: the title above, and below what is odd, and the keys."""
        if self._laid is None or self._laid[0] != width:
            self._laid = (width, self._lay_out(width))
        return self._laid[1]

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        self._laid = None  # whatever is drawn again is laid out again
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def notify_style_update(self) -> None:
        self._laid = None
        super().notify_style_update()

    def _lay_out(self, width: int) -> tuple[list[list[Segment]], list[list[Segment]]]:
        if not self._is_ready:
            return [], []
        is_low = self.screen.size.height < _LOW
        head: list[list[Segment]] = []
        told: list[list[Segment]] = []
        if self._view is not None:
            head = [self._drawn(row) for row in self._view.title_rows(width, 1 if is_low else 2)]
            rows = self._view.told_rows(width)
            told = [self._drawn(row) for row in rows if not is_low or "red" in row.styles]
        if self._reason is not None:
            return head, [*told, *self._reason_rows(width)]
        if self._hunk is not None and self._hunks is not None:
            return head, self._hunk_rows(width, self._hunk + 1, len(self._hunks.hunks))
        is_lowest = self.screen.size.height < _LOWEST and width < _NARROW
        keys = (low_choice_rows if is_lowest else choice_rows)(self._choices.values(), width)
        gap: list[list[Segment]] = [] if is_low else [[]]
        return head, [*told, *gap, *[[Segment(text, self._style(kind)) for text, kind in row] for row in keys]]

    def _reason_rows(self, width: int) -> list[list[Segment]]:
        assert self._reason is not None
        base = self.rich_style
        said = self._reason.text
        room = max(width - 14, 8)
        while cell_width(said) >= room:
            said = said[1:]  # the end is what is being typed
        asked = [Segment("No, because: ", self._style("key")), Segment(said, base)]
        return [
            [*asked, Segment(" ", base + self._style("cursor"))],
            [Segment(cut("Enter says no and tells the model why · Esc back", width), self._style("dim"))],
        ]

    def _hunk_rows(self, width: int, number: int, total: int) -> list[list[Segment]]:
        told = f"Hunk {number} of {total} · {len(self._accepted)} accepted"
        keys = "  y take it   n leave it   a take all that follow   d done   Esc back"
        return [
            [],
            [Segment(cut(told, width), self._style("key"))],
            [Segment(cut(keys, width), self.rich_style)],
        ]

    def _style(self, name: str) -> Style:
        return self.rich_style if name in ("", "bold") else self.get_component_rich_style(f"question--{name}")

    def _drawn(self, row: Row) -> list[Segment]:
        style = self.rich_style
        for name in row.styles:
            style = style + Style(bold=True) if name == "bold" else self._style(name)
        return [Segment(row.text, style)]

    def render_line(self, y: int) -> Strip:
        if self._drawn_at is None and self._is_ready and self.screen.is_active:
            self._drawn_at = self._clock()  # not while something stands over it: nobody reads it then
        width = self.content_size.width
        if y == 0:
            self._tell_place(width)
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

    def _tell_place(self, width: int) -> None:
        """Says in the border how much lies above and below what is seen."""
        rows = self._content(width)
        below = len(rows.made) - self._top - self._content_height
        told = ""
        if self._top > 0 or below > 0 or not rows.is_all:
            last = min(self._top + self._content_height, len(rows.made))
            told = f"rows {self._top + 1:,}-{last:,} of {len(rows.made):,}{'' if rows.is_all else '+'} · ↑↓ PgUp PgDn"
        if self.border_subtitle != told:
            self.call_later(setattr, self, "border_subtitle", told)

    def _scroll(self, step: int | None) -> None:
        """Moves what is seen of the call; `None` is to its end."""
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
        """It has come to sight: from here on it is read, and no key counts for a moment."""
        self._drawn_at = None
        self.refresh()

    @property
    def is_early(self) -> bool:
        """Whether no key counts yet."""
        return self._drawn_at is None or self._clock() - self._drawn_at < GRACE

    async def _on_key(self, event: events.Key) -> None:
        if event.key in ("ctrl+c", "ctrl+q"):
            return  # those stop and quit from anywhere
        if self._is_answered or not self._is_ready or self.is_early:
            event.stop()
            event.prevent_default()
            return
        if self._scroll_key(event.key) or self._act(event):
            event.stop()
            event.prevent_default()

    def _scroll_key(self, key: str) -> bool:
        page = max(self._content_height - 1, 1)
        steps: dict[str, int | None] = {
            "up": -1,
            "down": 1,
            "pageup": -page,
            "pagedown": page,
            "space": page,
            "home": -(10**9),
            "end": None,
        }
        if key not in steps or (self._reason is not None and key in ("space", "home", "end")):
            return False
        if self._top == 0 and self._content(self.content_size.width).is_all and self._is_all_seen():
            return key in ("up", "down", "space")  # nothing to scroll here: the transcript may have the key
        self._scroll(steps[key])
        return True

    def _is_all_seen(self) -> bool:
        return len(self._content(self.content_size.width).made) <= self._content_height

    def _act(self, event: events.Key) -> bool:
        if self._reason is not None:
            return self._type_reason(event, self._reason)
        key = event.key if event.character is None or not event.is_printable else event.character.lower()
        if self._hunk is not None and self._hunks is not None:
            return self._hunk_key(key, self._hunk, self._hunks)
        if key == "escape":
            self._answer(ApprovalAnswer(ApprovalChoice.NO, reason_for("")))
            return True
        choice = self._choices.get(key)
        if choice is None:
            return event.is_printable or key in ("enter", "tab")
        if not choice.is_offered:
            return True
        if choice.means == "because":
            self._reason = Draft()
        elif choice.means == "hunks":
            self._hunk, self._top, self._accepted = 0, 0, set()
            self._rows.clear()
        else:
            reason = reason_for("") if choice.means == ApprovalChoice.NO else ""
            self._answer(ApprovalAnswer(ApprovalChoice(choice.means), reason))
            return True
        self.refresh(layout=True)
        return True

    def _type_reason(self, event: events.Key, reason: Draft) -> bool:
        if event.key == "escape":
            self._reason = None
        elif event.key == "enter":
            self._answer(ApprovalAnswer(ApprovalChoice.NO, reason_for(reason.text)))
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

    async def _on_paste(self, event: events.Paste) -> None:
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
            self._answer(_answer_of(hunks, self._accepted))
            return True
        self._rows.clear()
        self.refresh(layout=True)
        return True

    def _answer(self, answer: ApprovalAnswer) -> None:
        if not self._is_answered:
            self._is_answered = True
            self.post_message(self.Answered(self, answer))

    # -- the mouse ---------------------------------------------------------------------------------------------

    def _on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._scroll(-3)

    def _on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._scroll(3)


def _answer_of(hunks: ChangeHunks, accepted: set[int]) -> ApprovalAnswer:
    """A yes to the accepted hunks, with the arguments that make those and no other."""
    if not accepted:
        return ApprovalAnswer(ApprovalChoice.NO, reason_for("none of the changes was accepted"))
    if len(accepted) == len(hunks.hunks):
        return ApprovalAnswer(ApprovalChoice.ONCE)
    arguments = hunks.arguments(accepted)
    if arguments is None:
        return ApprovalAnswer(ApprovalChoice.NO, reason_for("only a part of it was accepted: make smaller edits"))
    return ApprovalAnswer(ApprovalChoice.ONCE, hunks.told(accepted), arguments)


def _size(question: ApprovalQuestion) -> int:
    """How much there is to lay out, more or less."""
    return len(repr((question.request.arguments, question.details)))  # whatever is in them, text or not
