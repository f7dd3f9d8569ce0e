"""The sandbox of a tool: the one that the user chose, opened when it is first needed.

Turns the choice ("auto", "off", a profile, an open sandbox) into a sandbox, and closes one that it opened. How a
sandbox confines is in `swink_agent.sandbox`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar

import msgspec

from swink_agent.core.tool import ToolContext
from swink_agent.core.waits import in_own_thread
from swink_agent.sandbox import Sandbox, SandboxClosed, SandboxError, SandboxProfile
from swink_agent.sandbox.kernel.mounts import real_paths
from swink_agent.sandbox.profile import is_beneath

from .workspace.workspace import Workspace

SandboxChoice: TypeAlias = Literal["auto", "off"] | SandboxProfile | Sandbox
OpenSandboxFn: TypeAlias = Callable[[SandboxProfile], Sandbox]

CONFINING = frozenset({"bubblewrap", "landlock", "sandbox-exec"})
"""The back ends that confine commands."""
_CLOSED = "the tool was closed: make a new one to run commands"

T = TypeVar("T")


class SandboxSource:
    """Opens a sandbox on demand. Safe for several threads. `close()` closes it, but never one that was given open."""

    def __init__(
        self, choice: SandboxChoice, profile: SandboxProfile, open_sandbox: OpenSandboxFn | None = None
    ) -> None:
        self.choice = choice
        self.profile = profile
        self._open = open_sandbox
        self._lock = threading.Lock()
        self._sandbox = choice if isinstance(choice, Sandbox) else None
        self._close: Callable[[], object] | None = None
        self._is_closed = False

    def get(self) -> Sandbox:
        """The open sandbox. Opening one runs trial commands and blocks: do not call it in an event loop.

        Raises `SandboxUnavailable` if none works; the next call tries again. Raises `SandboxClosed` after `close()`.
        """
        with self._lock:
            if self._is_closed:
                raise SandboxClosed(_CLOSED)
            if self._sandbox is None:
                if self._open is None:
                    from swink_agent.sandbox import open_sandbox, open_unconfined  # on use: loads the back ends

                    is_off = isinstance(self.choice, str) and self.choice == "off"
                    self._open = open_unconfined if is_off else open_sandbox
                self._sandbox = self._open(self.profile)
                # Closed at the latest when the tool is garbage collected, or the program ends.
                self._close = weakref.finalize(self, self._sandbox.close)
            return self._sandbox

    @property
    def opened(self) -> Sandbox | None:
        """The sandbox if it is open already. Never blocks."""
        return None if self._is_closed else self._sandbox

    def close(self) -> None:
        """Ends every process of the sandbox that was opened here. Idempotent."""
        with self._lock:
            self._is_closed = True
            close, self._close = self._close, None
        if close is not None:
            close()


class ReadingSource:
    """Opens, on demand, a sandbox of the same kind as the usual one that can only read. Safe for several threads.

    Its commands write to their private temporary folder alone, and have no network but their own. Servers that usual
    commands run in the background are in it, unless these may reach hosts.
    """

    def __init__(self, usual: SandboxSource, open_sandbox: OpenSandboxFn | None) -> None:
        self._usual = usual
        self._open = open_sandbox
        self._lock = threading.Lock()
        self._source: SandboxSource | None = None
        self._is_closed = False

    def get(self) -> Sandbox:
        """The open sandbox. Blocks, and raises, as `SandboxSource.get` does."""
        usual = self._usual.get()
        with self._lock:
            if self._is_closed:
                raise SandboxClosed(_CLOSED)
            if self._source is None:
                profile = reading_profile(usual.profile)
                self._source = SandboxSource(profile, profile, lambda profile: self._opened(usual, profile))
            return self._source.get()

    def _opened(self, usual: Sandbox, profile: SandboxProfile) -> Sandbox:
        # Where commands reach hosts, the proxy listens in their network, and those that only read may not ask it.
        is_local = not usual.profile.network and not usual.profile.hosts
        return opened_alike(usual, profile, self._open, beside=usual if is_local else None)

    @property
    def opened(self) -> Sandbox | None:
        """The sandbox if it is open already. Never blocks."""
        return None if self._source is None else self._source.opened

    def close(self) -> None:
        """Ends every process of the sandbox. Idempotent."""
        with self._lock:
            self._is_closed = True
        if self._source is not None:
            self._source.close()


def reading_profile(usual: SandboxProfile) -> SandboxProfile:
    """The profile of commands that read what those of the usual profile may, write nothing and reach nobody."""
    # Commands may have a `/tmp` of their own: what they read there is named.
    own = [folder for folder in usual.write if is_beneath(folder, "/tmp")]
    read = (*usual.read, *usual.write) if usual.read is not None else ("/", *own) if own else None
    return msgspec.structs.replace(usual, write=(), read=read, network=False, hosts=())


def opened_alike(
    usual: Sandbox, profile: SandboxProfile, open_other: OpenSandboxFn | None, *, beside: Sandbox | None = None
) -> Sandbox:
    """A sandbox of the same back end as `usual`, with the same ways out. Raises `SandboxError`."""
    if open_other is not None:
        sandbox = open_other(profile)
    else:
        from swink_agent.sandbox import open_sandbox  # on use: loads the back ends

        resolve, connect = usual.ways_out
        sandbox = open_sandbox(profile, backend=usual.backend, resolve=resolve, connect=connect, beside=beside)
    if sandbox.backend != usual.backend:
        sandbox.close()
        raise SandboxError(f"a sandbox of {usual.backend} is needed, and {sandbox.backend} was opened", remedy="")
    return sandbox


def check_choice(choice: object) -> SandboxChoice:
    """The user's choice of a sandbox. Raises `TypeError` for any other value."""
    if isinstance(choice, (SandboxProfile, Sandbox)):
        return choice
    if choice in ("auto", "off"):
        return choice
    raise TypeError(f'sandbox is {choice!r}; give "auto", "off", a SandboxProfile or an open Sandbox')


def with_paths_of(workspace: Workspace, profile: SandboxProfile) -> SandboxProfile:
    """The profile, with the workspace's hidden and protected paths added, so that a command cannot get around the file
    tools."""
    hidden = [path for path in workspace.hidden if path not in profile.hidden]
    protected = [name for name in workspace.protected if name not in profile.protected]
    if not hidden and not protected:
        return profile
    return msgspec.structs.replace(
        profile, hidden=(*profile.hidden, *hidden), protected=(*profile.protected, *protected)
    )


def refuse_without_paths_of(workspace: Workspace, profile: SandboxProfile) -> None:
    """Raises `ValueError` unless an open sandbox, which cannot be changed, hides and protects the workspace's paths."""
    missing = [path for path in workspace.hidden if path not in profile.hidden]
    covered = tuple(real_paths(profile.hidden)) if missing else ()
    for path in missing:
        if not any(is_beneath(path, above) for above in (*profile.hidden, *covered)):
            raise ValueError(f"the open sandbox does not hide {path}, which {workspace!r} does: add it to its profile")
    for name in workspace.protected:
        if not any(is_beneath(name, above) for above in profile.protected):
            raise ValueError(f"the open sandbox does not protect {name}, as {workspace!r} does: add it to its profile")


async def in_thread(ctx: ToolContext, function: Callable[[], T]) -> T:
    """The function's result, from a thread of the run, or from a new one if the tool is used alone."""
    return await (in_own_thread(function) if ctx.threads is None else ctx.threads.run(function))
