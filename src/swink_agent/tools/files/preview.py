"""Previews the effect of a write or an edit on a file, before it is approved.

Reads the file and makes the masked text that would result, for a person to see as a diff. It changes nothing and
promises nothing: the call itself reads the file again, and refuses if it has changed. A placeholder is bound to its
value: the call writes exactly that value, or fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from swink_agent.core.approval import ProposedCall
from swink_agent.core.errors import ToolError
from swink_agent.core.secrets.redaction import Redactor

from .._bounded import show_name, show_size
from .._several_folders import SeveralFoldersTool
from ..workspace.place import Place
from .edit_file import edits_in
from .edits import apply_edits
from .file_tool import WritingTool, change_details
from .masked import mask_text, masked_note, put_back
from .text import NEW_FILE, Decoded, decode_text, showable
from .write_file import as_in


def change_preview(
    tools: Iterable[object], redactor: Redactor | None = None
) -> Callable[[ProposedCall], dict[str, Any] | None]:
    """A `preview` for `Approvals`: the details (path, old, new, is_new, notes) of calls of these tools.

    With the agent's redactor both texts are masked as the model sees them, and a note tells how many masked values stay
    or go. `is_exact` is false if `old` is not exactly the text of the file, because its line ends are mixed or some
    bytes are not text. Returns `None` for a call of another tool, and only a note for one that would fail or for a file
    that is not text. If a diff would not show the whole change, because the texts are too long or nothing visible
    changes, a note replaces `old` and `new`: then show the arguments themselves.
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
    with tool.opened(arguments["path"]) as (place, before):
        if before is None:
            return _change(place, arguments, None, redactor)
        if before.data is None:
            return {"notes": ["the existing file is too large to compare"]}
        existing = decode_text(before.data)
        if existing is None:
            return {"notes": ["the existing file is not text"]}
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
    notes: list[str] = []
    try:
        back = put_back(masked, view, redactor, path)
    except ToolError as error:
        return details | {"notes": [f"it would fail: {error}"]}
    if details.get("is_cut"):
        notes.append(_too_large(details["path"], held.text, arguments, is_new=existing is None))
    elif details["old"] == details["new"] and back.text != held.text:
        notes.append("the change is not visible as text (line ends, or bytes that are not text)")
    if notes:
        details = {key: value for key, value in details.items() if key not in ("old", "new", "is_exact")}
    if note := masked_note(back.kept, back.removed):
        notes.append(note)
    return details | {"notes": notes} if notes else details


def _too_large(path: str, text: str, arguments: dict[str, Any], *, is_new: bool) -> str:
    """The note for a person if the texts are too long to be compared."""
    if is_new:
        return "it is too large to be shown as a file: the text is shown as the model wrote it"
    lines = text.count("\n") + (not text.endswith("\n") and bool(text))
    size = f"({show_size(len(text.encode('utf-8', 'surrogateescape')))}, {lines:,} line{'s' * (lines != 1)})"
    name = show_name(path)
    if "content" in arguments:
        return f"it replaces all of {name}, which is too large to compare {size}"
    return f"{name} is too large to compare {size}: the edits are shown as the model wrote them"


def _is_plain(text: str) -> bool:
    """Whether the text is shown exactly: it has one kind of line ends, and only characters that can be shown."""
    pairs, ends = text.count("\r\n"), text.count("\n")
    return pairs in (0, ends) and showable(text).replace("\n", "\r\n" if pairs else "\n") == text
