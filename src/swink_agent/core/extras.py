"""Optional packages, and the one way to say that one is missing.

An extra is a group of packages in `pyproject.toml`: `pip install 'swink-agent[tui]'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["MissingExtra", "install", "require"]


class MissingExtra(RuntimeError):
    """An optional package is not installed. The message names the command that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: {install(extra)}")
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[Any, ...]:
        return MissingExtra, (self.package, self.extra)


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'swink-agent[{extra}]'"


def require(module: str, *, extra: str) -> Any:
    """Imports a module of an optional package. Raises `MissingExtra` if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(module.partition(".")[0], extra) from error
