"""Decodes the bytes of a frame to a typed value, or raises one of two errors.

Bytes that are not JSON are a `FrameError`: a broken connection may be the cause. JSON of an unexpected shape is a
`ShapeError`, which a retry does not fix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast, get_args

import msgspec
from msgspec import Struct

from swink_agent.core.values.decoders import converted, whole_json

from .frames import FrameError, ShapeError

T = TypeVar("T", bound=Struct)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MOST_TOKENS = 10**12  # more than any real count; a larger one is an error and must not distort the sums


def mapping(value: object) -> dict[str, Any]:
    """Returns the value if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Returns the value if it is an array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text(value: object) -> str:
    """Returns the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def count(value: object, *path: str) -> int:
    """Returns the count at a path of names, or zero if there is no valid one. A number may be in quotes."""
    for name in path:
        value = mapping(value).get(name)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 16:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MOST_TOKENS:
        return 0
    return int(value)


def object_in(data: bytes | str) -> dict[str, Any]:
    """Returns the object in JSON, or an empty one if there is none."""
    try:
        return mapping(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def json_text(value: object) -> str:
    """Encodes the value as JSON text."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return ""


# -- frames --------------------------------------------------------------------------------------------------


def read(
    payload: bytes, decode: Callable[[bytes], T], kind: type[T], noun: str, optional: frozenset[str] = frozenset()
) -> T:
    """Decodes the frame's document to a struct, with the decoder of that struct.

    A document that does not fit is converted field by field: numbers in quotes are accepted, and `optional` fields that
    do not fit are dropped. If it has an `error`, any field that does not fit is dropped. Raises `FrameError` or
    `ShapeError`.
    """
    try:
        return decode(payload)
    except msgspec.ValidationError:
        return _fitted(document(payload, noun), kind, noun, optional)
    except UNREADABLE as error:
        # Some servers split an escaped character between two frames.
        if (mended := whole_json(payload)) != payload:
            return read(mended, decode, kind, noun, optional)
        raise FrameError(f"{noun} that cannot be read: {error}") from error


def document(payload: bytes, noun: str) -> object:
    """Decodes the frame's document, of any type. Raises `FrameError` or `ShapeError`."""
    try:
        return msgspec.json.decode(payload)
    except msgspec.ValidationError as error:  # a number out of range
        raise ShapeError(f"{noun} that cannot be read: {error}") from error
    except UNREADABLE as error:
        raise FrameError(f"{noun} that cannot be read: {error}") from error


def _fitted(value: object, kind: type[T], noun: str, optional: frozenset[str]) -> T:
    if not isinstance(value, dict):
        raise ShapeError(f"{noun} that is not an object")
    fields = cast("dict[str, Any]", value)
    is_error = fields.get("error") is not None
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        name = field.encode_name
        if name not in fields:
            continue
        try:
            values[field.name] = _value(fields[name], field.type, f"{noun}, in its {name!r},", optional)
        except (msgspec.ValidationError, ShapeError) as error:
            if is_error or name in optional:
                continue
            if isinstance(error, ShapeError):
                raise
            raise ShapeError(f"{noun} with a {name!r} that cannot be read: {error}") from error
    return kind(**values)


def _value(value: object, kind: Any, noun: str, optional: frozenset[str]) -> Any:
    if kind is msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(value))
    try:
        return converted(value, kind, strict=False)
    except msgspec.ValidationError:
        for option in (kind, *get_args(kind)):
            if isinstance(option, type) and issubclass(option, Struct) and isinstance(value, dict):
                return _fitted(cast("object", value), option, noun, optional)
            inner = (get_args(option) or (None,))[0]
            if isinstance(inner, type) and issubclass(inner, Struct) and isinstance(value, list):
                return [_fitted(item, inner, noun, optional) for item in cast("list[object]", value)]
        raise
