"""Which calls the user is asked about: the modes in words, the order of Shift+Tab, and the question for a folder.

Owns the words and the order. `Conversation` changes the mode, `app.agent.approval_modes` chooses the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from swink_agent.approvals.approvals import ApprovalsMode

APPROVE_NAMES: dict[str, str] = {"auto": "auto", "smart": "smart", "ask": "on", "all": "off", "none": "none"}
"""The names of the modes in `#approve`."""
MEANINGS: dict[str, str] = {
    "auto": "commands in the sandbox and edits in this folder run unasked, and you are asked for what leaves it",
    "smart": "calls that the rules know as harmless run, and you are asked about others",
    "on": "you are asked about every call that needs approval",
    "off": "you are asked nothing; deny rules and the sandbox still apply",
    "none": "nothing that needs approval runs",
}
MAY_WORK = "May commands and edits in this folder run unasked?"
WORK_CHOICES = (
    ("yes", "in the sandbox, and /rewind takes them back; kept for this folder"),
    ("no", "you are asked, and not about this folder again"),
)

Place: TypeAlias = Literal["ask", "auto", "plan"]


def next_place(mode: ApprovalsMode, *, is_plan: bool, is_running: bool) -> Place:
    """Where Shift+Tab leads: ask, auto, plan, and again. `smart` counts as `auto`. A run cannot become a plan."""
    if is_plan:
        return "ask"
    if mode == "ask":
        return "auto"
    return "ask" if is_running else "plan"
