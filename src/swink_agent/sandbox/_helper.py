"""Starts a program of this package that helps a sandbox: with the standard library only, and without the package."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from .errors import SandboxError
from .programs import own_interpreter
from .starting import start_program

# Imports modules of this package by name, without running the package's own `__init__`.
_BOOT = (
    "import sys, types, importlib\n"
    "for name, folder in (('swink_agent', sys.argv[1] + '/..'), ('swink_agent.sandbox', sys.argv[1])):\n"
    "    package = sys.modules[name] = types.ModuleType(name)\n"
    "    package.__path__ = [folder]\n"
    "importlib.import_module('swink_agent.sandbox.' + sys.argv[2]).main(*map(int, sys.argv[3:]))\n"
)
_NEEDED = "LD_LIBRARY_PATH"
"""The one variable without which some Pythons do not start."""
_SANDBOX = os.path.dirname(os.path.abspath(__file__))


def start_helper(
    module: str, line: int, *arguments: int, outside: Sequence[str], stdin: int = subprocess.DEVNULL, stderr: int
) -> subprocess.Popen[bytes]:
    """Starts `main(line, *arguments)` of a module of `swink_agent.sandbox`, which gets the descriptor `line`.

    `outside`: the folders that commands may write. Raises `SandboxError`.
    """
    interpreter = own_interpreter()
    if not interpreter:
        raise SandboxError("this Python does not know its own program, which the launcher needs")
    try:
        return start_program(
            [interpreter, "-I", "-S", "-X", "utf8", "-c", _BOOT, _SANDBOX, module, *map(str, (line, *arguments))],
            outside=outside,
            environ={name: value for name, value in os.environ.items() if name == _NEEDED},
            stdin=stdin,
            stderr=stderr,
            pass_fds=(line,),
            new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"the launcher could not be started: {error}") from error
