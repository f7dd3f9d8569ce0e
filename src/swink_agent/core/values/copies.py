"""Copies of data that is not only JSON: sets, tuples and objects.

`value` copies JSON itself and needs these functions only for other data, which few calls have. An object is copied as
`copy.deepcopy` does it; one that cannot be copied, such as a lock or an open file, is shared.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import date, time, timedelta
from enum import Enum
from pathlib import PurePath
from typing import Any, cast

from .value import FrozenSet, OpenDict, OpenList, Value

_SCALARS = frozenset({str, int, float, bool, type(None)})
_UNCHANGING = (str, int, float, bytes, Enum, PurePath, date, time, timedelta, Value)


def frozen(value: Any) -> Any:
    """Returns a copy whose dicts, lists and sets refuse changes, and whose objects are copies."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, dict):
        return OpenDict({key: frozen(item) for key, item in cast("dict[Any, Any]", value).items()})
    if isinstance(value, list):
        return OpenList([frozen(item) for item in cast("list[Any]", value)])
    if isinstance(value, set):
        return FrozenSet(map(frozen, cast("set[Any]", value)))
    return _other(value, frozen)


def unfrozen(value: Any) -> Any:
    """Returns a copy in plain dicts, lists and sets, whose objects are copies."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, dict):
        return {key: unfrozen(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [unfrozen(item) for item in cast("list[Any]", value)]
    if isinstance(value, set):
        return set(map(unfrozen, cast("set[Any]", value)))
    return _other(value, unfrozen)


def _other(value: Any, copied: Callable[[Any], Any]) -> Any:
    if type(value) is tuple:
        return tuple([copied(item) for item in cast("tuple[Any, ...]", value)])
    if type(value) is frozenset:
        return frozenset([copied(item) for item in cast("frozenset[Any]", value)])
    try:
        return value if isinstance(value, _UNCHANGING) else deepcopy(value)
    except Exception:
        return value


def is_same(some: Any, others: Any) -> bool:
    """Whether two values are the same that are neither dicts nor lists."""
    if isinstance(others, (set, frozenset)):
        return isinstance(some, (set, frozenset)) and some == others
    try:
        return type(some) is type(others) and bool(some == others)
    except Exception:  # some arrays cannot be compared
        return False
