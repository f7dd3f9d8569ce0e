"""`#approve`, `#answer`, `/plan`, `/editor`, `/queue`, `/quit`. `Conversation` holds the modes themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swink_agent.app.errors import UsageProblem

if TYPE_CHECKING:
    from swink_agent.approvals.approvals import ApprovalsMode

    from ..conversation import Conversation

_MODES: dict[str, ApprovalsMode] = {"smart": "smart", "on": "ask", "off": "all"}
_MEANINGS = {
    "smart": "calls that the rules know as harmless run, and you are asked about others",
    "on": "you are asked about every call that needs approval",
    "off": "you are asked nothing; deny rules and the sandbox still apply",
    "none": "nothing that needs approval runs",
}


async def approve(conversation: Conversation, rest: str) -> None:
    """`#approve smart|on|off`: sets the mode; without one, shows the current mode."""
    wanted = rest.lower()
    if not wanted:
        conversation.notice(f"approvals are {conversation.approve}: {_MEANINGS[conversation.approve]}")
        return
    mode = _MODES.get(wanted)
    if mode is None:
        raise UsageProblem(f"#approve takes smart, on or off, not {rest[:40]!r}")
    conversation.set_approve(mode)
    conversation.notice(f"approvals are {wanted}: {_MEANINGS[wanted]}", "warning" if mode == "all" else "info")


async def answer(conversation: Conversation, rest: str) -> None:
    """`#answer`: asks again about the calls that wait."""
    if conversation.opened is None or not conversation.opened.agent.pending:
        conversation.notice("no call waits for an answer")
    else:
        conversation.ask_waiting()


async def plan(conversation: Conversation, rest: str) -> None:
    """`/plan`: switches plan mode, as Shift+Tab does."""
    conversation.change_mode()


async def editor(conversation: Conversation, rest: str) -> None:
    """`/editor [text]`: sends a prompt that the user writes in an editor."""
    text = await conversation.front.edit(rest)
    if text is None or not text.strip():
        conversation.notice("nothing was sent: the editor returned no text")
        return
    await conversation.prompt(text.rstrip("\n"))


async def queue(conversation: Conversation, rest: str) -> None:
    """`/queue text`: sends a follow-up, for front ends without the Tab key."""
    if not rest:
        raise UsageProblem("/queue takes the text that is to be sent when the run would stop")
    await conversation.follow_up(rest)


async def leave(conversation: Conversation, rest: str) -> None:
    """`/quit`: ends the program."""
    conversation.front.leave(0)
