"""The sandbox of the standard agent: which folders its commands may use or must not see, and its back end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from ..errors import UsageProblem
from ..runs.sessions import sessions_folder
from ..settings.paths import config_folder, data_folder
from ..settings.settings import Settings

if TYPE_CHECKING:
    from swink_agent.sandbox import Sandbox, SandboxProfile


def writable_folders(root: Path, added: Iterable[Path] = ()) -> tuple[str, ...]:
    """The folders that commands may write. A program from there is started only in the sandbox."""
    from swink_agent.sandbox import repository_folders

    return tuple(dict.fromkeys([str(root), *repository_folders(str(root)), *map(str, added)]))


def private_folders(settings: Settings | None = None) -> tuple[str, ...]:
    """The folders that commands must not see: our settings, keys, copies and sessions."""
    sessions = () if settings is None else (sessions_folder(settings),)
    return tuple(map(str, (config_folder(), data_folder(), *sessions)))


def sandbox_profile(
    root: Path,
    *,
    added: tuple[Path, ...] = (),
    network: bool = False,
    hosts: tuple[str, ...] = (),
    settings: Settings | None = None,
) -> SandboxProfile:
    """The sandbox profile for a folder and the folders added to it. Hides the private folders.

    Commands that may reach `hosts` cannot read the home folder: they could send it there. With `network`, `hosts` has
    no effect.
    """
    from swink_agent.sandbox import SandboxProfile, profile_with_access

    try:
        profile = SandboxProfile(write=writable_folders(root, added), network=network)
        profile = structs.replace(profile, hidden=(*profile.hidden, *private_folders(settings)))
        return profile_with_access(profile, hosts=hosts) if hosts and not network else profile
    except ValueError as error:
        raise UsageProblem(f"{root} is not a folder to work in: {error}") from error


def open_confined(profile: SandboxProfile, backend: str, warnings: list[str]) -> Sandbox | None:
    """Opens the sandbox. Returns `None`, with a warning, if none works: every command is then refused."""
    from swink_agent.sandbox import SandboxUnavailable, open_sandbox, open_unconfined, why_not_written

    if backend == "off":
        return open_unconfined(profile)
    try:
        sandbox = open_sandbox(profile, backend=backend)
    except SandboxUnavailable as error:
        warnings.append(f"commands will be refused: {error}")
        return None
    warnings += [f"commands can only read: {why}" for root in profile.write if (why := why_not_written(root))]
    for report in sandbox.passed_over:
        if report.is_about_folder:  # problems of the machine are reported by `swink doctor`, not at every start
            warnings.append(f"commands run under {sandbox.backend}, not {report.name}: {report.reason}")
    return sandbox
