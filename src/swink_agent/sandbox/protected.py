"""Finds the paths beneath the write roots that must stay read-only, as the disk is now.

Searches for repositories and walks along each path; the back ends enforce the result. Only reads the disk. The search
for repositories follows no link beneath a root, and is bounded in folders, depth and repositories.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Container, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache

from swink_agent.core.values.value import Value

from .errors import UnfitFolder
from .kernel.mounts import network_mounts
from .names import PROTECTED_NAMES
from .places import exists, folders_above, why_not_entered
from .profile import SandboxProfile, is_beneath
from .programs import run_at_start
from .repositories.admission import is_settings
from .repositories.enclosing import is_git_folder, is_layout, read_text
from .repositories.git_config import LARGEST, read_settings

_MOST_FOLDERS = 1000
_MOST_REPOSITORIES = 32
_DEEPEST = 3
_NOT_SEARCHED = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache", ".cache"})
_MOST_CONFIGS = 32


class Protection(StrEnum):
    """How a path beneath a write root is protected."""

    PINNED = "pinned"
    """A folder on the way to a protected path: files in it may change, but not its name or place."""
    READ_ONLY = "read_only"
    """A protected file or folder that exists."""


class Protected(Value, frozen=True):
    """One path beneath a write root, and how it is protected."""

    path: str
    kind: Protection


def protected_paths(profile: SandboxProfile) -> tuple[str, ...]:
    """Every path beneath the write roots that is read-only if it exists.

    The profile's names, those of `NAMES` in folders further in, those of repositories with their modules and work
    trees, configuration that those include, and what is protected in a home folder. Searched for within bounds.
    """
    names = [*profile.protected_names(), *profile.at_home()]
    in_repository = tuple(name[5:] for name in profile.protected if name.startswith(".git/"))
    further_in = [name for name in profile.protected if name in PROTECTED_NAMES]
    for root in profile.write if further_in else ():
        repositories, others = _search(root, further_in)
        names.extend(others)
        for folder in repositories if in_repository else ():
            names.extend(_names_of(folder, root, in_repository))
    return tuple(name for name in dict.fromkeys(names) if not profile.is_opened(name))


def existing(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if exists(path)]


def settings_among(paths: Iterable[str], profile: SandboxProfile) -> list[str]:
    """The paths that are git configurations, whose harmless settings a command may change through git.

    Not files that the profile names itself, outside of a `.git`, and that only have the same name.
    """
    others = _besides_git(profile.write, profile.protected)
    return [path for path in paths if is_settings(path) and path not in others]


@lru_cache(maxsize=8)
def _besides_git(write: tuple[str, ...], protected: tuple[str, ...]) -> frozenset[str]:
    """The paths that are protected by name outside of a `.git`. Cached, because every command needs them."""
    return frozenset(os.path.join(root, name) for root in write for name in protected if name[:5] != ".git/")


def protected_now(
    roots: Sequence[str], protected: Iterable[str], hidden: Iterable[str], own: Container[str] = ()
) -> tuple[Protected, ...]:
    """How to protect the paths beneath the roots, parents before children.

    Missing paths are left out: `repositories/leftovers` judges what a command makes there. Raises `UnfitFolder` if a
    name in `own` is a link or leads through one: a link cannot be kept in place. Other links are left out too.
    """
    found: dict[str, Protection] = {}
    folders = tuple(roots)
    for path in protected:
        if way := _way(folders, path):
            _walk(*way, found, strict=path in own)
    for outer in roots:
        # A root inside another must not be swapped for a link, and hidden files must not be moved out of hiding.
        inner = [root for root in roots if root != outer] + [os.path.dirname(path) for path in hidden]
        for path in dict.fromkeys(inner):
            if path != outer and is_beneath(path, outer):
                _walk(outer, _parts(outer, path), found, strict=False, pin_last=True)
    read_only = [path for path, kind in found.items() if kind is Protection.READ_ONLY]
    return tuple(
        [
            Protected(path, kind)
            for path, kind in sorted(found.items())
            if not read_only or not any(path != other and is_beneath(path, other) for other in read_only)
        ]
    )


@lru_cache(maxsize=4096)
def _way(roots: tuple[str, ...], path: str) -> tuple[str, tuple[str, ...]] | None:
    """The innermost root that the path is in, and the names from there. Cached, because every command needs them."""
    root = max((root for root in roots if is_beneath(path, root)), key=len, default=None)
    return None if root is None else (root, _parts(root, path))


def _parts(root: str, path: str) -> tuple[str, ...]:
    return tuple(path[len(root) + 1 :].split(os.path.sep))


def _walk(
    root: str, parts: Sequence[str], found: dict[str, Protection], *, strict: bool, pin_last: bool = False
) -> None:
    current = root
    for index, part in enumerate(parts):
        current = f"{current}/{part}"
        if found.get(current) is Protection.READ_ONLY:
            return
        if found.get(current) is Protection.PINNED and index < len(parts) - 1:
            continue
        try:
            state = os.lstat(current) if exists(current) else None
        except OSError:
            state = None
        if state is None:
            return
        if stat.S_ISLNK(state.st_mode):
            if strict:
                raise UnfitFolder(
                    f"{current!r} is a symbolic link and cannot be kept read-only here: make it a plain file or "
                    "folder, or leave its name out of the profile's protected names"
                )
            return
        is_last = index == len(parts) - 1
        if not stat.S_ISDIR(state.st_mode) or (is_last and not pin_last):
            found[current] = Protection.READ_ONLY
            return
        found.setdefault(current, Protection.PINNED)


# -- repositories ------------------------------------------------------------------------------------------------


def _search(root: str, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The repositories beneath the root, breadth first, and the other names in folders that exist.

    A repository is a `.git` file or folder, or a folder that is one itself.
    """
    found: list[str] = []
    others: list[str] = []
    wanted = [(name.partition("/")[0], name) for name in names if not name.startswith(".git/")]
    queue: deque[tuple[str, int]] = deque([(root, 0)])
    looked = 0
    as_root = os.geteuid() == 0
    slow = network_mounts() - {root}
    while queue and looked < _MOST_FOLDERS and len(found) < _MOST_REPOSITORIES:
        folder, depth = queue.popleft()
        looked += 1
        if folder in slow:
            continue
        if as_root and why_not_entered(folder, alone=True):
            continue  # a command cannot enter it either, and bubblewrap would fail
        try:
            with os.scandir(folder) as entries:
                folders = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            continue
        others += [os.path.join(folder, name) for first, name in wanted if first in folders]
        if ".git" in folders:
            found.append(os.path.join(folder, ".git"))
        if folders.get("objects") and folders.get("refs") and "HEAD" in folders:
            found.append(folder)
            continue
        if depth < _DEEPEST:
            inner = (name for name, is_folder in folders.items() if is_folder and name != ".git")
            queue.extend((os.path.join(folder, name), depth + 1) for name in inner if name not in _NOT_SEARCHED)
    return found, existing(others)


def _names_of(git_folder: str, root: str, names: tuple[str, ...]) -> list[str]:
    """The protected paths of one repository, with its modules and its work trees."""
    if not os.path.isdir(git_folder) or os.path.islink(git_folder):
        return [git_folder]  # a file that names the repository's folder, or a link to it
    paths = [os.path.join(git_folder, name) for name in names]
    for module in _modules(os.path.join(git_folder, "modules"), 0):
        paths.extend(os.path.join(module, name) for name in names)
    worktrees = os.path.join(git_folder, "worktrees")
    for worktree in _folders_in(worktrees):
        paths.extend(os.path.join(worktree, name) for name in ("commondir", "config.worktree") if name in names)
    paths.extend(existing(_included(git_folder, root)))
    return paths


def _modules(folder: str, depth: int) -> list[str]:
    """Repositories of submodules. A module's name may contain slashes."""
    found: list[str] = []
    for inner in _folders_in(folder):
        if os.path.lexists(os.path.join(inner, "HEAD")):
            found += [inner, *(_modules(os.path.join(inner, "modules"), depth + 1) if depth < _DEEPEST else ())]
        elif depth < _DEEPEST:
            found += _modules(inner, depth + 1)
    return found[:_MOST_REPOSITORIES]


def _folders_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names[:_MOST_REPOSITORIES]]


def exposed_paths(profile: SandboxProfile) -> tuple[str, ...]:
    """Paths that would run code and that no back end keeps read-only.

    They are missing files and links that the configuration of known repositories includes, and files that Python would
    run at our next start.
    """
    if not any(name.startswith(".git/") for name in profile.protected):
        return ()
    found: dict[str, None] = dict.fromkeys(run_at_start(profile.write))
    for root in profile.write:
        for folder in _search(root, ())[0]:
            if os.path.isdir(folder) and not os.path.islink(folder):
                named = _included(folder, root)
                found.update(dict.fromkeys(path for path in named if not os.path.exists(path) or os.path.islink(path)))
    return tuple(found)


def read_only_around(folder: str, profile: SandboxProfile) -> str | None:
    """A path that is read-only if a folder around this one is a write root, but not if this one is; or `None`.

    It is a repository's own folder or a protected path that this folder is in, or configuration that a repository
    around this folder includes, if that is in this folder or contains it.
    """
    for above in folders_above(folder):
        git_names = (name for name in ("HEAD", "objects", "refs") if os.path.lexists(os.path.join(above, name)))
        if is_git_folder(above) or is_layout(git_names):
            return above
        named = [os.path.join(above, name) for name in profile.protected]
        named = [path for path in named if is_beneath(folder, path)]
        git = os.path.join(above, ".git")
        if os.path.isdir(git) and not os.path.islink(git):
            named += _included(git, above)
        for path in named:
            if is_beneath(folder, path) or is_beneath(path, folder):
                return path
    return None


def _included(git_folder: str, root: str) -> list[str]:
    """Configuration in the root that the configuration of the repository or the user includes, existing or not."""
    home = os.path.expanduser("~")
    others = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    files = [os.path.join(git_folder, "config"), os.path.join(git_folder, "config.worktree")]
    files += [os.path.join(home, ".gitconfig"), os.path.join(others, "git/config"), "/etc/gitconfig"]
    included: dict[str, None] = {}
    seen: set[str] = set()
    while files and len(seen) < _MOST_CONFIGS:
        file = files.pop(0)
        if file in seen:
            continue
        seen.add(file)
        for section, _, name, value in read_settings(read_text(file, LARGEST))[0]:
            if section in ("include", "includeif") and name == "path" and value:
                place = os.path.normpath(os.path.join(os.path.dirname(file), os.path.expanduser(value)))
                files.append(place)
                included[place] = None
    return [path for path in included if path != root and is_beneath(path, root)]
