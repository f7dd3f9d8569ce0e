"""`swink undo`: shows the changes of a run in a folder, also those of its commands, and undoes them.

`swink_agent.tools` decides what can be restored.
"""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from swink_agent.app.errors import ExitCode, UsageProblem
from swink_agent.app.runs.input_files import folder_of
from swink_agent.app.runs.telling import number_of
from swink_agent.app.runs.undo import ChangedRun, changed_runs, choose_run, elsewhere, open_checkpoints, texts_of
from swink_agent.approvals.display import safe_display
from swink_agent.rendering.texts.diffs import diff_lines
from swink_agent.rendering.turns import local_moment
from swink_agent.tools import CheckpointError, CheckpointStore, PathRewind

from ..process.groups import takes
from ..screen.screen import Screen, confirm, table

_VERBS = {"restore": "put back", "remove": "remove", "same": "keep", "changed": "leave", "failed": "leave"}
_MOST_LINES = 400
_SHOWN_ID = 8


@click.command(
    epilog="""\b
Examples:
  swink undo                  shows the changes of the last run here, and asks
  swink undo --dry-run        only shows them
  swink undo --list           lists the runs that changed files here
  swink undo --run 3f9a12 -y  undoes this run, without asking""",
)
@takes("-C --cwd FOLDER", "The folder of the run. Default: this one.", "folders", default=".")
@click.option("--run", "wanted", metavar="ID", help="The beginning of the run's id. Default: the last run.")
@click.option("--list", "list_all", is_flag=True, help="List the runs that changed files in the folder.")
@click.option("--dry-run", is_flag=True, help="Show what would be restored, and change nothing.")
@click.option("--force", is_flag=True, help="Also restore files that you or another program changed since.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def undo(cwd: str, wanted: str | None, list_all: bool, dry_run: bool, force: bool, yes: bool) -> int:
    """Undo the changes of a run, also those of its commands.

    Each call goes back one run further. Files that were changed since are left alone. Not covered are .git (commits
    stay), folders that git ignores, and large files.
    """
    folder, store = _folder(cwd), open_checkpoints()
    try:
        store.settle(folder)
        if list_all:
            _list(changed_runs(store, folder))
            return ExitCode.DONE
        run = choose_run(store, folder, wanted)
        plan = store.plan(run.root, run.before, force, runs={run.id})
        return _undo(store, run, plan, dry_run=dry_run, yes=yes)
    except CheckpointError as error:
        raise UsageProblem(str(error)) from error


def _undo(store: CheckpointStore, run: ChangedRun, plan: Sequence[PathRewind], *, dry_run: bool, yes: bool) -> int:
    _show(store, run, plan)
    possible = [item for item in plan if item.what in ("restore", "remove")]
    if not possible:
        is_done = all(item.what == "same" for item in plan)
        click.echo("Everything is as it was before." if is_done else "Nothing can be restored.", err=True)
        return ExitCode.DONE if is_done else ExitCode.FAILED
    code: int = ExitCode.DONE
    if not dry_run:
        if not yes:
            confirm(f"Put {number_of(len(possible), 'path')} back?", "put it back")
        code = _put_back(store, run, plan)
    for other in elsewhere(store, run):
        click.echo(
            f"The same run changed {number_of(other.changed, 'path')} in {safe_display(other.root, None)}: "
            f"swink undo -C {safe_display(shlex.quote(other.root), None)} --run {other.id[:_SHOWN_ID]}"
        )
    return code


def _folder(cwd: str) -> Path:
    try:
        return folder_of(cwd).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageProblem(f"{cwd} cannot be accessed: {error} (--cwd)") from error


def _list(runs: Sequence[ChangedRun]) -> None:
    if not runs:
        click.echo("No run has changed anything here.", err=True)
        return
    rows: list[tuple[str, ...]] = []
    for run in runs:
        states = [f"undo of {run.undoes[:_SHOWN_ID]}"] * bool(run.undoes) + ["put back"] * run.is_undone
        rows.append((run.id[:_SHOWN_ID], _time(run), number_of(run.changed, "path"), ", ".join(states)))
    click.echo(table(rows, right=(2,)))


def _time(run: ChangedRun) -> str:
    return local_moment(run.started * 1000, "%Y-%m-%d %H:%M")


# -- the plan ------------------------------------------------------------------------------------------------


def _show(store: CheckpointStore, run: ChangedRun, plan: Sequence[PathRewind]) -> None:
    """Prints the plan for each path, then the lines that change."""
    what = "Undo" if run.undoes else "Run"
    click.echo(f"{what} {run.id[:_SHOWN_ID]} of {_time(run)} in {safe_display(run.root, None)}:")
    changes = [_lines(store, run.root, item) for item in plan]
    rows: list[tuple[str, ...]] = []
    for item, lines in zip(plan, changes, strict=True):
        kinds = [kind for kind, _ in lines]
        counts = [(sign, kinds.count(kind)) for sign, kind in (("+", "added"), ("-", "removed"))]
        counted = " ".join(f"{sign}{count}" for sign, count in counts if count)
        notes = {"same": "as it was before", "changed": f"{item.note}; --force restores it anyway"}
        rows.append((f"  {_VERBS[item.what]}", item.path, counted, notes.get(item.what, item.note)))
    click.echo(table(rows))
    screen, room = Screen(sys.stdout), _MOST_LINES
    for item, lines in zip(plan, changes, strict=True):
        if not lines:
            continue
        if room <= 0:
            click.echo("There are more changes than are shown here.")
            break
        click.echo(f"\n{safe_display(item.path, None)}")
        screen.change(lines[:room], context="    ")
        room -= len(lines)


def _lines(store: CheckpointStore, root: str, item: PathRewind) -> list[tuple[str, str]]:
    """The lines that restoring the path changes, with their kinds."""
    texts = texts_of(store, root, item) if item.what in ("restore", "remove") else None
    return [] if texts is None else [*diff_lines(*texts)]


# -- putting back --------------------------------------------------------------------------------------------


def _put_back(store: CheckpointStore, run: ChangedRun, plan: Sequence[PathRewind]) -> int:
    undo_id = secrets.token_hex(8)
    done = store.rewind(run.root, plan, run_id=undo_id, undoes=run.id)
    count = sum(item.what in ("restore", "remove") for item in done)
    for before, item in zip(plan, done, strict=True):
        if item.what in ("changed", "failed") and before.what != item.what:
            click.echo(f"{safe_display(item.path, None)}: {safe_display(item.note, None)}", err=True)
    if count:
        click.echo(f"{number_of(count, 'path')} put back. To take that back: swink undo --run {undo_id[:_SHOWN_ID]}")
    return ExitCode.FAILED if any(item.what in ("changed", "failed") for item in done) else ExitCode.DONE
