"""`/trust`: shows the folder's own settings and notes, and asks whether to use them.

Trust covers exactly the content that is shown. `app.trust` implements it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from swink_agent.app.agent.opening import Opening
from swink_agent.app.trust.trust import FolderToTrust, TrustStore, find_project, offered_parts
from swink_agent.rendering.cells import wrap
from swink_agent.rendering.escaping import safe_line

if TYPE_CHECKING:
    from ..conversation import Conversation

_WIDEST = 72
"""Cells of a row. The screen would wrap a longer row, and its rest would have no mark."""
_ANSWERS = (("yes", "trust the folder with these files as they are now"), ("no", "do not use them"))


async def trust(conversation: Conversation, rest: str) -> None:
    """`/trust`: shows everything that would be used, then asks."""
    store = TrustStore()
    found = await asyncio.to_thread(find_project, conversation.opening.folder, store)
    wanted = next((item for item in (() if found is None else found.chain) if item.can_be_trusted), None)
    if wanted is None:
        conversation.notice("there is nothing to trust: no file of this folder waits for your trust")
        return
    offer = await asyncio.to_thread(store.offer, Path(wanted.folder))
    conversation.notice("\n".join(_shown(offer)))
    if await conversation.front.confirm(f"Trust {safe_line(offer.folder)}?", _ANSWERS, "no") != "yes":
        conversation.notice("nothing was changed")
        return
    await asyncio.to_thread(store.accept, offer)
    opening = await asyncio.to_thread(
        Opening, conversation.opening.options, credentials=conversation.opening.credentials
    )
    await conversation.remake(opening)
    conversation.notice(f"{safe_line(offer.folder)} is trusted, and its files are used from now on")


def _shown(offer: FolderToTrust) -> list[str]:
    """Returns all parts, with a mark before each line of a file, so that no such line looks like our own words."""
    rows: list[str] = []
    for part in offered_parts(offer):
        rows.append(f"not used: {part.words}" if part.is_uncounted else part.words)
        lines = [] if part.text is None else part.text.split("\n")
        rows += [f"│ {row}" for line in lines for row in wrap(safe_line(line), _WIDEST)]
    return rows
