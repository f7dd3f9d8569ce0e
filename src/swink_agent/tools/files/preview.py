"""What a write or an edit would make of a file, before anybody has said yes to it.

Owns the look at the file and the masked text that would come of the call, for a person to see as a diff; nothing is
changed, and nothing is promised: the call itself looks again, and refuses if the file is another by then. A placeholder
is bound to its value, so what was approved with one in it is written with that very value or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from swink_agent.core.approval import ProposedCall
from swink_agent.core.errors import ToolError
from swink_agent.core.secrets.redaction import Redactor

from .._several_folders import SeveralFoldersTool
from ..workspace.place import Place
from .edit_file import edits_in
from .edits import apply_edits
from .file_tool import Before, WritingTool, change_details
from .masked import mask_text, masked_note, put_back
from .text import NEW_FILE, Decoded, decode_text, showable
from .write_file import as_in

__all__ = ["change_preview"]


def change_preview(
    tools: Iterable[object], redactor: Redactor | None = None
) -> Callable[[ProposedCall], dict[str, Any] | None]:
    """A `preview` for `Approvals`: the details (path, old, new, is_new, notes) of calls of these tools.

    With the redactor of the agent both texts are masked as the model sees them, and a note says what becomes of masked
    values. Where `old` is not the text of the file to the letter, as its line ends are of several kinds or bytes of it
    are no text, `is_exact` is false. There is nothing for a call of another tool, and only a note for one that would
    fail, or for a file that is no text or too large to compare.
    """
    by_name = {tool.name: tool for tool in tools if isinstance(tool, (WritingTool, SeveralFoldersTool))}

    def preview(request: ProposedCall) -> dict[str, Any] | None:
        named = by_name.get(request.name)
        tool = named.tool_for(request.arguments) if isinstance(named, SeveralFoldersTool) else named
        if not isinstance(tool, WritingTool):
            return None
        try:
            details = _details(tool, request.arguments, redactor)
            return named.with_whole_path(details, tool) if isinstance(named, SeveralFoldersTool) else details
        except ToolError as error:
            said = str(error)
            return {"notes": [f"it would fail: {said if redactor is None else redactor.redact(said)}"]}
        except OSError as error:
            return {"notes": [f"it would fail: {error.strerror or error}"]}

    return preview


def _details(tool: WritingTool, arguments: dict[str, Any], redactor: Redactor | None) -> dict[str, Any] | None:
    with tool.workspace.place(arguments["path"]) as place:
        file = tool.workspace.open_existing(place)
        if file is None:
            return _change(place, arguments, None, redactor)
        with file:
            before = Before(file)
            if before.data is None:
                return {"notes": ["the file that is there is too large to compare"]}
            existing = decode_text(before.data)
            if existing is None:
                return {"notes": ["the file that is there is no text"]}
            return _change(place, arguments, existing, redactor)


def _change(
    place: Place, arguments: dict[str, Any], existing: Decoded | None, redactor: Redactor | None
) -> dict[str, Any] | None:
    path = "/".join(place.parts)
    held = existing or Decoded("", NEW_FILE)
    masked = mask_text(held.text, redactor)
    if isinstance(arguments.get("content"), str):
        view = as_in(existing, arguments["content"])
    elif isinstance(arguments.get("edits"), list):
        view, _ = apply_edits(masked.text, held.format.newline, edits_in(arguments), path)
    else:
        return None
    shown = view if redactor is None else redactor.redact(view)
    details = change_details(path, masked.text, shown, is_new=existing is None)
    if not _is_plain(masked.text):
        details["is_exact"] = False
    try:
        back = put_back(masked, view, redactor, path)
    except ToolError as error:
        return details | {"notes": [f"it would fail: {error}"]}
    note = masked_note(back.kept, back.removed)
    return details | {"notes": [note]} if note else details


def _is_plain(text: str) -> bool:
    """Whether the text can be told from how it is shown: with line ends of one kind, and nothing that is no text."""
    pairs, ends = text.count("\r\n"), text.count("\n")
    return pairs in (0, ends) and showable(text).replace("\n", "\r\n" if pairs else "\n") == text
