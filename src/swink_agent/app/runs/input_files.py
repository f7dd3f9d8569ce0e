"""Folders, files and pictures that a user names on a command line or in a prompt.

Finds and checks them, for every front end. A problem is a `UsageProblem` that names the file and the flag, if there was
one.
"""

from __future__ import annotations

import os
from pathlib import Path

from swink_agent.core.types import Base64Image, Image, ModelSpec

from ..errors import UsageProblem

__all__ = ["added_folder", "encodable", "folder_of", "picture", "read_input", "refuse_blind"]

_LARGEST_IMAGE = 20 * 1024 * 1024
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def encodable(text: str) -> str:
    """The argument without characters that cannot be sent: it may not be UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# -- folders -------------------------------------------------------------------------------------------------


def folder_of(given: str | None) -> Path:
    """The folder to work in: the one that was given, else the current one. Raises `UsageProblem`."""
    if given == "":
        raise UsageProblem("an empty text names no folder (--cwd)")
    try:
        folder = Path(given).expanduser() if given else Path.cwd()
        is_folder = folder.is_dir()
    except OSError as error:
        where = "the current folder is gone" if not given else f"{encodable(given)} cannot be looked at"
        raise UsageProblem(f"{where}: {error.strerror}") from error
    except (RuntimeError, ValueError) as error:
        raise UsageProblem(f"{encodable(given or '.')} is not a folder: {error} (--cwd)") from error
    if not is_folder:
        raise UsageProblem(f"{encodable(str(folder))} is not a folder (--cwd)")
    if not os.access(folder, os.X_OK):
        raise UsageProblem(
            f"this user may not enter the folder {encodable(str(folder))}: change into another, or give one with --cwd"
        )
    return folder


def added_folder(given: str) -> Path:
    """An additional folder. Raises `UsageProblem`."""
    if not given:
        raise UsageProblem("an empty text names no folder (--add-dir)")
    try:
        folder = Path(os.path.realpath(Path(given).expanduser()))
        is_folder = folder.is_dir()
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageProblem(f"{encodable(given)} is not a folder: {error} (--add-dir)") from error
    if not is_folder:
        raise UsageProblem(f"{encodable(given)} is not a folder (--add-dir)")
    if folder == Path(folder.anchor):
        raise UsageProblem(f"{folder} is the whole machine: give the folders that are needed (--add-dir)")
    return folder


# -- files ---------------------------------------------------------------------------------------------------


def read_input(given: str, flag: str, most: int) -> bytes:
    """The contents of a regular file. Raises `UsageProblem`; an empty `flag` is left out of its text."""
    with_flag = f" ({flag})" if flag else ""
    if not given:
        raise UsageProblem(f"an empty text names no file{with_flag}")
    name = encodable(given)
    try:
        path = Path(given).expanduser()
        if path.exists() and not path.is_file():
            raise UsageProblem(f"{name} is {'a folder' if path.is_dir() else 'no regular file'}{with_flag}")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise UsageProblem(f"{name} cannot be read: {error.strerror or error}{with_flag}") from error
    except (RuntimeError, ValueError) as error:  # an unknown user's home, or a NUL
        raise UsageProblem(f"{name} is not the name of a file: {error}{with_flag}") from error
    if len(data) > most:
        raise UsageProblem(f"{name} is larger than {most // (1024 * 1024)} MiB{with_flag}")
    return data


def picture(given: str, flag: str = "--image") -> Image:
    """A picture of a kind that models accept. Raises `UsageProblem`."""
    data = read_input(given, flag, _LARGEST_IMAGE)
    kind = next((kind for start, kind in _KINDS if data.startswith(start)), None)
    if kind is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is None:
        with_flag = f" ({flag})" if flag else ""
        raise UsageProblem(
            f"{encodable(given)} is not a picture of a kind that models accept: PNG, JPEG, GIF, WebP{with_flag}"
        )
    from base64 import b64encode

    return Image(Base64Image(kind, b64encode(data).decode()))


def refuse_blind(model: ModelSpec, what_to_do: str = "leave --image out") -> None:
    """Raises `UsageProblem` before anything is sent if the model is known not to accept pictures."""
    sees: bool | None = False
    if model.provider != "local":
        from swink_agent.adapters.catalog import ModelCatalog

        info = ModelCatalog.load().find(model)
        sees = None if info is None else info.capabilities.images
    if sees is False:
        raise UsageProblem(f"{model} sees no pictures: {what_to_do}, or choose another model (`swink models`)")
