"""Imports go one way, from the outer layers to the core."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_imports_follow_the_layers() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    done = subprocess.run(
        [*command, "--no-cache"], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
