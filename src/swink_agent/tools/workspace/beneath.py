"""Opens files and folders beneath a folder, and nothing else.

There are two ways: the kernel's (`openat2` with `RESOLVE_BENEATH`) and a step-by-step walk for machines without it.
Both open first and check afterwards: no path is checked and then opened by name. `workspace` decides what a tool may do
with an opened file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from abc import ABC, abstractmethod
from functools import cache
from typing import Any, NamedTuple

_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_MOST_LINKS = 40
_MOST_ATTEMPTS = 128
_PATH_ONLY: int = getattr(os, "O_PATH", os.O_RDONLY)
FOLDER = _PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags for a folder that is only passed through."""


class LeavesRoot(OSError):
    """The path leads out of the root, directly or through a link."""

    def __init__(self, path: str, link: str = "") -> None:
        super().__init__(errno.EXDEV, f"leads out of the root{f' through the link {link!r}' if link else ''}", path)
        self.link = link


class Opened(NamedTuple):
    """A descriptor, and the names that lead to it from the root, without links and `..`."""

    fd: int
    parts: tuple[str, ...]


class Root(ABC):
    """A folder that is held open, through which everything beneath it is opened. Takes relative paths only."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    @abstractmethod
    def open(self, path: str, flags: int) -> Opened:
        """Opens `path` and follows links as long as they stay beneath. Raises `LeavesRoot` or another `OSError`.

        It never creates anything; `flags` must not ask for that.
        """

    @abstractmethod
    def where(self, opened: Opened) -> tuple[str, ...]:
        """The present path of an opened folder, as it may have been moved. Raises `OSError` if it has none."""

    def inner(self, target: str) -> str | None:
        """An absolute path as one relative to the root, `None` if it is not beneath. Only compares the text."""
        if not target.startswith("/"):
            return target
        if target == self.path:
            return "."
        above = self.path.rstrip("/") + "/"
        return (target[len(above) :].lstrip("/") or ".") if target.startswith(above) else None


def open_root(path: str) -> Root:
    """Holds the folder open, with the kernel's support if a trial shows that it works. Raises `OSError`."""
    fd = os.open(path, FOLDER)
    try:
        real = _real_path(fd) or os.path.realpath(path)
        return KernelRoot(fd, real) if _kernel_can(fd, real) else WalkedRoot(fd, real)
    except BaseException:
        os.close(fd)
        raise


# -- the kernel's way ----------------------------------------------------------------------------------------


class KernelRoot(Root):
    """Opens beneath a root with `openat2`: the kernel refuses each step that would leave it."""

    def open(self, path: str, flags: int) -> Opened:
        for _ in range(_MOST_ATTEMPTS):
            try:
                fd = _openat2(self.fd, path, flags | os.O_CLOEXEC)
                break
            except OSError as error:
                if error.errno == errno.EXDEV:
                    # It also refuses links with an absolute target; the walk follows those that point beneath.
                    return WalkedRoot(self.fd, self.path).open(path, flags)
                # EAGAIN: something was renamed during a `..`, and the kernel could not be sure.
                if error.errno not in (errno.EAGAIN, errno.EINTR):
                    raise
        else:
            return WalkedRoot(self.fd, self.path).open(path, flags)
        try:
            return Opened(fd, self._names(fd, path))
        except BaseException:
            os.close(fd)
            raise

    def where(self, opened: Opened) -> tuple[str, ...]:
        return self._names(opened.fd, "/".join(opened.parts))

    def _names(self, fd: int, path: str) -> tuple[str, ...]:
        real, root = _real_path(fd), _real_path(self.fd)
        if real is None or root is None:
            raise FileNotFoundError(errno.ENOENT, "was removed while it was opened", path)
        if real == root:
            return ()
        above = root.rstrip("/") + "/"
        if not real.startswith(above):  # moved out in the meantime
            raise LeavesRoot(path)
        return tuple(real[len(above) :].split("/"))


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


@cache
def _syscall() -> Any:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    function.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]
    return function


def _openat2(root: int, path: str, flags: int) -> int:
    how = _OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    fd: int = _syscall()(_OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return fd


def _kernel_can(fd: int, real: str) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        found = KernelRoot(fd, real).open(".", FOLDER)
    except OSError:  # an old kernel, a filter that does not know the call, no /proc
        return False
    os.close(found.fd)
    return found.parts == ()


def _real_path(fd: int) -> str | None:
    """The path of an open file as the kernel reports it; `None` if it cannot, or the file was deleted."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        path = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return None
    gone = not path.startswith("/") or (path.endswith(" (deleted)") and os.fstat(fd).st_nlink == 0)
    return None if gone else path


# -- the careful walk ----------------------------------------------------------------------------------------


class WalkedRoot(Root):
    """Opens beneath a root step by step: each name in the folder before it. The kernel never follows a link."""

    def open(self, path: str, flags: int) -> Opened:
        walk = _Walk(self, path, flags)
        try:
            return walk.run()
        finally:
            walk.close()

    def where(self, opened: Opened) -> tuple[str, ...]:
        again = self.open("/".join(opened.parts) or ".", FOLDER)
        try:
            if again.parts == opened.parts and os.path.samestat(os.fstat(again.fd), os.fstat(opened.fd)):
                return opened.parts
        finally:
            os.close(again.fd)
        raise FileNotFoundError(errno.ENOENT, "was moved or replaced", "/".join(opened.parts))


class _Walk:
    """One path being resolved: the names that are left, and the folders passed so far."""

    def __init__(self, root: WalkedRoot, path: str, flags: int) -> None:
        self.root = root
        self.path = path
        self.flags = flags | os.O_NOFOLLOW | os.O_CLOEXEC
        self.steps = 0
        self.folders: list[tuple[str, int]] = []
        self.pending: list[str] = []
        self.push(path)

    def push(self, path: str) -> None:
        if not path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        names = path.split("/")
        if not self.pending and names[-1] in ("", "."):
            self.flags |= os.O_DIRECTORY
        self.pending += [name for name in reversed(names) if name not in ("", ".")]

    def run(self) -> Opened:
        while self.pending:
            name = self.pending.pop()
            if name == "..":
                self.go_up()
            elif (target := self.link_at(name)) is not None:
                self.follow(name, target)
            elif (fd := self.open_at(name, FOLDER | os.O_NOFOLLOW if self.pending else self.flags)) is not None:
                if not self.pending:
                    return Opened(fd, (*self.parts, name))
                self.folders.append((name, fd))
        return Opened(os.open(".", self.flags, dir_fd=self.here), self.parts)  # the path ended with a `..`, or is `.`

    @property
    def here(self) -> int:
        return self.folders[-1][1] if self.folders else self.root.fd

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple([name for name, _ in self.folders])

    def go_up(self) -> None:
        if not self.folders:
            raise LeavesRoot(self.path)
        os.close(self.folders.pop()[1])

    def link_at(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self.here)
        except OSError as error:
            if error.errno == errno.EINVAL:  # exists, and is not a link
                return None
            raise OSError(error.errno, error.strerror, self.path) from error

    def follow(self, name: str, target: str) -> None:
        self.count()
        inner = self.root.inner(target)
        if inner is None:
            raise LeavesRoot(self.path, "/".join([*self.parts, name]))
        if target.startswith("/"):
            while self.folders:
                self.go_up()
        self.push(inner)

    def open_at(self, name: str, flags: int) -> int | None:
        """A descriptor, or `None` if the name has become a link since it was checked: it is then tried again."""
        try:
            fd = os.open(name, flags, dir_fd=self.here)
        except OSError as error:
            # Some systems report "not a directory" for a link where a folder is wanted.
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR) and self.has_become_link(name):
                return self.take_again(name)
            raise OSError(error.errno, error.strerror, self.path) from error
        if flags & _PATH_ONLY and stat.S_ISLNK(os.fstat(fd).st_mode):
            os.close(fd)
            return self.take_again(name)
        return fd

    def has_become_link(self, name: str) -> bool:
        try:
            return self.link_at(name) is not None
        except OSError:
            return False

    def take_again(self, name: str) -> None:
        self.count()
        self.pending.append(name)

    def count(self) -> None:
        self.steps += 1
        if self.steps > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self.path)

    def close(self) -> None:
        for _, fd in self.folders:
            os.close(fd)
        self.folders.clear()
