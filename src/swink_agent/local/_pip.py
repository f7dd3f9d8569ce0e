"""A pip that can be run: of this environment, the one that Python brings along, or of another interpreter.

Owns finding it. It is only ever told to download; nothing is installed by it. Environments made by uv have none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

__all__ = ["NO_PIP", "find_pip"]

NO_PIP = (
    "there is no pip to fetch it with: install one with `uv pip install pip` or `python -m ensurepip`, and try again"
)
_TRIAL_SECONDS = 30.0


def find_pip() -> tuple[str, ...] | None:
    """The beginning of a command that runs pip, the nearest first; `None` if there is none that works."""
    if find_spec("pip") is not None:
        return (sys.executable, "-m", "pip")
    return next((command for command in _others() if _works(command)), None)


def _others() -> Iterator[tuple[str, ...]]:
    for wheel in _bundled():
        yield (sys.executable, f"{wheel}/pip")  # a wheel is a zip file, and Python runs those
    base: str = getattr(sys, "_base_executable", "") or ""
    for interpreter in dict.fromkeys((base, os.path.join(sys.base_prefix, "bin", "python3"))):
        if interpreter and interpreter != sys.executable:
            yield (interpreter, "-m", "pip")
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(folder):  # never what lies in the current folder
            for name in ("pip3", "pip"):
                if os.access(os.path.join(folder, name), os.X_OK):
                    yield (os.path.join(folder, name),)


def _bundled() -> list[Path]:
    """The wheels of pip that come with Python, or where Debian keeps them."""
    found = find_spec("ensurepip")
    places = [Path(place) / "_bundled" for place in (found.submodule_search_locations or [])] if found else []
    return [wheel for place in [*places, Path("/usr/share/python-wheels")] for wheel in sorted(place.glob("pip-*.whl"))]


def _works(command: tuple[str, ...]) -> bool:
    try:
        done = subprocess.run(
            [*command, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
