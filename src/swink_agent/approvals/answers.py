"""The answers to an approval question: their keys, their labels, what each means, and what the model reads after a no.

All front ends take the keys from this one table, so that a key always means the same. They lay out and read the keys
themselves. Also owns the rule that an answer may keep for a project.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from swink_agent.core.approval import Defer

from .access import to_remember
from .approvals import SAID_NO, ApprovalAnswer, ApprovalChoice, ApprovalQuestion
from .commands.prefixes import has_known_options

_LONGEST_REASON = 2000
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_PLAIN_WORDS = re.compile(r"[A-Za-z0-9_./@+=-]+( [A-Za-z0-9_./@+=-]+)*")
_KEPT_TOOLS = ("edit_file", "write_file")
"""Tools without a command whose rule may be kept: they refuse to write protected names, such as `.git`."""


class AnswerKey(NamedTuple):
    """One answer. A label that ends in a colon is followed by what is trusted.

    In the table, `{name}` in its labels stands for the tool.
    """

    number: str
    """A second key for the same answer, in menus, or empty."""
    key: str
    means: str
    """An `ApprovalChoice`; or "because" (no, with a reason), "hunks", "keep" (always in this project), "later" or
    "view"."""
    label: str
    short: str
    """Few words, for a narrow menu."""
    in_line: str
    """The words in a list on one line, with the key in brackets. Empty if the answer is offered in menus alone."""
    foreign: str = ""
    """What the answer would trust in addition to this call, in the model's words; empty in the table."""


ANSWER_KEYS = (
    AnswerKey("1", "y", ApprovalChoice.ONCE, "yes, once", "yes", "[y]es"),
    AnswerKey("2", "t", ApprovalChoice.SESSION_TOOL, "always, {name}", "always", "every [t]ime {name}"),
    AnswerKey(
        *("3", "p", ApprovalChoice.SESSION_PREFIX),
        *("always, commands that begin so:", "begins so", "every command with this [p]refix:"),
    ),
    AnswerKey(
        *("8", "s", ApprovalChoice.SESSION_ACCESS),
        *("this session, unless it needs more", "session", "for this [s]ession, unless it needs more"),
    ),
    AnswerKey(
        *("9", "a", ApprovalChoice.ALWAYS),
        *("always, every command:", "always, kept", "[a]lways, every command to these hosts:"),
    ),
    AnswerKey("4", "n", ApprovalChoice.NO, "no", "no", "[n]o"),
    AnswerKey("5", "b", "because", "no, because …", "no, because", "no [b]ecause …"),
    AnswerKey("", "h", "hunks", "hunk by hunk", "hunks", ""),
    AnswerKey("6", "k", "keep", "always in this project, kept:", "always here", "always in this project, [k]ept:"),
    AnswerKey("7", "l", "later", "later: it keeps waiting", "later", "[l]ater"),
    AnswerKey("", "v", "view", "view all:", "view all", "[v]iew all:"),
)


def offered_answers(question: ApprovalQuestion, *, has_hunks: bool = False, has_view: bool = False) -> list[AnswerKey]:
    """The answers that apply to a question, in the order of the table.

    An answer that exists to trust something is not offered if there is nothing that it could trust. `has_hunks`: the
    change can be accepted in parts; `has_view`: the front end can show the whole call on request.
    """
    name = (question.shown or question.request).name
    named = name if _NAME.fullmatch(name) else "this tool"  # another name could be mistaken for our own text
    trusted = {
        ApprovalChoice.SESSION_PREFIX: question.prefix or "",
        ApprovalChoice.ALWAYS: ", ".join(to_remember(question.access or {})),
        "keep": kept_rule(question),
    }
    others = {ApprovalChoice.NO: True, "because": True, "keep": True, "later": question.can_wait}
    others |= {"hunks": has_hunks, "view": has_view}
    return [
        each._replace(
            label=each.label.format(name=named),
            in_line=each.in_line.format(name=named),
            foreign=trusted.get(each.means, ""),
        )
        for each in ANSWER_KEYS
        if (others.get(each.means) or each.means in question.choices) and trusted.get(each.means) != ""
    ]


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


def kept_rule(question: ApprovalQuestion) -> str:
    """The rule that would allow calls like this one from now on; empty if it would allow too much or too little.

    For a tool that runs commands, the rule allows commands that begin with the same plain words.
    """
    tool = question.request.name
    if not _NAME.fullmatch(tool):
        return ""
    if question.command is not None:
        prefix = question.prefix if ApprovalChoice.SESSION_PREFIX in question.choices else None
        if not prefix or not _PLAIN_WORDS.fullmatch(prefix) or has_known_options(tuple(prefix.split(" "))):
            return ""  # a rule would cover options that trust does not: `go vet -vettool=…`
        return f"{tool}: {prefix} *"
    return tool if ApprovalChoice.SESSION_TOOL in question.choices and tool in _KEPT_TOOLS else ""


def reason_for(said: str) -> str:
    """The text that the model reads after a no, with the user's reason if there is one."""
    visible = "".join([" " if part < " " or "\x7f" <= part < "\xa0" else part for part in said])
    plain = " ".join(visible.split())[:_LONGEST_REASON]
    return f"{SAID_NO}, because {plain}" if plain else SAID_NO
