"""Only one file depends on the engine, and on one version of it."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import swink_agent

SOURCE = Path(swink_agent.__file__).parent


def test_one_file_knows_the_engine() -> None:
    knowing = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"import dbos|from dbos|require\(.dbos", path.read_text(encoding="utf-8"))
    ]
    assert knowing == ["durable/engine.py"]


def test_the_engine_is_pinned_exactly() -> None:
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = [one for one in project["optional-dependencies"]["durable"] if one.startswith("dbos")]
    assert pins == [f"dbos=={version('dbos')}"]
