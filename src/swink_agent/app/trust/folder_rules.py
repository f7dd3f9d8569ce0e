"""Calls that the user allowed for one project when asked, in the user's own configuration, by folder.

Owns the file `allowed.json` beside the settings, and which folder a rule belongs to: the root of the repository, or the
folder itself outside one. Nothing in a project can add to it. The grammar of rules is in `approvals.call_rules`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..errors import SettingsError
from ..settings.paths import config_folder, write_whole
from ..settings.settings import SourcedValue


def project_root(folder: Path) -> str:
    """The real path of the folder's project."""
    real = Path(os.path.realpath(folder))
    return str(next((place for place in (real, *real.parents) if os.path.exists(place / ".git")), real))


class FolderRules:
    """The user's rules by folder."""

    def __init__(self, path: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> None:
        self.path = path or config_folder(environ) / "allowed.json"

    def folders(self) -> dict[str, list[str]]:
        """Rules by folder. Raises `SettingsError` if the file cannot be read."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=dict[str, list[str]])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise SettingsError(f"{self.path}, the record of allowed calls, cannot be read: {error}") from error

    def rules(self, folder: Path) -> tuple[str, ...]:
        """What is allowed in this folder's project."""
        return tuple(self.folders().get(project_root(folder), ()))

    def setting(self, folder: Path) -> SourcedValue:
        """The same as a value of the setting `allow`, with its source."""
        return SourcedValue(self.rules(folder), f"{self.path} for this folder")

    def add(self, folder: Path, rule: str) -> None:
        """Allows it there from now on. Raises `SettingsError` if it cannot be stored."""
        folders = self.folders()
        root = project_root(folder)
        self._write({**folders, root: list(dict.fromkeys([*folders.get(root, ()), rule]))})

    def remove(self, folder: Path, rule: str | None = None) -> bool:
        """Removes one rule of the project, or all of them. Returns whether there was any."""
        folders = self.folders()
        root = project_root(folder)
        before = folders.pop(root, [])
        left = [] if rule is None else [kept for kept in before if kept != rule]
        if len(left) == len(before):
            return False
        self._write({**folders, root: left} if left else folders)
        return True

    def _write(self, folders: dict[str, list[str]]) -> None:
        try:
            write_whole(self.path, msgspec.json.format(msgspec.json.encode(folders), indent=2) + b"\n")
        except OSError as error:
            raise SettingsError(f"{self.path} cannot be written: {error.strerror or error}") from error
