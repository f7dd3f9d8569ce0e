"""The types of this package are correct for users, with pyright and with mypy.

The programs are in `typing/`: correct ones, and ones with a mistake in every line that is marked. They are checked like
a user's programs, against the installed package, all by one process of each checker.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted(Path(__file__).with_name("typing").glob("*.py"))
pytestmark = [pytest.mark.sweep, pytest.mark.timeout(300)]  # both read all that the programs import


def pyright(folder: Path) -> list[str]:
    """The errors, each as `file:line: what`."""
    configuration = {"typeCheckingMode": "standard", "pythonVersion": "3.11", "reportUnusedExpression": "none"}
    (folder / "pyrightconfig.json").write_text(json.dumps(configuration))
    found = json.loads(run(folder, "pyright", "--pythonpath", sys.executable, "--outputjson"))["generalDiagnostics"]
    return [
        f"{Path(one['file']).name}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in found
        if one["severity"] == "error"
    ]


def mypy(folder: Path) -> list[str]:
    """The same of mypy, at its strictest."""
    options = ["--strict", "--config-file=", "--cache-dir=cache", "--no-error-summary"]
    programs = [program.name for program in PROGRAMS]
    output = run(folder, "mypy", *options, "--python-executable", sys.executable, *programs)
    return [line for line in output.splitlines() if ": error: " in line]


def run(folder: Path, checker: str, *arguments: str) -> str:
    command = [sys.executable, "-m", checker, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=[pyright, mypy])
def errors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("programs")
    for program in PROGRAMS:
        shutil.copy(program, folder)
    found = request.param(folder)
    return [error for error in found if request.param is pyright or "# wrong for pyright" not in line_of(error)]


def line_of(error: str) -> str:
    name, number, _ = error.split(":", 2)
    [program] = [program for program in PROGRAMS if program.name == name]
    return program.read_text().splitlines()[int(number) - 1]


def test_a_correct_program_passes(errors: list[str]) -> None:
    assert [error for error in errors if error.startswith("right")] == []


@pytest.mark.parametrize("name", ["wrong.py", "wrong_deps.py"])
def test_every_mistake_is_found_and_nothing_else(errors: list[str], name: str, request: pytest.FixtureRequest) -> None:
    marks = ("# wrong", "# wrong for pyright") if "pyright" in request.node.name else ("# wrong",)
    [program] = [program for program in PROGRAMS if program.name == name]
    lines = dict(enumerate(program.read_text().splitlines(), 1))
    found = {int(error.split(":")[1]) for error in errors if error.startswith(f"{name}:")}
    assert [lines[number] for number in sorted(found)] == [line for line in lines.values() if line.endswith(marks)]
