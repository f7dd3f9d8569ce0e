"""`/tasks`: shows the background commands, and stops them. Also the notice when one has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from swink_agent.app.errors import UsageProblem
from swink_agent.app.runs.telling import seconds
from swink_agent.core.events import TaskEnded
from swink_agent.rendering.escaping import safe_line

from ..front import PickItem, PreviewLine

if TYPE_CHECKING:
    from swink_agent.tools.commands.tasks import BackgroundTask

    from ..conversation import Conversation

_LONGEST = 60
_PREVIEWED = 30
_ANSWERS = (("stop", "stop it, with all that it started"), ("leave", "let it run"))


async def tasks(conversation: Conversation, rest: str) -> None:
    """`/tasks`: offers the background commands in a list; `/tasks stop b1` and `/tasks stop all` stop at once."""
    known = None if conversation.opened is None else conversation.opened.made.tasks
    there = () if known is None else known.all
    word, _, wanted = rest.partition(" ")
    if rest:
        if word != "stop" or not wanted.strip():
            raise UsageProblem(f"/tasks does not know {rest[:40]!r}: /tasks alone, /tasks stop ID or /tasks stop all")
        await _stop(conversation, _chosen(there, wanted.strip()))
        return
    if not there:
        conversation.notice("no command was started in the background")
        return
    ended = [task for task in there if not task.is_running]
    by_id = {task.id: task for task in reversed([*ended, *[task for task in there if task not in ended]])}

    async def preview(task_id: str) -> Sequence[PreviewLine]:
        lines = by_id[task_id].newest.splitlines()[-_PREVIEWED:]
        return [PreviewLine(safe_line(line)) for line in lines or ["it has not printed anything yet"]]

    items = [PickItem(task.id, _label(conversation, task), _detail(task)) for task in by_id.values()]
    picked = await conversation.front.pick("Background commands", items, preview)
    if picked is None:
        return
    task = by_id[picked]
    if not task.is_running:
        conversation.notice(f"{_label(conversation, task)}\n{_detail(task)}")
    elif await conversation.front.confirm(f"Stop {_label(conversation, task)}?", _ANSWERS, "leave") == "stop":
        await _stop(conversation, [task])


def told_end(event: TaskEnded, there: Sequence[BackgroundTask]) -> tuple[str, Literal["info", "warning"]]:
    """The notice for the user when a background command has ended."""
    command = next((f": {_command(task)}" for task in there if task.id == event.id), "")
    if event.exit_code is None:
        return f"the background command {event.id} was stopped{command}", "info"
    kind = "warning" if event.exit_code else "info"
    return f"the background command {event.id} ended with exit code {event.exit_code}{command}", kind


def _chosen(there: Sequence[BackgroundTask], wanted: str) -> list[BackgroundTask]:
    running = [task for task in there if task.is_running]
    chosen = running if wanted == "all" else [task for task in running if task.id == wanted]
    if not chosen:
        names = ", ".join([task.id for task in running])
        raise UsageProblem(f"{wanted[:40]} does not run in the background: {names or 'nothing does'}")
    return chosen


async def _stop(conversation: Conversation, chosen: Sequence[BackgroundTask]) -> None:
    """Stops these tasks and waits up to 3 seconds for each. Events report their ends."""
    for task in chosen:
        task.stop()
    for task in chosen:
        await asyncio.to_thread(task.over.wait, 3)
    conversation.front.changed()


def _label(conversation: Conversation, task: BackgroundTask) -> str:
    return conversation.redact(f"{task.id} {_command(task)}")


def _command(task: BackgroundTask) -> str:
    return _short(" ".join(task.command.split()))


def _short(text: str) -> str:
    line = safe_line(text)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _detail(task: BackgroundTask) -> str:
    last = _short(task.last_line)
    state = f"running {seconds(int(task.seconds))}" if task.is_running else task.state
    return f"{state} │ {last}" if last else state
