"""Compares what bubblewrap mounted with what was opened, before the command starts.

bubblewrap mounts by path, and leaves every descriptor that it is given to the command. A program that may write a
folder on the way to a path, such as a command of another sandbox, can put a link there in that moment. So each path is
opened first, and the command waits until its mounts are compared with that. `bubblewrap/command` waits for it.
"""

from __future__ import annotations

import os

from ..errors import SandboxError
from ..kernel.calls import close_all, open_without_links
from ..kernel.mounts import read_mounts


class MountedPaths:
    """What one command must see at its paths: the opened files and folders, and covers over hidden ones."""

    def __init__(self) -> None:
        self._opened: dict[str, int] = {}
        self._covers: set[str] = set()

    def open(self, path: str) -> bool:
        """Opens what is at a path now. Returns false if it is missing or leads through a link."""
        try:
            self._opened[path] = open_without_links(path)
        except OSError:
            return False
        return True

    def descriptor(self, path: str) -> int:
        """The descriptor of a path that was opened."""
        return self._opened[path]

    def cover(self, path: str) -> None:
        self._covers.add(path)

    def are_made(self, process: int) -> bool:
        """Whether the process has made its mounts, and they are what was opened. Raises `SandboxError` if not."""
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
        if not points:  # it has ended
            return False
        for path, opened in self._opened.items():
            if path not in points or not _is_at(opened, path, root):
                raise _replaced(path)
        for path in self._covers - points:
            raise _replaced(path)
        return True

    def close(self) -> None:
        """Closes what was opened. Idempotent."""
        opened, self._opened = self._opened, {}
        close_all(opened.values())


def _is_at(opened: int, path: str, root: str) -> bool:
    try:
        found = open_without_links(path, root)
    except OSError:
        return False
    try:
        return os.path.samestat(os.fstat(opened), os.fstat(found))
    finally:
        os.close(found)


def _replaced(path: str) -> SandboxError:
    return SandboxError(f"the command was not run: {path!r} was replaced while it started", remedy="")
