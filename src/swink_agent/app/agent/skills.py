"""The skills of the standard agent: the user's own, and those of a trusted project.

The order is: `skills` in the configuration folder, `~/.agents/skills`, the project, the folders above it. If several
skills have the same name, the first is used. Reading a skill is in `swink_agent.skills`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from swink_agent.core.texts.likeness import which_name
from swink_agent.skills import Skill, find_skills, read_skill
from swink_agent.skills.skill import FILE
from swink_agent.skills.tool import usable

from ..errors import UsageProblem
from ..settings.paths import config_folder
from ..trust.trust import Project


def known_skills(project: Project | None, environ: Mapping[str, str] = os.environ) -> list[Skill]:
    """All skills in their order. If one is not used, its `problem` is the reason."""
    home = Path(environ.get("HOME") or Path.home())
    found = [*find_skills(config_folder(environ) / "skills", "user"), *find_skills(home / ".agents" / "skills", "user")]
    for item in () if project is None else project.chain:
        found += [
            read_skill(Path(item.folder, path).parent, "project", data)
            for path, data in item.prompts.items()
            if path.endswith(f"/{FILE}")
        ]
        not_trusted = dict.fromkeys(
            item.unused_prompts, "its current content is not trusted: look at it with swink config trust"
        )
        for path, why in {**not_trusted, **item.prompt_problems}.items():
            if not path.endswith(f"/{FILE}"):
                continue
            found.append(
                Skill(Path(path).parent.name, path=str(Path(item.folder, path)), source="project", problem=why)
            )
    seen: dict[str, str] = {}
    for place, skill in enumerate(found):
        if not skill.problem and (first := seen.setdefault(skill.name, skill.path)) != skill.path:
            found[place] = replace(skill, problem=f"another skill has the same name: {first}")
    return found


def usable_skills(project: Project | None) -> list[Skill]:
    """The skills that the agent may use."""
    return usable(known_skills(project))


def with_skill(name: str, words: str, project: Project | None) -> str:
    """A prompt with the text of a skill before it. Raises `UsageProblem` if the skill cannot be used."""
    skills = known_skills(project)
    for skill in skills:
        if skill.name == name and not skill.problem:
            return f"{skill.body}\n\n{words}".rstrip() if words.strip() else skill.body
    for skill in skills:
        if skill.name == name:
            raise UsageProblem(f"the skill {name} cannot be used: {skill.problem}")
    names = [skill.name for skill in skills if not skill.problem]
    raise UsageProblem(f"no skill is called {name[:80]!r}; {which_name(name, names)}")
