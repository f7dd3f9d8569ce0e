"""Building request bodies without encoding again what was encoded for the turn before.

Owns the pieces that every adapter's request builder is made of: encoded messages that are remembered, the joining of
JSON that is already bytes, ids in the form that a provider takes. Images are in `images`.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

__all__ = ["EncodedMessages", "json_array", "json_object", "short_id"]

_MOST_REMEMBERED = 64 * 1024 * 1024
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class EncodedMessages:
    """The JSON of messages, kept for as long as the same message objects come back, as they do from turn to turn."""

    __slots__ = ("_known", "_size")

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, object], tuple[object, bytes]] = OrderedDict()
        self._size = 0

    def encode(self, message: object, encode: Callable[[Any], Any], variant: object = None) -> bytes:
        """The JSON of what `encode` makes of the message; `variant` tells several of its forms apart."""
        key = (id(message), variant)
        known = self._known.get(key)
        if known is not None and known[0] is message:
            self._known.move_to_end(key)
            return known[1]
        data = msgspec.json.encode(encode(message))
        self._known[key] = (message, data)
        self._size += len(data)
        while self._size > _MOST_REMEMBERED and len(self._known) > 1:
            _, (_, dropped) = self._known.popitem(last=False)
            self._size -= len(dropped)
        return data


def json_array(items: Iterable[bytes]) -> bytes:
    """An array of documents that are JSON already."""
    return b"[" + b",".join(items) + b"]"


def json_object(fields: Mapping[str, Any]) -> bytes:
    """An object whose values are JSON already where they are bytes; those that are `None` are left out."""
    parts = [
        msgspec.json.encode(name) + b":" + (value if isinstance(value, bytes) else msgspec.json.encode(value))
        for name, value in fields.items()
        if value is not None
    ]
    return b"{" + b",".join(parts) + b"}"


def short_id(given: str, kind: str) -> str:
    """The id if every provider takes it, else one made of it: always the same, and nothing of it to be read."""
    if _PLAIN_ID.fullmatch(given):
        return given
    return f"{kind}_{hashlib.sha256(given.encode(errors='replace')).hexdigest()[:32]}"
