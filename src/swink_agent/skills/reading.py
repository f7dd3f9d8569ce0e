"""Reads files of a skill without following links, waiting, or reading more than a limit.

`skill` interprets the files.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from swink_agent.rendering.texts.invisible import is_deceptive

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 6


class SkillFileError(Exception):
    """A file of a skill cannot be used. The message has the reason."""


FolderId = tuple[int, int]
"""The identity of a folder, as `identity_of` returns it."""


def read_beneath(folder: Path, name: str, most: int, expected: FolderId | None = None) -> bytes:
    """The content of a file beneath a folder. Raises `SkillFileError`, also for links and anything but regular files.

    With `expected`, the folder must still be that one: meanwhile a link to anywhere may have replaced it.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise SkillFileError(f"{name!r} is not the path of a file in the skill")
    with _opened(folder, parts[:-1], expected) as above:
        try:
            descriptor = os.open(parts[-1], _FILE, dir_fd=above)
        except OSError as error:
            raise SkillFileError(f"{name} {_why(error)}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SkillFileError(f"{name} is not a regular file")
    with open(descriptor, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise SkillFileError(f"{name} is larger than {most:,} bytes")
    return data


def files_beneath(folder: Path, most: int, expected: FolderId | None = None) -> list[str]:
    """The files in a folder and in those beneath it, in order, at most `most`.

    Links, and names with invisible characters, are left out.
    """
    found: list[str] = []

    def walk(descriptor: int, before: str, depth: int) -> None:
        with os.scandir(descriptor) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        for entry in listed:
            if len(found) >= most:
                return
            if any(map(is_deceptive, entry.name)):
                continue
            if entry.is_file(follow_symlinks=False):
                found.append(before + entry.name)
            elif entry.is_dir(follow_symlinks=False) and depth < _DEEPEST:
                try:
                    inner = os.open(entry.name, _FOLDER, dir_fd=descriptor)
                except OSError:
                    continue
                try:
                    walk(inner, f"{before}{entry.name}/", depth + 1)
                finally:
                    os.close(inner)

    with _opened(folder, [], expected) as root:
        walk(root, "", 1)
    return found


@contextmanager
def _opened(folder: Path, parts: list[str], expected: FolderId | None) -> Generator[int]:
    """A descriptor of the folder that these parts lead to, each opened without following a link."""
    try:
        current = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SkillFileError(f"{folder} {_why(error)}") from error
    try:
        found = os.fstat(current)
        if expected is not None and (found.st_dev, found.st_ino) != expected:
            raise SkillFileError(f"{folder} is not the folder that was found at the start")
        for part in parts:
            try:
                inner = os.open(part, _FOLDER, dir_fd=current)
            except OSError as error:
                raise SkillFileError(f"{'/'.join(parts)} {_why(error)}") from error
            os.close(current)
            current = inner
        yield current
    finally:
        os.close(current)


def _why(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return "is a link, which is not followed"
    if error.errno == errno.ENOENT:
        return "does not exist"
    return f"cannot be read: {error.strerror or error}"
