"""Keeps the states of a folder at several moments, and plans the way back to one of them.

The store is a folder that only the user can read, with one SQLite database for each working folder. A database has the
last state of the tree, the contents by hash, and for each checkpoint the previous entries of the changed paths: older
states are found by going back from the last one. `tree_entries` reads the working folder and `restoring` writes to it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, cast

from swink_agent.core.machine.files import make_private
from swink_agent.core.values.checks import a_kind, check_number, check_text, check_whole, is_not
from swink_agent.core.values.several import several_texts

from .._bounded import show_size
from .checkpoint import Checkpoint, CheckpointError, Owner, PathRewind, What
from .restoring import restore
from .tree_entries import KEPT, Entry, Kind, Seen, Signature, TooManyFiles, Tree, hash_of, opened_root

log = logging.getLogger("swink_agent")

_MIB = 1024 * 1024
_DAY = 24 * 3600.0
_WAIT = 30.0
_ENDING = ".sqlite"
_KINDS: tuple[Kind, ...] = ("file", "folder", "link", "ignored", "unkept")
_PRESSED = b"z"
_PLAIN = b"="
_TABLES = """
create table if not exists about (name text primary key, value text) without rowid;
create table if not exists contents (hash text primary key, data blob not null) without rowid;
create table if not exists state (
    path blob primary key, kind integer, mode integer, hash text,
    inode integer, size integer, modified integer, changed integer
) without rowid;
create table if not exists checkpoints (
    number integer primary key autoincrement, id text unique, taken real, run_id text, owner text,
    files integer, changed integer, skipped text, undoes text
);
create table if not exists changes (
    number integer, path blob, kind integer, mode integer, hash text,
    new_kind integer, new_mode integer, new_hash text,
    primary key (number, path)
) without rowid;
"""


class _Change(NamedTuple):
    is_own: bool  # whether it is to be taken back
    is_theirs: bool  # whether it was not made by a run
    before: Entry | None
    after: Entry | None


class CheckpointStore:
    """Checkpoints of any number of folders, bounded in size and time. Safe for threads and several processes.

    A file above `most_file` bytes is not kept. A folder with more than `most_files` entries, or whose files alone have
    more than `most_total` bytes, has no checkpoints. Checkpoints are deleted after `most_days`, and the oldest first
    when the total is reached.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        most_file: int = 10 * _MIB,
        most_total: int = 2048 * _MIB,
        most_files: int = 200_000,
        most_days: float = 30,
        clock: Callable[[], float] = time.time,
    ) -> None:
        for name, value in (("most_file", most_file), ("most_total", most_total), ("most_files", most_files)):
            check_whole(name, value)
        check_number("most_days", most_days)
        if not most_days > 0:
            raise ValueError(f"most_days must be more than 0, not {most_days}")
        self.folder = Path(folder).absolute()
        self.most_file = most_file
        self._most_total = most_total
        self._most_files = most_files
        self._most_days = most_days
        self._clock = clock
        self._lock = threading.Lock()
        self._states: dict[str, tuple[int, dict[bytes, Seen]]] = {}
        """The last state of each folder, with the number of its checkpoint. Reading a large one takes long."""

    def __repr__(self) -> str:
        return f"CheckpointStore({str(self.folder)!r})"

    def prepare(self) -> None:
        """Creates the folder, for the user alone. Raises `OSError`."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder.stat().st_mode & 0o077:
            self.folder.chmod(0o700)

    # -- taking ----------------------------------------------------------------------------------------------

    def take(
        self,
        root: str | os.PathLike[str],
        run_id: str = "",
        owner: Owner = "other",
        *,
        opens: bool | str = False,
        undoes: str = "",
    ) -> Checkpoint:
        """Records the state of the folder. It is on disk when this returns.

        `owner` is who made the changes since the last checkpoint. Take one before a call that may change something
        (`other`), and one after it (`run`). With `opens`, changes until the next checkpoint belong to the run, or to
        the run with this id, even if the program dies before it takes that checkpoint. Raises `CheckpointError`; then
        nothing was recorded.
        """
        if owner not in ("other", "run"):
            raise ValueError(f"owner must be 'other' or 'run', not {owner!r}")
        check_text("run_id", run_id)
        return self._take(root, run_id, owner, opens=opens, undoes=undoes)

    def _take(
        self,
        root: str | os.PathLike[str],
        run_id: str = "",
        owner: Owner = "other",
        *,
        opens: bool | str = False,
        undoes: str = "",
        makes_room: bool = True,
    ) -> Checkpoint:
        """Without `makes_room` nothing is deleted: the store may have more than its total until the next checkpoint."""
        path, written = os.path.realpath(root), False
        with self._lock:
            try:
                self.prepare()
                with closing(_connect(self._database(path), make=True)) as base, _writing(base):
                    began = _open_run(base)
                    if began and owner == "other":
                        self._record(base, path, began, "run", "")
                    kept = self._record(base, path, run_id, owner, undoes)
                    if makes_room and not self._bound(base, run_id):
                        raise self._full(base, path)
                    _set_open_run(base, opens if isinstance(opens, str) else run_id if opens else "")
                    base.commit()
                    written = True
                    return kept
            except TooManyFiles:
                raise CheckpointError(
                    f"no checkpoint of {path} could be kept: it has more than {self._most_files:,} files; work in a "
                    "folder with fewer, let git ignore some, or turn undo off"
                ) from None
            except (OSError, sqlite3.Error, OverflowError) as error:
                why = getattr(error, "strerror", None) or str(error)
                raise CheckpointError(
                    f"no checkpoint of {path} could be kept in {self.folder} ({why}); make that possible, or turn undo "
                    "off"
                ) from error
            finally:
                if not written:
                    self._states.pop(path, None)  # its number goes to another checkpoint

    def _too_large(self, root: str, why: str = "its files have more than") -> CheckpointError:
        return CheckpointError(
            f"no checkpoint of {root} could be kept: {why} {show_size(self._most_total)}; let git ignore some, or turn "
            "undo off"
        )

    def _full(self, base: sqlite3.Connection, root: str) -> CheckpointError:
        """The error for a checkpoint that does not fit after all was deleted that may be."""
        if _size(base) <= self._most_total:
            return CheckpointError(
                f"no checkpoint of {root} could be kept: with it, those of other folders fill the store, "
                f"{show_size(self._most_total)}; delete files in {self.folder} that are not needed, or turn undo off"
            )
        (left,) = base.execute("select count(*) from checkpoints").fetchone()
        if left > 1:
            return self._too_large(root, "its files and what this run has changed in them need more than")
        return self._too_large(root)

    def _record(self, base: sqlite3.Connection, root: str, run_id: str, owner: Owner, undoes: str) -> Checkpoint:
        base.execute("insert or ignore into about values ('root', ?)", (os.fsencode(root),))
        known = self._state(base, root)
        room = self._most_total

        def keep(content_hash: str, data: bytes) -> None:
            nonlocal room
            if base.execute("select 1 from contents where hash = ?", (content_hash,)).fetchone() is not None:
                return
            pressed = zlib.compress(data, 1)
            packed = _PRESSED + pressed if len(pressed) < len(data) else _PLAIN + data
            room -= len(packed)
            if room < 0:
                raise self._too_large(root)
            base.execute("insert into contents values (?, ?)", (content_hash, packed))

        with opened_root(root) as descriptor:
            tree = self._look(base, descriptor, known, keep, may_be_taken_in=owner == "other")
        taken = self._clock()
        changed: list[tuple[bytes, Seen | None, Seen | None]] = [
            (path, known.get(path), tree.entries[path]) for path in sorted(tree.changed)
        ]
        changed += [(path, known[path], None) for path in known.keys() - tree.entries.keys()]
        real = [(path, old, new) for path, old, new in changed if _entry(old) != _entry(new)]
        files = len(tree.entries) - len(tree.left_out)
        kept = Checkpoint(
            secrets.token_hex(8), root, taken, run_id, owner, files, len(real), tuple(tree.skipped), undoes
        )
        skipped = "\0".join(kept.skipped).encode("utf-8", "surrogateescape")
        row = (kept.id, taken, run_id, owner, files, len(real), skipped, undoes)
        number = base.execute(
            "insert into checkpoints (id, taken, run_id, owner, files, changed, skipped, undoes) "
            "values (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        ).lastrowid
        base.executemany(
            "insert into changes values (?, ?, ?, ?, ?, ?, ?, ?)",
            [(number, path, *_entry_row(_entry(old)), *_entry_row(_entry(new))) for path, old, new in real],
        )
        base.executemany("delete from state where path = ?", [(path,) for path, _, new in changed if new is None])
        base.executemany(
            "insert or replace into state values (?, ?, ?, ?, ?, ?, ?, ?)",
            [(path, *_entry_row(new.entry), *(new.signature or [None] * 4)) for path, _, new in changed if new],
        )
        self._states[root] = (cast("int", number), tree.entries)
        return kept

    def _look(
        self,
        base: sqlite3.Connection,
        root: int,
        known: dict[bytes, Seen],
        keep: Callable[[str, bytes], object] | None = None,
        *,
        may_be_taken_in: bool = False,
    ) -> Tree:
        def was_kept(path: bytes) -> bool:
            row = (path, _KINDS.index("folder"))
            return base.execute("select 1 from changes where path = ? and kind = ? limit 1", row).fetchone() is not None

        return Tree(
            root,
            known,
            keep,
            most_file=self.most_file,
            most_files=self._most_files,
            without=self.folder,
            was_kept=was_kept,
            may_be_taken_in=may_be_taken_in,
        )

    def _state(self, base: sqlite3.Connection, root: str) -> dict[bytes, Seen]:
        (number,) = base.execute("select coalesce(max(number), 0) from checkpoints").fetchone()
        held = self._states.get(root)
        if held is not None and held[0] == number:
            return held[1]
        return {
            path: Seen(Entry(_KINDS[kind], mode, content_hash), None if inode is None else Signature(inode, *signature))
            for path, kind, mode, content_hash, inode, *signature in base.execute("select * from state")
        }

    # -- finding ---------------------------------------------------------------------------------------------

    def checkpoints(self, root: str | os.PathLike[str]) -> list[Checkpoint]:
        """The checkpoints that are kept of a folder, the newest first. Raises `CheckpointError`."""
        path = os.path.realpath(root)
        with self._reading(path) as base:
            if base is None:
                return []
            rows = base.execute(
                "select id, taken, run_id, owner, files, changed, skipped, undoes from checkpoints order by number desc"
            )
            found: list[Checkpoint] = []
            for name, taken, run_id, owner, files, changed, skipped, undoes in rows:
                names = tuple(skipped.decode("utf-8", "surrogateescape").split("\0")) if skipped else ()
                found.append(Checkpoint(name, path, taken, run_id, owner, files, changed, names, undoes))
            return found

    def roots(self) -> list[str]:
        """The folders that have checkpoints, the one with the newest first."""
        found: list[tuple[float, str]] = []
        for path in self.folder.glob(f"*{_ENDING}"):
            with suppress(OSError, sqlite3.Error), closing(_connect(path)) as base:
                root = base.execute("select value from about where name = 'root'").fetchone()
                (taken,) = base.execute("select max(taken) from checkpoints").fetchone()
                if root is not None and taken is not None:
                    found.append((taken, os.fsdecode(root[0])))
        return [root for _, root in sorted(found, reverse=True)]

    def content(self, root: str | os.PathLike[str], hash: str) -> bytes:  # noqa: A002 - the name that a plan has
        """The content with this hash. Raises `CheckpointError` if it is not kept."""
        with self._reading(os.path.realpath(root)) as base:
            data = None if base is None else _content(base, hash)
        if data is None:
            raise CheckpointError(f"no content with the hash {hash!r} is kept of {os.fspath(root)}")
        return data

    # -- the way back ----------------------------------------------------------------------------------------

    def plan(
        self,
        root: str | os.PathLike[str],
        to: Checkpoint | str,
        force: bool = False,
        *,
        runs: str | Collection[str] | None = None,
    ) -> list[PathRewind]:
        """The effects of going back to a checkpoint, path by path. Changes no file.

        Changes that no run made stay, unless `force` is set. With `runs`, only the changes of these runs are taken
        back, and later changes of other runs stay. Raises `CheckpointError`.
        """
        if not isinstance(to, (str, Checkpoint)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise is_not("to", to, "a Checkpoint or its id")
        path = os.path.realpath(root)
        wanted = to if isinstance(to, str) else to.id
        with self._lock, self._reading(path) as base:
            found = () if base is None else base.execute("select number from checkpoints where id = ?", (wanted,))
            row = next(iter(found), None)
            if base is None or row is None:
                raise CheckpointError(f"no checkpoint {wanted!r} is kept of {path}")
            last = self._state(base, path)
            try:
                with opened_root(path) as descriptor:
                    tree = self._look(base, descriptor, last)
            except (OSError, TooManyFiles) as error:
                raise CheckpointError(f"{path} cannot be read: {error or 'it has too many files'}") from error
            now = {name: seen.entry for name, seen in tree.entries.items()}
            changes = _changes(base, row[0], None if runs is None else several_texts(runs, "plan(runs=…)"))
            began = _open_run(base)
            is_own = bool(began) and (runs is None or began in several_texts(runs, "plan(runs=…)"))
            # Differences from the last checkpoint are changes of a call that has not ended, or were not made by a run.
            for name in {**last, **now} if runs is None or is_own else ():
                old, new = _entry(last.get(name)), now.get(name)
                if old != new:
                    changes.setdefault(name, []).append(_Change(is_own, not is_own, old, new))
            plan: list[PathRewind] = []
            for name, those in sorted(changes.items()):
                first = those[0] if runs is None else next(change for change in those if change.is_own)
                item = _plan_path(name, those, now.get(name), goal=first.before, force=force)
                plan += [] if item is None else [item]
            return _checked(base, plan)

    def rewind(
        self, root: str | os.PathLike[str], plan: Sequence[PathRewind], *, run_id: str = "", undoes: str = ""
    ) -> list[PathRewind]:
        """Carries out a plan and returns the outcome for each path.

        The present state is recorded first, so the rewind can be taken back itself: `run_id` (by default one is made)
        is the id of its run. A path that has changed since the plan was made is `failed`. Files that could make git or
        an editor start a program are moved aside, as after a command; an outcome for the path `.` reports that. Raises
        `CheckpointError` if nothing could be recorded; then nothing was changed.
        """
        if isinstance(plan, (Checkpoint, str)) or not isinstance(plan, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"give what plan(root, checkpoint) returns, and not {a_kind(plan)}")
        path = os.path.realpath(root)
        run = run_id or f"rewind-{secrets.token_hex(4)}"
        self._take(path, run, "other", opens=True, makes_room=False)
        from swink_agent.sandbox.repositories.watch_behind import judged  # on use

        with judged(path) as told, self._reading(path) as base:
            if base is None:
                raise CheckpointError(f"no checkpoint is kept of {path}")
            done = restore(path, plan, lambda content_hash: _content(base, content_hash), self.most_file)
        try:
            self.take(path, run, "run", undoes=undoes)
        except CheckpointError as error:  # the files are back: the next checkpoint that can be kept records that
            log.warning("no checkpoint of %s after a rewind: %s", path, error)
        return [*done, *(PathRewind(".", "changed", None, None, text) for text in told)]

    def settle(self, root: str | os.PathLike[str]) -> None:
        """If the program died during a call, records that call's changes as its run's. It deletes no checkpoint: call
        it before `plan`. Raises `CheckpointError`."""
        with self._reading(os.path.realpath(root)) as base:
            began = "" if base is None else _open_run(base)
        if began:
            self._take(root, makes_room=False)

    # -- forgetting ------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Deletes checkpoints that are too old, or too large in total. Raises `CheckpointError`."""
        with self._lock:
            for path in sorted(self.folder.glob(f"*{_ENDING}")):
                try:
                    with closing(_connect(path)) as base, _writing(base):
                        self._bound(base)
                        (left,) = base.execute("select count(*) from checkpoints").fetchone()
                        base.commit()
                    if not left:
                        path.unlink(missing_ok=True)
                        self._states.clear()
                except (OSError, sqlite3.Error) as error:
                    raise CheckpointError(f"{path} cannot be shortened: {error}") from error

    def _bound(self, base: sqlite3.Connection, run_id: str = "") -> bool:
        """Deletes checkpoints that are too old, then the oldest while the total is too large. Returns whether it fits.

        The checkpoints of the run `run_id` stay: without its first one, it could not be taken back.
        """
        oldest = self._clock() - self._most_days * _DAY
        _delete(base, base.execute("select max(number) from checkpoints where taken < ?", (oldest,)).fetchone()[0])
        newest = base.execute("select max(number) from checkpoints").fetchone()[0] or 0
        row = base.execute(
            "select min(number) from checkpoints where run_id = ? and run_id != ''", (run_id,)
        ).fetchone()
        first = newest if row[0] is None else row[0]
        others = self._others(base)
        while _size(base) + sum(size for _, size, _ in others) > self._most_total:
            rows = base.execute(
                "select number from checkpoints where number < ? order by number limit 16", (first,)
            ).fetchall()
            if rows:
                _delete(base, rows[len(rows) // 2][0])
            elif others and _size(base) <= self._most_total and others[0][0] < self._clock() - _DAY:
                others.pop(0)[2].unlink(missing_ok=True)  # it was not used for a day
            else:
                return False
        return True

    def _others(self, base: sqlite3.Connection) -> list[tuple[float, int, Path]]:
        """The other databases, the least recently used first: time of its last change, bytes, and path."""
        own = base.execute("pragma database_list").fetchone()[2]
        found: list[tuple[float, int, Path]] = []
        for path in self.folder.glob(f"*{_ENDING}"):
            with suppress(OSError):
                state = path.stat()
                if str(path) != own:
                    found.append((state.st_mtime, state.st_size, path))
        return sorted(found)

    # -- the databases ---------------------------------------------------------------------------------------

    def _database(self, root: str) -> Path:
        return self.folder / f"{hashlib.blake2b(os.fsencode(root), digest_size=12).hexdigest()}{_ENDING}"

    @contextmanager
    def _reading(self, root: str) -> Generator[sqlite3.Connection | None]:
        path = self._database(root)
        if not path.exists():
            yield None
            return
        try:
            with closing(_connect(path)) as base:
                base.execute("begin")  # all reads see the same state
                yield base
        except sqlite3.Error as error:
            raise CheckpointError(f"the checkpoints of {root} in {path} cannot be read: {error}") from error


def _connect(path: Path, *, make: bool = False) -> sqlite3.Connection:
    if make:
        make_private(path)
    base = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_WAIT, isolation_level=None)
    try:
        base.execute("pragma auto_vacuum = full")  # before the first table: deleted data leaves the disk
        base.execute("pragma synchronous = full")
        if make:
            base.executescript(_TABLES)
    except BaseException:
        base.close()
        raise
    return base


@contextmanager
def _writing(base: sqlite3.Connection) -> Generator[None]:
    """One transaction that writes. Other processes wait."""
    base.execute("begin immediate")
    try:
        yield
    except BaseException:
        if base.in_transaction:
            base.rollback()
        raise


def _open_run(base: sqlite3.Connection) -> str:
    """The run whose call has begun and has not ended; empty if there is none."""
    row = base.execute("select value from about where name = 'open'").fetchone()
    return "" if row is None else row[0]


def _set_open_run(base: sqlite3.Connection, run_id: str) -> None:
    base.execute("insert or replace into about values ('open', ?)", (run_id,))


def _size(base: sqlite3.Connection) -> int:
    """The bytes of a database, with the changes of this transaction."""
    pages, free, size = (
        base.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _delete(base: sqlite3.Connection, last: int | None) -> None:
    """Deletes the checkpoints up to a number, and the contents that nothing refers to."""
    if last is None:
        return
    base.execute("delete from checkpoints where number <= ?", (last,))
    base.execute("delete from changes where number <= ?", (last,))
    base.execute(
        "delete from contents where hash not in (select hash from state where hash is not null) "
        "and hash not in (select hash from changes where hash is not null)"
    )


def _content(base: sqlite3.Connection, content_hash: str) -> bytes | None:
    row = base.execute("select data from contents where hash = ?", (content_hash,)).fetchone()
    if row is None:
        return None
    data: bytes = row[0]
    try:
        found = zlib.decompress(data[1:]) if data[:1] == _PRESSED else data[1:]
    except zlib.error:
        return None
    return found if hash_of(found) == content_hash else None  # a damaged copy is not a copy


def _entry(seen: Seen | None) -> Entry | None:
    return None if seen is None else seen.entry


def _entry_row(entry: Entry | None) -> tuple[int | None, int | None, str | None]:
    return (None, None, None) if entry is None else (_KINDS.index(entry.kind), entry.mode, entry.hash)


def _entry_of(kind: int | None, mode: int | None, content_hash: str | None) -> Entry | None:
    return None if kind is None else Entry(_KINDS[kind], mode or 0, content_hash or "")


def _changes(base: sqlite3.Connection, after: int, runs: Collection[str] | None) -> dict[bytes, list[_Change]]:
    """The changes of each path since a checkpoint, the oldest first; with `runs`, only of paths that these changed."""
    found: dict[bytes, list[_Change]] = {}
    owned: set[bytes] = set()
    rows = base.execute(
        "select path, owner, run_id, kind, mode, hash, new_kind, new_mode, new_hash "
        "from changes join checkpoints using (number) where number > ? order by number",
        (after,),
    )
    for path, owner, run_id, *values in rows:
        is_own = owner == "run" and (runs is None or run_id in runs)
        entries = _entry_of(*values[:3]), _entry_of(*values[3:])
        found.setdefault(path, []).append(_Change(is_own, owner == "other", *entries))
        if is_own:
            owned.add(path)
    return found if runs is None else {path: changes for path, changes in found.items() if path in owned}


def _plan_path(
    path: bytes, changes: Sequence[_Change], now: Entry | None, *, goal: Entry | None, force: bool
) -> PathRewind | None:
    name = os.fsdecode(path)
    own = [change for change in changes if change.is_own]
    target = goal if force else _way_back(changes, now)
    if target != now:
        note = "" if target == goal else "only back to where something else changed it"
        what: What = "remove" if target is None else "restore"
        return PathRewind(name, what, _shown(target), _shown(now), note, target, now)
    if now != goal:
        note = "is gone" if now is None else "was changed since"
        return PathRewind(name, "changed", _shown(goal), _shown(now), note, goal, now)
    return PathRewind(name, "same", _shown(now), _shown(now), "", now, now) if own else None


def _way_back(changes: Sequence[_Change], now: Entry | None) -> Entry | None:
    """The entry that is left when the own changes are taken back, the newest first.

    Stops at a state that no run made, and if the path differs from the states before and after an own change. A change
    that was already taken back is skipped.
    """
    for change in reversed(changes):
        if change.is_theirs and now == change.after:
            break
        if change.is_own and now == change.after:
            now = change.before
        elif change.is_own and now != change.before:
            break
    return now


def _shown(entry: Entry | None) -> str | None:
    return None if entry is None else entry.hash


def _checked(base: sqlite3.Connection, plan: Sequence[PathRewind]) -> list[PathRewind]:
    """The plan, with `failed` for paths of which no copy is kept, and without removing folders that git ignores."""
    done: list[PathRewind] = []
    for item in plan:
        why = ""
        if item.what in ("restore", "remove"):
            if item.target is None and item.present is not None and item.present.kind == "ignored":
                continue
            if item.present is not None and item.present.kind == "ignored":
                why = "git ignores what is there now, and no copy of that is kept"
            elif item.target is not None and item.target.kind not in KEPT:
                why = "no copy of it was kept"
            elif item.target is not None and item.target.hash and _content(base, item.target.hash) is None:
                why = "no good copy of it is kept"
        done.append(item._replace(what="failed", note=why) if why else item)
    return done
