"""Imports optional packages, and reports those that are missing.

An extra is a group of packages in `pyproject.toml`: `pip install 'swink-agent[tui]'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class MissingExtra(RuntimeError):
    """An optional package is not installed, or is broken. The message names the command that installs it.

    `problem` is the reason why an installed package cannot be imported. It is empty if the package is not installed.
    """

    def __init__(self, package: str, extra: str, problem: str = "") -> None:
        why = f"installed, but cannot be imported ({problem})" if problem else "not installed"
        super().__init__(f"{package} is {why}: {install(extra)}")
        self.package = package
        self.extra = extra
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        return MissingExtra, (self.package, self.extra, self.problem)


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'swink-agent[{extra}]'"


def require(module: str, *, extra: str) -> Any:
    """Imports a module of an optional package. Raises `MissingExtra` if it is not installed, or is broken."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == package
        raise MissingExtra(package, extra, "" if is_absent else str(error)) from error
