"""Reading JSON that anyone may have sent: what is not of the expected shape is empty, never an exception."""

from __future__ import annotations

from typing import Any, cast

__all__ = ["count", "items", "mapping", "text"]


def mapping(value: object) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """The value if it is an array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text(value: object) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def count(value: object, *path: str) -> int:
    """The count at a path of names, or zero for anything that is none."""
    for name in path:
        value = mapping(value).get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return max(0, int(value))
