"""Names the files of a repository or an editor's folder that can start a program, and detects whether they changed.

Changes are detected by inode. Follows no links. `leftovers` decides what happens to a changed file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container
from contextlib import suppress

STATE_FOLDERS = ("rebase-merge", "sequencer")
FOLDERS = ("hooks", *STATE_FOLDERS)
_FILES = (
    *("config", "config.worktree", "commondir", *FOLDERS, "rebase-merge/git-rebase-todo", "rebase-merge/strategy"),
    *("sequencer/todo", "sequencer/opts"),
)

Signature = tuple[int, int, int]


def files_of(repository: str, held: Container[str]) -> list[str]:
    """Every path in a repository that can make git run something, existing or not. A `.git` file is its own path."""
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
    """A number that changes when an entry is added or removed or the folder is replaced. 0 if it is not a folder."""
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
