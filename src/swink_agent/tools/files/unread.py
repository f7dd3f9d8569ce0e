"""The refusal to replace a file that the model does not know, and what it is shown of it.

Owns the message and how much of the file comes with it. What counts as known is in `workspace/seen`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from swink_agent.core.tool import AgentToolResult, ToolContext

from .._bounded import cut_bytes, show_name, show_size
from ..workspace.place import Place
from ..workspace.seen import seen_by
from ..workspace.wall import Workspace
from .file_tool import Before, as_json
from .masked import whole_until
from .read_file import LONGEST_LINE
from .text import decode_text, showable

if TYPE_CHECKING:
    from swink_agent.core.secrets.redaction import Redactor

_MOST_WHOLE = 8 * 1024
_MOST_PART = 2 * 1024
"""Bytes that are shown of a file that is too long to be shown whole: enough to recognise it."""


class _Shown(NamedTuple):
    text: str
    last: int
    """The last line that is shown to its end."""
    total: int
    can_be_read: bool = True
    """Whether the rest can be shown: the end of a line longer than a result never is."""


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
    # Masked as a whole before a part is taken: a secret may end behind the part.
    redactor: Redactor | None = getattr(ctx, "redactor", None)
    shown = None if before.data is None else _shown(before.data, str if redactor is None else redactor.redact)
    if shown is None:
        size = show_size(before.file.stat.st_size)
        how = f"It cannot be shown as text ({size}): to replace it all the same, move it away with a command first."
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
