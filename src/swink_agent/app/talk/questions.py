"""An approval question as data, and the answer that a choice means, for every front end.

Defines the choices of a question, the parts of a change that can be accepted one by one, and the answer for each
choice. A terminal lays it out in rows, a browser as a page. `approvals` decides which calls are asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from swink_agent.approvals.answers import AnswerKey, answer_for, kept_rule, offered_answers, reason_for
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion
from swink_agent.approvals.question import QuestionView
from swink_agent.core.approval import Defer
from swink_agent.rendering.escaping import safe_line
from swink_agent.tools.files.hunks import ChangeHunks


class AskedQuestion:
    """A question, ready to be shown and answered. Make it in a thread if the call is long: it compares texts."""

    def __init__(self, question: ApprovalQuestion, redact: Callable[[str], str] = str) -> None:
        self.question = question
        self.view = QuestionView(question, redact)
        self.hunks = _offered_hunks(question)
        """The parts of the change; `None` if it can only be accepted as a whole."""
        self.rule = kept_rule(question)
        """The rule that "keep" stores for the project; empty if it is not offered."""

        self.answers = [
            each._replace(foreign=redact(safe_line(each.foreign)))
            for each in offered_answers(question, has_hunks=self.hunks is not None)
        ]
        """The offered answers, in the order of the table of answers."""

    def named(self, key: str) -> AnswerKey | None:
        """Returns the offered answer with this number or letter."""
        return next((each for each in self.answers if key and key in (each.number, each.key)), None)

    def answer(self, means: str, reason: str = "", hunks: Collection[int] | None = None) -> ApprovalAnswer | Defer:
        """Returns the answer with this meaning, with the user's reason or with the accepted parts by number.

        Raises `ValueError` for one that is not offered, or for parts that do not exist.
        """
        offered = [each.means for each in self.answers]
        if means not in offered:
            raise ValueError(f"{means[:60]!r} is not among the choices of this question: {', '.join(offered)}")
        if means == "hunks" or hunks is not None:
            if means not in ("hunks", ApprovalChoice.ONCE):
                raise ValueError("only a yes can accept parts of a change")
            return _hunk_answer(self.hunks, hunks or ())
        return answer_for(self.question, means, reason)

    def given_up(self) -> ApprovalAnswer | Defer:
        """Returns the answer of a user who closes the question: it waits on if it can, else it is a no."""
        return answer_for(self.question, "later" if self.question.can_wait else ApprovalChoice.NO)


def _offered_hunks(question: ApprovalQuestion) -> ChangeHunks | None:
    """Returns the parts of a change; `None` if it can only be accepted as a whole."""
    hunks = ChangeHunks.of(question.request, question.details)
    return hunks if hunks is not None and len(hunks.hunks) > 1 else None


def _hunk_answer(hunks: ChangeHunks | None, accepted: Collection[int]) -> ApprovalAnswer:
    """Returns a yes with arguments that make only the accepted parts of a change; a no if none is accepted.

    Raises `ValueError` for a part that does not exist.
    """
    if hunks is None:
        raise ValueError("this call cannot be accepted in parts")
    chosen = set(accepted)
    if not chosen <= set(range(len(hunks.hunks))):
        raise ValueError(f"the parts of this change have the numbers 0 to {len(hunks.hunks) - 1}")
    if not chosen:
        return ApprovalAnswer(ApprovalChoice.NO, reason_for("none of the changes was accepted"))
    if len(chosen) == len(hunks.hunks):
        return ApprovalAnswer(ApprovalChoice.ONCE)
    arguments = hunks.arguments(chosen)
    if arguments is None:
        return ApprovalAnswer(ApprovalChoice.NO, reason_for("only a part of it was accepted: make smaller edits"))
    return ApprovalAnswer(ApprovalChoice.ONCE, hunks.told(chosen), arguments)
