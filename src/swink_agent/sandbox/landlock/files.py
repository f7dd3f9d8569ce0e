"""Creates, moves, removes and changes files for a child.

The guardian does each call, on a descriptor of the folder and a name in it, or on a descriptor of the file. Names may
be changed if the path's verdict allows it; elsewhere Landlock, which confines the guardian too, decides. Landlock does
not cover modes, owners, times and attributes: those are changed in writable places only. The launcher loads this
module: the standard library only.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from swink_agent.sandbox.kernel import calls as kernel
from swink_agent.sandbox.landlock.caller import Caller, NamedEntry, Umasks, denial, failure, refuse, signed
from swink_agent.sandbox.landlock.paths import CLOSED, HIDDEN, path_of
from swink_agent.sandbox.repositories.admission import Admissions

_AT_REMOVEDIR = 0x200
_RENAME_KNOWN = 0b11  # no replacing, exchange
_LONGEST_ATTRIBUTE = 65536


class Names:
    """The calls that make, move and remove names."""

    def __init__(self, umasks: Umasks, admissions: Admissions) -> None:
        self._umasks = umasks
        self._admissions = admissions

    def make_folder(self, caller: Caller, folder: int, path: int, mode: int) -> int:
        entry = caller.entry(folder, path)
        refuse(entry, makes=True)
        self._umasks.use(caller.task)
        os.mkdir(entry.written_name, mode & 0o1777, dir_fd=entry.folder)
        return 0

    def make_node(self, caller: Caller, folder: int, path: int, mode: int) -> int:
        entry = caller.entry(folder, path)
        refuse(entry, makes=True)
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFIFO):
            raise failure(errno.EPERM)
        self._umasks.use(caller.task)
        os.mknod(entry.written_name, stat.S_IFMT(mode) | mode & 0o1777, dir_fd=entry.folder)
        return 0

    def make_link(self, caller: Caller, target: int, folder: int, path: int) -> int:
        text = caller.text(target)
        entry = caller.entry(folder, path)
        refuse(entry, makes=True)
        os.symlink(text, entry.written_name, dir_fd=entry.folder)
        return 0

    def link(self, caller: Caller, old_folder: int, old: int, folder: int, path: int, flags: int) -> int:
        """Adds a second name. Not for a protected file, which could be changed through it."""
        if flags & ~(kernel.AT_SYMLINK_FOLLOW | kernel.AT_EMPTY_PATH):
            raise failure(errno.EINVAL)
        thing = caller.thing(
            old_folder, old, follow=bool(flags & kernel.AT_SYMLINK_FOLLOW), empty=bool(flags & kernel.AT_EMPTY_PATH)
        )
        verdict, is_inside = caller.judge(thing)
        if verdict in (CLOSED, HIDDEN):
            raise denial(verdict)
        if not is_inside:
            raise failure(errno.EXDEV)
        entry = caller.entry(folder, path)
        refuse(entry, makes=True)
        os.link(_through(thing), entry.written_name, dst_dir_fd=entry.folder, follow_symlinks=True)
        return 0

    def rename(self, caller: Caller, old_folder: int, old: int, new_folder: int, new: int, flags: int) -> int:
        """Moves a file, unless the old or new name, or a name beneath it, is protected."""
        if flags & ~_RENAME_KNOWN:
            raise failure(errno.EINVAL)
        source, target = caller.entry(old_folder, old), caller.entry(new_folder, new)
        refuse(source)
        if target.verdict == CLOSED and not flags and not (source.slash or target.slash):
            path = _path_of(target)
            if self._admissions.concern(_path_of(source), path):
                self._admissions.take_over(target.folder, path)
                return 0
        refuse(target)
        kernel.rename(source.folder, source.written_name, target.folder, target.written_name, flags)
        return 0

    def remove(self, caller: Caller, folder: int, path: int, flags: int) -> int:
        entry = caller.entry(folder, path)
        refuse(entry)
        if flags & _AT_REMOVEDIR:
            os.rmdir(entry.written_name, dir_fd=entry.folder)
        else:
            os.unlink(entry.written_name, dir_fd=entry.folder)
        return 0


class AttributeCalls:
    """The calls that change size (by path), mode, owner, times and attributes."""

    def truncate(self, caller: Caller, path: int, length: int) -> int:
        """Truncates through an open file, because the call itself would wait for the holder of a lease."""
        length = length - (1 << 64) if length & (1 << 63) else length
        thing = caller.thing(kernel.AT_FDCWD, path, follow=True)
        through, mode = _checked(caller, thing), os.fstat(thing).st_mode
        if not stat.S_ISREG(mode):
            raise failure(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL)
        opened = caller.keep(os.open(through, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
        os.ftruncate(opened, length)
        return 0

    def mode(self, caller: Caller, thing: int, mode: int) -> int:
        path = _checked(caller, thing)
        special = stat.S_ISUID if stat.S_ISDIR(os.fstat(thing).st_mode) else stat.S_ISUID | stat.S_ISGID
        if mode & special:
            raise failure(errno.EPERM)  # other users could run it with this user's rights
        os.chmod(path, mode & 0o7777)
        return 0

    def owner(self, caller: Caller, thing: int, user: int, group: int) -> int:
        os.chown(_checked(caller, thing), signed(user), signed(group))
        return 0

    def times(self, caller: Caller, folder: int, path: int, times: int, flags: int) -> int:
        """`utimensat`; without a path, for the descriptor's own file."""
        thing = thing_at(caller, folder, path, flags) if path else _descriptor(caller, folder)
        kernel.set_times(_checked(caller, thing), caller.bytes_at(times, 32) if times else None)
        return 0

    def times_in_microseconds(self, caller: Caller, folder: int, path: int, times: int) -> int:
        thing = thing_at(caller, folder, path, 0) if path else _descriptor(caller, folder)
        given = struct.unpack("=4q", caller.bytes_at(times, 32)) if times else None
        packed = given and struct.pack("=4q", given[0], given[1] * 1000, given[2], given[3] * 1000)
        kernel.set_times(_checked(caller, thing), packed)
        return 0

    def times_in_seconds(self, caller: Caller, path: int, times: int) -> int:
        thing = thing_at(caller, kernel.AT_FDCWD, path, 0)
        given = struct.unpack("=2q", caller.bytes_at(times, 16)) if times else None
        kernel.set_times(_checked(caller, thing), given and struct.pack("=4q", given[0], 0, given[1], 0))
        return 0

    def set_attribute(self, caller: Caller, thing: int, name: int, value: int, size: int, flags: int) -> int:
        if size > _LONGEST_ATTRIBUTE:
            raise failure(errno.E2BIG)
        path = _checked(caller, thing)
        os.setxattr(path, caller.text(name), caller.bytes_at(value, size), flags & 0xFFFFFFFF)
        return 0

    def remove_attribute(self, caller: Caller, thing: int, name: int) -> int:
        os.removexattr(_checked(caller, thing), caller.text(name))
        return 0


def _path_of(entry: NamedEntry) -> str:
    return os.fsdecode(path_of(entry.folder) + b"/" + entry.name)


def thing_at(caller: Caller, folder: int, path: int, flags: int = 0) -> int:
    """An `O_PATH` descriptor of what a path leads to, by the flags of the `…at` calls."""
    if flags & ~(kernel.AT_SYMLINK_NOFOLLOW | kernel.AT_EMPTY_PATH):
        raise failure(errno.EINVAL)
    follow = not flags & kernel.AT_SYMLINK_NOFOLLOW
    return caller.thing(folder, path, follow=follow, empty=bool(flags & kernel.AT_EMPTY_PATH))


def _descriptor(caller: Caller, number: int) -> int:
    if signed(number) == kernel.AT_FDCWD:
        raise failure(errno.EFAULT)
    return caller.descriptor(number)


def _checked(caller: Caller, thing: int) -> bytes:
    """A path that leads to exactly this file, if it may be changed."""
    verdict, is_inside = caller.judge(thing)
    if verdict in (CLOSED, HIDDEN):
        raise denial(verdict)
    if not is_inside:
        raise failure(errno.EPERM)
    return _through(thing)


def _through(thing: int) -> bytes:
    return b"/proc/self/fd/%d" % thing
