"""The user's decisions for folders, in the user's own configuration: allowed calls, and where calls run unasked.

They are in two files next to the settings, to which a project cannot add. `allowed.json` has the rules of each folder:
the root of the repository, or the folder itself outside one. `folders.json` has a yes or a no for each folder that was
asked about. An answer also applies to the folders beneath it, except those of another repository. The grammar of rules
is in `approvals.call_rules`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ..errors import SettingsError
from ..settings.paths import change_record, config_folder, read_record
from ..settings.settings import SourcedValue

_RULES = "allowed calls"
_ANSWERS = "folders to work in"


def project_root(folder: Path) -> str:
    real = Path(os.path.realpath(folder))
    return str(next((place for place in (real, *real.parents) if os.path.exists(place / ".git")), real))


class FolderRules:
    def __init__(self, path: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> None:
        self.path = path or config_folder(environ) / "allowed.json"

    def folders(self) -> dict[str, list[str]]:
        """Rules by folder. Raises `SettingsError` if the file cannot be read."""
        return read_record(self.path, dict[str, list[str]], _RULES)

    def rules(self, folder: Path) -> tuple[str, ...]:
        """The allowed calls in this folder's project."""
        return tuple(self.folders().get(project_root(folder), ()))

    def setting(self, folder: Path) -> SourcedValue:
        """The same as a value of the setting `allow`, with its source."""
        return SourcedValue(self.rules(folder), f"{self.path} for this folder")

    def add(self, folder: Path, rule: str) -> None:
        """Adds a rule to the folder's project. Raises `SettingsError` if it cannot be stored."""
        self._change(folder, lambda rules: list(dict.fromkeys([*rules, rule])))

    def keep(self, folder: Path, rule: str) -> tuple[str, bool]:
        """Adds the rule of an answer, and returns what to tell the user, and whether the rule is stored."""
        try:
            self.add(folder, rule)
        except SettingsError as error:
            return f"the rule applies to this session but could not be stored: {error}", False
        return f"stored for this project: {rule}; swink config allowed lists and removes such rules", True

    def remove(self, folder: Path, rule: str | None = None) -> bool:
        """Removes one rule of the project, or all of them. Returns whether there was any."""
        return self._change(folder, lambda rules: [] if rule is None else [kept for kept in rules if kept != rule])

    def _change(self, folder: Path, change: Callable[[list[str]], list[str]]) -> bool:
        """Changes the rules of the folder's project. Returns whether they differ."""
        root = project_root(folder)

        def changed(folders: dict[str, list[str]]) -> dict[str, list[str]]:
            rules = change(folders.get(root, []))
            every = {**folders, root: rules}
            return {place: kept for place, kept in every.items() if place != root or kept}

        return change_record(self.path, dict[str, list[str]], _RULES, changed)


class WorkedFolders:
    def __init__(self, path: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> None:
        self.path = path or config_folder(environ) / "folders.json"

    def folders(self) -> dict[str, bool]:
        """The answers by real path. Raises `SettingsError` if the file cannot be read."""
        return read_record(self.path, dict[str, bool], _ANSWERS)

    def answer(self, folder: Path) -> bool | None:
        """The answer for the folder, or for the nearest one above it in its repository; `None` if there is none."""
        answers = self.folders()
        real = Path(os.path.realpath(folder))
        for place in (real, *real.parents) if answers else ():
            if str(place) in answers:
                return answers[str(place)]
            if os.path.lexists(place / ".git"):
                break  # folders above belong to another project
        return None

    def keep(self, folder: Path, answer: bool | None) -> bool:
        """Stores the answer; `None` removes it. Returns whether that is a change. Raises `SettingsError`."""
        real = os.path.realpath(folder)

        def changed(answers: dict[str, bool]) -> dict[str, bool]:
            others = {place: kept for place, kept in answers.items() if place != real}
            return others if answer is None else {**others, real: answer}

        return change_record(self.path, dict[str, bool], _ANSWERS, changed)
