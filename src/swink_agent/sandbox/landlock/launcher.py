"""The launcher: a small process that forks a guardian for each command of one sandbox.

It starts once, when the sandbox opens, so that a command costs two forks and no start of Python. It imports the
standard library only. It is not confined, because it must notice new folders beside a hidden one, and it runs and reads
nothing that a child could have made. If its agent ends, by any signal, it kills everything and ends too.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import Any, NamedTuple, NoReturn

from swink_agent.sandbox.kernel import calls as kernel
from swink_agent.sandbox.kernel.headcount import put_first
from swink_agent.sandbox.kernel.mounts import MountList
from swink_agent.sandbox.landlock.grants import Access, Grants, Rulesets, find_grants, make_rulesets, open_roots
from swink_agent.sandbox.landlock.guardian import Confinement, guard
from swink_agent.sandbox.landlock.tree import ProcessTree, kill, send
from swink_agent.sandbox.network.namespaces import enter

_MOST_DESCRIPTORS = 253
_BACKLOG = 128
_FAREWELL = 3.0
_BREATH = 2  # milliseconds: the command that was just started has priority
_LOOK_AGAIN = 1000
_LOOKS = 300
_PATIENCE = 0.4
"""Seconds that a guardian has to kill its processes after the agent has hung up."""
_BETWEEN_ROUNDS = 0.002
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_PR_SET_DUMPABLE = 4
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_REQUEST = struct.Struct("16sh22x")


def main(descriptor: int) -> NoReturn:
    """Serves the agent at the other end of `descriptor`, configured by the JSON on stdin."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # children would inherit signals that the agent ignores or blocks
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    config: dict[str, Any] = json.load(sys.stdin.buffer)
    os.set_inheritable(descriptor, False)
    agent = socket.socket(fileno=descriptor)
    try:
        launcher = Launcher(agent, config)
    except OSError as error:
        problem = {"error": str(error), "is_kernel": isinstance(error, kernel.Unsupported)}
        agent.send(json.dumps(problem).encode())
        sys.exit(1)
    said = json.dumps({"landlock": launcher.version, "loopback": launcher.has_loopback}).encode()
    socket.send_fds(agent, [said], [] if launcher.proxy is None else [launcher.proxy.fileno()])
    if launcher.proxy is not None:
        launcher.proxy.close()  # the agent has a copy
    gc.disable()  # forks share memory as long as nothing touches it
    try:
        launcher.serve()
    finally:
        launcher.end()
    sys.exit(0)


class Spare(NamedTuple):
    """A guardian that waits for a command."""

    process: int
    line: socket.socket


class Launcher:
    """Forks guardians, and kills their processes if one of them is killed."""

    def __init__(self, agent: socket.socket, config: dict[str, Any]) -> None:
        """Raises `OSError`, with a sentence, if this kernel lacks something."""
        self._agent = agent
        self._config = config
        try:
            self.version = min(kernel.landlock_version(), config["landlock"])
        except OSError as error:
            raise kernel.Unsupported(f"Landlock is not in this kernel or is switched off ({error.strerror})") from None
        kernel.check_notifications()
        self._access = Access(**config["access"])
        self._mounts = MountList()
        self._grants: Grants = find_grants(self._access)
        self._roots = open_roots(self._access)
        # All commands of one sandbox share it, like its temporary folder.
        self.has_loopback = not self._access.network and config["namespaces"] and _enter_own_network(config["beside"])
        self.proxy = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) if config["hosts"] else None
        """In the network of the commands, where the agent serves it."""
        # Without their own network, commands cannot connect: the guardian does.
        self._connects_to = self.proxy.getsockname()[1] if self.proxy is not None and not self.has_loopback else 0
        self._rulesets: Rulesets = make_rulesets(
            self.version, self._access, self._grants, self._roots, tcp=self._denies_tcp
        )
        self._niceness = os.getpriority(os.PRIO_PROCESS, 0)
        put_first()  # guardians inherit it: only their count stops a fork bomb of root
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        kernel.drop_privileges()  # also for every fork
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        self._agent_process = os.pidfd_open(config["agent"])
        self._tree = ProcessTree()
        kind = "loopback" if self.has_loopback else "proxied" if self._connects_to else "alone"
        self._base = bytes.fromhex(config["base"][kind])
        self._notify = tuple(map(bytes.fromhex, config["notify"]["proxied" if self._connects_to else "alone"]))
        self._calls = {int(number): name for number, name in config["calls"].items()}
        self._guardians: dict[int, int] = {}
        """Maps the descriptor of each guardian's process to its number."""
        self._lines: dict[int, int] = {}
        """Maps the descriptor of an agent's line to a guardian to that of the guardian's process."""
        self._late: dict[int, float] = {}
        """Guardians whose agent has hung up, and when they must have ended."""
        self._given_up: set[int] = set()
        """Those that did not and were killed. One that the kernel holds in a call still exists."""
        self._spare: Spare | None = None
        self._looks = 0
        self._poll = select.poll()

    def serve(self) -> None:
        """Serves until the agent closes its end, or ends."""
        self._poll.register(self._agent, select.POLLIN)
        self._poll.register(self._agent_process, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll(self._patience())}
            for guardian in ready.intersection(self._guardians):
                self._handle_end(guardian)
            for line in ready.intersection(self._lines):
                self._poll.unregister(line)
                self._late[self._lines[line]] = time.monotonic() + _PATIENCE
            self._end_late()
            if self._agent_process in ready:
                return
            if self._agent.fileno() in ready:
                if not self._take_request():
                    return
            elif not ready:  # prepares a guardian for the next command, and for some minutes renews its rules
                self._looks += 1
                self._refresh_rules()
                self._spare = self._spare or self._fork_guardian()

    @property
    def _denies_tcp(self) -> bool:
        return not self._access.network and not self.has_loopback

    def _patience(self) -> int | None:
        """How long to wait for the agent before there is something to do."""
        if self._spare is None:
            return _BREATH
        if self._late:
            return max(1, int((min(self._late.values()) - time.monotonic()) * 1000))
        return _LOOK_AGAIN if self._looks < _LOOKS else None

    def _take_request(self) -> bool:
        """Gives the next command to a guardian. Returns false at the end."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._agent, 1, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return False
        if not data:
            return False
        self._looks = 0
        self._refresh_rules()
        guardian, self._spare = self._spare or self._fork_guardian(), None
        with guardian.line as line:
            try:
                socket.send_fds(line, [b"C"], descriptors)
            except ConnectionError:  # it was killed; the agent sees the end of its line
                pass
        if descriptors and guardian.process in self._guardians:
            line = os.dup(descriptors[0])
            os.set_inheritable(line, False)
            self._lines[line] = guardian.process
            self._poll.register(line, select.POLLRDHUP)
        kernel.close_all(descriptors)
        return True

    def _fork_guardian(self) -> Spare:
        """Forks a guardian. It reads the command from a line to the agent that comes with the request."""
        ours, theirs = socket.socketpair()
        launcher = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._guard(launcher, theirs)
        theirs.close()
        guardian = os.pidfd_open(pid)
        self._guardians[guardian] = pid
        self._poll.register(guardian, select.POLLIN)
        return Spare(guardian, ours)

    def _guard(self, launcher: int, line: socket.socket) -> NoReturn:
        self._agent.close()
        kernel.close_all(self._guardians)
        kernel.close_all(self._lines)
        grants = self._grants
        confinement = Confinement(
            rulesets=self._rulesets,
            listable_parents=grants.identities,
            hidden_inside=grants.hidden_inside,
            write=tuple(self._access.write),
            private=tuple(self._access.private),
            shared_memory=self._config["shared_memory"],
            base=self._base,
            notify=self._notify[bool(grants.hidden_inside)],
            calls=self._calls,
            limits=self._config["limits"],
            umask=self._umask,
            niceness=self._niceness,
            proxy=self._connects_to,
        )
        guard(line, (self._agent_process, os.pidfd_open(launcher)), confinement)

    def _refresh_rules(self) -> None:
        """Renews the rules: a hidden path may be mounted in a second place, and there may be new paths."""
        if self._mounts.has_changed() or self._grants.are_stale():
            self._drop_spare()  # it has the old ones
            self._grants = find_grants(self._access)
            self._rulesets.close()
            self._rulesets = make_rulesets(self.version, self._access, self._grants, self._roots, tcp=self._denies_tcp)

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._spare.line.close()
            self._spare = None

    def _end_late(self) -> None:
        """Kills guardians that did not end in time: a disk that does not answer may hold one in a call."""
        now = time.monotonic()
        for guardian in [guardian for guardian, due in self._late.items() if due <= now]:
            pid = self._guardians[guardian]
            os.kill(pid, signal.SIGSTOP)  # while it is stopped, its processes can make no group and keep their parent
            kill(self._tree.descendants(pid))
            last_words = b"X-9\n" if self._are_gone(pid) else b"Ltrue\nX-9\n"
            send(pid, signal.SIGKILL)
            self._given_up.add(guardian)
            self._forget_line(guardian, last_words)

    def _are_gone(self, guardian: int) -> bool:
        """Whether every process of the guardian has ended. Waits a moment for that."""
        deadline = time.monotonic() + _PATIENCE / 2
        while not all(entry.has_ended for entry in self._tree.descendants(guardian)):
            if time.monotonic() > deadline:
                return False
            time.sleep(_BETWEEN_ROUNDS)
        return True

    def _forget_line(self, guardian: int, last_words: bytes = b"") -> None:
        self._late.pop(guardian, None)
        for line in [line for line, owner in self._lines.items() if owner == guardian]:
            del self._lines[line]
            try:
                self._poll.unregister(line)
            except KeyError:  # it has hung up
                pass
            if last_words:
                with socket.socket(fileno=os.dup(line)) as ours:
                    try:
                        ours.send(last_words, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                    except OSError:
                        pass
            os.close(line)

    def _handle_end(self, guardian: int) -> None:
        """Handles the end of a guardian. If it was killed, its processes are ours now; they can neither open files for
        writing nor make a group."""
        if self._spare is not None and self._spare.process == guardian:
            self._drop_spare()
        self._forget_line(guardian)
        self._given_up.discard(guardian)
        self._poll.unregister(guardian)
        os.close(guardian)
        _, status = os.waitpid(self._guardians.pop(guardian), 0)
        if status == 0:
            return
        us, guardians = os.getpid(), set(self._guardians.values())
        deadline = time.monotonic() + _PATIENCE
        while orphans := [
            entry for entry in self._tree.descendants() if entry.parent == us and entry.pid not in guardians
        ]:
            if time.monotonic() > deadline:
                return  # the kernel holds them in a call: they never continue, and end with it
            kill(orphans)
            for orphan in orphans:
                os.waitpid(orphan.pid, os.WNOHANG)
            time.sleep(_BETWEEN_ROUNDS)

    def end(self) -> None:
        """Waits for the guardians, which notice the agent's end, and kills late ones with all their processes."""
        self._agent.close()
        self._drop_spare()
        deadline = time.monotonic() + _FAREWELL
        for guardian, pid in list(self._guardians.items()):
            if guardian in self._given_up or not _has_ended(guardian, deadline):
                send(pid, signal.SIGKILL)
                if not _has_ended(guardian, time.monotonic() + _PATIENCE):
                    continue  # the kernel holds it in a call, with which it ends
            self._handle_end(guardian)


def _has_ended(process: int, deadline: float) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


def _enter_own_network(beside: int) -> bool:
    """Moves this process into its own network, which has only a loopback, for it and all that it starts.

    `beside`: the launcher whose network it is instead; 0 for a new one. Returns false, and changes nothing, if that is
    not allowed. Then there is no loopback: it would be the machine's.
    """
    pid = os.fork()  # a failure half way would leave a process without a user, so a fork tries first
    if pid == 0:
        try:
            _enter_network(beside)
        except OSError:
            os._exit(1)
        finally:
            os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        return False
    _enter_network(beside)
    return True


def _enter_network(beside: int) -> None:
    if beside:
        network = os.open(f"/proc/{beside}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            enter(network)
        finally:
            os.close(network)
        kernel.prctl(_PR_SET_DUMPABLE, 1)  # as after making one, and for a third launcher
        return
    user, group = os.geteuid(), os.getegid()
    try:
        _unshare(_NEW_NETWORK)
    except OSError:
        _unshare(_NEW_USER | _NEW_NETWORK)
        kernel.prctl(_PR_SET_DUMPABLE, 1)  # new rights have made it undumpable, and it could not write its id map
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        name, flags = _REQUEST.unpack(fcntl.ioctl(asking, _GET_FLAGS, _REQUEST.pack(b"lo", 0)))
        fcntl.ioctl(asking, _SET_FLAGS, _REQUEST.pack(name, flags | _UP))


def _unshare(flags: int) -> None:
    if kernel.libc().unshare(ctypes.c_int(flags)) == -1:
        kernel.fail()
