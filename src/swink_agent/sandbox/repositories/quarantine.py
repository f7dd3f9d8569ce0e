"""Reads and renames files in a folder that a hostile command may be changing at the same time.

A folder is opened from its root without following links and used by its descriptor alone. Whatever is swapped on the
way meanwhile, nothing outside of the folder is read or written.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from typing import TypeAlias

from swink_agent.core.machine.beneath import FILE, FOLDER

_PASSED = getattr(os, "O_PATH", os.O_RDONLY) | FOLDER
_MOST_NUMBERED = 100
_ASIDE = re.compile(r"\.swink-[0-9a-f]+$")

FileCopy: TypeAlias = tuple[bytes, int]
"""The content of a file and its permission bits."""


def is_aside(path: str) -> bool:
    """Whether a file has a name that `OpenFolder.move_aside` gives. No program reads files of such names."""
    return _ASIDE.search(path) is not None


class OpenFolder:
    """The folder `path`, at or beneath `root`. A context manager.

    Raises `OSError` if there is no such folder or a link is on the way.
    """

    def __init__(self, root: str, path: str) -> None:
        # A root is real, but may be in a folder that another command writes, and be replaced by a link. Only Linux
        # opens folders above it that this user may enter and not read.
        top, above = (os.path.sep, root) if hasattr(os, "O_PATH") else (root, "")
        parts = [*filter(None, above.split(os.path.sep)), *os.path.relpath(path, root).split(os.path.sep)]
        self.descriptor = os.open(top, _PASSED & ~os.O_NOFOLLOW)
        for number, part in enumerate(parts, 1):
            try:
                inner = os.open(part, FOLDER if number == len(parts) else _PASSED, dir_fd=self.descriptor)
            finally:
                os.close(self.descriptor)
            self.descriptor = inner

    def __enter__(self) -> OpenFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def read(self, name: str, most: int) -> FileCopy | None:
        """The file's content and mode, or `None` if it is a link, a special file or larger than `most`."""
        state = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        if not stat.S_ISREG(state.st_mode) or state.st_size > most:
            return None
        file = os.open(name, FILE, dir_fd=self.descriptor)
        try:
            mode = os.fstat(file).st_mode
            if not stat.S_ISREG(mode):
                return None
            data = b""
            while len(data) <= most and (chunk := os.read(file, most + 1 - len(data))):
                data += chunk
            return (data, stat.S_IMODE(mode)) if len(data) <= most else None
        finally:
            os.close(file)

    def move_aside(self, name: str, before: FileCopy | None = None) -> str:
        """Renames the file to a name that no program looks for, and returns that name.

        `before` is what the file was earlier: a new file with that content takes its place.
        """
        try:
            return self._move_aside(name, before)
        except PermissionError:  # a command may have closed the folder; its owner can open it again
            os.fchmod(self.descriptor, os.fstat(self.descriptor).st_mode & 0o7777 | 0o700)
            return self._move_aside(name, before)

    def _move_aside(self, name: str, before: FileCopy | None) -> str:
        os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        # Written before anything is renamed: a crash never leaves half a file under the old name.
        made = None if before is None else self._write(*before)
        kept = self._free_name(os.fsdecode(os.fsencode(name)[:200]))
        try:
            os.rename(name, kept, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
            if made is not None:
                os.rename(made, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except OSError:
            if made is not None:
                with suppress(OSError):
                    os.unlink(made, dir_fd=self.descriptor)
            raise
        return kept

    def _free_name(self, name: str) -> str:
        for number in range(1, _MOST_NUMBERED):
            try:
                os.stat(f"{name}.swink-{number}", dir_fd=self.descriptor, follow_symlinks=False)
            except FileNotFoundError:
                return f"{name}.swink-{number}"
        return f"{name}.swink-{secrets.token_hex(8)}"

    def _write(self, data: bytes, mode: int) -> str:
        made = f".new.swink-{secrets.token_hex(8)}"
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self.descriptor)
        try:
            while data:
                data = data[os.write(file, data) :]
            os.fchmod(file, mode)
        finally:
            os.close(file)
        return made

    def open_up(self, name: str) -> None:
        """Lets the owner read and enter a folder in this one. Only Linux can do that without following a link."""
        inner = os.open(name, getattr(os, "O_PATH", os.O_RDONLY) | FOLDER, dir_fd=self.descriptor)
        try:
            os.chmod(f"/proc/self/fd/{inner}", os.fstat(inner).st_mode & 0o7777 | 0o700)
        finally:
            os.close(inner)
