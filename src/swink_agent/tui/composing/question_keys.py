"""The answers to an approval question: which ones are offered, and how they are laid out.

A key has the same meaning in every question. `approvals.answers` has the keys and labels; `widgets.question_panel`
handles the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from swink_agent.app.talk.questions import offered_with_trust
from swink_agent.approvals.answers import ANSWER_KEYS
from swink_agent.approvals.approvals import ApprovalChoice, ApprovalQuestion
from swink_agent.rendering.cells import cell_width, cut_middle, wrap

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_TWO_COLUMNS = 64
_YES = tuple(choice for choice in ApprovalChoice if choice != ApprovalChoice.NO)
_SHORT = {answer.means: answer.short for answer in ANSWER_KEYS}


class Choice(NamedTuple):
    """An answer: its number ("" for hunks) and letter, its label, its meaning, and whether this question offers it.

    `means` is an `ApprovalChoice`, "because" for a no with a reason, "hunks", "later", or "keep" for an always that
    outlives the session. `foreign` is text from the model, the last part of the row.
    """

    number: str
    letter: str
    words: str
    means: str
    is_offered: bool = True
    foreign: str = ""


def choices_of(question: ApprovalQuestion, name: str, *, has_hunks: bool) -> dict[str, Choice]:
    """Returns the answers by their keys, including those that are not offered, so that no key changes its meaning."""
    named = name if _NAME.fullmatch(name) else "this tool"  # another name could be mistaken for our own text
    offered = offered_with_trust(question, has_hunks=has_hunks)
    choices = [
        Choice(
            *(answer.number, answer.key, answer.label.format(name=named), answer.means),
            is_offered=answer in offered,
            foreign=offered.get(answer, ""),
        )
        for answer in ANSWER_KEYS
        if answer.means != "view"
    ]
    return {key: choice for choice in choices for key in (choice.number, choice.letter) if key}


def low_choice_rows(choices: Iterable[Choice], width: int) -> list[list[tuple[str, str]]]:
    """Returns the offered answers in few words and few rows, for a window that is both narrow and low."""
    rows: list[list[tuple[str, str]]] = [[]]
    last: list[list[tuple[str, str]]] = []
    room = width
    for choice in dict.fromkeys(choices):
        if not choice.is_offered:
            continue
        # The rule that "keep" would add is always visible: in the title, if it is only the name of the call's tool.
        is_in_title = choice.means == "keep" and _NAME.fullmatch(choice.foreign)
        if choice.foreign and not is_in_title:
            last += _foreign_rows(choice, width)
            continue
        sign, words = f"{choice.number} {choice.letter} ".lstrip(), _SHORT[choice.means]
        if (size := len(sign) + len(words)) > room:
            rows.append([])
            room = width
        rows[-1] += [(sign, "key"), (f"{words}  ", "")]
        room -= size + 2
    return [*rows, *last]


def choice_rows(choices: Iterable[Choice], width: int) -> list[list[tuple[str, str]]]:
    """Returns the offered answers as rows of pieces with a style each (`key` or ""): yes on the left and no on the
    right, or one below the other in a narrow window.

    The model's text is the last part of its row, so that it cannot be mistaken for ours.
    """
    every = [choice for choice in dict.fromkeys(choices) if choice.is_offered]
    if width < _TWO_COLUMNS:
        return [row for choice in every for row in _foreign_rows(choice, width)]
    column = width // 2
    rows: list[list[tuple[str, str]]] = []
    left = [choice for choice in every if choice.means in _YES]
    right = [choice for choice in every if choice.means not in (*_YES, "keep")]
    last = [row for choice in every if choice.means == "keep" for row in _foreign_rows(choice, width)]
    while left or right:
        if left and left[0].foreign:
            rows += _foreign_rows(left.pop(0), width)
            continue
        pieces = _pieces(left.pop(0), column - 1) if left else []
        if right:
            used = sum([cell_width(text) for text, _ in pieces])
            pieces += [(" " * (column - used), ""), *_pieces(right.pop(0), column)]
        rows.append(pieces)
    return [*rows, *last]


def _foreign_rows(choice: Choice, width: int) -> list[list[tuple[str, str]]]:
    """Returns the rows of an answer with everything that it would allow, in separate rows if one row is too short."""
    sign = f"{choice.number or ' '} {choice.letter}  "
    if not choice.foreign or cell_width(sign + choice.words + choice.foreign) < width:
        return [_pieces(choice, width)]
    first = _pieces(choice._replace(foreign=""), width)
    return [first, *[[(f"     │ {row}", "")] for row in wrap(choice.foreign, max(width - 7, 4))]]


def _pieces(choice: Choice, width: int) -> list[tuple[str, str]]:
    sign = f"{choice.number or ' '} {choice.letter}  "
    words = cut_middle(choice.words, max(width - len(sign), 4))
    pieces = [(sign, "key"), (words, "")]
    if choice.foreign:
        pieces.append((f" {choice.foreign}", ""))
    return pieces
