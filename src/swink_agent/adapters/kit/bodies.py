"""Builds request bodies, and encodes each message only once for all turns.

Caches the encoded messages, joins JSON that is already bytes, and makes ids that every provider accepts.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, cast
from uuid import uuid4

import msgspec

from swink_agent.core.encoding.codec import decode_message, encode_message
from swink_agent.core.errors import ErrorKind, StreamError
from swink_agent.core.types import AgentMessage

T = TypeVar("T")
_MOST_REMEMBERED = 64 * 1024 * 1024
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class MessageCache(Generic[T]):
    """A cache of values that were made from message objects, for turns that contain the same objects again.

    `variant` distinguishes forms of one message. If the values exceed 64 MiB, the least recently used are dropped.
    """

    __slots__ = ("_known", "_size")

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, object], tuple[object, T, int]] = OrderedDict()
        self._size = 0

    def find(self, message: object, variant: object) -> T | None:
        key = (id(message), variant)
        known = self._known.get(key)
        if known is None or known[0] is not message:
            return None
        self._known.move_to_end(key)
        return known[1]

    def keep(self, message: object, variant: object, made: T, size: int) -> T:
        self._known[id(message), variant] = (message, made, size)
        self._size += size
        while self._size > _MOST_REMEMBERED and len(self._known) > 1:
            self._size -= self._known.popitem(last=False)[1][2]
        return made


class EncodedMessages(MessageCache[bytes]):
    """A cache of the JSON of messages."""

    __slots__ = ()

    def encode(self, message: object, encode: Callable[[Any], Any], variant: object = None) -> bytes:
        """Returns the JSON of `encode(message)`; `variant` distinguishes forms of one message."""
        known = self.find(message, variant)
        if known is not None:
            return known
        try:
            data = msgspec.json.encode(encode(message))
        except UnicodeError:  # half a character, as some names of files have it: no provider takes one
            data = msgspec.json.encode(encode(decode_message(encode_message(cast("AgentMessage", message)))))
        return self.keep(message, variant, data, len(data))


def parts_of(content: Iterable[object], makers: Mapping[type, Callable[[Any], dict[str, Any] | None]]) -> list[Any]:
    """Converts each block with the maker for its type. Blocks without a maker, and those that become `None`, are left
    out."""
    parts = [makers[type(block)](block) for block in content if type(block) in makers]
    return [part for part in parts if part is not None]


def json_array(items: Iterable[bytes]) -> bytes:
    """Joins JSON documents to an array."""
    return b"[" + b",".join(items) + b"]"


def json_object(fields: Mapping[str, Any]) -> bytes:
    """Makes an object; values that are bytes are JSON already, and values that are `None` are left out.

    Raises `StreamError`, which names the field, for a value that JSON cannot express.
    """
    parts: list[bytes] = []
    for name, value in fields.items():
        if value is None:
            continue
        try:
            written = value if isinstance(value, bytes) else msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            problem = f"the field {name!r} of the request cannot be written as JSON: {error}"
            raise StreamError(problem, kind=ErrorKind.INVALID_REQUEST) from error
        parts.append(msgspec.json.encode(name) + b":" + written)
    return b"{" + b",".join(parts) + b"}"


def error_text(text: str) -> str:
    """Returns the text of a failed call's result, for an API without a flag for errors: it begins with "Error"."""
    return text if text.lower().startswith("error") else f"Error: {text}"


def short_id(given: str, kind: str) -> str:
    """Returns the id if every provider accepts it, else a digest of it, which is always the same."""
    if _PLAIN_ID.fullmatch(given):
        return given
    return f"{kind}_{hashlib.sha256(given.encode(errors='replace')).hexdigest()[:32]}"


def unused_id(given: str | None, used: set[str]) -> str:
    """Returns the id of a call, or a new one if it is missing or used already in the reply."""
    call = given if given and given not in used else f"call_{uuid4().hex[:24]}"
    used.add(call)
    return call
