"""Prepares a context for a request: reads files, replaces blocks that cannot be sent by notes, and makes ids unique.

Slow work runs outside the event loop. Each adapter's request builder handles further limits of its provider.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from swink_agent.core.context.context import SentMessages, document_note, failed_before, new_document, refused_document
from swink_agent.core.types import (
    PDF,
    AgentMessage,
    AssistantMessage,
    Base64Source,
    Document,
    Extension,
    FileSource,
    Image,
    ModelSpec,
    Text,
    ToolCall,
    ToolResultMessage,
    UserBlock,
    UserMessage,
    extract_text,
)

from .bodies import MessageCache, short_id
from .images import Note, Picture, document_data, picture

log = logging.getLogger("swink_agent")


class RequestError(ValueError):
    """No request can be built, for example because the region is missing."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


# -- messages ------------------------------------------------------------------------------------------------


class _Taken(NamedTuple):
    """The kinds of blocks that may stay in the messages; the others become notes."""

    images: bool
    documents: bool
    extensions: bool


class OutgoingMessages:
    """Replaces blocks that cannot be sent. A message is changed once; later calls return the same object."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known = MessageCache[AgentMessage]()

    async def prepare(
        self,
        messages: Sequence[AgentMessage],
        takes_images: Callable[[], bool],
        *,
        keeps_extensions: bool = False,
        without_documents: Callable[[], str] = lambda: "this provider",
        names_documents: Callable[[Document], str] | None = None,
        keeps_ids_of: ModelSpec | None = None,
    ) -> Sequence[AgentMessage]:
        """Reads files and replaces blocks that cannot be sent by notes; returns the same messages if nothing changes.

        `without_documents` names a provider or model that takes no documents: then a document since the last reply
        raises `RequestError`, and an older one becomes a note. `names_documents` returns names that a provider takes;
        it is called in the order of the documents. Call ids that recur are made different, except in replies of the
        model `keeps_ids_of`.
        """
        found = [position for position, message in enumerate(messages) if _needs_a_look(message)]
        recurring = _recurring_ids(messages, keeps_ids_of)
        if not found and not recurring:
            return messages
        with_documents = [position for position in found if _has_document(messages[position])]
        blind = without_documents() if with_documents else ""
        if blind and (document := new_document(messages)) is not None:
            raise RequestError(refused_document(blind, document))
        taken = _Taken(takes_images(), not blind, keeps_extensions)
        prepared = list(messages)
        for position in found:
            prepared[position] = await self._prepared(messages[position], taken)
        if names_documents is not None and taken.documents:
            for position in with_documents:
                prepared[position] = self._named(prepared[position], names_documents)
        for position, ids in recurring.items():
            prepared[position] = self._with_ids(prepared[position], ids)
        before = failed_before(messages)
        return SentMessages(prepared, before) if before else tuple(prepared)

    async def _prepared(self, message: AgentMessage, taken: _Taken) -> AgentMessage:
        if (known := self._known.find(message, taken)) is not None:
            return known
        blocks = cast("Any", message).content

        def sendable() -> list[UserBlock]:
            return [block if type(block) is Text else _or_note(block, taken) for block in blocks]

        is_read = any(
            _is_file(block) and (taken.images if type(block) is Image else taken.documents) for block in blocks
        )
        content = await asyncio.to_thread(sendable) if is_read else sendable()
        return self._changed(taken, message, blocks, content)

    def _named(self, message: AgentMessage, name_of: Callable[[Document], str]) -> AgentMessage:
        """Gives the documents of a message the names that the provider takes."""
        blocks = cast("Any", message).content
        names = tuple([name_of(block) for block in blocks if type(block) is Document])
        if (known := self._known.find(message, names)) is not None:
            return known
        new = iter(names)
        content = [
            block if type(block) is not Document or (name := next(new)) == block.name else Document(block.source, name)
            for block in blocks
        ]
        return self._changed(names, message, blocks, content)

    def _with_ids(self, message: AgentMessage, ids: tuple[str, ...]) -> AgentMessage:
        """Gives the calls of a reply, or a result, other ids."""
        if (known := self._known.find(message, ids)) is not None:
            return known
        new = iter(ids)
        if type(message) is AssistantMessage:
            content = [
                msgspec.structs.replace(block, id=next(new)) if type(block) is ToolCall else block
                for block in message.content
            ]
            changed: AgentMessage = msgspec.structs.replace(message, content=tuple(content))
        else:
            changed = msgspec.structs.replace(cast("ToolResultMessage", message), tool_call_id=next(new))
        return self._known.keep(message, ids, changed, len(extract_text(cast("Any", message).content)))

    def _changed(
        self, variant: object, message: AgentMessage, blocks: Sequence[UserBlock], content: Sequence[UserBlock]
    ) -> AgentMessage:
        """Returns the message with this content, which is remembered, or the same if nothing has changed."""
        if all(new is old for new, old in zip(content, blocks, strict=True)):
            return message
        changed = cast("AgentMessage", msgspec.structs.replace(cast("Any", message), content=tuple(content)))
        sources = [block.source for block in content if type(block) is Image or type(block) is Document]
        size = sum(len(source.data) for source in sources if type(source) is Base64Source)
        return self._known.keep(message, variant, changed, size)


def _recurring_ids(messages: Sequence[AgentMessage], kept: ModelSpec | None) -> dict[int, tuple[str, ...]]:
    """Returns the ids to send for calls whose ids occurred before and for their results, by position.

    Some servers count the calls of each reply from the start. Others refuse a conversation with such ids.
    """
    answered = [message.tool_call_id for message in messages if type(message) is ToolResultMessage]
    if len(set(answered)) == len(answered):
        return {}
    replies = [message for message in messages if type(message) is AssistantMessage and _is_of(message, kept)]
    calls = Counter({call.id: 1 for reply in replies for call in reply.tool_calls})
    results = calls.copy()
    found: dict[int, tuple[str, ...]] = {}
    is_kept = False
    for position, message in enumerate(messages):
        if type(message) is AssistantMessage:
            is_kept = _is_of(message, kept)
            given = tuple(call.id for call in message.tool_calls)
            ids = given if is_kept else tuple(_numbered(one, calls) for one in given)
        elif type(message) is ToolResultMessage and not is_kept:
            given = (message.tool_call_id,)
            ids = (_numbered(message.tool_call_id, results),)
        else:
            continue
        if ids != given:
            found[position] = ids
    return found


def _is_of(message: AssistantMessage, model: ModelSpec | None) -> bool:
    return model is not None and (message.provider, message.model_id) == (model.provider, model.model_id)


def _numbered(given: str, counts: Counter[str]) -> str:
    """Returns the id itself at its first occurrence, and later an id made from it and the number of occurrences."""
    counts[given] += 1
    return given if counts[given] == 1 else short_id(f"{given} {counts[given]}", "call")


def _needs_a_look(message: AgentMessage) -> bool:
    if type(message) is not UserMessage and type(message) is not ToolResultMessage:
        return False
    content = message.content
    if len(content) == 1:  # almost always, and this runs for every message of every request
        return type(content[0]) is not Text
    return any(type(block) is not Text for block in content)


def _has_document(message: AgentMessage) -> bool:
    return any(type(block) is Document for block in cast("Any", message).content)


def _is_file(block: UserBlock) -> bool:
    return (type(block) is Image or type(block) is Document) and type(block.source) is FileSource


def _or_note(block: UserBlock, taken: _Taken) -> UserBlock:
    """Returns the block if it can be sent, else a note."""
    if type(block) is Extension:
        if taken.extensions:
            return block
        return Text(f"[a block of the type {block.type_name[:60]!r} was here, which cannot be sent]")
    if type(block) is Image and not taken.images:
        return Text("[image left out: this model takes no images]")
    if type(block) is Document and not taken.documents:
        return Text(document_note(block))
    if not _is_file(block):
        return block
    found = picture(block) if type(block) is Image else document_data(cast("Document", block))
    if isinstance(found, Note):
        log.warning(
            "a request goes out without %s: %s", "an image" if type(block) is Image else "a document", found.text
        )
        return Text(found.text)
    if isinstance(found, Picture):
        return Image(Base64Source(found.media_type, found.data))
    document = cast("Document", block)
    return Document(Base64Source(PDF, found), document.name or document.shown_name)


def refused_files(messages: Sequence[AgentMessage]) -> Iterator[AgentMessage]:
    """Replaces every file by a note, for messages from another machine, whose files are not here."""
    for message in messages:
        if type(message) in (UserMessage, ToolResultMessage) and any(map(_is_file, cast("Any", message).content)):
            content = [
                Text(f"[{type(block).__name__.lower()} left out: it is a file on another machine]")
                if _is_file(block)
                else block
                for block in cast("Any", message).content
            ]
            yield cast("AgentMessage", msgspec.structs.replace(cast("Any", message), content=content))
        else:
            yield message
