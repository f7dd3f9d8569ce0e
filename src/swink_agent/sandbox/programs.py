"""Makes sure that no program which this one starts or runs from could have been written by a confined command.

Searches for programs by name, chooses an interpreter, and lists the folders that this program consists of: its
environment, packages and interpreter. They are read-only for commands, even in folders that commands may write.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import all_suffixes
from pathlib import Path

from .kernel.mounts import is_in

USUAL_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
_MOST_LINKS = 40
"""The system gives up after this many links too."""
_AT_START = ("sitecustomize", "usercustomize")
_LONGEST_PATH_FILE = 64 * 1024
_OF_AN_ENVIRONMENT = ("bin", "lib", "lib64", "pyvenv.cfg", "Scripts", "Lib")


def find_program(
    name: str, *, outside: str | Sequence[str] = (), folders: str | Sequence[str] | None = None
) -> str | None:
    """The first program of that name in absolute folders that are not in `outside`, where a model may have put its own.

    `folders` defaults to this process's `PATH` and then the usual folders. Links are followed: a link into or through
    `outside` does not count either.
    """
    outside = [outside] if isinstance(outside, str) else outside
    folders = [folders] if isinstance(folders, str) else folders
    path = os.environ.get("PATH", "").split(os.pathsep) if folders is None else folders
    for folder in (*path, *(USUAL_FOLDERS if folders is None else ())):
        program = os.path.join(folder, name)
        if not os.path.isabs(folder) or not (os.path.isfile(program) and os.access(program, os.X_OK)):
            continue
        if not _part_in(program, outside):
            return program
    return None


def writable_part(path: str, folders: Iterable[str]) -> str:
    """The first place on the way to a file, link by link, that a command in `folders` could have written; else empty.

    What this program runs from does not count: it is read-only for commands, even in such a folder.
    """
    roots = _roots(folders)
    return _part_in(path, roots, but=_held_in(roots)) if roots else ""


def without_folders(entries: Iterable[str], folders: Iterable[str]) -> list[str]:
    """The absolute entries of a list such as `PATH` that neither are in the folders nor lead into them."""
    roots = _roots(folders)
    return [entry for entry in entries if os.path.isabs(entry) and not _part_in(entry, roots)]


def own_interpreter() -> str:
    """The interpreter for our own helpers, which need no packages, or an empty text.

    The base interpreter is preferred, because a file beside the interpreter of a virtual environment decides what that
    one loads.
    """
    if not sys.executable:
        return ""
    base = os.path.join(sys.base_exec_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    for program in (base, sys.executable):
        if os.path.isabs(program) and os.access(program, os.X_OK):
            return program
    return ""


def own_folders() -> tuple[str, ...]:
    """The folders that this program runs from: environment, interpreter, packages and its own.

    Each as it is spelled, because Python will look for it in that way again, and with its links followed.
    """
    found = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, os.path.dirname(sys.executable)]
    ours = os.path.dirname(os.path.abspath(__file__))
    found += map(os.path.dirname, (own_interpreter(), ours, os.__file__))
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    # Where a package is that this program always needs, its other packages are too.
    if file := getattr(sys.modules.get("msgspec"), "__file__", None):
        place = os.path.dirname(os.path.dirname(os.path.abspath(file)))
        found += [folder for folder in sys.path if folder and os.path.abspath(folder) == place]
    absolute = [os.path.abspath(folder) for folder in found if folder]
    return tuple(dict.fromkeys(path for folder in absolute for path in (folder, os.path.realpath(folder))))


def own_names_in(root: str, folders: Iterable[str]) -> list[str]:
    """Those of our own folders that are in `root`. If `root` itself is an environment, the parts of it."""
    names: list[str] = []
    for folder in folders:
        if folder == root and folder in (sys.prefix, sys.base_prefix):
            parts = (os.path.join(folder, part) for part in _OF_AN_ENVIRONMENT)
            names += [path for path in parts if os.path.lexists(path) and not os.path.islink(path)]
        elif folder != root and is_in(folder, [root]):
            names.append(folder)
    return names


def importable(path: Iterable[str], roots: Iterable[str]) -> list[str]:
    """The entries of `sys.path` in which no command in `roots` could have written a module.

    Relative entries are left out, and entries in a root that are not our own, protected folders.
    """
    folders = _roots(roots)
    held = _held_in(folders)
    return [entry for entry in path if os.path.isabs(entry) and not _part_in(entry, folders, but=held)]


def run_at_start(roots: Iterable[str]) -> list[str]:
    """The files in `roots`, existing or not, that Python would run by itself when this program is started again.

    The folder of a project that is installed in place (`pip install -e .`) in our environment is on Python's path, and
    Python looks there for `sitecustomize` before our first line runs.
    """
    folders = _roots(roots)
    held = _held_in(folders)
    entries = [*sys.path, *_of_path_files(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    places = dict.fromkeys(os.path.realpath(entry) for entry in entries if os.path.isabs(entry))
    found: list[str] = []
    for place in places:
        if _leads_into(place, folders) and not _leads_into(place, held):
            for name in _AT_START:
                start = os.path.join(place, name)
                found += [start + suffix for suffix in all_suffixes()]
                found += [os.path.join(start, f"__init__{suffix}") for suffix in (".py", ".pyc")]
    return found


def _of_path_files() -> Iterator[str]:
    """The folders that `.pth` files beside the packages add to the path."""
    for folder in site.getsitepackages():
        for file in sorted(Path(folder).glob("*.pth")):
            try:
                with open(file, encoding="utf-8", errors="surrogateescape") as lines:
                    text = lines.read(_LONGEST_PATH_FILE)
            except OSError:
                continue
            for line in text.splitlines():
                if line.strip() and "\0" not in line and not line.startswith(("#", "import ", "import\t")):
                    yield os.path.join(folder, line.rstrip())


def _held_in(roots: Iterable[str]) -> list[str]:
    """Our own folders that are in a root and read-only there. A folder around a root, such as `/usr`, is not."""
    ours = own_folders()
    return [name for root in roots for name in own_names_in(root, ours)]


def _roots(folders: Iterable[str]) -> list[str]:
    """The folders as spelled and with their links followed, without `/`: nothing would be outside of it."""
    spelled = [os.path.abspath(folder) for folder in folders]
    return [root for root in dict.fromkeys([*spelled, *map(os.path.realpath, spelled)]) if root != os.path.sep]


def _part_in(path: str, folders: Iterable[str], *, but: Sequence[str] = ()) -> str:
    """The first place on the way to `path` that is in one of the folders, or an empty text.

    Places in `but`, on the way to it, and the folders themselves do not count: no command can move those.
    """
    roots = _roots(folders)
    ends = (os.path.abspath(path), os.path.realpath(path))
    for place in way_to(path):
        if not is_in(place, roots) or is_in(place, but):
            continue
        if place in ends or not (place in roots or any(is_in(held, [place]) for held in but)):
            return place
    return ""


def way_to(path: str) -> Iterator[str]:
    """Every file, folder and link that the system passes on the way to the path, and the target."""
    rest = os.path.abspath(path).split(os.path.sep)
    current, links = os.path.sep, 0
    while rest:
        part = rest.pop(0)
        if part in ("", os.path.curdir):
            continue
        if part == os.path.pardir:
            current = os.path.dirname(current)
            continue
        current = os.path.join(current, part)
        yield current
        try:
            target = os.readlink(current)
        except OSError:  # not a link
            continue
        links += 1
        if links > _MOST_LINKS:
            return
        rest = [*target.split(os.path.sep), *rest]
        current = os.path.sep if os.path.isabs(target) else os.path.dirname(current)


def _leads_into(path: str, folders: Sequence[str]) -> bool:
    return is_in(os.path.abspath(path), folders) or is_in(os.path.realpath(path), folders)
