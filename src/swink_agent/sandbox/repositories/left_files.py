"""What of a repository, or of an editor's folder, can make a program run, and by what it is known to have changed.

Owns the names, and the look at inodes. Follows no link. What is done about what changed is in `repositories/leftovers`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container
from contextlib import suppress

__all__ = [
    "FOLDERS",
    "Signature",
    "editor_files",
    "files_of",
    "identity_of",
    "inode_of",
    "is_folder",
    "may_run",
    "signature_of",
]

FOLDERS = ("hooks", "rebase-merge", "sequencer")
_FILES = (
    *("config", "config.worktree", "commondir", *FOLDERS, "rebase-merge/git-rebase-todo", "rebase-merge/strategy"),
    *("sequencer/todo", "sequencer/opts"),
)

Signature = tuple[int, int, int]


def files_of(repository: str, held: Container[str]) -> list[str]:
    """Whatever in a repository makes git run something, there or not; itself alone, where it is no folder."""
    if os.path.islink(repository) or not os.path.isdir(repository):
        return [repository]
    hooks = os.path.join(repository, "hooks")
    inner: list[str] = []
    if hooks not in held and not os.path.islink(hooks):
        with suppress(OSError):
            inner = [os.path.join(hooks, name) for name in os.listdir(hooks) if not name.endswith(".sample")]
    return [repository, *(f"{repository}/{name}" for name in _FILES), *inner]


def editor_files(path: str) -> list[str]:
    if os.path.islink(path):
        return [path]
    try:
        return [path, *(os.path.join(path, name) for name in os.listdir(path))]
    except OSError:
        return [path]


def identity_of(folder: str) -> int:
    """Another number whenever something in the folder came or went, or it is another one. 0 if it is none."""
    try:
        state = os.lstat(folder)
    except OSError:
        return 0
    return state.st_ctime_ns ^ state.st_ino if stat.S_ISDIR(state.st_mode) else 0


def signature_of(path: str) -> Signature | None:
    try:
        state = os.lstat(path)
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_ctime_ns


def inode_of(path: str) -> int:
    signature = signature_of(path)
    return signature[1] if signature else 0


def is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def may_run(path: str) -> bool:
    """Whether git would run a hook: a file that may be executed, or a link to one."""
    return os.path.islink(path) or os.access(path, os.X_OK)
