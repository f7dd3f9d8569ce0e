"""The place of a file that is to be written, and its replacement in one step.

Finds the folder and the name of a path, creates missing folders, and replaces the old file with a new one, all through
descriptors. `workspace` and the tools decide what may be written.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress

from swink_agent.core.machine.files import write_fully

from .beneath import FOLDER, LeavesRoot, Opened, Root

_MOST_LINKS = 40
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)


class Place:
    """A folder that is held open, and a name in it. `missing` are the folders between them that do not exist yet."""

    def __init__(self, root: Root, folder: Opened, missing: tuple[str, ...], name: str) -> None:
        self.root = root
        self.folder = folder
        self.missing = missing
        self.name = name

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self.folder.parts, *self.missing, self.name)

    def parts_now(self) -> tuple[str, ...]:
        """The present parts of the path: the folder may have been moved. Raises `OSError`."""
        return (*self.root.where(self.folder), *self.missing, self.name)

    def open_name(self, flags: int) -> int | None:
        """A descriptor of the file, links not followed; `None` if it does not exist. Raises `OSError`."""
        if self.missing:
            return None
        try:
            return os.open(self.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.folder.fd)
        except FileNotFoundError:
            return None

    def make_folders(self) -> None:
        """Creates the missing folders, one in the other. Raises `OSError`."""
        while self.missing:
            name, *rest = self.missing
            with suppress(FileExistsError):  # another call of the same batch may have created it first
                os.mkdir(name, dir_fd=self.folder.fd)
            fd = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=self.folder.fd)
            os.close(self.folder.fd)
            self.folder = Opened(fd, (*self.folder.parts, name))
            self.missing = tuple(rest)

    def close(self) -> None:
        if self.folder.fd >= 0:
            os.close(self.folder.fd)
            self.folder = Opened(-1, self.folder.parts)

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def find_place(root: Root, path: str) -> Place:
    """Where the file of a relative path is or would be. Follows a link at its end as long as it stays beneath.

    Raises `IsADirectoryError` for a path that can only be a folder, `LeavesRoot`, or another `OSError`.
    """
    given = path
    for _ in range(_MOST_LINKS):
        *above, name = [part for part in path.split("/") if part not in ("", ".")] or [""]
        if name in ("", "..") or path.endswith(("/", "/.")):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), given)
        folder, missing = _open_deepest(root, above)
        place = Place(root, folder, missing, name)
        target = _link_at(place)
        if target is None:
            return place
        place.close()
        inner = root.inner(target)
        if inner is None:
            raise LeavesRoot(given, "/".join(place.parts))
        path = inner if target.startswith("/") else "/".join([*folder.parts, inner])
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), given)


def _open_deepest(root: Root, names: Sequence[str]) -> tuple[Opened, tuple[str, ...]]:
    """The deepest of the folders that exists, and the names of those that do not."""
    for depth in range(len(names), -1, -1):
        missing = tuple(names[depth:])
        try:
            return root.open("/".join(names[:depth]) or ".", FOLDER), missing
        except FileNotFoundError:
            if ".." in names[depth - 1 :] or depth == 0:
                raise  # a missing folder has no parent to go back to
    raise AssertionError("unreachable")


def _link_at(place: Place) -> str | None:
    if place.missing:
        return None
    try:
        return os.readlink(place.name, dir_fd=place.folder.fd)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):  # not a link, or missing
            return None
        place.close()
        raise


def replace_file(
    place: Place,
    data: bytes,
    before: int | None,
    *,
    last_check: AbstractContextManager[None],
    rename: Callable[..., None] = os.rename,
    fsync: Callable[[int], None] = os.fsync,
) -> os.stat_result:
    """Puts a file with this content at the place, in one step: readers see the old or the new content, never a mix.

    `before` is a descriptor of the file that it replaces, whose mode, owner and attributes it keeps; `None` for a new
    file, which never replaces one that has appeared meanwhile (`FileExistsError`). A name that is one of several hard
    links is replaced; the others keep the old content. `last_check` is entered directly before the name changes, and
    held while it does; if it raises, everything stays as it was.
    """
    folder = place.folder.fd
    temporary = f".swink-{secrets.token_hex(8)}.tmp"
    # A new file gets the mode that the user's umask allows; the copy of an old one starts closed to others.
    fd = os.open(temporary, _NEW, 0o666 if before is None else 0o600, dir_fd=folder)
    try:
        try:
            write_fully(fd, data)
            if before is not None:
                _take_after(fd, before)
            fsync(fd)
            with last_check:
                if before is None:
                    put_new(temporary, place.name, folder, rename)
                else:
                    rename(temporary, place.name, src_dir_fd=folder, dst_dir_fd=folder)
            return os.fstat(fd)
        finally:
            os.close(fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def put_new(temporary: str | bytes, name: str | bytes, folder: int, rename: Callable[..., None] = os.rename) -> None:
    """Gives a new file or link in an open folder its name. Raises `FileExistsError` if the name is taken."""
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # On a file system without hard links, checking first is all that can be done.
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from error
        rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        os.unlink(temporary, dir_fd=folder)


def _take_after(fd: int, before: int) -> None:
    """Gives a file the owner, the extended attributes and the mode of another, as far as this user may."""
    status = os.fstat(before)
    mine = os.fstat(fd)
    if (status.st_uid, status.st_gid) != (mine.st_uid, mine.st_gid):
        with suppress(OSError):
            os.fchown(fd, status.st_uid, status.st_gid)
    if hasattr(os, "listxattr"):
        with suppress(OSError):
            for name in os.listxattr(before):
                # Without capabilities: the kernel also removes them from a file that is written to.
                if name.startswith("user.") or name == "system.posix_acl_access":
                    os.setxattr(fd, name, os.getxattr(before, name))
    os.fchmod(fd, status.st_mode & 0o777)
