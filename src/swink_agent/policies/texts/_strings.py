"""For policies: compiles patterns, finds the strings in arguments, and rewrites the texts in a turn's messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from swink_agent.core.policy import PolicyContext
from swink_agent.core.types import AgentMessage, Text, Thinking
from swink_agent.core.values.checks import is_not

RewriteFn = Callable[[str], str]
B = TypeVar("B")
_NO_STRINGS = frozenset({int, float, bool, type(None)})


def as_regex(pattern: str | re.Pattern[str], where: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Compiles a pattern, with the flags if it is a string. Raises `ValueError`, which begins with `where`."""
    if not isinstance(cast("object", pattern), str | re.Pattern):
        raise is_not(where, pattern, "a pattern")
    try:
        return pattern if isinstance(pattern, re.Pattern) else re.compile(pattern, flags)
    except re.error as error:
        raise ValueError(f"{where} is not a regular expression: {error}") from error


def strings_in(arguments: object, name: str = "") -> list[tuple[str, str]]:
    """Every string in JSON data with the name of its argument, including the keys of nested objects.

    Not recursive: a hostile model nests as deeply as the parser allows.
    """
    found: list[tuple[str, str]] = []
    waiting: list[tuple[str, Any]] = [(name, arguments)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, str):
            found.append((name, value))
        elif isinstance(value, dict):
            for key, item in reversed(cast("dict[str, Any]", value).items()):
                if type(item) not in _NO_STRINGS:
                    waiting.append((key, item))
                if name:
                    waiting.append((name, key))
        elif isinstance(value, list):
            waiting.extend([(name, item) for item in reversed(cast("list[Any]", value))])
    return found


def rewrite_turn(
    ctx: PolicyContext, rewrite: RewriteFn, *, results: bool = True, replies: bool = True
) -> list[AgentMessage]:
    """Rewrites the texts of a turn. Returns the messages that changed.

    Calls stay, because they were made. Reasoning that a provider signed stays, because the provider accepts only its
    own text. The `details` of a result stay, because no model sees them.
    """
    messages = [*([ctx.message] if replies and ctx.message is not None else []), *(ctx.tool_results if results else ())]
    changed: list[AgentMessage] = []
    for message in messages:
        content: Any = _rewritten(message.content, rewrite)
        if content is not None:
            changed.append(replace(message, content=content))
    return changed


def _rewritten(blocks: Sequence[B], rewrite: RewriteFn) -> tuple[B, ...] | None:
    changed: list[Any] = []
    differs = False
    for block in blocks:
        if type(block) is Text and (text := rewrite(block.text)) != block.text:
            changed.append(Text(text))
            differs = True
        elif (
            type(block) is Thinking
            and block.signature is None
            and (thinking := rewrite(block.thinking)) != block.thinking
        ):
            changed.append(Thinking(thinking))
            differs = True
        else:
            changed.append(block)
    return tuple(changed) if differs else None
