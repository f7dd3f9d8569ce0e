"""`/skill`: a prompt with the text of a skill before it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from swink_agent.app.agent.skills import known_skills, with_skill
from swink_agent.rendering.escaping import safe_line

if TYPE_CHECKING:
    from ..conversation import Conversation


async def use_skill(conversation: Conversation, rest: str) -> None:
    """`/skill name text`: sends the prompt; without a name, lists the skills."""
    project = conversation.opening.project
    name, _, words = rest.partition(" ")
    if name:
        await conversation.prompt(await asyncio.to_thread(with_skill, name, words.strip(), project))
        return
    rows = [
        f"{safe_line(skill.name)}: {safe_line(f'not used, {skill.problem}' if skill.problem else skill.description)}"
        for skill in await asyncio.to_thread(known_skills, project)
    ]
    conversation.notice(
        "\n".join(rows) if rows else "there are no skills here; swink skills --help explains where to put them"
    )
