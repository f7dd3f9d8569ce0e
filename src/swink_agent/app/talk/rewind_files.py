"""Finds the files that runs changed since a message, and restores them.

The session records in which run each message was added, and checkpoints record the changes of each run, also those of
its commands. Files that something else changed afterwards, and files without a copy, are left alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from swink_agent.app.settings.settings import Settings
from swink_agent.core.errors import ToolError
from swink_agent.core.types import AgentMessage, UserMessage, extract_text
from swink_agent.rendering.escaping import safe_display

if TYPE_CHECKING:
    from swink_agent.memory import JsonlSessionStore
    from swink_agent.memory.log.fold import MessageRun
    from swink_agent.tools import Checkpoint, PathRewind

_MOST_PARENTS = 50
_MOST_LINES = 200


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
        if isinstance(message, UserMessage) and message.origin != "shell":
            found.append((position, extract_text(message.content)))
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
            # If the run began before this message, undo only its changes after the message.
            found[run.run_id] = RewoundRun(run.run_id, run.at * 1_000_000 if run.run_id in before else 0)
    return list(reversed(found.values()))


def _entered(store: JsonlSessionStore, session_id: str) -> list[MessageRun | None]:
    from swink_agent.memory.log.fold import message_runs

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


def plan_files(
    settings: Settings, roots: Iterable[Path], runs: Sequence[RewoundRun]
) -> list[tuple[str, list[PathRewind]]]:
    """Returns the plan to undo these runs, for each folder with checkpoints of them. Call it in a thread."""
    from swink_agent.app.runs.undo import open_checkpoints

    if not runs or not settings.value("undo"):
        return []
    store = open_checkpoints()
    since = {run.run_id: run.since for run in runs}
    found: list[tuple[str, list[PathRewind]]] = []
    for root in dict.fromkeys(map(str, roots)):
        with suppress(ToolError):
            store.settle(root)
            start = _start(store.checkpoints(root), since)
            plan = [] if start is None else store.plan(root, start, runs=list(since))
            if any(item.what != "same" for item in plan):
                found.append((root, plan))
    return found


def _start(newest_first: Sequence[Checkpoint], since: Mapping[str, int]) -> Checkpoint | None:
    """The checkpoint to go back to: the oldest one of these runs, or its run's last one before `since`."""
    own = [checkpoint for checkpoint in newest_first if checkpoint.run_id in since]
    if not own:
        return None
    first = own[-1]
    moment = since[first.run_id]
    return next((each for each in own if moment and each.taken * 1e9 <= moment and each.run_id == first.run_id), first)


def shown_changes(plans: Sequence[tuple[str, Sequence[PathRewind]]]) -> str:
    """Returns a diff of the changes that the plans would make to text files. Call it in a thread."""
    from swink_agent.app.runs.undo import open_checkpoints, texts_of
    from swink_agent.rendering.texts.diffs import diff_lines

    store = open_checkpoints()
    signs = {"added": "+", "removed": "-", "context": " ", "hunk": ""}
    shown: list[str] = []
    for root, plan in plans:
        for item in plan:
            texts = texts_of(store, root, item) if item.what in ("restore", "remove") else None
            if texts is not None and len(shown) < _MOST_LINES:
                shown.append(f"--- {safe_display(item.path, None)}")
                shown += [f"{signs[kind]}{line}" for kind, line in diff_lines(*texts)]
    more = ["… and more than is shown here"] if len(shown) > _MOST_LINES else []
    return "\n".join([*shown[:_MOST_LINES], *more])


def put_files_back(plans: Sequence[tuple[str, Sequence[PathRewind]]], runs: Sequence[RewoundRun]) -> RestoredFiles:
    """Carries out the plans, which undo these runs. Call it in a thread."""
    from swink_agent.app.runs.undo import open_checkpoints

    store = open_checkpoints()
    undoes = " ".join([run.run_id for run in runs if not run.since])  # the others are undone only in part
    done: list[str] = []
    left: list[tuple[str, str]] = []
    for root, plan in plans:
        try:
            items = store.rewind(root, plan, run_id=secrets.token_hex(8), undoes=undoes)
        except ToolError as error:
            left.append((root, str(error)))
            continue
        done += [str(Path(root, item.path)) for item in items if item.what in ("restore", "remove")]
        left += [(str(Path(root, item.path)), item.note) for item in items if item.what in ("changed", "failed")]
    return RestoredFiles(tuple(done), tuple(left))
