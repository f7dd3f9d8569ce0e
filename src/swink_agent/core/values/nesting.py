"""Data that is nested too deep, or that contains itself.

The library masks, copies, encodes and compares data of tools, models and applications level by level. Each level takes
some of the interpreter's stack, which is enough for about a thousand levels, fewer if the caller is deep itself. So
data from outside is limited to far fewer levels, and deeper data is kept as text. Nothing in this module is recursive.

`value` copies data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.json import encode

DEEPEST = 128
"""Levels of nested lists and objects. Other JSON readers accept 64 to 128, and no tool's data needs more."""
_MOST_TEXT = 64 * 1024

_SCALARS = frozenset({str, int, float, bool, type(None)})
_LISTS = (list, tuple, set, frozenset)
_SURE_LISTS = frozenset(_LISTS)  # types of the language itself, which do not fail
_NO_LISTS = _SCALARS | {dict}

T = TypeVar("T")


def is_too_deep(value: object, most: int = DEEPEST) -> bool:
    """Whether the value has more than `most` levels, as a value that contains itself does."""
    level: Iterable[object] = (value,)
    for _ in range(most):
        # By identity, so that an object which occurs twice is visited once: one that contains itself twice would
        # otherwise take exponential time.
        below: dict[int, object] = {}
        for one in level:
            for child in inside(one):
                if type(child) not in _SCALARS:
                    below[id(child)] = child
        if not below:
            return False
        level = below.values()
    return True


def too_deep(most: int = DEEPEST) -> str:
    """Returns the wording for an error message."""
    return f"nested deeper than {most} levels"


def kept_shallow(value: T) -> T:
    """Returns the value itself if it is not too deep, else a text that shows it. In an object, only the fields that are
    too deep become text."""
    if not is_too_deep(value):
        return value
    if isinstance(value, dict):
        fields = cast("dict[Any, Any]", value)
        most = DEEPEST - 1
        return cast(
            "T", {key: as_text(item, most) if is_too_deep(item, most) else item for key, item in fields.items()}
        )
    return cast("T", as_text(value))


def as_text(value: object, levels: int = DEEPEST) -> str:
    """Returns a note on the depth and the value as JSON text, cut if it is very long."""
    parts, size, is_cut = [f"[{too_deep(levels)}] "], 0, False
    waiting: list[object] = [value]
    while waiting:
        part = _written(waiting.pop(), waiting)
        parts.append(part)
        size += len(part)
        if size > _MOST_TEXT:
            is_cut = True
            break
    text = "".join(parts)
    return text[:_MOST_TEXT] + "…" if is_cut else text


class _Mark(str):
    """Punctuation between values."""


def _written(value: object, waiting: list[object]) -> str:
    """Returns the beginning of the value and pushes the rest of it on the stack `waiting`."""
    kind = type(value)
    if kind is _Mark:
        return cast("str", value)
    if kind in _SCALARS:
        return _scalar(value)
    items = _items(value)
    if items is not None:
        rest: list[object] = []
        for item in items:
            rest += [_Mark(","), item]
        waiting += [_Mark("]"), *reversed(rest[1:])]
        return "["
    fields = _fields(value)
    if fields is None:
        return _scalar(shown(value))
    rest = []
    for key, item in fields.items():
        rest += [_Mark(f"{',' if rest else ''}{_scalar(shown(key))}:"), item]
    waiting += [_Mark("}"), *reversed(rest)]
    return "{"


def _scalar(value: object) -> str:
    if isinstance(value, str):
        value = value.encode("utf-8", "replace").decode()
    return encode(value).decode()


def shown(value: object) -> str:
    """Returns the text of a value; its type if that fails."""
    try:
        return str(value)
    except Exception:  # `str` of an application's object may fail
        return f"<{type(value).__name__}>"


def inside(value: object) -> Iterable[object]:
    """The values directly inside a value."""
    items = _items(value)
    if items is not None:
        return items
    fields = _fields(value)
    return () if fields is None else fields.values()


# An object of an application may fail at anything that is asked of it. Then it counts as a value without others in it.


def _items(value: object) -> Iterable[object] | None:
    """The items of a value that is written as a list; `None` for any other."""
    if type(value) in _SURE_LISTS:
        return cast("Iterable[object]", value)
    if type(value) in _NO_LISTS:
        return None
    try:
        return list(cast("Iterable[object]", value)) if isinstance(value, _LISTS) else None
    except Exception:
        return None


def _fields(value: object) -> Mapping[Any, Any] | None:
    """The fields of a value that is written as a JSON object; `None` for any other."""
    if type(value) is dict:
        return cast("dict[Any, Any]", value)
    if type(value) in _SCALARS:
        return None
    try:
        if isinstance(value, (dict, Mapping)):
            return dict(cast("Mapping[Any, Any]", value).items())
        if isinstance(value, Struct):
            return {name: getattr(value, name) for name in value.__struct_fields__}
        names = getattr(type(value), "__dataclass_fields__", None)
        return None if names is None else {name: _field_of(value, name) for name in names}
    except Exception:
        return None


def _field_of(value: object, name: str) -> Any:
    """Returns a field of a dataclass; `None` if it is not set, or cannot be read."""
    try:
        return getattr(value, name)
    except Exception:
        return None
