"""The key that makes placeholders for secrets. It is stored so that placeholders stay the same across sessions.

The file is in the user's data folder, readable by the user alone and hidden from the agent's tools. Without it, a
placeholder in a resumed conversation would be meaningless: see `core.secrets.placeholders`.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from swink_agent.core.machine.beneath import FILE

from ..settings.paths import data_folder

KEY_FILE = "masking.key"
_SIZE = 32


def masking_key(folder: Path | None = None) -> bytes | None:
    """The user's key, created if missing; `None` if it cannot be stored.

    A file that others can read, or that is not a key, is replaced. Placeholders made with the old key are then refused,
    because their secrets can no longer be filled in. Nothing else is lost.
    """
    path = (data_folder() if folder is None else folder) / KEY_FILE
    try:
        return _read(path) or _made(path)
    except OSError:
        return None


def _read(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, FILE)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        is_private = stat.S_ISREG(found.st_mode) and not found.st_mode & 0o077 and found.st_uid == os.geteuid()
        key = os.read(descriptor, _SIZE + 1) if is_private else b""
    finally:
        os.close(descriptor)
    return key if len(key) == _SIZE else None


def _made(path: Path) -> bytes:
    """A new key, or the one that another process has just created."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = secrets.token_bytes(_SIZE)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, path)  # never overwrites an existing key
        except FileExistsError:
            if (other := _read(path)) is not None:
                return other
            os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    return key
