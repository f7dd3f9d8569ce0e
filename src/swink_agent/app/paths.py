"""Where the application keeps its files, and how it writes them: whole or not at all.

Owns the folder of settings and keys, and that of data. The cache of models belongs to `local`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .errors import UsageProblem

__all__ = ["beneath_home", "config_folder", "data_folder", "write_whole"]

CONFIG_VARIABLE = "SWINK_CONFIG_DIR"
DATA_VARIABLE = "SWINK_DATA_DIR"


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's folder for settings and keys: `SWINK_CONFIG_DIR`, else the platform's usual place."""
    given = environ.get(CONFIG_VARIABLE)
    if given:
        return beneath_home(given, CONFIG_VARIABLE).absolute()
    import platformdirs

    return Path(platformdirs.user_config_dir("swink-agent", appauthor=False))


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's folder for what runs leave behind, such as copies for undo: `SWINK_DATA_DIR`, else the usual place."""
    given = environ.get(DATA_VARIABLE)
    if given:
        return beneath_home(given, DATA_VARIABLE).absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("swink-agent", appauthor=False))


def beneath_home(given: str, where: str) -> Path:
    """The path, in which `~` is somebody's home. Raises `UsageProblem` if there is no such person."""
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise UsageProblem(f"{given} is no path: nobody has a home folder of that name ({where})") from error


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o600) -> None:
    """Replaces the file in one step, so that a reader or a crash sees the old content or the new, never half.

    A link is followed, so that a file kept elsewhere stays there; a file that exists keeps its mode, unless the mode
    asked for is stricter. Missing folders are made for the user alone. What is no file, such as a pipe or a device, is
    written into and stays what it is. Raises `OSError`.
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
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # for the user alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
