"""Data of tools and applications. It is JSON, and becomes JSON once, where it enters.

Owns the two steps: `as_json` writes any value as JSON, and `as_json_data` reads that again, as data that nobody can
change. Behind it, everything may share the data, and a session shows the same as the live run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from .checks import a_kind
from .nesting import DEEPEST, is_too_deep, kept_shallow, shown, too_deep
from .value import FrozenDict, FrozenList

_CONSTANT: frozenset[Any] = frozenset({int, bool, type(None), FrozenDict, FrozenList})
_KEYS: frozenset[Any] = frozenset({str})
_LISTS: frozenset[Any] = frozenset({list, tuple})
_OBJECTS: frozenset[Any] = frozenset({dict})


def as_json_data(value: Any, *, cuts_deep: bool = False) -> Any:
    """Returns the value as frozen JSON data; frozen data is shared. Other objects become lists, objects or text.

    Parts that are nested too deep, or contain themselves, become text with `cuts_deep`. Else raises `ValueError`.
    """
    try:
        return _frozen(value, DEEPEST)
    except _NotJson:
        pass
    if cuts_deep:
        value = kept_shallow(value)
    elif is_too_deep(value):
        raise ValueError(too_deep())
    return _frozen(msgspec.json.decode(as_json(value)), DEEPEST + 1)


def checked_json_data(value: Any) -> Any:
    """Returns the value as frozen JSON data. Raises `ValueError` for what would come back as something else, such as an
    object, a number that JSON does not have, or data that is nested too deep. A tuple becomes a list."""
    try:
        return _frozen(value, DEEPEST)
    except _NotJson as error:
        what = too_deep() if is_too_deep(value) else f"JSON does not have {a_kind(error.args[0])} such as this"
        raise ValueError(what) from None


class _NotJson(Exception):
    """The data is not JSON, or is nested too deep."""


def _frozen(value: object, levels: int) -> Any:
    if type(value) in _CONSTANT:
        return value
    if type(value) is str:
        if _is_encodable(value):
            return value
    elif type(value) is float:
        if math.isfinite(value):
            return value
    elif levels and type(value) in _OBJECTS:
        fields = cast("dict[Any, Any]", value)
        if _KEYS.issuperset(map(type, fields)) and _is_encodable("".join(fields)):
            return FrozenDict({key: _frozen(item, levels - 1) for key, item in fields.items()})
    elif levels and type(value) in _LISTS:
        return FrozenList([_frozen(item, levels - 1) for item in cast("list[Any]", value)])
    raise _NotJson(value)


def _is_encodable(text: str) -> bool:
    return text.isascii() or encodable(text) is text


def _as_plain(value: object) -> object:
    """What stands for an object that JSON does not have: a dict for any other mapping, else its text."""
    try:
        fields = dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else None
    except Exception:  # an object of an application may fail at anything
        fields = None
    return shown(cast("object", value)) if fields is None else fields


_encoder = msgspec.json.Encoder(enc_hook=_as_plain)


def as_json(value: Any) -> bytes:
    """Encodes any value. Objects that JSON does not have, and data that is nested too deep, are written as text."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, UnicodeError, RecursionError):
        return _encoder.encode(plain_json(kept_shallow(value)))


def plain_json(value: Any) -> Any:
    """Returns a copy in which everything is JSON: odd keys and values become text, broken characters question marks."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, Mapping) and isinstance(plain := _as_plain(cast("object", value)), dict):
        return {encodable(shown(key)): plain_json(item) for key, item in cast("dict[Any, Any]", plain).items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_json(item) for item in cast("list[Any]", value)]
    if isinstance(value, bool) or value is None or isinstance(value, msgspec.Raw):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {} if config.tag is None else {cast("str", config.tag_field): config.tag}
        return tag | {name: plain_json(getattr(value, name)) for name in value.__struct_fields__}
    return encodable(shown(cast("object", value)))


def encodable(text: str) -> str:
    """Replaces characters that UTF-8 cannot encode, such as those in some file names: no provider accepts them."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
