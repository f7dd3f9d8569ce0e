"""Objects in the user's own code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from swink_agent.app.errors import UsageProblem
from swink_agent.app.own_code import object_named


@pytest.fixture(autouse=True)
def _modules_as_before(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [*sys.modules]:
        monkeypatch.setitem(sys.modules, name, sys.modules[name])


def load(folder: Path, name: str) -> object:
    return object_named(name, folder, "factory", "function")


def test_a_file_may_have_the_name_of_a_module_of_python(tmp_path: Path) -> None:
    import queue

    (tmp_path / "queue.py").write_text("make = 'mine'\n")
    assert load(tmp_path, "queue.py:make") == "mine"
    assert sys.modules["queue"] is queue


def test_a_file_is_loaded_once_and_found_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "own_agents.py").write_text("class Made: pass\nmake = Made()\nother = Made\n")
    made = load(tmp_path, "own_agents.py:make")
    assert type(made) is load(tmp_path, "own_agents.py:other")
    assert sys.modules[type(made).__module__].__file__ == str(tmp_path / "own_agents.py")
    sys.modules.pop("own_agents", None)


def test_a_file_that_fails_is_told_with_its_reason_each_time(tmp_path: Path) -> None:
    (tmp_path / "broken_agents.py").write_text("raise ValueError('no settings')\n")
    for _ in range(2):
        with pytest.raises(UsageProblem, match="cannot be loaded: ValueError: no settings"):
            load(tmp_path, "broken_agents.py:make")
