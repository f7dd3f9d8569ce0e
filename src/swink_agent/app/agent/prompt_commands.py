"""Custom commands: prompts in Markdown files, with places for arguments.

The user's are `commands/NAME.md` in the configuration folder, a trusted project's `.swink/commands/NAME.md`.
`/NAME words` in the terminal UI and `swink -p words --command NAME` fill one in.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from swink_agent.core.texts.likeness import which_name
from swink_agent.core.values.value import Value
from swink_agent.skills.reading import SkillFileError, read_beneath
from swink_agent.skills.skill import FRONT_MATTER

from ..errors import UsageProblem
from ..settings.paths import config_folder
from ..trust.project_files import COMMAND_FOLDER
from ..trust.trust import Project

_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
_LARGEST = 64 * 1024
_MOST = 256
_DESCRIPTION = re.compile(r"^description:[ \t]*(.+?)[ \t]*$", re.MULTILINE)
_PLACE = re.compile(r"\$(ARGUMENTS|[1-9])")


class PromptCommand(Value, frozen=True):
    """One command: its name without the slash, what it is for, and its text."""

    name: str
    description: str
    text: str

    def prompt(self, words: str) -> str:
        """The text with the words in it: `$ARGUMENTS` is all of them, `$1` the first. Without a place, they follow."""
        if not _PLACE.search(self.text):
            return f"{self.text}\n\n{words}" if words.strip() else self.text
        try:
            each = shlex.split(words)
        except ValueError:  # a quote without its end
            each = words.split()

        def value(found: re.Match[str]) -> str:
            if found[1] == "ARGUMENTS":
                return words
            place = int(found[1]) - 1
            return each[place] if place < len(each) else ""

        return _PLACE.sub(value, self.text)


def prompt_commands(project: Project | None, environ: Mapping[str, str] = os.environ) -> dict[str, PromptCommand]:
    """The commands by name. The user's have priority over a project's; unusable files are left out."""
    found: dict[str, PromptCommand] = {}
    place = config_folder(environ) / "commands"
    try:
        names = sorted(os.listdir(place))[:_MOST]
    except OSError:
        names = []
    files = {place / name: None for name in names if name.endswith(".md")}
    for item in () if project is None else project.chain:
        ours = {path: data for path, data in item.prompts.items() if path.startswith(f"{COMMAND_FOLDER}/")}
        files |= {Path(item.folder, path): data for path, data in ours.items()}
    for path, data in files.items():
        with suppress(SkillFileError):
            found.setdefault(path.stem, _read(path, data))
    return found


def filled(name: str, words: str, project: Project | None) -> str:
    """The prompt of a command. Raises `UsageProblem` if there is no such command."""
    known = prompt_commands(project)
    if name in known:
        return known[name].prompt(words)
    if why := why_unused(name, project):
        raise UsageProblem(f"the command {name} cannot be used: {why}")
    raise UsageProblem(f"no custom command is called {name[:80]!r}; {which_name(name, known)}")


def why_unused(name: str, project: Project | None, environ: Mapping[str, str] = os.environ) -> str:
    """Why the file of a command is not used; empty if there is no such file."""
    if "/" in name or "\0" in name:
        return ""
    path, mine = f"{COMMAND_FOLDER}/{name}.md", config_folder(environ) / "commands" / f"{name}.md"
    try:
        if os.path.lexists(mine):
            _read(mine, None)
        for item in () if project is None else project.chain:
            if path in item.unused_prompts:
                return f"{Path(item.folder, path)}: its current content is not trusted: see swink config trust"
            if path in item.prompts:
                _read(Path(item.folder, path), item.prompts[path])
            if path in item.prompt_problems:
                return item.prompt_problems[path]
    except SkillFileError as error:
        return str(error)
    return ""


def _read(path: Path, data: bytes | None) -> PromptCommand:
    """The command in a file, from `data` if given. Raises `SkillFileError` with the reason if it cannot be used."""
    if not _NAME.fullmatch(path.stem):
        raise SkillFileError(f"{path.name} is not a name for a command: use a-z, 0-9 and -, a letter first")
    data = read_beneath(path.parent, path.name, _LARGEST) if data is None else data
    if len(data) > _LARGEST:
        raise SkillFileError(f"{path.name} is larger than {_LARGEST:,} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SkillFileError(f"{path.name} is not UTF-8 text") from None
    front = FRONT_MATTER.match(text)
    body = (text[front.end() :] if front else text).strip()
    if not body:
        raise SkillFileError(f"{path.name} has no text")
    described = _DESCRIPTION.search(front[1]) if front else None
    words = described[1].strip("\"'") if described else body.splitlines()[0].lstrip("# ")
    return PromptCommand(path.stem, words[:200], body)
