"""Renames of a command under bubblewrap that would replace a held configuration of git's, as questions to us.

A mount cannot be renamed over, so without us git could not set anything there. Owns a thread for each command, which
has a system call filter that tells of renames, starts the command (filters are inherited, and a thread's are its own)
and answers. The walls do not rest on it: all but that one way of git's is left to the kernel, which finds the mount in
its place; and what is done here is done by paths of ours, with a content that was judged.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import subprocess
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache

from . import _landlock_calls as kernel
from ._admission import Admissions
from ._quarantine import OpenFolder
from ._seccomp import NOTIFY, Rule, build_filter, filter_machine
from ._syscalls import syscall_numbers
from .profile import is_beneath

__all__ = ["RenameServer", "can_ask_about_renames"]

_CALLS = {"rename": (None, 0, None, 1), "renameat": (0, 1, 2, 3), "renameat2": (0, 1, 2, 3)}
"""Where the arguments of each are: folder and path of the old name, and of the new one."""
_FLAGS = 4
_ENDS = (b"/config", b"/config.worktree")


def can_ask_about_renames(program: str) -> bool:
    """Whether the kernel can tell us, and the program works for a process that can gain no rights any more."""
    try:
        kernel.check_notifications()
        return os.geteuid() == 0 or not os.stat(program).st_mode & (stat.S_ISUID | stat.S_ISGID)
    except OSError:
        return False


class RenameServer:
    """Starts one command and serves it until `close()`."""

    def __init__(self, settings: Iterable[str], roots: Iterable[str]) -> None:
        """`settings`: the held configurations, by their paths beneath the write roots."""
        self._roots = tuple(roots)
        self.admissions = Admissions(settings)
        self._start: Callable[[], subprocess.Popen[bytes]] | None = None
        self._started = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._error: BaseException | None = None
        self._ended = self._end = -1
        self._lock = threading.Lock()

    def start(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """What `start` gives, called in the thread. Raises what it raises, and runs it here where no filter can be."""
        self._start = start
        self._ended, self._end = os.pipe()
        threading.Thread(target=self._run, name="swink-sandbox-renames", daemon=True).start()
        self._started.wait()
        if self._error is not None:
            raise self._error
        assert self._process is not None
        return self._process

    def close(self) -> None:
        """When everything of the command has ended, or nothing of it has begun: ends the thread. Idempotent."""
        with self._lock:
            if self._end >= 0:
                os.close(self._end)
                self._end = -1

    def _run(self) -> None:
        listener: kernel.Listener | None = None
        try:
            assert self._start is not None
            try:
                kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
                listener = kernel.Listener(kernel.install_listener(_program()))
            except OSError:  # one is in place already, or nobody may have any: git is refused then
                pass
            self._process = self._start()
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()
        try:
            # To the end in any case: a child that is to die with its parent dies with this thread.
            self._serve(listener)
        finally:
            os.close(self._ended)
            if listener is not None:
                os.close(listener.descriptor)

    def _serve(self, listener: kernel.Listener | None) -> None:
        poll = select.poll()
        poll.register(self._ended, select.POLLIN)
        if listener is not None:
            poll.register(listener.descriptor, select.POLLIN)
        memory = kernel.ForeignMemory()
        names = {number: name for name, number in syscall_numbers(filter_machine()).items() if name in _CALLS}
        while True:
            ready = dict(poll.poll())
            if self._ended in ready:
                return
            notification = listener.receive() if listener is not None else None
            if listener is None or notification is None:
                continue
            identifier, task, _, number, _, _, *arguments = notification
            code: int | None = None
            with suppress(OSError, ValueError, KeyError):
                code = self._answer(listener, memory, identifier, task, names[number], arguments)
            if code is None:
                listener.let_run(identifier)
            else:
                listener.answer(identifier, -1 if code else 0, code)

    def _answer(
        self,
        listener: kernel.Listener,
        memory: kernel.ForeignMemory,
        identifier: int,
        task: int,
        name: str,
        arguments: list[int],
    ) -> int | None:
        """0 where it was done, an error where it was refused, and nothing where the kernel is to go on."""
        old_folder, old, new_folder, new = (None if at is None else arguments[at] for at in _CALLS[name])
        assert old is not None
        assert new is not None
        path = memory.path(task, new)
        if not (b"/" + path).endswith(_ENDS) or (name == "renameat2" and arguments[_FLAGS] & 0xFFFFFFFF):
            return None
        target = _absolute(task, new_folder, path)
        source = _absolute(task, old_folder, memory.path(task, old))
        if not self.admissions.concern(source, target) or not listener.is_valid(identifier):
            return None
        return self._take_over(target)

    def _take_over(self, path: str) -> int:
        root = next(root for root in self._roots if is_beneath(path, root))
        try:
            with OpenFolder(root, os.path.dirname(path)) as folder:
                self.admissions.take_over(folder.descriptor, path)
        except OSError as error:
            return error.errno or errno.EIO
        return 0


@cache
def _program() -> bytes:
    numbers = syscall_numbers(filter_machine())
    return build_filter([Rule(name, NOTIFY) for name in _CALLS if name in numbers])


def _absolute(task: int, folder: int | None, path: bytes) -> str:
    """The path as it is written, from where the task is; nobody follows its links, so it is no more than a guess."""
    if path[:1] != b"/":
        number = kernel.AT_FDCWD if folder is None else folder & 0xFFFFFFFF
        is_here = number in (kernel.AT_FDCWD, kernel.AT_FDCWD & 0xFFFFFFFF)
        path = os.path.join(os.readlink(b"/proc/%d/%s" % (task, b"cwd" if is_here else b"fd/%d" % number)), path)
    return os.path.normpath(os.fsdecode(path))
