"""The skills that come with a project, and which of them the user trusts.

A skill is trusted by the content of its `SKILL.md`, like a project's notes. Owns the reading, and the part of the trust
record that names skills: `FOLDER/NAME=DIGEST`, behind the digests of settings and notes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from swink_agent.skills.skill import FILE, MOST_FILE

from .project_files import ProjectFile, read_project_file

__all__ = ["SKILL_FOLDERS", "found_skills", "skill_record", "trusted_skills"]

SKILL_FOLDERS = (".swink/skills", ".agents/skills")
_MOST = 256


def found_skills(folder: Path) -> dict[str, ProjectFile]:
    """The `SKILL.md` of each skill of a project, by its path in the project. Those that cannot be read say why."""
    found: dict[str, ProjectFile] = {}
    for place in SKILL_FOLDERS:
        try:
            with os.scandir(folder / place) as entries:
                names = sorted([entry.name for entry in entries])[:_MOST]
        except OSError:
            continue
        for name in names:
            path = f"{place}/{name}/{FILE}"
            file = read_project_file(folder, path, MOST_FILE)
            if file.is_there and not any(character.isspace() for character in name):
                found[path] = file
    return found


def skill_record(skills: Mapping[str, bytes]) -> list[str]:
    """The words of the trust record for these skills."""
    return [f"{path}={ProjectFile(data).digest}" for path, data in skills.items()]


def trusted_skills(record: Iterable[str]) -> dict[str, str]:
    """The digests of the skills in a trust record, by path."""
    parts = [word.rpartition("=") for word in record]
    return {path: digest for path, _, digest in parts}
