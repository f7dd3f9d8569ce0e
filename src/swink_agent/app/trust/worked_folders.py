"""The folders in which the user lets calls run unasked, in the user's own configuration.

Owns the file `folders.json` beside the settings: a yes or a no for each folder that was asked about. A yes holds for
the folders beneath it too, up to those of another repository. Nothing in a folder can add to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from swink_agent.core.values.decoders import json_decoder

from ..errors import SettingsError
from ..settings.paths import config_folder, write_whole


class WorkedFolders:
    """The user's answers by folder."""

    def __init__(self, path: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> None:
        self.path = path or config_folder(environ) / "folders.json"

    def folders(self) -> dict[str, bool]:
        """The answers by real path. Raises `SettingsError` if the file cannot be read."""
        try:
            return json_decoder(dict[str, bool]).decode(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise SettingsError(f"{self.path}, the record of folders to work in, cannot be read: {error}") from error

    def answer(self, folder: Path) -> bool | None:
        """What the user said about the folder or the nearest one above it in its repository; `None` if nothing."""
        answers = self.folders()
        real = Path(os.path.realpath(folder))
        for place in (real, *real.parents) if answers else ():
            if str(place) in answers:
                return answers[str(place)]
            if os.path.lexists(place / ".git"):
                break  # what is above belongs to another project
        return None

    def keep(self, folder: Path, answer: bool | None) -> bool:
        """Stores the answer, or forgets it with `None`. Returns whether it differs. Raises `SettingsError`."""
        answers = self.folders()
        real = os.path.realpath(folder)
        if answers.get(real) is answer:
            return False
        answers.pop(real, None)
        if answer is not None:
            answers[real] = answer
        try:
            write_whole(self.path, msgspec.json.format(msgspec.json.encode(answers), indent=2) + b"\n")
        except (OSError, UnicodeEncodeError) as error:
            why = (error.strerror or error) if isinstance(error, OSError) else "the folder's name is not UTF-8 text"
            raise SettingsError(f"{self.path} cannot be written: {why}") from error
        return True
