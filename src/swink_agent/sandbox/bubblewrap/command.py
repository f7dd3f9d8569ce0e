"""One run of `bwrap`: from its start until everything that it started has ended.

Manages the pipes to it, the limits of the command, and its end. `bubblewrap/backend` decides what it mounts.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..errors import SandboxClosed, SandboxError
from ..kernel.headcount import Headcount, groups_beneath, put_first
from ..kernel.process_tree import Watch, can_tell_exits, exit_code_of, kernel_release, limit_process, parent_of
from ..kernel.usage import Usage, offer_to_the_kernel
from ..output import OutputPipe, Readers, is_running_here
from ..process import SandboxedProcess, SpawnRequest
from ..profile import ProcessLimits
from ..starting import start_program
from .mounted import MountedPaths
from .renames import Renames
from .shared_network import Entrance, SharedNetwork
from .writes import WriteRules

if TYPE_CHECKING:
    from ..network.entering import CommandProxy

_START_DEADLINE = 20.0  # for each step of the start
END_DEADLINE = 5.0
_PATIENCE = 3.0
"""Seconds that the kernel has to end a namespace before we stop waiting for it."""
_TASKS_TO_PROCESSES = 4  # threads count too, and many programs have several
_LOOK_AT_FILES_AGAIN = 0.05
_FIRST_LOOK = 0.004  # for the command, which starts when everything is mounted
_BETWEEN_LOOKS = 0.002  # about the life of a program that crashes at once; grows while nothing starts
_BETWEEN_LOOKS_AT_MOUNTS = 0.001  # grows too: on a busy machine the looks would delay the mounts

# What bubblewrap reports if it may not make namespaces; all other messages are about paths.
_OF_THE_MACHINE = re.compile(
    r"namespace|[ug]id map|loopback|RTM_|pivot_root|capabilit|setuid|seccomp|no_new_privs", re.I
)

# In its reports
_CHILD = re.compile(rb'"child-pid"\s*:\s*(\d+)\D')
_EXIT = re.compile(rb'"exit-code"\s*:\s*(\d+)')


class BubblewrapCommand:
    """One command. Its exit is reported once nothing of it runs in its namespace.

    If the kernel holds one of its processes in a call, that is not awaited for longer than a few seconds.
    """

    def __init__(
        self, limits: ProcessLimits, watch: Watch, ended: Callable[[BubblewrapCommand], None], write: Sequence[str]
    ) -> None:
        self.mounted = MountedPaths()
        """What it sees at its paths, compared before it starts."""
        self.renames: Renames | None = None
        """Starts the command and answers its renames; `None` if nothing intercepts them."""
        self.proxy: CommandProxy | None = None
        """The proxy through which the command reaches hosts by name, if it may."""
        self.writes: WriteRules | None = None
        """Keeps it from writing to named pipes elsewhere, if this machine can."""
        self.entrance: Entrance | None = None
        """The way into the network of another command, if this one starts there."""
        self.keeps: SharedNetwork | None = None
        """Keeps the network of this command for later ones; `None` unless it is a background command."""
        self._kept: dict[str, tuple[int, int] | None] = {}
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._readers = Readers(self._loop)
        self._pipe = OutputPipe(self._loop, self._readers)
        self._look_at_files = time.monotonic() + _LOOK_AT_FILES_AGAIN
        self._handle: SandboxedProcess | None = None
        self._told: asyncio.Future[int] | None = None  # the first process of the namespace, while we wait for it
        self._limits = limits
        self._write = write
        self._watch = watch
        self._on_end = ended
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._outer = -1  # a descriptor of bwrap itself
        self._first = -1  # and of the first process in its namespace
        self._first_pid = 0
        self._command = -1  # and of the command, if the kernel then reports how it ended
        self._children = -1  # the kernel's list of the first process's children
        self._status = -1
        self._said = b""
        self._killed = False
        self._patience: asyncio.TimerHandle | None = None
        self._is_over = False

    async def start(
        self,
        bwrap: str,
        arguments: Sequence[str],
        program: bytes,
        environment: Mapping[str, str],
        request: SpawnRequest,
    ) -> SandboxedProcess:
        """Starts `bwrap`, limits the first process of the namespace while it waits for us, and lets it continue."""
        self._check_wanted()
        block, go = os.pipe()
        try:
            self._open(bwrap, arguments, program, block, environment, request)
            handle = await self._prepare()
            os.write(go, b"x")
        except (OSError, ValueError) as error:
            said = await self._complaint(error)
            remedy = None if _OF_THE_MACHINE.search(said) else ""
            raise SandboxError(f"bubblewrap could not build the sandbox: {said}", remedy=remedy) from error
        except BaseException:
            self.kill()  # before `go` is closed, which would let it continue
            raise
        finally:
            if self._first < 0 and not self._is_over:
                self._end_group()
            os.close(go)
            self.mounted.close()
        if can_tell_exits():
            self._loop.call_later(_FIRST_LOOK, self._find_command, _FIRST_LOOK)
        return handle

    async def _prepare(self) -> SandboxedProcess:
        """Limits the first process of the namespace, and begins to watch it, while it waits for us."""
        self._first_pid = await self._read_first_pid()
        self._check_wanted()
        self._first = _open_child(self._first_pid, self._pid)
        most = self._limits.processes
        counts = bool(most) and _counts_its_own(self._first_pid)
        limit_process(self._first_pid, self._limits, (most or 0) * _TASKS_TO_PROCESSES if counts else None)
        offer_to_the_kernel(self._first_pid)
        if self.keeps is not None:
            self.keeps.keep(self, self._first_pid)
        if self.proxy is not None:
            async with asyncio.timeout(_START_DEADLINE):
                await self.proxy.open(self._first_pid)
            self._check_wanted()
        self._headcount = Headcount(self._first_pid, self._limits.processes)
        memory, disk = self._limits.memory, self._limits.disk_left
        self._usage = Usage(self._first_pid, memory=memory, disk=disk, folders=self._write)
        # Before the first look, so that whatever it finds is reported.
        reached = None if self.proxy is None else self.proxy.log
        self._handle = handle = SandboxedProcess(self._pid, self._pipe.reader, self._exited, self.kill, reached)
        self._watch.add(self, self._look, self._end_because)
        await self._mounts_made()
        self._check_wanted()
        return handle

    def keep(self, path: str) -> None:
        """Adds a path that must stay mounted read-only or in its place while the command runs."""
        self._kept[path] = _identity(path)

    def kill(self) -> None:
        """Kills the namespace and everything in it. Any thread may call it."""
        with self._lock:
            was_killed, self._killed = self._killed, True
            if self._is_over or self._process is None:
                return
            if not was_killed:
                self._in_loop(self._stop_waiting)
            with suppress(OSError):
                if self._first < 0:
                    os.killpg(self._process.pid, signal.SIGKILL)
                elif not _has_ended(self._first):  # else its number may belong to another process
                    # The first process needs a processor before it can end the rest: it gets one before them, and
                    # whole groups of them are killed at once.
                    put_first(self._first_pid)
                    for group in groups_beneath(self._first_pid):
                        with suppress(OSError):
                            os.killpg(group, signal.SIGKILL)
                    signal.pidfd_send_signal(self._first, signal.SIGKILL)

    def _end_group(self) -> None:
        """Kills bubblewrap and a first process that we do not know yet, before it continues.

        That process may not be set to die with its parent yet, but it is still in the parent's group.
        """
        deadline = time.monotonic() + END_DEADLINE
        while self._process is not None and time.monotonic() < deadline:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except OSError:
                return
            self._process.poll()  # until it is reaped, it counts as a member of the group
            time.sleep(0.001)

    def abandon(self, deadline: float | None = None) -> None:
        """Kills it and waits for its end until the deadline, for when the loop will not. Any thread may call it."""
        self.kill()
        deadline = time.monotonic() + END_DEADLINE if deadline is None else deadline
        with self._lock:  # until it has ended, they are open
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
        """Ends the wait even if the kernel holds a killed process in a call: the process ends with the call."""
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

    def _stop_waiting(self) -> None:
        if self._patience is None and not self._is_over:
            self._patience = self._loop.call_later(_PATIENCE, self._give_up)

    def _in_loop(self, what: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nothing waits there
            self._loop.call_soon_threadsafe(what)

    def _check_wanted(self) -> None:
        """Raises if the command was killed already: then it does not begin."""
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
        program: bytes,
        block: int,
        environment: Mapping[str, str],
        request: SpawnRequest,
    ) -> None:
        self._status, status = os.pipe()
        os.set_blocking(self._status, False)
        rules = _file_of(program)
        # All users can see the arguments of a process, so variables are passed in a file, like the mounts. They are not
        # bubblewrap's own: it is not confined and must not load or look up what they name.
        variables = "".join([f"--setenv\0{name}\0{value}\0" for name, value in environment.items()])
        mounts = _file_of(os.fsencode("\0".join([*arguments, variables])))
        try:
            own = ["--seccomp", str(rules), "--json-status-fd", str(status), "--block-fd", str(block)]
            argv = request.argv if self.writes is None else self.writes.command_line(request.argv)
            line, inside = [bwrap, "--args", str(mounts), *own, "--", *argv], ()
            if self.entrance is not None:
                line, inside = self.entrance.command_line(line), self.entrance.descriptors
            inside = (*inside, *(() if self.writes is None else self.writes.descriptors))
            start = partial(
                start_program,
                line,
                outside=(),  # when the sandbox was opened, it was found where no command writes
                environ={},
                stdin=request.stdin,
                stdout=self._pipe.write_end,
                stderr=self._pipe.write_end if request.stderr is None else request.stderr,
                pass_fds=(rules, mounts, status, block, *inside, *request.pass_fds),
                new_session=True,
            )
            self._process = start() if self.renames is None else self.renames.start(start)
        finally:
            for descriptor in (rules, mounts, status, block):
                os.close(descriptor)
            if self.entrance is not None:
                self.entrance.close()
            if self.writes is not None:
                self.writes.close()
            self._pipe.close_write_end()
        self._outer = os.pidfd_open(self._pid)
        self._readers.add_reader(self._outer, self._outer_ended)

    async def _read_first_pid(self) -> int:
        """The number of the first process of the namespace, once bubblewrap reports it."""
        told: asyncio.Future[int] = self._loop.create_future()
        self._told = told

        def read() -> None:
            data = _read(self._status)
            self._said += data or b""
            if told.done():  # nothing waits for it now
                return
            if pid := _CHILD.search(self._said):
                told.set_result(int(pid[1]))
            elif data == b"":
                told.set_exception(ValueError("it ended without a message"))
            else:
                return
            self._readers.remove_reader(self._status)

        self._readers.add_reader(self._status, read)
        deadline = self._loop.call_later(_START_DEADLINE, _is_late, told)
        try:
            return await told
        finally:
            deadline.cancel()
            self._told = None
            self._readers.remove_reader(self._status)

    async def _mounts_made(self) -> None:
        """Waits until the mounts were compared. Raises if they are wrong, or bubblewrap gave up."""
        began = time.monotonic()
        async with asyncio.timeout(_START_DEADLINE):
            while not self.mounted.are_made(self._first_pid):
                self._check_wanted()
                if _has_ended(self._first):
                    raise ValueError("it ended without a message")
                await asyncio.sleep(max(_BETWEEN_LOOKS_AT_MOUNTS, (time.monotonic() - began) / 10))

    def _find_command(self, waited: float) -> None:
        """Opens a descriptor of the command, if it exists, or looks again. A command that ended at once has none."""
        if self._is_over:
            return
        if listed := self._listed_children():
            with suppress(OSError):  # it has ended
                self._command = os.pidfd_open(int(listed[0]))
        else:
            pause = max(_BETWEEN_LOOKS, waited / 50)
            self._loop.call_later(pause, self._find_command, waited + pause)

    def _listed_children(self) -> list[bytes]:
        """The first children of the first process, which has one thread."""
        try:
            if self._children < 0:
                listing = f"/proc/{self._first_pid}/task/{self._first_pid}/children"
                self._children = os.open(listing, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._children, 32, 0).split()
        except OSError:  # it has ended
            return []

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
        if reason := self._headcount.reason_to_end() or self._usage.reason_to_end():
            return reason
        if (now := time.monotonic()) < self._look_at_files:
            return ""
        self._look_at_files = now + _LOOK_AT_FILES_AGAIN
        return self._replaced()

    def _replaced(self) -> str:
        """Reports a protected path that another program has replaced: the kernel then removes the mount."""
        for path, identity in self._kept.items():
            if _identity(path) != identity:
                return (
                    f"{path!r} was replaced by another program while it ran and could no longer be kept read-only: "
                    "check what is in it now"
                )
        return ""

    def _end_because(self, reason: str) -> None:
        with self._lock:
            if self._killed or self._is_over:
                return  # findings after the kill are its result
            if self._handle is not None:
                self._handle.ended_because = reason
        self.kill()

    # -- the end -------------------------------------------------------------------------------------------------

    def _outer_ended(self) -> None:
        """Handles the end of the command. Its remaining processes end with the namespace."""
        self._readers.remove_reader(self._outer)
        if self._first < 0:
            return  # it failed: `start` sees the end of its messages, and ends the rest
        # Orphans become children of the first process: if it has none, only bubblewrap itself is left there, and we
        # need not wait for its end, which takes the kernel some milliseconds.
        is_alone = not self._listed_children()
        if not is_alone:
            put_first(self._first_pid)
        with suppress(OSError):
            signal.pidfd_send_signal(self._first, signal.SIGKILL)
        if is_alone:
            self._finish()
        else:
            self._readers.add_reader(self._first, self._finish)
            self._stop_waiting()

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
        if self.proxy is not None:
            self.proxy.close()
        if self._handle is not None:
            for text in self.renames.admissions.told() if self.renames is not None else ():
                self._handle.tell(text)
            self._handle.ended_because = self._handle.ended_because or self._replaced()
        if self.renames is not None:
            self.renames.close()
        self._on_end(self)
        code = 0
        if self._process is not None:
            code = self._process.wait(END_DEADLINE)
            self._said += _read(self._status) or b""
        ended = exit_code_of(self._command) if self._command >= 0 else None
        for descriptor in (self._outer, self._first, self._status, self._command, self._children):
            if descriptor >= 0:
                self._readers.remove_reader(descriptor)
                os.close(descriptor)
        if self._loop.is_closed() or self._process is None:
            self._pipe.close()
        else:
            self._pipe.drain()
            self._tell(code, ended)

    def _tell(self, code: int, ended: int | None) -> None:
        if self._exited.done():
            return
        said = _EXIT.search(self._said)
        if self._killed:
            self._exited.set_result(-signal.SIGKILL)
        elif said is None:
            message = f"bubblewrap could not build the sandbox and ended with {code}: its messages are in the output"
            self._exited.set_exception(SandboxError(message, remedy=""))  # namespaces work, so they are not the cause
            self._exited.exception()  # so that no warning is logged if nothing awaits it
        else:
            code = int(said[1])
            if ended is not None and ended < 0 and code == 128 - ended:
                code = ended
            self._exited.set_result(code)


def _is_late(awaited: asyncio.Future[int]) -> None:
    if not awaited.done():
        awaited.set_exception(TimeoutError())


def _has_ended(process: int, within: float = 0.0) -> bool:
    """Whether the process of a descriptor has ended, or ends within that many seconds."""
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
    """A descriptor of the process, after making sure that it is the child of that parent."""
    descriptor = os.pidfd_open(pid)
    try:
        if parent_of(pid, descriptor) == parent:
            return descriptor
    except ValueError:
        pass
    os.close(descriptor)
    raise ValueError(f"process {pid} is gone")


def _counts_its_own(pid: int) -> bool:
    """Whether the kernel counts the tasks of the namespace alone: not for root, and not before Linux 5.14."""
    if os.geteuid() == 0 or kernel_release() < (5, 14):
        return False
    try:
        return os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user")
    except OSError:
        return False


def _file_of(data: bytes) -> int:
    """A file in memory with the data, to be read from its start. Other users cannot see it, unlike arguments."""
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
