"""Carries out a plan: brings paths of a folder back to what they were.

Works beneath the folder by descriptors and follows no link. Each path is looked at again directly before it changes: if
it is not what the plan saw, it stays.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress

from swink_agent.core.machine.beneath import FOLDER
from swink_agent.core.machine.files import files_in_use

from ..workspace.place import put_new
from .checkpoint import PathRewind
from .tree_entries import Entry, entry_at, opened_root

_OWNER_MAY = 0o700


class _Changed(Exception):
    """The path is not what the plan saw."""


def restore(
    root: str, plan: Sequence[PathRewind], content: Callable[[str], bytes | None], most_file: int
) -> list[PathRewind]:
    """Carries out the plan, and returns the outcome for each path, in the plan's order.

    `content` returns the kept data for a hash.
    """
    with opened_root(root) as descriptor:
        return _Restoring(descriptor, content, most_file).run(plan)


class _Restoring:
    def __init__(self, root: int, content: Callable[[str], bytes | None], most_file: int) -> None:
        self._root = root
        self._content = content
        self._most_file = most_file
        self._modes: dict[tuple[bytes, ...], int] = {}
        """The folders that were made writable meanwhile, and the modes that they get at the end."""
        self.aside = ""  # the new name of an entry that was in the way

    def run(self, plan: Sequence[PathRewind]) -> list[PathRewind]:
        done: dict[str, PathRewind] = {item.path: item for item in plan}
        going = [item for item in plan if item.what in ("restore", "remove")]
        # First, entries that go or change their kind are removed, deepest first. Then entries return, outermost first.
        away = [item for item in going if item.present is not None and _makes_way(item)]
        for item in sorted(away, key=_depth, reverse=True):
            done[item.path] = self._tried(item, self._remove)
        for item in sorted(going, key=lambda item: (_depth(item), item.path)):
            if item.target is not None and done[item.path].what == "restore":
                done[item.path] = self._tried(done[item.path], self._bring_back)
        for parts, mode in sorted(self._modes.items(), key=lambda pair: len(pair[0]), reverse=True):
            with suppress(OSError, _Changed), self._folder(parts) as folder:
                os.fchmod(folder, mode)
        return [done[item.path] for item in plan]

    def _tried(self, item: PathRewind, act: Callable[[PathRewind], None]) -> PathRewind:
        self.aside = ""
        try:
            act(item)
        except (_Changed, ValueError) as error:  # a forged path may hold a NUL
            return item._replace(what="failed", note=str(error) or "was changed meanwhile")
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and item.present is not None:
                return item._replace(what="changed", note="has files that are not the run's")
            return item._replace(what="failed", note=error.strerror or str(error))
        return item._replace(note=f"what was there is now {self.aside}") if self.aside else item

    def _remove(self, item: PathRewind) -> None:
        *above, name = _parts(item)
        with self._folder(above, is_written=True) as folder:
            self._check(folder, name, item.present)
            if item.present is not None and item.present.kind == "unkept":
                self._move_aside(folder, name)
            elif item.present is not None and item.present.kind == "folder":
                os.rmdir(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)

    def _bring_back(self, item: PathRewind) -> None:
        parts = _parts(item)
        *above, name = parts
        target, present = item.target, None if _makes_way(item) else item.present
        assert target is not None
        with self._folder(above, is_written=True) as folder:
            self._check(folder, name, present)
            match target.kind:
                case "folder":
                    if present is None:
                        os.mkdir(name, _OWNER_MAY, dir_fd=folder)
                    self._modes[tuple(parts)] = target.mode
                case "link":
                    self._put(folder, name, present, lambda made: os.symlink(self._kept(target), made, dir_fd=folder))
                case _:
                    self._put(folder, name, present, lambda made: _write(folder, made, self._kept(target), target.mode))

    def _put(self, folder: int, name: bytes, present: Entry | None, make: Callable[[bytes], None]) -> None:
        made = b".swink-" + secrets.token_hex(8).encode()
        try:
            make(made)
            self._check(folder, name, present)
            if present is None:
                put_new(made, name, folder)  # a rename would replace a file that has appeared meanwhile
            else:
                os.rename(made, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(made, dir_fd=folder)
            raise
        with suppress(OSError):
            os.fsync(folder)

    def _move_aside(self, folder: int, name: bytes) -> None:
        """Renames something that has no copy, so that nothing is lost."""
        for number in range(1, 100):
            aside = name + f".swink-{number}".encode()
            if entry_at(folder, aside, 0) is None:
                os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
                self.aside = os.fsdecode(aside)
                return
        raise _Changed("no copy is kept of what is there now")

    def _kept(self, entry: Entry) -> bytes:
        data = self._content(entry.hash)
        if data is None:
            raise _Changed("its copy was deleted meanwhile")
        return data

    def _check(self, folder: int, name: bytes, present: Entry | None) -> None:
        with suppress(FileNotFoundError):
            state = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if (state.st_dev, state.st_ino) in files_in_use():
                raise _Changed("is in use by this program, such as its database")
        now = entry_at(folder, name, self._most_file)
        if now is None or present is None or now.kind != present.kind:
            is_same = now is present
        else:  # a folder's mode may change while its files come back, and a file may be unreadable
            is_same = now == present or now.kind == "folder" or (now.kind == "file" and not now.hash)
        if not is_same:
            raise _Changed

    @contextmanager
    def _folder(self, parts: Sequence[bytes], *, is_written: bool = False) -> Generator[int]:
        """Opens a folder beneath the root. With `is_written`, makes it writable until the plan is carried out."""
        folder = os.dup(self._root)
        try:
            for name in parts:
                try:
                    inner = self._open(name, folder)
                except OSError as error:
                    if error.errno in (errno.ELOOP, errno.ENOTDIR):
                        raise _Changed("is behind a link now") from error
                    raise
                os.close(folder)
                folder = inner
            mode = stat.S_IMODE(os.fstat(folder).st_mode)
            if is_written and parts and mode & _OWNER_MAY != _OWNER_MAY:
                self._modes.setdefault(tuple(parts), mode & 0o777)
                os.fchmod(folder, mode | _OWNER_MAY)
            yield folder
        finally:
            os.close(folder)

    def _open(self, name: bytes, folder: int) -> int:
        try:
            return os.open(name, FOLDER, dir_fd=folder)
        except PermissionError:
            if not hasattr(os, "O_PATH"):
                raise
        # We own the folder but may not read it. The descriptor stays with the folder, even if that is renamed.
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(os.fstat(handle).st_mode) | _OWNER_MAY)
        finally:
            os.close(handle)
        return os.open(name, FOLDER, dir_fd=folder)


def _write(folder: int, name: bytes, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), mode & 0o777)
        os.fsync(file.fileno())


def _makes_way(item: PathRewind) -> bool:
    """Whether the present entry must be removed, also if an entry of another kind takes its place."""
    target, present = item.target, item.present
    if target is None or present is None:
        return target is None
    return present.kind == "unkept" or (present.kind != target.kind and "folder" in (present.kind, target.kind))


def _parts(item: PathRewind) -> list[bytes]:
    parts = os.fsencode(item.path).split(b"/")
    if any(part in (b"", b".", b"..", b".git") for part in parts):
        raise _Changed("is not a path in the folder")
    return parts


def _depth(item: PathRewind) -> int:
    return item.path.count("/")
