"""Builds request bodies without encoding again what was encoded for an earlier turn.

Caches encoded messages, joins JSON that is already bytes, and makes ids that every provider accepts.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import uuid4

import msgspec

__all__ = ["EncodedMessages", "json_array", "json_object", "short_id", "unused_id"]

_MOST_REMEMBERED = 64 * 1024 * 1024
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class EncodedMessages:
    """A cache of the JSON of messages, as long as the same message objects come back from turn to turn."""

    __slots__ = ("_known", "_size")

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, object], tuple[object, bytes]] = OrderedDict()
        self._size = 0

    def encode(self, message: object, encode: Callable[[Any], Any], variant: object = None) -> bytes:
        """Returns the JSON of what `encode` returns for the message; `variant` distinguishes forms of one message."""
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
    """Joins JSON documents to an array."""
    return b"[" + b",".join(items) + b"]"


def json_object(fields: Mapping[str, Any]) -> bytes:
    """Makes an object; values that are bytes are JSON already, and values that are `None` are left out."""
    parts = [
        msgspec.json.encode(name) + b":" + (value if isinstance(value, bytes) else msgspec.json.encode(value))
        for name, value in fields.items()
        if value is not None
    ]
    return b"{" + b",".join(parts) + b"}"


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
