"""An opened sandbox and its processes, as tools see them.

`Sandbox` and `SandboxedProcess` are the contract of every back end. `output` has the pipes and exits that they share.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shlex
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from subprocess import DEVNULL
from types import TracebackType
from typing import NamedTuple, cast

from .errors import BackendReport, SandboxClosed, SandboxError
from .network.reached import Reached, ReachedLog, WaysOut
from .profile import SandboxProfile
from .repositories.watch_behind import Snapshot, WatchBehind

_LOG = logging.getLogger("swink_agent.sandbox")

_CERTAINLY_ENDED = 0.1
"""Seconds after which a command whose start was cancelled is assumed to be gone."""

# Some programs do nothing without a writable cache, and the home folder is not writable.
_CACHES = {"GOCACHE": ".cache/go", "UV_CACHE_DIR": ".cache/uv", "npm_config_cache": ".cache/npm"}
# These keep their caches in the project, which a command without write roots cannot write.
_CACHES_IN_PROJECTS = {
    "RUFF_CACHE_DIR": ".cache/ruff",
    "MYPY_CACHE_DIR": ".cache/mypy",
    "CARGO_TARGET_DIR": ".cache/cargo",
}


class SandboxedProcess:
    """A command that was started in a sandbox.

    `output` is the stdout and stderr of the command and its children, in one stream, unless `spawn` was given a
    descriptor for stderr. After a `kill()`, everything that the command started has ended when `output` ends, except
    what `left_behind` reports and, with `sandbox-exec` and `off`, processes that can no longer be found.
    """

    def __init__(
        self,
        pid: int,
        output: asyncio.StreamReader,
        exited: asyncio.Future[int],
        kill: Callable[[], None],
        reached: ReachedLog | None = None,
    ) -> None:
        """For back ends: `exited` gets the exit code, or minus the signal. `kill` is idempotent and never raises.

        `reached`: the log of the proxy.
        """
        self.pid = pid
        self.output = output
        self.ended_because = ""
        """Why the sandbox killed the command, if it did: for instance because of a limit."""
        self.left_behind = False
        """Whether a process could not be killed: the kernel holds it in a call, on a disk that does not answer."""
        self.warnings: tuple[str, ...] = ()
        """Sentences on files that the command left, or tried to leave, that would run code later, and what was done
        with them. `wait()` and `look_behind()` add to them."""
        self._reached = reached or ReachedLog()
        self._exited = exited
        self._kill = kill
        self._is_killed = False
        self.looks_with: Callable[[bool], Awaitable[list[str]]] | None = None
        """For back ends: the function that `look_behind` calls."""

    @property
    def reached(self) -> tuple[Reached, ...]:
        """The hosts that the command asked for by name, if the profile has `hosts`; at most 200 different ones.

        Hosts that were reached are never left out for others, nor those that could not be reached for refused ones.
        Where all commands of a sandbox share a network (Landlock, sandbox-exec), hosts of other commands that ran at
        the same time are included.
        """
        return self._reached.entries()

    @property
    def exited(self) -> asyncio.Future[int]:
        """The future that `wait(look=False)` waits for, to be awaited together with others. Do not cancel it."""
        return self._exited

    async def wait(self, *, look: bool = True) -> int:
        """The exit code of the command, or minus the signal that killed it, as soon as it has ended.

        Where the two cannot be told apart (bubblewrap before Linux 6.15), a signal is 128 plus its number, as in
        shells. Does not wait for background children, even if they hold the pipe: `kill()` ends them. What the command
        left behind is checked first, unless `look` is false: then the caller must await `look_behind()`.
        """
        code = await asyncio.shield(self._exited)
        if look:
            await self.look_behind(is_last=False)
        return code

    async def look_behind(self, *, is_last: bool = True) -> tuple[str, ...]:
        """Moves aside files that the command left and that would run later, such as hooks. Returns the `warnings`.

        `is_last`: all of its processes have ended.
        """
        if self.looks_with is not None:
            found = await self.looks_with(is_last)
            self.warnings = (*self.warnings, *found)  # `tell` may have added some meanwhile
            if is_last:
                self.looks_with = None
        return self.warnings

    def tell(self, text: str) -> None:
        """For back ends: adds a text to `warnings` and logs it. Any thread may call it."""
        self.warnings = (*self.warnings, text)
        _LOG.warning("%s", text)

    def kill(self) -> None:
        """Kills the command and all that it started, also what left its process group or session. Idempotent."""
        self._is_killed = True
        self._kill()

    @property
    def is_over(self) -> bool:
        """For back ends: whether all that it started has ended for certain: it was killed, and its output was read."""
        return self._is_killed and self.output.at_eof()

    def __repr__(self) -> str:
        exited = self._exited
        has_result = exited.done() and not exited.cancelled() and exited.exception() is None
        state = f"exit={exited.result()}" if has_result else "running"
        return f"SandboxedProcess(pid={self.pid}, {state})"


class SpawnRequest(NamedTuple):
    """What `spawn` was asked for, after the checks that all back ends share."""

    argv: Sequence[str]
    cwd: str
    environment: Mapping[str, str] | None
    stdin: int
    pass_fds: Sequence[int]
    background: bool
    stderr: int | None


class Sandbox(ABC):
    """A back end, opened for one profile. Also a context manager. `close()` kills every process that it started.

    Safe for several threads, each with its own event loop. A process belongs to the loop that started it.
    """

    backend: str = ""
    """bubblewrap, landlock, sandbox-exec or off."""

    def __init__(self, profile: SandboxProfile) -> None:
        self.profile = profile
        self.passed_over: tuple[BackendReport, ...] = ()
        """The back ends that were tried before this one and do not work, to show to a person."""
        self.ways_out = WaysOut()
        """Replacements for the resolver and connections of the proxy, if the profile has `hosts`. `open` sets them."""
        self._watch_behind: WatchBehind | None = None
        self._looking: set[asyncio.Task[None]] = set()
        self._starting = threading.Lock()
        """Held while a back end decides what a command sees: event loops in several threads may start commands."""
        self._fingerprint: tuple[SandboxProfile, Mapping[str, str], str] | None = None
        """The last one, with the profile and the variables that it was made of: only variables can change."""
        self._owner = os.getpid()
        self._closed = False

    @property
    def fingerprint(self) -> str:
        """A digest of the back end and its profile. Approvals are bound to it."""
        known, profile = self._fingerprint, self.profile
        if known is None or known[0] is not profile or known[1] != profile.environment:
            known = self._fingerprint = (profile, dict(profile.environment), fingerprint_of(self.backend, profile))
        return known[2]

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        environment: Mapping[str, str] | None = None,
        stdin: int = DEVNULL,
        pass_fds: Sequence[int] = (),
        background: bool = False,
        stderr: int | None = None,
    ) -> SandboxedProcess:
        """Starts `argv` in `cwd`. `environment` is added to the profile's; `pass_fds` stay open in the child.

        With `background`, later commands reach the servers of this one while it runs: if the back end gives each
        command its own network, they share that of this one. It ends with this process, however that ends. Start such
        commands one after the other. `stderr` is a descriptor for the child's errors, which are then not in `output`.

        Raises `SandboxClosed` after `close()`, `SandboxError` if the sandbox cannot be built or this process is a fork
        of the one that opened it, and `TypeError` or `ValueError` for wrong arguments. Then nothing runs.
        """
        if self._is_a_fork:
            raise SandboxError(
                "this process is a fork of the one that opened the sandbox, and has none of the threads that would "
                "watch a command: open a sandbox here",
                remedy="",
            )
        self._check_open()
        _check_request(argv, cwd, environment, stdin, pass_fds)
        if stderr is not None:
            _check_descriptor("stderr is a descriptor or None", stderr)
        snapshot = await self._before_command()
        self._check_open()
        request = SpawnRequest(argv, cwd, environment, stdin, pass_fds, background, stderr)
        try:
            process, protected = await self._start(request)
        except SandboxError as error:
            if self._closed:
                raise SandboxClosed from error
            raise
        except asyncio.CancelledError:
            if snapshot is not None and self._watch_behind is not None:  # it may have begun, and is being killed
                soon = self._watch_behind.look_behind_later(snapshot, _CERTAINLY_ENDED)
                looking = asyncio.get_running_loop().create_task(soon)
                self._looking.add(looking)
                looking.add_done_callback(self._looking.discard)
            raise
        if snapshot is not None and self._watch_behind is not None:
            snapshot.protected = frozenset(protected)
            found = weakref.ref(process)
            snapshot.is_over = lambda: (watched := found()) is None or watched.is_over
            process.looks_with = partial(self._watch_behind.end, snapshot)
        return process

    async def _start(self, request: SpawnRequest) -> tuple[SandboxedProcess, Sequence[str]]:
        """For back ends: starts a command. Returns also the paths beneath the write roots that are read-only for it.

        A sandbox that overrides `spawn` does not need it.
        """
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Kills every process that it started and removes its private temporary folder. Idempotent.

        In a fork of the process that opened it, nothing is killed.
        """

    def _begin_to_close(self) -> bool:
        """For back ends, first in `close()`: whether this process is the one that opened it."""
        self._closed = True
        if not self._is_a_fork and self._watch_behind is not None:
            self._watch_behind.close()
        return not self._is_a_fork

    def _check_open(self) -> None:
        """For back ends, after every await: raises `SandboxClosed` after `close()`."""
        if self._closed:
            raise SandboxClosed

    @property
    def _is_a_fork(self) -> bool:
        return os.getpid() != self._owner

    async def _before_command(self) -> Snapshot | None:
        """Notes the state of the folders that the command may write."""
        with self._starting:
            if self._watch_behind is None:
                self._watch_behind = WatchBehind(self.profile)
        return await self._watch_behind.begin()

    def child_environment(
        self, temporary: str, additions: Mapping[str, str] | None = None, proxy: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """All variables of a child whose private temporary folder is `temporary`. `proxy`: those that name a proxy."""
        environment = dict(self.profile.environment)
        environment["TMPDIR"] = temporary
        for name, folder in (_CACHES if self.profile.write else {**_CACHES, **_CACHES_IN_PROJECTS}).items():
            environment.setdefault(name, f"{temporary}/{folder}")
        if not self.profile.write:
            environment.setdefault("PYTEST_ADDOPTS", f"-o cache_dir={shlex.quote(f'{temporary}/.cache/pytest')}")
        environment.update(proxy or {})
        environment.update(additions or {})
        return environment

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.backend} sandbox, writes to {', '.join(self.profile.write) or 'nothing'}>"


def fingerprint_of(backend: str, profile: SandboxProfile) -> str:
    """The fingerprint of a sandbox of this back end and profile, which need not be open."""
    return hashlib.sha256(f"{backend} {profile.fingerprint}".encode()).hexdigest()


def _check_request(
    argv: object, cwd: object, environment: Mapping[str, str] | None, stdin: object, pass_fds: object
) -> None:
    """Raises `TypeError` or `ValueError`, with the reason, unless a process can be started with these."""
    if isinstance(argv, (str, bytes)):
        raise TypeError(f"a command is a list of words, not one text: give [{argv!r}], or run it by a shell")
    if not isinstance(argv, Sequence):
        raise TypeError(f"a command is a list of words, not of type {type(argv).__name__}")
    words = cast("Sequence[object]", argv)
    if not words or words[0] == "":
        raise ValueError("a command needs at least a program")
    for number, word in enumerate(words):
        _check_text(f"argument {number}", word)
    _check_text("cwd", cwd)
    for name, value in (environment or {}).items():
        _check_text("the name of a variable", name)
        if not name or "=" in name:
            raise ValueError(f"{name!r} is not the name of a variable")
        _check_text(f"variable {name!r}", value)
    if not isinstance(pass_fds, Sequence) or isinstance(pass_fds, (str, bytes)):
        raise TypeError("pass_fds are numbers of descriptors")
    if stdin != DEVNULL:
        _check_descriptor("stdin is a descriptor or DEVNULL", stdin)
    for descriptor in cast("Sequence[object]", pass_fds):
        _check_descriptor("pass_fds are numbers of descriptors", descriptor)


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what} is of type {type(text).__name__}: give text")
    if "\0" in text:
        raise ValueError(f"{what} contains a NUL character")
    if text.isascii():
        return
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ValueError(f"{what} contains half of a character (a lone surrogate)") from None


def _check_descriptor(rule: str, number: object) -> None:
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{rule}, not {number!r}")
    try:
        os.fstat(number)
    except OSError:
        raise ValueError(f"{number} is not an open descriptor") from None
