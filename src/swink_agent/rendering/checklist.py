"""The list of things to do that a model keeps with the tool `todo`: its items, and how they are read and written.

Owns the format in a result's details, its limits, and the list as text. The result of the last call holds the whole
list, so it is stored only in the history. The tool is in `tools.todo`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from swink_agent.core.types import AgentMessage, ToolOutcome, ToolResultMessage
from swink_agent.core.values.value import Value

TODO = "todo"  # the name of the tool, and the key of the list in the details of its results
MOST_ITEMS = 50
LONGEST_ITEM = 300  # characters in the text of one item
STATUSES = ("pending", "in_progress", "done")
SIGNS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}

TodoStatus: TypeAlias = Literal["pending", "in_progress", "done"]


class TodoItem(Value, frozen=True):
    """One thing to do, and its status."""

    text: str
    status: TodoStatus


def todo_of(name: str, details: object) -> tuple[TodoItem, ...] | None:
    """Returns the list in the details of a tool's result; `None` if there is none. Never fails."""
    if name != TODO or not isinstance(details, Mapping):
        return None
    listed = cast("Mapping[str, Any]", details).get(TODO)
    if not isinstance(listed, (list, tuple)):
        return None
    items: list[TodoItem] = []
    for item in cast("Sequence[object]", listed)[:MOST_ITEMS]:
        if not isinstance(item, Mapping):
            continue
        fields = cast("Mapping[str, Any]", item)
        text, status = fields.get("text"), fields.get("status")
        if isinstance(text, str) and status in STATUSES:
            items.append(TodoItem(text[:LONGEST_ITEM], status))
    return tuple(items)


def todo_items(messages: Sequence[AgentMessage]) -> tuple[TodoItem, ...]:
    """Returns the list of the last successful `todo` call in a history; empty if there is none."""
    for message in reversed(messages):
        if isinstance(message, ToolResultMessage) and message.outcome == ToolOutcome.RAN and not message.is_error:
            items = todo_of(message.tool_name, message.details)
            if items is not None:
                return items
    return ()


def masked_items(items: Sequence[TodoItem], redact: Callable[[str], str]) -> tuple[TodoItem, ...]:
    """Returns the items with their texts masked."""
    return tuple([TodoItem(redact(item.text), item.status) for item in items])


def counted(items: Sequence[TodoItem]) -> str:
    """Returns the progress of the list: `2 of 5 done`."""
    return f"{sum([item.status == 'done' for item in items])} of {len(items)} done"


def current(items: Sequence[TodoItem]) -> TodoItem | None:
    """Returns the item in progress, else the next one; `None` if all are done."""
    wanted = ("in_progress", "pending")
    return next((item for status in wanted for item in items if item.status == status), None)


def checklist(items: Sequence[TodoItem]) -> str:
    """Returns the list as text, one line per item. The caller escapes it."""
    return "\n".join([f"{SIGNS[item.status]} {' '.join(item.text.split())}" for item in items])
