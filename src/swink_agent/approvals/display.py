"""The text that a person sees of a tool call before deciding on it.

Makes the lines of one call, each with its kind: a command as it is, a write or an edit as a diff, any other call by its
arguments. The text is plain, for a terminal, a window or a page to lay out. `rendering/escaping` makes characters safe,
`rendering/texts/diffs` makes the diff, and `approvals` asks.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import msgspec

from swink_agent.core.approval import ACCESS, ProposedCall
from swink_agent.core.values.checks import a_kind
from swink_agent.rendering.escaping import LIMIT, safe_display, safe_line
from swink_agent.rendering.turns import changed_texts

from .access import access_lines, access_of

LineKind: TypeAlias = Literal[
    "title", "command", "added", "removed", "context", "hunk", "field", "gap", "note", "access"
]

_MARKS: Mapping[LineKind, str] = {"title": "", "command": "│ ", "added": "+ ", "removed": "- ", "access": "! "}
_LONGEST_LINE = 400
_LONGEST_PATH = 500
_MOST_LINES = 80
_OF_AN_EDIT = frozenset({"old", "new", "replace_all", "line"})


class CallLine(NamedTuple):
    """One line of a shown call. Its text is safe and has neither line end nor mark; the kind decides the mark."""

    kind: LineKind
    text: str

    @property
    def marked(self) -> str:
        """The line with its mark (`│`, `+`, `-`, `!`, a space), which the text cannot imitate."""
        return f"{_MARKS.get(self.kind, '  ')}{self.text}"


def render_request(
    request: ProposedCall,
    *,
    command: str | None = None,
    details: Mapping[str, Any] | None = None,
    limit: int | None = LIMIT,
) -> str:
    """The call as text for a person: a command as it is, a write or an edit as a diff, any other call as JSON.

    Every line but the first begins with a mark (`│`, `+`, `-`, `!`, a space), so that no text in the arguments looks
    like a line of the program that shows them. `command` names the argument that is a shell command, if there is one.
    `details` (path, old, new, is_new) give a write its real diff; their `notes`, a list of sentences, are shown below
    it. `limit` is the maximum number of characters, taken from the beginning and the end.
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
    """The lines of `render_request` with their kinds. The first is the title."""
    arguments = request.arguments
    name = safe_display(request.name, 100)
    if request.delegates:
        name += f" (called by {' → '.join([safe_display(tool, 40) for tool in request.delegates])})"
    path = arguments.get("path")
    if command is not None and isinstance(arguments.get(command), str):
        access, rest = access_of(request), _without(arguments, command)
        if access is not None:  # in the normal form of the scope: never as the model wrote it, and never cut
            rest = _without(rest, ACCESS)
        opens = [CallLine("access", line) for line in access_lines(access or {})]
        lines = [*opens, *_block("command", arguments[command], limit), *_fields(rest, limit)]
        return _joined(name, lines, details, limit)
    known: Mapping[str, Any] = {} if details is None else details
    shown_path = known.get("path", path)
    title = f"{name} {_path(str(shown_path), request, limit)}{' (new file)' if known.get('is_new') else ''}"
    if (texts := changed_texts(known)) is not None:
        return _joined(title, _diff(*texts, limit), details, limit)
    # Another tool of this name may take more arguments than ours: they are shown too.
    if isinstance(path, str) and isinstance(arguments.get("content"), str):
        more = _fields(_without(arguments, "path", "content"), limit)
        return _joined(title, [*_block("added", arguments["content"], limit), *more], details, limit)
    if (
        isinstance(path, str)
        and isinstance(arguments.get("edits"), list)
        and all(
            not isinstance(edit, dict) or set(cast("dict[str, Any]", edit)) <= _OF_AN_EDIT
            for edit in arguments["edits"]
        )
    ):
        more = _fields(_without(arguments, "path", "edits"), limit)
        return _joined(title, [*_edits(arguments["edits"], limit), *more], details, limit)
    return _joined(name, _fields(arguments, limit), details, limit)


def _path(path: str, request: ProposedCall, limit: int | None) -> str:
    """The path, and where its links lead, if the tool put that into the scope of the call."""
    real, folder = request.scope.get("path"), request.scope.get("folder")
    most = None if limit is None else _LONGEST_PATH
    shown = safe_display(path, most)
    if not isinstance(real, str):
        return shown
    plain = posixpath.normpath(path)
    if isinstance(folder, str) and plain.startswith(f"{folder.rstrip('/')}/"):
        plain = posixpath.relpath(plain, folder)
    return shown if plain == posixpath.normpath(real) else f"{shown} → {safe_display(real, most)}"


def _joined(title: str, lines: list[CallLine], details: Mapping[str, Any] | None, limit: int | None) -> list[CallLine]:
    """Title, lines and notes. If there are very many lines, the middle is left out."""
    if limit is not None and len(lines) > 3 * _MOST_LINES:
        head, tail = lines[:_MOST_LINES], lines[-_MOST_LINES:]
        gap = CallLine("gap", f"… [{len(lines) - 2 * _MOST_LINES:,} lines not shown] …")
        lines = [*head, gap, *tail]
    notes = (details or {}).get("notes")
    told = cast("list[object]", notes) if isinstance(notes, list) else []
    return [CallLine("title", title), *lines, *[CallLine("note", safe_display(str(note), 300)) for note in told[:20]]]


# -- lines ---------------------------------------------------------------------------------------------------


def _block(kind: LineKind, text: str, limit: int | None) -> list[CallLine]:
    """The lines of the text. A line end at the very end does not add an empty line."""
    ends = kind != "command" and _ends_in_crlf(text)  # in a command, `\r` belongs to the last word
    lines = (text.replace("\r\n", "\n") if ends else text).removesuffix("\n").split("\n")
    shown = _cut([CallLine(kind, line) for line in lines], limit)
    return [*shown, CallLine("note", "its lines end in CRLF")] if ends else shown


def _ends_in_crlf(text: str) -> bool:
    count = text.count("\r\n")
    return count > 0 and count == text.count("\n") == text.count("\r")


def _cut(lines: list[CallLine], limit: int | None) -> list[CallLine]:
    """The lines, made safe, without the middle if they exceed the limit."""
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


def _without(arguments: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in arguments.items() if key not in names}


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return f"{a_kind(value)} that is not JSON"


def _edits(edits: list[Any], limit: int | None) -> list[CallLine]:
    lines: list[CallLine] = []
    parts: tuple[tuple[LineKind, str], ...] = (("removed", "old"), ("added", "new"))
    for number, edit in enumerate(edits, 1):
        if not isinstance(edit, dict):
            lines.append(CallLine("field", f"edit {number}: {safe_display(_json(edit), 200)}"))
            continue
        fields = cast("dict[str, Any]", edit)
        lines.append(CallLine("field", f"edit {number} of {len(edits)}{_where(fields)}"))
        for kind, key in parts:
            value = fields.get(key)
            text = value if isinstance(value, str) else _json(value)
            if text:
                lines += _block(kind, text, None if limit is None else max(limit // (2 * len(edits)), 80))
    return lines


def _where(edit: Mapping[str, Any]) -> str:
    """The place of an edit, in words."""
    everywhere = " everywhere" if edit.get("replace_all") else ""
    line = edit.get("line")
    if line is None:
        return everywhere if edit.get("old") else f"{everywhere} at the end"
    return f"{everywhere} {'at' if edit.get('old') else 'before'} line {safe_display(_json(line), 20)}"


def _diff(old: str, new: str, limit: int | None) -> list[CallLine]:
    from swink_agent.rendering.texts.diffs import diff_lines  # on use: most questions are about commands

    notes: list[str] = []
    if _ends_in_crlf(new) and (not old or _ends_in_crlf(old)):
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        notes.append("its lines end in CRLF")
    if old and new and old.endswith("\n") != new.endswith("\n"):
        notes.append("the line end at its end is " + ("added" if new.endswith("\n") else "removed"))
    lines = [CallLine(kind, text) for kind, text in diff_lines(old, new)]
    shown = _cut(lines, limit) or ([] if notes else [CallLine("context", "no change")])
    return [*shown, *[CallLine("note", note) for note in notes]]
