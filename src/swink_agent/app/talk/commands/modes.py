"""`/approve`, `/work`, `/answer`, `/plan`, `/skill`, `/editor`, `/queue`, `/quit`. `approving` has the modes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from swink_agent.app.errors import UsageProblem
from swink_agent.approvals.modes import mode_named
from swink_agent.rendering.escaping import safe_line

if TYPE_CHECKING:
    from ..conversation import Conversation


async def approve(conversation: Conversation, rest: str) -> None:
    """`/approve ask|smart|auto|all|none`: sets the mode; without one, shows the current mode and why it is on."""
    if not rest:
        chosen = None if conversation.opened is None else conversation.opened.made.approval_mode
        is_as_chosen = chosen is not None and conversation.approve == chosen.mode and bool(chosen.why)
        because = f"\n{chosen.why}" if is_as_chosen and chosen is not None else ""
        conversation.notice(f"{conversation.modes.meaning}{because}")
        return
    mode = mode_named(rest)
    if mode is None:
        raise UsageProblem(f"/approve takes ask, smart, auto, all or none, not {rest[:40]!r}")
    conversation.modes.set_approve(mode)
    conversation.notice(conversation.modes.meaning, "warning" if mode == "all" else "info")


async def work(conversation: Conversation, rest: str) -> None:
    """`/work yes|no`: whether calls in this folder run unasked from now on; alone, shows the stored answer."""
    wanted = rest.lower()
    if wanted in ("yes", "no"):
        await conversation.modes.answer_work(wanted == "yes")
    elif wanted:
        raise UsageProblem(f"/work takes yes or no, not {rest[:40]!r}")
    else:
        conversation.notice(await conversation.modes.said_of_work())


async def answer(conversation: Conversation, rest: str) -> None:
    if conversation.opened is None or not conversation.opened.agent.pending:
        conversation.notice("no call waits for an answer")
    else:
        conversation.ask_waiting()


async def plan(conversation: Conversation, rest: str) -> None:
    """`/plan`: switches plan mode, as Shift+Tab does."""
    conversation.modes.change_plan()


async def use_skill(conversation: Conversation, rest: str) -> None:
    """`/skill name text`: sends the prompt; without a name, lists the skills."""
    from swink_agent.app.agent.skills import known_skills, with_skill  # on use: the other commands need no skills

    project = conversation.opening.project
    name, _, words = rest.partition(" ")
    if name:
        await conversation.prompt(await asyncio.to_thread(with_skill, name, words.strip(), project))
        return
    rows = [
        f"{safe_line(skill.name)}: {safe_line(f'not used, {skill.problem}' if skill.problem else skill.summary)}"
        for skill in await asyncio.to_thread(known_skills, project)
    ]
    conversation.notice(
        "\n".join(rows) if rows else "there are no skills here; swink skills --help explains where to put them"
    )


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
        raise UsageProblem("/queue needs a text, which is sent when the run would stop")
    await conversation.follow_up(rest)


async def leave(conversation: Conversation, rest: str) -> None:
    conversation.front.leave(0)
