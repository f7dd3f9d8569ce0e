"""The messages of an AG-UI client: which of them a session does not have, and what they become in its history.

A client sends all messages of its thread with every request. They are compared with the history by id, role and text.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from swink_agent.core.encoding.media import kind_of
from swink_agent.core.types import (
    PDF,
    AgentMessage,
    AssistantMessage,
    Base64Source,
    Document,
    Image,
    StopReason,
    Text,
    ToolCall,
    ToolResultMessage,
    UrlSource,
    UserMessage,
    extract_text,
)
from swink_agent.memory.storage.protocols import is_id

from .problems import Problem, invalid

_ROLES = ("user", "assistant", "tool")


class Place(NamedTuple):
    """Where a client's message is in the history, and the text with which it came."""

    position: int
    text: str


class News(NamedTuple):
    """What a client's messages add to a history."""

    places: dict[str, Place]
    """The client's messages that the history has, by their ids."""
    cut: int | None
    """The number of messages after which the client's thread parts from the history; `None` if it goes on behind it."""
    earlier: Sequence[Any]
    """Messages that were answered elsewhere: they become history."""
    prompts: Sequence[Any]
    """The newest messages of the user."""


def session_of(thread: str) -> str:
    """Returns the id of a thread's session: the thread's own if a session can have it."""
    if is_id(thread):
        return thread
    return f"thread-{hashlib.sha256(thread.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


def text_of(message: Any) -> str:
    """Returns the text of a client's message."""
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join([part.text for part in content if part.type == "text"])


def has_content(message: Any) -> bool:
    """Whether a message of the user has a text that is not blank, or an attachment."""
    is_plain = isinstance(message.content, str)
    return bool(text_of(message).strip()) or (not is_plain and any(part.type != "text" for part in message.content))


def news(
    messages: Sequence[Any],
    history: Sequence[AgentMessage],
    known: Mapping[str, Place],
    redact: Callable[[str], str] = str,
) -> News:
    """Compares a client's messages with a history. `known` are those that are in the history for certain.

    Only messages of the user are looked for: the replies between them are the history's own. A message is in the
    history by its id, or by its text if it came without this client. Call it in a thread: it masks all texts.
    """
    given = [message for message in messages if message.role in _ROLES]
    newest = len(given)
    while newest and given[newest - 1].role == "user":
        newest -= 1
    ours = [(at, extract_text(message.content)) for at, message in enumerate(history) if type(message) is UserMessage]
    taken = {place.position for place in known.values()}
    places: dict[str, Place] = {}
    next_ours = 0

    def parted(number: int, cut: int | None) -> News:
        start = max(number, newest)
        return News(places, cut, given[number:start], given[start:])

    if not ours:  # the server does not know the thread
        return parted(0, None)
    for number, message in enumerate(given):
        if message.role != "user":
            continue
        text = redact(text_of(message))
        place = (
            None if message.id in places else known.get(message.id)
        )  # an id that comes twice names its first message
        if place is not None and place.text != text:
            return parted(number, place.position)
        if place is None:
            at = next((at for at, words in ours[next_ours:] if words == text and at not in taken), None)
            place = None if at is None else Place(at, text)
        if place is not None:
            places[message.id] = place
            while next_ours < len(ours) and ours[next_ours][0] <= place.position:
                next_ours += 1
            continue
        # The message is not in the history. If the history has another in its place, it replaces that one.
        other = ours[next_ours][0] if next_ours < len(ours) else None
        is_replaced = other is not None and (number < newest or (bool(places) and other in taken))
        return parted(number, other if is_replaced else None)
    return parted(len(given), None)


def as_history(messages: Sequence[Any], most: int) -> list[AgentMessage]:
    """Returns a client's messages as those of a history. Raises 413, 415 and 422 for their attachments."""
    made: list[AgentMessage] = []
    names: dict[str, str] = {}
    for message in messages:
        text = text_of(message)
        if message.role == "user":
            if content := [*([Text(text)] if text else []), *attachments(message, most)]:
                made.append(UserMessage(content))
        elif message.role == "tool":
            result = message.error or text
            name = names.get(message.tool_call_id, "")
            made.append(ToolResultMessage(message.tool_call_id, result, bool(message.error), tool_name=name))
        else:
            calls = [_call(call) for call in message.tool_calls or ()]
            names |= {call.id: call.name for call in calls}
            reason = StopReason.TOOL_USE if calls else StopReason.STOP
            if text or calls:
                made.append(AssistantMessage([*([Text(text)] if text else []), *calls], stop_reason=reason))
    return made


def _call(call: Any) -> ToolCall:
    text = call.function.arguments
    try:
        arguments = msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.DecodeError:  # also of a value that is not an object
        return ToolCall(call.id, call.function.name, {}, text)
    return ToolCall(call.id, call.function.name, arguments)


def attachments(message: Any, most: int) -> list[Image | Document]:
    """Returns the pictures and documents of a message. Raises 413, 415 and 422."""
    return [*linked(message), *[_held(content) for content in data_of(message, most)]]


def linked(message: Any) -> list[Image | Document]:
    """Returns what a message attaches by its address, which only the provider follows. Raises 415 and 422."""
    return [_at_address(part.type, part.source) for part in _parts(message) if _is_linked(part)]


def data_of(message: Any, most: int) -> list[bytes]:
    """Returns what a message attaches as data. Raises 413 and 422."""
    return [_data(part, most) for part in _parts(message) if part.type != "text" and not _is_linked(part)]


def _parts(message: Any) -> Sequence[Any]:
    return () if isinstance(message.content, str) else message.content


def _is_linked(part: Any) -> bool:
    source = getattr(part, "source", None)
    return source is not None and source.type == "url"


def _data(part: Any, most: int) -> bytes:
    source = getattr(part, "source", None)
    data = getattr(part, "data", None) if source is None else source.value
    if data is None or (source is not None and source.type != "data"):
        raise invalid("attachments are sent as data or as addresses, not as files of a provider")
    try:
        content = b64decode(data, validate=True)
    except ValueError:
        raise invalid("an attachment is not in base 64") from None
    if len(content) > most:
        raise Problem(413, "too_large", f"an attachment is larger than {most:,} bytes")
    return content


def _held(content: bytes) -> Image | Document:
    kind, data = kind_of(content), b64encode(content).decode()
    if not kind:
        raise Problem(415, "media_type", "only PNG, JPEG, GIF and WebP pictures and PDF documents can be attached")
    return Document(Base64Source(kind, data)) if kind == PDF else Image(Base64Source(kind, data))


def _at_address(kind: str, source: Any) -> Image | Document:
    if source.value[:8].lower() != "https://":
        raise invalid("the address of an attachment begins with https://")
    if kind == "image":
        return Image(UrlSource(source.value, source.mime_type))
    if kind == "document" and source.mime_type in (None, PDF):
        return Document(UrlSource(source.value, PDF))
    raise Problem(415, "media_type", "only pictures and PDF documents can be attached")
