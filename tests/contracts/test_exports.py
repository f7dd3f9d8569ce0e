"""The public names are a promise: each is in one list, and every way to look it up gives the same."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import swink_agent

SOURCE = Path(swink_agent.__file__).parent
LISTS = sorted(SOURCE.rglob("_exports.py"))
MODULES = [
    "swink_agent",
    *(
        f"swink_agent.{package}"
        for package in ["adapters", "approvals", "evals", "local", "memory", "policies", "sandbox", "testing", "tools"]
    ),
]


def exported() -> list[str]:
    return [f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__]


def module_of(listing: Path) -> ModuleType:
    return importlib.import_module(".".join(listing.parent.relative_to(SOURCE.parent).parts))


def test_every_public_package_has_a_list() -> None:
    assert {module_of(listing).__name__ for listing in LISTS} >= set(MODULES)


@pytest.mark.table
@pytest.mark.parametrize("listing", LISTS, ids=lambda path: path.parent.name)
def test_a_list_is_nothing_but_imports_of_names_as_they_are_called(listing: Path) -> None:
    document, *imports = ast.parse(listing.read_text()).body
    assert isinstance(document, ast.Expr)
    for line in imports:
        assert isinstance(line, ast.ImportFrom), ast.unparse(line)
        for name in line.names:
            assert name.name == name.asname, f"{name.name}: type checkers take what is imported `as` itself for public"
            assert name.name[0] != "_", f"{name.name} is private"


@pytest.mark.table
@pytest.mark.parametrize("listing", LISTS, ids=lambda path: path.parent.name)
def test_every_name_on_a_list_exists_and_is_public(listing: Path) -> None:
    module = module_of(listing)
    names = [alias.name for line in ast.parse(listing.read_text()).body[1:] for alias in line.names]  # type: ignore[attr-defined]
    assert sorted(set(names)) == sorted(names)
    assert set(names) <= set(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None, name


@pytest.mark.table
@pytest.mark.parametrize("listing", LISTS, ids=lambda path: path.parent.name)
def test_no_module_hides_a_public_name(listing: Path) -> None:
    """Importing a module binds its name in the package, so a public name that is the same must be bound before."""
    module = module_of(listing)
    inside = {path.stem for path in listing.parent.glob("*.py")} | {
        path.parent.name for path in listing.parent.glob("*/__init__.py")
    }
    for name in inside & set(module.__all__):
        assert not isinstance(vars(module).get(name, module), ModuleType), name


def test_names_that_a_package_defines_itself_are_public_too() -> None:
    assert {"embed"} <= set(importlib.import_module("swink_agent.local").__all__)
    assert "stream_fn_for" in importlib.import_module("swink_agent.adapters").__all__


def test_names_that_only_a_package_itself_uses_are_not_public() -> None:
    for entry in exported():
        assert entry.rpartition(".")[2] not in {"annotations", "lazy_names", "sys", "TYPE_CHECKING"}, entry


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("module", MODULES)
def test_dir_lists_the_public_names_before_any_is_used(module: str) -> None:
    code = f"import {module} as m; listed = dir(m); print(*(name for name in m.__all__ if name not in listed))"
    done = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


@pytest.mark.table
@pytest.mark.parametrize("module", MODULES)
def test_a_star_import_gives_the_public_names(module: str) -> None:
    given: dict[str, object] = {}
    exec(f"from {module} import *", given)
    assert sorted(given.keys() - {"__builtins__"}) == importlib.import_module(module).__all__


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("module", MODULES)
def test_a_public_name_is_the_same_whatever_modules_were_loaded_before(module: str) -> None:
    """A module that is loaded becomes an attribute of its package, and could hide a public name."""
    folder = Path(importlib.import_module(module).__file__ or "").parent
    same = [name for name in importlib.import_module(module).__all__ if (folder / f"{name}.py").exists()]
    code = f"import types, {', '.join([module, *(f'{module}.{name}' for name in same)])}"
    code += "".join(f"\nfrom {module} import {name}; assert not isinstance({name}, types.ModuleType)" for name in same)
    subprocess.run([sys.executable, "-I", "-c", code], check=True)


@pytest.mark.table
@pytest.mark.parametrize("module", MODULES)
def test_a_misspelt_name_is_an_error_that_names_it(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'Agnet'"):
        _ = importlib.import_module(module).Agnet
    with pytest.raises(ImportError, match="cannot import name 'Agnet'"):
        exec(f"from {module} import Agnet")


def test_a_name_of_a_kit_is_public_only_there() -> None:
    from swink_agent import adapters, testing
    from swink_agent.adapters import kit
    from swink_agent.testing.fakes import kit as fakes_kit

    assert not set(kit.__all__) & set(adapters.__all__)
    assert not set(fakes_kit.__all__) & set(testing.__all__)
