"""How a child process is confined: what it may read, write and reach, and that nothing of it is left behind.

    profile   what a child may do, as data; what is hidden and protected unless said otherwise
    open      the back ends, and the trial that chooses one: never by the name of a program
    process   an opened sandbox and the processes in it
    programs  what this program starts and runs from, and that no command can write it

Importing this module loads no back end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import BackendReport, SandboxClosed, SandboxError, SandboxUnavailable
from .profile import (
    DEFAULT_ALLOW,
    DEFAULT_PROTECTED,
    HOME_PROTECTED,
    ProcessLimits,
    SandboxProfile,
    clean_environment,
    default_hidden,
)

if TYPE_CHECKING:
    from ._places import why_not_written
    from .open import open_sandbox, open_unconfined, probe_backends
    from .process import Sandbox, SandboxedProcess
    from .programs import find_program
    from .repository import repository_folders

_HOMES = {
    "Sandbox": "process",
    "SandboxedProcess": "process",
    "find_program": "programs",
    "open_sandbox": "open",
    "open_unconfined": "open",
    "probe_backends": "open",
    "repository_folders": "repository",
    "why_not_written": "_places",
}

__all__ = [
    "DEFAULT_ALLOW",
    "DEFAULT_PROTECTED",
    "HOME_PROTECTED",
    "BackendReport",
    "ProcessLimits",
    "Sandbox",
    "SandboxClosed",
    "SandboxError",
    "SandboxProfile",
    "SandboxUnavailable",
    "SandboxedProcess",
    "clean_environment",
    "default_hidden",
    "find_program",
    "open_sandbox",
    "open_unconfined",
    "probe_backends",
    "repository_folders",
    "why_not_written",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
