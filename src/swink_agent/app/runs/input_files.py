"""Folders, files, pictures and documents that a user names on a command line or in a prompt.

Finds and checks them, for every front end. A `UsageProblem` names the file and the flag, if there was one.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from swink_agent.core.encoding.media import MOST_DOCUMENT_BYTES, MOST_IMAGE_BYTES, kind_of, read_media
from swink_agent.core.types import PDF, Base64Source, Document, Image, ModelSpec

from ..errors import UsageProblem


def encodable(text: str) -> str:
    """The argument with bytes that are not UTF-8 replaced, so that it can be sent and shown."""
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
        where = "the current folder is gone" if not given else f"{encodable(given)} cannot be accessed"
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
    """The contents of an ordinary file. Raises `UsageProblem`; an empty `flag` is left out of its text."""
    with_flag = _with(flag)
    if not given:
        raise UsageProblem(f"an empty text names no file{with_flag}")
    name = encodable(given)
    try:
        return read_media(Path(given).expanduser(), most)
    except OSError as error:
        raise UsageProblem(f"{name} cannot be read: {error.strerror or error}{with_flag}") from error
    except ValueError as error:
        raise UsageProblem(f"{name} {error}{with_flag}") from error
    except RuntimeError as error:  # an unknown user's home
        raise UsageProblem(f"{name} is not the name of a file: {error}{with_flag}") from error


def picture(given: str, flag: str = "--image") -> Image:
    """A picture of a kind that models accept. Raises `UsageProblem`."""
    data = read_input(given, flag, MOST_IMAGE_BYTES)
    kind = kind_of(data)
    if not kind.startswith("image/"):
        raise UsageProblem(
            f"{encodable(given)} is not a picture of a kind that models accept: PNG, JPEG, GIF, WebP{_with(flag)}"
        )
    return Image(_source(kind, data))


def attachment(given: str, flag: str = "--file") -> Image | Document:
    """A PDF, or a picture of a kind that models accept. Raises `UsageProblem`."""
    data = read_input(given, flag, MOST_DOCUMENT_BYTES)
    kind = kind_of(data)
    if kind == PDF:
        return Document(_source(kind, data), Path(encodable(given)).name)
    if not kind:
        raise UsageProblem(
            f"{encodable(given)} is not a picture of a kind that models accept (PNG, JPEG, GIF, WebP), and not a PDF: "
            f"put the text of other files into the prompt, or name the file there{_with(flag)}"
        )
    return picture(given, flag)


def _with(flag: str) -> str:
    return f" ({flag})" if flag else ""


def _source(kind: str, data: bytes) -> Base64Source:
    return Base64Source(kind, b64encode(data).decode())


def refuse_unsendable(
    model: ModelSpec, attached: Sequence[Image | Document], *, picture: str = "leave --image out", document: str
) -> None:
    """Raises `UsageProblem` if the model is known not to accept the attached files.

    `picture` and `document` are the advice in the error.
    """
    if not attached:
        return
    sees = _sees(model)
    if sees is False and any(isinstance(block, Image) for block in attached):
        raise UsageProblem(f"{model} does not accept pictures: {picture}, or choose another model (`swink models`)")
    if any(isinstance(block, Document) for block in attached) and not _takes_documents(model, sees):
        from swink_agent.adapters.registry import PROVIDERS, proxy

        takers = ", ".join(
            [provider.name for provider in PROVIDERS if provider.takes_documents and provider is not proxy]
        )
        raise UsageProblem(f"{model} takes no documents: {document}, or choose a model of another provider ({takers})")


def _sees(model: ModelSpec) -> bool | None:
    if model.provider == "local":
        return False
    from swink_agent.adapters.catalog import ModelCatalog

    info = ModelCatalog.load().find(model)
    return None if info is None else info.capabilities.images


def _takes_documents(model: ModelSpec, sees: bool | None) -> bool:
    """Whether the model may accept documents. `True` for a provider without a description: it decides by itself."""
    from swink_agent.core.providers import description_of

    if model.provider in ("openai", "openai-responses") and sees is False:
        return False
    description = description_of(model.provider)
    return description is None or description.takes_documents
