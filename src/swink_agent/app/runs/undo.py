"""Where the application keeps copies of replaced files, and which run `swink undo` means.

Copies are written and restored by `swink_agent.tools`.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageProblem
from ..settings.paths import data_folder

if TYPE_CHECKING:
    from swink_agent.tools.files.undo import UndoRun, UndoStore

__all__ = ["choose_run", "open_undo", "undo_folder"]


def undo_folder() -> Path:
    return data_folder() / "undo"


def open_undo(warnings: list[str]) -> UndoStore:
    """The user's copies. The folder is created at once: one that does not exist cannot be hidden from commands.

    If it cannot be created, every change of a file is refused, and a warning says why.
    """
    from swink_agent.tools.files.undo import UndoStore

    store = UndoStore(undo_folder())
    try:
        store.prepare()
    except OSError as error:
        warnings.append(
            f"files will not be changed: {store.folder}, where copies of them would be kept, cannot be made "
            f"({error.strerror or error}); set SWINK_DATA_DIR to another folder, or turn undo off: SWINK_UNDO=off"
        )
    return store


def choose_run(store: UndoStore, folder: Path, wanted: str | None) -> UndoRun:
    """The run that is meant: the last one in the folder that was not undone, or the one whose id begins like that.

    Raises `UsageProblem`.
    """
    runs = store.runs(folder)
    if wanted is not None:
        found = [run for run in runs if run.id.startswith(wanted)] if wanted else []
        if len(found) == 1:
            return found[0]
        why = "more than one run" if found else "no run"
        raise UsageProblem(f"{why} in {folder} has an id that begins with {wanted!r}: see swink undo --list")
    for run in runs:
        if run.kind == "run" and run.undone == "no":
            return run
    raise UsageProblem(_nothing(store, folder, has_runs=bool(runs)))


def _nothing(store: UndoStore, folder: Path, *, has_runs: bool) -> str:
    if has_runs:
        return f"all that runs changed in {folder} was put back already, as far as it could be: see swink undo --list"
    for above in Path(os.path.realpath(folder)).parents:
        if store.runs(above):
            return f"no run has changed a file from {folder}; one did from {above}: swink undo -C {above}"
    newest = store.newest()  # perhaps a run from here, in a folder that was added to it
    if newest is not None:
        where = shlex.quote(newest.root)
        return (
            f"no run has changed a file in {folder}; the last one changed files in {newest.root}: swink undo -C {where}"
        )
    return f"there is nothing to put back: no run has changed a file in {folder} with its file tools"
