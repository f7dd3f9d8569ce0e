"""How the conversation works from here on: approvals, planning, the editor, and leaving it.

Owns what the commands say and check; the modes themselves are the conversation's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swink_agent.app.errors import UsageProblem

if TYPE_CHECKING:
    from swink_agent.approvals.approvals import ApprovalsMode

    from ..conversation import Conversation

_MODES: dict[str, ApprovalsMode] = {"smart": "smart", "on": "ask", "off": "all"}
_MEANINGS = {
    "smart": "what the rules know as harmless runs, and you are asked about the rest",
    "on": "you are asked about every call that needs approval",
    "off": "nothing is asked; deny rules and the sandbox hold all the same",
    "none": "nothing that needs approval runs",
}


async def approve(conversation: Conversation, rest: str) -> None:
    """`#approve smart|on|off`, or what holds now."""
    wanted = rest.lower()
    if not wanted:
        conversation.notice(f"approvals are {conversation.approve}: {_MEANINGS[conversation.approve]}")
        return
    mode = _MODES.get(wanted)
    if mode is None:
        raise UsageProblem(f"#approve takes smart, on or off, not {rest[:40]!r}")
    conversation.set_approve(mode)
    conversation.notice(f"approvals are {wanted}: {_MEANINGS[wanted]}", "warning" if mode == "all" else "info")


async def plan(conversation: Conversation, rest: str) -> None:
    """`/plan`: the same as Shift+Tab."""
    conversation.change_mode()


async def editor(conversation: Conversation, rest: str) -> None:
    """`/editor`: a prompt from the person's own editor."""
    text = await conversation.front.edit(rest)
    if text is None or not text.strip():
        conversation.notice("nothing was sent: the editor was left without a text")
        return
    await conversation.prompt(text.rstrip("\n"))


async def queue(conversation: Conversation, rest: str) -> None:
    """`/queue`: a follow-up, where there is no Tab for it."""
    if not rest:
        raise UsageProblem("/queue takes the text that is to be said when the run would stop")
    await conversation.follow_up(rest)


async def leave(conversation: Conversation, rest: str) -> None:
    """`/quit`."""
    conversation.front.leave(0)
