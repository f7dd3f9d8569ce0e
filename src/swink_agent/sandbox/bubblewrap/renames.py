"""Intercepts renames of a command under bubblewrap that would replace a read-only git configuration.

A mount cannot be renamed over, so without this git could not change settings there. Each running command has a thread:
it installs a system call filter that reports renames, starts the command (which inherits the filter) and answers. The
protection does not depend on it: all other renames are left to the kernel, which refuses those over a mount, and a
change is made through our own paths, with content that was judged.
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

from ..kernel import calls as kernel
from ..kernel.seccomp import NOTIFY, Rule, build_filter, filter_machine, syscall_numbers
from ..profile import is_beneath
from ..repositories.admission import Admissions
from ..repositories.quarantine import OpenFolder

_CALLS = {"rename": (None, 0, None, 1), "renameat": (0, 1, 2, 3), "renameat2": (0, 1, 2, 3)}
"""The positions of the arguments: folder and path of the old name, and of the new one."""
_FLAGS = 4
_ENDS = (b"/config", b"/config.worktree")


def can_ask_about_renames(program: str) -> bool:
    """Whether the kernel can report renames, and the program works for a process that cannot gain rights."""
    try:
        kernel.check_notifications()
        return os.geteuid() == 0 or not os.stat(program).st_mode & (stat.S_ISUID | stat.S_ISGID)
    except OSError:
        return False


class Renames:
    """One command: call `start()`, and `close()` when it has ended. `admissions` has the results."""

    def __init__(self, settings: Iterable[str], roots: Iterable[str]) -> None:
        """`settings`: the read-only configurations, by their paths beneath the write roots."""
        self.admissions = Admissions(settings)
        self._roots = tuple(roots)
        self._start: Callable[[], subprocess.Popen[bytes]] | None = None
        self._is_begun = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._error: BaseException | None = None
        self._ended = self._end = -1

    def start(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Calls `start` in the thread that will answer, and returns or raises what it does."""
        self._start = start
        self._ended, self._end = os.pipe()
        threading.Thread(target=self._run, name="swink-sandbox-renames", daemon=True).start()
        self._is_begun.wait()
        if self._error is not None:
            raise self._error
        assert self._process is not None
        return self._process

    def close(self) -> None:
        """Ends the thread when the command has ended. Idempotent, for one thread."""
        end, self._end = self._end, -1
        if end >= 0:
            os.close(end)

    def _run(self) -> None:
        listener: kernel.Listener | None = None
        try:
            assert self._start is not None
            try:
                kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
                listener = kernel.Listener(kernel.install_listener(_program()))
            except OSError:  # a filter is already there, or none is allowed: then git's rename fails
                pass
            self._process = self._start()
        except BaseException as error:
            self._error = error
        finally:
            self._start = None
            self._is_begun.set()
        try:
            # The thread stays until the end in any case: a child that is set to die with its parent dies with it.
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
        memory: kernel.ForeignMemory | None = None
        while self._ended not in dict(poll.poll()):
            if listener is not None:
                memory = memory or kernel.ForeignMemory()
                self._answer(listener, memory)

    def _answer(self, listener: kernel.Listener, memory: kernel.ForeignMemory) -> None:
        notification = listener.receive()
        if notification is None:
            return
        identifier, task, _, number, _, _, *arguments = notification
        code: int | None = None
        with suppress(OSError, ValueError, KeyError):
            path = _asked_about(memory, task, _names()[number], arguments, self.admissions)
            if path is not None and listener.is_valid(identifier):
                code = self._take_over(path)
        if code is None:
            listener.let_run(identifier)
        else:
            listener.answer(identifier, -1 if code else 0, code)

    def _take_over(self, path: str) -> int:
        """Returns 0, or the error number."""
        root = next(root for root in self._roots if is_beneath(path, root))
        try:
            with OpenFolder(root, os.path.dirname(path)) as folder:
                self.admissions.take_over(folder.descriptor, path)
        except OSError as error:
            return error.errno or errno.EIO
        return 0


def _asked_about(
    memory: kernel.ForeignMemory, task: int, name: str, arguments: list[int], admissions: Admissions
) -> str | None:
    """The configuration that the rename would change, if it is git's own way to do so; else `None`."""
    old_folder, old, new_folder, new = (None if at is None else arguments[at] for at in _CALLS[name])
    path = memory.path(task, new or 0)
    if not (b"/" + path).endswith(_ENDS) or (name == "renameat2" and arguments[_FLAGS] & 0xFFFFFFFF):
        return None
    target = _absolute(task, new_folder, path)
    return target if admissions.concern(_absolute(task, old_folder, memory.path(task, old or 0)), target) else None


@cache
def _names() -> dict[int, str]:
    return {number: name for name, number in syscall_numbers(filter_machine()).items() if name in _CALLS}


@cache
def _program() -> bytes:
    return build_filter([Rule(name, NOTIFY) for name in _names().values()])


def _absolute(task: int, folder: int | None, path: bytes) -> str:
    """The path as written, relative to the task's folder. Links are not followed, so it is only a guess."""
    if path[:1] != b"/":
        number = kernel.AT_FDCWD if folder is None else folder & 0xFFFFFFFF
        is_here = number in (kernel.AT_FDCWD, kernel.AT_FDCWD & 0xFFFFFFFF)
        path = os.path.join(os.readlink(b"/proc/%d/%s" % (task, b"cwd" if is_here else b"fd/%d" % number)), path)
    return os.path.normpath(os.fsdecode(path))
