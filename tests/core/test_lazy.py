"""Names that are loaded on use, and the list that defines them."""

from __future__ import annotations

import compileall
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from swink_agent.core.lazy import lazy_names, listed_names

pytestmark = pytest.mark.slow  # an interpreter for each

INIT = """
from swink_agent.core.lazy import lazy_names
__getattr__, __dir__ = lazy_names(__name__, "._exports")

def own(): ...
def _private(): ...
"""
LIST = """
from json import dumps as dumps
from .inner import Thing as Thing
from .inner import Thing as Renamed
"""
INNER = "print('inner is loaded')\nclass Thing: ..."


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "lazily"
    folder.mkdir()
    (folder / "__init__.py").write_text(INIT)
    (folder / "_exports.py").write_text(LIST)
    (folder / "inner.py").write_text(INNER)
    return folder


def run(path: Path, code: str) -> list[str]:
    code = f"import sys; sys.path.insert(0, {str(path)!r}); import lazily\n{code}"
    done = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_a_module_is_loaded_when_a_name_of_it_is_asked_for_and_once(package: Path) -> None:
    assert run(package.parent, "print(lazily.__all__)") == ["['Renamed', 'Thing', 'dumps', 'own']"]
    assert run(package.parent, "lazily.Thing; lazily.Thing") == ["inner is loaded"]


def test_a_name_is_what_its_module_has_under_it_at_that_moment(package: Path) -> None:
    code = "lazily.Thing; import lazily.inner; lazily.inner.Thing = 'another'; print(lazily.Thing)"
    assert run(package.parent, code) == ["inner is loaded", "another"]


def test_a_name_may_be_another_than_in_its_module(package: Path) -> None:
    assert run(package.parent, "print(lazily.Renamed is lazily.Thing)") == ["inner is loaded", "True"]


def test_reading_the_list_loads_nothing(package: Path) -> None:
    assert run(package.parent, "dir(lazily); print('lazily._exports' in sys.modules)") == ["False"]


def test_it_works_from_a_zip_file_without_sources(package: Path, tmp_path: Path) -> None:
    compileall.compile_dir(package, legacy=True, quiet=1)
    with ZipFile(tmp_path / "all.zip", "w") as archive:
        for compiled in package.glob("*.pyc"):
            archive.write(compiled, f"lazily/{compiled.name}")
    assert run(tmp_path / "all.zip", "from lazily import Thing, own; print(Thing.__name__)") == [
        "inner is loaded",
        "Thing",
    ]


def test_a_list_that_is_missing_is_said_to_be() -> None:
    with pytest.raises(ImportError, match=r"swink_agent\.core\._nothing, the list of public names"):
        listed_names("swink_agent.core._nothing")


def test_attributes_that_python_asks_of_every_module_read_no_list() -> None:
    load, _ = lazy_names("swink_agent.core", "._nothing")
    with pytest.raises(AttributeError, match="'__wrapped__'"):
        load("__wrapped__")
