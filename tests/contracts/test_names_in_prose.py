"""Names between backticks in docstrings and comments exist: modules, files, classes, members, functions."""

from __future__ import annotations

import builtins
import keyword
import re
import sys
from collections import defaultdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from .documents import ROOT

PACKAGE = ROOT / "src/swink_agent"
SOURCES = sorted(PACKAGE.rglob("*.py"))

OF_OTHERS = {
    *("AfterValidator", "HttpUrl", "NewType", "ScrollView", "Infinity", "multipleOf", "json_schema_to_grammar"),
    *("HF_ENDPOINT", "HF_TOKEN", "RESOLVE_BENEATH", "sock_filter"),
}
"""Names of other programs and libraries that our code does not use itself."""
EXAMPLES = {
    "opnai",
    "v1beta1",
    "PORT",
    "output_file",
    "configPath",
    "aa",
    "aaa",
    "serverPort",
    "server_port",
    "foo_bar.baz",
    "docs.python.org",
}
"""Words that a comment makes up, to show what it speaks of."""

_PROSE = re.compile(r'(?ms)^[ \t]*r?""".*?"""|(?:^[ \t]*|  )# [^\n]*')
_CLASS = re.compile(r"(?m)^class (\w+)(?:\(([^)]*)\))?")
_QUOTED = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:[a-z]\w*/)+[a-z_]\w*(?:\.py)?/?|\w+\.py")
_DOTTED = re.compile(r"([a-z_]\w*(?:\.\w+)+)(?:\(\))?")
_MEMBER = re.compile(r"(_?[A-Z]\w+)\.(\w+)(?:\(.*\))?")
_WORD = re.compile(r"([A-Za-z_]\w*)(?:\(\))?")


@cache
def divided(path: Path) -> tuple[list[tuple[int, str]], str]:
    """The lines of a file's docstrings and comments, with their numbers, and the rest of it: its code."""
    source = path.read_text(encoding="utf-8")
    prose = [
        (source.count("\n", 0, found.start()) + number, line)
        for found in _PROSE.finditer(source)
        for number, line in enumerate(found.group().split("\n"), 1)
    ]
    return prose, _PROSE.sub("", source)


@cache
def modules() -> set[str]:
    """Every module and package by its path beneath ours, as in `core/run/state`."""
    found = {path.relative_to(PACKAGE).with_suffix("").as_posix() for path in SOURCES}
    return found | {name.removesuffix("/__init__") for name in found}


@cache
def words_in_code() -> set[str]:
    """Every name in the code, and every word in its strings: options, fields of wire formats, commands."""
    found = set(dir(builtins)) | set(keyword.kwlist) | {part for name in modules() for part in name.split("/")}
    return found.union(*[re.findall(r"\w+", divided(path)[1]) for path in SOURCES])


@cache
def members() -> dict[str, set[str]]:
    """The words in the files of each class of ours, by the class's name, with those of its bases."""
    own: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        code = divided(path)[1]
        for name, inherited in _CLASS.findall(code):
            own[name].update(re.findall(r"\w+", code))
            bases[name].update(re.findall(r"\w+", inherited))
    found: dict[str, set[str]] = {}
    for name in own:
        ancestors, seen = [name], set[str]()
        while ancestors:
            ancestor = ancestors.pop()
            if ancestor not in seen:
                seen.add(ancestor)
                ancestors += bases.get(ancestor, ())
        found[name] = set[str]().union(*[own.get(ancestor, set()) for ancestor in seen])
    return found


def is_module(name: str) -> bool:
    """Whether a path, as deep as it is given, is one of our modules or packages."""
    return any(f"/{known}".endswith(f"/{name}") for known in modules())


def is_dotted_name(name: str) -> bool:
    """Whether a dotted name that begins with a package of ours is a module, a name in one, or a string of the code."""
    parts = name.removeprefix("swink_agent.").split(".")
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length])
        if path in modules():
            sources = [PACKAGE / f"{path}.py", PACKAGE / path / "__init__.py", PACKAGE / path / "_exports.py"]
            code = "\n".join(source.read_text(encoding="utf-8") for source in sources if source.is_file())
            return length == len(parts) or re.search(rf"\b{parts[length]}\b", code) is not None
    return any(f'"{name}"' in divided(path)[1] for path in SOURCES)


def is_relative_name(name: str) -> bool:
    """Whether a dotted name of which the first part is a module, a nested package or a variable of ours exists.

    A variable may be called like a module (`agent.prompt`): then the rest is an attribute somewhere.
    """
    parts = name.split(".")
    if is_module("/".join(parts)):
        return True
    files = [path for path in SOURCES if path.stem == parts[-2] or path.parent.name == parts[-2]]
    if any(re.search(rf"\b{parts[-1]}\b", divided(path)[1]) for path in files):
        return True
    return parts[-1] in attributes() and all(part in words_in_code() for part in parts)


@cache
def is_of_another(module: str) -> bool:
    return module in sys.stdlib_module_names or find_spec(module) is not None


@cache
def attributes() -> set[str]:
    """Every name in the code that stands behind a point, is a field or is in quotes alone, as in JSON."""
    patterns = r"\.(\w+)", r"(?m)^ +(\w+):", r"def (\w+)", r"[\"'](\w+)[\"']"
    return {name for path in SOURCES for pattern in patterns for name in re.findall(pattern, divided(path)[1])}


@cache
def called_in_code() -> set[str]:
    found = (re.findall(r"(\w+)\(", divided(path)[1]) for path in SOURCES)
    return set(dir(builtins)).union(*found)


def is_known(name: str, code: str = "") -> bool:
    """Whether what is between backticks in a file with this code exists, or is not a name of ours by its form."""
    if _PATH.fullmatch(name):
        bare = name.rstrip("/").removesuffix(".py")
        is_ours = name.endswith(".py") or bare.split("/")[0] in _our_folders()
        return not is_ours or is_module(bare) or (ROOT / name).exists()
    if member := _MEMBER.fullmatch(name):
        owner, attribute = member.groups()
        return owner not in members() or attribute in members()[owner]
    if dotted := _DOTTED.fullmatch(name):
        first = dotted[1].split(".")[0]
        if first == "swink_agent" or first in _top_packages():
            return is_dotted_name(dotted[1])
        return name in EXAMPLES or (ROOT / name).exists() or is_of_another(first) or is_relative_name(dotted[1])
    if word := _WORD.fullmatch(name):
        if word[1].startswith("_") and not word[1].endswith(
            "__"
        ):  # private: a module of ours, or a name of this very file
            return is_module(word[1]) or re.search(rf"\b{word[1]}\b", code) is not None
        known = called_in_code() if name.endswith("()") else words_in_code()
        return word[1] in known or word[1] in OF_OTHERS or word[1] in EXAMPLES
    return True


@cache
def _our_folders() -> set[str]:
    """The first parts that a path of ours can have: of a package at any depth, or of a folder of the repository."""
    packages = {part for name in modules() for part in name.split("/")}
    return packages | {path.name for path in ROOT.iterdir() if path.is_dir()}


@cache
def _top_packages() -> set[str]:
    return {name for name in modules() if "/" not in name}


def test_names_in_docstrings_and_comments_exist() -> None:
    unknown: list[str] = []
    for path in SOURCES:
        file = path.relative_to(PACKAGE).as_posix()
        prose, code = divided(path)
        unknown += [
            f"{file}:{number}: `{name}`"
            for number, line in prose
            for name in _QUOTED.findall(line)
            if not is_known(name, code)
        ]
    assert not unknown, "these names are not in the code:\n" + "\n".join(unknown)


@pytest.mark.table
@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("core/lazy.py", True),
        ("run/transcript", True),
        ("core/lost.py", False),
        ("run/lost", False),
        ("lost_module.py", False),
        ("docs/evals.md", True),
        ("application/json", True),
        ("core.journal", True),
        ("swink_agent.core.types.Usage", True),
        ("swink_agent.core.lost", False),
        ("core.diffs", False),
        ("asyncio.run", True),
        ("opening.read_contents", True),
        ("opening.read_nothing", False),
        ("log.records", True),
        ("log.tally", False),
        ("agent.prompt()", True),
        ("agent.tally_up()", False),
        ("Agent.prompt()", True),
        ("Agent.lost", False),
        ("ModelSpec.parse", True),
        ("Popen.wait", True),
        ("extract_text", True),
        ("extract_lost()", False),
        ("lost()", False),
        ("_lost_helper", False),
        ("LostClass", False),
        ("x < y", True),
    ],
)
def test_removed_names_are_distinguished_from_existing_ones(name: str, exists: bool) -> None:
    assert is_known(name) is exists
