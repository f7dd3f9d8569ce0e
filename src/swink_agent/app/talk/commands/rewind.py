"""`/rewind`: goes back to before one of the user's messages, and restores files if the user wants.

Restores files first, because that may fail. Then cuts the history, whose rest stays in the session file, and puts the
message back into the input.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from swink_agent.app.errors import UsageProblem
from swink_agent.app.runs.sessions import open_store, session_problems
from swink_agent.rendering.escaping import safe_display

from ..front import PickItem
from ..rewind_files import RewoundRun, plan_files, put_files_back, runs_since, shown_changes, user_messages

if TYPE_CHECKING:
    from ...agent.open_agent import OpenAgent
    from ..conversation import Conversation

_MOST_NAMED = 5


async def rewind(conversation: Conversation, rest: str) -> None:
    """`/rewind`: asks to which message to go back, and whether to restore files."""
    opened = conversation.opened
    said = [] if opened is None else user_messages(opened.agent.messages)
    if opened is None or not said:
        raise UsageProblem("there is no message to go back to yet")
    items: list[PickItem] = []
    for back, (position, text) in enumerate(reversed(said), 1):
        shown = " ".join(opened.redactor.redact(text).split())
        shown = shown if len(shown) <= 100 else f"{shown[:99]}…"
        items.append(PickItem(str(position), shown, "the last" if back == 1 else f"{back} back"))
    chosen = await conversation.front.pick("Back to before which message?", items)
    if chosen is None or conversation.is_running or conversation.opened is not opened:
        return
    position = int(chosen)
    runs = await asyncio.to_thread(_runs, opened, position)
    roots = [opened.opening.folder.resolve(), *opened.opening.added]
    settings = opened.opening.settings
    plans = await asyncio.to_thread(plan_files, settings, roots, runs)
    files = [item.path for _, plan in plans for item in plan if item.what != "same"]
    with_files = False
    if files:
        if changes := await asyncio.to_thread(shown_changes, plans):
            conversation.notice(f"Restoring the files changes this:\n{changes}")
        answer = await conversation.front.confirm(
            f"The runs since then changed {named(files)}. Restore that too?",
            (("both", "the conversation and the files"), ("talk", "the conversation alone")),
            "both",
        )
        if answer is None or conversation.is_running or conversation.opened is not opened:
            return
        with_files = answer == "both"
    back = await asyncio.to_thread(put_files_back, plans, runs) if with_files else None
    agent = opened.agent
    text = dict(said)[position]
    agent.messages = agent.messages[:position]
    conversation.usage.cut(agent.messages)
    conversation.rewind(tuple(agent.messages))
    conversation.notice("back to before that message; the session still records what came after it")
    if back is not None and back.done:
        conversation.notice(f"restored: {named(back.done)}")
    for name, why in () if back is None else back.left:
        conversation.notice(f"{name} was left alone: {why}", "warning")
    conversation.front.give_back(text)
    conversation.front.changed()


def _runs(opened: OpenAgent, position: int) -> list[RewoundRun]:
    session_id = opened.session.flush()
    if session_id is None:
        return []
    with session_problems():
        return runs_since(open_store(opened.opening.settings), session_id, position)


def named(files: Sequence[str]) -> str:
    """Returns the names of the first few files, without folders, and the number of the others."""
    names = [safe_display(name.rpartition("/")[2], 80) for name in files]  # a name may contain newlines
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"
