"""Types tell the truth to whoever builds on this package, whether they check with pyright or with mypy.

The two programs are in `typing/`: one that is right, and one with a mistake in every line that says so. They are
checked as a user's are, from outside, with the package as it is installed.
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
    return request.param(folder)


def test_a_program_that_is_right_passes(errors: list[str]) -> None:
    assert [error for error in errors if error.startswith("right.py:")] == []


def test_every_mistake_is_found_and_nothing_else(errors: list[str]) -> None:
    [program] = [program for program in PROGRAMS if program.name == "wrong.py"]
    lines = dict(enumerate(program.read_text().splitlines(), 1))
    found = {int(error.split(":")[1]) for error in errors if error.startswith("wrong.py:")}
    assert [lines[number] for number in sorted(found)] == [line for line in lines.values() if line.endswith("# wrong")]
