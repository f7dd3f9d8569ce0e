"""The strings in a call's arguments and in a turn's messages, for policies that look at them or rewrite them.

Owns the walk and the rebuilding. What is looked for, and what takes its place, is each policy's own business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from swink_agent.core.policy import PolicyContext
from swink_agent.core.types import AgentMessage, AssistantMessage, Text, Thinking, ToolResultMessage

__all__ = ["RewriteFn", "rewrite_reply", "rewrite_result", "rewrite_turn", "strings_in"]

RewriteFn = Callable[[str], str]
B = TypeVar("B")
_NO_STRINGS = frozenset({int, float, bool, type(None)})


def strings_in(arguments: object, name: str = "") -> list[tuple[str, str]]:
    """Every string in JSON data with the name it stands under, the keys of nested objects too.

    Not recursive: a hostile model nests as deeply as the parser lets it.
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


def rewrite_result(result: ToolResultMessage, rewrite: RewriteFn) -> ToolResultMessage | None:
    """The result with its texts rewritten; `None` if that changes nothing. `details`, which no model sees, stay."""
    content = _rewritten(result.content, rewrite)
    return None if content is None else replace(result, content=content)


def rewrite_reply(message: AssistantMessage, rewrite: RewriteFn) -> AssistantMessage | None:
    """The reply with its texts rewritten; `None` if that changes nothing.

    Calls stay: they were made. So does reasoning that a provider signed: it takes back only what it wrote.
    """
    content = _rewritten(message.content, rewrite)
    return None if content is None else replace(message, content=content)


def rewrite_turn(
    ctx: PolicyContext, rewrite: RewriteFn, *, results: bool = True, replies: bool = True
) -> list[AgentMessage]:
    """What of a turn is to be replaced, if its texts are rewritten."""
    changed: list[AgentMessage] = []
    if replies and ctx.message is not None and (reply := rewrite_reply(ctx.message, rewrite)) is not None:
        changed.append(reply)
    if results:
        for result in ctx.tool_results:
            if (new := rewrite_result(result, rewrite)) is not None:
                changed.append(new)
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
