"""Where a path of a child leads, and whether that place may be changed.

Another thread can rewrite a path in memory, and another process can swap folders on its way, so nothing here checks a
path and lets the kernel use it later. `Resolver` turns a string that was copied once into a descriptor of the parent
folder and a name in it, as the child sees them. `PathVerdicts` decides what may be done to the name, by the path that
the kernel reports for that descriptor. `landlock/supervisor` acts on it. The launcher loads this module: the standard
library only.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from swink_agent.sandbox.kernel import calls as kernel

_MOST_LINKS = 40
_MOST_VERDICTS = 4096
_SEARCH = kernel.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_INTO = kernel.O_PATH | os.O_CLOEXEC


class Place(NamedTuple):
    """A name in a folder. The name may be `.` or `..`, which cannot be changed. `slash`: whether a slash follows it."""

    folder: int
    name: bytes
    slash: bool
    owned: bool
    """Whether `folder` is to be closed."""


class Resolver:
    """Finds places for the children of one guardian."""

    def __init__(self) -> None:
        self.root = os.open("/", kernel.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        proc = os.stat("/proc")
        self.proc_device, self._proc_inode = proc.st_dev, proc.st_ino
        self._openat2 = kernel.Openat2()

    def folder_of_caller(self, task: int, descriptor: int) -> int:
        """The caller's working folder, or the file of its descriptor. The result must be closed.

        Raises `OSError` if it has no such descriptor, or has ended.
        """
        try:
            what = b"cwd" if descriptor == kernel.AT_FDCWD else b"fd/%d" % descriptor
            return self._unless_ours(os.open(b"/proc/%d/%s" % (task, what), _INTO))
        except FileNotFoundError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def _unless_ours(self, descriptor: int) -> int:
        """Returns the descriptor, unless it is our own folder in /proc, which we may enter and the caller may not."""
        if self._is_ours(descriptor):
            os.close(descriptor)
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return descriptor

    def _is_ours(self, descriptor: int) -> bool:
        if os.fstat(descriptor).st_dev != self.proc_device:
            return False
        return (path_of(descriptor) + b"/").startswith(b"/proc/%d/" % os.getpid())

    def place(self, start: int, path: bytes, task: int) -> Place:
        """The folder of the path's last name, with every link before it followed."""
        if not path:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        bare = path.rstrip(b"/")
        if not bare:
            return Place(self.root, b".", True, False)
        head, slash, name = bare.rpartition(b"/")
        ends = len(bare) < len(path)
        if not slash:
            return Place(start, name, ends, False)
        if not head.strip(b"/"):
            return Place(self.root, name, ends, False)
        return Place(self.open(start, head, task, os.O_DIRECTORY), name, ends, True)

    def open(self, start: int, path: bytes, task: int, flags: int = 0) -> int:
        """An `O_PATH` descriptor for the path as the caller sees it, with `O_DIRECTORY` and `O_NOFOLLOW` as given."""
        try:
            descriptor = self._openat2.open(start, path, flags)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOSYS, errno.EPERM):
                # Links of /proc into a process, or a kernel or container without the call: step by step.
                return self._unless_ours(self._walk(start, path, task, flags))
            raise
        if os.fstat(descriptor).st_dev == self.proc_device:
            os.close(descriptor)  # for the child, /proc/self is the child and not us
            return self._unless_ours(self._walk(start, path, task, flags))
        return descriptor

    def _walk(self, start: int, path: bytes, task: int, flags: int) -> int:
        """Opens one component after another and follows links itself."""
        current = os.open(b".", _INTO, dir_fd=start) if path[:1] != b"/" else os.dup(self.root)
        parts = _split(path)
        links = 0
        try:
            while parts:
                part = parts.pop()
                if part in (b"", b".", b".."):
                    current = _step(current, os.open(part or b".", _INTO | os.O_DIRECTORY, dir_fd=current))
                    continue
                if self._is_ours(current):
                    raise OSError(errno.EACCES, os.strerror(errno.EACCES))
                found = os.open(part, _SEARCH, dir_fd=current)
                status = os.fstat(found)
                if not stat.S_ISLNK(status.st_mode) or (not parts and flags & os.O_NOFOLLOW):
                    current = _step(current, found)
                    continue
                links += 1
                if links > _MOST_LINKS:
                    os.close(found)
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                try:
                    target = self._target(current, part, found, status, task)
                finally:
                    os.close(found)
                if target is None:
                    current = _step(current, os.open(part, _INTO, dir_fd=current))
                    continue
                parts.extend(_split(target))
                if target[:1] == b"/":
                    current = _step(current, os.dup(self.root))
            if flags & os.O_DIRECTORY and not stat.S_ISDIR(os.fstat(current).st_mode):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        except OSError:
            os.close(current)
            raise
        return current

    def _target(self, folder: int, name: bytes, link: int, status: os.stat_result, task: int) -> bytes | None:
        """The target in a link, or `None` for links of /proc that lead to an object and not to a name."""
        if status.st_dev != self.proc_device:
            return os.readlink(b"", dir_fd=link)
        if os.fstat(folder).st_ino != self._proc_inode:
            return None
        if name == b"self":
            return b"%d" % group_of(task)
        if name == b"thread-self":
            return b"%d/task/%d" % (group_of(task), task)
        return os.readlink(b"", dir_fd=link)


def _split(path: bytes) -> list[bytes]:
    """The parts, the first one last. A slash at the end requires a folder, like a dot."""
    parts = [part for part in path.split(b"/") if part]
    if path.endswith(b"/"):
        parts.append(b".")
    return parts[::-1]


def _step(old: int, new: int) -> int:
    os.close(old)
    return new


def group_of(task: int) -> int:
    """The process that a thread belongs to."""
    return int(_field_of(task, b"Tgid:"))


def umask_of(task: int) -> int:
    return int(_field_of(task, b"Umask:"), 8)


def _field_of(task: int, name: bytes) -> bytes:
    with open(b"/proc/%d/status" % task, "rb", buffering=0) as file:
        text = file.read(1024)
    start = text.index(name) + len(name)
    return text[start : text.index(b"\n", start)].strip()


def path_of(descriptor: int) -> bytes:
    """The file's path according to the kernel, now."""
    return os.readlink(b"/proc/self/fd/%d" % descriptor)


OPEN, CLOSED, HIDDEN, ABOVE = "open", "closed", "hidden", "above"
"""A name may be changed; is read-only; cannot be read either; is a folder with such names in it, and must stay."""


class PathVerdict(NamedTuple):
    """What may be done to a folder's names: `rest` applies to all that are not in `names`."""

    rest: str
    names: dict[str, str]
    is_inside: bool
    """Whether the folder is in a writable place; elsewhere Landlock decides."""

    def of(self, name: bytes) -> str:
        if not self.names:
            return self.rest
        return self.names.get(_fold(name), self.rest)


_ELSEWHERE = PathVerdict(OPEN, {}, False)


class _Node:
    """One component of protected paths."""

    __slots__ = ("children", "kind")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.kind = ABOVE


class PathVerdicts:
    """Judges folders by their paths. Names that differ only in case count as the same, as on some disks."""

    def __init__(
        self,
        *,
        write: Sequence[str],
        private: Sequence[str],
        closed: Sequence[str],
        hidden_inside: Sequence[str],
        pinned: Sequence[str] = (),
    ) -> None:
        """All paths are absolute. `closed` and `hidden_inside` need not exist; `pinned` ones only stay in place."""
        self.roots = {os.fsencode(path): identity for path in (*write, *private) if (identity := _identity(path))}
        self._top = _Node()
        for paths, kind in ((pinned, ABOVE), (closed, CLOSED), (hidden_inside, HIDDEN)):
            for path in paths:
                node = self._top
                for part in _parts(os.fsencode(path)):
                    node = node.children.setdefault(part, _Node())
                node.kind = kind
        self.protected = {
            identity: kind
            for paths, kind in ((closed, CLOSED), (hidden_inside, HIDDEN))
            for path in paths
            if (identity := _identity(path)) and not os.path.isdir(path)
        }
        """Protected files by device and number, whatever other names they were given before."""
        self._known: dict[bytes, PathVerdict] = {}

    def is_in_root(self, path: bytes) -> bool:
        """Whether the path, as spelled, is in a writable place."""
        return any(path == root or path.startswith(root + b"/") for root in self.roots)

    def under(self, folder: int) -> PathVerdict:
        """What may be done to the names in this folder, at its current place."""
        try:
            path = path_of(folder)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            return self._deep_under(folder)
        # The same folders may be mounted a second time, where their paths mean nothing.
        return self.at(path) or self._by_identity(folder)

    def _deep_under(self, folder: int) -> PathVerdict:
        """Judges a folder that is too deep to have a path by the first folder above it that has one."""
        current = os.dup(folder)
        try:
            while True:
                current = _step(current, os.open(b"..", _INTO | os.O_DIRECTORY, dir_fd=current))
                try:
                    path = path_of(current)
                except OSError as error:
                    if error.errno != errno.ENAMETOOLONG:
                        raise
                    continue
                path_verdict = self.at(path) or self._by_identity(current)
                return path_verdict._replace(rest=CLOSED, names={}) if path_verdict.names else path_verdict
        finally:
            os.close(current)

    def at(self, path: bytes) -> PathVerdict | None:
        """The same by the folder's path, if that is in a writable place."""
        path_verdict = self._known.get(path)
        if path_verdict is None and self.is_in_root(path):
            path_verdict = self._judge(path)
            if len(self._known) >= _MOST_VERDICTS:
                self._known.clear()
            self._known[path] = path_verdict
        return path_verdict

    def _judge(self, path: bytes) -> PathVerdict:
        node, rest = self._top, OPEN
        for part in _parts(path):
            found = node.children.get(part)
            if found is None:
                return PathVerdict(rest, {}, True)
            if found.kind == HIDDEN:
                return PathVerdict(HIDDEN, {}, True)
            if found.kind == CLOSED:  # something in it may be hidden
                rest = CLOSED
            node = found
        names = {name: child.kind for name, child in node.children.items()}
        if rest == CLOSED:
            names = {name: HIDDEN if kind == HIDDEN else CLOSED for name, kind in names.items()}
        return PathVerdict(rest, names, True)

    def _by_identity(self, folder: int) -> PathVerdict:
        """Climbs from the folder to a root, recognised by device and number, and judges the path from there."""
        status = os.fstat(folder)
        if not stat.S_ISDIR(status.st_mode):
            return _ELSEWHERE
        roots = {identity: root for root, identity in self.roots.items()}
        names: list[bytes] = []
        current = os.dup(folder)
        try:
            while True:
                here = (status.st_dev, status.st_ino)
                if here in roots:
                    return self._judge(b"/".join([roots[here], *names]))
                name = os.path.basename(path_of(current))
                current = _step(current, os.open(b"..", _INTO | os.O_DIRECTORY, dir_fd=current))
                status = os.fstat(current)
                if (status.st_dev, status.st_ino) == here:
                    return _ELSEWHERE
                names.insert(0, name)
        finally:
            os.close(current)


def _parts(path: bytes) -> list[str]:
    return [_fold(part) for part in path.split(b"/") if part]


def _fold(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape").casefold()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
