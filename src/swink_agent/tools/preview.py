"""What a write or an edit would make of a file, before anybody has said yes to it.

Owns the look at the file and the text that would come of the call, for a person to see as a diff; nothing is changed,
and nothing is promised: the call itself looks again, and refuses if the file is another by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from swink_agent.core.approval import ToolApprovalRequest
from swink_agent.core.errors import ToolError

from ._edits import Edit, apply_edits
from ._file_tool import WritingTool, change_details
from ._several_folders import SeveralFoldersTool
from ._text import Decoded, decode_text, with_newlines
from .workspace import read_whole

__all__ = ["change_preview"]


def change_preview(
    tools: Iterable[object], mask: Callable[[str], str] = str
) -> Callable[[ToolApprovalRequest], dict[str, Any] | None]:
    """A `preview` for `Approvals`: the details (path, old, new, is_new, notes) of calls of these tools.

    `mask` is what a person is not to see of either text. There is nothing for a call of another tool, and only a note
    for one that would fail, or for a file that is no text or too large to compare.
    """
    by_name = {tool.name: tool for tool in tools if isinstance(tool, (WritingTool, SeveralFoldersTool))}

    def preview(request: ToolApprovalRequest) -> dict[str, Any] | None:
        tool = by_name.get(request.name)
        if isinstance(tool, SeveralFoldersTool):
            tool = tool.tool_for(request.arguments)
        if not isinstance(tool, WritingTool):
            return None
        try:
            return _details(tool, request.arguments, mask)
        except ToolError as error:
            return {"notes": [f"it would fail: {mask(str(error))}"]}
        except OSError as error:
            return {"notes": [f"it would fail: {error.strerror or error}"]}

    return preview


def _details(tool: WritingTool, arguments: dict[str, Any], mask: Callable[[str], str]) -> dict[str, Any] | None:
    workspace = tool.workspace
    with workspace.place(arguments["path"]) as place:
        path = "/".join(place.parts)
        file = workspace.open_existing(place)
        data = b""
        if file is not None:
            with file:
                whole = read_whole(file)
            if whole is None:
                return {"notes": ["the file that is there is too large to compare"]}
            data = whole
    existing = decode_text(data)
    if existing is None:
        return {"notes": ["the file that is there is no text"]}
    new = _new_text(arguments, existing, path)
    return None if new is None else change_details(path, mask(existing.text), mask(new), is_new=file is None)


def _new_text(arguments: dict[str, Any], existing: Decoded, path: str) -> str | None:
    newline = existing.format.newline
    if isinstance(arguments.get("content"), str):
        return with_newlines(arguments["content"], newline)
    edits = arguments.get("edits")
    if not isinstance(edits, list):
        return None
    wanted = [
        Edit(**{key: value for key, value in edit.items() if key in Edit._fields})
        for edit in cast("list[dict[str, Any]]", edits)
    ]
    return apply_edits(existing.text, newline, wanted, path)[0]
