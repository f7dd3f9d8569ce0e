"""`swink sessions`: lists, shows, searches, exports, renames, forks, replays and removes recorded sessions.

The rows are formatted in `screen.session_pages`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click
import msgspec

from swink_agent.app.agent.standard import redactor_for
from swink_agent.app.errors import ExitCode, UsageProblem
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.runs.sessions import (
    SessionProblem,
    age_of,
    illegible_ids,
    import_atif,
    open_store,
    session_ids,
    session_problems,
    short_ids,
)
from swink_agent.app.runs.telling import age, number_of
from swink_agent.app.settings.paths import beneath_home, write_whole
from swink_agent.app.settings.settings import load_settings
from swink_agent.app.trust.trust import TrustStore, find_project
from swink_agent.approvals.display import safe_display
from swink_agent.rendering.cells import laid_out
from swink_agent.rendering.escaping import safe_text

from ..process.groups import Group, Number, also_called, offered, takes
from ..screen.screen import Palette, confirm, say_json, table, wants_colour, width_of, write_answer
from ..screen.session_pages import facts, listing, remarks, rows_of

if TYPE_CHECKING:
    from swink_agent.memory import JsonlSessionStore, SessionInfo

_FEW_TO_READ = 50
"""Number of sessions that a search reads without showing progress."""

Format = Literal["html", "markdown", "json", "atif"]
_LARGEST_TRAJECTORY = 256 * 1024 * 1024
_ENDINGS: dict[str, Format] = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json"}


@click.group(
    cls=Group,
    invoke_without_command=True,
    epilog="""\b
Examples:
  swink sessions                         the sessions of this folder, the newest first
  swink sessions list --all --json | jq -r '.[].id'
  swink sessions show 20260131-2359
  swink sessions search "connection pool"
  swink sessions export 20260131-2359 -o talk.html
  swink sessions fork 20260131-2359 --at 4
  swink sessions prune --older-than 30d

\b
To continue one: swink -p "…" --continue, or --resume ID. The beginning of an ID is enough.""",
)
@click.option("-a", "--all", "everywhere", is_flag=True, help="Also list the sessions of other folders.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
@click.pass_context
def sessions(ctx: click.Context, everywhere: bool, as_json: bool) -> None:
    """List, show, search, export, fork and remove recorded runs.

    `swink` records each conversation, so that it can be continued later. `swink config set sessions false` turns that
    off.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_sessions, everywhere=everywhere, as_json=as_json)
    elif everywhere or as_json:
        ctx.fail(f"--{'all' if everywhere else 'json'} goes after the command: swink sessions list --all --json.")


def _store() -> JsonlSessionStore:
    return open_store(load_settings())


_id = click.argument("session_id", metavar="ID", shell_complete=offered("sessions"))


# -- looking -------------------------------------------------------------------------------------------------


@sessions.command("list")
@click.option("-a", "--all", "everywhere", is_flag=True, help="Also list the sessions of other folders.")
@takes("-C --cwd FOLDER", "List the sessions of this folder.", "folders")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def list_sessions(everywhere: bool = False, cwd: str | None = None, as_json: bool = False) -> None:
    """List sessions, the most recently used first."""
    from swink_agent.memory.sessions.info import folder_name

    store = _store()
    folder = None if everywhere else _folder(cwd)
    with session_problems():
        listed = store.list()
    infos = listed if folder is None else [info for info in listed if info.cwd == folder_name(folder)]
    if as_json:
        say_json([_object(info) for info in infos])
        return
    if not infos:
        where = f"in {store.folder}" if folder is None else f"of {folder}; --all lists those of other folders"
        click.echo(safe_display(f"There is no session {where}.", None), err=True)
    else:
        click.echo(_listing(store, infos, with_folder=folder is None))
    if damaged := sum(bool(info.damage) for info in infos):
        click.echo(f"! damaged: {damaged} of them; `swink sessions show ID` shows how.", err=True)
    if folder is not None and (unknown := sum(not info.cwd for info in listed)):
        are, them = ("is", "it") if unknown == 1 else ("are", "them")
        said = f"! {number_of(unknown, 'session')} {are} without a folder: `swink sessions list --all` lists {them}."
        click.echo(said, err=True)
    if illegible := illegible_ids(store, listed):
        some = ", ".join(illegible[:5]) + (", …" if len(illegible) > 5 else "")
        said = f"! The content of {number_of(len(illegible), 'file')} cannot be read: {some}."
        click.echo(f"{said} `swink sessions show ID` shows why.", err=True)


def _listing(store: JsonlSessionStore, infos: Sequence[SessionInfo], *, with_folder: bool) -> str:
    short = short_ids([info.id for info in infos], session_ids(store.folder))
    return listing(infos, short, Credentials().redactor(), width=width_of(sys.stdout), with_folder=with_folder)


def _folder(given: str | None) -> Path:
    try:
        if given is None:
            return Path.cwd().resolve()
    except OSError as error:
        raise UsageProblem("the current folder is gone: `swink sessions list --all` lists all sessions") from error
    if not given:
        raise UsageProblem("an empty text names no folder (--cwd)")
    try:
        return Path(given).expanduser().resolve()  # a deleted folder may still have sessions
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageProblem(f"{given} is not a folder: {error} (--cwd)") from error


def _object(info: SessionInfo) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(info)
    return {**fields, "model": None if info.model is None else str(info.model)}


@sessions.command("show")
@_id
@click.option("--full", is_flag=True, help="Show every message in full.")
def show(session_id: str, full: bool) -> None:
    """Show the messages and calls of a session. The number before a message is for `fork --at`."""
    with session_problems():
        loaded = _store().load(session_id)
    redactor, width = Credentials().redactor(), width_of(sys.stdout)
    palette = Palette(wants_colour(sys.stdout))
    rows: list[str] = []
    for name, text in facts(loaded, redactor):
        rows += laid_out(safe_display(text, None), f"{name:<12} ", "  ┆ ", width)
    besides = remarks(loaded, redactor, width=width, full=full)
    rows += besides.get(0, [])
    for number, message in enumerate(loaded.messages, 1):
        rows += ["", *rows_of(number, message, redactor, palette, width=width, full=full), *besides.get(number, [])]
    click.echo("\n".join(rows))


def _progress(done: int, total: int) -> None:
    """Shows progress on stderr while many sessions are read for the first time."""
    if total < _FEW_TO_READ:
        return
    if done == total:
        click.echo("\r" + " " * 60 + "\r", nl=False, err=True)
    elif done % _FEW_TO_READ == 0:
        click.echo(f"\rreading sessions: {done} of {total}", nl=False, err=True)


@sessions.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "--limit", type=Number(1, 1000), default=20, help="The most results. Default: 20.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def search(words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find words in all sessions, the best result first.

    Words in double quotes must be next to each other: swink sessions search '"connection pool" timeout'.
    """
    if not any(character.isalnum() for word in words for character in word):
        raise UsageProblem("there is no word to search for: give at least one")
    store = _store()
    with session_problems():
        hits = store.search(" ".join(words), limit, on_progress=_progress if sys.stderr.isatty() else None)
    if as_json:
        found = [{"session": _object(hit.session), "position": hit.position, "snippet": hit.snippet} for hit in hits]
        say_json(found)
        return
    if not hits:
        click.echo("No session contains these words.", err=True)
        return
    redactor, width = Credentials().redactor(), width_of(sys.stdout)
    short = short_ids([hit.session.id for hit in hits], session_ids(store.folder))
    for hit in hits:
        info: SessionInfo = hit.session
        name = info.id if width is None else short[info.id]
        rows = [(f"{name} [{hit.position + 1}]", age(info.updated), redactor.redact(info.title))]
        click.echo(table(rows, room=width, whole=(0, 1)))
        for row in laid_out(safe_text(redactor.redact(hit.snippet)), "  │ ", "  │ ", width, most=6):
            click.echo(row)


@sessions.command("export")
@_id
@click.option("--format", "format_name", type=click.Choice(get_args(Format)), help="Default: markdown.")
@takes("-o --output file FILE", "Default: stdout.", "files")
@click.option("--force", is_flag=True, help="Replace the file, if there is one.")
def export(session_id: str, format_name: Format | None, file: str | None, force: bool) -> None:
    """Print a session, or write it to a file.

    The ending of the file chooses Markdown, one page of HTML, or JSON. --format atif is the trajectory format that
    agent benchmarks and viewers read.
    """
    path = None if file in (None, "-") else beneath_home(file, "-o")
    ending = "" if path is None else path.suffix.lower()
    if ending and format_name is None and ending not in _ENDINGS:
        known = ", ".join(_ENDINGS)
        raise UsageProblem(f"{path}: no format has the ending {ending}: use one of {known}, or give --format")
    if path is not None and path.is_file() and not force:
        raise UsageProblem(f"{path} is there already (-o): give another name, or --force to replace it")
    with session_problems():
        text = _store().export(session_id, format_name or _ENDINGS.get(ending, "markdown"))
    text = text if text.endswith("\n") else text + "\n"
    if path is None:
        write_answer(text)
        return
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"cannot be written: {path.parent} is not a folder"
        raise UsageProblem(f"{path} {what} (-o)")
    try:
        write_whole(path, text.encode("utf-8", "replace").decode(), mode=0o600)
    except OSError as error:
        raise SessionProblem(f"{path} cannot be written: {error.strerror or error}") from error


@sessions.command("import")
@click.argument("file", metavar="FILE", shell_complete=offered("files"))
def import_trajectory(file: str) -> None:
    """Make a session from an ATIF trajectory of this or another agent. Prints its id."""
    from swink_agent.app.runs.input_files import read_input

    data = read_input(file, "", _LARGEST_TRAJECTORY)
    settings = load_settings()
    with session_problems():
        new_id, left_out = import_atif(data, file, open_store(settings), redactor_for(settings, Credentials()))
    click.echo(new_id)
    for words in left_out:
        click.echo(f"note: left out: {words}", err=True)


# -- changing ------------------------------------------------------------------------------------------------


@sessions.command("rename")
@_id
@click.argument("title")
def rename(session_id: str, title: str) -> None:
    """Give a session another title; an empty one removes it."""
    settings = load_settings()
    title = title.encode("utf-8", "surrogateescape").decode("utf-8", "replace").strip()
    from swink_agent.memory import SessionInUse

    with session_problems():
        try:
            open_store(settings).rename(session_id, redactor_for(settings, Credentials()).redact(title))
        except ValueError as error:
            raise UsageProblem(str(error)) from error
        except SessionInUse as error:
            raise SessionProblem(_in_use(Path(error.path).stem)) from error


@sessions.command("fork")
@_id
@takes("--at N", "Only the first N messages. Default: all.", type=int)
def fork(session_id: str, at: int | None) -> None:
    """Begin a new session with the messages of another. Prints its id."""
    with session_problems():
        try:
            with _store().fork(session_id, at) as session:
                new_id = session.id
        except ValueError as error:
            raise UsageProblem(f"{error} (--at)") from error
    click.echo(new_id)
    if sys.stderr.isatty():
        click.echo(f'To continue it: swink -p "…" --resume {new_id}', err=True)


@sessions.command("replay")
@_id
def replay(session_id: str) -> int:
    """Replay a session offline; show the first difference.

    No model is asked and no tool runs. The recorded replies, results and answers to questions are used; the rest is
    done by the current standard agent with the current settings. The exit code is 1 if there is a difference.
    """
    from swink_agent.app.runs.replaying import replay_session

    with session_problems():
        loaded = _store().load(session_id)
    folder = Path(loaded.info.cwd) if loaded.info.cwd and Path(loaded.info.cwd).is_dir() else Path.cwd()
    project = find_project(folder, TrustStore())
    settings = load_settings(project=None if project is None else project.settings_files)
    report = asyncio.run(replay_session(loaded, settings, Credentials(), folder, project))
    width = width_of(sys.stdout)
    if report.divergence is None:
        what = f"all {report.messages} messages" if report.messages != 1 else "the one message"
        told = f"There is no difference: {what} of {number_of(report.runs, 'run')} came out alike."
        click.echo("\n".join(laid_out(told, "", "  ┆ ", width)))
        return ExitCode.DONE
    divergence = report.divergence
    redactor = Credentials().redactor()
    difference = redactor.redact("\n".join(divergence.difference))
    told = f"The first difference is at [{divergence.position + 1}]: {redactor.redact(divergence.reason)}"
    rows = laid_out(safe_text(told), "", "  ┆ ", width)
    rows += laid_out(safe_text(difference), "  │ ", "  │ ", width) if difference else []
    if stop := loaded.runs()[divergence.run].stopped_by:
        why = f"{stop.policy} ended the run when it was recorded: {stop.reason}."
        why += " A replay uses the current limits."
        rows += laid_out(safe_text(redactor.redact(why)), "", "  ┆ ", width)
    click.echo("\n".join(rows))
    return ExitCode.FAILED


@sessions.command("rm")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, shell_complete=offered("sessions"))
def remove(ids: tuple[str, ...]) -> int:
    """Delete sessions, without asking. A session in use stays."""
    store = _store()
    whole = session_ids(store.folder, ids)
    return _delete(store, whole)


also_called(sessions, remove, "remove")


@sessions.command("prune")
@takes("--older-than limit AGE", "Sessions not used for this time: 12h, 30d, 8w.", required=True)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def prune(limit: str, dry_run: bool, yes: bool) -> int:
    """Delete old sessions of all folders. A session in use stays."""
    store = _store()
    oldest = time.time_ns() // 1_000_000 - age_of(limit)
    with session_problems():
        old = _unused_since(store, oldest)
    if not old:
        click.echo(f"No session is older than {limit}.", err=True)
        return ExitCode.DONE
    click.echo(_listing(store, old, with_folder=True))
    if dry_run:
        click.echo("Nothing is deleted. Sessions in use would stay.", err=True)
        return ExitCode.DONE
    count = number_of(len(old), "session")
    if not yes:
        confirm(f"Delete {count}?", f"delete the {count}")
    with session_problems():
        still_old = {info.id for info in _unused_since(store, oldest)}  # the user may have taken long to answer
    return _delete(store, [info.id for info in old if info.id in still_old], spares_used=True)


def _unused_since(store: JsonlSessionStore, oldest: int) -> list[SessionInfo]:
    """The sessions that were last used before that moment, as far as that is known."""
    return [info for info in store.list() if 0 < info.updated < oldest]


def _delete(store: JsonlSessionStore, ids: Sequence[str], *, spares_used: bool = False) -> int:
    """Deletes these sessions and reports failures. With `spares_used`, a session in use is not a failure."""
    from swink_agent.memory import SessionInUse

    from ..process.entry import complain

    with session_problems():
        kept = store.delete_all(ids)
    spared = 0
    for session_id, problem in kept.items():
        if not isinstance(problem, SessionInUse):
            complain(str(problem))
        elif spares_used:
            spared += 1
        else:
            complain(_in_use(session_id))
    deleted = len(ids) - len(kept)
    if deleted:
        click.echo(f"{number_of(deleted, 'session')} deleted.", err=True)
    if spared:
        click.echo(f"{number_of(spared, 'session')} in use {'stays' if spared == 1 else 'stay'}.", err=True)
    return ExitCode.DONE if deleted + spared == len(ids) else ExitCode.FAILED


def _in_use(session_id: str) -> str:
    """The library's message without the advice to fork, which is for users who want to continue."""
    return f"session {session_id} is in use, here or by another process: close it there first"
