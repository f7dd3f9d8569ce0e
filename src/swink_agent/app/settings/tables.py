"""Checks the tables of a settings file that each describe one MCP server or one hook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from ..errors import SettingsError

Kind: TypeAlias = tuple[Callable[[Any], bool], str]
"""A check of a value, and the allowed values in words."""
Kinds: TypeAlias = Mapping[str, Kind]
SWITCH: Kind = (lambda value: isinstance(value, bool)), "true or false"
RefuseFn: TypeAlias = Callable[[str, str], SettingsError]
"""Makes the error for a key, with the file and the line. The second argument follows the key in the message."""


def checked_table(
    table: object, place: str, refuse: RefuseFn, *, kinds: Kinds, noun: str, needs: str
) -> dict[str, Any]:
    """The values of the table at `place`, with tuples for lists. Raises the errors that `refuse` makes.

    No error repeats a value: it may be a key.
    """
    if not isinstance(table, dict):
        raise refuse(place, f" must be a table with {needs}")
    values: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", table).items():
        if key not in kinds:
            from swink_agent.core.texts.likeness import which_name

            raise refuse(f"{place}.{key}", f" is not a setting of a {noun}; {which_name(key, kinds)}")
        fits, wanted = kinds[key]
        if not fits(value):
            raise refuse(f"{place}.{key}", f" must be {wanted}")
        values[key] = tuple(cast("list[str]", value)) if isinstance(value, list) else value
    return values


def are_texts(value: object) -> bool:
    items = cast("list[object]", value) if isinstance(value, list) else None
    return items is not None and all(isinstance(item, str) and "\0" not in item for item in items)


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
