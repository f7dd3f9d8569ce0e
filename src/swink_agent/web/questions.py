"""Questions that any of many readers can answer: about a call, or from the program itself with a few choices.

Owns the form of a question for readers, and that exactly one answer counts. `app.talk.questions` interprets the answer.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from swink_agent.app.talk.front import PickItem
from swink_agent.app.talk.questions import AskedQuestion
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalQuestion
from swink_agent.core.approval import Defer
from swink_agent.rendering.escaping import safe_line

from .problems import Problem, invalid, not_found

_MOST_ANSWERED = 1000
_BESIDE = ("because", "hunks")
"""Answers that are not separate choices here: a no with `reason`, a yes with `hunks`."""


class ShownLine(msgspec.Struct, frozen=True):
    """A line of a call: its kind (`command`, `added`, `removed`, `context`, `hunk`, `field` …) and its text."""

    kind: str
    text: str


class ShownHunk(msgspec.Struct, frozen=True):
    """A part of a change that can be accepted alone."""

    lines: list[ShownLine]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question, as in `questions` of a session and in the event `question`. All texts are masked and escaped."""

    id: str
    kind: str = "call"
    """`call`, or `choice` for a question of the program itself."""
    call_id: str = ""
    name: str = ""
    display: str = ""
    """The whole call as text."""
    why: str = ""
    warnings: list[str] = []
    choices: list[str] = []
    labels: dict[str, str] = {}
    """The words for each choice."""
    details: dict[str, str] = {}
    """Further words about choices, for a question of the program."""
    prefix: str | None = None
    hunks: list[ShownHunk] = []
    title: str = ""
    lines: list[ShownLine] = []
    notes: list[str] = []
    path: str = ""
    """The file that the call changes."""
    number: int = 1
    """Which of the reply's calls this is, of `total`."""
    total: int = 1


class _Open:
    """A question that waits for its answer."""

    def __init__(self, question: Question, asked: AskedQuestion | None) -> None:
        self.question = question
        self.asked = asked
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class Questions:
    """The open questions of one session. `tell` is called with each event for the readers."""

    def __init__(self, tell: Callable[[str, Any], None], changed: Callable[[], None]) -> None:
        self._tell = tell
        self._changed = changed
        self._open: dict[str, _Open] = {}
        self._answered: deque[str] = deque(maxlen=_MOST_ANSWERED)

    @property
    def has_calls(self) -> bool:
        """Whether a run waits for an answer. An offer of the program, such as a list of models, holds up nothing."""
        return any(each.asked is not None for each in self._open.values())

    @property
    def has_offers(self) -> bool:
        return any(each.asked is None for each in self._open.values())

    def is_offer(self, question_id: str) -> bool:
        """Whether this question is open, and an offer of the program itself."""
        each = self._open.get(question_id)
        return each is not None and each.asked is None

    @property
    def open(self) -> list[Question]:
        return [each.question for each in self._open.values()]

    async def ask(
        self, question: ApprovalQuestion, redact: Callable[[str], str], place: tuple[int, int] = (1, 1)
    ) -> tuple[ApprovalAnswer | Defer, str]:
        """Asks, and returns the answer and the rule to keep for the project; "" if none is to be kept."""
        asked = await asyncio.to_thread(AskedQuestion, question, redact)
        shown = await asyncio.to_thread(_shown, secrets.token_hex(8), asked, redact, place)
        answer, choice = await self._wait(_Open(shown, asked))
        return answer, asked.rule if choice == "keep" else ""

    async def choose(self, title: str, items: Sequence[PickItem], redact: Callable[[str], str]) -> str | None:
        """Returns the key of the item that a reader chooses; `None` for none of them."""
        choices = [item.key for item in items]
        shown = Question(
            id=secrets.token_hex(8),
            kind="choice",
            title=redact(title),
            display=redact(title),
            choices=[*choices, "none"],
            labels={**{item.key: safe_line(redact(item.label), 200) for item in items}, "none": "none of these"},
            details={item.key: safe_line(redact(item.detail), 200) for item in items if item.detail},
        )
        _, choice = await self._wait(_Open(shown, None))
        return choice if choice in choices else None

    def close_offers(self) -> None:
        """Closes the questions of the program itself, as if none of their choices was taken."""
        for question_id, each in list(self._open.items()):
            if each.asked is None and not each.answer.done():
                self._end(question_id, "", "")
                each.answer.set_result((None, ""))

    async def _wait(self, each: _Open) -> tuple[Any, str]:
        question_id = each.question.id
        self._open[question_id] = each
        self._tell("question", each.question)
        self._changed()
        try:
            return await each.answer
        finally:
            if question_id in self._open:  # the run was stopped, or its task was cancelled
                self._end(question_id, "", "")
            self._changed()

    def _end(self, question_id: str, choice: str, by: str) -> None:
        del self._open[question_id]
        self._answered.append(question_id)
        self._tell("answered", {"question": question_id, "choice": choice, "by": by})

    def answer(self, question_id: str, choice: str, reason: str, hunks: Sequence[int] | None, by: str) -> None:
        """Takes an answer. Raises `Problem` if the question is answered already, or does not offer this answer."""
        each = self._open.get(question_id)
        if each is None or each.answer.done():  # done but still open: its run has just been stopped
            if each is not None or question_id in self._answered:
                raise Problem(409, "answered", "this question is answered already, or its run was stopped")
            raise not_found(f"there is no question {question_id[:40]!r} in this session")
        answer: ApprovalAnswer | Defer | None = None
        if each.asked is not None:
            try:
                answer = each.asked.answer(choice, reason, hunks)
            except ValueError as error:
                raise invalid(str(error)) from None
        elif choice not in each.question.choices:
            raise invalid(f"{choice[:60]!r} is not among the choices of this question: take one that it lists")
        self._end(question_id, choice, by)
        each.answer.set_result((answer, choice))


def _shown(question_id: str, asked: AskedQuestion, redact: Callable[[str], str], place: tuple[int, int]) -> Question:
    question, text = asked.question, asked.view
    offered = [each for each in asked.answers if each.means not in _BESIDE]
    details = question.details or {}
    hunks = () if asked.hunks is None else asked.hunks.hunks
    return Question(
        id=question_id,
        call_id=question.request.call_id,
        name=redact(safe_line(question.request.name, 100)),
        display="\n".join([text.title, *[line.marked for line in text.lines], *text.notes]),
        why=text.why,
        warnings=text.warnings,
        choices=[each.means for each in offered],
        labels={each.means: f"{each.label} {each.foreign}".rstrip() for each in offered},
        prefix=None if question.prefix is None else redact(question.prefix),
        hunks=[ShownHunk([ShownLine(kind, redact(safe_line(line))) for kind, line in hunk.lines]) for hunk in hunks],
        title=text.title,
        lines=[ShownLine(line.kind, line.text) for line in text.lines],
        notes=text.notes,
        path=redact(safe_line(str(details.get("path", "")))),
        number=place[0],
        total=place[1],
    )
