"""Compares what bubblewrap mounted with the folders of the profile, before the command starts.

bubblewrap mounts by path. A program that may write a folder on the way, such as a command of another sandbox, can put
a link there in that moment. Owns the folders of one command as they were when its mounts were decided, and the
comparison. `bubblewrap/command` waits for it.
"""

from __future__ import annotations

import os

from ..errors import SandboxError
from ..kernel.calls import open_without_links
from ..kernel.mounts import read_mounts


class MountedFolders:
    """The folders that one command sees at their own paths. Each must still be the folder that it was."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}
        self._roots: set[str] = set()
        self.is_alone = True
        """Whether no other sandbox runs commands in or around the folders that may be written: none can swap one."""

    def expect(self, path: str, *, is_root: bool = False) -> bool:
        """Notes what is at a path now. Returns false for a path that is missing or leads through a link."""
        try:
            self._known[path] = _identity(path)
        except OSError:
            return False
        if is_root:
            self._roots.add(path)
        return True

    def are_mounted(self, process: int) -> bool:
        """Whether the process has made its mounts, and they are the folders. Raises `SandboxError` if they are not.

        True at once if no command can have swapped a folder: waiting for the mounts takes some milliseconds.
        """
        if self.is_alone and self._known.keys() == self._roots:
            return True
        root = f"/proc/{process}/root"
        try:
            # bubblewrap's own /dev appears with the root that it enters when all else is mounted.
            if os.stat(f"{root}/dev").st_dev == os.stat("/dev").st_dev:
                return False
        except FileNotFoundError:
            return False
        except PermissionError:
            return True  # a bubblewrap that is setuid root, into which we cannot look
        points = {mount.point for mount in read_mounts(f"/proc/{process}/mountinfo")}
        for path, identity in self._known.items():
            try:
                is_same = path in points and _identity(path, root) == identity
            except OSError:
                is_same = False
            if not is_same:
                raise SandboxError(f"the command was not run: {path!r} was replaced while it started", remedy="")
        return True


def _identity(path: str, root: str = "/") -> tuple[int, int]:
    descriptor = open_without_links(path, root)
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return status.st_dev, status.st_ino
