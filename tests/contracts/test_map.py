"""README's map, AGENTS.md, the layers and the code agree: what is there is named, and what is named is there."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

from .documents import ROOT, blocks_of

PACKAGE = ROOT / "src/swink_agent"
MODULES = [path.relative_to(PACKAGE).with_suffix("").as_posix() for path in sorted(PACKAGE.rglob("*.py"))]
ROOMS = sorted({module.parent.relative_to(ROOT) for module in PACKAGE.rglob("*.py")} - {PACKAGE.relative_to(ROOT)})


@cache
def the_map() -> dict[Path, set[str]]:
    """The folders on README's map, from the root of the repository, each with the modules that are named in it."""
    (drawn,) = [block.code for block in blocks_of(ROOT / "README.md") if block.code.startswith("src/swink_agent/\n")]
    found: dict[Path, set[str]] = {}
    around: list[tuple[int, Path]] = []
    for line in drawn.splitlines():
        first, indent = line.split()[0], len(line) - len(line.lstrip())
        while around and around[-1][0] >= indent:
            around.pop()
        if first.endswith("/"):
            around.append((indent, (around[-1][1] if around else Path()) / first))
        found.setdefault(around[-1][1], set()).update(re.findall(r"[\w/]+\.py\b", line))
    return found


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_every_room_has_its_line_on_the_map(room: Path) -> None:
    assert room in the_map(), f"{room}/ has no line on README's map"


def test_every_folder_of_the_repository_has_its_line_on_the_map() -> None:
    git = shutil.which("git")
    listed = git and subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if not listed or listed.returncode:
        pytest.skip("this is no checkout of the repository")
    folders = {Path(name).parts[0] for name in listed.stdout.split("\0") if "/" in name and not name.startswith(".")}
    assert folders <= {str(folder.parts[0]) for folder in the_map()}


def test_everything_on_the_map_is_there() -> None:
    missing = [folder for folder in the_map() if not (ROOT / folder).is_dir()]
    missing += [
        folder / name for folder, names in the_map().items() for name in names if not (ROOT / folder / name).exists()
    ]
    assert not missing, f"README's map shows {', '.join(map(str, missing))}"


@pytest.mark.parametrize("room", ["core", "adapters"])
def test_every_module_of_the_rooms_that_are_read_most_is_on_the_map(room: str) -> None:
    folder = PACKAGE / room
    modules = {module.name for module in folder.glob("*.py")} - {"__init__.py", "_exports.py"}
    assert not modules - the_map()[folder.relative_to(ROOT)]


# -- AGENTS.md ---------------------------------------------------------------------------------------------------


def rooms_in(text: str) -> list[set[str]]:
    """`a → { b c } → d`, from the outermost in."""
    return [set(layer.strip("{} ").split()) for layer in text.strip().split("→")]


def layers() -> list[set[str]]:
    """The same from import-linter's contract, whether or not the rooms are there yet."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rooms,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    return [set(re.findall(r"swink_agent\.(\w+)", layer)) for layer in rooms]


def test_the_direction_of_imports_in_agents_md_is_the_one_that_is_held() -> None:
    (drawn,) = [block.code for block in blocks_of(ROOT / "AGENTS.md") if "→" in block.code]
    assert [{"testing"}, *rooms_in(drawn)] == layers()


def test_every_room_has_its_place_among_the_layers() -> None:
    rooms = {folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
    assert rooms == set[str]().union(*layers())


def names_in(owner: str) -> set[str]:
    """The methods and fields of the class, and of others that bear its name."""
    found: set[str] = set()
    for module in PACKAGE.rglob("*.py"):
        code = module.read_text(encoding="utf-8")
        if f"class {owner}" not in code:
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ClassDef) and node.name == owner:
                found |= {item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
                fields = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
                found |= {field.id for field in fields if isinstance(field, ast.Name)}
    return found


def test_what_agents_md_names_in_the_code_is_there() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    named = re.findall(r"`(_?[A-Z]\w+)\.(\w+)`", text)
    assert len(named) >= 3
    assert not [f"{owner}.{name}" for owner, name in named if name not in names_in(owner)]


def test_the_files_that_agents_md_names_are_there() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`([\w./-]+\.(?:py|txt|toml)|\.ci/\w+)`", text))
    missing = [path for path in paths if not any(place.is_file() for place in _places(path))]
    assert paths
    assert not missing, f"AGENTS.md names {missing}"


def _places(path: str) -> list[Path]:
    return [ROOT / path, PACKAGE / path, PACKAGE / "core" / path]


PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FILE_OF_OURS = re.compile(r"`((?:src|tests|docs|bench|evals|examples|scripts)/[\w./-]+\.\w+)`")
_TOP_ROOMS = "|".join(sorted({room.relative_to(PACKAGE.relative_to(ROOT)).parts[0] for room in ROOMS}))
_NAME_OF_OURS = re.compile(rf"`(?:swink_agent\.)?((?:{_TOP_ROOMS})(?:\.\w+)+)[`(]")
_NAMES_OF_GIT = {"core.fsmonitor", "core.hooksPath"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_files_and_modules_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [path for path in _FILE_OF_OURS.findall(text) if not (ROOT / path).exists()]
    missing += [name for name in _NAME_OF_OURS.findall(text) if name not in _NAMES_OF_GIT and not _is_there(name)]
    assert not missing, f"{page.name} names {missing}"


def _is_there(name: str) -> bool:
    """Whether a dotted name is a module of ours, or a name in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = PACKAGE.joinpath(*parts[:length])
        sources = [
            path
            for path in (module.with_suffix(".py"), module / "__init__.py", module / "_exports.py")
            if path.is_file()
        ]
        if sources:
            rest = parts[length:]
            return not rest or any(re.search(rf"\b{rest[0]}\b", path.read_text(encoding="utf-8")) for path in sources)
    return False


@pytest.mark.parametrize("module", MODULES)
def test_no_module_sends_its_reader_to_one_that_is_gone(module: str) -> None:
    """What a docstring names with an underscore in front, or with a slash, is a module, or a name of this one."""
    source = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(source)) or ""
    for name in re.findall(r"`(_[a-z_]+|[a-z_]+/[a-z_/]+)(?:\.py)?`", said):
        is_module = any(f"/{other}".endswith(f"/{name}") for other in MODULES)
        is_there = is_module or (ROOT / f"{name}.py").exists() or name in source.replace(said, "")
        assert is_there, f"{name} is gone"
