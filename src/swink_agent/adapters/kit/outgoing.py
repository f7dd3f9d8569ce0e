"""Prepares a context for a request: reads image files, and replaces blocks that cannot be sent by notes.

Slow work runs outside the event loop. Each adapter's request builder handles further limits of its provider.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import msgspec

from swink_agent.core.types import (
    AgentMessage,
    Base64Image,
    Extension,
    FileImage,
    Image,
    Text,
    ToolResultMessage,
    UserBlock,
    UserMessage,
)

from .images import Note, picture

__all__ = ["OutgoingMessages", "RequestError", "refused_files"]

log = logging.getLogger("swink_agent")
_MOST_REMEMBERED = 64 * 1024 * 1024
_Key = tuple[int, bool]


class RequestError(ValueError):
    """No request can be built, for example because the region is missing."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


# -- messages ------------------------------------------------------------------------------------------------


class OutgoingMessages:
    """Replaces what cannot be sent in messages. A message is changed once; later calls return the same object."""

    __slots__ = ("_known", "_size")

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, tuple[AgentMessage, AgentMessage, int]] = OrderedDict()
        self._size = 0

    async def prepare(
        self, messages: Sequence[AgentMessage], takes_images: Callable[[], bool], *, keeps_extensions: bool = False
    ) -> Sequence[AgentMessage]:
        """Reads files and replaces what cannot be sent by notes; returns the same messages if nothing changes."""
        found = [position for position, message in enumerate(messages) if _needs_a_look(message)]
        if not found:
            return messages
        images = takes_images()
        prepared = list(messages)
        for position in found:
            prepared[position] = await self._prepared(messages[position], images, keeps_extensions)
        return tuple(prepared)

    async def _prepared(self, message: AgentMessage, takes_images: bool, keeps_extensions: bool) -> AgentMessage:
        key = (id(message), takes_images)
        known = self._known.get(key)
        if known is not None and known[0] is message:
            self._known.move_to_end(key)
            return known[1]
        blocks = cast("Any", message).content
        if takes_images and any(_is_file(block) for block in blocks):
            content = await asyncio.to_thread(_sendable, blocks, takes_images, keeps_extensions)
        else:
            content = _sendable(blocks, takes_images, keeps_extensions)
        if all(new is old for new, old in zip(content, blocks, strict=True)):
            return message
        changed = cast("AgentMessage", msgspec.structs.replace(cast("Any", message), content=content))
        self._remember(key, message, changed, sum(_size_of(block) for block in content))
        return changed

    def _remember(self, key: _Key, message: AgentMessage, changed: AgentMessage, size: int) -> None:
        self._known[key] = (message, changed, size)
        self._size += size
        while self._size > _MOST_REMEMBERED and len(self._known) > 1:
            _, (_, _, dropped) = self._known.popitem(last=False)
            self._size -= dropped


def _needs_a_look(message: AgentMessage) -> bool:
    if type(message) is not UserMessage and type(message) is not ToolResultMessage:
        return False
    return any(type(block) is not Text for block in message.content)


def _is_file(block: UserBlock) -> bool:
    return type(block) is Image and type(block.source) is FileImage


def _sendable(blocks: Sequence[UserBlock], takes_images: bool, keeps_extensions: bool) -> list[UserBlock]:
    return [block if type(block) is Text else _or_note(block, takes_images, keeps_extensions) for block in blocks]


def _or_note(block: UserBlock, takes_images: bool, keeps_extensions: bool) -> UserBlock:
    """Returns the block if it can be sent, else a note."""
    if type(block) is Extension:
        if keeps_extensions:
            return block
        return Text(f"[a block of the type {block.type_name[:60]!r} was here, which cannot be sent]")
    if type(block) is not Image:
        return block
    if not takes_images:
        return Text("[image left out: this model takes no images]")
    if type(block.source) is not FileImage:
        return block
    found = picture(block)
    if isinstance(found, Note):
        log.warning("a request goes out without an image: %s", found.text)
        return Text(found.text)
    return Image(Base64Image(found.media_type, found.data))


def _size_of(block: UserBlock) -> int:
    source = block.source if type(block) is Image else None
    return len(source.data) if type(source) is Base64Image else 0


def refused_files(messages: Sequence[AgentMessage]) -> Iterator[AgentMessage]:
    """Replaces every file by a note, for messages from another machine, whose files are not here."""
    for message in messages:
        if type(message) in (UserMessage, ToolResultMessage) and any(map(_is_file, cast("Any", message).content)):
            content = [
                Text("[image left out: it is a file on another machine]") if _is_file(block) else block
                for block in cast("Any", message).content
            ]
            yield cast("AgentMessage", msgspec.structs.replace(cast("Any", message), content=content))
        else:
            yield message
