"""The `todo` tool: the list of things to do that a model keeps while it works.

Each call gives the whole list. The tool keeps nothing: the list is in the result's details, so a resumed session has it
again. `rendering.checklist` reads it.
"""

from __future__ import annotations

from typing import Any

from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.rendering.checklist import LONGEST_ITEM, MOST_ITEMS, STATUSES, TODO, counted, todo_of
from swink_agent.rendering.escaping import safe_display

_ITEM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1, "maxLength": LONGEST_ITEM},
        "status": {"type": "string", "enum": list(STATUSES)},
    },
    "required": ["text", "status"],
    "additionalProperties": False,
}


class TodoTool:
    """Keeps a list of things to do, which the user sees. Each call replaces the whole list.

    Needs no approval: it changes only what is shown. `todo_items(messages)` reads the list from a history.
    """

    name = TODO
    label = "Todo"
    requires_approval = False
    description = (
        "Shows the user your list of things to do. Use it for work of several steps. Each call gives the whole list; "
        "mark one item in_progress before you begin it, and done as soon as it is done."
    )
    parameters_schema: dict[str, Any] = {
        "type": "object",
        "properties": {"items": {"type": "array", "maxItems": MOST_ITEMS, "items": _ITEM}},
        "required": ["items"],
        "additionalProperties": False,
    }

    def __repr__(self) -> str:
        return "<tool todo>"

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """The list in the details. An item that has only spaces is an error result."""
        kept: list[dict[str, str]] = []
        for number, item in enumerate(arguments["items"], 1):
            text = safe_display(" ".join(item["text"].split()), None)[:LONGEST_ITEM]
            if not text:
                return AgentToolResult.error(f"item {number} has no text: the list is as it was before")
            kept.append({"text": text, "status": item["status"]})
        details = {TODO: kept}
        said = f"The list is kept: {counted(todo_of(TODO, details) or ())}." if kept else "The list is empty now."
        return AgentToolResult.text(said, details=details)
