"""The `read_file` tool: text by lines, images as images, anything else is refused.

The text has no line numbers, so that it can be copied into an edit. If it is not the whole file, a note at the end
tells which lines it has.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from swink_agent.core.encoding.media import kind_of
from swink_agent.core.errors import ToolError
from swink_agent.core.tool import AgentToolResult
from swink_agent.core.types import PDF, Base64Source, Image, Text

from .._bounded import OUTPUT_LIMIT, cut_bytes, show_name, show_size
from ..workspace.workspace import OpenFile, read_whole, seen_by, version_of
from .file_tool import Call, FileTool, as_json
from .masked import LineView, line_view, mask_text, whole_until
from .text import decode_text, showable

if TYPE_CHECKING:
    from swink_agent.core.secrets.redaction import Redactor

DEFAULT_LINES = 2000
IMAGE_LIMIT = 3_750_000  # the largest image in bytes: in base64 that is the five megabytes that providers accept

_ROOM = LONGEST_LINE = OUTPUT_LIMIT - 512  # the rest is for notes
_LONGEST_SEEK = 10.0  # seconds for reaching a line far down in a large file
_CHUNK = 1 << 20
_AROUND = 32 * 1024
"""Bytes before and after the lines of a large file that are searched for secrets together with them."""


class ReadFileTool(FileTool):
    """Reads a file of the workspace: a range of lines, or an image."""

    name = "read_file"
    label = "Read file"
    description = (
        "Reads a file in the workspace and returns its text exactly as it is, without line numbers. Long files come in "
        "parts: a note at the end says which lines were shown and how to go on. Images are shown as images."
    )
    parameters_schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the workspace, such as src/main.py"},
            "offset": {"type": "integer", "minimum": 1, "description": "First line to read, from 1. Default 1"},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "description": f"How many lines to read at most. Default {DEFAULT_LINES}",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    }

    def run(self, call: Call) -> AgentToolResult:
        first = int(call.arguments.get("offset", 1))
        most = int(call.arguments.get("limit", DEFAULT_LINES))
        with self.workspace.open_file(call.arguments["path"]) as file:
            data = read_whole(file)
            if data is None:
                result = _show_part_of_large(file, call, first, most)
            elif (media_type := kind_of(data[:16])).startswith("image/"):
                result = _show_image(file, media_type, data)
            else:
                result = _show_lines(file, data, first, most, call.ctx.redactor)
            seen, now = seen_by(call.ctx, self.workspace)
            told: dict[str, Any] = result.details
            version, total = version_of(file.stat, data), told.get("total_lines", 0)
            last = told.get("last_line", 0) - told.get("is_cut", False)  # half of a line does not count as that line
            seen.read(file.parts, version, told.get("first_line", 1), last, total, now)
            return result


# -- lines ---------------------------------------------------------------------------------------------------


class _Lines(NamedTuple):
    """Consecutive lines of a view, the first at `at` in it. `total` is `None` if the rest was not counted."""

    lines: Sequence[str]
    at: int
    total: int | None
    encoding: str
    view: LineView
    before: int = 0  # the number of the file's lines before those of the view

    @property
    def first(self) -> int:
        return self.before + self.view.number_of(self.at)

    def last(self, count: int) -> int:
        """The last line of the file that the first `count` lines show."""
        return self.before + self.view.number_of(self.at + count) - 1


def _show_lines(file: OpenFile, data: bytes, first: int, most: int, redactor: Redactor | None) -> AgentToolResult:
    decoded = decode_text(data)
    if decoded is None:
        raise _binary(file, kind_of(data))
    if not decoded.text:
        return AgentToolResult.text("[the file is empty]", _details(file, 0, 0, 0))
    # Masked as a whole before a part is taken: a secret may begin before the part, or end after it.
    masked = mask_text(decoded.text, redactor)
    view = line_view(showable(masked.text), masked)
    lines, total = view.lines, view.total
    ends_with_newline = not lines[-1]
    if ends_with_newline:
        lines.pop()
        total -= 1
    if first > total:
        raise _beyond(file, first, total)
    at = view.index_of(first)
    shown = lines[at : at + most]
    if ends_with_newline and at + len(shown) == len(lines):
        shown[-1] += "\n"
    return _result(file, _Lines(shown, at, total, decoded.format.name, view))


def _result(file: OpenFile, part: _Lines) -> AgentToolResult:
    text, count, cut = _fitting(part.lines)
    last = part.last(count) if part.total is None else min(part.last(count), part.total)
    notes: list[str] = []
    if part.encoding:
        notes.append(f"the file is {part.encoding}; shown as text")
    if cut:
        notes.append(f"line {last} has {show_size(cut)} and only its beginning is shown; see the rest with a command")
    if part.total is None:
        notes.append(f"lines {part.first}-{last} of {show_size(file.stat.st_size)}; continue with offset={last + 1}")
    elif last < part.total:
        notes.append(f"lines {part.first}-{last} of {part.total}; continue with offset={last + 1}")
    elif part.first > 1:
        notes.append(f"lines {part.first}-{last} of {part.total}, the end of the file")
    if notes:
        text = f"{text}{'' if text.endswith(chr(10)) else chr(10)}[{'; '.join(notes)}]"
    details = _details(file, part.first, last, part.total)
    return AgentToolResult.text(text, details | {"is_cut": True} if cut else details)


def _fitting(lines: Sequence[str]) -> tuple[str, int, int]:
    """As many of the lines as fit, their number, and the size of the last if it was cut."""
    size = 0
    for count, line in enumerate(lines):
        data = line.encode()
        if size + len(data) > _ROOM and count > 0:
            return "\n".join(lines[:count]), count, 0
        if len(data) > _ROOM:
            beginning = data[: cut_bytes(data, _ROOM)].decode()
            return line[: whole_until(line, len(beginning))], 1, len(data)
        size += len(data) + 1
    return "\n".join(lines), len(lines), 0


def _show_part_of_large(file: OpenFile, call: Call, first: int, most: int) -> AgentToolResult:
    """Lines of a file that is too large for memory: reads up to the last of them, and no further."""
    head = file.read(16)
    if kind_of(head).startswith("image/"):
        raise _too_large_image(file)
    pending, context, before, is_end = _seek_line(file, call, head, first)
    if not pending and is_end:
        raise _beyond(file, first, before)
    while (pending.count(b"\n") < most or len(pending) <= _AROUND) and len(pending) <= _ROOM + _AROUND and not is_end:
        chunk = file.read(_CHUNK)
        pending += chunk
        is_end = not chunk
    lines = pending.split(b"\n")
    if is_end and not lines[-1]:
        lines.pop()
    if not lines:
        raise _beyond(file, first, first - 1)
    is_all = is_end and len(lines) <= most
    wanted = b"\n".join(lines[:most])
    wanted = wanted[: cut_bytes(wanted, _ROOM + 1)]
    decoded = decode_text(wanted)
    if decoded is None:
        raise _binary(file, kind_of(head))
    # Includes the text around the lines, for a secret that begins before them or ends after them.
    after = pending[len(wanted) : len(wanted) + _AROUND].decode(decoded.format.encoding, "replace")
    masked = mask_text(context.decode(decoded.format.encoding, "replace") + decoded.text + after, call.ctx.redactor)
    view = line_view(showable(masked.text + "\n")[:-1], masked)  # the last line may have lost half of its line end
    above = context.count(b"\n")
    at = view.index_of(above + 1)
    end = view.index_of(above + min(len(lines), most, wanted.count(b"\n") + 1))
    total = first - 1 + len(lines) if is_all else None
    return _result(file, _Lines(view.lines[at : end + 1], at, total, decoded.format.name, view, first - 1 - above))


def _seek_line(file: OpenFile, call: Call, data: bytes, first: int) -> tuple[bytes, bytes, int, bool]:
    """Reads up to line `first`. Returns the data read from there on, up to 32 KiB before it, the number of lines before
    it, and whether the file ended."""
    before = 0
    context = b""
    deadline = time.monotonic() + _LONGEST_SEEK
    while True:
        newlines = data.count(b"\n")
        if before + newlines >= first - 1:
            at = 0
            for _ in range(first - 1 - before):
                at = data.index(b"\n", at) + 1
            context = (context + data[:at])[-_AROUND:]
            if len(context) == _AROUND:
                context = context[context.find(b"\n") + 1 :]
            return data[at:], context, first - 1, False
        before += newlines
        context = (context + data)[-_AROUND:]
        if not call.is_wanted:
            raise ToolError("read_file was cancelled")
        if time.monotonic() > deadline:
            raise ToolError(
                f"{show_name(file.path)} is too large to find line {first} in {_LONGEST_SEEK:g} seconds (line {before} "
                "was reached): look for it with a command, such as sed or tail"
            )
        is_inside_line = not data.endswith(b"\n")
        data = file.read(_CHUNK)
        if not data:
            return b"", b"", before + is_inside_line, True


# -- files that are not text ---------------------------------------------------------------------------------------


def _show_image(file: OpenFile, media_type: str, data: bytes) -> AgentToolResult:
    if len(data) > IMAGE_LIMIT:
        raise _too_large_image(file)
    note = f"[{show_name(file.path)}: {media_type}, {show_size(len(data))}]"
    image = Image(Base64Source(media_type, base64.b64encode(data).decode()))
    return AgentToolResult((Text(note), image), {"path": as_json(file.path), "media_type": media_type})


def _too_large_image(file: OpenFile) -> ToolError:
    return ToolError(
        f"{show_name(file.path)} is an image of {show_size(file.stat.st_size)}, more than the {show_size(IMAGE_LIMIT)} "
        "that can be shown: make a smaller copy of it first"
    )


def _binary(file: OpenFile, kind: str) -> ToolError:
    what, how = "a binary file", "look into it with a command, such as file or hexdump"
    if kind == PDF:
        what, how = "a PDF", "read it with a command, such as pdftotext, or ask the user to attach it"
    return ToolError(f"{show_name(file.path)} is {what} of {show_size(file.stat.st_size)}, not text: {how}")


def _beyond(file: OpenFile, first: int, total: int) -> ToolError:
    lines = f"{total} line{'s' * (total != 1)}"
    return ToolError(
        f"{show_name(file.path)} has {lines}: offset={first} is beyond its end; leave offset out to read from line 1"
    )


def _details(file: OpenFile, first: int, last: int, total: int | None) -> dict[str, Any]:
    return {"path": as_json(file.path), "first_line": first, "last_line": last, "total_lines": total}
