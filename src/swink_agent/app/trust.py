"""Which folders the user trusts, and what their own files may therefore say.

A folder may carry `.swink/config.toml` and `AGENTS.md`. Both come with whatever was cloned, so neither is used before
the user said so, with `swink config trust`. Trust is given to a place and to what its files say: a change of either
has to be looked at and trusted again, and until then that file does not count; a copy of what was trusted is kept, so
that the change itself can be shown. Owns the record of it, and which folders speak for one: all from here up to the
root of the repository, and of those further up that are trusted, what guards the user. So no folder, and no repository
made in one, can silence those above it. Reading is in `project_files`, what a project may set at all in `settings`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import structs

from swink_agent.core.values.value import Value

from .errors import SettingsError
from .paths import config_folder, write_whole
from .project_files import ProjectFile, read_project_file
from .settings import LARGEST_FILE, SettingsFile, only_stricter, parse_file

__all__ = ["ChangedFile", "FolderToTrust", "Project", "TrustStore", "find_project"]

PROJECT_FILE = Path(".swink", "config.toml")
NOTES_FILE = "AGENTS.md"
_LARGEST_NOTES = 1024 * 1024


class Project(Value, frozen=True):
    """A folder with settings or notes of its own, and whether they may be used."""

    hidden_fields = frozenset({"notes"})

    folder: str
    is_trusted: bool
    """Its settings, or that it has none, are what the user saw."""
    settings: SettingsFile | None = None
    """Only if trusted."""
    has_settings: bool = False
    was_changed: bool = False
    """It was trusted once, and its settings have changed since."""
    has_notes: bool = False
    notes: bytes | None = None
    """What the notes say: the very bytes that were trusted, or nothing."""
    notes_were_changed: bool = False
    """The folder is trusted, and its notes are not those that the user saw."""
    problems: tuple[str, ...] = ()
    """Why files that are there cannot be used at all."""
    above: Project | None = None
    """The next folder further up in the repository that has files of its own."""

    @property
    def chain(self) -> tuple[Project, ...]:
        """This one and those above it, in that order."""
        return (self,) if self.above is None else (self, *self.above.chain)

    @property
    def settings_files(self) -> tuple[SettingsFile, ...]:
        """What may be used of the settings, the outermost first."""
        return tuple([item.settings for item in reversed(self.chain) if item.settings is not None])

    @property
    def notes_files(self) -> tuple[tuple[str, bytes], ...]:
        """What may be used of the notes, each behind its path, the outermost first."""
        found = [(item.folder, item.notes) for item in reversed(self.chain)]
        return tuple([(str(Path(folder, NOTES_FILE)), notes) for folder, notes in found if notes is not None])

    @property
    def can_be_trusted(self) -> bool:
        """Whether something in this very folder would be used if the user trusted it as it is now."""
        return not self.is_trusted or self.notes_were_changed

    @property
    def what_is_unused(self) -> str:
        """In words, what lies here and further up and is not used; nothing if all of it is."""
        return "; ".join([said for item in self.chain if (said := item._unused())])

    def _unused(self) -> str:
        if not (self.has_settings or self.has_notes):
            return ""
        said = [f"{problem}, so that is not used" for problem in self.problems]
        if not self.is_trusted:
            files = [str(PROJECT_FILE)] * self.has_settings + [NOTES_FILE] * self.has_notes
            verb = "is" if len(files) == 1 else "are"
            changed = f"; {PROJECT_FILE} has changed since you trusted it" if self.was_changed else ""
            said.append(f"{self.folder} is not trusted, so its {' and '.join(files)} {verb} not used{changed}")
        elif self.notes_were_changed:
            said.append(f"{Path(self.folder, NOTES_FILE)} has changed since you trusted it and is not used")
        return "; ".join(said)


class FolderToTrust(Value, frozen=True):
    """What is in a folder that is to be trusted: the very bytes of its settings and notes, or `None`."""

    hidden_fields = frozenset({"settings", "notes"})

    folder: str
    settings: bytes | None = None
    notes: bytes | None = None
    problem: str = ""
    """Why the notes that are there cannot be used."""


class ChangedFile(Value, frozen=True):
    """A file that says something else than when it was trusted; empty where it was not there, or is not any more."""

    hidden_fields = frozenset({"old", "new"})

    path: str
    old: bytes
    new: bytes


class TrustStore:
    """The user's record of trusted folders: real paths, each with the digests of its settings and of its notes.

    Beside it, in `trusted`, lie copies of what was trusted, named by their digests: to be shown, never to be used.
    """

    def __init__(self, path: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> None:
        self.path = path or config_folder(environ) / "trusted.json"
        self._copies = self.path.parent / "trusted"

    def folders(self) -> dict[str, str]:
        """Digests by folder. A record that cannot be read trusts nothing. Raises `SettingsError` to say so."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise SettingsError(f"{self.path}, the record of trusted folders, cannot be read: {error}") from error

    def trust(self, folder: Path) -> Project:
        """Trusts the folder with its files as they are now. Raises `SettingsError` if its settings have a mistake."""
        return self.accept(self.offer(folder))

    def offer(self, folder: Path) -> FolderToTrust:
        """What trusting the folder would mean, to be shown first. Raises `SettingsError` if it cannot be trusted."""
        real = _real(folder)
        try:
            str(real).encode()
        except UnicodeEncodeError as error:  # the record could not tell it from others
            raise SettingsError(f"{real} cannot be trusted: its name is no UTF-8 text") from error
        settings, notes = _settings_of(real), _notes_of(real)
        if settings.problem:
            raise SettingsError(settings.problem)
        if settings.data is not None:
            parse_file(str(real / PROJECT_FILE), settings.data)
        return FolderToTrust(str(real), settings.data, notes.data, notes.problem)

    def accept(self, offer: FolderToTrust) -> Project:
        """Trusts what was offered: what has changed since is not trusted."""
        files = [ProjectFile(offer.settings), ProjectFile(offer.notes)]
        self._write({**self.folders(), offer.folder: " ".join(file.digest for file in files)})
        self._keep(files)
        return find_project(Path(offer.folder), self) or Project(offer.folder, True)

    def changes(self, offer: FolderToTrust) -> tuple[ChangedFile, ...]:
        """What has changed in the folder since it was trusted, as far as copies of that are there."""
        settings, _, notes = self.folders().get(offer.folder, "").partition(" ")
        found: list[ChangedFile] = []
        for name, digest, data in ((PROJECT_FILE, settings, offer.settings), (NOTES_FILE, notes, offer.notes)):
            old = self._copy(digest)
            is_unread = name == NOTES_FILE and bool(offer.problem)
            if old is not None and not is_unread and ProjectFile(data).digest != digest:
                found.append(ChangedFile(str(Path(offer.folder, name)), old, data or b""))
        return tuple(found)

    def _copy(self, digest: str) -> bytes | None:
        """What has this digest, if a copy of it is there and still has it."""
        if digest == ProjectFile().digest:
            return b""
        try:
            data = (self._copies / digest.partition(":")[2]).read_bytes()
        except OSError:
            return None
        return data if ProjectFile(data).digest == digest else None

    def _keep(self, files: Iterable[ProjectFile]) -> None:
        """Copies these, and drops copies that no record speaks of. Without them, changes are just not shown."""
        wanted = {digest.partition(":")[2] for record in self.folders().values() for digest in record.split()}
        try:
            for file in files:
                if file.data is not None:
                    write_whole(self._copies / file.digest.partition(":")[2], file.data)
            for path in self._copies.iterdir() if self._copies.is_dir() else ():
                if path.name not in wanted:
                    path.unlink()
        except OSError:
            pass

    def distrust(self, folder: Path) -> bool:
        """Takes trust away; says whether there was any."""
        folders = self.folders()
        was_there = folders.pop(str(_real(folder)), None) is not None
        if was_there:
            self._write(folders)
            self._keep(())
        return was_there

    def _write(self, folders: dict[str, str]) -> None:
        try:
            text = msgspec.json.format(msgspec.json.encode(folders), indent=2).decode()
            write_whole(self.path, text + "\n")
        except OSError as error:
            raise SettingsError(f"{self.path} cannot be written: {error.strerror or error}") from error


def find_project(folder: Path, store: TrustStore) -> Project | None:
    """The nearest folder from here up that has files of its own, up to the root of the repository if this is one.

    Those further up are `above` it; from beyond the repository, only what was trusted once, and only what is strict
    there. What is used of a file are the very bytes that were compared with the record.
    """
    real, records = _real(folder), store.folders()
    inside = _upwards(real)
    found: Project | None = None
    for place in reversed([real, *real.parents]):
        record = records.get(str(place))
        if place in inside:
            found = _project(place, record, found) or found
        elif record is not None:
            found = _guard(_project(place, record, None), found)
    return found


def _project(place: Path, record: str | None, above: Project | None) -> Project | None:
    settings, notes = _settings_of(place), _notes_of(place)
    if not (settings.is_there or notes.is_there):
        return None
    trusted_settings, _, trusted_notes = (record or "").partition(" ")
    is_trusted = settings.digest == trusted_settings
    are_same_notes = notes.digest == trusted_notes
    parsed = None
    if is_trusted and settings.data is not None:
        parsed = parse_file(str(place / PROJECT_FILE), settings.data)
    return Project(
        str(place),
        is_trusted,
        settings=parsed,
        has_settings=settings.is_there,
        was_changed=record is not None and not is_trusted,
        has_notes=notes.is_there,
        notes=notes.data if is_trusted and are_same_notes else None,
        notes_were_changed=is_trusted and notes.data is not None and not are_same_notes,
        problems=tuple([file.problem for file in (settings, notes) if file.problem]),
        above=above,
    )


def _guard(project: Project | None, above: Project | None) -> Project | None:
    """What a folder beyond the repository still has to say: nothing that is told to a model, or chooses one."""
    if project is None or not (project.settings or project.was_changed):
        return above
    settings = None if project.settings is None else only_stricter(project.settings)
    return structs.replace(project, settings=settings, has_notes=False, notes=None, above=above)


def _settings_of(folder: Path) -> ProjectFile:
    return read_project_file(folder, str(PROJECT_FILE), LARGEST_FILE)


def _notes_of(folder: Path) -> ProjectFile:
    return read_project_file(folder, NOTES_FILE, _LARGEST_NOTES)


def _upwards(folder: Path) -> list[Path]:
    """The folder, and those above it if it lies in a repository, up to that repository's root."""
    places: list[Path] = []
    for place in (folder, *folder.parents):
        places.append(place)
        if (place / ".git").exists():
            return places
    return [folder]


def _real(folder: Path) -> Path:
    return Path(os.path.realpath(folder))
