"""Checks whether a command can enter and write a folder, and whether a path exists; finds a place for temporary files.

Commands have none of root's privileges, so for root the mode and the owner of a folder decide.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from functools import cache

from .errors import SandboxError, UnfitFolder
from .profile import SandboxProfile, is_beneath, runs_as_a_whole


def check_folders(profile: SandboxProfile) -> None:
    """Raises `UnfitFolder` for a write root that is not a folder, that no command can enter, or whose files all run."""
    for root in profile.write:
        if not os.path.isdir(root):
            raise UnfitFolder(f"the write root {root!r} is not a folder that exists")
        if why := why_not_entered(root):
            raise UnfitFolder(f"no command could work in {root!r}: {why}")
        if profile.protected and runs_as_a_whole(root):
            raise UnfitFolder(
                f"every file in {root!r} runs at login or by its name, so commands may not write there: "
                "work in another folder, and copy the result yourself"
            )


def temporary_outside(folders: Sequence[str], *, first: Sequence[str] = ()) -> str:
    """A folder for temporary files that is in none of the folders. Raises `SandboxError` if there is none."""
    own = f"/run/user/{os.getuid()}"
    for candidate in (*first, *_system_temporary(), "/var/tmp", "/dev/shm", own, os.path.expanduser("~/.cache")):
        parent = os.path.realpath(candidate)
        if os.access(parent, os.W_OK | os.X_OK) and not any(is_beneath(parent, folder) for folder in folders):
            return parent
    where = f" outside of {', '.join(map(repr, folders))}" if folders else ""
    raise SandboxError(f"no temporary folder{where} can be written: set TMPDIR to one that can", remedy="")


def why_not_written(folder: str) -> str:
    """Why a command cannot create files in the folder, or an empty text."""
    return why_not_entered(folder) or _why_not(folder, os.W_OK, "write to")


def why_not_entered(folder: str, *, alone: bool = False) -> str:
    """Why a command cannot reach the folder, or an empty text. `alone`: without checking the folders around it."""
    for place in (*(() if alone else reversed(folders_above(folder))), folder):
        why = _why_not(place, os.X_OK, "enter")
        if why:
            return why
    return ""


def folders_above(folder: str) -> list[str]:
    """The folders around it, the nearest first."""
    found: list[str] = []
    while (parent := os.path.dirname(folder)) != folder:
        found.append(parent)
        folder = parent
    return found


def _why_not(folder: str, right: int, doing: str) -> str:
    try:
        state = os.stat(folder)
        if right == os.W_OK and os.statvfs(folder).f_flag & os.ST_RDONLY:
            return f"{folder!r} is on a read-only file system"
    except OSError as error:
        return f"{folder!r} cannot be reached ({error.strerror})"
    if not os.access(folder, right, effective_ids=os.access in os.supports_effective_ids):
        whose = "" if state.st_uid == os.geteuid() else f" and belongs to {_name(state.st_uid)}"
        return f"this user may not {doing} {folder!r}, which has mode {state.st_mode & 0o7777:04o}{whose}"
    if os.geteuid() == 0 and not _has_bits(state, right):
        return (
            f"{folder!r} has mode {state.st_mode & 0o7777:04o} and belongs to {_name(state.st_uid)}, and commands have "
            f"none of root's privileges to {doing} it: run as that user"
        )
    return ""


def _has_bits(state: os.stat_result, right: int) -> bool:
    """Whether the mode gives this user the right without privileges."""
    if state.st_uid == os.geteuid():
        return bool(state.st_mode >> 6 & right)
    is_member = state.st_gid == os.getegid() or state.st_gid in os.getgroups()
    return bool(state.st_mode >> (3 if is_member else 0) & right)


def _system_temporary() -> tuple[str, ...]:
    try:
        return (tempfile.gettempdir(),)
    except FileNotFoundError:  # Python finds no writable temporary folder
        return ()


def _name(user: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(user).pw_name
    except (ImportError, KeyError):
        return f"user {user}"


def exists(path: str) -> bool:
    """Whether the path exists, also as a broken link. Fast for missing paths."""
    # `lexists` raises and catches an exception for each.
    return os.access(path, os.F_OK, follow_symlinks=False) if _can_ask_about_links() else os.path.lexists(path)


@cache
def _can_ask_about_links() -> bool:
    """Whether `os.access` can check a link itself. Older C libraries refuse, which would look like "missing"."""
    try:
        return os.access(os.path.sep, os.F_OK, follow_symlinks=False)
    except NotImplementedError:
        return False
