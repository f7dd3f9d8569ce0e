"""One command: its guardian, and the steps by which a child becomes confined.

The launcher forks the guardian before there is a command. The guardian gives up all rights but those of the sandbox and
forks the child, which confines itself and waits, so that everything is ready when a command comes. Then the guardian
serves the command until its end, kills whatever is left of it and reports. The launcher loads this module: the standard
library only.
"""

from __future__ import annotations

import array as array  # `socket` needs it for descriptors, when nothing can be imported
import fcntl
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from swink_agent.sandbox.kernel import calls as kernel
from swink_agent.sandbox.kernel.headcount import LOOK_AGAIN, Headcount, tasks_of_machine
from swink_agent.sandbox.kernel.mounts import is_in, real_paths
from swink_agent.sandbox.kernel.usage import Usage, offering_children_to_the_kernel
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
_MOST_DESCRIPTORS = 253


class StartFailed(Exception):
    """The child reported why it could not be confined, or could not become the command."""


class Confinement(NamedTuple):
    """What applies to every command of one sandbox, as the launcher knows it now."""

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
    """The agent's umask, with which a command begins."""
    niceness: int
    """The agent's niceness, with which a command begins. The launcher and its guardians may have another."""
    proxy: int
    """The port of the proxy, if the guardian connects commands to it; else 0."""


class Command(NamedTuple):
    """The command that the agent requested."""

    argv: Sequence[str]
    cwd: str
    environment: Mapping[str, str]
    protected: Sequence[str]
    settings: Sequence[str]
    """The protected files that are git configurations."""
    passed: Sequence[int]
    """The numbers of descriptors in the agent, which they get in the child too."""


def guard(line: socket.socket, lifelines: Sequence[int], confinement: Confinement) -> NoReturn:
    """Takes one command from the line, runs it to its end and exits. Ends if a process of `lifelines` ends."""
    try:
        tree = ProcessTree()
        guardian = _Guardian(lifelines, confinement, tree)
        try:
            guardian.prepare(line)
            guardian.run(line)
        except Exception as error:  # every error must be reported to the agent
            kind = "K" if error is guardian.problem else "E"  # what the kernel lacks, or what is wrong with the command
            guardian.report(kind, str(error)[:_LONGEST_REPORT] or type(error).__name__)
        finally:
            is_clean = tree.kill_all(_PATIENCE)
        os._exit(0 if is_clean else 1)
    finally:
        os._exit(1)  # the launcher kills the rest


class _Guardian:
    def __init__(self, lifelines: Sequence[int], confinement: Confinement, tree: ProcessTree) -> None:
        self._lifelines = lifelines
        self._confinement = confinement
        self._tree = tree
        self._control: socket.socket | None = None
        self._main = 0
        self._status: int | None = None
        self.problem: Exception | None = None
        self._admissions = Admissions(())
        tree.on_exit = self._note_exit

    def prepare(self, line: socket.socket) -> None:
        """Does everything that does not depend on the command. A failure is reported when the agent connects."""
        try:
            self._prepare(line)
        except (OSError, StartFailed) as error:
            self.problem = error

    def _prepare(self, line: socket.socket) -> None:
        confinement = self._confinement
        _set_limits({"file_size": confinement.limits["file_size"]})  # also for files that it writes for a child
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        self._child, theirs = socket.socketpair()
        guardian = os.getpid()
        with offering_children_to_the_kernel():
            kernel.restrict_self(confinement.rulesets.guardian)
            self._memory = kernel.ForeignMemory()
            self._main = os.fork()
            if self._main == 0:
                self._child.close()
                line.close()
                become(theirs, guardian, confinement)
        theirs.close()
        confinement.rulesets.close()
        data, descriptors, _, _ = socket.recv_fds(self._child, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not descriptors:
            raise StartFailed((data + _rest(self._child)).decode("utf-8", "replace") or "its process ended at once")
        self._listener = kernel.Listener(descriptors[0])
        self._resolver = Resolver()
        self._check_memory()
        self._umasks = Umasks(confinement.umask, are_told="umask" in confinement.calls.values())
        self._shared = os.open(confinement.shared_memory, kernel.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _check_memory(self) -> None:
        """Fails now if the child's memory cannot be read. At this point it still has the same layout as ours."""
        try:
            self._memory.read(self._main, self._memory.address, 1)
        except OSError as error:
            raise StartFailed(
                f"its memory cannot be read, and so its requests cannot be either ({error.strerror}): "
                "kernel.yama.ptrace_scope may be 2 or 3, or a container may forbid it"
            ) from None

    def run(self, line: socket.socket) -> None:
        data, descriptors, _, _ = socket.recv_fds(line, 1, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        line.close()
        if not data:
            return  # it is not needed
        control, *given = descriptors
        self._control = socket.socket(fileno=control)
        if self.problem is not None:
            raise self.problem
        length = _exactly(self._control, 4)
        payload = _exactly(self._control, int.from_bytes(length, "little"))
        command = Command(**json.loads(payload))
        socket.send_fds(self._child, [length], given)
        self._child.sendall(payload)
        kernel.close_all(given)
        opens, supervisor = self._services(command)  # while the child becomes the command
        problem = _rest(self._child)  # ends when it has
        self._child.close()
        if problem:
            raise StartFailed(problem.decode("utf-8", "replace"))
        self.report("P", self._main)
        self._serve(self._control, opens, supervisor)
        if not self._tree.kill_all(_PATIENCE):
            self.report("L", True)
        for text in self._admissions.told():
            self.report("T", text)
        status = signal.SIGKILL if self._status is None else self._status
        self.report("X", os.waitstatus_to_exitcode(status))

    def _services(self, command: Command) -> tuple[Opens, Supervisor]:
        """The objects that answer the calls of the command."""
        confinement = self._confinement
        path_verdicts = PathVerdicts(
            write=confinement.write,
            private=confinement.private,
            # Also the real paths: a protected path may be a link or lead through one.
            closed=list(dict.fromkeys([*command.protected, *real_paths(command.protected)])),
            hidden_inside=confinement.hidden_inside,
            # A root in another root must not be swapped for a link.
            pinned=[inner for inner in confinement.write if is_in(os.path.dirname(inner), confinement.write)],
        )
        services = CallServices(self._listener, self._resolver, path_verdicts, self._memory, self._shared)
        opens = Opens(
            services, self._umasks, confinement.listable_parents, judges_reads=bool(confinement.hidden_inside)
        )
        self._admissions = Admissions(command.settings)
        supervisor = Supervisor(
            services, confinement.calls, opens, self._umasks, self._tree, self._admissions, confinement.proxy
        )
        return opens, supervisor

    def _serve(self, control: socket.socket, opens: Opens, supervisor: Supervisor) -> None:
        """Serves until the command ends or exceeds a limit, or the agent hangs up or ends."""
        listener, poll = self._listener, select.poll()
        for descriptor in (listener.descriptor, control.fileno(), os.pidfd_open(self._main), *self._lifelines):
            poll.register(descriptor, select.POLLIN)
        confinement, limits = self._confinement, self._confinement.limits
        headcount = Headcount(os.getpid(), limits["processes"], root_reaps=True)
        folders = (*confinement.write, *confinement.private)
        usage = Usage(os.getpid(), memory=limits["memory"], disk=limits["disk_left"], folders=folders)
        look_at = 0.0
        while True:
            ready = dict(poll.poll(1000 * (_RETRY if opens.waits else LOOK_AGAIN)))
            if listener.descriptor in ready:
                if ready.pop(listener.descriptor) & select.POLLIN:
                    supervisor.serve()
                else:
                    poll.unregister(listener.descriptor)  # the last process with the filter is about to end
            if ready:
                return
            if opens.waits:
                opens.retry()
            if (now := time.monotonic()) >= look_at:
                look_at = now + LOOK_AGAIN
                if reason := headcount.reason_to_end() or usage.reason_to_end():
                    self.report("B", reason)
                    return
                self._tree.reap()  # a process that waits for a daemon's end checks whether its number still exists

    def _note_exit(self, pid: int, status: int) -> None:
        if pid == self._main and self._status is None:  # later the number may belong to another process
            self._status = status

    def report(self, kind: str, what: object) -> None:
        if self._control is not None:
            try:
                self._control.sendall(f"{kind}{json.dumps(what)}\n".encode())
            except OSError:  # the agent has ended or hung up
                pass


def _exactly(line: socket.socket, length: int) -> bytes:
    parts: list[bytes] = []
    while length:
        part = line.recv(min(length, 1 << 20))
        if not part:
            raise EOFError("the agent ended before it had sent the command")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _rest(line: socket.socket) -> bytes:
    return b"".join(iter(lambda: line.recv(_LONGEST_REPORT), b""))


# The child, from its fork to the command


def become(line: socket.socket, guardian: int, confinement: Confinement) -> NoReturn:
    """Confines this process, waits for the command and becomes it. Errors are reported through the line.

    After the filter is installed, nothing may be imported or listed: it would wait for a guardian that waits for us.
    """
    step = "be set up"
    try:
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian:
            os._exit(1)
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        os.setpriority(os.PRIO_PROCESS, 0, confinement.niceness)
        _set_limits({name: confinement.limits[name] for name in _LIMITS})
        _limit_tasks(confinement.limits["processes"])
        step = "be confined"
        kernel.restrict_self(confinement.rulesets.child)
        kernel.install_filter(confinement.base)
        listener = kernel.install_listener(confinement.notify)
        socket.send_fds(line, [b"L"], [listener])
        os.close(listener)
        step = "receive its command"
        data, given, _, _ = socket.recv_fds(line, 4, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if len(data) < 4:
            os._exit(1)  # it is not needed
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
    """Puts descriptors where the command expects them; all others close at its exec. Returns the line, moved too.

    `wanted` maps the number that a descriptor gets to the descriptor.
    """
    floor = max(wanted) + 1
    # First away from every number that will be used.
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
    """Lets the kernel stop a fork bomb that is faster than the count. The kernel does not limit root.

    It counts all tasks of a user. So the tasks of the whole machine are added: other work of the user does not count
    against the command.
    """
    if processes is not None:
        _, tasks = tasks_of_machine()
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        most = tasks + _TASKS_TO_PROCESSES * processes
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
