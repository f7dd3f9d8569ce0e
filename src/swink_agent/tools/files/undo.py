"""Copies of what the file tools replace, kept for undo.

Owns the folder of copies: a subfolder for each working folder, in it one for each run, in that one file for each
change, which is on disk before the change happens. Hashes say what a file was and became, so a change that never
happened (a crash, a full disk) is recognised. Restoring is in `rewind`.

The copies are for the user alone (modes 0700 and 0600), and must be where no tool can reach them: `standard_tools`
makes sure of that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from swink_agent.core.errors import ToolError
from swink_agent.core.files import replace_file, sync_folder

from .._bounded import show_name, show_size

__all__ = ["Change", "UndoError", "UndoRun", "UndoStore", "hash_of"]

RunKind: TypeAlias = Literal["run", "undo"]
Undone: TypeAlias = Literal["no", "in part", "whole"]

_HOUR, _DAY = 3600.0, 24 * 3600.0
_LONGEST_HEADER = 1024 * 1024
_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class UndoError(ToolError):
    """A copy that could not be kept or no longer exists, with what to do. The change was not made."""


class Change(NamedTuple):
    """One change of one file: its hashes before and after, `None` if there was no file."""

    path: Path
    """Where the copy is."""
    parts: tuple[str, ...]
    before: str | None
    after: str | None
    mode: int
    folders: int
    """How many of the folders above it were created for it."""

    def content(self) -> bytes:
        """The file's content before. Raises `UndoError` if the copy is missing or damaged."""
        try:
            with self.path.open("rb") as file:
                file.readline(_LONGEST_HEADER)
                data = file.read()
        except OSError as error:
            raise UndoError(f"the copy {self.path} cannot be read: {error.strerror or error}") from error
        if hash_of(data) != self.before:
            raise UndoError(f"the copy {self.path} is damaged: it is not what was kept")
        return data

    def discard(self) -> None:
        """Deletes the copy: the change did not happen."""
        self.path.unlink(missing_ok=True)


class UndoRun:
    """What one run changed in one folder."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self.id: str = header["id"]
        self.root: str = header["root"]
        self.started: float = header["started"]
        """Seconds since 1970."""
        self.kind: RunKind = header["kind"]
        self.undoes: str | None = header.get("undoes")

    def __repr__(self) -> str:
        return f"<UndoRun {self.id} in {self.root}>"

    @property
    def undone(self) -> Undone:
        """How much of it was undone."""
        try:
            return "in part" if (self.path / "undone").read_bytes() == b"in part" else "whole"
        except OSError:
            return "no"

    def mark(self, undone: Undone) -> None:
        """Records how much of it was undone. Raises `OSError`."""
        if undone == "no":
            (self.path / "undone").unlink(missing_ok=True)
            return
        fd = os.open(self.path / "undone", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, undone.encode())
        finally:
            os.close(fd)

    def changes(self, since: int = 0) -> list[Change]:
        """The changes in the order in which they were made, from a moment on, in nanoseconds since 1970.

        One that cannot be read is left out: it was never completely written.
        """
        paths = [path for path in sorted(self.path.glob("*.copy")) if path.name >= f"{since:020}"]
        found = [_read_change(path) for path in paths]
        return [change for change in found if change is not None]


class UndoStore:
    """Keeps copies in a folder, bounded in size and time. Safe for threads and several processes.

    `most_file` and `most_total` are bytes: a file above the first, or a run above the second, is not changed at all, as
    it could not be restored. Runs are deleted after `most_days`, and the oldest first when the total is reached.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        most_file: int = 32 * 1024 * 1024,
        most_total: int = 512 * 1024 * 1024,
        most_days: float = 30,
        clock: Callable[[], float] = time.time,
        fsync: Callable[[int], None] = os.fsync,
    ) -> None:
        self.folder = Path(folder).absolute()
        self._most_file = most_file
        self._most_total = most_total
        self._most_days = most_days
        self._clock = clock
        self._fsync = fsync
        self._own_run = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._sizes: dict[Path, int] = {}
        """The bytes that each run of this process has kept so far."""
        self._known: dict[tuple[str, str], Path] = {}
        """The folder of each run, by working folder and run: searching for it could take long."""
        self._last = 0

    def __repr__(self) -> str:
        return f"UndoStore({str(self.folder)!r})"

    # -- keeping ---------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Creates the folder, for the user alone. Raises `OSError`."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder.stat().st_mode & 0o077:
            self.folder.chmod(0o700)

    def keep(
        self,
        root: str,
        run_id: str | None,
        parts: tuple[str, ...],
        before: bytes | None,
        after: bytes | None,
        *,
        mode: int = 0o644,
        folders: int = 0,
        kind: RunKind = "run",
        undoes: str | None = None,
    ) -> Change:
        """Stores a copy of a file's content on disk, before it changes. Raises `UndoError`."""
        name = show_name("/".join(parts))
        if before is not None and len(before) > self._most_file:
            raise UndoError(
                f"{name} was not changed: it has {show_size(len(before))}, too much to keep a copy of (at most "
                f"{show_size(self._most_file)}); change it with a command, or turn undo off"
            )
        was, becomes = (None if held is None else hash_of(held) for held in (before, after))
        mode &= 0o777
        header = {"parts": parts, "before": was, "after": becomes, "mode": mode, "folders": folders}
        data = json.dumps(header).encode() + b"\n" + (before or b"")
        try:
            with self._lock:
                run = self._run_folder(root, run_id or self._own_run, kind, undoes)
                if self._sizes[run] + len(data) > self._most_total:
                    raise UndoError(
                        f"{name} was not changed: this run has replaced {show_size(self._sizes[run])} already, too "
                        "much to keep copies of; turn undo off for it"
                    )
                self._last = max(time.time_ns(), self._last + 1)
                path = run / f"{self._last:020}-{secrets.token_hex(4)}.copy"
                self._write(path, data)
                self._sizes[run] += len(data)
        except OSError as error:
            raise UndoError(
                f"{name} was not changed: no copy of it could be kept in {self.folder} ({error.strerror or error}); "
                "make that possible, or turn undo off"
            ) from error
        return Change(path, parts, was, becomes, mode, folders)

    def _run_folder(self, root: str, run_id: str, kind: RunKind, undoes: str | None) -> Path:
        """The folder of a run, created when it first changes something."""
        shown = run_id if _SAFE_ID.fullmatch(run_id) else hash_of(run_id.encode("utf-8", "replace"))
        known = self._known.get((root, shown))
        if known is not None and known.is_dir():  # another process may have deleted it
            return known
        above = self._folder_of(root)
        for path in _folders_in(above):
            if path.name.partition("-")[2] == shown:
                self._sizes.setdefault(path, _size_of(path))
                self._known[root, shown] = path
                return path
        self.prepare()
        self._forget_old()
        above.mkdir(mode=0o700, exist_ok=True)
        started = self._clock()
        path = above / f"{int(started * 1000):015}-{shown}"
        path.mkdir(mode=0o700)
        header = {"id": shown, "root": root, "started": started, "kind": kind, "undoes": undoes}
        self._write(path / "run.json", json.dumps(header).encode())
        sync_folder(above, self._fsync)
        self._sizes[path] = 0
        self._known[root, shown] = path
        return path

    def _folder_of(self, root: str) -> Path:
        return self.folder / hashlib.blake2b(os.fsencode(root), digest_size=12).hexdigest()

    def _write(self, path: Path, data: bytes) -> None:
        """Writes a whole file under its name, or none. It is on disk when this returns."""
        replace_file(path, data, sync_name=True, fsync=self._fsync)

    # -- finding ---------------------------------------------------------------------------------------------

    def runs(self, root: str | os.PathLike[str]) -> list[UndoRun]:
        """The runs that changed something in that folder, the newest first."""
        found = [_read_run(path) for path in _folders_in(self._folder_of(os.path.realpath(root)))]
        return [run for run in reversed(found) if run is not None]

    def elsewhere(self, run: UndoRun) -> list[UndoRun]:
        """What the same run changed in other folders."""
        folders = [path for above in _folders_in(self.folder) for path in _folders_in(above)]
        found = [_read_run(path) for path in folders if path.name.endswith(f"-{run.id}")]
        return [other for other in found if other is not None and other.id == run.id and other.root != run.root]

    def newest(self) -> UndoRun | None:
        """The last run that changed something, in any folder, and was not undone."""
        folders = [path for above in _folders_in(self.folder) for path in _folders_in(above)]
        for path in sorted(folders, key=lambda path: path.name, reverse=True):
            run = _read_run(path)
            if run is not None and run.kind == "run" and run.undone == "no":
                return run
        return None

    # -- forgetting ------------------------------------------------------------------------------------------

    def _forget_old(self) -> None:
        """Deletes runs that are too old, then the oldest while the total is too large."""
        runs = sorted((path for above in _folders_in(self.folder) for path in _folders_in(above)), key=lambda p: p.name)
        sizes = {path: _size_of(path) for path in runs}
        total = sum(sizes.values())
        oldest = (self._clock() - self._most_days * _DAY) * 1000
        young = (self._clock() - _HOUR) * 1000  # may still be running, in another process
        for path in runs:
            name = path.name.partition("-")[0]
            started = int(name) if name.isdigit() else 0
            if started < oldest or (total > self._most_total and started < young):
                shutil.rmtree(path, ignore_errors=True)
                total -= sizes[path]


def hash_of(data: bytes) -> str:
    """The hash of a content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _folders_in(path: Path) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return
    yield from (path / name for name in names if (path / name).is_dir())


def _size_of(folder: Path) -> int:
    size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                size += entry.stat(follow_symlinks=False).st_size
    except OSError:  # deleted by another process meanwhile
        pass
    return size


def _read_run(path: Path) -> UndoRun | None:
    try:
        return UndoRun(path, json.loads((path / "run.json").read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_change(path: Path) -> Change | None:
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline(_LONGEST_HEADER))
        parts, mode, folders = tuple(map(str, header["parts"])), int(header["mode"]), int(header["folders"])
        return Change(path, parts, header["before"], header["after"], mode, folders)
    except (OSError, ValueError, KeyError, TypeError):
        return None
