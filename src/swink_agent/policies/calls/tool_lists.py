"""`AllowList` and `DenyList`: allow or refuse tool calls by name and by argument."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from swink_agent.core.policy import PreDispatchContext, Skip
from swink_agent.core.values.checks import is_not
from swink_agent.core.values.several import several_texts

from ..texts._strings import as_regex, strings_in

Patterns: TypeAlias = str | re.Pattern[str] | Sequence[str | re.Pattern[str]]
ArgumentPatterns: TypeAlias = Mapping[str, Patterns | Mapping[str, Patterns]]
"""Maps a tool name or glob to regular expressions, or to a map from argument name or `*` to regular expressions."""


class AllowList:
    """Skips every call of a tool that is not named, and calls whose arguments do not fit. The model learns why.

    `tools` are names or globs (`"read_*"`). `arguments` limits the arguments of a tool:
    `{"bash": {"command": r"git (status|diff)"}}`. Each string and number in such an argument, however deeply nested,
    must match one of its patterns from beginning to end. An argument that is not named may have any value, and a named
    one may be missing. `.` does not match a newline, so the pattern must allow a second line explicitly.

    The answer of a `structured_output` is never refused: it runs no tool. Put policies that change arguments before
    this one. It has no state, so agents can share it.
    """

    name = "allow_list"
    __slots__ = ("_conditions", "_names", "_tools")

    def __init__(self, tools: str | Iterable[str], arguments: ArgumentPatterns | None = None) -> None:
        names = several_texts(tools, "AllowList(tools=…)")
        self._names = ", ".join(names) or "none"
        self._tools = as_names(names, "AllowList(tools=…)")
        self._conditions = _as_conditions(arguments or {}, "AllowList")

    def __repr__(self) -> str:
        return f"<AllowList of {len(self._tools)} tools and {len(self._conditions)} arguments>"

    def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
        if ctx.is_final_answer:
            return None
        if not any(tool.match(ctx.name) for tool in self._tools):
            return Skip(f"the tool {ctx.name} is not among those allowed here: {self._names}")
        unfit = _refused_argument(self._conditions, ctx.name, ctx.arguments, _fits_none)
        if unfit is None:
            return None
        return Skip(f"the value of the argument {unfit} of {ctx.name} is not allowed here")


class DenyList:
    """Skips calls of the named tools, and calls in whose arguments a pattern is found. The model learns why.

    `tools` are names or globs (`"delete_*"`). `arguments` maps a tool to regular expressions for its arguments:
    `{"bash": {"command": r"\\brm\\b"}}`, or `{"*": r"\\.env$"}` for any argument of any tool. A pattern is searched
    for in every string and number of the argument, however deeply nested.

    A deny list prevents accidents, not attacks: a command can always be written in another way. The sandbox and the
    workspace enforce limits, and `AllowList` refuses everything that it does not list. The answer of a
    `structured_output` is never refused: it runs no tool. Put policies that change arguments before this one. It has no
    state, so agents can share it.
    """

    name = "deny_list"
    __slots__ = ("_conditions", "_tools")

    def __init__(self, tools: str | Iterable[str] = (), arguments: ArgumentPatterns | None = None) -> None:
        self._tools = as_names(tools, "DenyList(tools=…)")
        self._conditions = _as_conditions(arguments or {}, "DenyList")

    def __repr__(self) -> str:
        return f"<DenyList of {len(self._tools)} tools and {len(self._conditions)} arguments>"

    def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
        if ctx.is_final_answer:
            return None
        if any(tool.match(ctx.name) for tool in self._tools):
            return Skip(f"the tool {ctx.name} is not allowed here; do without it")
        denied = _refused_argument(self._conditions, ctx.name, ctx.arguments, _finds_any)
        if denied is None:
            return None
        return Skip(f"{ctx.name} is not allowed with this value of its argument {denied}; do without it")


class _Condition(NamedTuple):
    """Patterns for one argument (`*`: any) of the tools whose name matches."""

    tool: re.Pattern[str]
    argument: str
    patterns: tuple[re.Pattern[str], ...]


def as_names(names: str | Iterable[str], owner: str) -> tuple[re.Pattern[str], ...]:
    """Compiles tool names or globs (`*`, `?`, `[…]`), case-sensitive. Raises `ValueError` for an empty one, and
    `TypeError` for what is not a string."""
    return tuple([_glob(name, owner) for name in several_texts(names, owner)])


def _as_conditions(arguments: ArgumentPatterns, owner: str) -> tuple[_Condition, ...]:
    """Compiles the patterns. Raises `ValueError`, which names a pattern that is not a regular expression."""
    if not isinstance(cast("object", arguments), Mapping):
        raise is_not(f"{owner}(arguments=…)", arguments, "a mapping from tools to patterns")
    conditions: list[_Condition] = []
    for tool, wanted in arguments.items():
        by_argument = wanted if isinstance(wanted, Mapping) else {"*": wanted}
        for argument, patterns in by_argument.items():
            several = [patterns] if isinstance(patterns, (str, re.Pattern)) else patterns
            compiled = [as_regex(pattern, f"{owner}: {pattern!r} for {tool}.{argument}") for pattern in several]
            conditions.append(_Condition(_glob(tool, owner), argument, tuple(compiled)))
    return tuple(conditions)


def _refused_argument(
    conditions: Iterable[_Condition],
    tool: str,
    arguments: Mapping[str, Any],
    refuses: Callable[[tuple[re.Pattern[str], ...], str], bool],
) -> str | None:
    """The first argument of a call with a text for which `refuses(patterns, text)` is true; `None` if there is none."""
    for condition in conditions:
        if condition.tool.match(tool):
            for argument in arguments if condition.argument == "*" else (condition.argument,):
                if argument in arguments and any(
                    refuses(condition.patterns, text) for text in _texts_of(arguments[argument], argument)
                ):
                    return argument
    return None


def _texts_of(value: Any, argument: str) -> Iterator[str]:
    """The texts that patterns are matched with: each string and number in the argument, or another value's JSON."""
    if isinstance(value, (str, dict, list)):
        yield from (text for _, text in strings_in(cast("object", value), argument))
        waiting: list[Any] = [value]
        while waiting:  # not recursive, as in `strings_in`
            one = waiting.pop()
            if isinstance(one, (dict, list)):
                waiting += cast("dict[str, Any]", one).values() if isinstance(one, dict) else cast("list[Any]", one)
            elif type(one) in (int, float):
                yield msgspec.json.encode(one).decode()
    else:
        yield msgspec.json.encode(value).decode()


def _glob(name: str, owner: str) -> re.Pattern[str]:
    if not name:
        raise ValueError(f"{owner}: a tool name is empty; name the tool, or write '*' for every tool")
    return re.compile(translate(name))


def _fits_none(patterns: Sequence[re.Pattern[str]], text: str) -> bool:
    return not any(pattern.fullmatch(text) for pattern in patterns)


def _finds_any(patterns: Sequence[re.Pattern[str]], text: str) -> bool:
    return any(pattern.search(text) for pattern in patterns)
