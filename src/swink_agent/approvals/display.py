"""What a person sees of a tool call, before saying yes to it.

Owns the lines of one call, each with its kind: a command as it is, a write or an edit as a diff, anything else by its
arguments. Pure text, for a terminal, a window or a page to lay out. The characters in it are made safe in `escaping`;
the diff is in `diffs`. Does not ask anybody: that is in `approvals`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import msgspec

from swink_agent.core.approval import ProposedCall
from swink_agent.rendering.escaping import LIMIT, display_warnings, is_deceptive, safe_display, safe_line

__all__ = ["CallLine", "call_lines", "display_warnings", "is_deceptive", "render_request", "safe_display"]

LineKind: TypeAlias = Literal["title", "command", "added", "removed", "context", "hunk", "field", "gap", "note"]

_MARKS: Mapping[LineKind, str] = {"title": "", "command": "│ ", "added": "+ ", "removed": "- "}
_LONGEST_LINE = 400
_MOST_LINES = 80


class CallLine(NamedTuple):
    """A line of what is shown of a call. Its text is safe, has no line end and no mark: the kind says which it gets."""

    kind: LineKind
    text: str

    @property
    def marked(self) -> str:
        """The line behind its mark (`│`, `+`, `-`, a space), which no text in it can pass for."""
        return f"{_MARKS.get(self.kind, '  ')}{self.text}"


def render_request(
    request: ProposedCall,
    *,
    command: str | None = None,
    details: Mapping[str, Any] | None = None,
    limit: int | None = LIMIT,
) -> str:
    """The call as lines for a person: a command as it is, a write or an edit as a diff, anything else as JSON.

    Every line but the first begins with a mark (`│`, `+`, `-`, a space), so that no text in the arguments can pass for
    a line of the program that shows them. `command` names the argument that is a shell command, if one is. `details`
    (path, old, new, is_new) give a write its real diff; `notes` in them, a list of sentences, stand under it. `limit`
    is the most characters shown, head and tail.
    """
    lines = call_lines(request, command=command, details=details, limit=limit)
    return "\n".join([line.marked for line in lines])


def call_lines(
    request: ProposedCall,
    *,
    command: str | None = None,
    details: Mapping[str, Any] | None = None,
    limit: int | None = LIMIT,
) -> list[CallLine]:
    """The call as `render_request` has it, for whoever lays out lines by their kind. The first is the title."""
    arguments = request.arguments
    name = safe_display(request.name, 100)
    path = arguments.get("path")
    if command is not None and isinstance(arguments.get(command), str):
        rest = {key: value for key, value in arguments.items() if key != command}
        lines = [*_block("command", arguments[command], limit), *_fields(rest, limit)]
        return _joined(name, lines, details, limit)
    if details is not None and isinstance(details.get("old"), str) and isinstance(details.get("new"), str):
        kind = " (new file)" if details.get("is_new") else ""
        title = f"{name} {_path(str(details.get('path', path)), request)}{kind}"
        return _joined(title, _diff(details["old"], details["new"], limit), details, limit)
    if isinstance(path, str) and isinstance(arguments.get("content"), str):
        lines = _block("added", arguments["content"], limit)
        return _joined(f"{name} {_path(path, request)}", lines, details, limit)
    if isinstance(path, str) and isinstance(arguments.get("edits"), list):
        lines = _edits(arguments["edits"], limit)
        return _joined(f"{name} {_path(path, request)}", lines, details, limit)
    return _joined(name, _fields(arguments, limit), details, limit)


def _path(path: str, request: ProposedCall) -> str:
    """The path, and where links lead it, if the tool says so in the scope of the call."""
    real, folder = request.scope.get("path"), request.scope.get("folder")
    shown = safe_display(path, 500)
    if not isinstance(real, str):
        return shown
    plain = posixpath.normpath(path)
    if isinstance(folder, str) and plain.startswith(f"{folder.rstrip('/')}/"):
        plain = posixpath.relpath(plain, folder)
    return shown if plain == posixpath.normpath(real) else f"{shown} → {safe_display(real, 500)}"


def _joined(title: str, lines: list[CallLine], details: Mapping[str, Any] | None, limit: int | None) -> list[CallLine]:
    """Title, lines and notes; of very many small parts, too, the middle is left out."""
    if limit is not None and len(lines) > 3 * _MOST_LINES:
        head, tail = lines[:_MOST_LINES], lines[-_MOST_LINES:]
        gap = CallLine("gap", f"… [{len(lines) - 2 * _MOST_LINES:,} lines not shown] …")
        lines = [*head, gap, *tail]
    notes = (details or {}).get("notes")
    told = cast("list[object]", notes) if isinstance(notes, list) else []
    return [CallLine("title", title), *lines, *[CallLine("note", safe_display(str(note), 300)) for note in told[:20]]]


# -- lines ---------------------------------------------------------------------------------------------------


def _block(kind: LineKind, text: str, limit: int | None) -> list[CallLine]:
    """The lines of the text; a line end at the very end is no line of its own."""
    ends = kind != "command" and _ends_in_crlf(text)  # in a command such a line end is not what it seems
    lines = _lines(text.replace("\r\n", "\n") if ends else text)
    shown = _cut([CallLine(kind, line) for line in lines], limit)
    return [*shown, CallLine("note", "its lines end in CRLF")] if ends else shown


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def _ends_in_crlf(text: str) -> bool:
    count = text.count("\r\n")
    return count > 0 and count == text.count("\n") == text.count("\r")


def _cut(lines: list[CallLine], limit: int | None) -> list[CallLine]:
    """The lines, displayed safely, without the middle of what is past the limit."""
    if limit is None or (len(lines) <= _MOST_LINES and sum([len(line.text) + 2 for line in lines]) <= limit):
        return [_shown(line, None) for line in lines]
    longest = max(min(limit, _LONGEST_LINE), 40)
    head = _within(lines, _MOST_LINES * 3 // 5, limit * 3 // 5)
    rest = lines[len(head) :]
    tail = _within(reversed(rest), _MOST_LINES * 2 // 5, limit * 2 // 5)[::-1]
    between = rest[: len(rest) - len(tail)]
    shown = [_shown(line, longest) for line in (*head, *tail)]
    if between:
        size = sum([len(line.text) for line in between])
        gap = f"… [{len(between):,} of {len(lines):,} lines, {size:,} characters, not shown] …"
        shown.insert(len(head), CallLine("gap", gap))
    return shown


def _shown(line: CallLine, limit: int | None) -> CallLine:
    return CallLine(line.kind, safe_line(line.text, limit))


def _within(lines: Iterable[CallLine], most: int, limit: int) -> list[CallLine]:
    taken: list[CallLine] = []
    for line in lines:
        limit -= min(len(line.text) + 2, _LONGEST_LINE)
        if taken and (limit < 0 or len(taken) >= most):
            break
        taken.append(line)
    return taken


# -- parts ---------------------------------------------------------------------------------------------------


def _fields(arguments: Mapping[str, Any], limit: int | None) -> list[CallLine]:
    lines: list[CallLine] = []
    for key, value in arguments.items():
        text = value if isinstance(value, str) else _json(value)
        most = None if limit is None else max(limit // max(len(arguments), 1), 80)
        if isinstance(value, str) and "\n" in value:
            lines += [CallLine("field", f"{safe_display(key, 100)}:"), *_block("command", text, most)]
        else:
            lines.append(CallLine("field", f"{safe_display(key, 100)}: {safe_display(text, most)}"))
    return lines


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__} that is not JSON"


def _edits(edits: list[Any], limit: int | None) -> list[CallLine]:
    lines: list[CallLine] = []
    parts: tuple[tuple[LineKind, str], ...] = (("removed", "old"), ("added", "new"))
    for number, edit in enumerate(edits, 1):
        if not isinstance(edit, dict):
            lines.append(CallLine("field", f"edit {number}: {safe_display(_json(edit), 200)}"))
            continue
        fields = cast("dict[str, Any]", edit)
        everywhere = " everywhere" if fields.get("replace_all") else ""
        lines.append(CallLine("field", f"edit {number} of {len(edits)}{everywhere}"))
        for kind, key in parts:
            value = fields.get(key)
            text = value if isinstance(value, str) else _json(value)
            if text:
                lines += _block(kind, text, None if limit is None else max(limit // (2 * len(edits)), 80))
    return lines


def _diff(old: str, new: str, limit: int | None) -> list[CallLine]:
    from swink_agent.core.texts.diffs import diff_lines  # on use: most questions are about commands

    notes: list[str] = []
    if _ends_in_crlf(new) and (not old or _ends_in_crlf(old)):
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        notes.append("its lines end in CRLF")
    if old and new and old.endswith("\n") != new.endswith("\n"):
        notes.append("the line end at its end is " + ("added" if new.endswith("\n") else "removed"))
    lines = [CallLine(kind, text) for kind, text in diff_lines(old, new)]
    shown = _cut(lines, limit) or ([] if notes else [CallLine("context", "no change")])
    return [*shown, *[CallLine("note", note) for note in notes]]
