"""What a person sees of text that a model wrote, before saying yes to it.

Owns the escaping of characters that hide, reorder or forge, the warnings about letters that look like others, and the
rendering of one tool call. Does not ask anybody: that is in `approvals`.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from swink_agent.core.approval import ToolApprovalRequest

__all__ = ["display_warnings", "is_deceptive", "render_request", "safe_display"]

LIMIT = 2000
_LONGEST_LINE = 400
_MOST_LINES = 80
_MOST_DIFFED = 2000
_MOST_SPACES = 8
_MOST_MARKS = 2

_NEWLINE = "⏎"
_WORD = re.compile(r"[^\W_]+")

# Printable for Unicode, and yet nothing is to be seen: fillers, joiners, variation selectors.
_FILLERS = (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0)
_SELECTORS = (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
_BLANK = frozenset({*_FILLERS, *_SELECTORS})

# Letters of other scripts that most fonts draw as the ASCII letter beside them.
# fmt: off
_DRAWN_AS = {
    "a": "\u0430\u03b1\u0251", "c": "\u0441\u03f2", "d": "\u0501", "e": "\u0435\u212e",
    "g": "\u0261\u0581", "h": "\u04bb\u0570", "i": "\u0456\u03b9\u0131", "j": "\u0458\u03f3",
    "k": "\u03ba\u043a", "l": "\u04cf", "m": "\u043c", "n": "\u0578\u03b7", "o": "\u043e\u03bf\u0585",
    "p": "\u0440\u03c1", "q": "\u051b\u0566", "s": "\u0455", "t": "\u0442\u03c4", "u": "\u057d\u03c5",
    "v": "\u0475\u03bd", "w": "\u051d\u0461\u03c9", "x": "\u0445\u03c7", "y": "\u0443\u04af\u03b3",
    "z": "\u1d22", "A": "\u0410\u0391", "B": "\u0412\u0392", "C": "\u0421\u03f9", "E": "\u0415\u0395",
    "H": "\u041d\u0397", "I": "\u0406\u0399\u04c0", "J": "\u0408", "K": "\u041a\u039a",
    "M": "\u041c\u039c", "N": "\u039d", "O": "\u041e\u039f", "P": "\u0420\u03a1", "S": "\u0405",
    "T": "\u0422\u03a4", "X": "\u0425\u03a7", "Y": "\u0423\u03a5\u04ae", "Z": "\u0396",
}
# fmt: on
_LOOKALIKE = {character: letter for letter, characters in _DRAWN_AS.items() for character in characters}


def is_deceptive(character: str) -> bool:
    """Whether a terminal draws nothing, or something else, for the character. A plain space is not."""
    return not character.isprintable() or ord(character) in _BLANK


def safe_display(text: str, limit: int | None = LIMIT) -> str:
    """The text as one line in which nothing hides.

    Control, bidirectional, zero-width, tag and other invisible characters, spaces that are not the plain one, and
    piled-up accents are written as `\\u{202e}`; line ends as `⏎`; long runs of spaces as `[40 spaces]`. Past `limit`
    characters the middle is left out and its length said: the end always shows. `None` leaves nothing out.
    """
    head, tail, left_out = _ends(text, limit)
    if not left_out:
        return _escape(text)
    return f"{_escape(head)} … [{left_out:,} of {len(text):,} characters not shown] … {_escape(tail)}"


def display_warnings(text: str) -> tuple[str, ...]:
    """What a person should know about the text before trusting their eyes, one sentence each."""
    if text.isascii() and text.isprintable():
        return ()
    warnings: list[str] = []
    hidden = sorted([character for character in set(text) if is_deceptive(character) and character not in "\n\t"])
    if hidden:
        named = ", ".join(f"{_escaped(character)} {_name(character)}" for character in hidden[:3])
        more = f" and {len(hidden) - 3} more" if len(hidden) > 3 else ""
        warnings.append(f"it holds characters that do not show: {named}{more}")
    words = _words(text)
    # Whoever writes in another script has words in it that pass for nothing else.
    at_home = {_script(letter) for word in words if not _is_mixed(word) for letter in word if letter not in _LOOKALIKE}
    for word in words:
        reading = _reads_as(word, at_home)
        if reading is not None:
            warnings.append(f"{safe_display(word, 60)} is not what it looks like: {reading}")
            if len(warnings) == 4:
                break
    return tuple(warnings)


def render_request(
    request: ToolApprovalRequest,
    *,
    command: str | None = None,
    details: Mapping[str, Any] | None = None,
    limit: int | None = LIMIT,
) -> str:
    """The call as lines for a person: a command as it is, a write or an edit as a diff, anything else as JSON.

    Every line but the first begins with a mark (`│`, `+`, `-`, a space), so that no text in the arguments can pass for
    a line of the program that shows them. `command` names the argument that is a shell command, if one is. `details`
    (path, old, new, is_new) give a write its real diff. `limit` is the most characters shown, head and tail.
    """
    arguments = request.arguments
    name = safe_display(request.name, 100)
    if command is not None and isinstance(arguments.get(command), str):
        rest = {key: value for key, value in arguments.items() if key != command}
        return _joined(name, [*_block("│ ", arguments[command], limit), *_fields(rest, limit)], limit)
    path = arguments.get("path")
    if details is not None and isinstance(details.get("old"), str) and isinstance(details.get("new"), str):
        kind = " (new file)" if details.get("is_new") else ""
        title = f"{name} {_path(str(details.get('path', path)), request)}{kind}"
        return _joined(title, _diff(details["old"], details["new"], limit), limit)
    if isinstance(path, str) and isinstance(arguments.get("content"), str):
        return _joined(f"{name} {_path(path, request)}", _block("+ ", arguments["content"], limit), limit)
    if isinstance(path, str) and isinstance(arguments.get("edits"), list):
        return _joined(f"{name} {_path(path, request)}", _edits(arguments["edits"], limit), limit)
    return _joined(name, _fields(arguments, limit), limit)


# -- characters ----------------------------------------------------------------------------------------------


def _ends(text: str, limit: int | None) -> tuple[str, str, int]:
    """Head, tail, and how much lies between: more than half of what is shown is the head."""
    if limit is None or len(text) <= limit:
        return text, "", 0
    tail = max(limit * 2 // 5, 1)
    head = max(limit - tail, 1)
    return text[:head], text[-tail:], max(len(text) - head - tail, 0)


def _escape(text: str) -> str:
    if text.isascii() and text.isprintable() and " " * (_MOST_SPACES + 1) not in text:
        return text
    shown: list[str] = []
    marks, spaces = _MOST_MARKS, 0  # an accent with nothing beneath it would fall on what stands before
    for character in f"{text}\0":
        if character == " ":
            spaces += 1
            continue
        if spaces:
            shown.append(" " * spaces if spaces <= _MOST_SPACES else f" [{spaces} spaces] ")
            marks, spaces = _MOST_MARKS, 0
        is_mark = unicodedata.category(character) in ("Mn", "Me", "Mc")
        marks = marks + 1 if is_mark else 0
        if character == "\n":
            shown.append(_NEWLINE)
        elif is_deceptive(character) or character == _NEWLINE or (is_mark and marks > _MOST_MARKS):
            shown.append(_escaped(character))
        else:
            shown.append(character)
    return "".join(shown[:-1])  # without the end mark


def _escaped(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


def _name(character: str) -> str:
    if character == "\r":
        return "carriage return"
    if character == "\x1b":
        return "escape"
    if 0xE0000 <= ord(character) <= 0xE007F:
        return "invisible tag"
    return unicodedata.name(character, "control character" if ord(character) < 0xA0 else "unassigned").lower()


def _words(text: str) -> list[str]:
    """The runs of letters and digits in the text that are not all ASCII, each once."""
    return list(dict.fromkeys([word for word in _WORD.findall(text) if not word.isascii()]))


def _is_mixed(word: str) -> bool:
    return len({script for character in word if (script := _script(character))}) > 1


def _reads_as(word: str, at_home: set[str]) -> str | None:
    """What is wrong with a word, or `None`: a word of a script that the text is written in is nobody's concern."""
    compatible = unicodedata.normalize("NFKC", word)
    if compatible != word and compatible.isascii():
        return f"it reads as {safe_display(compatible, 60)} but is written in other characters"
    scripts = sorted({script for character in word if (script := _script(character))})
    if _is_mixed(word) and "latin" in scripts and any(character in _LOOKALIKE for character in word):
        return f"it mixes {' and '.join(scripts)} letters"
    if (
        at_home.isdisjoint(scripts)
        and "latin" not in scripts
        and all(character.isascii() or character in _LOOKALIKE for character in word)
    ):
        plain = "".join(_LOOKALIKE.get(character, character) for character in word)
        return f"it reads as {safe_display(plain, 60)} but is written in {' and '.join(scripts)} letters"
    return None


def _script(character: str) -> str:
    if not character.isalpha():
        return ""
    return unicodedata.name(character, "unknown").split()[0].lower()


# -- calls ---------------------------------------------------------------------------------------------------


def _path(path: str, request: ToolApprovalRequest) -> str:
    """The path, and where links lead it, if the tool says so in the scope of the call."""
    real, folder = request.scope.get("path"), request.scope.get("folder")
    shown = safe_display(path, 500)
    if not isinstance(real, str):
        return shown
    plain = posixpath.normpath(path)
    if isinstance(folder, str) and plain.startswith(f"{folder.rstrip('/')}/"):
        plain = posixpath.relpath(plain, folder)
    return shown if plain == posixpath.normpath(real) else f"{shown} → {safe_display(real, 500)}"


def _joined(title: str, lines: list[str], limit: int | None) -> str:
    """Title and lines; of very many small parts, too, the middle is left out."""
    if limit is not None and len(lines) > 3 * _MOST_LINES:
        head, tail = lines[:_MOST_LINES], lines[-_MOST_LINES:]
        lines = [*head, f"  … [{len(lines) - 2 * _MOST_LINES:,} lines not shown] …", *tail]
    return "\n".join([title, *lines])


def _block(mark: str, text: str, limit: int | None) -> list[str]:
    """The lines of the text, each behind the mark; a line end at the very end is no line of its own."""
    return _cut([mark + line for line in _lines(text)], len(mark), limit)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def _cut(lines: list[str], width: int, limit: int | None) -> list[str]:
    """The lines, displayed safely, without the middle of what is past the limit."""
    if limit is None or (len(lines) <= _MOST_LINES and sum(map(len, lines)) <= limit):
        return [line[:width] + safe_display(line[width:], None) for line in lines]
    longest = max(min(limit, _LONGEST_LINE), 40)
    head = _within(lines, _MOST_LINES * 3 // 5, limit * 3 // 5)
    rest = lines[len(head) :]
    tail = _within(reversed(rest), _MOST_LINES * 2 // 5, limit * 2 // 5)[::-1]
    between = rest[: len(rest) - len(tail)]
    shown = [line[:width] + safe_display(line[width:], longest) for line in (*head, *tail)]
    if between:
        size = sum(map(len, between)) - width * len(between)
        shown.insert(len(head), f"  … [{len(between):,} of {len(lines):,} lines, {size:,} characters, not shown] …")
    return shown


def _within(lines: Iterable[str], most: int, limit: int) -> list[str]:
    taken: list[str] = []
    for line in lines:
        limit -= min(len(line), _LONGEST_LINE)
        if taken and (limit < 0 or len(taken) >= most):
            break
        taken.append(line)
    return taken


def _fields(arguments: Mapping[str, Any], limit: int | None) -> list[str]:
    lines: list[str] = []
    for key, value in arguments.items():
        text = value if isinstance(value, str) else _json(value)
        most = None if limit is None else max(limit // max(len(arguments), 1), 80)
        if isinstance(value, str) and "\n" in value:
            lines += [f"  {safe_display(key, 100)}:", *_block("│ ", text, most)]
        else:
            lines.append(f"  {safe_display(key, 100)}: {safe_display(text, most)}")
    return lines


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__} that is not JSON"


def _edits(edits: list[Any], limit: int | None) -> list[str]:
    lines: list[str] = []
    for number, edit in enumerate(edits, 1):
        if not isinstance(edit, dict):
            lines.append(f"  edit {number}: {safe_display(_json(edit), 200)}")
            continue
        fields = cast("dict[str, Any]", edit)
        everywhere = " everywhere" if fields.get("replace_all") else ""
        lines.append(f"  edit {number} of {len(edits)}{everywhere}")
        for mark, key in (("- ", "old"), ("+ ", "new")):
            value = fields.get(key)
            text = value if isinstance(value, str) else _json(value)
            if text:
                lines += _block(mark, text, None if limit is None else max(limit // (2 * len(edits)), 80))
    return lines


def _diff(old: str, new: str, limit: int | None) -> list[str]:
    import difflib  # on use: most questions are about commands

    before, after = _lines(old), _lines(new)
    if not old or len(before) + len(after) > _MOST_DIFFED:  # comparing is quadratic at worst
        return [*(_block("- ", old, limit) if old else []), *_block("+ ", new, limit)]
    lines = list(difflib.unified_diff(before, after, n=3, lineterm=""))[2:]
    marked = [f"  {line}" if line.startswith("@@") else f"{line[0]} {line[1:]}" for line in lines]
    return _cut(marked, 2, limit) or ["  no change"]
