"""Which mode of approvals is on in a folder, and why.

The default is `auto` where a sandbox works, checkpoints can be kept and the user has allowed unattended work in the
folder, else `smart`. A mode that the user set is used as it is. The modes themselves are in `approvals`, the user's
answers in `trust.folder_rules`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from swink_agent.core.values.value import Value

from ..errors import ApplicationError, SettingsError
from ..settings.settings import Settings
from ..trust.folder_rules import WorkedFolders

if TYPE_CHECKING:
    from swink_agent.approvals.modes import ApprovalsMode

_CHANGING = frozenset({"bash", "write_file", "edit_file"})


class ChosenMode(Value, frozen=True, kw_only=True):
    """A mode and the reason for it, in words."""

    mode: ApprovalsMode
    why: str = ""
    """Empty if the user set the mode, or if no tool needs approval."""
    obstacle: str = ""
    """Why `auto` is not possible here. Empty if it is possible."""
    is_undecided: bool = False
    """Whether only the user's permission for this folder is missing to make `auto` the default."""

    @property
    def note(self) -> str:
        """One sentence for the user, or an empty text."""
        return f"approvals are {self.mode}: {self.why}" if self.why else ""

    @property
    def advice(self) -> str:
        """The note with the command by which the user agrees, for front ends that do not ask."""
        return f"{self.note} (to allow it: swink config work)" if self.is_undecided else self.note


def choose_mode(
    settings: Settings, folder: Path, tools: Collection[str], *, backend: str | None, unkept: str = ""
) -> ChosenMode:
    """The mode for these tools. `backend` is the sandbox, if one works; `unkept`: why no checkpoint is possible."""
    approve = settings["approve"]
    if _CHANGING.isdisjoint(tools):
        return ChosenMode(mode=approve.value)
    obstacle = _obstacle(settings, tools, backend) or unkept
    if approve.source != "default":
        why = f"you are still asked about commands, because {obstacle}"
        is_hindered = approve.value == "auto" and bool(obstacle)
        return ChosenMode(mode=approve.value, why=why if is_hindered else "", obstacle=obstacle)
    reason, is_undecided = (obstacle, False) if obstacle else _reservation(settings, folder)
    if reason:
        return ChosenMode(mode="smart", why=reason, obstacle=obstacle, is_undecided=is_undecided)
    where = f" in the sandbox ({backend})" if backend else ""
    return ChosenMode(
        mode="auto", why=f"commands and edits in this folder run unasked{where}, and swink undo takes them back"
    )


def mode_here(settings: Settings, folder: Path, find_backend: Callable[[], str | None] | None = None) -> ChosenMode:
    """The mode that `swink` would start with in the folder.

    `find_backend` returns the back end that works there. By default the back ends are tried, if the mode depends on it.
    """
    tools = settings.value("tools")
    if settings.value("sandbox") == "off" or "bash" not in tools:
        return choose_mode(settings, folder, tools, backend=None)
    if choose_mode(settings, folder, tools, backend="any").mode != "auto":
        return choose_mode(settings, folder, tools, backend="any")
    backend = _working_backend(settings, folder) if find_backend is None else find_backend()
    return choose_mode(settings, folder, tools, backend=backend)


def _working_backend(settings: Settings, folder: Path) -> str | None:
    from swink_agent.sandbox import probe_backends

    from .confinement import sandbox_profile

    try:
        reports = probe_backends(sandbox_profile(folder, settings=settings))
    except ApplicationError:
        return None
    return next((report.name for report in reports if report.works), None)


def _obstacle(settings: Settings, tools: Collection[str], backend: str | None) -> str:
    if "bash" not in tools or backend is not None:
        return ""
    if settings.value("sandbox") == "off":
        return "nothing confines commands (sandbox = off)"
    return "no sandbox works here (swink doctor says why)"


def _reservation(settings: Settings, folder: Path) -> tuple[str, bool]:
    """Why `auto` is not the default although it is possible, and whether only the user's answer is missing."""
    if not settings.value("undo"):
        return "no checkpoints are kept (undo = false), so changes could not be taken back", False
    real, home = os.path.realpath(folder), os.path.realpath(os.path.expanduser("~"))
    if home == real or home.startswith(real.rstrip(os.sep) + os.sep):
        return "this folder holds your home folder", False
    try:
        answer = WorkedFolders().answer(folder)
    except SettingsError as error:
        return str(error), False
    if answer is None:
        return "you have not yet allowed commands and edits to run unasked in this folder", True
    return ("", False) if answer else ("you chose to be asked in this folder (swink config work)", False)
