"""Opens files for a child: to write or create, to list folders above something hidden, to read if reads are judged.

The guardian opens the file itself and puts the descriptor into the child, so the judged file is the open one. Nothing
here may block: an open that would wait (for the other end of a FIFO, for a lease) is set aside and tried again. The
launcher loads this module: the standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress

from swink_agent.sandbox.kernel import calls as kernel
from swink_agent.sandbox.landlock.caller import Caller, CallServices, NamedEntry, Umasks, denial, failure
from swink_agent.sandbox.landlock.paths import HIDDEN, OPEN

WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC
"""An open with any of these may change something. `O_TMPFILE` has a bit of `O_ACCMODE` as well."""

_UNNAMED = os.O_TMPFILE & ~os.O_DIRECTORY
_KEPT = os.O_APPEND | os.O_DIRECT | os.O_NOATIME
_OURS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_NOT_TAKEN = os.O_TRUNC | os.O_ASYNC
_MODE = 0o1777  # no new file runs with its owner's rights
_MOST_LINKS = 40


class Opens:
    """Serves `open` and similar calls for one command."""

    def __init__(
        self, services: CallServices, umasks: Umasks, parents: Mapping[str, tuple[int, int]], *, judges_reads: bool
    ) -> None:
        """`parents`: folders whose listing Landlock cannot allow without allowing it for all folders beneath.

        `judges_reads`: reads are judged too.
        """
        self._services = services
        self._umasks = umasks
        self._listable_parents = frozenset(parents.values())
        self._parent_names = {os.path.basename(os.fsencode(path)) for path in parents} | {b".", b".."}
        self._judges_reads = judges_reads
        self._waiting: dict[int, Callable[[], bool]] = {}

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def retry(self) -> None:
        """Tries the set-aside opens again."""
        for identifier, attempt in list(self._waiting.items()):
            if attempt():
                del self._waiting[identifier]

    def open(self, caller: Caller, folder: int, address: int, flags: int, mode: int) -> int | None:
        flags &= 0xFFFFFFFF
        if flags & kernel.O_PATH:
            return self._let_run(caller)  # changes nothing and reads nothing
        start, path = caller.path(folder, address)
        if not flags & WRITING and not self._judges_reads:
            return self._list(caller, start, path, flags)
        if flags & _UNNAMED:
            return self._open_unnamed(caller, start, path, flags, mode)
        return self._open_named(caller, start, path, flags, mode)

    def _let_run(self, caller: Caller) -> None:
        self._services.listener.let_run(caller.identifier)

    def _list(self, caller: Caller, start: int, path: bytes, flags: int) -> None:
        """Opens a folder for reading. Landlock judges all but the listable parents, so the kernel may run the call."""
        name = path.rstrip(b"/").rpartition(b"/")[2]
        if name and name not in self._parent_names:
            return self._let_run(caller)
        try:
            folder = caller.keep(self._services.resolver.open(start, path, caller.task, flags & os.O_NOFOLLOW))
            status = os.fstat(folder)
        except OSError:
            return self._let_run(caller)
        if (status.st_dev, status.st_ino) not in self._listable_parents or not stat.S_ISDIR(status.st_mode):
            return self._let_run(caller)
        opened = caller.keep(os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder))
        return self._hand_over(caller, opened, flags)

    def _open_unnamed(self, caller: Caller, start: int, path: bytes, flags: int, mode: int) -> None:
        follow = os.O_DIRECTORY | flags & os.O_NOFOLLOW
        folder = caller.keep(self._services.resolver.open(start, path, caller.task, follow))
        path_verdict = self._services.path_verdicts.under(folder)
        if path_verdict.rest != OPEN:
            raise denial(path_verdict.rest)
        self._umasks.use(caller.task)
        opened = caller.keep(os.open(b".", flags & ~os.O_ASYNC | os.O_CLOEXEC, mode & _MODE, dir_fd=folder))
        self._hand_over(caller, opened, flags)

    def _open_named(self, caller: Caller, start: int, path: bytes, flags: int, mode: int) -> None:
        follows = not (flags & os.O_NOFOLLOW or (flags & os.O_CREAT and flags & os.O_EXCL))
        for _ in range(_MOST_LINKS):
            entry = caller.entry_of(start, path)
            wanted = _judge_open(entry, flags)
            if wanted & os.O_CREAT:
                self._umasks.use(caller.task)
            try:
                opened = os.open(entry.name, wanted & ~_NOT_TAKEN | _OURS, mode & _MODE, dir_fd=entry.folder)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR) and (follows or entry.slash):
                    target = b""
                    with suppress(OSError):
                        target = os.readlink(entry.name, dir_fd=entry.folder)
                    if target:
                        if os.fstat(entry.folder).st_dev == self._services.resolver.proc_device:
                            return self._open_behind(caller, entry, flags)
                        start, path = entry.folder, target + b"/" * entry.slash
                        continue
                if error.errno in (errno.ENXIO, errno.EWOULDBLOCK) and not flags & os.O_NONBLOCK:
                    return self._wait_for(caller, entry, wanted, error)
                raise
            return self._finish(caller, caller.keep(opened), wanted, is_inside=entry.path_verdict.is_inside)
        raise failure(errno.ELOOP)

    def _open_behind(self, caller: Caller, entry: NamedEntry, flags: int) -> None:
        """Opens a link of /proc that leads to an open file, such as `/dev/stdout`."""
        if flags & os.O_CREAT and flags & os.O_EXCL:
            raise failure(errno.EEXIST)
        thing = caller.keep(self._services.resolver.open(entry.folder, entry.name, caller.task))
        verdict, is_inside = caller.judge(thing)
        if verdict == HIDDEN or (verdict != OPEN and flags & (os.O_ACCMODE | os.O_TRUNC)):
            raise denial(verdict)
        wanted = flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        opened = os.open(b"/proc/self/fd/%d" % thing, wanted & ~_NOT_TAKEN | _OURS & ~os.O_NOFOLLOW)
        self._finish(caller, caller.keep(opened), wanted, is_inside=is_inside)

    def _finish(self, caller: Caller, opened: int, flags: int, *, is_inside: bool) -> None:
        """Checks the opened file once more, by device and number and not by its name, and hands it over."""
        status = os.fstat(opened)
        kind = self._services.path_verdicts.protected.get((status.st_dev, status.st_ino))
        if kind is not None and (kind == HIDDEN or flags & (os.O_ACCMODE | os.O_TRUNC)):
            raise denial(kind)
        if flags & os.O_TRUNC and stat.S_ISDIR(status.st_mode):
            raise failure(errno.EISDIR)
        if flags & os.O_TRUNC and stat.S_ISREG(status.st_mode) and status.st_size:
            # Not for an empty file: some file systems write a truncated file out at once.
            if flags & os.O_ACCMODE != os.O_RDONLY:
                os.ftruncate(opened, 0)
            elif is_inside:
                again = caller.keep(os.open(b"/proc/self/fd/%d" % opened, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
                os.ftruncate(again, 0)
            else:
                raise failure(errno.EACCES)
        if not flags & os.O_NONBLOCK:
            if stat.S_ISFIFO(status.st_mode) and flags & os.O_ACCMODE == os.O_RDONLY and _is_silent(opened):
                return self._wait_to_read(caller, os.dup(opened), flags)
            fcntl.fcntl(opened, fcntl.F_SETFL, flags & _KEPT)
        return self._hand_over(caller, opened, flags)

    def _hand_over(self, caller: Caller, opened: int, flags: int) -> None:
        self._services.listener.hand_over(caller.identifier, opened, flags)

    def _wait_for(self, caller: Caller, entry: NamedEntry, flags: int, error: OSError) -> None:
        """Sets aside a FIFO without a reader, or a file with a lease: the caller waits, we do not."""
        thing = os.open(entry.name, kernel.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=entry.folder)
        if error.errno == errno.ENXIO and not stat.S_ISFIFO(os.fstat(thing).st_mode):
            os.close(thing)
            raise error
        listener, identifier = self._services.listener, caller.identifier
        wanted = flags & ~(os.O_CREAT | os.O_EXCL)

        def attempt() -> bool:
            again = Caller(self._services, identifier, caller.task)
            try:
                if listener.is_valid(identifier):
                    opened = os.open(b"/proc/self/fd/%d" % thing, wanted & ~_NOT_TAKEN | _OURS & ~os.O_NOFOLLOW)
                    self._finish(again, again.keep(opened), wanted, is_inside=entry.path_verdict.is_inside)
            except OSError as problem:
                if problem.errno in (errno.ENXIO, errno.EWOULDBLOCK):
                    return False
                listener.answer(identifier, code=problem.errno or errno.EIO)
            finally:
                again.close()
            os.close(thing)
            return True

        self._waiting[identifier] = attempt

    def _wait_to_read(self, caller: Caller, opened: int, flags: int) -> None:
        """Sets aside the reading end of a FIFO without a writer until there is, or was, something to read."""
        listener, identifier = self._services.listener, caller.identifier

        def attempt() -> bool:
            if listener.is_valid(identifier):
                if _is_silent(opened):
                    return False
                fcntl.fcntl(opened, fcntl.F_SETFL, flags & _KEPT)
                listener.hand_over(identifier, opened, flags)
            os.close(opened)
            return True

        self._waiting[identifier] = attempt


def _judge_open(entry: NamedEntry, flags: int) -> int:
    """The flags to open with. Raises `OSError` if the name may not be written."""
    if entry.slash:
        if flags & os.O_CREAT:
            raise failure(errno.EISDIR)
        flags |= os.O_DIRECTORY
    if entry.verdict == OPEN:
        return flags
    if entry.verdict == HIDDEN or flags & (os.O_ACCMODE | os.O_TRUNC):
        raise denial(entry.verdict)
    if not flags & os.O_CREAT:
        return flags
    # The file may be read if it exists, but not created.
    try:
        os.stat(entry.name, dir_fd=entry.folder, follow_symlinks=False)
    except FileNotFoundError:
        raise denial(entry.verdict) from None
    if flags & os.O_EXCL:
        raise failure(errno.EEXIST)
    return flags & ~os.O_CREAT


def _is_silent(fifo: int) -> bool:
    poll = select.poll()
    poll.register(fifo, select.POLLIN)
    return not poll.poll(0)
