"""Where the application keeps its files, and how programs change them without a loss.

The cache of models is in `local`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from swink_agent.core.machine.files import locked, replace_file
from swink_agent.core.values.decoders import json_decoder

from ..errors import SettingsError, UsageProblem

CONFIG_VARIABLE = "SWINK_CONFIG_DIR"
DATA_VARIABLE = "SWINK_DATA_DIR"
_PATIENCE = 10.0
"""Seconds to wait while another program changes a file."""

T = TypeVar("T")


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's folder for settings and keys: `SWINK_CONFIG_DIR`, else the platform's usual place."""
    return _folder("user_config_dir", CONFIG_VARIABLE, environ)


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's folder for data of runs, such as checkpoints: `SWINK_DATA_DIR`, else the platform's usual place."""
    return _folder("user_data_dir", DATA_VARIABLE, environ)


def _folder(usual: str, variable: str, environ: Mapping[str, str]) -> Path:
    if given := environ.get(variable):
        return beneath_home(given, variable).absolute()
    import platformdirs

    try:
        folder = Path(getattr(platformdirs, usual)("swink-agent", appauthor=False))
    except RuntimeError:  # its older versions return a relative path instead
        folder = Path()
    if not folder.is_absolute():
        raise UsageProblem(f"this user has no home folder: set HOME to an absolute path, or {variable} to a folder")
    return folder


def beneath_home(given: str, where: str) -> Path:
    """The path with `~` expanded. Raises `UsageProblem` if there is no such user."""
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise UsageProblem(f"{given} is not a path: there is no user of that name ({where})") from error


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o600) -> None:
    """Replaces the file in one step: a reader sees the old content or the new, never half, also after a crash.

    Follows a link, so that a file kept elsewhere stays there. An existing file keeps its mode unless the given mode is
    stricter. Missing folders are created for the user alone. A pipe or a device is written to directly. Raises
    `OSError`.
    """
    content = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as stream:
            stream.write(content)
        return
    target = Path(os.path.realpath(path))
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        mode &= target.stat().st_mode & 0o777
    except FileNotFoundError:
        pass
    replace_file(target, content, mode=mode)


@contextmanager
def changing(path: Path) -> Generator[None]:
    """Lets one program at a time read and then replace the file, so that no change is lost. Raises `OSError`."""
    Path(os.path.realpath(path)).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(path, _PATIENCE) as is_locked:
        if not is_locked:
            raise TimeoutError(errno.ETIMEDOUT, "another program is changing it")
        yield


def read_record(path: Path, kind: type[T], what: str) -> T:
    """The content of a JSON file; empty if it does not exist. Raises `SettingsError`, whose text contains `what`."""
    try:
        return json_decoder(kind).decode(path.read_bytes())
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or error
        raise SettingsError(f"{path}, the record of {what}, cannot be read: {why}") from error


def change_record(path: Path, kind: type[T], what: str, change: Callable[[T], T]) -> bool:
    """Replaces the content of a JSON file by what `change` makes of it. Returns whether that differs.

    `change` returns a new value, and may be called twice: a file that stays the same is neither locked nor written.
    Raises `SettingsError`, whose text contains `what` if the file cannot be read.
    """
    before = read_record(path, kind, what)
    if change(before) == before:
        return False
    try:
        with changing(path):
            before = read_record(path, kind, what)
            after = change(before)
            if after != before:
                write_whole(path, msgspec.json.format(msgspec.json.encode(after), indent=2) + b"\n")
            return after != before
    except (OSError, UnicodeEncodeError) as error:
        why = (error.strerror or error) if isinstance(error, OSError) else "the folder's name is not UTF-8 text"
        raise SettingsError(f"{path} cannot be written: {why}") from error
