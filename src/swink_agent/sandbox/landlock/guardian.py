"""One command: its guardian and the steps by which a child becomes confined.

The guardian is forked by the launcher before there is a command. It gives up all rights but those of the sandbox
and forks the child, which confines itself and waits; so a command that comes finds everything ready. Then the
guardian serves it until its end, ends whatever is left of it and reports. Owns the order of those steps. Loaded by
the launcher: the standard library alone.
"""

from __future__ import annotations

import array as array  # `socket` wants it for descriptors, at a time when nothing can be imported any more
import fcntl
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

from swink_agent.sandbox.kernel import calls as kernel
from swink_agent.sandbox.kernel.headcount import LOOK_AGAIN, Headcount, tasks_of_machine
from swink_agent.sandbox.kernel.mounts import is_in
from swink_agent.sandbox.landlock.caller import CallServices, Umasks
from swink_agent.sandbox.landlock.grants import Rulesets
from swink_agent.sandbox.landlock.opens import Opens
from swink_agent.sandbox.landlock.paths import PathVerdicts, Resolver
from swink_agent.sandbox.landlock.supervisor import Supervisor
from swink_agent.sandbox.landlock.tree import ProcessTree
from swink_agent.sandbox.repositories.admission import Admissions

_LIMITS = {"file_size": resource.RLIMIT_FSIZE, "open_files": resource.RLIMIT_NOFILE, "core": resource.RLIMIT_CORE}
_RETRY = 0.01
_PATIENCE = 0.8
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_LONGEST_REPORT = 2000
_TASKS_TO_PROCESSES = 4
_FIRST = -20
_MOST_DESCRIPTORS = 253


class StartFailed(Exception):
    """The child said why it could not be confined, or not become the command."""


class Confinement(NamedTuple):
    """What holds for every command of one sandbox, as the launcher knows it now."""

    rulesets: Rulesets
    listable_parents: Mapping[str, tuple[int, int]]
    hidden_inside: tuple[str, ...]
    write: tuple[str, ...]
    private: tuple[str, ...]
    shared_memory: str
    base: bytes
    notify: bytes
    calls: Mapping[int, str]
    limits: Mapping[str, int | None]
    umask: int
    """The agent's, with which a command begins."""
    nice_limit: tuple[int, int]
    """Likewise."""


class Command(NamedTuple):
    """What the agent asked to be run."""

    argv: Sequence[str]
    cwd: str
    environment: Mapping[str, str]
    protected: Sequence[str]
    settings: Sequence[str]
    """Those of the protected files that git keeps its configuration in."""
    passed: Sequence[int]
    """The numbers that descriptors have in the agent, and are to have in the child."""


def guard(line: socket.socket, lifelines: Sequence[int], walls: Confinement) -> NoReturn:
    """Takes one command from the line, runs it to its end and exits. Does not outlive the processes of `lifelines`."""
    try:
        tree = ProcessTree()
        guardian = _Guardian(lifelines, walls, tree)
        try:
            guardian.prepare(line)
            guardian.run(line)
        except Exception as error:  # whatever it is, the agent must hear of it
            guardian.report("E", str(error)[:_LONGEST_REPORT] or type(error).__name__)
        finally:
            is_clean = tree.kill_all(_PATIENCE)
        os._exit(0 if is_clean else 1)
    finally:
        os._exit(1)  # the launcher sweeps up


class _Guardian:
    def __init__(self, lifelines: Sequence[int], walls: Confinement, tree: ProcessTree) -> None:
        self._lifelines = lifelines
        self._walls = walls
        self._tree = tree
        self._control: socket.socket | None = None
        self._main = 0
        self._status: int | None = None
        self._problem: Exception | None = None
        self._admissions = Admissions(())
        tree.on_exit = self._note_exit

    def prepare(self, line: socket.socket) -> None:
        """Everything that does not depend on the command. What fails is told when there is somebody to tell."""
        try:
            self._prepare(line)
        except (OSError, StartFailed) as error:
            self._problem = error

    def _prepare(self, line: socket.socket) -> None:
        walls = self._walls
        _set_limits({"file_size": walls.limits["file_size"]})  # what it makes larger for a child is no exception
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        kernel.restrict_self(walls.rulesets.guardian)
        self._memory = kernel.ForeignMemory()
        self._child, theirs = socket.socketpair()
        guardian = os.getpid()
        self._main = os.fork()
        if self._main == 0:
            self._child.close()
            line.close()
            become(theirs, guardian, walls)
        theirs.close()
        walls.rulesets.close()
        data, descriptors, _, _ = socket.recv_fds(self._child, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not descriptors:
            raise StartFailed((data + _rest(self._child)).decode("utf-8", "replace") or "its process ended at once")
        self._listener = kernel.Listener(descriptors[0])
        self._resolver = Resolver()
        self._check_memory()
        self._umasks = Umasks(walls.umask)
        if "umask" in walls.calls.values():
            self._umasks.are_told()
        self._shared = os.open(walls.shared_memory, kernel.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _check_memory(self) -> None:
        """Says so now if no argument of a call will be readable; the child's memory is still laid out like ours."""
        try:
            self._memory.read(self._main, self._memory.address, 1)
        except OSError as error:
            raise StartFailed(
                f"its memory cannot be read, and so not what it asks for ({error.strerror}): "
                "kernel.yama.ptrace_scope may be 2 or 3, or a container may forbid it"
            ) from None

    def run(self, line: socket.socket) -> None:
        data, descriptors, _, _ = socket.recv_fds(line, 1, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        line.close()
        if not data:
            return  # not needed after all
        control, *given = descriptors
        self._control = socket.socket(fileno=control)
        if self._problem is not None:
            raise self._problem
        length = _exactly(self._control, 4)
        payload = _exactly(self._control, int.from_bytes(length, "little"))
        command = Command(**json.loads(payload))
        socket.send_fds(self._child, [length], given)
        self._child.sendall(payload)
        kernel.close_all(given)
        problem = _rest(self._child)  # ends when the command has taken the child's place
        self._child.close()
        if problem:
            raise StartFailed(problem.decode("utf-8", "replace"))
        self.report("P", self._main)
        self._serve(self._control, command)
        self._finish()

    def _serve(self, control: socket.socket, command: Command) -> None:
        """Until the command has ended, or nobody wants it any more."""
        walls = self._walls
        path_verdicts = PathVerdicts(
            write=walls.write,
            private=walls.private,
            closed=_with_targets(command.protected),
            hidden_inside=walls.hidden_inside,
            # A root in another root must not be swapped for a link to somewhere else.
            pinned=[inner for inner in walls.write if is_in(os.path.dirname(inner), walls.write)],
        )
        listener = self._listener
        services = CallServices(listener, self._resolver, path_verdicts, self._memory, self._shared)
        opens = Opens(services, self._umasks, walls.listable_parents, judges_reads=bool(walls.hidden_inside))
        self._admissions = Admissions(command.settings)
        supervisor = Supervisor(services, walls.calls, opens, self._umasks, self._tree, self._admissions)
        poll = select.poll()
        for descriptor in (listener.descriptor, control.fileno(), os.pidfd_open(self._main), *self._lifelines):
            poll.register(descriptor, select.POLLIN)
        with suppress(OSError):  # an ordinary user may not
            os.setpriority(os.PRIO_PROCESS, 0, _FIRST)
        headcount = Headcount(os.getpid(), walls.limits["processes"], reap=self._tree.reap)
        look_at = 0.0
        while True:
            ready = dict(poll.poll(1000 * (_RETRY if opens.waits else LOOK_AGAIN)))
            if listener.descriptor in ready:
                if ready.pop(listener.descriptor) & select.POLLIN:
                    supervisor.serve()
                else:
                    poll.unregister(listener.descriptor)  # the last process with the filter is about to go
            if ready:
                return
            if opens.waits:
                opens.retry()
            if (now := time.monotonic()) >= look_at:
                look_at = now + LOOK_AGAIN
                self._tree.reap()  # who waits for the end of a daemon asks whether its number is still there
                if reason := headcount.reason_to_end():
                    self.report("B", reason)
                    return

    def _finish(self) -> None:
        """Ends what is left, then tells how the command itself ended."""
        if not self._tree.kill_all(_PATIENCE):
            self.report("L", True)
        for text in self._admissions.told():
            self.report("T", text)
        status = signal.SIGKILL if self._status is None else self._status
        self.report("X", os.waitstatus_to_exitcode(status))

    def _note_exit(self, pid: int, status: int) -> None:
        if pid == self._main and self._status is None:  # later it may be another's number
            self._status = status

    def report(self, kind: str, what: object) -> None:
        if self._control is not None:
            try:
                self._control.sendall(f"{kind}{json.dumps(what)}\n".encode())
            except OSError:  # the agent is gone, or does not care
                pass


def _exactly(line: socket.socket, length: int) -> bytes:
    parts: list[bytes] = []
    while length:
        part = line.recv(min(length, 1 << 20))
        if not part:
            raise EOFError("the agent went away before it had said what to run")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _rest(line: socket.socket) -> bytes:
    parts: list[bytes] = []
    while part := line.recv(_LONGEST_REPORT):
        parts.append(part)
    return b"".join(parts)


def _with_targets(paths: Sequence[str]) -> list[str]:
    """The paths, and where they lead if they are links or behind some."""
    return list(dict.fromkeys([*paths, *map(os.path.realpath, paths)]))


# The child, from its fork to the command


def become(line: socket.socket, guardian: int, walls: Confinement) -> NoReturn:
    """Confines this process and turns it into the command that comes. What goes wrong is told through the line.

    From the filter on nothing may be imported or listed here: it would wait for a guardian that waits for us.
    """
    step = "be set up"
    try:
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian:
            os._exit(1)
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_NICE, walls.nice_limit)
        _set_limits({name: walls.limits[name] for name in _LIMITS})
        _limit_tasks(walls.limits["processes"])
        step = "be confined"
        kernel.restrict_self(walls.rulesets.child)
        kernel.install_filter(walls.base)
        listener = kernel.install_listener(walls.notify)
        socket.send_fds(line, [b"L"], [listener])
        os.close(listener)
        step = "hear its command"
        data, given, _, _ = socket.recv_fds(line, 4, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if len(data) < 4:
            os._exit(1)  # not needed after all
        command = Command(**json.loads(_exactly(line, int.from_bytes(data, "little"))))
        output, stdin, *passed = given
        line = _arrange_descriptors(
            line, {0: stdin, 1: output, 2: output, **dict(zip(command.passed, passed, strict=True))}
        )
        step = f"start in {command.cwd!r}"
        os.chdir(command.cwd)
        step = f"run {command.argv[0]!r}"
        os.execvpe(command.argv[0], list(command.argv), dict(command.environment))
    except BaseException as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else repr(error)
        try:
            line.sendall(f"could not {step}: {text}".encode("utf-8", "backslashreplace")[:_LONGEST_REPORT])
        finally:
            os._exit(127)


def _arrange_descriptors(line: socket.socket, wanted: Mapping[int, int]) -> socket.socket:
    """Puts descriptors where the command expects them and leaves it no others; gives the line at its new number.

    `wanted`: by the number that it is to have, the descriptor.
    """
    floor = max(wanted) + 1
    # First out of the way of every number that is about to be taken.
    moved = fcntl.fcntl(line.detach(), fcntl.F_DUPFD_CLOEXEC, floor)
    sources = {number: fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, floor) for number, descriptor in wanted.items()}
    kernel.close_on_exec(3)
    for number, descriptor in sources.items():
        os.dup2(descriptor, number, inheritable=True)
    return socket.socket(fileno=moved)


def _set_limits(limits: Mapping[str, int | None]) -> None:
    for name, value in limits.items():
        if value is not None:
            _, hard = resource.getrlimit(_LIMITS[name])
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(_LIMITS[name], (value, value))


def _limit_tasks(processes: int | None) -> None:
    """Lets the kernel stop a bomb that outruns the count. It counts all tasks of a user, and root's not at all.

    So what the whole machine has now is added: nothing that the user does besides is held against the command.
    """
    if processes is not None:
        _, tasks = tasks_of_machine()
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        most = tasks + _TASKS_TO_PROCESSES * processes
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
