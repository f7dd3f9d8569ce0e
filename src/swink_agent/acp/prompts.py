"""Turns the parts of an editor's prompt into a message: texts, links, pictures and documents.

What no model takes, such as sound, becomes a line that says what was left out. A picture or a document that is broken
raises `ValueError`: it would stay in the history, and every later prompt would fail.
"""

from __future__ import annotations

import os.path
from base64 import b64decode
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import schema
from msgspec.structs import replace

from swink_agent.app.runs.telling import size_of
from swink_agent.core.encoding.media import document_of, image_of, kind_of
from swink_agent.core.types import PDF, Image, Text, UserBlock
from swink_agent.rendering.escaping import safe_line

_LONGEST_NAME = 200


def alone(prompt: Sequence[Any]) -> str | None:
    """The text of a prompt that is one text and nothing else; only such a prompt can be a command."""
    return prompt[0].text if len(prompt) == 1 and isinstance(prompt[0], schema.TextContentBlock) else None


def blocks_of(prompt: Sequence[Any]) -> list[UserBlock]:
    """The blocks of a prompt, in order. Raises `ValueError`."""
    return [_block(part) for part in prompt]


def _block(part: Any) -> UserBlock:
    match part:
        case schema.TextContentBlock():
            return Text(part.text)
        case schema.ImageContentBlock():
            return _picture(_decoded(part.data, "an image"))
        case schema.ResourceContentBlock():
            return Text(f"[{safe_line(part.name)}]({safe_line(part.uri)})")
        case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as resource):
            return Text(f'<resource uri="{safe_line(resource.uri)}">\n{resource.text}\n</resource>')
        case schema.EmbeddedResourceContentBlock(resource=schema.BlobResourceContents() as resource):
            return _embedded(resource)
        case _:
            return Text(f"[left out: {_kind(part)}; only text, pictures and PDF can be sent]")


def _picture(data: bytes) -> Image:
    """The picture, of the kind that it has, whatever the editor calls it."""
    try:
        return image_of(data)
    except ValueError as error:
        raise ValueError(f"an image cannot be sent: {error}") from error


def _embedded(resource: Any) -> UserBlock:
    """A picture or a PDF, told by its bytes; of any other file only what it is."""
    name = _name_of(resource.uri)
    data = _decoded(resource.blob, name)
    kind = kind_of(data)
    if kind == PDF:
        try:
            return replace(document_of(data), name=name)
        except ValueError as error:
            raise ValueError(f"{name} cannot be sent: {error}") from error
    if kind:
        return _picture(data)
    what = ", ".join([word for word in (name, safe_line(resource.mime_type or ""), size_of(len(data))) if word])
    return Text(f"[left out: {what}; only text, pictures and PDF can be sent]")


def _decoded(data: str, what: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except ValueError as error:
        raise ValueError(f"{what} cannot be sent: {error}; PNG, JPEG, GIF, WebP and PDF are sent in base64") from error


def _name_of(uri: str) -> str:
    """The last part of the address, or the address."""
    try:
        path = unquote(urlsplit(uri).path)
    except ValueError:
        path = ""
    return safe_line(os.path.basename(path.rstrip("/")) or uri, _LONGEST_NAME)


def _kind(part: Any) -> str:
    return safe_line(str(getattr(part, "type", "a part of an unknown kind")), 40)
