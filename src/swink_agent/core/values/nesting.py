"""Data that is nested deeper than anybody reads, or that holds itself.

What a tool, a model or an application gives us is gone through level by level: masked, copied, encoded, compared. Each
level takes some of the interpreter's stack, which ends somewhere near a thousand, sooner where the caller is deep in it
himself. So what comes in from outside is held to a number of levels that is far from that, and what lies deeper is kept
as text. Nothing here calls itself.

Owns the limit, and copying and showing without the stack. Copies of ordinary data are made in `value`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.json import encode

__all__ = ["DEEPEST", "as_text", "copied", "is_too_deep", "kept_shallow", "too_deep"]

DEEPEST = 128
"""Levels of lists and objects in each other. Other readers of JSON take 64 to 128, and no tool's data need more."""
_MOST_TEXT = 64 * 1024

_SCALARS = frozenset({str, int, float, bool, type(None)})
_LISTS = (list, tuple, set, frozenset)

T = TypeVar("T")


def is_too_deep(value: object, most: int = DEEPEST) -> bool:
    """Whether there are more than so many levels in it; so there are in what holds itself."""
    level: Iterable[object] = (value,)
    for _ in range(most):
        # By identity: what is there twice is looked at once, else there would be no end to what holds itself twice.
        below: dict[int, object] = {}
        for one in level:
            for child in _inside(one):
                if type(child) not in _SCALARS:
                    below[id(child)] = child
        if not below:
            return False
        level = below.values()
    return True


def too_deep(most: int = DEEPEST) -> str:
    """What is wrong with it, in words."""
    return f"nested deeper than {most} levels"


def kept_shallow(value: T) -> T:
    """The value itself, if it is not too deep. Else a text that shows it; of an object, with such texts in the places
    of those fields that are."""
    if not is_too_deep(value):
        return value
    if isinstance(value, dict):
        fields = cast("dict[Any, Any]", value)
        most = DEEPEST - 1
        return cast(
            "T",
            {key: as_text(item, most) if is_too_deep(item, most) else item for key, item in fields.items()},
        )
    return cast("T", as_text(value))


def as_text(value: object, levels: int = DEEPEST) -> str:
    """The value as JSON in a text, behind a note on why it is one. Of very much, the beginning."""
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
    """How the value begins; the rest of it is put where it will be taken from next."""
    kind = type(value)
    if kind is _Mark:
        return cast("str", value)
    if kind in _SCALARS:
        return _scalar(value)
    if isinstance(value, _LISTS):
        rest: list[object] = []
        for item in cast("Iterable[object]", value):
            rest += [_Mark(","), item]
        waiting += [_Mark("]"), *reversed(rest[1:])]
        return "["
    fields = _fields(value)
    if fields is None:
        return _scalar(_shown(value))
    rest = []
    for key, item in fields.items():
        rest += [_Mark(f"{',' if rest else ''}{_scalar(_shown(key))}:"), item]
    waiting += [_Mark("}"), *reversed(rest)]
    return "{"


def _scalar(value: object) -> str:
    if isinstance(value, str):
        value = value.encode("utf-8", "replace").decode()
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        value = str(value)  # the encoder takes no greater number
    return encode(value).decode()


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception:  # what an application put there may have no text
        return f"<{type(value).__name__}>"


def copied(
    value: Any, change: Callable[[Any, Any], Any] | None = None, key_of: Callable[[Any], Any] | None = None
) -> Any:
    """A copy in plain dicts and lists, however deep. What is in it twice is there twice in the copy, as one.

    `change` is given each value that holds no others, and the key that it is under, if it is under one; `key_of` makes
    the keys of the copy.
    """
    top: list[Any] = [value]
    known: dict[int, tuple[Any, Any]] = {}
    """The copies by the identity of their originals, which are kept so long that no other can have it."""
    waiting: list[tuple[Any, Any, Any, Any]] = [(top, 0, value, None)]
    while waiting:
        place, at, one, key = waiting.pop()
        identity = id(one)
        fields = None if type(one) in _SCALARS else _fields(one)
        if identity in known:
            place[at] = known[identity][1]
        elif fields is not None:
            place[at] = new = dict[Any, Any]()
            known[identity] = one, new
            for name, item in fields.items():
                new_name = name if key_of is None else key_of(name)
                new[new_name] = None  # in their order, whichever is filled first
                waiting.append((new, new_name, item, name))
        elif isinstance(one, _LISTS):
            place[at] = items = list(cast("Iterable[Any]", one))
            known[identity] = one, items
            waiting += [(items, index, item, None) for index, item in enumerate(items)]
        else:
            place[at] = one if change is None else change(one, key)
    return top[0]


def _inside(value: object) -> Iterable[object]:
    """What a value holds."""
    if isinstance(value, _LISTS):
        return cast("Iterable[object]", value)
    fields = None if type(value) in _SCALARS else _fields(value)
    return () if fields is None else fields.values()


def _fields(value: object) -> Mapping[Any, Any] | None:
    """What an object holds by name, of those that are written as JSON objects; `None` for anything else."""
    if isinstance(value, (dict, Mapping)):
        return cast("Mapping[Any, Any]", value)
    if isinstance(value, Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    names = getattr(type(value), "__dataclass_fields__", None)
    return None if names is None else {name: getattr(value, name, None) for name in names}
