"""The addresses of stores.

    sqlite:///relative/or//absolute/path      a file on this machine
    postgresql://user:password@host/name      a database

Owns the addresses and where the default comes from. Nothing here connects. A password is never shown.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from msgspec import Struct

from swink_agent.core.values.checks import is_not
from swink_agent.memory.sessions.store import data_folder

_VARIABLE = "SWINK_DURABLE_URL"
_CONFIG_VARIABLE = "SWINK_CONFIG_DIR"
_SETTINGS = "config.toml"
_FILE = "durable.sqlite3"
_HIDDEN = "postgresql://…"
"""Stands for an address in which the end of the password is not clear."""


class StoreAddress(Struct, frozen=True):
    """Where a store is: a file, or the address of a database."""

    shown: str
    """The address without its password. That of a file leads back to it."""
    path: Path | None = None
    """The file of an SQLite store."""
    url: str = ""
    """The address of a PostgreSQL store, with its password."""

    def __repr__(self) -> str:
        return f"StoreAddress({self.shown!r})"


def store_address(url: str | None) -> StoreAddress:
    """Parses an address. `None` is that of the environment, else of the user's settings, else of a default file.

    Raises `ValueError` for an address of another kind, without repeating it: it may contain a password.
    """
    given = url if url is not None else os.environ.get(_VARIABLE) or _from_settings()
    if given is None:
        return _of_file(data_folder() / _FILE)
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise is_not("url", given, "the address of a store, such as 'sqlite:///runs.sqlite'")
    if given.startswith("sqlite:///"):
        path = given.removeprefix("sqlite:///").partition("?")[0]
        if path and path != ":memory:":
            return _of_file(Path(unquote(path)).expanduser())
    elif given.startswith("postgresql://"):
        return StoreAddress(_without_password(given), url=given)
    raise ValueError(
        "this is not the address of a store for durable runs: give sqlite:///path or postgresql://user@host/database"
    )


def _of_file(path: Path) -> StoreAddress:
    absolute = path.absolute()
    quoted = str(absolute).replace("%", "%25").replace("?", "%3F")
    return StoreAddress(f"sqlite:///{quoted}", path=absolute)


def _without_password(url: str) -> str:
    try:
        parts = urlsplit(url)
        _, at, host = parts.netloc.rpartition("@")
        user = parts.username or ""
    except ValueError:
        return _HIDDEN
    # An unescaped `/`, `?` or `#` in a password ends the password for `urlsplit`, but not for the parser that connects.
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return _HIDDEN
    query = "…" if "password" in parts.query.lower() else parts.query
    return urlunsplit((parts.scheme, f"{user}{at}{host}", parts.path, query, ""))


def _from_settings() -> str | None:
    """The setting durable.url of the user's file. A file that cannot be read sets nothing."""
    import tomllib

    path = _config_folder() / _SETTINGS
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    durable: object = settings.get("durable")
    url: object = durable.get("url") if isinstance(durable, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return url if isinstance(url, str) and url else None


def _config_folder() -> Path:
    given = os.environ.get(_CONFIG_VARIABLE)
    if given:
        return Path(given).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_config_dir("swink-agent", appauthor=False))
