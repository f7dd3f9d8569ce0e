"""One run of `bwrap`: from its start to the end of everything that it started.

Owns the pipes to it, the limits of the command, and its end. What it mounts is in `bubblewrap/backend`.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from .._pipes import OutputPipe, is_running_here
from ..errors import SandboxClosed, SandboxError
from ..kernel.exit_status import can_tell_exits, exit_code_of
from ..kernel.headcount import Headcount, children_of, groups_beneath
from ..kernel.process_tree import Watch
from ..process import SandboxedProcess
from ..profile import ProcessLimits
from .placeholders import Placeholder, is_placeholder
from .renames import Renames

__all__ = ["END_DEADLINE", "BubblewrapCommand"]

_START_DEADLINE = 20.0
END_DEADLINE = 5.0
_PATIENCE = 3.0
"""Seconds that the kernel has to end a namespace before nobody waits for it any more."""
_FREE_AFTER = 0.01
_TASKS_TO_PROCESSES = 4  # threads are counted too, and every other program has some
_LOOK_AT_FILES_AGAIN = 0.05
_FIRST_LOOK = 0.004  # for the command, which starts when all is mounted
_BETWEEN_LOOKS = 0.002

# What bubblewrap complains of where it may not make namespaces; all else is about paths.
_OF_THE_MACHINE = re.compile(
    r"namespace|[ug]id map|loopback|RTM_|pivot_root|capabilit|setuid|seccomp|no_new_privs", re.I
)


class BubblewrapCommand:
    """Its end is the end of its process namespace: only then are place-holders removed and is the exit told."""

    def __init__(self, limits: ProcessLimits, watch: Watch, ended: Callable[[BubblewrapCommand], None]) -> None:
        self.placeholders: list[Placeholder] = []
        self.renames: Renames | None = None
        """Who starts it and answers what it wants to rename, if anybody does."""
        self._held: dict[str, tuple[int, int] | None] = {}
        self._absent: Sequence[str] = ()
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._pipe = OutputPipe(self._loop)
        self._look_at_files = 0.0
        self._handle: SandboxedProcess | None = None
        self._told: asyncio.Future[int] | None = None  # the first process of the namespace, while it is waited for
        self._limits = limits
        self._watch = watch
        self._on_end = ended
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._outer = -1  # a descriptor of bwrap itself
        self._first = -1  # and of the first process in its namespace
        self._first_pid = 0
        self._command = -1  # and of the command, where that tells how it ended
        self._children = -1  # the kernel's list of those of the first process
        self._status = -1
        self._said = b""
        self._killed = False
        self._patience: asyncio.TimerHandle | None = None
        self._is_over = False

    async def start(
        self,
        bwrap: str,
        arguments: Sequence[str],
        argv: Sequence[str],
        program: bytes,
        environment: Mapping[str, str],
        stdin: int,
        pass_fds: Sequence[int],
    ) -> SandboxedProcess:
        """Starts `bwrap`, limits the first process of the namespace while it waits for us, and lets it go on."""
        self._check_wanted()
        block, go = os.pipe()
        try:
            self._open(bwrap, arguments, argv, program, block, environment, stdin, pass_fds)
            async with asyncio.timeout(_START_DEADLINE):
                self._first_pid = await self._read_first_pid()
            self._check_wanted()
            self._first = _open_child(self._first_pid, self._pid)
            _limit(self._first_pid, self._limits)
            self._headcount = Headcount(self._first_pid, self._limits.processes)
            # Before anybody looks: what a look finds is told, however early it does.
            self._handle = SandboxedProcess(self._pid, self._pipe.reader, self._exited, self.kill)
            self._watch.add(self, self._look, self._end_because)
            self._check_wanted()
            os.write(go, b"x")
        except (OSError, ValueError) as error:
            said = await self._complaint(error)
            remedy = None if _OF_THE_MACHINE.search(said) else ""
            raise SandboxError(f"bubblewrap could not build the walls: {said}", remedy=remedy) from error
        finally:
            if self._first < 0 and not self._is_over:
                self._end_group()
            os.close(go)
        if can_tell_exits():
            self._loop.call_later(_FIRST_LOOK, self._find_command)
        return self._handle

    def hold(self, path: str) -> None:
        """Something to be mounted read-only or in its place for as long as the command runs."""
        self._held[path] = _identity(path)

    def expect_none_of(self, paths: Sequence[str]) -> None:
        """What is hidden and not there: no mount can cover it, so the command ends if it comes to be."""
        self._absent = paths

    def kill(self) -> None:
        """Ends the namespace, and with it all that is in it. Any thread may call it."""
        with self._lock:
            was_killed, self._killed = self._killed, True
            if self._is_over or self._process is None:
                return
            if not was_killed:
                self._in_loop(self._wait_no_longer)
            with suppress(OSError):
                if self._first < 0:
                    os.killpg(self._process.pid, signal.SIGKILL)
                elif not _has_ended(self._first):  # else its number may be another's
                    # Whole groups at once: the first process has to be given a processor before it can end the rest.
                    for group in groups_beneath(self._first_pid):
                        with suppress(OSError):
                            os.killpg(group, signal.SIGKILL)
                    signal.pidfd_send_signal(self._first, signal.SIGKILL)

    def _end_group(self) -> None:
        """Ends bubblewrap and a first process that nobody has told us of, before it is let go on.

        It may not have asked yet to die with its parent, but it has not left the group of its parent either.
        """
        deadline = time.monotonic() + END_DEADLINE
        while self._process is not None and time.monotonic() < deadline:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except OSError:
                return
            self._process.poll()  # as long as it is not taken note of, it counts as one of the group
            time.sleep(0.001)

    def abandon(self, deadline: float | None = None) -> None:
        """Ends it and waits until nothing of it is left; for when nobody will. Any thread may call it."""
        self.kill()
        deadline = time.monotonic() + END_DEADLINE if deadline is None else deadline
        with self._lock:  # as long as it is not over, they are open
            if self._is_over:
                return
            processes = [os.dup(descriptor) for descriptor in (self._outer, self._first) if descriptor >= 0]
        for descriptor in processes:
            _has_ended(descriptor, max(0.0, deadline - time.monotonic()))
            os.close(descriptor)
        if self._loop.is_closed() or is_running_here(self._loop):
            self._give_up()
        else:
            self._in_loop(self._give_up)

    def _give_up(self) -> None:
        """The end, also where the kernel holds something of it in a call that nobody can end: it never runs on."""
        if self._is_over:
            return
        if self._process is not None:
            if self._first < 0:
                self._end_group()
            elif not _has_ended(self._first):
                self._process.kill()  # it waits for its namespace
                if self._handle is not None:
                    self._handle.left_behind = True
        self._finish()

    def _wait_no_longer(self) -> None:
        if self._patience is None and not self._is_over:
            self._patience = self._loop.call_later(_PATIENCE, self._give_up)

    def _in_loop(self, what: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # it is closed, and nobody waits for anything there
            self._loop.call_soon_threadsafe(what)

    def _check_wanted(self) -> None:
        """Raises when somebody has ended it already: then it does not begin."""
        if self._killed or self._is_over:
            if self._handle is not None and self._handle.ended_because:
                raise SandboxError(f"the command was not run: {self._handle.ended_because}", remedy="")
            raise SandboxClosed

    @property
    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    # -- the start -----------------------------------------------------------------------------------------------

    def _open(
        self,
        bwrap: str,
        arguments: Sequence[str],
        argv: Sequence[str],
        program: bytes,
        block: int,
        environment: Mapping[str, str],
        stdin: int,
        pass_fds: Sequence[int],
    ) -> None:
        self._status, status = os.pipe()
        os.set_blocking(self._status, False)
        rules = _file_of(program)
        # The arguments of a process can be seen by all, so variables go the same way as the walls: bubblewrap itself,
        # which nothing confines, must not load or look up what they name.
        variables = [word for name, value in environment.items() for word in ("--setenv", name, value)]
        walls = _file_of(b"".join(os.fsencode(argument) + b"\0" for argument in (*arguments, *variables)))
        try:
            own = ["--seccomp", str(rules), "--json-status-fd", str(status), "--block-fd", str(block)]
            start = partial(
                subprocess.Popen[bytes],
                [bwrap, "--args", str(walls), *own, "--", *argv],
                env={},
                cwd="/",
                stdin=stdin,
                stdout=self._pipe.write_end,
                stderr=self._pipe.write_end,
                pass_fds=(rules, walls, status, block, *pass_fds),
                start_new_session=True,
            )
            self._process = start() if self.renames is None else self.renames.start(start)
        finally:
            for descriptor in (rules, walls, status, block):
                os.close(descriptor)
            self._pipe.close_write_end()
        self._outer = os.pidfd_open(self._pid)
        self._loop.add_reader(self._outer, self._outer_ended)

    async def _read_first_pid(self) -> int:
        """What bubblewrap says about the first process of its namespace, once it is there."""
        told: asyncio.Future[int] = self._loop.create_future()
        self._told = told

        def read() -> None:
            data = _read(self._status)
            self._said += data or b""
            if told.done():  # nobody waits for it any more
                return
            pid = re.search(rb'"child-pid"\s*:\s*(\d+)', self._said)
            if pid and b"}" in self._said:
                self._loop.remove_reader(self._status)
                told.set_result(int(pid[1]))
            elif data == b"":
                self._loop.remove_reader(self._status)
                told.set_exception(ValueError("it ended without a word"))

        self._loop.add_reader(self._status, read)
        try:
            return await told
        finally:
            self._told = None
            if not self._is_over:
                self._loop.remove_reader(self._status)

    def _find_command(self) -> None:
        """A descriptor of the command as soon as it is there; of one that was over at once there is none."""
        if self._is_over:
            return
        with suppress(OSError):
            if self._children < 0:
                listing = f"/proc/{self._first_pid}/task/{self._first_pid}/children"
                self._children = os.open(listing, os.O_RDONLY | os.O_CLOEXEC)
            if listed := os.pread(self._children, 32, 0).split():
                self._command = os.pidfd_open(int(listed[0]))
            else:
                self._loop.call_later(_BETWEEN_LOOKS, self._find_command)

    async def _complaint(self, error: BaseException) -> str:
        """What bubblewrap wrote before it gave up."""
        self.kill()
        try:
            async with asyncio.timeout(END_DEADLINE):
                said = await self._pipe.reader.read(4096)
        except TimeoutError:
            said = b""
        return said.decode("utf-8", "replace").strip() or str(error)

    # -- while it runs -------------------------------------------------------------------------------------------

    def _look(self) -> str:
        if reason := self._headcount.reason_to_end():
            return reason
        if (now := time.monotonic()) < self._look_at_files:
            return ""
        self._look_at_files = now + _LOOK_AT_FILES_AGAIN
        return self._replaced() or self._appeared()

    def _appeared(self) -> str:
        for path in self._absent:
            if os.path.lexists(path) and not is_placeholder(path):
                return f"{path!r}, which is hidden from commands, was made while it ran: run it again"
        return ""

    def _replaced(self) -> str:
        """Something held that another program has replaced: the kernel takes a mount away with what it stood on."""
        for path, identity in self._held.items():
            if _identity(path) != identity:
                return (
                    f"{path!r} was replaced by another program while it ran and could no longer be held read-only: "
                    "look at what is in it now"
                )
        return ""

    def _end_because(self, reason: str) -> None:
        with self._lock:
            if self._killed or self._is_over:
                return  # what a look finds once the end has begun is a part of the end
            if self._handle is not None:
                self._handle.ended_because = reason
        self.kill()

    # -- the end -------------------------------------------------------------------------------------------------

    def _outer_ended(self) -> None:
        """The command is over: so is all that it left behind, as soon as the namespace is."""
        self._loop.remove_reader(self._outer)
        if self._first < 0:
            return  # it gave up: `start` sees the end of its words, and ends the rest
        # Whoever lost its parent is a child of the first: without any, nothing but bubblewrap itself is left there,
        # and its end, which takes the kernel some milliseconds, need not be waited for.
        is_alone = not children_of(self._first_pid)
        with suppress(OSError):
            signal.pidfd_send_signal(self._first, signal.SIGKILL)
        if is_alone:
            self._finish()
        else:
            self._loop.add_reader(self._first, self._finish)
            self._wait_no_longer()

    def _finish(self) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        if self._told is not None and not self._told.done():
            self._told.set_exception(SandboxClosed())
        if self._patience is not None:
            self._patience.cancel()
        self._watch.remove(self)
        if self._handle is not None:
            for text in self.renames.admissions.told() if self.renames is not None else ():
                self._handle.tell(text)
            self._handle.ended_because = self._handle.ended_because or self._replaced()
        for placeholder in self.placeholders:
            placeholder.release()
        # After who waits for the exit was told, and better where nobody waits at all.
        if self.renames is None or not self.renames.close(self._free):
            if self._loop.is_closed():
                self._free()
            else:
                self._loop.call_later(_FREE_AFTER, self._free)
        self._on_end(self)
        code = 0
        if self._process is not None:
            code = self._process.wait(END_DEADLINE)
            self._said += _read(self._status) or b""
        ended = exit_code_of(self._command) if self._command >= 0 else None
        for descriptor in (self._outer, self._first, self._status, self._command, self._children):
            if descriptor >= 0:
                if not self._loop.is_closed():
                    self._loop.remove_reader(descriptor)
                os.close(descriptor)
        if self._loop.is_closed() or self._process is None:
            self._pipe.close()
        else:
            self._pipe.drain()
            self._tell(code, ended)

    def _free(self) -> None:
        for placeholder in self.placeholders:
            placeholder.close()

    def __del__(self) -> None:
        self._free()  # the loop may have ended before

    def _tell(self, code: int, ended: int | None) -> None:
        if self._exited.done():
            return
        said = re.search(rb'"exit-code"\s*:\s*(\d+)', self._said)
        if self._killed:
            self._exited.set_result(-signal.SIGKILL)
        elif said is None:
            message = f"bubblewrap could not build the walls and ended with {code}: what it wrote is in the output"
            self._exited.set_exception(SandboxError(message, remedy=""))  # there is a namespace, so that is not it
            self._exited.exception()  # nobody has to wait for it
        else:
            code = int(said[1])
            if ended is not None and ended < 0 and code == 128 - ended:
                code = ended
            self._exited.set_result(code)


def _has_ended(process: int, within: float = 0.0) -> bool:
    """Whether the process of a descriptor has, or does in so many seconds."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(within * 1000))


def _identity(path: str) -> tuple[int, int] | None:
    try:
        state = os.lstat(path)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _open_child(pid: int, parent: int) -> int:
    """A descriptor of the process, which is certainly the child that it was said to be."""
    descriptor = os.pidfd_open(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == parent:
                return descriptor
    except (OSError, ValueError, IndexError):
        pass
    os.close(descriptor)
    raise ValueError(f"process {pid} is gone")


def _limit(pid: int, limits: ProcessLimits) -> None:
    """What the kernel holds by itself, before any watch has had a look."""
    tasks = limits.processes * _TASKS_TO_PROCESSES if limits.processes and _counts_its_own(pid) else None
    for kind, most in (
        (resource.RLIMIT_CORE, limits.core),
        (resource.RLIMIT_FSIZE, limits.file_size),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, tasks),
    ):
        if most is not None:
            soft, hard = (value if value != resource.RLIM_INFINITY else most for value in resource.prlimit(pid, kind))
            resource.prlimit(pid, kind, (min(soft, most), min(hard, most)))


def _counts_its_own(pid: int) -> bool:
    """Whether the kernel counts the tasks of the namespace alone: not root's, and not before Linux 5.14."""
    release = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    if os.geteuid() == 0 or release < (5, 14):
        return False
    try:
        return os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user")
    except OSError:
        return False


def _file_of(data: bytes) -> int:
    """A file in memory, to be read from its start: arguments and filter are nobody else's business."""
    descriptor = os.memfd_create("swink", os.MFD_CLOEXEC)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _read(descriptor: int) -> bytes | None:
    try:
        return os.read(descriptor, 4096)
    except BlockingIOError:
        return None
    except OSError:
        return b""
