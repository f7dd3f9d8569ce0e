"""Which paths beneath the write roots are to stay as they are, as the disk has them now.

Owns the search for repositories and the walk along each path. How a back end holds what is found is its own. Reads
the disk only, follows no link beneath a root, and is bounded: a tree of any size is looked at for a few milliseconds.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Container, Iterable, Sequence
from enum import StrEnum

from swink_agent.core.values.value import Value

from ._places import why_not_entered
from ._presence import lock_path
from .errors import UnfitFolder
from .kernel.mounts import network_mounts
from .profile import SandboxProfile, is_beneath
from .repositories.admission import is_settings
from .repositories.enclosing import is_git_folder
from .repositories.git_config import LARGEST, Setting, read_settings

__all__ = [
    "PLACEHOLDER_STAMP",
    "Hold",
    "HoldKind",
    "exposed_paths",
    "holds",
    "hooks_in_work_trees",
    "own_names",
    "protected_paths",
    "settings_among",
    "unmade_repositories",
    "without",
]

PLACEHOLDER_STAMP = 347155199
"""The time, in seconds, that marks what stands for something missing; no file system is too coarse for it."""

_MOST_FOLDERS = 1000
_MOST_REPOSITORIES = 32
_DEEPEST = 3
_NOT_SEARCHED = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache", ".cache"})
_LARGEST_PLACEHOLDER = 2
_MOST_CONFIGS = 32


class HoldKind(StrEnum):
    """How a path beneath a write root is held."""

    PINNED = "pinned"
    """A folder on the way to something protected: written to freely, but not renamed, removed or replaced."""
    READ_ONLY = "read_only"
    """A protected file or folder that exists."""
    MISSING = "missing"
    """A protected name, or the first folder on the way to one, that does not exist and must not come to."""


class Hold(Value, frozen=True):
    """One path beneath a write root, and how it is held."""

    path: str
    kind: HoldKind


def protected_paths(profile: SandboxProfile) -> tuple[str, ...]:
    """Every path that is read-only beneath the write roots: the profile's names, and those of repositories further in.

    The names need not exist. Repositories are those that are there now, within bounds: a folder that looks like a
    repository, and the modules and work trees that it keeps.
    """
    names = list(own_names(profile))
    in_repository = tuple(name[5:] for name in profile.protected if name.startswith(".git/"))
    if in_repository:
        for root in profile.write:
            for folder in _git_folders(root):
                names.extend(_names_of(folder, root, in_repository))
    return tuple(dict.fromkeys(names))


def settings_among(paths: Iterable[str], profile: SandboxProfile) -> list[str]:
    """Those that git keeps its configuration in, whose harmless settings a command may change by git's own ways.

    Not what the profile names itself, outside of a `.git`, and happens to be called like that.
    """
    others = {os.path.join(root, name) for root in profile.write for name in profile.protected if name[:5] != ".git/"}
    return [path for path in paths if is_settings(path) and path not in others]


def own_names(profile: SandboxProfile) -> tuple[str, ...]:
    """What is read-only by name alone: the profile's, and the locks by which sandboxes know of each other."""
    locks = lock_path()
    mine = (locks,) if any(is_beneath(locks, root) for root in profile.write) else ()
    return (*profile.protected_names(), *mine)


def unmade_repositories(profile: SandboxProfile) -> tuple[str, ...]:
    """The `.git` of roots that have none. A command may make it: what it makes is judged afterwards, by its content."""
    if ".git" in profile.protected or not any(name.startswith(".git/") for name in profile.protected):
        return ()
    places = (os.path.join(root, ".git") for root in profile.write if not is_git_folder(root))
    return tuple(place for place in places if _is_missing(place))


def without(paths: Iterable[str], folders: Sequence[str]) -> list[str]:
    """The paths that are in none of the folders."""
    return [path for path in paths if not any(is_beneath(path, folder) for folder in folders)]


def _is_missing(path: str) -> bool:
    try:
        state = os.lstat(path)
    except OSError:
        return True
    return int(state.st_mtime) == PLACEHOLDER_STAMP and stat.S_ISDIR(state.st_mode) and _is_empty(path, state)


def holds(
    roots: Sequence[str], protected: Iterable[str], hidden: Iterable[str], own: Container[str] = ()
) -> tuple[Hold, ...]:
    """How to hold the protected paths beneath the roots, parents before children.

    Raises `UnfitFolder` where a name in `own` is a link or behind one: a link cannot be held in place. Links
    elsewhere are left alone, as what they lead to is either protected itself or outside of the roots.
    """
    found: dict[str, HoldKind] = {}
    for path in protected:
        root = max((root for root in roots if is_beneath(path, root)), key=len, default="")
        if root:
            _walk(root, path, found, strict=path in own)
    for outer in roots:
        # A root inside another must not be swapped for a link, nor what is hidden be moved to where nobody looks.
        inner = [root for root in roots if root != outer] + [os.path.dirname(path) for path in hidden]
        for path in dict.fromkeys(inner):
            if path != outer and is_beneath(path, outer):
                _walk(outer, path, found, strict=False, pin_last=True)
    read_only = [path for path, kind in found.items() if kind is HoldKind.READ_ONLY]
    return tuple(
        Hold(path, kind)
        for path, kind in sorted(found.items())
        if not any(path != other and is_beneath(path, other) for other in read_only)
    )


def _walk(root: str, path: str, found: dict[str, HoldKind], *, strict: bool, pin_last: bool = False) -> None:
    parts = path[len(root) + 1 :].split(os.path.sep)
    current = root
    for index, part in enumerate(parts):
        current = f"{current}/{part}"
        if found.get(current) in (HoldKind.MISSING, HoldKind.READ_ONLY):
            return
        if found.get(current) is HoldKind.PINNED and index < len(parts) - 1:
            continue
        try:
            state = os.lstat(current)
        except OSError:
            if not pin_last:
                found.setdefault(current, HoldKind.MISSING)
            return
        mode = state.st_mode
        if int(state.st_mtime) == PLACEHOLDER_STAMP and not pin_last and _is_empty(current, state):
            found[current] = HoldKind.MISSING
            return
        if stat.S_ISLNK(mode):
            if strict:
                raise UnfitFolder(
                    f"{current!r} is a symbolic link and cannot be held read-only here: make it a plain file or "
                    "folder, or leave its name out of the profile's protected names"
                )
            return
        is_last = index == len(parts) - 1
        if not stat.S_ISDIR(mode) or (is_last and not pin_last):
            found[current] = HoldKind.READ_ONLY
            return
        found.setdefault(current, HoldKind.PINNED)


def _is_empty(path: str, state: os.stat_result) -> bool:
    """Whether it holds no more than a place-holder does, whose time anybody could have set."""
    try:
        return not os.listdir(path) if stat.S_ISDIR(state.st_mode) else state.st_size <= _LARGEST_PLACEHOLDER
    except OSError:
        return False


# -- repositories ------------------------------------------------------------------------------------------------


def _git_folders(root: str) -> list[str]:
    """The `.git` files and folders beneath the root, breadth first, and folders that are repositories themselves."""
    found: list[str] = []
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
            continue  # nor can a command, and neither would bubblewrap
        try:
            with os.scandir(folder) as entries:
                folders = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            continue
        if ".git" in folders:
            found.append(os.path.join(folder, ".git"))
        if folders.get("objects") and folders.get("refs") and "HEAD" in folders:
            found.append(folder)
            continue
        if depth < _DEEPEST:
            inner = (name for name, is_folder in folders.items() if is_folder and name != ".git")
            queue.extend((os.path.join(folder, name), depth + 1) for name in inner if name not in _NOT_SEARCHED)
    return found


def _names_of(git_folder: str, root: str, names: tuple[str, ...]) -> list[str]:
    """What is protected in one repository, its modules and its work trees included."""
    if not os.path.isdir(git_folder) or os.path.islink(git_folder):
        return [git_folder]  # a file that says where the repository is, or a link to one
    paths = [os.path.join(git_folder, name) for name in names]
    for module in _modules(os.path.join(git_folder, "modules"), 0):
        paths.extend(os.path.join(module, name) for name in names)
    worktrees = os.path.join(git_folder, "worktrees")
    for worktree in _folders_in(worktrees):
        paths.extend(os.path.join(worktree, name) for name in ("commondir", "config.worktree") if name in names)
    paths.extend(path for path in _named_in_config(git_folder, root) if os.path.lexists(path))
    return paths


def _modules(folder: str, depth: int) -> list[str]:
    """Repositories of submodules; a module's name may have slashes in it."""
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
    """What the configuration of known repositories makes git read, and no back end can hold: missing, or a link."""
    if not any(name.startswith(".git/") for name in profile.protected):
        return ()
    found: dict[str, None] = {}
    for root in profile.write:
        for folder in _git_folders(root):
            if os.path.isdir(folder) and not os.path.islink(folder):
                named = _named_in_config(folder, root)
                found.update(dict.fromkeys(path for path in named if not os.path.exists(path) or os.path.islink(path)))
    return tuple(found)


def hooks_in_work_trees(profile: SandboxProfile) -> tuple[str, ...]:
    """Folders with hooks that the configuration of known repositories has in every work tree, relative to it."""
    if not any(name.startswith(".git/") for name in profile.protected):
        return ()
    found: dict[str, None] = {}
    for root in profile.write:
        for folder in _git_folders(root):
            if os.path.isdir(folder) and not os.path.islink(folder):
                found.update((value, None) for _, _, value in _named_values(folder) if value and _is_relative(value))
    return tuple(found)


def _is_relative(place: str) -> bool:
    return not os.path.isabs(os.path.expanduser(place)) and not os.path.normpath(place).startswith("..")


def _named_in_config(git_folder: str, root: str) -> list[str]:
    """Hooks and further configuration in the writable tree, by the configuration of the repository or of the user."""
    base = os.path.dirname(git_folder) if os.path.basename(git_folder) == ".git" else git_folder
    found: list[str] = []
    for file, include, hooks in _named_values(git_folder):
        if include:
            found.append(_beside(file, include))
        if hooks:
            folder = os.path.normpath(os.path.join(base, os.path.expanduser(hooks)))
            # Husky's own are in `_`, and run those of the project, which are in the folder above.
            found.append(os.path.dirname(folder) if os.path.basename(folder) == "_" else folder)
    return [path for path in dict.fromkeys(found) if path != root and is_beneath(path, root)]


def _named_values(git_folder: str) -> list[tuple[str, str, str]]:
    """What the configuration includes and where it has hooks: the file that says so, and either of the two."""
    found: list[tuple[str, str, str]] = []
    home = os.path.expanduser("~")
    others = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    files = [os.path.join(git_folder, "config"), os.path.join(git_folder, "config.worktree")]
    files += [os.path.join(home, ".gitconfig"), os.path.join(others, "git/config"), "/etc/gitconfig"]
    seen: set[str] = set()
    while files and len(seen) < _MOST_CONFIGS:
        file = files.pop(0)
        if file in seen:
            continue
        seen.add(file)
        for section, _, name, value in _settings_in(file):
            if (section, name) == ("core", "hookspath") and value:
                found.append((file, "", value))
            elif section in ("include", "includeif") and name == "path" and value:
                files.append(_beside(file, value))
                found.append((file, value, ""))
    return found


def _beside(file: str, place: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(file), os.path.expanduser(place)))


def _settings_in(path: str) -> list[Setting]:
    try:
        if not os.path.isfile(path):
            return []
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return read_settings(file.read(LARGEST))[0]
    except OSError:
        return []
