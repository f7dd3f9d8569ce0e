"""Reads arguments that take several strings or paths: a single string is one item, not a list of its letters."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, cast

from .checks import a_kind


def several(given: Any, what: str) -> tuple[Any, ...]:
    """Returns the items; a single string or path is one item. Raises `TypeError`, naming `what`, for anything else."""
    if isinstance(given, (str, os.PathLike)):
        return (cast("Any", given),)
    if isinstance(given, (bytes, bytearray, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(f"{what}: {a_kind(cast('object', given))} is neither a string nor a list of them")
    return tuple(cast("Iterable[Any]", given))


def check_path(what: str, given: object) -> None:
    """Raises `TypeError`, naming `what`, for anything but the path of one file or folder."""
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(f"{what}: {a_kind(given)} is not a path")


def several_texts(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    """Returns the strings. Raises `TypeError` for anything else, without the value, which may be a secret."""
    items = several(given, what)
    for item in items:
        if not isinstance(item, str):
            raise TypeError(f"{what}: {a_kind(item)} is not a string")
    return items


def several_paths(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], what: str) -> tuple[str, ...]:
    """Returns the paths as strings. Raises `TypeError` for anything else, and `ValueError` for an empty text, which
    would be the current folder."""
    items = several(given, what)
    for item in items:
        if not isinstance(item, (str, os.PathLike)):
            raise TypeError(f"{what}: {a_kind(item)} is not a path")
        if not os.fspath(item):
            raise ValueError(f"{what}: an empty text is not a path; write '.' for the current folder")
    return tuple(map(os.fspath, items))
