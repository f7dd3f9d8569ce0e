"""The `write_file` tool: writes a whole file, new or replaced, in one step.

An existing file keeps its encoding, its byte order mark and its line ends. The tool refuses to replace a file that the
model does not know, and shows some of it; `workspace/seen` records which files it knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from swink_agent.core.errors import ToolError
from swink_agent.core.tool import AgentToolResult, ToolContext

from .._bounded import cut_bytes, show_name, show_size
from ..workspace.place import Place
from ..workspace.workspace import Workspace, seen_by
from .file_tool import VERSION, Before, Call, WritingTool, as_json, change_details
from .masked import mask_text, put_back, whole_until
from .read_file import LONGEST_LINE
from .text import NEW_FILE, Decoded, decode_text, encode_text, showable, with_newlines

if TYPE_CHECKING:
    from swink_agent.core.secrets.redaction import Redactor

_MOST_WHOLE = 8 * 1024
_MOST_PART = 2 * 1024  # bytes that are shown of a file that is too long to be shown whole: enough to recognise it


class WriteFileTool(WritingTool):
    """Writes a whole file of the workspace; refuses to replace one whose present content was not read before."""

    name = "write_file"
    label = "Write file"
    replaces_all = True
    description = (
        "Writes a whole file: creates it, with its folders, or replaces all of its content. "
        "To change or add a part, use edit_file."
    )
    parameters_schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the workspace"},
            "content": {"type": "string", "description": "The whole new content"},
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    }

    def approval_scope(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Also has the version of the file that would be replaced: the approval is for that version only."""
        scope = super().approval_scope(arguments)
        with self.opened(arguments["path"]) as (_, before):
            return scope if before is None else {**scope, VERSION: before.version}

    def foresee(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult | None:
        """The refusal to replace a file that the conversation does not know, before the user is asked."""
        with self.opened(arguments["path"]) as (place, before):
            if before is None or _Plan(arguments["content"], ctx.redactor, place, before).data == before.data:
                return None
            return refuse_unread(ctx, self.workspace, place, before)

    def change(self, call: Call, place: Place, before: Before | None) -> AgentToolResult:
        content: str = call.arguments["content"]
        path = "/".join(place.parts)
        plan = _Plan(content, call.ctx.redactor, place, before)
        if before is not None:
            if plan.data == before.data:  # writing the same again loses nothing
                return self._same(call, place, before, content)
            if not self._is_decided(call, place, before):
                refused = refuse_unread(call.ctx, self.workspace, place, before)
                if refused is not None:
                    return refused
        self.put(call, place, before, plan.data)
        details = change_details(path, plan.old, plan.new, is_new=before is None)
        if before is not None and plan.existing is None:
            details["old_is_text"] = False
        verb = "Created" if before is None else "Replaced"
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        size = f"{lines} line{'s' * (lines != 1)}, {show_size(len(plan.data))}"
        return AgentToolResult.text(f"{verb} {show_name(path)} ({size}).", details)

    def _is_decided(self, call: Call, place: Place, before: Before) -> bool:
        """Whether the approval was for this version of the file, and the conversation knows no other.

        The user was asked because the conversation had read this version. If the answer came in another process, that
        is no longer known here.
        """
        known = seen_by(call.ctx, self.workspace)[0].version(place.parts)
        return call.granted_version == before.version and known in (None, before.version)

    def _same(self, call: Call, place: Place, before: Before, content: str) -> AgentToolResult:
        seen_by(call.ctx, self.workspace)[0].wrote(place.parts, before.version, is_whole=True)
        path = "/".join(place.parts)
        text = f"Nothing was changed: {show_name(path)} already holds exactly this."
        return AgentToolResult.text(text, change_details(path, content, content, is_new=False))


class _Plan:
    """A file before and after, both as the model sees them, and its new bytes. Raises `ToolError`."""

    def __init__(self, content: str, redactor: Redactor | None, place: Place, before: Before | None) -> None:
        self.existing = None if before is None or before.data is None else decode_text(before.data)
        masked = mask_text(self.existing.text if self.existing else "", redactor)
        self.old, self.new = masked.text, as_in(self.existing, content)
        text = put_back(masked, self.new, redactor, show_name("/".join(place.parts))).text
        self.data = _encode(text, self.existing, self.new)


def as_in(existing: Decoded | None, content: str) -> str:
    """The content with the line ends of the file that it replaces, and without a byte order mark if the file has one:
    the file keeps its own."""
    if existing is None:
        return content
    text = with_newlines(content, existing.format.newline)
    return text.removeprefix("\ufeff") if existing.format.mark else text


def _encode(text: str, existing: Decoded | None, written: str) -> bytes:
    """The text in the file's encoding, or as UTF-8 if that is impossible or the file is not text. `written` is the
    model's part."""
    try:
        written.encode()
        try:  # stray bytes, which the file's format may keep, can only be in a masked value, which stays unchanged
            return encode_text(text, NEW_FILE if existing is None else existing.format)
        except UnicodeEncodeError:
            return encode_text(text, NEW_FILE)
    except UnicodeEncodeError as error:
        raise ToolError("the content holds half of a character (a lone surrogate): nothing was written") from error


class _Shown(NamedTuple):
    text: str
    last: int  # the last line that is shown to its end
    total: int
    can_be_read: bool = True  # false if a line is too long for a result: its end is never shown


def refuse_unread(ctx: ToolContext, workspace: Workspace, place: Place, before: Before) -> AgentToolResult | None:
    """The refusal with the file's content, or `None` if the conversation knows the file as it is.

    A file that could be shown whole is known from then on, so that repeating the call succeeds.
    """
    seen, now = seen_by(ctx, workspace)
    if before.data == b"" or seen.is_whole(place.parts, before.version, now):
        return None
    path = show_name("/".join(place.parts))
    known = seen.version(place.parts)
    why = (
        "it exists, and you have not read it"
        if known is None
        else "it was changed since you read it"
        if known != before.version
        else "you have not read all of it"
    )
    # Masked as a whole before a part is taken: a secret may end after the part.
    redactor: Redactor | None = getattr(ctx, "redactor", None)
    shown = None if before.data is None else _shown(before.data, str if redactor is None else redactor.redact)
    if shown is None:
        size = show_size(before.file.stat.st_size)
        how = f"It cannot be shown as text ({size}): to replace it anyway, move it away with a command first."
    else:
        seen.read(place.parts, before.version, 1, shown.last, shown.total, now)
        how = _advice(shown)
    details = {"path": as_json("/".join(place.parts)), "refused": "unread" if known is None else "changed"}
    return AgentToolResult.error(f"{path} was not written: {why}.\n{how}", details)


def _advice(shown: _Shown) -> str:
    change = "To change a part of it, use edit_file."
    if shown.last >= shown.total:
        return f"{change} To replace all of it, call write_file again. It holds now:\n{shown.text}"
    if shown.can_be_read:
        how = f"To replace all of it, read the rest first (read_file with offset={shown.last + 1})"
    else:
        how = "It has a line too long to be shown: to replace all of it, move it away with a command first"
    begins = f"Its first {shown.last} of {shown.total} lines" if shown.last else "It begins"
    return f"{change} {how}. {begins}:\n{shown.text}"


def _shown(data: bytes, masked: Callable[[str], str]) -> _Shown | None:
    decoded = decode_text(data)
    if decoded is None:
        return None
    text = showable(decoded.text)
    total = text.count("\n") + (not text.endswith("\n"))
    text = masked(text)
    encoded = text.encode()
    if len(encoded) <= _MOST_WHOLE:
        return _Shown(text, total, total)
    head = encoded[: cut_bytes(encoded, _MOST_PART)].decode()
    whole, end, _ = head.rpartition("\n")
    can_be_read = max(map(len, encoded.split(b"\n"))) <= LONGEST_LINE
    if not end:
        return _Shown(head[: whole_until(head, len(head))], 0, total, can_be_read)
    return _Shown(whole + end, whole.count("\n") + 1, total, can_be_read)
