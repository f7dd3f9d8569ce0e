"""Finds the files that runs changed since a message, and restores them.

The session records in which run each message was added, and the file tools keep copies of files by run. Changes made by
commands are not covered. Files that something else changed afterwards, and files without a copy, are left alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from swink_agent.app.settings.settings import Settings
from swink_agent.core.types import AgentMessage, UserMessage, extract_text

from .shell import is_from_shell

if TYPE_CHECKING:
    from swink_agent.memory import JsonlSessionStore
    from swink_agent.memory.log.runs import MessageRun
    from swink_agent.tools.files.undo import UndoRun

__all__ = ["RestoredFiles", "RewoundRun", "files_since", "put_files_back", "runs_since", "user_messages"]

_MOST_PARENTS = 50


class RewoundRun(NamedTuple):
    """A run to undo: its part from `since` on, in nanoseconds, or all of it for 0."""

    run_id: str
    since: int = 0


class RestoredFiles(NamedTuple):
    """The files that were restored, and those that were left alone, each with the reason."""

    done: tuple[str, ...]
    left: tuple[tuple[str, str], ...]


def user_messages(messages: Sequence[AgentMessage]) -> list[tuple[int, str]]:
    """Returns the positions and texts of the user's prompts, the oldest first."""
    found: list[tuple[int, str]] = []
    for position, message in enumerate(messages):
        if isinstance(message, UserMessage):
            text = extract_text(message.content)
            if not is_from_shell(text):
                found.append((position, text))
    return found


def runs_since(store: JsonlSessionStore, session_id: str, position: int) -> list[RewoundRun]:
    """Returns the runs in which the messages from a position on were added, the newest first.

    Messages that a fork copied belong to runs of the original session. Call this in a thread. Raises `SessionError`.
    """
    entered = _entered(store, session_id)
    before = {run.run_id for run in entered[:position] if run is not None}
    found: dict[str, RewoundRun] = {}
    for run in entered[position:]:
        if run is not None and run.run_id not in found:
            # If the run began before this message, undo only what came after the message.
            found[run.run_id] = RewoundRun(run.run_id, run.at * 1_000_000 if run.run_id in before else 0)
    return list(reversed(found.values()))


def _entered(store: JsonlSessionStore, session_id: str) -> list[MessageRun | None]:
    from swink_agent.memory.log.runs import message_runs

    loaded = store.load(session_id)
    entered = message_runs(loaded)
    for _ in range(_MOST_PARENTS):
        parent = loaded.info.parent
        if parent is None or None not in entered:
            break
        from swink_agent.memory import SessionError

        try:
            loaded = store.load(parent)
        except SessionError:
            break  # it was deleted, so its runs are unknown
        above = message_runs(loaded)
        entered = [run if run is not None else above[at] if at < len(above) else None for at, run in enumerate(entered)]
    return entered


def files_since(settings: Settings, roots: Iterable[Path], runs: Sequence[RewoundRun]) -> list[str]:
    """Returns the paths of the files that these runs changed. Call it in a thread."""
    found: dict[str, None] = {}
    for undo, since in _stored_runs(settings, roots, runs):
        for change in undo.changes(since):
            found[str(Path(undo.root, *change.parts))] = None
    return list(found)


def put_files_back(settings: Settings, roots: Iterable[Path], runs: Sequence[RewoundRun]) -> RestoredFiles:
    """Restores the files that these runs changed, the newest run first. Call it in a thread."""
    from swink_agent.app.runs.undo import open_undo
    from swink_agent.core.errors import ToolError
    from swink_agent.tools.files.rewind import plan_rewind, rewind
    from swink_agent.tools.workspace.wall import Workspace

    store = open_undo([])
    done: dict[str, None] = {}
    left: dict[str, str] = {}
    for undo, since in _stored_runs(settings, roots, runs):
        try:
            workspace = Workspace(undo.root)
            items = rewind(workspace, store, undo, plan_rewind(workspace, undo, since=since), secrets.token_hex(8))
        except (ToolError, OSError) as error:
            left[undo.root] = str(error)
            continue
        for item in items:
            name = str(Path(undo.root, *item.parts))
            if item.what in ("restore", "remove"):
                done[name] = None
            elif item.what in ("changed", "failed"):
                left[name] = item.note or "was changed since"
        if any(item.what in ("restore", "remove") for item in items):
            is_whole = not since and not any(item.what in ("changed", "failed") for item in items)
            undo.mark("whole" if is_whole else "in part")
    return RestoredFiles(tuple([name for name in done if name not in left]), tuple(left.items()))


def _stored_runs(settings: Settings, roots: Iterable[Path], runs: Sequence[RewoundRun]) -> list[tuple[UndoRun, int]]:
    """Returns the stored copies of these runs in these folders, the newest first, each with its `since`."""
    from swink_agent.app.runs.undo import undo_folder
    from swink_agent.tools.files.undo import UndoStore

    if not runs or not settings.value("undo"):
        return []
    store = UndoStore(undo_folder())
    by_id = {run.run_id: (place, run.since) for place, run in enumerate(runs)}
    found: list[tuple[int, UndoRun, int]] = []
    for root in dict.fromkeys(roots):
        for undo in store.runs(root):
            if undo.kind == "run" and undo.undone != "whole" and undo.id in by_id:
                place, since = by_id[undo.id]
                found.append((place, undo, since))
    return [(undo, since) for _, undo, since in sorted(found, key=lambda item: item[0])]
