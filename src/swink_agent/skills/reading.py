"""Reads files of a skill without following links, waiting, or reading more than a limit.

`skill` interprets the files.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from swink_agent.core.machine import beneath
from swink_agent.rendering.texts.invisible import is_deceptive

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
    with _opened(folder, expected) as root:
        try:
            return beneath.read_beneath(root, parts, most)
        except OSError as error:
            why = f"is larger than {most:,} bytes" if error.errno == errno.EFBIG else _why(error)
            raise SkillFileError(f"{name} {why}") from error


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
                with suppress(OSError), beneath.folder_beneath(descriptor, [entry.name]) as inner:
                    walk(inner, f"{before}{entry.name}/", depth + 1)

    with _opened(folder, expected) as root:
        walk(root, "", 1)
    return found


@contextmanager
def _opened(folder: Path, expected: FolderId | None) -> Generator[int]:
    """The folder, held open; it may be a link, as the user gave it."""
    with ExitStack() as held:
        try:
            root = held.enter_context(beneath.opened_folder(folder, is_followed=True))
        except OSError as error:
            raise SkillFileError(f"{folder} {_why(error)}") from error
        found = os.fstat(root)
        if expected is not None and (found.st_dev, found.st_ino) != expected:
            raise SkillFileError(f"{folder} is not the folder that was found at the start")
        yield root


def _why(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return "is a link, which is not followed"
    if error.errno == errno.ENOENT:
        return "does not exist"
    if error.errno in (errno.EINVAL, errno.EISDIR):
        return "is not a regular file"
    return f"cannot be read: {error.strerror or error}"
