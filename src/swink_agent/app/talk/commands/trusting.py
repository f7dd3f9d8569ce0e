"""`#trust`: shows the folder's own settings and notes, and asks whether to use them.

Trust covers exactly the content that is shown. `app.trust` implements it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from swink_agent.app.agent.opening import Opening
from swink_agent.app.agent.system_prompt import LONGEST_NOTES
from swink_agent.app.settings.settings import load_settings, parse_file
from swink_agent.app.trust.trust import NOTES_FILE, PROJECT_FILE, FolderToTrust, TrustStore, find_project
from swink_agent.rendering.cells import wrap
from swink_agent.rendering.escaping import safe_line

if TYPE_CHECKING:
    from ..conversation import Conversation

_WIDEST = 72
"""Cells of a row. The screen would wrap a longer row, and its rest would have no mark."""
_ANSWERS = (("yes", "trust the folder with these files as they are now"), ("no", "do not use them"))


async def trust(conversation: Conversation, rest: str) -> None:
    """`#trust`: shows everything that would be used, then asks."""
    store = TrustStore()
    found = await asyncio.to_thread(find_project, conversation.opening.folder, store)
    wanted = next((item for item in (() if found is None else found.chain) if item.can_be_trusted), None)
    if wanted is None:
        conversation.notice("there is nothing here to trust: this folder has no settings or notes that are not used")
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
    """Returns both files, with a mark before each line, so that no line looks like a message of the program."""
    rows: list[str] = []
    if offer.settings is not None:
        path = str(Path(offer.folder, PROJECT_FILE))
        rows += [f"{path}, whose settings would be used:", *_marked(offer.settings)]
        rows += [f"not counted: {note}" for note in load_settings(project=parse_file(path, offer.settings)).notes]
    if offer.notes is not None:
        rows += [f"{Path(offer.folder, NOTES_FILE)}, which the model would read:"]
        rows += _marked(offer.notes[:LONGEST_NOTES])
        if len(offer.notes) > LONGEST_NOTES:
            rows.append(f"The other {len(offer.notes) - LONGEST_NOTES:,} bytes of it are not sent.")
    if offer.problem:
        rows.append(f"not counted: {offer.problem}")
    for path, data in offer.prompts.items():
        rows += [f"{Path(offer.folder, path)}, which prompts may contain:", *_marked(data)]
    return rows


def _marked(data: bytes) -> list[str]:
    lines = data.decode("utf-8", "replace").removesuffix("\n").split("\n")
    return [f"│ {row}" for line in lines for row in wrap(safe_line(line), _WIDEST)]
