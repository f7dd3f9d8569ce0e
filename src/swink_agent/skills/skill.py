"""One skill: a folder with a `SKILL.md`, its front matter and its limits.

Decides whether a skill is usable. One that is not has a `problem` and no content. The caller decides where to look for
skills, and which of them to trust.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from swink_agent.core.machine.extras import MissingExtra, require
from swink_agent.core.values.checks import check_text, is_not
from swink_agent.core.values.several import check_path
from swink_agent.core.values.value import Value
from swink_agent.rendering.texts.invisible import is_deceptive, ordinary_places

from .reading import SkillFileError, read_beneath

FILE = "SKILL.md"
_NAME = re.compile(r"[a-z0-9-]{1,64}")
_LONGEST_DESCRIPTION = 1024
_LONGEST_FRONT = 16 * 1024
_LONGEST_BODY = 256 * 1024
MOST_FILE = _LONGEST_FRONT + _LONGEST_BODY + 16
_MOST_FOLDERS = 1_000
_TEXT = "tag:yaml.org,2002:str"
FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


class Skill(Value, frozen=True):
    """A skill. `path` is that of its `SKILL.md`; `source` is its origin; with a `problem` it cannot be used."""

    hidden_fields = frozenset({"body"})

    name: str
    description: str = ""
    path: str = ""
    source: str = ""
    problem: str = ""
    body: str = ""
    """The instructions: the text after the front matter."""

    @property
    def folder(self) -> Path:
        return Path(self.path).parent

    @property
    def summary(self) -> str:
        """The description in one line, for lists."""
        return " ".join(self.description.split())


def find_skills(place: str | os.PathLike[str], source: str = "") -> list[Skill]:
    """The skills in a folder of skills, sorted by name, including unusable ones. A missing folder has none."""
    check_path("find_skills(place=…)", place)
    check_text("source", source)
    try:
        with os.scandir(place) as entries:
            found = sorted([(entry.name, entry.is_symlink()) for entry in entries if entry.is_dir()])[:_MOST_FOLDERS]
    except OSError:
        return []
    skills: list[Skill] = []
    for name, is_link in found:
        path = Path(place, name, FILE)
        if is_link and os.path.lexists(path):
            skills.append(Skill(name, path=str(path), source=source, problem="its folder is a link"))
        elif os.path.lexists(path):
            skills.append(read_skill(path.parent, source))
    return skills


def read_skill(folder: str | os.PathLike[str], source: str = "", data: bytes | None = None) -> Skill:
    """The skill in a folder. `data` is the content of its `SKILL.md`, if the caller has read it. Raises only for
    arguments of the wrong kind."""
    check_path("read_skill(folder=…)", folder)
    check_text("source", source)
    if not isinstance(cast("object", data), bytes | None):
        raise is_not("data", data, "bytes, or None")
    folder = Path(folder)
    path = str(folder / FILE)
    try:
        data = read_beneath(folder, FILE, MOST_FILE) if data is None else data
        fields, body = _parts(data)
        problem = _problem(folder.name, fields.get("name"), fields.get("description"), body)
    except SkillFileError as error:
        return Skill(folder.name, path=path, source=source, problem=str(error))
    if problem:
        return Skill(folder.name, path=path, source=source, problem=problem)
    return Skill(folder.name, fields["description"].strip(), path, source, body=body.strip("\r\n"))


def _problem(folder: str, name: str | None, description: str | None, body: str) -> str:
    if name is None or description is None:
        return f"its front matter has no {'name' if name is None else 'description'}"
    if not _NAME.fullmatch(name):
        return "its name must have 1 to 64 of a-z, 0-9 and -"
    if name != folder:
        return f"its name is {name!r} and its folder is called {folder!r}: they must be the same"
    description = description.strip()
    if not 1 <= len(description) <= _LONGEST_DESCRIPTION:
        return f"its description must have 1 to {_LONGEST_DESCRIPTION:,} characters"
    ordinary = ordinary_places(description)
    if any(is_deceptive(c) and c not in "\n\t" and place not in ordinary for place, c in enumerate(description)):
        return "its description has invisible characters"
    if len(body.encode()) > _LONGEST_BODY:
        return f"its text is larger than {_LONGEST_BODY:,} bytes"
    return ""


def _parts(data: bytes) -> tuple[dict[str, str], str]:
    """The fields of the front matter, and the text after it. Raises `SkillFileError`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SkillFileError(f"{FILE} is not UTF-8 text") from None
    found = FRONT_MATTER.match(text)
    if found is None:
        raise SkillFileError(f"{FILE} does not begin with front matter between two lines of ---")
    front = found[1]
    if len(front.encode()) > _LONGEST_FRONT:
        raise SkillFileError(f"the front matter of {FILE} is larger than {_LONGEST_FRONT:,} bytes")
    return _fields(front), text[found.end() :]


def _fields(front: str) -> dict[str, str]:
    """The text fields at the top level of the front matter. The parser's events are read; no objects are built."""
    try:
        yaml = require("yaml", extra="skills")
    except MissingExtra as error:
        raise SkillFileError(str(error)) from error
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _texts(yaml, list(yaml.parse(front, Loader=loader)))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 2}"
        raise SkillFileError(f"the front matter of {FILE} is not YAML{where}") from error


def _texts(yaml: Any, events: Sequence[Any]) -> dict[str, str]:
    fields: dict[str, str] = {}
    depth, key = 0, None
    resolver = yaml.resolver.Resolver()
    for event in events:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise SkillFileError(f"the front matter of {FILE} has an alias or an anchor")
        if getattr(event, "tag", None) is not None:
            raise SkillFileError(f"the front matter of {FILE} has a tag")
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if depth == 0 and not isinstance(event, yaml.MappingStartEvent):
                raise SkillFileError(f"the front matter of {FILE} is not a mapping")
            depth += 1
            if depth == 2:
                key = None  # the value of this field is not a text
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent) and depth == 1:
            if key is None:
                key = event.value
                if key in fields:
                    raise SkillFileError(f"the front matter of {FILE} has the field {key!r} twice")
            elif key == "description" and resolver.resolve(yaml.ScalarNode, event.value, event.implicit) != _TEXT:
                raise SkillFileError(f"the description in {FILE} is not a text: put it in quotes")
            else:
                fields[key], key = event.value, None
    return fields
