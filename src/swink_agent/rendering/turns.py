"""Arranges a session for readers: prompts, replies with their tool calls and results, labels and notes.

Owns the pairing of results with calls, and the wording and numbers that all exports show. `blocks` and the exporters
write the markup.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, NamedTuple, TypeAlias, cast

from swink_agent.core.types import (
    AgentMessage,
    AssistantMessage,
    Cost,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    Usage,
    UserMessage,
)

from .amounts import dollars
from .characters import one_line

LabelAt: TypeAlias = tuple[str, int]
"""A label's text, and the number of messages before it."""
NoteAt: TypeAlias = tuple[str, Any, int]
"""An application's note: its kind, its data, and the number of messages before it."""


class Prompt(NamedTuple):
    """A message from the user."""

    position: int
    message: UserMessage


class ToolUse(NamedTuple):
    """A tool call and its result, if it has one."""

    call: ToolCall
    result: ToolResultMessage | None


class Reply(NamedTuple):
    """A message from the model; `uses` are its tool calls in order."""

    position: int
    message: AssistantMessage
    uses: tuple[ToolUse, ...]


class Result(NamedTuple):
    """A result whose call is not in the session."""

    position: int
    message: ToolResultMessage


class Other(NamedTuple):
    """An application's own message."""

    position: int
    message: AgentMessage


class Label(NamedTuple):
    text: str


class Note(NamedTuple):
    kind: str
    data: Any


Entry: TypeAlias = Prompt | Reply | Result | Other | Label | Note


def entries(messages: Sequence[AgentMessage], labels: Sequence[LabelAt], notes: Sequence[NoteAt]) -> Iterator[Entry]:
    """Yields the entries of the session in order. Call ids may recur: a result belongs to the reply it follows."""
    beside: dict[int, list[Entry]] = {}
    for text, at in labels:
        beside.setdefault(_within(at, messages), []).append(Label(text))
    for kind, data, at in notes:
        beside.setdefault(_within(at, messages), []).append(Note(kind, data))
    taken: set[int] = set()
    for position, message in enumerate(messages):
        yield from beside.get(position, ())
        if type(message) is UserMessage:
            yield Prompt(position, message)
        elif type(message) is AssistantMessage:
            yield Reply(position, message, _uses(messages, position, message, taken))
        elif type(message) is ToolResultMessage:
            if position not in taken:
                yield Result(position, message)
        else:
            yield Other(position, message)
    yield from beside.get(len(messages), ())


def _within(at: int, messages: Sequence[AgentMessage]) -> int:
    return min(max(at, 0), len(messages))


def _uses(
    messages: Sequence[AgentMessage], position: int, reply: AssistantMessage, taken: set[int]
) -> tuple[ToolUse, ...]:
    calls = reply.tool_calls
    if not calls:
        return ()
    results: dict[str, deque[tuple[int, ToolResultMessage]]] = {}
    for later in range(position + 1, len(messages)):
        message = messages[later]
        if type(message) is AssistantMessage:
            break
        if type(message) is ToolResultMessage:
            results.setdefault(message.tool_call_id, deque()).append((later, message))
    uses: list[ToolUse] = []
    for call in calls:
        result = None
        if results.get(call.id):
            place, result = results[call.id].popleft()
            taken.add(place)
        uses.append(ToolUse(call, result))
    return tuple(uses)


_WORDS = {
    **{outcome: outcome.value.replace("_", " ") for outcome in ToolOutcome},
    ToolOutcome.RAN: "done",
    ToolOutcome.LOST: "outcome unknown",
    ToolOutcome.PENDING: "waiting",
}
_STOPPED = frozenset(
    {ToolOutcome.REJECTED, ToolOutcome.SKIPPED, ToolOutcome.CANCELLED, ToolOutcome.NEVER_RAN, ToolOutcome.PENDING}
)


def status(result: ToolResultMessage | None) -> tuple[str, str]:
    """Returns the outcome of a call as words and as `ok`, `bad` or `held` (the call was stopped or never ran)."""
    if result is None:
        return "no result", "held"
    if result.outcome in _STOPPED:
        return _WORDS[result.outcome], "held"
    if result.outcome == ToolOutcome.RAN:
        return ("failed", "bad") if result.is_error else ("done", "ok")
    return _WORDS[result.outcome], "bad"


def changed_texts(details: object) -> tuple[str, str] | None:
    """Returns the texts of a file before and after, from the details of a tool's result or of a question.

    `None` if they have no such texts, or texts that were cut: a change after the cut would not show.
    """
    known: Mapping[str, Any] = cast("Mapping[str, Any]", details) if isinstance(details, Mapping) else {}
    old, new = known.get("old"), known.get("new")
    return (old, new) if isinstance(old, str) and isinstance(new, str) and not known.get("is_cut") else None


def change_of(result: ToolResultMessage | None) -> tuple[str, str] | None:
    """Returns the texts before and after a change that a tool reports, or `None` if it reports no change."""
    texts = changed_texts(None if result is None else result.details)
    return texts if texts is not None and texts[0] != texts[1] else None


def gist(call: ToolCall) -> str:
    """Returns the first text argument of a call in one line, as a short description of the call."""
    if call.is_incomplete:
        return one_line(call.partial_json or "")
    for value in call.arguments.values():
        if isinstance(value, str) and value.strip():
            return one_line(value)
    return ""


def formatted(milliseconds: float, form: str, zone: tzinfo | None) -> str:
    """Formats a time, by default in the local time zone. Returns an empty string if it is not a valid time."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, zone).strftime(form)
    except (ValueError, OverflowError, OSError):
        return ""


def moment(milliseconds: int) -> str:
    """Formats a time in UTC to the minute. Returns the number itself if it is not a valid time."""
    return formatted(milliseconds, "%Y-%m-%d %H:%M UTC", UTC) or str(milliseconds)


def local_moment(milliseconds: float, form: str) -> str:
    """Formats a time in the local time zone. Returns the number itself if it is not a valid time."""
    return formatted(milliseconds, form, None) or str(milliseconds)


def usage_words(usage: Usage) -> str:
    """Describes the token counts for readers. Returns an empty string if nothing was counted."""
    parts = [(usage.input, "in"), (usage.output, "out"), (usage.cache_read, "cached"), (usage.cache_write, "written")]
    words = [f"{count:,} {word}" for count, word in parts if count]
    if not words:
        return f"{usage.total:,} tokens" if usage.total else ""
    return f"{' · '.join(words)} tokens"


def cost_words(cost: Cost) -> str:
    """Formats a cost in dollars. Returns an empty string for zero."""
    total = cost.amount
    if not total:
        return ""
    return dollars(total) if math.isfinite(total) else "cost unknown"
