"""An approval question as data, and the answer that a choice means, for every front end.

Defines the choices of a question, the parts of a change that can be accepted one by one, and the answer for each
choice. A terminal lays it out in rows, a browser as a page. `approvals` decides which calls are asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from swink_agent.approvals.access import to_remember
from swink_agent.approvals.answers import AnswerKey, kept_rule, offered_answers, reason_for
from swink_agent.approvals.approvals import ApprovalAnswer, ApprovalChoice, ApprovalQuestion
from swink_agent.approvals.question import QuestionText
from swink_agent.core.approval import Defer
from swink_agent.tools.files.hunks import ChangeHunks


class OfferedChoice(NamedTuple):
    """An answer that the user can give: its meaning, our label, and what it would trust, in the model's words."""

    means: str
    """An `ApprovalChoice`; or "because", "hunks", "keep" or "later"."""
    label: str
    foreign: str = ""


class AskedQuestion:
    """A question, ready to be shown and answered. Make it in a thread if the call is long: it compares texts."""

    def __init__(self, question: ApprovalQuestion, redact: Callable[[str], str] = str) -> None:
        self.question = question
        self.text = QuestionText(question, redact)
        self.hunks = offered_hunks(question)
        """The parts of the change; `None` if it can only be accepted as a whole."""
        self.rule = kept_rule(question)
        """The rule that "keep" stores for the project; empty if it is not offered."""

    @property
    def choices(self) -> list[OfferedChoice]:
        """The offered answers, in the order of the table of answers."""
        return [
            OfferedChoice(str(each.means), each.label.format(name=self.text.name), foreign)
            for each, foreign in offered_with_trust(self.question, has_hunks=self.hunks is not None).items()
        ]

    def answer(self, choice: str, reason: str = "", hunks: Collection[int] | None = None) -> ApprovalAnswer | Defer:
        """Returns the answer for a choice, with the user's reason or with the accepted parts by number.

        Raises `ValueError` for a choice that is not offered, or for parts that do not exist.
        """
        offered = [each.means for each in self.choices]
        if choice not in offered:
            raise ValueError(f"{choice[:60]!r} is not among the choices of this question: {', '.join(offered)}")
        if choice == "hunks" or hunks is not None:
            if choice not in ("hunks", ApprovalChoice.ONCE):
                raise ValueError("only a yes can accept parts of a change")
            return hunk_answer(self.hunks, hunks or ())
        return answer_for(self.question, choice, reason)


def trusted_by(question: ApprovalQuestion) -> dict[str, str]:
    """What each answer would trust in addition to this call, in the model's words, by the answer's meaning."""
    return {
        ApprovalChoice.SESSION_PREFIX: question.prefix or "",
        ApprovalChoice.ALWAYS: ", ".join(to_remember(question.access or {})),
        "keep": kept_rule(question),
    }


def offered_with_trust(question: ApprovalQuestion, *, has_hunks: bool) -> dict[AnswerKey, str]:
    """The offered answers, in the order of the table of answers, each with what it would trust; empty for most.

    An answer that exists to trust something is not offered if there is nothing that it could trust.
    """
    trusted = trusted_by(question)
    offered = offered_answers(question, *(["hunks"] if has_hunks else []), "keep")
    return {answer: trusted.get(answer.means, "") for answer in offered if trusted.get(answer.means) != ""}


def answer_for(question: ApprovalQuestion, means: str, reason: str = "") -> ApprovalAnswer | Defer:
    """Returns the answer that has this meaning. For "keep", the caller stores the rule for the project."""
    match means:
        case "later":
            return Defer()
        case "because" | ApprovalChoice.NO:
            return ApprovalAnswer(ApprovalChoice.NO, reason_for(reason))
        case "keep":
            by_prefix = question.command is not None
            return ApprovalAnswer(ApprovalChoice.SESSION_PREFIX if by_prefix else ApprovalChoice.SESSION_TOOL)
        case _:
            return ApprovalAnswer(ApprovalChoice(means))


def offered_hunks(question: ApprovalQuestion) -> ChangeHunks | None:
    """Returns the parts of a change; `None` if it can only be accepted as a whole."""
    hunks = ChangeHunks.of(question.request, question.details)
    return hunks if hunks is not None and len(hunks.hunks) > 1 else None


def hunk_answer(hunks: ChangeHunks | None, accepted: Collection[int]) -> ApprovalAnswer:
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
