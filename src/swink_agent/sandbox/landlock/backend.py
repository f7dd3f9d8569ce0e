"""The Landlock back end: Landlock rules, a system call filter and a guardian process, without namespaces.

For machines where a user may not make namespaces. This is the agent's side: it starts the launcher, requests commands
and ends them.

    launcher           started once per sandbox; forks a guardian for each command
    └── guardian       confined; opens and changes files for the command, and kills all that it leaves behind
        └── command    confined further: it opens no file for writing itself, and its processes cannot leave the tree
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from ..errors import SandboxError
from ..network.reached import ReachedLog
from ..output import OutputPipe, is_running_here
from ..places import check_folders
from ..private import PrivateFolder
from ..process import Sandbox, SandboxedProcess, SpawnRequest
from ..profile import SandboxProfile
from ..protected import existing, protected_paths, settings_among
from ..starting import end_helper, start_helper

if TYPE_CHECKING:
    from ..network.serving import SharedProxy

_START_DEADLINE = 20.0
_END_DEADLINE = 10.0
_SEARCH_AGAIN_AFTER = 30.0
_NEWEST_LANDLOCK = 1 << 16
_SCOPES_SINCE = 6


class LandlockSandbox(Sandbox):
    """Runs each command under its own guardian. Raises `SandboxError` if the kernel does not support it.

    Commands can write only beneath the roots and in a private temporary folder, `TMPDIR`; `/tmp` is the system's and,
    unless it is a root, read-only. Files in `/dev/shm` are private too. Without `network`, commands have their own
    loopback network if the system allows it; otherwise they have no sockets except for connections to the proxy.
    """

    backend = "landlock"

    def __init__(
        self,
        profile: SandboxProfile,
        *,
        landlock: int = _NEWEST_LANDLOCK,
        namespaces: bool = True,
        beside: LandlockSandbox | None = None,
    ) -> None:
        """`landlock`: the newest version to use, to try the behaviour of other kernels; `namespaces`: likewise.

        `beside`: a sandbox whose own network the commands of this one share.
        """
        super().__init__(profile)
        if sys.platform != "linux":
            raise SandboxError("Landlock is a part of Linux")
        check_folders(profile)
        self._protected: dict[str, None] = {}
        self._searched = 0.0
        self._running: set[_Command] = set()
        self._proxy: SharedProxy | None = None
        self._private = PrivateFolder(avoid=profile.write)
        try:
            self._launcher = _Launcher(_configuration(profile, self._private, landlock, namespaces, beside))
        except BaseException:
            self._private.close()
            raise
        # Even if the sandbox is never closed, no process, folder or descriptor is left.
        self._finalizer = weakref.finalize(self, _end, self._running, self._launcher, self._private, os.getpid())

    @property
    def has_loopback(self) -> bool:
        """Whether processes of commands can reach each other by IP, in their own network or the machine's."""
        return self._launcher.has_loopback or self.profile.network

    @property
    def launcher(self) -> int:
        """The process that is in the commands' own network."""
        return self._launcher.pid

    async def _start(self, request: SpawnRequest) -> tuple[SandboxedProcess, Sequence[str]]:
        with self._starting:
            protected = self._protected_now()
        proxy = self._shared_proxy()
        variables = None if proxy is None else proxy.variables
        # The child's descriptor 2, in place of the output that it has otherwise.
        errors = {} if request.stderr is None else {2: request.stderr}
        wanted: dict[str, Any] = {
            "argv": list(request.argv),
            "cwd": request.cwd,
            "environment": self.child_environment(self._private.path, request.environment, variables),
            "protected": protected,
            "settings": settings_among(protected, self.profile),
            "passed": [*request.pass_fds, *errors],
        }
        command = _Command(self._running.discard, proxy)
        self._running.add(command)
        try:
            passed = (*request.pass_fds, *errors.values())
            return await command.start(self._launcher, wanted, request.stdin, passed), protected
        except BaseException:
            command.abandon()
            raise

    def close(self) -> None:
        if self._begin_to_close():
            self._finalizer()  # waits for the launcher, which waits for all of its processes
            for command in tuple(self._running):
                command.abandon()

    def _shared_proxy(self) -> SharedProxy | None:
        """The proxy for the listener, if there is one. In the machine's network, which others use, it needs a token."""
        if self._proxy is None and self._launcher.proxy is not None:
            from ..network.serving import SharedProxy

            token = "" if self._launcher.has_loopback else secrets.token_urlsafe(24)
            self._proxy = SharedProxy(self.profile.proxied_hosts, self.ways_out, self._launcher.proxy, token)
        return self._proxy

    def _protected_now(self) -> list[str]:
        """The protected paths that exist. Those found once are kept: a command cannot push one out of a large tree."""
        if not self._searched or time.monotonic() - self._searched > _SEARCH_AGAIN_AFTER:
            self._protected.update(dict.fromkeys(protected_paths(self.profile)))
            self._searched = time.monotonic()
        return existing(dict.fromkeys((*self._protected, *self.profile.at_home())))


def _configuration(
    profile: SandboxProfile, private: PrivateFolder, landlock: int, namespaces: bool, beside: LandlockSandbox | None
) -> dict[str, Any]:
    """Everything that the launcher needs to know, as JSON."""
    from ..kernel.calls import landlock_version
    from .filter import base_program, notify_program, served_calls

    try:
        landlock = min(landlock, landlock_version())
    except OSError as error:
        raise SandboxError(f"Landlock is not in this kernel, or is switched off ({error.strerror})") from None
    shared_memory = os.path.join(private.own, "shm")
    os.mkdir(shared_memory, 0o700)
    scopes = landlock >= _SCOPES_SINCE
    limits = profile.limits
    return {
        "agent": os.getpid(),
        "landlock": landlock,
        "namespaces": namespaces,
        "beside": beside.launcher if beside is not None and beside.has_loopback else 0,
        "access": {
            "write": profile.write,
            "read": profile.read,
            "hidden": profile.hidden,
            "homes": profile.closed_homes(),
            "home": [path for path in profile.home for path in (path, os.path.realpath(path))],
            "private": [private.path, shared_memory],
            "network": profile.network,
        },
        "shared_memory": shared_memory,
        "hosts": bool(profile.proxied_hosts),
        "base": {
            "alone": base_program(network=profile.network).hex(),
            "loopback": base_program(network=profile.network, loopback=True).hex(),
            **({"proxied": base_program(network=False, proxied=True).hex()} if profile.proxied_hosts else {}),
        },
        "notify": {
            kind: [
                notify_program(scopes=scopes, judges_reads=judges, proxied=kind == "proxied").hex()
                for judges in (False, True)
            ]
            for kind in (("alone", "proxied") if profile.proxied_hosts else ("alone",))
        },
        "calls": served_calls(),
        "limits": {name: getattr(limits, name) for name in limits.__struct_fields__},
    }


class _Launcher:
    """The process that forks guardians, and our end of the connection to it."""

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.settimeout(_START_DEADLINE)
        complaints = os.memfd_create("launcher", os.MFD_CLOEXEC)
        try:
            with theirs:
                self._process = start_helper(
                    "landlock.launcher",
                    theirs.fileno(),
                    outside=configuration["access"]["write"],
                    stdin=subprocess.PIPE,
                    stderr=complaints,
                )
            try:
                assert self._process.stdin is not None
                with self._process.stdin as pipe:
                    pipe.write(json.dumps(configuration).encode())
                answer, descriptors, _, _ = socket.recv_fds(self._line, 4096, 1, socket.MSG_CMSG_CLOEXEC)
            except ConnectionError:
                answer, descriptors = b"", []  # it ended before it had read everything
            except OSError as error:
                raise SandboxError(f"the launcher does not answer: {error}") from error
            if not answer:
                lines = os.pread(complaints, 65536, 0).decode("utf-8", "replace").strip().rpartition("\n")
                raise SandboxError(f"the launcher failed: {lines[2] or 'it ended without a message'}")
            said: dict[str, Any] = json.loads(answer)
            self.has_loopback: bool = said.get("loopback", False)
            self.proxy = socket.socket(fileno=descriptors[0]) if descriptors else None
            if "error" in said:
                raise SandboxError(said["error"], remedy=None if said["is_kernel"] else "")
        except BaseException:
            self.close()
            raise
        finally:
            os.close(complaints)

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(self, descriptors: Sequence[int]) -> None:
        """Asks for a guardian, which gets the descriptors: control, output, stdin, those to be passed on."""
        with self._lock:
            try:
                socket.send_fds(self._line, [b"C"], list(descriptors))
            except OSError as error:
                raise SandboxError(f"the sandbox's launcher has ended ({error}): open the sandbox again") from error

    def close(self) -> None:
        """Ends the launcher and waits until it has killed everything else."""
        if (proxy := getattr(self, "proxy", None)) is not None:
            proxy.close()
        with self._lock:
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)  # a fork of ours may have the connection too
            self._line.close()
        if (process := getattr(self, "_process", None)) is not None:
            end_helper(process, _END_DEADLINE)


def _end(running: set[_Command], launcher: _Launcher, private: PrivateFolder, owner: int) -> None:
    if os.getpid() == owner:  # a fork of ours that ends must not kill them
        for command in tuple(running):
            command.kill()
        launcher.close()
        private.close()


class _Command:
    """One command as the agent sees it: the connection to its guardian, its output, its end."""

    def __init__(self, ended: Callable[[_Command], None], proxy: SharedProxy | None) -> None:
        self._on_end = ended
        self._proxy = proxy
        self._reached = ReachedLog()
        self._lock = threading.Lock()
        self._is_over = False
        self._killed = False
        self._said = b""
        self._control: socket.socket | None = None
        self._pipe: OutputPipe | None = None

    async def start(
        self, launcher: _Launcher, request: Mapping[str, Any], stdin: int, pass_fds: Sequence[int]
    ) -> SandboxedProcess:
        self._loop = loop = asyncio.get_running_loop()
        if self._proxy is not None:
            self._proxy.begin(self._reached)
        self._exited: asyncio.Future[int] = loop.create_future()
        self._started: asyncio.Future[SandboxedProcess] = loop.create_future()
        self._pipe = OutputPipe(loop)
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with theirs:
                source = stdin if stdin >= 0 else nothing
                launcher.request((theirs.fileno(), self._pipe.write_end, source, *pass_fds))
        finally:
            os.close(nothing)
        self._pipe.close_write_end()
        loop.add_reader(self._control.fileno(), self._read)
        payload = json.dumps(request).encode()
        try:
            async with asyncio.timeout(_START_DEADLINE):
                with suppress(ConnectionError):  # the error is reported below
                    await loop.sock_sendall(self._control, len(payload).to_bytes(4, "little") + payload)
                return await self._started
        except TimeoutError:
            raise SandboxError(f"the command was not run: no answer within {_START_DEADLINE:g} seconds") from None

    def kill(self) -> None:
        """Hangs up, and the guardian kills everything. Any thread may call it."""
        with self._lock:
            if not self._is_over and self._control is not None:
                self._killed = True
                with suppress(OSError):
                    self._control.shutdown(socket.SHUT_WR)

    def abandon(self) -> None:
        """Kills it when nothing waits for it. Any thread may call it."""
        self.kill()
        if not hasattr(self, "_loop") or self._loop.is_closed() or is_running_here(self._loop):
            self._finish(-9)
        else:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._finish, -9)

    def _read(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._finish(-9)  # the guardian was killed, and the launcher kills everything that it guarded
            return
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            self._handle(chr(line[0]), json.loads(line[1:]))

    def _handle(self, kind: str, what: object) -> None:
        match kind:
            case "P" if self._pipe is not None and not self._started.done():
                process = SandboxedProcess(cast("int", what), self._pipe.reader, self._exited, self.kill, self._reached)
                self._started.set_result(process)
            case "B" if self._has_started():
                self._started.result().ended_because = cast("str", what)
            case "T" if self._has_started():
                self._started.result().tell(cast("str", what))
            case "L" if self._has_started():
                self._started.result().left_behind = True
            case "E" | "K" if not self._started.done():
                remedy = None if kind == "K" else ""
                self._started.set_exception(SandboxError(f"the command was not run: {what}", remedy=remedy))
            case "X":
                self._finish(cast("int", what))
            case _:
                pass

    def _has_started(self) -> bool:
        return self._started.done() and not self._started.cancelled() and self._started.exception() is None

    def _finish(self, code: int) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        self._on_end(self)
        if self._proxy is not None and hasattr(self, "_loop"):
            self._proxy.end(self._loop, self._reached)
        loop_is_open = hasattr(self, "_loop") and not self._loop.is_closed()
        if self._control is not None:
            if loop_is_open:
                self._loop.remove_reader(self._control.fileno())
            self._control.close()
        if self._pipe is None:
            return
        if not loop_is_open or not self._has_started():
            self._pipe.close()
        if loop_is_open:
            self._pipe.drain()
            if not self._started.done():
                self._started.set_exception(SandboxError("the command was not run: its guardian ended"))
                self._started.exception()  # so that no warning is logged if nothing awaits it
            if not self._exited.done():
                self._exited.set_result(code)
