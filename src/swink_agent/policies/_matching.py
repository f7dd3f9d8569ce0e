"""Matching tool calls by name and by argument, for the deny list and the allow list.

Owns what a name and a pattern mean. What follows from a match is each list's own business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from ._texts import strings_in

__all__ = ["ArgumentPatterns", "Condition", "as_conditions", "as_names", "texts_of"]

Patterns: TypeAlias = str | re.Pattern[str] | Sequence[str | re.Pattern[str]]
ArgumentPatterns: TypeAlias = Mapping[str, Patterns | Mapping[str, Patterns]]
"""Tool name or glob → regular expression, or → argument name or `*` → regular expression (one, or several)."""


class Condition(NamedTuple):
    """Patterns for one argument (`*`: any) of the tools whose name matches."""

    tool: re.Pattern[str]
    argument: str
    patterns: tuple[re.Pattern[str], ...]

    def concerns(self, tool: str) -> bool:
        return self.tool.match(tool) is not None


def as_names(names: str | Iterable[str], owner: str) -> tuple[re.Pattern[str], ...]:
    """Tool names, in which `*`, `?` and `[…]` stand for more than themselves. Case counts."""
    return tuple([_glob(name, owner) for name in ([names] if isinstance(names, str) else names)])


def as_conditions(arguments: ArgumentPatterns, owner: str) -> tuple[Condition, ...]:
    """The patterns, compiled. Raises `ValueError` for one that is no regular expression, naming it."""
    conditions: list[Condition] = []
    for tool, wanted in arguments.items():
        by_argument = wanted if isinstance(wanted, Mapping) else {"*": wanted}
        for argument, patterns in by_argument.items():
            several = [patterns] if isinstance(patterns, (str, re.Pattern)) else patterns
            compiled = tuple([_regex(pattern, tool, argument, owner) for pattern in several])
            conditions.append(Condition(_glob(tool, owner), argument, compiled))
    return tuple(conditions)


def texts_of(arguments: Mapping[str, Any], argument: str) -> Iterator[str]:
    """Everything in an argument that a pattern is held against: each string in it, and anything else as its JSON."""
    values = arguments.values() if argument == "*" else [arguments[argument]] if argument in arguments else []
    for value in values:
        if isinstance(value, (str, dict, list)):
            yield from (text for _, text in strings_in(cast("object", value), argument))
        else:
            yield msgspec.json.encode(value).decode()


def _glob(name: str, owner: str) -> re.Pattern[str]:
    if not name:
        raise ValueError(f"{owner}: a tool name is empty; name the tool, or write '*' for every tool")
    return re.compile(translate(name))


def _regex(pattern: str | re.Pattern[str], tool: str, argument: str, owner: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{owner}: {pattern!r} for {tool}.{argument} is no regular expression: {error}") from error
