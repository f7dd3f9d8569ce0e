"""Which folders the user trusts, and what a folder's own files may therefore say.

A folder may carry `.swink/config.toml` and `AGENTS.md`. Both come with whatever was cloned, so neither is read before
the user said so, with `swink config trust`. Trust is given to a place and to what its settings file says: a change of
that file has to be looked at and trusted again. Owns the record of it. What a project may set at all is in `settings`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from swink_agent.core.value import Value

from .errors import SettingsError
from .paths import config_folder, write_whole
from .settings import SettingsFile, parse_file

__all__ = ["Offer", "Project", "TrustStore", "find_project"]

PROJECT_FILE = Path(".swink", "config.toml")
NOTES_FILE = "AGENTS.md"
_LARGEST_FILE = 1024 * 1024


class Project(Value, frozen=True):
    """A folder with settings or notes of its own, and whether they may be used."""

    folder: str
    is_trusted: bool
    settings: SettingsFile | None = None
    """Only if trusted."""
    has_settings: bool = False
    was_changed: bool = False
    """It was trusted once, and its settings have changed since."""

    has_notes: bool = False

    @property
    def what_is_unused(self) -> str:
        """In words, what lies here and is not used for want of trust; nothing if all of it is."""
        if self.is_trusted or not (self.has_settings or self.has_notes):
            return ""
        files = [str(PROJECT_FILE)] * self.has_settings + [NOTES_FILE] * self.has_notes
        verb = "is" if len(files) == 1 else "are"
        changed = f"; {PROJECT_FILE} has changed since you trusted it" if self.was_changed else ""
        return f"{self.folder} is not trusted, so its {' and '.join(files)} {verb} not used{changed}"

    @property
    def notes_path(self) -> Path | None:
        """Where the project's notes for agents are, if they may be read and are there."""
        path = Path(self.folder, NOTES_FILE)
        return path if self.is_trusted and path.is_file() else None


class Offer(Value, frozen=True):
    """What is in a folder that is to be trusted: the very bytes of its settings and notes, or `None`."""

    hidden_fields = frozenset({"settings", "notes"})

    folder: str
    settings: bytes | None = None
    notes: bytes | None = None


class TrustStore:
    """The user's record of trusted folders: real paths, each with the digest of its settings file."""

    def __init__(self, path: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> None:
        self.path = path or config_folder(environ) / "trusted.json"

    def folders(self) -> dict[str, str]:
        """Digests by folder. A record that cannot be read trusts nothing. Raises `SettingsError` to say so."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise SettingsError(f"{self.path}, the record of trusted folders, cannot be read: {error}") from error

    def trust(self, folder: Path) -> Project:
        """Trusts the folder with its settings as they are now. Raises `SettingsError` if they have a mistake."""
        return self.accept(self.offer(folder))

    def offer(self, folder: Path) -> Offer:
        """What trusting the folder would mean, to be shown first. Raises `SettingsError` as `trust` does."""
        real = _real(folder)
        data = _settings_of(real)
        if data is not None:
            parse_file(str(real / PROJECT_FILE), data)
        return Offer(str(real), data, _notes_of(real))

    def accept(self, offer: Offer) -> Project:
        """Trusts what was offered: settings that have changed since are not trusted."""
        self._write({**self.folders(), offer.folder: _digest(offer.settings)})
        return find_project(Path(offer.folder), self) or Project(offer.folder, True)

    def distrust(self, folder: Path) -> bool:
        """Takes trust away; says whether there was any."""
        folders = self.folders()
        was_there = folders.pop(str(_real(folder)), None) is not None
        if was_there:
            self._write(folders)
        return was_there

    def _write(self, folders: dict[str, str]) -> None:
        try:
            text = msgspec.json.format(msgspec.json.encode(folders), indent=2).decode()
            write_whole(self.path, text + "\n")
        except OSError as error:
            raise SettingsError(f"{self.path} cannot be written: {error.strerror or error}") from error


def find_project(folder: Path, store: TrustStore) -> Project | None:
    """The nearest folder from here up that has files of its own, up to the root of the repository if this is one.

    The settings that are read are the very bytes that were compared with the record.
    """
    for place in _upwards(_real(folder)):
        try:
            data = _settings_of(place)
        except SettingsError:  # what cannot be read cannot have been trusted
            return Project(str(place), False, has_settings=True, has_notes=_has_notes(place))
        has_notes = _has_notes(place)
        if data is None and not has_notes:
            continue
        recorded = store.folders().get(str(place))
        is_trusted = recorded == _digest(data)
        settings = parse_file(str(place / PROJECT_FILE), data) if data is not None and is_trusted else None
        was_changed = recorded is not None and not is_trusted
        return Project(str(place), is_trusted, settings, data is not None, was_changed, has_notes)
    return None


def _notes_of(folder: Path) -> bytes | None:
    try:
        if not _has_notes(folder):
            return None
        with (folder / NOTES_FILE).open("rb") as file:
            return file.read(_LARGEST_FILE)
    except OSError:
        return None  # nor will they be read later


def _has_notes(folder: Path) -> bool:
    try:
        return (folder / NOTES_FILE).is_file()
    except OSError:
        return False


def _upwards(folder: Path) -> list[Path]:
    """The folder, and those above it if it lies in a repository, up to that repository's root."""
    places: list[Path] = []
    for place in (folder, *folder.parents):
        places.append(place)
        if (place / ".git").exists():
            return places
    return [folder]


def _settings_of(folder: Path) -> bytes | None:
    path = folder / PROJECT_FILE
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}") from error


def _digest(data: bytes | None) -> str:
    return "none" if data is None else f"sha256:{hashlib.sha256(data).hexdigest()}"


def _real(folder: Path) -> Path:
    return Path(os.path.realpath(folder))
