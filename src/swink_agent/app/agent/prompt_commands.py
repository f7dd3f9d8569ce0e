"""Commands of one's own: prompts in Markdown files, with places for arguments.

Yours are `commands/NAME.md` in the configuration folder, a trusted project's `.swink/commands/NAME.md`. Owns their
form. `/NAME words` in the terminal UI and `swink -p words --command NAME` fill one in.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from swink_agent.core.texts.likeness import close_names
from swink_agent.core.values.value import Value
from swink_agent.skills.reading import SkillFileError, read_beneath

from ..errors import UsageProblem
from ..settings.paths import config_folder
from ..trust.prompt_files import COMMAND_FOLDER
from ..trust.trust import Project

_NAME = re.compile(r"[a-z][a-z-]{0,63}")
_LARGEST = 64 * 1024
_MOST = 256
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_DESCRIPTION = re.compile(r"^description:[ \t]*(.+?)[ \t]*$", re.MULTILINE)
_PLACE = re.compile(r"\$(ARGUMENTS|[1-9])")


class PromptCommand(Value, frozen=True):
    """One command: its name without the slash, what it is for, and its text."""

    name: str
    description: str
    text: str
    path: str

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
    """The commands by name. Yours come before a project's; files that cannot be used are left out."""
    found: dict[str, PromptCommand] = {}
    place = config_folder(environ) / "commands"
    try:
        names = sorted(os.listdir(place))[:_MOST]
    except OSError:
        names = []
    for name in names:
        if name.endswith(".md"):
            try:
                _add(found, place / name, read_beneath(place, name, _LARGEST))
            except SkillFileError:
                continue
    for item in () if project is None else project.chain:
        for path, data in item.prompts.items():
            if path.startswith(f"{COMMAND_FOLDER}/") and len(data) <= _LARGEST:
                _add(found, Path(item.folder, path), data)
    return found


def filled(name: str, words: str, project: Project | None) -> str:
    """The prompt of a command. Raises `UsageProblem` if there is no such command."""
    known = prompt_commands(project)
    if name in known:
        return known[name].prompt(words)
    near = close_names(name, known)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known) or 'none'}"
    raise UsageProblem(f"no command of yours is called {name[:80]!r}; {hint}")


def _add(found: dict[str, PromptCommand], path: Path, data: bytes) -> None:
    name = path.stem
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return
    front = _FRONT.match(text)
    body = (text[front.end() :] if front else text).strip()
    described = _DESCRIPTION.search(front[1]) if front else None
    if _NAME.fullmatch(name) and body:
        first = body.splitlines()[0].lstrip("# ")
        words = described[1].strip("\"'") if described else first
        found.setdefault(name, PromptCommand(name, words[:200], body, str(path)))
