"""Which folders the user trusts, and which of their files may therefore be used.

A folder may contain `.swink/config.toml`, `AGENTS.md`, skills and commands. They come with a clone, so none is used
until the user trusts the folder with `swink config trust`. Trust applies to a path and to the contents of its files:
after a change of either, the user must trust it again, and until then that file is ignored. Copies of trusted files are
kept, so that a change can be shown.

All folders from here up to the root of the repository count. Of trusted folders further up, only the settings that
protect the user count. So neither a folder nor a repository created in one can override those above it. Reading is in
`project_files`; the settings that a project may set are defined in `settings.definitions`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from swink_agent.core.values.value import Value

from ..errors import SettingsError
from ..settings.paths import change_record, changing, config_folder, read_record, write_whole
from ..settings.settings import LARGEST_FILE, SettingsFile, load_settings, only_stricter, parse_file
from .project_files import ProjectFile, found_prompt_files, read_project_file

PROJECT_FILE = Path(".swink", "config.toml")
NOTES_FILE = "AGENTS.md"
_LARGEST_NOTES = 1024 * 1024
_TRUSTED = "trusted folders"


class Project(Value, frozen=True):
    """A folder with its own settings or notes, and whether they may be used."""

    hidden_fields = frozenset({"notes", "prompts"})

    folder: str
    is_trusted: bool
    """Whether its settings, or their absence, are as the user saw them."""
    settings: SettingsFile | None = None
    """Only if trusted."""
    has_settings: bool = False
    was_changed: bool = False
    """Whether it was trusted once, and its settings have changed since."""
    has_notes: bool = False
    notes: bytes | None = None
    """The notes, with exactly the bytes that were trusted; else `None`."""
    notes_were_changed: bool = False
    """Whether the folder is trusted, but its notes have changed since."""
    prompts: dict[str, bytes] = {}
    """The trusted skills and commands by path, with exactly the bytes that were trusted."""
    unused_prompts: tuple[str, ...] = ()
    """The paths of skills and commands that are not trusted, or have changed since."""
    prompt_problems: dict[str, str] = {}
    """Why other skills and commands can never be used, by path."""
    problems: tuple[str, ...] = ()
    """Why the existing settings or notes can never be used."""
    above: Project | None = None
    """The next folder further up in the repository that has files."""

    @property
    def chain(self) -> tuple[Project, ...]:
        """This project and those above it, in that order."""
        return (self,) if self.above is None else (self, *self.above.chain)

    @property
    def settings_files(self) -> tuple[SettingsFile, ...]:
        """The settings that may be used, the outermost first."""
        return tuple([item.settings for item in reversed(self.chain) if item.settings is not None])

    @property
    def notes_files(self) -> tuple[tuple[str, bytes], ...]:
        """The notes that may be used, each with its path, the outermost first."""
        found = [(item.folder, item.notes) for item in reversed(self.chain)]
        return tuple([(str(Path(folder, NOTES_FILE)), notes) for folder, notes in found if notes is not None])

    @property
    def can_be_trusted(self) -> bool:
        """Whether some file in this folder would be used only if the user trusted it as it is now."""
        return not self.is_trusted or self.notes_were_changed or bool(self.unused_prompts)

    @property
    def what_is_unused(self) -> str:
        """Which files here and further up are not used, and why; empty if all are used."""
        return "; ".join([said for item in self.chain if (said := item._unused())])

    def _unused(self) -> str:
        if not (self.has_settings or self.has_notes or self.unused_prompts):
            return ""
        said = [f"{problem}, so it is not used" for problem in self.problems]
        if not self.is_trusted:
            files = [str(PROJECT_FILE)] * self.has_settings + [NOTES_FILE] * self.has_notes
            files += [f"{len(self.unused_prompts)} skills and commands"] * bool(self.unused_prompts)
            verb = "is" if len(files) == 1 else "are"
            changed = f"; {PROJECT_FILE} has changed since you trusted it" if self.was_changed else ""
            said.append(f"{self.folder} is not trusted, so its {' and '.join(files)} {verb} not used{changed}")
        elif self.notes_were_changed:
            said.append(f"{Path(self.folder, NOTES_FILE)} has changed since you trusted it and is not used")
        if self.is_trusted and self.unused_prompts:
            paths = ", ".join([str(Path(self.folder, path)) for path in self.unused_prompts])
            said.append(f"not used, because their current content is not trusted: {paths}")
        return "; ".join(said)


class FolderToTrust(Value, frozen=True):
    """The files of a folder that may be trusted: the bytes of its settings and notes, or `None`."""

    hidden_fields = frozenset({"settings", "notes", "prompts"})

    folder: str
    settings: bytes | None = None
    notes: bytes | None = None
    problem: str = ""
    """Why existing notes cannot be used."""
    prompts: dict[str, bytes] = {}
    """The skills and commands by their paths in the folder."""


class OfferedPart(NamedTuple):
    """A part of the offer that is shown before a folder is trusted: our words, and the text of a file."""

    words: str
    text: str | None = None
    is_uncounted: bool = False
    """Whether the words are about content that would not be used, and why."""


def offered_parts(offer: FolderToTrust) -> Iterator[OfferedPart]:
    """All content that would be used if the folder were trusted, in full: each line may have an effect."""
    from ..agent.system_prompt import LONGEST_NOTES

    folder = Path(offer.folder)
    if offer.settings is not None:
        path = str(folder / PROJECT_FILE)
        yield OfferedPart(f"{path}, whose settings would be used:", as_text(offer.settings))
        for note in load_settings(project=parse_file(path, offer.settings)).notes:
            yield OfferedPart(note.replace(f"{path}:", "line ", 1), is_uncounted=True)  # the path is above
    if offer.notes is not None:
        yield OfferedPart(f"{folder / NOTES_FILE}, which the model would read:", as_text(offer.notes[:LONGEST_NOTES]))
        if len(offer.notes) > LONGEST_NOTES:
            yield OfferedPart(f"The model would not read the other {len(offer.notes) - LONGEST_NOTES:,} bytes.")
    if offer.problem:
        yield OfferedPart(offer.problem, is_uncounted=True)
    for path, data in offer.prompts.items():
        yield OfferedPart(f"{folder / path}, which prompts may contain:", as_text(data))


def as_text(data: bytes) -> str:
    return data.decode("utf-8", "replace").removesuffix("\n")


class ChangedFile(Value, frozen=True):
    """A file that changed since it was trusted. `old` or `new` is empty if the file did not or does not exist."""

    hidden_fields = frozenset({"old", "new"})

    path: str
    old: bytes
    new: bytes


class TrustStore:
    """The user's record of trusted folders: real paths, each with the digests of its settings and its notes.

    The folder `trusted` next to it has copies of trusted files, named by digest. They are only shown, never used.
    """

    def __init__(self, path: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> None:
        self.path = path or config_folder(environ) / "trusted.json"
        self._copies = self.path.parent / "trusted"

    def folders(self) -> dict[str, str]:
        """Digests by folder. Raises `SettingsError` if the record cannot be read: then nothing is trusted."""
        return read_record(self.path, dict[str, str], _TRUSTED)

    def trust(self, folder: Path) -> Project:
        """Trusts the folder with its files as they are now. Raises `SettingsError` if its settings have a mistake."""
        return self.accept(self.offer(folder))

    def offer(self, folder: Path) -> FolderToTrust:
        """The files that would be trusted, to be shown first. Raises `SettingsError` if that is not possible."""
        real = _real(folder)
        try:
            str(real).encode()
        except UnicodeEncodeError as error:  # the record cannot represent it
            raise SettingsError(f"{real} cannot be trusted: its name is not UTF-8 text") from error
        settings, notes = _settings_of(real), _notes_of(real)
        if settings.problem:
            raise SettingsError(settings.problem)
        if settings.data is not None:
            parse_file(str(real / PROJECT_FILE), settings.data)
        skills = {path: file.data for path, file in found_prompt_files(real).items() if file.data is not None}
        return FolderToTrust(str(real), settings.data, notes.data, notes.problem, skills)

    def accept(self, offer: FolderToTrust) -> Project:
        """Trusts the offered contents. Files that have changed since are not trusted."""
        files = [ProjectFile(offer.settings), ProjectFile(offer.notes)]
        record = [file.digest for file in files]
        record += [f"{path}={ProjectFile(data).digest}" for path, data in offer.prompts.items()]
        change_record(self.path, dict[str, str], _TRUSTED, lambda folders: {**folders, offer.folder: " ".join(record)})
        self._keep([*files, *map(ProjectFile, offer.prompts.values())])
        return find_project(Path(offer.folder), self) or Project(offer.folder, True)

    def changes(self, offer: FolderToTrust) -> tuple[ChangedFile, ...]:
        """The files that changed since the folder was trusted, as far as copies of them exist."""
        settings, notes, known = _words(self.folders().get(offer.folder))
        found: list[ChangedFile] = []
        for path, data in offer.prompts.items():
            old = self._copy(known.get(path, ""))
            if old is not None and old != data:
                found.append(ChangedFile(str(Path(offer.folder, path)), old, data))
        for name, digest, data in ((PROJECT_FILE, settings, offer.settings), (NOTES_FILE, notes, offer.notes)):
            old = self._copy(digest)
            is_unread = name == NOTES_FILE and bool(offer.problem)
            if old is not None and not is_unread and ProjectFile(data).digest != digest:
                found.append(ChangedFile(str(Path(offer.folder, name)), old, data or b""))
        return tuple(found)

    def _copy(self, digest: str) -> bytes | None:
        """The copy with this digest, if there is one and its content matches."""
        if digest == ProjectFile().digest:
            return b""
        try:
            data = (self._copies / digest.partition(":")[2]).read_bytes()
        except OSError:
            return None
        return data if ProjectFile(data).digest == digest else None

    def _keep(self, files: Iterable[ProjectFile]) -> None:
        """Stores these copies and removes unused ones. Errors are ignored: without a copy, a change is not shown."""
        with suppress(OSError), changing(self.path):  # else it may remove the copies of a folder that is being trusted
            wanted = {digest.rpartition(":")[2] for record in self.folders().values() for digest in record.split()}
            for file in files:
                if file.data is not None:
                    write_whole(self._copies / file.digest.partition(":")[2], file.data)
            for path in self._copies.iterdir() if self._copies.is_dir() else ():
                if path.name not in wanted:
                    path.unlink()

    def distrust(self, folder: Path) -> bool:
        """Removes trust. Returns whether there was any."""
        real = str(_real(folder))

        def without(folders: dict[str, str]) -> dict[str, str]:
            return {place: record for place, record in folders.items() if place != real}

        was_there = change_record(self.path, dict[str, str], _TRUSTED, without)
        if was_there:
            self._keep(())
        return was_there


def find_project(folder: Path, store: TrustStore) -> Project | None:
    """The nearest folder with project files, from this one up to the root of its repository, if it is in one.

    Projects further up are its `above`. From outside the repository, only trusted settings that tighten are used. The
    bytes that are used are exactly those that were compared with the record.
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
    settings, notes, skills = _settings_of(place), _notes_of(place), found_prompt_files(place)
    if not (settings.is_there or notes.is_there or skills):
        return None
    trusted_settings, trusted_notes, known = _words(record)
    is_trusted = settings.digest == trusted_settings
    are_same_notes = notes.digest == trusted_notes
    parsed = None
    if is_trusted and settings.data is not None:
        parsed = parse_file(str(place / PROJECT_FILE), settings.data)
    prompts = {path: file.data for path, file in skills.items() if file.data is not None}
    trusted = [path for path in prompts if is_trusted and skills[path].digest == known.get(path)]
    return Project(
        str(place),
        is_trusted,
        settings=parsed,
        has_settings=settings.is_there,
        was_changed=record is not None and not is_trusted,
        has_notes=notes.is_there,
        notes=notes.data if is_trusted and are_same_notes else None,
        notes_were_changed=is_trusted and notes.data is not None and not are_same_notes,
        prompts={path: prompts[path] for path in trusted},
        unused_prompts=tuple([path for path in prompts if path not in trusted]),
        prompt_problems={path: file.problem for path, file in skills.items() if file.problem},
        problems=tuple([file.problem for file in (settings, notes) if file.problem]),
        above=above,
    )


def _guard(project: Project | None, above: Project | None) -> Project | None:
    """The part of a folder outside the repository that applies: settings that tighten, and nothing for the model."""
    if project is None or not (project.settings or project.was_changed):
        return above
    settings = None if project.settings is None else only_stricter(project.settings)
    nothing: dict[str, Any] = {"has_notes": False, "notes": None, "prompts": {}, "unused_prompts": ()}
    return structs.replace(project, settings=settings, prompt_problems={}, above=above, **nothing)


def _words(record: str | None) -> tuple[str, str, dict[str, str]]:
    """The digests in a record: of the settings, of the notes, and, as `PATH=DIGEST`, of each skill and command."""
    words = (record or "").split()
    settings, notes = [*words, "", ""][:2]
    prompts = [word.rpartition("=") for word in words[2:]]
    return settings, notes, {path: digest for path, _, digest in prompts}


def _settings_of(folder: Path) -> ProjectFile:
    return read_project_file(folder, str(PROJECT_FILE), LARGEST_FILE)


def _notes_of(folder: Path) -> ProjectFile:
    return read_project_file(folder, NOTES_FILE, _LARGEST_NOTES)


def _upwards(folder: Path) -> list[Path]:
    """The folder, and those above it up to the root of its repository, if it is in one."""
    places: list[Path] = []
    for place in (folder, *folder.parents):
        places.append(place)
        if os.path.exists(place / ".git"):  # does not raise for folders that this user may not read
            return places
    return [folder]


def _real(folder: Path) -> Path:
    return Path(os.path.realpath(folder))
