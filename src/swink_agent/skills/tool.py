"""The `skill` tool: gives a model the instructions of a skill, and its files, when it needs them.

The prompt has only names and descriptions; the rest is read on request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from swink_agent.core.errors import ToolError
from swink_agent.core.machine.files import identity_of
from swink_agent.core.texts.likeness import which_name
from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.core.values.checks import is_not

from .reading import FolderId, SkillFileError, files_beneath, read_beneath
from .skill import FILE, Skill

_MOST_NAMED = 64
_LONGEST_PROMPT = 16 * 1024
_MOST_FILES = 200
_LARGEST_FILE = 100 * 1024
_INTRODUCTION = "Skills: before you do something that one of these is for, read it with the tool skill."


def usable(skills: Iterable[Skill]) -> list[Skill]:
    """The usable skills; of several with one name, the first."""
    if not isinstance(cast("object", skills), Iterable):
        raise is_not("skills", skills, "a list of skills")
    chosen: dict[str, Skill] = {}
    for skill in skills:
        if not skill.problem:
            chosen.setdefault(skill.name, skill)
    return list(chosen.values())


def skills_prompt(skills: Iterable[Skill]) -> str:
    """The lines of a system prompt that name the skills: 64 at most, 16 KB at most."""
    lines = [_INTRODUCTION]
    size = len(_INTRODUCTION)
    chosen = usable(skills)[:_MOST_NAMED]
    for skill in chosen:
        line = f"- {skill.name}: {skill.summary}"
        size += len(line.encode()) + 1
        if size > _LONGEST_PROMPT:
            break
        lines.append(line)
    return "\n".join(lines) if chosen else ""


class SkillTool:
    """Returns the text of a skill and the list of its files, or one of these files. It needs no approval."""

    name = "skill"
    label = "Skill"
    requires_approval = False
    description = (
        "Reads a skill: instructions for a kind of work, and the list of the files that belong to it. With file, reads "
        "one of these files."
    )

    def __init__(self, skills: Iterable[Skill]) -> None:
        self._skills = {skill.name: skill for skill in usable(skills)}
        # A command of the agent may replace the folder of a skill by a link later.
        self._folders = {name: identity_of(skill.folder) for name, skill in self._skills.items()}
        self.parameters_schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The name of the skill."},
                "file": {"type": "string", "description": "The path of a file of the skill, relative to its folder."},
            },
            "required": ["name"],
            "additionalProperties": False,
        }

    def __repr__(self) -> str:
        return f"<tool skill, {len(self._skills)} skills>"

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Returns the text. Raises `ToolError` for a name or a file that does not exist."""
        skill = self._skills.get(arguments["name"])
        if skill is None:
            hint = which_name(arguments["name"], self._skills)
            raise ToolError(f"no skill is called {arguments['name'][:100]!r}; {hint}")
        details = {"skill": skill.name, "path": skill.path}
        expected = self._folders[skill.name]
        try:
            if expected is None:
                raise SkillFileError("its folder does not exist")
            if (file := arguments.get("file")) and file != FILE:
                return AgentToolResult.text(_text(skill, file, expected), {**details, "file": file})
            files = [name for name in files_beneath(skill.folder, _MOST_FILES + 2, expected) if name != FILE]
        except SkillFileError as error:
            raise ToolError(f"the skill {skill.name}: {error}") from error
        listed = "\n".join(f"- {name}" for name in files[:_MOST_FILES])
        more = "\n- …" if len(files) > _MOST_FILES else ""
        return AgentToolResult.text(
            f"{skill.body}\n\nFiles of this skill:\n{listed}{more}" if files else skill.body, details
        )


def _text(skill: Skill, file: str, expected: FolderId) -> str:
    data = read_beneath(skill.folder, file, _LARGEST_FILE, expected)
    try:
        return data.decode() or "(the file is empty)"
    except UnicodeDecodeError:
        raise SkillFileError(f"{file} is not text ({len(data):,} bytes)") from None
