"""Lays out the answers to an approval question as a menu.

`approvals.answers` has the keys and labels; `widgets.question_panel` handles the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from swink_agent.approvals.answers import AnswerKey
from swink_agent.approvals.approvals import ApprovalChoice
from swink_agent.rendering.cells import cell_width, cut_middle, wrap

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_TWO_COLUMNS = 64
_YES = tuple(choice for choice in ApprovalChoice if choice != ApprovalChoice.NO)


def low_choice_rows(choices: Iterable[AnswerKey], width: int) -> list[list[tuple[str, str]]]:
    """Returns the offered answers in few words and few rows, for a window that is both narrow and low."""
    rows: list[list[tuple[str, str]]] = [[]]
    last: list[list[tuple[str, str]]] = []
    room = width
    for choice in choices:
        # The rule that "keep" would add is always visible: in the title, if it is only the name of the call's tool.
        is_in_title = choice.means == "keep" and _NAME.fullmatch(choice.foreign)
        if choice.foreign and not is_in_title:
            last += _foreign_rows(choice, width)
            continue
        sign, words = f"{choice.number} {choice.key} ".lstrip(), choice.short
        if (size := len(sign) + len(words)) > room:
            rows.append([])
            room = width
        rows[-1] += [(sign, "key"), (f"{words}  ", "")]
        room -= size + 2
    return [*rows, *last]


def choice_rows(choices: Iterable[AnswerKey], width: int) -> list[list[tuple[str, str]]]:
    """Returns the offered answers as rows of pieces with a style each (`key` or ""): yes on the left and no on the
    right, or one below the other in a narrow window.

    The model's text is the last part of its row, so that it cannot be mistaken for ours.
    """
    every = list(choices)
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


def _foreign_rows(choice: AnswerKey, width: int) -> list[list[tuple[str, str]]]:
    """Returns the rows of an answer with everything that it would allow, in separate rows if one row is too short."""
    sign = f"{choice.number or ' '} {choice.key}  "
    if not choice.foreign or cell_width(sign + choice.label + choice.foreign) < width:
        return [_pieces(choice, width)]
    first = _pieces(choice._replace(foreign=""), width)
    return [first, *[[(f"     │ {row}", "")] for row in wrap(choice.foreign, max(width - 7, 4))]]


def _pieces(choice: AnswerKey, width: int) -> list[tuple[str, str]]:
    sign = f"{choice.number or ' '} {choice.key}  "
    words = cut_middle(choice.label, max(width - len(sign), 4))
    pieces = [(sign, "key"), (words, "")]
    if choice.foreign:
        pieces.append((f" {choice.foreign}", ""))
    return pieces
