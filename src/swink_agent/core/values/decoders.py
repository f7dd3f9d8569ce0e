"""msgspec's decoders, built by one thread at a time.

msgspec stores its description of a class (a struct, a dataclass, a typed dict or a named tuple) on the class itself. It
does so when a decoder first meets the class, and without a lock: a second thread that meets the class at that moment
reads a half-built description, and the process crashes. So every decoder in this package is built here, under one lock.
Once a decoder is built, any thread can use it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import RLock
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")
_Hook = Callable[[type, Any], Any]

_BUILDING = RLock()


@overload
def json_decoder(kind: type[T], dec_hook: _Hook | None = None) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(kind: Any, dec_hook: _Hook | None = None) -> msgspec.json.Decoder[Any]: ...
def json_decoder(kind: Any, dec_hook: _Hook | None = None) -> msgspec.json.Decoder[Any]:
    """Builds a JSON decoder for the type. Raises `TypeError` for a type that msgspec does not support."""
    with _BUILDING:
        return msgspec.json.Decoder(kind, dec_hook=dec_hook)


def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Builds a MessagePack decoder for the type. Raises `TypeError` for a type that msgspec does not support."""
    with _BUILDING:
        return msgspec.msgpack.Decoder(kind)


def learn(kind: Any) -> None:
    """Makes msgspec store its description of the type, so that any thread can call `msgspec.convert` with it."""
    try:
        json_decoder(kind)
    except Exception:
        pass  # the caller gets the error when it uses the type


def converted(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """Converts plain data to a value of the type. Raises `msgspec.ValidationError`."""
    learn(kind)
    return msgspec.convert(value, kind, strict=strict)


def whole_json(data: bytes) -> bytes:
    """Returns the JSON with every escaped lone surrogate replaced, if msgspec refuses the data.

    Programs that cut texts write such escapes. Data that is not JSON is returned unchanged.
    """
    if b"\\ud" in data or b"\\uD" in data:
        try:
            msgspec.json.decode(data)
        except (ValueError, RecursionError):
            try:
                return json.dumps(json.loads(data), ensure_ascii=False).encode(errors="replace")
            except (ValueError, RecursionError):
                return data
    return data
