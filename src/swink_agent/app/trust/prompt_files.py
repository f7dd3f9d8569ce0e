"""The files of a project that become parts of prompts, besides its notes: skills and commands.

Each is trusted by its content, like the notes. Owns the reading, and the part of the trust record that names them:
`PATH=DIGEST`, behind the digests of settings and notes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from swink_agent.skills.skill import FILE, MOST_FILE

from .project_files import ProjectFile, read_project_files

_SKILL_FOLDERS = (".swink/skills", ".agents/skills")
COMMAND_FOLDER = ".swink/commands"
_MOST = 256


def found_prompt_files(folder: Path) -> dict[str, ProjectFile]:
    """The files by their paths in the project. Those that cannot be read say why."""
    paths = [f"{place}/{name}/{FILE}" for place in _SKILL_FOLDERS for name in _names(folder / place)]
    paths += [f"{COMMAND_FOLDER}/{name}" for name in _names(folder / COMMAND_FOLDER) if name.endswith(".md")]
    found = {path: file for path, file in read_project_files(folder, paths, MOST_FILE).items() if file.is_there}
    for path in found:
        if any(character.isspace() for character in path):  # words of the record end at spaces
            found[path] = ProjectFile(problem=f"{folder / path} has a space in its name")
    return found


def _names(place: Path) -> list[str]:
    try:
        with os.scandir(place) as entries:
            return sorted([entry.name for entry in entries])[:_MOST]
    except OSError:
        return []


def prompt_record(files: Mapping[str, bytes]) -> list[str]:
    """The words of the trust record for these files."""
    return [f"{path}={ProjectFile(data).digest}" for path, data in files.items()]


def trusted_prompts(record: Iterable[str]) -> dict[str, str]:
    """The digests in the words of a trust record, by path."""
    parts = [word.rpartition("=") for word in record]
    return {path: digest for path, _, digest in parts}
