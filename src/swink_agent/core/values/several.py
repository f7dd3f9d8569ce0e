"""Reading what a user gives where several strings or paths are wanted.

Owns that one string is one item, and never its letters: `Redactor("the-secret")` knows that secret. What the items mean
is their owner's business.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, cast

__all__ = ["several", "several_paths", "several_texts"]


def several(given: Any, what: str) -> tuple[Any, ...]:
    """The items, one string or path alone as one of one. Raises `TypeError` for what holds none, naming `what`."""
    kind = type(given).__name__
    if isinstance(given, (str, os.PathLike)):
        return (cast("Any", given),)
    if isinstance(given, (bytes, bytearray, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(f"{what}: a {kind} is neither a string nor a list of them")
    return tuple(cast("Iterable[Any]", given))


def several_texts(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    """The strings. Raises `TypeError` for anything else, which shows no value: it may be a secret."""
    items = several(given, what)
    for item in items:
        if not isinstance(item, str):
            raise TypeError(f"{what}: a {type(item).__name__} is no string")
    return items


def several_paths(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], what: str) -> tuple[str, ...]:
    """The paths, as strings. Raises `TypeError` for anything else."""
    items = several(given, what)
    for item in items:
        if not isinstance(item, (str, os.PathLike)):
            raise TypeError(f"{what}: a {type(item).__name__} is no path")
    return tuple(map(os.fspath, items))
