"""The programs that this one starts or runs from, and how none of them is what a confined command could have written.

Owns the search for a program by name, the choice of an interpreter, and the list of places that the program itself is
made of: its environment, its packages, its interpreter. Those are read-only for commands wherever they may write.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable, Sequence

__all__ = ["find_program", "importable", "own_folders", "own_interpreter", "own_names_in"]

_USUAL = ("/usr/local/bin", "/usr/bin", "/bin")
_OF_AN_ENVIRONMENT = ("bin", "lib", "lib64", "pyvenv.cfg", "Scripts", "Lib")


def find_program(
    name: str, *, outside: str | Sequence[str] = (), folders: str | Sequence[str] | None = None
) -> str | None:
    """The first program of that name in absolute folders, and not in `outside`, where a model may have put its own.

    `folders` are those of this process's `PATH` unless given, and then the usual ones. Links are followed: one that
    leads into `outside` does not count either.
    """
    outside = [outside] if isinstance(outside, str) else outside
    folders = [folders] if isinstance(folders, str) else folders
    forbidden = [real for folder in outside if (real := os.path.realpath(folder)) != os.path.sep]
    path = os.environ.get("PATH", "").split(os.pathsep) if folders is None else folders
    for folder in (*path, *(_USUAL if folders is None else ())):
        program = os.path.join(folder, name)
        if not os.path.isabs(folder) or not (os.path.isfile(program) and os.access(program, os.X_OK)):
            continue
        if not _is_in(program, forbidden):
            return program
    return None


def own_interpreter() -> str:
    """The interpreter to start for our own purposes; empty if there is none.

    Not the one of a virtual environment: what that does is said by a file beside it. Ours need no packages.
    """
    for program in (getattr(sys, "_base_executable", None), sys.executable):
        if program and os.path.isabs(program) and os.access(program, os.X_OK):
            return program
    return ""


def own_folders() -> tuple[str, ...]:
    """Where this program runs from: its environment, its interpreter, the folders of its packages and of its own.

    Each as it is spelled, which is how Python will look for it again, and where that leads.
    """
    found = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, os.path.dirname(sys.executable)]
    found.append(os.path.dirname(own_interpreter()))
    found.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    found.append(os.path.dirname(os.__file__))
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    found += [folder for folder in sys.path if folder and _holds_a_package_of_ours(folder)]
    absolute = [os.path.abspath(folder) for folder in found if folder]
    return tuple(dict.fromkeys(path for folder in absolute for path in (folder, os.path.realpath(folder))))


def own_names_in(root: str, folders: Iterable[str]) -> list[str]:
    """Of our own folders, what lies in `root`; of an environment that is `root` itself, its parts."""
    names: list[str] = []
    for folder in folders:
        if folder == root and folder in (sys.prefix, sys.base_prefix):
            parts = (os.path.join(folder, part) for part in _OF_AN_ENVIRONMENT)
            names += [path for path in parts if os.path.lexists(path) and not os.path.islink(path)]
        elif folder != root and _is_in(folder, [root], follow=False):
            names.append(folder)
    return names


def importable(path: Iterable[str], roots: Iterable[str]) -> list[str]:
    """The entries of `sys.path` from which nothing is imported that a command in `roots` could have written.

    Left out are those that depend on the working folder, and those in a root that are not our own and so not protected.
    """
    real = [os.path.realpath(root) for root in roots]
    ours = own_folders()
    kept: list[str] = []
    for entry in path:
        if os.path.isabs(entry) and (not _is_in(entry, real) or _is_in(entry, [o for o in ours if o not in real])):
            kept.append(entry)
    return kept


def _holds_a_package_of_ours(folder: str) -> bool:
    """Whether what the program cannot do without was found there: its other packages are then there too."""
    module = sys.modules.get("msgspec")
    file = getattr(module, "__file__", None)
    return bool(file) and os.path.dirname(os.path.dirname(os.path.abspath(file))) == os.path.abspath(folder)


def _is_in(path: str, folders: Iterable[str], *, follow: bool = True) -> bool:
    spellings = {os.path.abspath(path), os.path.realpath(path)} if follow else {path}
    return any(
        spelling == folder or spelling.startswith(folder.rstrip(os.path.sep) + os.path.sep)
        for folder in folders
        for spelling in spellings
    )
