"""The answers to a question: which key means what, always the same, and how they are laid out.

Owns the numbers and letters, the words beside them, and what the model is told of a no. Who presses them is the
panel's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from swink_agent.approvals.approvals import ApprovalChoice, ApprovalQuestion
from swink_agent.rendering.cells import cell_width, cut_middle

__all__ = ["Choice", "choice_rows", "choices_of", "low_choice_rows", "reason_for"]

_LONGEST_REASON = 2000
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_TWO_COLUMNS = 64
_SAID_NO = "the user said no"
_SHORT = {
    ApprovalChoice.ONCE: "yes",
    ApprovalChoice.SESSION_TOOL: "always",
    ApprovalChoice.SESSION_PREFIX: "begins so",
    ApprovalChoice.NO: "no",
    "because": "no, because",
    "hunks": "hunks",
}


class Choice(NamedTuple):
    """An answer: its number (none for hunks) and letter, its words, what it means, and whether it is offered here.

    `means` is an `ApprovalChoice`, "because" for a no with a reason, or "hunks". `foreign` are words of the model's,
    which end the row.
    """

    number: str
    letter: str
    words: str
    means: str
    is_offered: bool = True
    foreign: str = ""


def choices_of(question: ApprovalQuestion, name: str, *, has_hunks: bool) -> dict[str, Choice]:
    """The answers by their keys, those that are not offered included: a key never means another thing."""
    offered = question.choices
    by_tool = ApprovalChoice.SESSION_TOOL in offered
    prefix = question.prefix if ApprovalChoice.SESSION_PREFIX in offered else None
    words = "always, commands that begin so" + (":" if prefix else "")
    choices = [
        Choice("1", "y", "yes, once", ApprovalChoice.ONCE),
        Choice("2", "t", f"always, {_named(name)}", ApprovalChoice.SESSION_TOOL, by_tool),
        Choice("3", "p", words, ApprovalChoice.SESSION_PREFIX, prefix is not None, prefix or ""),
        Choice("4", "n", "no", ApprovalChoice.NO),
        Choice("5", "b", "no, because …", "because"),
        Choice("", "h", "hunk by hunk", "hunks", has_hunks),
    ]
    return {key: choice for choice in choices for key in (choice.number, choice.letter) if key}


def _named(name: str) -> str:
    """The tool, if its name is one that could not be taken for words of ours."""
    return name if _NAME.fullmatch(name) else "this tool"


def low_choice_rows(choices: Iterable[Choice], width: int) -> list[list[tuple[str, str]]]:
    """The answers that are offered in few words and few rows, for a window that is narrow and low as well."""
    rows: list[list[tuple[str, str]]] = [[]]
    last: list[list[tuple[str, str]]] = []
    room = width
    for choice in dict.fromkeys(choices):
        if not choice.is_offered:
            continue
        if choice.foreign:  # what it would allow is always in sight
            last.append(_pieces(choice, width))
            continue
        sign, words = f"{choice.number} {choice.letter} ".lstrip(), _SHORT[choice.means]
        if (size := len(sign) + len(words)) > room:
            rows.append([])
            room = width
        rows[-1] += [(sign, "key"), (f"{words}  ", "")]
        room -= size + 2
    return [*rows, *last]


def choice_rows(choices: Iterable[Choice], width: int) -> list[list[tuple[str, str]]]:
    """The answers as rows of pieces with a style each (`key`, `dim`, or none), every answer once: what says yes on the
    left and what says no on the right, or one below the other where that has no room.

    The words of the model's end their row, so that nothing of ours seems to be among them.
    """
    every = [choice for choice in dict.fromkeys(choices) if choice.is_offered or choice.number]
    if width < _TWO_COLUMNS:
        return [_pieces(choice, width) for choice in every]
    column = width // 2
    rows: list[list[tuple[str, str]]] = []
    left, right = every[:3], every[3:]
    while left or right:
        if left and left[0].foreign:
            rows.append(_pieces(left.pop(0), width))
            continue
        pieces = _pieces(left.pop(0), column - 1) if left else []
        if right:
            used = sum([cell_width(text) for text, _ in pieces])
            pieces += [(" " * (column - used), ""), *_pieces(right.pop(0), column)]
        rows.append(pieces)
    return rows


def _pieces(choice: Choice, width: int) -> list[tuple[str, str]]:
    style = "" if choice.is_offered else "dim"
    sign = f"{choice.number or ' '} {choice.letter}  "
    said = choice.words if choice.is_offered else f"— ({choice.words.removeprefix('always, ')})"
    words = cut_middle(said, max(width - len(sign), 4))
    pieces = [(sign, "key" if choice.is_offered else "dim"), (words, style)]
    if choice.foreign:
        room = width - len(sign) - cell_width(words) - 1
        pieces.append((f" {cut_middle(choice.foreign, room)}", style) if room >= 4 else ("", style))
    return pieces


def reason_for(said: str) -> str:
    """What the model is told of a no."""
    visible = "".join([" " if part < " " or "\x7f" <= part < "\xa0" else part for part in said])
    plain = " ".join(visible.split())[:_LONGEST_REASON]
    return f"{_SAID_NO}, because {plain}" if plain else _SAID_NO
