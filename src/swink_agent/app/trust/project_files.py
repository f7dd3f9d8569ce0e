"""Reads a project's notes, settings, skills and commands, with the same protection as the model's file tools.

Opens files beneath the folder, so that no link leads out of it. Reads only regular files, up to a limit, and never
waits. Refuses files that the kernel generates and files with credentials. Whether a file may be used is decided in
`trust`.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from swink_agent.core.values.value import Value
from swink_agent.skills.skill import FILE, MOST_FILE

from ..settings.paths import config_folder

if TYPE_CHECKING:
    from swink_agent.tools.workspace.workspace import Workspace

_LOOK = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) | os.O_CLOEXEC
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
_SKILL_FOLDERS = (".swink/skills", ".agents/skills")
COMMAND_FOLDER = ".swink/commands"
_MOST = 256


class ProjectFile(Value, frozen=True):
    """A file, read once: its bytes, `None` if it does not exist, or the reason why it is not used."""

    hidden_fields = frozenset({"data"})

    data: bytes | None = None
    problem: str = ""

    @property
    def is_there(self) -> bool:
        return self.data is not None or bool(self.problem)

    @property
    def digest(self) -> str:
        """A digest of the content. For an unreadable file it differs from every recorded digest."""
        if self.problem:
            return "unreadable"
        return "none" if self.data is None else f"sha256:{hashlib.sha256(self.data).hexdigest()}"


def read_project_file(folder: Path, name: str, most: int) -> ProjectFile:
    """The file of that name, relative to the folder. Never raises: `problem` is the reason if it cannot be read."""
    return read_project_files(folder, [name], most)[name]


def read_project_files(folder: Path, names: Iterable[str], most: int) -> dict[str, ProjectFile]:
    """The same for several files. The folder is examined once."""
    from swink_agent.sandbox.profile import SandboxProfile  # on use: `swink --help` needs none of it
    from swink_agent.tools.workspace.workspace import Workspace

    found: dict[str, ProjectFile] = {}
    workspace: Workspace | None = None
    try:
        for name in names:
            try:
                if not _is_there(folder, name):
                    found[name] = ProjectFile()
                    continue
                if workspace is None:
                    workspace = Workspace(folder, hidden=str(config_folder()), profile=SandboxProfile())
            except OSError as error:
                found[name] = ProjectFile(problem=f"{folder / name} cannot be read: {error.strerror or error}")
                continue
            found[name] = _read(workspace, folder / name, name, most)
    finally:
        if workspace is not None:
            workspace.close()
    return found


def _read(workspace: Workspace, path: Path, name: str, most: int) -> ProjectFile:
    from swink_agent.tools.workspace.workspace import WorkspaceError

    try:
        with workspace.open_file(name) as file:
            data = file.read(most + 1)
    except WorkspaceError as error:
        return _refused(path, error)
    except OSError as error:
        return ProjectFile(problem=f"{path} cannot be read: {error.strerror or error}")
    if len(data) > most:
        return ProjectFile(problem=f"{path} is larger than {most} bytes")
    return ProjectFile(data)


def _is_there(folder: Path, name: str) -> bool:
    """Whether anything has that name, wherever a link leads. Opens nothing for reading."""
    from swink_agent.tools.workspace.beneath import open_root

    root = open_root(str(folder))
    try:
        os.close(root.open(name, _LOOK).fd)
    except OSError as error:
        return error.errno not in _MISSING
    finally:
        os.close(root.fd)
    return True


def _refused(path: Path, error: Exception) -> ProjectFile:
    cause = error.__cause__
    code = cause.errno if isinstance(cause, OSError) else None
    if code in _MISSING:  # deleted meanwhile, or a broken link
        return ProjectFile()
    if code == errno.EXDEV:
        return ProjectFile(problem=f"{path} leads out of the folder through a link")
    if isinstance(cause, OSError):
        return ProjectFile(problem=f"{path} cannot be read: {cause.strerror or cause}")
    return ProjectFile(problem=f"{path} is not read: {error}")


def found_prompt_files(folder: Path) -> dict[str, ProjectFile]:
    """The skills and commands of a project by path. Unreadable ones have a `problem`."""
    paths = [f"{place}/{name}/{FILE}" for place in _SKILL_FOLDERS for name in _names(folder / place)]
    paths += [f"{COMMAND_FOLDER}/{name}" for name in _names(folder / COMMAND_FOLDER) if name.endswith(".md")]
    found = {path: file for path, file in read_project_files(folder, paths, MOST_FILE).items() if file.is_there}
    for path in found:
        if any(character.isspace() for character in path):  # spaces separate the words of the trust record
            found[path] = ProjectFile(problem=f"{folder / path} has a space in its name")
    return found


def _names(place: Path) -> list[str]:
    try:
        with os.scandir(place) as entries:
            return sorted([entry.name for entry in entries])[:_MOST]
    except OSError:
        return []
