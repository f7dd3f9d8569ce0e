"""The map in AGENTS.md, the layers and the code agree: every package is named, and every name exists."""

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
from .test_names_in_prose import is_known

PACKAGE = ROOT / "src/swink_agent"
FOLDERS = sorted({module.parent.relative_to(ROOT) for module in PACKAGE.rglob("*.py")} - {PACKAGE.relative_to(ROOT)})


@cache
def the_map() -> dict[Path, set[str]]:
    """Returns the folders on the map, relative to the repository, each with the modules that the map names in it."""
    (drawn,) = [block.code for block in blocks_of(ROOT / "AGENTS.md") if block.code.startswith("src/swink_agent/\n")]
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


@pytest.mark.table
@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_every_package_is_on_the_map(folder: Path) -> None:
    assert folder in the_map(), f"{folder}/ has no line on the map in AGENTS.md"


def test_every_folder_of_the_repository_is_on_the_map() -> None:
    git = shutil.which("git")
    listed = git and subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if not listed or listed.returncode:
        pytest.skip("this is not a checkout of the repository")
    folders = {Path(name).parts[0] for name in listed.stdout.split("\0") if "/" in name and not name.startswith(".")}
    assert folders <= {str(folder.parts[0]) for folder in the_map()}


def test_everything_on_the_map_exists() -> None:
    missing = [folder for folder in the_map() if not (ROOT / folder).is_dir()]
    missing += [
        folder / name for folder, names in the_map().items() for name in names if not (ROOT / folder / name).exists()
    ]
    assert not missing, f"the map in AGENTS.md shows {', '.join(map(str, missing))}"


# -- AGENTS.md ---------------------------------------------------------------------------------------------------


def layers_in(text: str) -> list[set[str]]:
    """Reads `a → { b c } → d`, from the outermost layer to the innermost."""
    return [set(layer.strip("{} ").split()) for layer in text.strip().split("→")]


def layers() -> list[set[str]]:
    """Returns the same from import-linter's contract, including optional packages."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (packages,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    return [set(re.findall(r"swink_agent\.(\w+)", layer)) for layer in packages]


def test_the_layers_in_agents_md_are_those_that_are_checked() -> None:
    (drawn,) = [block.code for block in blocks_of(ROOT / "AGENTS.md") if "→" in block.code]
    assert [{"testing"}, *layers_in(drawn)] == layers()


def test_every_package_is_in_a_layer() -> None:
    packages = {folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
    assert packages == set[str]().union(*layers())


def names_in(owner: str) -> set[str]:
    """Returns the methods and fields of all classes of this name."""
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


def test_the_members_that_agents_md_names_exist() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    named = re.findall(r"`(_?[A-Z]\w+)\.(\w+)`", text)
    assert len(named) >= 3
    assert not [f"{owner}.{name}" for owner, name in named if name not in names_in(owner)]


def test_the_files_that_agents_md_names_exist() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`([\w./-]+\.(?:py|txt|toml)|\.ci/\w+)`", text))
    missing = [path for path in paths if not any(place.is_file() for place in _places(path))]
    assert paths
    assert not missing, f"AGENTS.md names {missing}"


def _places(path: str) -> list[Path]:
    return [ROOT / path, PACKAGE / path, PACKAGE / "core" / path]


PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FILE_OF_OURS = re.compile(r"`((?:src|tests|docs|bench|evals|examples|scripts)/[\w./-]+\.\w+)`")
_TOP_PACKAGES = "|".join(sorted({folder.relative_to(PACKAGE.relative_to(ROOT)).parts[0] for folder in FOLDERS}))
_NAME_OF_OURS = re.compile(rf"`(?:swink_agent\.)?((?:{_TOP_PACKAGES})(?:\.\w+)+)[`(]")
_PART_OF_OURS = re.compile(rf"`((?:{_TOP_PACKAGES})/[\w/]+\.py|[A-Z]\w+\.[a-z_]\w*(?:\(\))?)`")
_NAMES_OF_GIT = {"core.fsmonitor", "core.hooksPath"}


@pytest.mark.table
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_files_modules_and_methods_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [path for path in _FILE_OF_OURS.findall(text) if not (ROOT / path).exists()]
    missing += [name for name in _NAME_OF_OURS.findall(text) if name not in _NAMES_OF_GIT and not _is_there(name)]
    missing += [name for name in _PART_OF_OURS.findall(text) if not is_known(name)]
    assert not missing, f"{page.name} names {missing}"


def _is_there(name: str) -> bool:
    """Returns whether a dotted name is one of our modules, or a name in one."""
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
