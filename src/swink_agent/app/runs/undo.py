"""Where the application keeps checkpoints, which runs they belong to, and which one `swink undo` means.

Checkpoints are taken and brought back by `swink_agent.tools`.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from swink_agent.core.errors import ToolError
from swink_agent.core.machine.beneath import FILE

from ..errors import UsageProblem
from ..settings.paths import data_folder

if TYPE_CHECKING:
    from swink_agent.tools import Checkpoint, CheckpointStore, PathRewind


class ChangedRun(NamedTuple):
    """A run that changed something in a folder, or an undo of one."""

    id: str
    before: Checkpoint
    """The state of the folder before it."""
    changed: int
    """The numbers of paths that its calls changed, added up."""
    undoes: str
    """If it is an undo, the ids of the runs that it undid, separated by spaces."""
    is_undone: bool

    @property
    def root(self) -> str:
        return self.before.root

    @property
    def started(self) -> float:
        return self.before.taken


def open_checkpoints() -> CheckpointStore:
    from swink_agent.tools import CheckpointStore

    return CheckpointStore(data_folder() / "checkpoints")


def why_unkept(store: CheckpointStore) -> str:
    """Why no checkpoint can be kept, or an empty text. Creates the folder: only then can it be hidden from commands."""
    try:
        store.prepare()
    except OSError as error:
        return (
            f"{store.folder}, the folder for checkpoints, cannot be created ({error.strerror or error}); set "
            "SWINK_DATA_DIR to another folder, or turn undo off: SWINK_UNDO=off"
        )
    return ""


def changed_runs(store: CheckpointStore, folder: str | os.PathLike[str]) -> list[ChangedRun]:
    """The runs that changed something in the folder, the newest first. Raises `CheckpointError`."""
    taken = store.checkpoints(folder)[::-1]
    found: dict[str, ChangedRun] = {}
    for position, checkpoint in enumerate(taken):
        if checkpoint.owner != "run" or not checkpoint.changed or not checkpoint.run_id:
            continue
        known = found.get(checkpoint.run_id)
        if known is not None:
            found[known.id] = known._replace(changed=known.changed + checkpoint.changed)
        elif position:  # the checkpoint before may be deleted because of its age
            before = next((each for each in taken[:position] if each.run_id == checkpoint.run_id), taken[position - 1])
            found[checkpoint.run_id] = ChangedRun(
                checkpoint.run_id, before, checkpoint.changed, checkpoint.undoes, is_undone=False
            )
    undone: dict[str, bool] = {}
    for run in reversed(found.values()):  # an undo that was itself undone does not count
        if not undone.get(run.id):
            undone.update(dict.fromkeys(run.undoes.split(), True))
    return [run._replace(is_undone=undone.get(run.id, False)) for run in reversed(found.values())]


def choose_run(store: CheckpointStore, folder: Path, wanted: str | None) -> ChangedRun:
    """The run whose id begins with `wanted`; with `None`, the last one in the folder that was not undone.

    Raises `UsageProblem`, `CheckpointError`.
    """
    runs = changed_runs(store, folder)
    if wanted is not None:
        found = [run for run in runs if run.id.startswith(wanted)] if wanted else []
        if len(found) == 1:
            return found[0]
        why = "more than one run" if found else "no run"
        raise UsageProblem(f"{why} in {folder} has an id that begins with {wanted!r}: see swink undo --list")
    for run in runs:
        if not run.undoes and not run.is_undone:
            return run
    raise UsageProblem(_nothing(store, folder, has_runs=bool(runs)))


def elsewhere(store: CheckpointStore, run: ChangedRun) -> list[ChangedRun]:
    """The changes of the same run in other folders that were not undone there."""
    others = [other for root in store.roots() if root != run.root for other in changed_runs(store, root)]
    return [other for other in others if other.id == run.id and not other.is_undone]


def _nothing(store: CheckpointStore, folder: Path, *, has_runs: bool) -> str:
    if has_runs:
        return f"all changes of runs in {folder} are already undone, as far as possible: see swink undo --list"
    for above in Path(os.path.realpath(folder)).parents:
        if changed_runs(store, above):
            return f"no run has changed anything from {folder}; one did from {above}: swink undo -C {above}"
    for root in store.roots():  # perhaps a run from here, in a folder that was added to it
        if any(not run.undoes and not run.is_undone for run in changed_runs(store, root)):
            where = shlex.quote(root)
            return (
                f"no run has changed anything in {folder}; the last one changed files in {root}: swink undo -C {where}"
            )
    return f"there is nothing to undo: no run has changed anything in {folder}"


def texts_of(store: CheckpointStore, root: str, item: PathRewind) -> tuple[str, str] | None:
    """The current text of a file and the text that undo would restore; `None` unless both are text files or missing."""
    from swink_agent.tools.checkpoints.tree_entries import hash_of
    from swink_agent.tools.files.text import decode_text

    present, target = item.present, item.target
    if any(entry is not None and entry.kind != "file" for entry in (present, target)):
        return None
    try:
        now = b"" if item.now is None else _read(os.path.join(root, item.path))
        then = b"" if item.before is None else store.content(root, item.before)
    except (OSError, ToolError):
        return None
    if item.now is not None and hash_of(now) != item.now:  # changed meanwhile, or reached through a link
        return None
    old, new = decode_text(now), decode_text(then)
    return None if old is None or new is None else (old.text, new.text)


def _read(path: str) -> bytes:
    """The content of a regular file. Never waits: it may have become a pipe."""
    with open(os.open(path, FILE), "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
