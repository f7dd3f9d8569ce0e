"""Opens a sandbox: each back end must pass a real trial first.

A back end is never chosen by the name of a program. In the trial a command tries to write outside and to reach a
listener; the result is read from the disk and the listener, not from the command's output. If no back end works, the
error contains advice.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from .errors import BackendReport, SandboxError, SandboxUnavailable, UnfitFolder
from .network.reached import ConnectFn, ResolveFn, WaysOut
from .places import temporary_outside, why_not_written
from .process import Sandbox
from .profile import SandboxProfile
from .programs import find_program

_TRIAL_DEADLINE = 30.0
_LASTING = ("/var/tmp",)
_ASK_PROXY = (
    r'(exec 3<>"/dev/tcp/127.0.0.1/${HTTP_PROXY##*:}" && printf "trial\r\n\r\n" >&3 && read -r answer <&3 '
    r'&& echo "$answer"); '
)
"""Sends a request that the proxy refuses: the answer proves that commands reach it."""
_HAS_ANSWERED = "HTTP/1.1 400"


def open_sandbox(
    profile: SandboxProfile,
    *,
    backend: str = "auto",
    resolve: ResolveFn | None = None,
    connect: ConnectFn | None = None,
    beside: Sandbox | None = None,
) -> Sandbox:
    """Opens the first back end that passes a trial with the profile, or the named one.

    For a profile with `hosts`, `resolve(host, port)` returns the addresses of an allowed host, and
    `connect(address, port)` a reader and a writer, both in place of the system's, in the event loop that started the
    command. With `beside`, an open sandbox of the same back end, commands of both reach each other's servers: give it
    only if neither reaches hosts. Raises `SandboxUnavailable`, with a report on each back end, if none passes.
    """
    reports: list[BackendReport] = []
    for name in backend_names() if backend == "auto" else (backend,):
        opened = _try(name, profile, WaysOut(resolve, connect), beside)
        if isinstance(opened, Sandbox):
            opened.passed_over = tuple(reports)
            return opened
        reports.append(opened)
    raise SandboxUnavailable(reports=reports)


def open_unconfined(profile: SandboxProfile) -> Sandbox:
    """Opens a sandbox that confines nothing: only for the user's explicit choice, never as a fallback.

    Commands still inherit only the profile's environment.
    """
    from .plain import UnconfinedSandbox

    return UnconfinedSandbox(profile)


def probe_backends(profile: SandboxProfile | None = None) -> tuple[BackendReport, ...]:
    """Reports whether each back end of this system works, by the same trial.

    Without a profile it is tried in a temporary folder.
    """
    if profile is not None:
        return tuple(_probe(name, profile) for name in backend_names())
    try:
        with tempfile.TemporaryDirectory(prefix="swink-probe-", dir=temporary_outside(())) as folder:
            return tuple(_probe(name, SandboxProfile(write=(folder,))) for name in backend_names())
    except (SandboxError, OSError) as error:
        return tuple(BackendReport(name=name, works=False, reason=str(error)) for name in backend_names())


def _probe(name: str, profile: SandboxProfile) -> BackendReport:
    opened = _try(name, profile)
    if isinstance(opened, BackendReport):
        return opened
    opened.close()
    return BackendReport(name=name, works=True)


def backend_names() -> tuple[str, ...]:
    """The back ends of this system, the best first."""
    if sys.platform == "linux":
        return ("bubblewrap", "landlock")
    return ("sandbox-exec",) if sys.platform == "darwin" else ()


# -- the trial ---------------------------------------------------------------------------------------------------


def _try(
    name: str, profile: SandboxProfile, ways_out: WaysOut | None = None, beside: Sandbox | None = None
) -> Sandbox | BackendReport:
    sandbox: Sandbox | None = None
    try:
        sandbox = _back_end(name, beside)(profile)
        sandbox.ways_out = ways_out or WaysOut()
        _check_by_trial(sandbox)
    except (SandboxError, OSError, TimeoutError) as error:
        if sandbox is not None:
            sandbox.close()
        return BackendReport(
            name=name,
            works=False,
            reason=str(error) or repr(error),
            remedy=_remedy(name, error),
            is_about_folder=isinstance(error, UnfitFolder),
        )
    return sandbox


def _back_end(name: str, beside: Sandbox | None) -> Callable[[SandboxProfile], Sandbox]:
    if name == "bubblewrap" and sys.platform == "linux":
        from .bubblewrap.backend import BubblewrapSandbox

        return partial(BubblewrapSandbox, beside=beside) if isinstance(beside, BubblewrapSandbox) else BubblewrapSandbox
    if name == "landlock" and sys.platform == "linux":
        from .landlock.backend import LandlockSandbox

        return partial(LandlockSandbox, beside=beside) if isinstance(beside, LandlockSandbox) else LandlockSandbox
    if name == "sandbox-exec" and sys.platform == "darwin":
        from .seatbelt import SeatbeltSandbox

        return SeatbeltSandbox
    known = ", ".join(backend_names()) or "none"
    raise SandboxError(f"there is no back end {name!r} on this system: it has {known}")


def _check_by_trial(sandbox: Sandbox) -> None:
    """Raises `SandboxError` if a command does not run in the sandbox, or can break out of it."""
    word = secrets.token_hex(8)
    # Not in /tmp if possible: commands may have their own /tmp, and then the trial would prove nothing.
    outside = tempfile.mkdtemp(prefix="swink-outside-", dir=temporary_outside(sandbox.profile.write, first=_LASTING))
    canary = os.path.join(outside, "canary")
    roots = [root for root in sandbox.profile.write if not why_not_written(root)]
    marks = [os.path.join(root, f"swink-trial-{word}") for root in roots]
    listener = socket.create_server(("127.0.0.1", 0))
    try:
        listener.setblocking(False)
        Path(canary).write_text(word, encoding="utf-8")
        trial = _run_trial(sandbox, word, canary, listener.getsockname()[1], marks)
        with ThreadPoolExecutor(1, thread_name_prefix="swink-sandbox-trial") as executor:  # not in the caller's loop
            said = executor.submit(asyncio.run, trial).result()
        if word not in said:
            raise SandboxError(f"a command does not run in it: {said.strip()[-300:] or 'it printed nothing'}")
        for mark in marks:
            if not os.path.exists(mark) and _can_be_made(mark):
                raise SandboxError(f"a command in it cannot write to {os.path.dirname(mark)!r}: {said.strip()[-300:]}")
        if Path(canary).read_text(encoding="utf-8") != word or os.listdir(outside) != ["canary"]:
            raise SandboxError("a command in it can write outside of its folders")
        if not sandbox.profile.network and _was_reached(listener):
            raise SandboxError("a command in it can reach the network")
        if sandbox.profile.proxied_hosts and _HAS_ANSWERED not in said:
            raise SandboxError(f"a command in it does not reach the proxy: {said.strip()[-300:]}", remedy="")
    finally:
        listener.close()
        shutil.rmtree(outside, ignore_errors=True)
        for mark in marks:
            with suppress(OSError):
                os.unlink(mark)


async def _run_trial(sandbox: Sandbox, word: str, canary: str, port: int, marks: Sequence[str]) -> str:
    bash = find_program("bash", outside=sandbox.profile.write)
    script = (
        'for mark in "$@"; do : > "$mark"; done; '
        f"echo broken > '{canary}'; echo broken > '{canary}.new'; "
        f"(exec 3<>/dev/tcp/127.0.0.1/{port}); "
        f"{(_ASK_PROXY if bash else f'echo {_HAS_ANSWERED};') if sandbox.profile.proxied_hosts else ''}"
        f"echo {word[:8]}''{word[8:]}"
    )
    async with asyncio.timeout(_TRIAL_DEADLINE):
        process = await sandbox.spawn([bash or "/bin/sh", "-c", script, "trial", *marks], cwd="/")
        try:
            await process.wait()
        except SandboxError as error:  # the sandbox failed before the command began
            said = (await process.output.read()).decode("utf-8", "replace").strip()[-300:]
            raise type(error)(f"{error}: {said}" if said else str(error), remedy=error.remedy) from None
        finally:
            process.kill()
        return (await process.output.read()).decode("utf-8", "replace")


def _can_be_made(path: str) -> bool:
    """Whether this process can create the file. A full disk is not the sandbox's fault."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True


def _was_reached(listener: socket.socket) -> bool:
    try:
        connection, _ = listener.accept()
    except OSError:
        return False
    connection.close()
    return True


# -- advice ------------------------------------------------------------------------------------------------------


def _remedy(name: str, error: Exception) -> str:
    """What helps against this error: its own remedy, else what the back end needs from the machine."""
    if isinstance(error, SandboxError) and error.remedy is not None:
        return error.remedy
    match name:
        case "bubblewrap":
            return _bubblewrap_remedy()
        case "landlock":
            return (
                "it needs Linux 5.14 or newer with Landlock among its security modules (lsm=landlock,... at boot), "
                "and kernel.yama.ptrace_scope 0 or 1"
            )
        case "sandbox-exec":
            return "it is part of macOS: run outside of another sandbox"
        case _:
            return ""


def _bubblewrap_remedy() -> str:
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1"
    if _setting("user/max_user_namespaces") == "0":
        return "allow user namespaces: sysctl user.max_user_namespaces=15000"
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "allow bwrap user namespaces with an AppArmor profile (apt install apparmor-profiles), "
            "or sysctl kernel.apparmor_restrict_unprivileged_userns=0"
        )
    return "in a container, allow user namespaces (for Docker: --security-opt seccomp=unconfined)"


def _setting(name: str) -> str:
    try:
        with open(f"/proc/sys/{name}", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
