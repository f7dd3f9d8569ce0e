"""Going back to a message: which files the runs since then changed, and putting them back as they were.

Owns the way from a message to the copies that were kept of what the file tools replaced: the session says which run
each message entered in, the copies are kept by run. What commands changed is not covered: no copies are kept of that.
Files that somebody else changed since stay as they are, and so does whatever has no copy any more.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from swink_agent.app.settings import Settings
from swink_agent.core.types import AgentMessage, UserMessage, extract_text

from .shell import is_from_shell

if TYPE_CHECKING:
    from swink_agent.memory import JsonlSessionStore
    from swink_agent.memory.message_runs import MessageRun
    from swink_agent.tools.files.undo import UndoRun

__all__ = ["RestoredFiles", "RewoundRun", "files_since", "put_files_back", "runs_since", "user_messages"]

_MOST_PARENTS = 50


class RewoundRun(NamedTuple):
    """A run to go back behind. `since` is in nanoseconds, and not 0 if only its later part is."""

    run_id: str
    since: int = 0


class RestoredFiles(NamedTuple):
    """What became of files: those that are as they were, and those that were left alone, each with the reason."""

    done: tuple[str, ...]
    left: tuple[tuple[str, str], ...]


def user_messages(messages: Sequence[AgentMessage]) -> list[tuple[int, str]]:
    """The positions and texts of what a person said, the oldest first."""
    found: list[tuple[int, str]] = []
    for position, message in enumerate(messages):
        if isinstance(message, UserMessage):
            text = extract_text(message.content)
            if not is_from_shell(text):
                found.append((position, text))
    return found


def runs_since(store: JsonlSessionStore, session_id: str, position: int) -> list[RewoundRun]:
    """The runs that the messages from a position on entered in, the newest first. For a thread; raises `SessionError`.

    What a fork has from the session that it was made of belongs to runs of that one.
    """
    entered = _entered(store, session_id)
    before = {run.run_id for run in entered[:position] if run is not None}
    found: dict[str, RewoundRun] = {}
    for run in entered[position:]:
        if run is not None and run.run_id not in found:
            # Of a run that began earlier, only what came after this message is gone back behind.
            found[run.run_id] = RewoundRun(run.run_id, run.at * 1_000_000 if run.run_id in before else 0)
    return list(reversed(found.values()))


def _entered(store: JsonlSessionStore, session_id: str) -> list[MessageRun | None]:
    from swink_agent.memory.message_runs import message_runs

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
            break  # it is gone, and with it what is known of its runs
        above = message_runs(loaded)
        entered = [run if run is not None else above[at] if at < len(above) else None for at, run in enumerate(entered)]
    return entered


def files_since(settings: Settings, roots: Iterable[Path], runs: Sequence[RewoundRun]) -> list[str]:
    """The files that those runs changed, as a person would name them. For a thread."""
    found: dict[str, None] = {}
    for undo, since in _kept(settings, roots, runs):
        for change in undo.changes(since):
            found[str(Path(undo.root, *change.parts))] = None
    return list(found)


def put_files_back(settings: Settings, roots: Iterable[Path], runs: Sequence[RewoundRun]) -> RestoredFiles:
    """Puts them back, run by run, the newest first. For a thread."""
    from swink_agent.app.undo import open_undo
    from swink_agent.core.errors import ToolError
    from swink_agent.tools.files.rewind import plan_rewind, rewind
    from swink_agent.tools.workspace.wall import Workspace

    store = open_undo([])
    done: dict[str, None] = {}
    left: dict[str, str] = {}
    for undo, since in _kept(settings, roots, runs):
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


def _kept(settings: Settings, roots: Iterable[Path], runs: Sequence[RewoundRun]) -> list[tuple[UndoRun, int]]:
    """What is kept of those runs in those folders, the newest first."""
    from swink_agent.app.undo import undo_folder
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
