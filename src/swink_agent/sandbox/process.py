"""An opened sandbox and the processes in it, as tools see them.

Owns the contract that every back end keeps: `Sandbox` and `SandboxedProcess`. How a back end starts and ends a process
is its own; pipes and exits that they share are in `_pipes`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from subprocess import DEVNULL
from types import TracebackType

from ._requests import check_request
from .errors import BackendReport, SandboxClosed, SandboxError
from .profile import SandboxProfile
from .repositories.watch_behind import Look, WatchBehind

__all__ = ["Sandbox", "SandboxedProcess"]

_LOG = logging.getLogger("swink_agent.sandbox")

# Programs that do nothing without a cache that they can write, and the home folder cannot be written.
_CACHES = {"GOCACHE": ".cache/go", "UV_CACHE_DIR": ".cache/uv", "npm_config_cache": ".cache/npm"}


class SandboxedProcess:
    """A command that was started in a sandbox.

    `output` is what it and its children write, to stdout and stderr alike, in one stream. Everything that it started
    is gone when `output` ends after a `kill()`.
    """

    def __init__(
        self, pid: int, output: asyncio.StreamReader, exited: asyncio.Future[int], kill: Callable[[], None]
    ) -> None:
        """For back ends: `exited` gets the exit code, or minus the signal; `kill` is idempotent and never raises."""
        self.pid = pid
        self.output = output
        self.ended_because = ""
        """Why the sandbox itself ended the command, if it did: a limit that was passed, for instance."""
        self.left_behind = False
        """Whether something of it could not be ended: the kernel holds it in a call, on a disk that does not answer."""
        self.warnings: tuple[str, ...] = ()
        """What it left behind or wanted to that would have run code later, and what was done; after `wait()`."""
        self._exited = exited
        self._kill = kill
        self._look: Callable[[bool], Awaitable[list[str]]] | None = None

    async def wait(self, *, look: bool = True) -> int:
        """The exit code of the command, or minus the signal that ended it, as soon as it has ended.

        Where nobody can tell the two apart (bubblewrap before Linux 6.15), a signal is told as shells do: 128 and it.
        Does not wait for background children, even if they hold the pipe: `kill()` ends them. What the command left
        behind is looked at first, unless `look` is false: then `look_behind()` is for the caller to await.
        """
        code = await asyncio.shield(self._exited)
        if look:
            await self.look_behind(is_last=False)
        return code

    async def look_behind(self, *, is_last: bool = True) -> tuple[str, ...]:
        """Disarms what the command left behind and would run later, such as hooks; `warnings` say what was done.

        `is_last`: that everything of it has ended.
        """
        if self._look is not None:
            self.warnings = (*self.warnings, *await self._look(is_last))
            if is_last:
                self._look = None
        return self.warnings

    def tell(self, text: str) -> None:
        """For back ends: something that `warnings` are to say, in the log too. Any thread may call it."""
        self.warnings = (*self.warnings, text)
        _LOG.warning("%s", text)

    def look_with(self, look: Callable[[bool], Awaitable[list[str]]]) -> None:
        """For back ends: what `look_behind` does."""
        self._look = look

    def kill(self) -> None:
        """Ends the command and all that it started, also what left its process group or its session. Idempotent."""
        self._kill()

    def __repr__(self) -> str:
        state = f"exit={self._exited.result()}" if _has_result(self._exited) else "running"
        return f"SandboxedProcess(pid={self.pid}, {state})"


class Sandbox(ABC):
    """A back end, opened for one profile. Also a context manager; `close()` ends every process that it started."""

    backend: str = ""
    """bubblewrap, landlock, sandbox-exec or off."""

    def __init__(self, profile: SandboxProfile) -> None:
        self.profile = profile
        self.passed_over: tuple[BackendReport, ...] = ()
        """The back ends that were tried before this one and do not work, for a person who should hear of it."""
        self._watch_behind: WatchBehind | None = None
        self._owner = os.getpid()
        self._closed = False

    @property
    def fingerprint(self) -> str:
        """A digest of the back end and its profile: what an approval is bound to."""
        return hashlib.sha256(f"{self.backend} {self.profile.fingerprint}".encode()).hexdigest()

    @abstractmethod
    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        environment: Mapping[str, str] | None = None,
        stdin: int = DEVNULL,
        pass_fds: Sequence[int] = (),
    ) -> SandboxedProcess:
        """Starts `argv` in `cwd`. `environment` is added to the profile's; `pass_fds` stay open in the child.

        Raises `SandboxClosed` after `close()`, and `SandboxError` when the walls cannot be built, or in a fork of the
        process that opened the sandbox: nothing runs then. What makes no sense is a `TypeError` or a `ValueError`.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends every process that it started and removes its private temporary folder. Idempotent.

        In a fork of the process that opened it, nothing is ended.
        """

    def _check_spawn(
        self,
        argv: Sequence[str],
        cwd: str,
        environment: Mapping[str, str] | None,
        stdin: int,
        pass_fds: Sequence[int],
    ) -> None:
        """For back ends, first of all: raises unless a process can be started here, with these."""
        if self._is_a_fork:
            raise SandboxError(
                "this process is a fork of the one that opened the sandbox, and has none of the threads that would "
                "watch a command: open a sandbox here",
                remedy="",
            )
        self._check_open()
        check_request(argv, cwd, environment, stdin, pass_fds)

    def _check_open(self) -> None:
        """For back ends, whenever something was awaited: raises `SandboxClosed` after `close()`."""
        if self._closed:
            raise SandboxClosed

    @property
    def _is_a_fork(self) -> bool:
        return os.getpid() != self._owner

    async def _before_command(self) -> Look | None:
        """For back ends, before anything is started: notes what there is in the folders that it may write."""
        if self._watch_behind is None:
            self._watch_behind = WatchBehind(self.profile)
        return await self._watch_behind.begin()

    def _under_watch(self, process: SandboxedProcess, look: Look | None, held: Iterable[str]) -> SandboxedProcess:
        """For back ends: the process, whose end will be followed by a look at what it left."""
        if look is not None and self._watch_behind is not None:
            look.held = frozenset(held)
            process.look_with(partial(self._watch_behind.end, look))
        return process

    def _stop_watching(self) -> None:
        """For back ends, when they are closed."""
        if self._watch_behind is not None:
            self._watch_behind.close()

    def child_environment(self, temporary: str, additions: Mapping[str, str] | None = None) -> dict[str, str]:
        """All variables of a child whose private temporary folder is `temporary`."""
        environment = dict(self.profile.environment)
        environment["TMPDIR"] = temporary
        for name, folder in _CACHES.items():
            environment.setdefault(name, os.path.join(temporary, folder))
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


def _has_result(future: asyncio.Future[int]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
