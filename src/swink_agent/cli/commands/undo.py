"""`swink undo`: shows what a run's file tools changed in a folder, and restores it.

Owns the words and the question. What can be restored is decided in `swink_agent.tools`.
"""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from swink_agent.app.errors import ExitCode, UsageProblem
from swink_agent.app.runs.input_files import folder_of
from swink_agent.app.runs.undo import choose_run, undo_folder
from swink_agent.approvals.display import safe_display
from swink_agent.rendering.turns import local_moment
from swink_agent.tools.files.rewind import FileRewind, plan_rewind, rewind
from swink_agent.tools.files.undo import UndoRun, UndoStore
from swink_agent.tools.workspace.wall import Workspace

from ..screen.screen import confirm
from ..screen.table import table

__all__ = ["undo"]

_VERBS = {"restore": "put back", "remove": "remove", "same": "keep", "changed": "leave", "failed": "leave"}
_SHOWN_ID = 8


@click.command(
    epilog="""\b
Examples:
  swink undo                  shows what the last run here changed, and asks
  swink undo --dry-run        only shows it
  swink undo --list           the runs that changed files here
  swink undo --run 3f9a12 -y  this one, without asking""",
)
@click.option("-C", "--cwd", metavar="FOLDER", default=".", help="The folder the run worked in. Default: this one.")
@click.option("--run", "wanted", metavar="ID", help="Which run, by the beginning of its id. Default: the last one.")
@click.option("--list", "list_all", is_flag=True, help="List the runs that changed files in the folder.")
@click.option("--dry-run", is_flag=True, help="Show what would be put back, and change nothing.")
@click.option("--force", is_flag=True, help="Also put back files that were changed since, by whomever.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def undo(cwd: str, wanted: str | None, list_all: bool, dry_run: bool, force: bool, yes: bool) -> int:
    """Put back what the file tools of a run changed.

    Each call goes back one run further. Files that were changed since are left alone. What commands (bash) changed is
    not covered: no copies are kept of that.
    """
    folder = _folder(cwd)
    store = UndoStore(undo_folder())
    if list_all:
        _list(store.runs(folder))
        return ExitCode.DONE
    run = choose_run(store, folder, wanted)
    with_root = Workspace(run.root)
    plan = plan_rewind(with_root, run, force=force)
    click.echo(f"{_title(run)} in {safe_display(run.root, None)}:")
    click.echo(_plan_text(plan))
    possible = [item for item in plan if item.what in ("restore", "remove")]
    if not possible:
        return _nothing_possible(run, plan, dry_run=dry_run)
    if dry_run:
        _tell_elsewhere(store, run)
        return ExitCode.DONE
    _ask(len(possible), yes=yes)
    code = _put_back(with_root, store, run, plan)
    _tell_elsewhere(store, run)
    return code


def _folder(cwd: str) -> Path:
    try:
        return folder_of(cwd).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageProblem(f"{cwd} cannot be looked at: {error} (--cwd)") from error


def _list(runs: Sequence[UndoRun]) -> None:
    if not runs:
        click.echo("No run has changed files here.", err=True)
        return
    rows: list[tuple[str, ...]] = []
    for run in runs:
        files = len({change.parts for change in run.changes()})
        state = f"undo of {(run.undoes or '')[:_SHOWN_ID]}" if run.kind == "undo" else ""
        if run.undone != "no":
            state += f"{', ' if state else ''}put back{' in part' if run.undone == 'in part' else ''}"
        rows.append((run.id[:_SHOWN_ID], _time(run), f"{files} file{'s' * (files != 1)}", state))
    click.echo(table(rows, right=(2,)))


def _title(run: UndoRun) -> str:
    what = "Undo" if run.kind == "undo" else "Run"
    return f"{what} {run.id[:_SHOWN_ID]} of {_time(run)}"


def _time(run: UndoRun) -> str:
    return local_moment(run.started * 1000, "%Y-%m-%d %H:%M")


def _plan_text(plan: Sequence[FileRewind]) -> str:
    rows = [(f"  {_VERBS[item.what]}", "/".join(item.parts), _lines(item), _note(item)) for item in plan]
    return table(rows)


def _lines(item: FileRewind) -> str:
    counts = [f"+{item.added}"] * bool(item.added) + [f"-{item.removed}"] * bool(item.removed)
    return " ".join(counts)


def _note(item: FileRewind) -> str:
    match item.what:
        case "same":
            return "as it was before"
        case "changed":
            return f"{item.note}; --force puts it back all the same"
        case _:
            return item.note


def _nothing_possible(run: UndoRun, plan: Sequence[FileRewind], *, dry_run: bool) -> int:
    if any(item.what != "same" for item in plan):
        click.echo("Nothing can be put back.", err=True)
        return ExitCode.FAILED
    click.echo("All of it is as it was before.", err=True)
    if not dry_run:
        run.mark("whole")
    return ExitCode.DONE


def _ask(count: int, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageProblem("there is nobody to ask: add --yes to put it back, or --dry-run to see what that means")
    confirm(f"Put {count} file{'s' * (count != 1)} back?")


def _put_back(workspace: Workspace, store: UndoStore, run: UndoRun, plan: Sequence[FileRewind]) -> int:
    undo_id = secrets.token_hex(8)
    done = rewind(workspace, store, run, plan, undo_id)
    count = sum(item.what in ("restore", "remove") for item in done)
    failed = [item for item in done if item.what in ("changed", "failed")]
    for before, item in zip(plan, done, strict=True):
        if item.what == "failed" and before.what != "failed":
            name = safe_display("/".join(item.parts), None)
            click.echo(f"{name}: {safe_display(item.note, None)}", err=True)
    if count:
        _mark(store, run, "in part" if failed else "whole")
        click.echo(
            f"{count} file{'s' * (count != 1)} put back. To take that back: swink undo --run {undo_id[:_SHOWN_ID]}"
        )
    return ExitCode.FAILED if failed else ExitCode.DONE


def _tell_elsewhere(store: UndoStore, run: UndoRun) -> None:
    """Restores what the run changed in the folders that were added to its own."""
    for other in store.elsewhere(run):
        if other.undone == "no":
            count = len({change.parts for change in other.changes()})
            click.echo(
                f"The same run changed {count} file{'s' * (count != 1)} in {safe_display(other.root, None)}: "
                f"swink undo -C {safe_display(shlex.quote(other.root), None)} --run {other.id[:_SHOWN_ID]}"
            )


def _mark(store: UndoStore, run: UndoRun, undone: Literal["in part", "whole"]) -> None:
    """Marks the run as undone. If it was itself an undo, what it had undone counts again."""
    run.mark(undone)
    for other in store.runs(run.root):
        if other.id == run.undoes:
            other.mark("no")
