"""Finds a folder's repository if it is outside of the folder: that of a linked work tree, a module, or a folder above.

A commit writes there, so the default profile lets commands do so, except to git's configuration and hooks. If a `.git`
file names the repository, the repository must name the folder in turn: the file may have come from elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_LARGEST_FILE = 64 * 1024
_IN_MODULES = f"{os.path.sep}.git{os.path.sep}modules{os.path.sep}"


def repository_folders(folder: str) -> tuple[str, ...]:
    """Git's own folders, outside of `folder`, that a commit in it writes to. Empty if it has its own, or none."""
    folder = os.path.realpath(folder)
    git = os.path.join(folder, ".git")
    if os.path.islink(git) or os.path.isdir(git):
        return ()
    found = _named_by(git, folder) if os.path.lexists(git) else _above(folder)
    is_fit = found is not None and is_git_folder(found) and _is_ours(found) and not f"{found}/".startswith(f"{folder}/")
    return (found,) if found is not None and is_fit else ()


def is_git_folder(folder: str) -> bool:
    """Whether the folder itself is one that git uses as a repository."""
    return os.path.basename(folder) == ".git" or _IN_MODULES in folder


def is_layout(names: Iterable[str]) -> bool:
    """Whether git uses a folder with these names in it as a repository: bare, of a module, or of a work tree."""
    folded = {name.lower() for name in names}
    return "head" in folded and ({"objects", "refs"} <= folded or "commondir" in folded)


def _named_by(git: str, folder: str) -> str | None:
    """The repository that a `.git` file names, if the repository names the folder in turn."""
    place = _after(read_text(git), r"gitdir:\s*(.+)")
    if place is None:
        return None
    place = os.path.realpath(os.path.join(folder, place))
    back = read_text(os.path.join(place, "gitdir")).strip()
    if back:  # a linked work tree
        if os.path.realpath(os.path.join(place, back)) != git:
            return None
        common = os.path.realpath(os.path.join(place, read_text(os.path.join(place, "commondir")).strip() or "."))
        return common if os.path.dirname(os.path.dirname(place)) == common else None
    tree = _after(read_text(os.path.join(place, "config")), r"(?m)^\s*worktree\s*=\s*\"?([^\"\n]+)")
    return place if tree is not None and os.path.realpath(os.path.join(place, tree.strip())) == folder else None


def _above(folder: str) -> str | None:
    """The `.git` of the nearest folder above, as git would find it, unless it is in a home or not this user's."""
    home = os.path.realpath(os.path.expanduser("~"))
    while (parent := os.path.dirname(folder)) != folder and folder != home:
        git = os.path.join(parent, ".git")
        if os.path.lexists(git):
            is_plain = os.path.isdir(git) and not os.path.islink(git)
            return git if is_plain and os.path.isfile(os.path.join(git, "HEAD")) and parent != home else None
        folder = parent
    return None


def _is_ours(folder: str) -> bool:
    try:
        return os.lstat(folder).st_uid == os.geteuid() and os.path.isdir(os.path.join(folder, "objects"))
    except OSError:
        return False


def read_text(path: str, most: int = _LARGEST_FILE) -> str:
    """The beginning of a regular file, or an empty text."""
    try:
        if not os.path.isfile(path):
            return ""
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read(most)
    except OSError:
        return ""


def _after(text: str, pattern: str) -> str | None:
    found = re.search(pattern, text)
    return found[1].strip() if found else None
