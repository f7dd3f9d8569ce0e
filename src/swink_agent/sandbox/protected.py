"""Finds the paths beneath the write roots that must stay read-only, as the disk is now.

Searches for repositories and walks along each path; the back ends enforce the result. Only reads the disk. The search
for repositories follows no link beneath a root, and is bounded in folders, depth and repositories.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache

from swink_agent.core.values.value import Value

from ._places import exists, folders_above, why_not_entered
from ._presence import lock_path
from .errors import UnfitFolder
from .kernel.mounts import network_mounts
from .profile import EDITOR_PROTECTED, SandboxProfile, is_beneath
from .programs import run_at_start, way_to
from .repositories.admission import is_settings
from .repositories.enclosing import is_git_folder, is_layout, read_text
from .repositories.git_config import LARGEST, read_settings

PLACEHOLDER_STAMP = 347155199
"""The modification time, in seconds, that marks a placeholder for a missing path. Every file system can store it."""

_MOST_FOLDERS = 1000
_MOST_REPOSITORIES = 32
_DEEPEST = 3
_NOT_SEARCHED = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache", ".cache"})
_LARGEST_PLACEHOLDER = 2
_MOST_CONFIGS = 32
_MOST_HOOKS = 64
_MOST_LOOKED_AT = 50_000
"""How many files are checked for being another name of a hook that has several names."""


class HoldKind(StrEnum):
    """How a path beneath a write root is protected."""

    PINNED = "pinned"
    """A folder on the way to a protected path: files in it may change, but not its name or place."""
    READ_ONLY = "read_only"
    """A protected file or folder that exists."""
    MISSING = "missing"
    """A protected name, or the first folder on the way to one, that does not exist and must not be created."""


class Hold(Value, frozen=True):
    """One path beneath a write root, and how it is protected."""

    path: str
    kind: HoldKind


def protected_paths(profile: SandboxProfile) -> tuple[str, ...]:
    """Every read-only path beneath the write roots: the profile's names, and those of repositories further in.

    The names need not exist. Repositories are those that exist now, within bounds: folders that look like a
    repository, with their modules and work trees.
    """
    names = list(own_names(profile))
    in_repository = tuple(name[5:] for name in profile.protected if name.startswith(".git/"))
    if in_repository:
        for root in profile.write:
            for folder in _git_folders(root):
                names.extend(_names_of(folder, root, in_repository))
    return tuple(dict.fromkeys(names))


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


def own_names(profile: SandboxProfile) -> tuple[str, ...]:
    """The paths that are read-only by name alone: the profile's, and the lock file that sandboxes share."""
    locks = lock_path()
    mine = (locks,) if any(is_beneath(locks, root) for root in profile.write) else ()
    return (*profile.protected_names(), *mine)


def unmade_repositories(profile: SandboxProfile) -> tuple[str, ...]:
    """The missing `.git` of roots. A command may create it; what it creates is judged by its content afterwards."""
    return tuple(place for place in _places_of_repositories(profile.write, profile.protected) if _is_missing(place))


@lru_cache(maxsize=8)
def _places_of_repositories(write: tuple[str, ...], protected: tuple[str, ...]) -> tuple[str, ...]:
    """The `.git` of roots that a command may create. Cached, because every command needs them."""
    if ".git" in protected or not any(name.startswith(".git/") for name in protected):
        return ()
    return tuple(os.path.join(root, ".git") for root in write if not is_git_folder(root))


def without(paths: Iterable[str], folders: Sequence[str]) -> list[str]:
    """The paths that are not in any of the folders."""
    beneath = tuple(folder.rstrip(os.path.sep) + os.path.sep for folder in folders)
    return [path for path in paths if path not in folders and not path.startswith(beneath)]


def has_mark(state: os.stat_result) -> bool:
    """Whether the status has the mark of a placeholder. It is one if it is also empty."""
    return state.st_mtime_ns // 1_000_000_000 == PLACEHOLDER_STAMP


def _is_missing(path: str) -> bool:
    if not exists(path):
        return True
    try:
        state = os.lstat(path)
    except OSError:
        return True
    return has_mark(state) and stat.S_ISDIR(state.st_mode) and _is_empty(path, state)


def holds(
    roots: Sequence[str], protected: Iterable[str], hidden: Iterable[str], own: Container[str] = ()
) -> tuple[Hold, ...]:
    """How to protect the paths beneath the roots, parents before children.

    Raises `UnfitFolder` if a name in `own` is a link or leads through one: a link cannot be kept in place. Other links
    are not held; `repositories/leftovers` judges them after a command if they changed.
    """
    found: dict[str, HoldKind] = {}
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
    read_only = [path for path, kind in found.items() if kind is HoldKind.READ_ONLY]
    return tuple(
        [
            Hold(path, kind)
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


def _walk(root: str, parts: Sequence[str], found: dict[str, HoldKind], *, strict: bool, pin_last: bool = False) -> None:
    current = root
    for index, part in enumerate(parts):
        current = f"{current}/{part}"
        if found.get(current) in (HoldKind.MISSING, HoldKind.READ_ONLY):
            return
        if found.get(current) is HoldKind.PINNED and index < len(parts) - 1:
            continue
        try:
            state = os.lstat(current) if exists(current) else None
        except OSError:
            state = None
        if state is None:
            if not pin_last:
                found.setdefault(current, HoldKind.MISSING)
            return
        mode = state.st_mode
        if has_mark(state) and not pin_last and _is_empty(current, state):
            found[current] = HoldKind.MISSING
            return
        if stat.S_ISLNK(mode):
            if strict:
                raise UnfitFolder(
                    f"{current!r} is a symbolic link and cannot be kept read-only here: make it a plain file or "
                    "folder, or leave its name out of the profile's protected names"
                )
            return
        is_last = index == len(parts) - 1
        if not stat.S_ISDIR(mode) or (is_last and not pin_last):
            found[current] = HoldKind.READ_ONLY
            return
        found.setdefault(current, HoldKind.PINNED)


def _is_empty(path: str, state: os.stat_result) -> bool:
    """Whether it is as small as a placeholder. A command could have set the placeholder's time on another file."""
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
            continue  # a command cannot enter it either, and bubblewrap would fail
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
    """The protected paths of one repository, with its modules and its work trees."""
    if not os.path.isdir(git_folder) or os.path.islink(git_folder):
        return [git_folder]  # a file that names the repository's folder, or a link to it
    paths = [os.path.join(git_folder, name) for name in names]
    for module in _modules(os.path.join(git_folder, "modules"), 0):
        paths.extend(os.path.join(module, name) for name in names)
    worktrees = os.path.join(git_folder, "worktrees")
    for worktree in _folders_in(worktrees):
        paths.extend(os.path.join(worktree, name) for name in ("commondir", "config.worktree") if name in names)
    named = [*_named_in_config(git_folder, root), *_behind_hooks(git_folder, root)]
    paths.extend(path for path in named if os.path.lexists(path))
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

    They are missing files and links that the configuration and hooks of known repositories make git read, and files
    that Python would run at our next start.
    """
    if not _protects_repositories(profile):
        return ()
    found: dict[str, None] = dict.fromkeys(run_at_start(profile.write))
    for folder, root in _known_repositories(profile):
        named = [*_named_in_config(folder, root), *_behind_hooks(folder, root)]
        found.update(dict.fromkeys(path for path in named if not os.path.exists(path) or os.path.islink(path)))
    return tuple(found)


def hooks_in_work_trees(profile: SandboxProfile) -> tuple[str, ...]:
    """Folders with hooks, relative to every work tree, that the configuration of known repositories names."""
    values = (value for folder, _ in _known_repositories(profile) for _, _, value in _named_values(folder) if value)
    return tuple(dict.fromkeys(value for value in values if _is_relative(value)))


def _known_repositories(profile: SandboxProfile) -> Iterator[tuple[str, str]]:
    """The folders of repositories beneath the roots, each with its root; none if the profile protects none."""
    for root in profile.write if _protects_repositories(profile) else ():
        for folder in _git_folders(root):
            if os.path.isdir(folder) and not os.path.islink(folder):
                yield folder, root


def _protects_repositories(profile: SandboxProfile) -> bool:
    return any(name.startswith(".git/") for name in profile.protected)


def run_by_repositories(root: str, folder: str) -> tuple[str, ...]:
    """Paths beneath `root` that git runs or reads as settings, because of the repositories around `folder`."""
    found: dict[str, None] = {}
    while is_beneath(folder, root):
        git = os.path.join(folder, ".git")
        if os.path.isdir(git) and not os.path.islink(git):
            found.update(dict.fromkeys([*_named_in_config(git, root), *_behind_hooks(git, root)]))
        folder = os.path.dirname(folder)
    return tuple(found)


def read_only_around(folder: str, profile: SandboxProfile) -> str | None:
    """A path that is read-only if a folder around this one is a write root, but not if this one is; or `None`.

    It is a repository's own folder or a protected path that this folder is in, or a path that a repository around this
    folder runs or reads as settings, if that path is in this folder or contains it.
    """
    for above in folders_above(folder):
        git_names = (name for name in ("HEAD", "objects", "refs") if os.path.lexists(os.path.join(above, name)))
        if is_git_folder(above) or is_layout(git_names):
            return above
        named = [os.path.join(above, name) for name in (*profile.protected, *EDITOR_PROTECTED)]
        named = [path for path in named if is_beneath(folder, path)]
        git = os.path.join(above, ".git")
        if os.path.isdir(git) and not os.path.islink(git):
            named += [*_named_in_config(git, above), *_behind_hooks(git, above)]
        for path in named:
            if is_beneath(folder, path) or is_beneath(path, folder):
                return path
    return None


def _is_relative(place: str) -> bool:
    return not os.path.isabs(os.path.expanduser(place)) and not os.path.normpath(place).startswith("..")


def _named_in_config(git_folder: str, root: str) -> list[str]:
    """Hooks and included configuration in the root, as named by the configuration of the repository or the user."""
    base = os.path.dirname(git_folder) if os.path.basename(git_folder) == ".git" else git_folder
    found: list[str] = []
    for file, include, hooks in _named_values(git_folder):
        if include:
            found.append(_beside(file, include))
        if hooks:
            folder = os.path.normpath(os.path.join(base, os.path.expanduser(hooks)))
            # Husky's own hooks are in `_` and run the project's hooks, which are in the folder above.
            found.append(os.path.dirname(folder) if os.path.basename(folder) == "_" else folder)
    return [path for path in dict.fromkeys(found) if path != root and is_beneath(path, root)]


def _behind_hooks(git_folder: str, root: str) -> list[str]:
    """Targets of linked hooks in the root: every link on the way, the file, and other names of the same file."""
    modules = _modules(os.path.join(git_folder, "modules"), 0)
    folders = [os.path.join(place, "hooks") for place in (git_folder, *modules)]
    folders += [path for path in _named_in_config(git_folder, root) if os.path.isdir(path)]
    found: list[str] = []
    shared: set[tuple[int, int]] = set()
    for hook in (hook for folder in folders for hook in _hooks_in(folder)):
        end = os.path.realpath(hook)
        if end != hook:
            found += [place for place in way_to(hook) if place == end or os.path.islink(place)]
        try:
            state = os.stat(end)
        except OSError:
            continue
        if state.st_nlink > 1 and stat.S_ISREG(state.st_mode):
            shared.add((state.st_dev, state.st_ino))
    found += _named_alike(root, shared) if shared else []
    inside = (path for path in dict.fromkeys(found) if path != root and is_beneath(path, root))
    return [path for path in inside if not any(is_beneath(path, folder) for folder in folders)]


def _hooks_in(folder: str) -> list[str]:
    """The hooks of a folder, and the folder itself, which may be a link too."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.endswith(".sample"))
    except OSError:
        return [folder] if os.path.islink(folder) else []
    return [folder, *(os.path.join(folder, name) for name in names[:_MOST_HOOKS])]


def _named_alike(root: str, files: Container[tuple[int, int]]) -> list[str]:
    """Other names of these files in the tree, as far as it is searched."""
    found: list[str] = []
    looked = 0
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _NOT_SEARCHED and name != "objects"]
        for name in names:
            path = os.path.join(folder, name)
            try:
                state = os.lstat(path)
            except OSError:
                continue  # deleted meanwhile
            if (state.st_dev, state.st_ino) in files:
                found.append(path)
        looked += len(names) + 1
        if looked > _MOST_LOOKED_AT:
            break
    return found


def _named_values(git_folder: str) -> list[tuple[str, str, str]]:
    """Includes and hook folders in the configuration: the file that names each, and one of the two, the other empty."""
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
        for section, _, name, value in read_settings(read_text(file, LARGEST))[0]:
            if (section, name) == ("core", "hookspath") and value:
                found.append((file, "", value))
            elif section in ("include", "includeif") and name == "path" and value:
                files.append(_beside(file, value))
                found.append((file, value, ""))
    return found


def _beside(file: str, place: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(file), os.path.expanduser(place)))
