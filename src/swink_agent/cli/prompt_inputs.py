"""What a prompt is made from: the text, what was piped in, pictures, a schema, and the folders to work in.

Owns reading and checking them. What is wrong with any of them is a `UsageProblem` that names the flag.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from swink_agent.app.errors import UsageProblem
from swink_agent.app.headless import PromptFn
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.types import Base64Image, Image, ModelSpec, Text, UserMessage

from .stdin_text import read_stdin

__all__ = ["PromptInputs"]

_LARGEST_IMAGE = 20 * 1024 * 1024
_LARGEST_SCHEMA = 1024 * 1024
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class PromptInputs:
    """The inputs of one prompt; folders and pictures are looked at when it is made, stdin when it is asked for."""

    def __init__(self, given: str | None, *, cwd: str | None, added: Sequence[str], images: Sequence[str]) -> None:
        self._given = None if given is None else encodable(given)
        self.folder = _folder(cwd)
        self.added = tuple(dict.fromkeys([_added_folder(name) for name in added]))
        self._images = [_image(name) for name in images]

    def prompt(self, model: ModelSpec, warn: Callable[[str], None], note: Callable[[str], None]) -> PromptFn:
        """What waits for stdin and gives the whole prompt. Raises `UsageProblem` if it cannot be one.

        Where no text was given, what was piped in is the prompt; and if nothing was, there is none. With `-` it is
        typed, where stdin is a terminal.
        """
        if self._images:
            _refuse_blind(model)

        def read(cancel: CancellationToken) -> str | list[UserMessage] | None:
            typed = (lambda: note("type the prompt; Ctrl+D on an empty line ends it")) if self._given == "-" else None
            piped = read_stdin(warn, cancel=cancel, at_terminal=typed)
            if self._given is None and not piped.strip() and not self._images:
                return None
            text = _together(self._given or "", piped, has_images=bool(self._images))
            return [UserMessage([Text(text), *self._images])] if self._images else text

        return read

    def schema(self, given: str | None) -> dict[str, Any] | None:
        """The schema of that file, or the one that is written out. Raises `UsageProblem`."""
        if given is None:
            return None
        is_inline = given.lstrip().startswith(("{", "["))
        name = "the schema" if is_inline else encodable(given)
        data = given.encode("utf-8", "surrogateescape") if is_inline else _read_file(given, "--schema", _LARGEST_SCHEMA)
        from swink_agent.core.structured import StructuredOutput

        try:
            schema = msgspec.json.decode(data, type=dict[str, Any])
        except msgspec.ValidationError as error:
            raise UsageProblem(f"{name} is JSON, but no object: a JSON Schema is one (--schema)") from error
        except (ValueError, RecursionError) as error:
            raise UsageProblem(f"{name} is no JSON: {error} (--schema)") from error
        try:
            StructuredOutput(schema, 0)
        except (ValueError, TypeError, RecursionError) as error:
            # What the library says of the schema of a tool, said of a schema.
            problem = str(error).rpartition("is not valid JSON Schema: ")[2] or "it is nested too deeply"
            raise UsageProblem(f"{name} holds no JSON Schema that can be used: {problem} (--schema)") from error
        return schema


def encodable(text: str) -> str:
    """Arguments that are not UTF-8 come with characters that cannot be sent."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _together(given: str, piped: str, *, has_images: bool) -> str:
    prompt, piped = (piped, "") if given == "-" else (given, piped)
    if not prompt.strip() and not piped.strip():
        if has_images and given != "-":
            return "Look at this."
        raise UsageProblem(
            "the prompt is empty" if given != "-" else "the prompt is to come from stdin, and nothing came"
        )
    if not piped.strip():
        return prompt
    return f"{prompt}\n\n<stdin>\n{piped.rstrip()}\n</stdin>" if prompt.strip() else piped


# -- folders -------------------------------------------------------------------------------------------------


def _folder(given: str | None) -> Path:
    try:
        folder = Path(given).expanduser() if given else Path.cwd()
        is_folder = folder.is_dir()
    except OSError as error:
        where = "the current folder is gone" if not given else f"{encodable(given)} cannot be looked at"
        raise UsageProblem(f"{where}: {error.strerror}") from error
    except (RuntimeError, ValueError) as error:
        raise UsageProblem(f"{encodable(given or '.')} is no folder: {error} (--cwd)") from error
    if not is_folder:
        raise UsageProblem(f"{encodable(str(folder))} is no folder (--cwd)")
    return folder


def _added_folder(given: str) -> Path:
    try:
        folder = Path(os.path.realpath(Path(given).expanduser()))
        is_folder = folder.is_dir()
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageProblem(f"{encodable(given)} is no folder: {error} (--add-dir)") from error
    if not is_folder:
        raise UsageProblem(f"{encodable(given)} is no folder (--add-dir)")
    if folder == Path(folder.anchor):
        raise UsageProblem(f"{folder} is the whole machine: give the folders that are needed (--add-dir)")
    return folder


# -- files ---------------------------------------------------------------------------------------------------


def _read_file(given: str, flag: str, most: int) -> bytes:
    """All of a regular file. Raises `UsageProblem`."""
    if not given:
        raise UsageProblem(f"an empty text names no file ({flag})")
    name = encodable(given)
    try:
        path = Path(given).expanduser()
        if path.exists() and not path.is_file():
            raise UsageProblem(f"{name} is {'a folder' if path.is_dir() else 'no regular file'} ({flag})")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise UsageProblem(f"{name} cannot be read: {error.strerror or error} ({flag})") from error
    except (RuntimeError, ValueError) as error:  # a user's home that is not known, a NUL
        raise UsageProblem(f"{name} is no name of a file: {error} ({flag})") from error
    if len(data) > most:
        raise UsageProblem(f"{name} is larger than {most // (1024 * 1024)} MiB ({flag})")
    return data


def _image(given: str) -> Image:
    data = _read_file(given, "--image", _LARGEST_IMAGE)
    kind = next((kind for start, kind in _KINDS if data.startswith(start)), None)
    if kind is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is None:
        raise UsageProblem(
            f"{encodable(given)} is no picture of a kind that models see: PNG, JPEG, GIF, WebP (--image)"
        )
    from base64 import b64encode

    return Image(Base64Image(kind, b64encode(data).decode()))


def _refuse_blind(model: ModelSpec) -> None:
    """Says so before anything is sent, where it is known that a model sees no pictures."""
    sees: bool | None = False
    if model.provider != "local":
        from swink_agent.adapters.catalog import ModelCatalog

        info = ModelCatalog.load().find(model)
        sees = None if info is None else info.capabilities.images
    if sees is False:
        raise UsageProblem(f"{model} sees no pictures: leave --image out, or choose another model (`swink models`)")
