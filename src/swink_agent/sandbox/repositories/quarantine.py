"""Changing a file in a folder that a hostile command may just be changing too.

Owns a folder that is opened from its root without following a link, and what is done in it by its descriptor alone:
whatever is swapped on the way meanwhile, nothing outside of it is read or written.
"""

from __future__ import annotations

import os
import secrets
import stat

__all__ = ["OpenFolder"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class OpenFolder:
    """The folder `path`, at or beneath `root`; a context manager. Raises `OSError` for none, or one behind a link."""

    def __init__(self, root: str, path: str) -> None:
        self._descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in os.path.relpath(path, root).split(os.path.sep):
            try:
                inner = os.open(part, _FOLDER, dir_fd=self._descriptor)
            finally:
                os.close(self._descriptor)
            self._descriptor = inner

    def __enter__(self) -> OpenFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @property
    def descriptor(self) -> int:
        return self._descriptor

    def read(self, name: str, most: int) -> bytes | None:
        """What the file holds, or `None` if it is a link, a special file or larger than `most`."""
        state = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        if not stat.S_ISREG(state.st_mode) or state.st_size > most:
            return None
        file = os.open(name, _FILE, dir_fd=self._descriptor)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            data = b""
            while len(data) <= most and (chunk := os.read(file, most + 1 - len(data))):
                data += chunk
            return data if len(data) <= most else None
        finally:
            os.close(file)

    def put_away(self, name: str) -> str:
        """Gives it a name that no program looks for, and says which."""
        kept = f".swink-quarantine-{secrets.token_hex(4)}-{name.removeprefix('.')[:100]}"
        try:
            os.rename(name, kept, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except PermissionError:  # a command may have closed the folder; as its owner we can do what it could
            os.fchmod(self._descriptor, os.fstat(self._descriptor).st_mode & 0o7777 | 0o700)
            os.rename(name, kept, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        return kept

    def open_up(self, name: str) -> None:
        """Lets its owner read and enter a folder in this one; Linux alone can do so without following a link."""
        inner = os.open(name, getattr(os, "O_PATH", os.O_RDONLY) | _FOLDER, dir_fd=self._descriptor)
        try:
            os.chmod(f"/proc/self/fd/{inner}", os.fstat(inner).st_mode & 0o7777 | 0o700)
        finally:
            os.close(inner)

    def replace(self, name: str, data: bytes) -> str:
        """Puts a new file with this content there, and says how the old one is named now."""
        kept = self.put_away(name)
        self.write(name, data)
        return kept

    def write(self, name: str, data: bytes) -> None:
        """Puts a new file with this content there, in place of another."""
        made = f".swink-quarantine-{secrets.token_hex(4)}.new"
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=self._descriptor)
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)
        os.rename(made, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
