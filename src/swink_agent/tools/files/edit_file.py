"""The `edit_file` tool: exact replacements in one file, all of them or none.

How edits are applied, and the message for one that does not fit, is in `files/edits`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from swink_agent.core.errors import ToolError
from swink_agent.core.tool import AgentToolResult, ToolContext

from .._bounded import show_name
from ..workspace.place import Place
from ..workspace.workspace import seen_by, stale, too_large
from .edits import Edit, apply_edits
from .file_tool import Before, Call, WritingTool, change_details
from .masked import mask_text, put_back
from .text import NEW_FILE, Decoded, decode_text, encode_text


class EditFileTool(WritingTool):
    """Replaces pieces of a file of the workspace; refuses if the file changed since it was read."""

    name = "edit_file"
    label = "Edit file"
    description = (
        "Changes a file by replacing exact pieces of its text. Each `old` must be in the file exactly once, spaces "
        "included: copy it from read_file. An empty `old` adds `new` at the end, or before `line`. Edits are "
        "applied in order, all or none."
    )
    parameters_schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the workspace"},
            "edits": {
                "type": "array",
                "minItems": 1,
                "maxItems": 200,
                "items": {
                    "type": "object",
                    "properties": {
                        "old": {"type": "string", "description": "The text to replace; empty to add"},
                        "new": {"type": "string", "description": "The text to put there"},
                        "replace_all": {"type": "boolean", "description": "Replace every occurrence"},
                        "line": {"type": "integer", "minimum": 1, "description": "With an empty old: add before it"},
                    },
                    "required": ["old", "new"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["path", "edits"],
        "additionalProperties": False,
    }

    def foresee(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult | None:
        """Raises the refusal of the call, such as an `old` that is not found, before the user is asked."""
        with self.opened(arguments["path"]) as (place, before):
            self._planned(arguments, ctx, place, before)
        return None

    def change(self, call: Call, place: Place, before: Before | None) -> AgentToolResult:
        path = "/".join(place.parts)
        plan = self._planned(call.arguments, call.ctx, place, before)
        self.put(call, place, before, plan.data)
        return AgentToolResult.text(
            f"{'Created' if before is None else 'Edited'} {show_name(path)}: {plan.where}.",
            change_details(path, plan.old, plan.new, is_new=before is None),
        )

    def _planned(self, arguments: dict[str, Any], ctx: ToolContext, place: Place, before: Before | None) -> _Plan:
        """The file with the edits applied. Raises `ToolError` if they do not fit, or the file was changed since."""
        seen, _ = seen_by(ctx, self.workspace)
        if before is not None and seen.version(place.parts) not in (None, before.version):
            raise stale(place.parts)
        path, redactor = "/".join(place.parts), ctx.redactor
        edits = edits_in(arguments)
        if before is None and edits[0].old:
            near = self.workspace.nearest(path)
            raise ToolError(
                f"{show_name(path)} does not exist{near}: nothing was changed. To make a new file, use write_file"
            )
        existing = text_of(before)
        masked = mask_text(existing.text, redactor)
        view, where = apply_edits(masked.text, existing.format.newline, edits, show_name(path))
        text = put_back(masked, view, redactor, show_name(path)).text
        try:
            data = encode_text(text, existing.format)
        except UnicodeEncodeError as error:
            kept = existing.format.name or "UTF-8"
            raise ToolError(
                f"{show_name(path)} is {kept}, which has no {error.object[error.start]!r}: use other characters, or "
                "write the whole file with write_file"
            ) from error
        return _Plan(masked.text, view, where, data)


class _Plan(NamedTuple):
    """A file before and after, both as the model sees them; where it changes, and its new bytes."""

    old: str
    new: str
    where: str
    data: bytes


def edits_in(arguments: dict[str, Any]) -> list[Edit]:
    """The edits that a call asks for."""
    return [
        Edit(item["old"], item["new"], item.get("replace_all", False), item.get("line")) for item in arguments["edits"]
    ]


def text_of(before: Before | None) -> Decoded:
    """The text to edit. Raises `ToolError` for a file that has none."""
    if before is None:
        return Decoded("", NEW_FILE)
    if before.data is None:
        raise too_large(before.file)
    decoded = decode_text(before.data)
    if decoded is None:
        raise ToolError(f"{show_name(before.file.path)} is a binary file, not text: it cannot be edited")
    return decoded
