"""Undoes the changes of a run: what can be restored, what cannot and why.

Owns the plan and its execution. A file that is not as the run left it was changed by someone else, and stays. All
access goes through a `Workspace`, as in the run: a link that was put in the way since does not lead out.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Literal, NamedTuple, TypeAlias

from swink_agent.core.errors import ToolError

from ..workspace.place import Place, replace_file
from ..workspace.wall import Workspace
from .file_tool import Before
from .text import decode_text
from .undo import Change, UndoError, UndoRun, UndoStore, hash_of

__all__ = ["FileRewind", "plan_rewind", "rewind"]

What: TypeAlias = Literal["restore", "remove", "same", "changed", "failed"]


class FileRewind(NamedTuple):
    """What happens to one file."""

    parts: tuple[str, ...]
    what: What
    """`changed` and `failed` are left alone; `same` already is as it was before the run."""
    change: Change
    """The change that is undone last: what the file had before it is what it will have."""
    now: str | None = None
    """The hash of its content at the time of planning."""
    note: str = ""
    added: int = 0
    removed: int = 0
    """Lines that restoring it adds and removes."""


def plan_rewind(workspace: Workspace, run: UndoRun, *, force: bool = False, since: int = 0) -> list[FileRewind]:
    """What undoing a run means, file by file. Changes nothing. `force` also discards later changes by others.

    With `since`, in nanoseconds since 1970, what the run changed before that moment stays.
    """
    by_file: dict[tuple[str, ...], list[Change]] = {}
    for change in run.changes(since):
        by_file.setdefault(change.parts, []).append(change)
    return [_plan_file(workspace, parts, changes, force) for parts, changes in by_file.items()]


def _plan_file(workspace: Workspace, parts: tuple[str, ...], changes: Sequence[Change], force: bool) -> FileRewind:
    try:
        data = _read(workspace, parts)
    except (ToolError, OSError) as error:
        return FileRewind(parts, "failed", changes[0], note=str(error))
    now = None if data is None else hash_of(data)
    target, is_whole = _way_back(changes, now)
    if force:
        target, is_whole = 0, True
    if target is None:
        if is_whole:
            return FileRewind(parts, "same", changes[0], now)
        note = "is gone" if data is None else "was changed since"
        return FileRewind(parts, "changed", changes[0], now, note)
    change = changes[target]
    if change.before == now:
        return FileRewind(parts, "same", change, now)
    note = "" if is_whole else "only back to where something else changed it"
    try:
        old = b"" if change.before is None else change.content()
    except UndoError as error:
        return FileRewind(parts, "failed", change, now, str(error))
    added, removed = _count_lines(data or b"", old)
    return FileRewind(parts, "remove" if change.before is None else "restore", change, now, note, added, removed)


def _way_back(changes: Sequence[Change], now: str | None) -> tuple[int | None, bool]:
    """How far the changes can be undone from the present content, the newest first; and whether that is all of them.

    A change that never happened, or was already undone, is skipped.
    """
    target: int | None = None
    for index in range(len(changes) - 1, -1, -1):
        change = changes[index]
        if now == change.after:
            now, target = change.before, index
        elif now != change.before:
            return target, False
    return target, True


def rewind(
    workspace: Workspace, store: UndoStore, run: UndoRun, plan: Sequence[FileRewind], undo_id: str
) -> list[FileRewind]:
    """Carries out the plan, and keeps copies of what it replaces under `undo_id`. Returns the outcome for each file."""
    done = [_rewind_one(workspace, store, run, item, undo_id) for item in plan]
    removed = [item for item in done if item.what == "remove"]
    _remove_folders(workspace, removed)
    return done


def _rewind_one(workspace: Workspace, store: UndoStore, run: UndoRun, item: FileRewind, undo_id: str) -> FileRewind:
    if item.what not in ("restore", "remove"):
        return item
    try:
        content = None if item.what == "remove" else item.change.content()
        with workspace.writing, workspace.place("/".join(item.parts)) as place:
            if place.parts != item.parts:
                raise UndoError("is behind a link now")
            file = workspace.open_existing(place)
            with nullcontext() if file is None else file:
                before = None if file is None else Before(file)
                data = None if before is None else before.data
                if (None if data is None else hash_of(data)) != item.now or (before is not None and data is None):
                    raise UndoError("was changed meanwhile")
                mode = item.change.mode if file is None else stat.S_IMODE(file.stat.st_mode)
                kept = store.keep(
                    run.root,
                    undo_id,
                    item.parts,
                    data,
                    content,
                    mode=mode,
                    folders=len(place.missing),
                    kind="undo",
                    undoes=run.id,
                )
                try:
                    _replace(workspace, place, before, content, item.change.mode)
                except BaseException:
                    kept.discard()
                    raise
    except (ToolError, OSError) as error:
        return item._replace(what="failed", note=str(error))
    return item


def _replace(workspace: Workspace, place: Place, before: Before | None, content: bytes | None, mode: int) -> None:
    @contextmanager
    def last_check() -> Generator[None]:
        if before is not None and not before.is_at(place, workspace):
            raise UndoError("was changed meanwhile")
        yield

    if content is None:
        with last_check():
            os.unlink(place.name, dir_fd=place.folder.fd)
        return
    place.make_folders()
    fd = None if before is None else before.file.fd
    status = replace_file(place, content, fd, last_check=last_check(), rename=workspace.rename, fsync=workspace.fsync)
    if stat.S_IMODE(status.st_mode) != mode:
        opened = place.open_name(os.O_RDONLY | os.O_NONBLOCK)
        if opened is not None:
            try:
                if os.path.samestat(os.fstat(opened), status):
                    os.fchmod(opened, mode)
            finally:
                os.close(opened)


def _remove_folders(workspace: Workspace, removed: Sequence[FileRewind]) -> None:
    """Removes the folders that were made for files that are now deleted, if they are empty."""
    made = {item.parts[: len(item.parts) - 1 - n] for item in removed for n in range(item.change.folders)}
    for parts in sorted(made, key=len, reverse=True):
        with suppress(OSError):
            above = workspace.beneath.open("/".join(parts[:-1]) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if above.parts == parts[:-1]:
                    os.rmdir(parts[-1], dir_fd=above.fd)
            finally:
                os.close(above.fd)


def _read(workspace: Workspace, parts: tuple[str, ...]) -> bytes | None:
    """The present content of the file, `None` if there is none. Raises `ToolError` or `OSError`."""
    with workspace.place("/".join(parts)) as place:
        if place.parts != parts:
            raise UndoError("is behind a link now")
        file = workspace.open_existing(place)
        if file is None:
            return None
        with file:
            data = Before(file).data
    if data is None:
        raise UndoError("is too large by now")
    return data


def _count_lines(now: bytes, then: bytes) -> tuple[int, int]:
    """Lines that the change adds and removes. A line that only moved is neither. `None` for what is not text."""
    old, new = decode_text(now), decode_text(then)
    if old is None or new is None:
        return 0, 0
    here, there = Counter(old.text.splitlines()), Counter(new.text.splitlines())
    return (there - here).total(), (here - there).total()
