"""Changes one value in a TOML file without touching the rest.

Finds where a key is in the text, so that errors name a line and an edit touches only the lines of one assignment. The
standard library reads the file. tomlkit only writes single assignments: given the whole file, it would put new keys
below the comment of the next table, change their line ends, and merge an array of tables into one value. Every edit is
checked by reading the result; an edit that is not safe is refused.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, cast

from swink_agent.core.values.value import Value

LARGEST = 64 * 1024
"""The most characters in a settings file."""
MOST_LEVELS = 16
"""The deepest nesting of tables and lists, and the most parts of a dotted key."""

# Matches left to right, like the reader. If this finds a string that the reader does not, the text is not valid TOML.
_TOKEN = re.compile(
    r'"""(?>(?:[^"\\]|\\.|"(?!""))*)(?:"{3,5}|(?P<unended>\Z|\\\Z))'
    r"|'''(?>(?:[^']|'(?!''))*)(?:'{3,5}|(?P<unended_literal>\Z))"
    r'|"(?>(?:[^"\\\n]|\\.)*)"'
    r"|'[^'\n]*+'"
    r"|\#[^\n]*+"
    r"|(?P<mark>[\[\]{}.,=\n])",
    re.DOTALL,
)
_BY_HAND = "the file is written in a way that cannot be edited safely from here: edit it by hand"


class Statement(Value, frozen=True):
    """One assignment or table header: its first line and the line after it, its table, and the dotted keys it sets."""

    start: int
    end: int
    table: str
    keys: tuple[str, ...] = ()
    is_header: bool = False


class TomlFile:
    """The text of a file and its values. Raises `ValueError` if it is not TOML, or too large."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._is_open = _open_lines(text)  # first: it refuses texts that would take the reader too long
        self._document = _loads(text)
        self.values = flatten(self._document)
        """Values by dotted key."""
        self._lines = re.split(r"(?<=\n)(?!\Z)", text) if text else []
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def lines(self) -> dict[str, int]:
        """The line (from 1) on which each key is set. Arrays of tables have none."""
        found: dict[str, int] = {}
        for statement in self._statements():
            for key in statement.keys:
                found.setdefault(key, statement.start + 1)
        return found

    def table(self, name: str) -> Any:
        """The value of a top-level name, unchanged; `None` if the file does not have it."""
        return self._document.get(name)

    def line_near(self, key: str) -> int:
        """The line of the key, or of the table of that name, or of the first key in that table; else 1."""
        inside = f"{key}."
        for statement in self._statements():
            if key in statement.keys or (statement.is_header and statement.table.removesuffix("[]") == key):
                return statement.start + 1
            if any(name.startswith(inside) for name in statement.keys):
                return statement.start + 1
        return 1

    def with_value(self, key: str, value: object) -> str:
        """The text with the key set. Raises `ValueError` if that cannot be done safely."""
        found = self._statement_of(key)
        lines = self._with_new_line(key, value) if found is None else self._with_other_value(found, key, value)
        return self._checked("".join(lines), {**self.values, key: value})

    def without(self, key: str) -> str:
        """The text without the key; the same text if it was not there. Raises `ValueError` if that is not safe."""
        found = self._statement_of(key)
        lines = self._lines
        if found is not None:
            lines = [*lines[: found.start], *lines[found.end :]]
            lines = self._without_empty_table(found, lines)
        return self._checked("".join(lines), {name: value for name, value in self.values.items() if name != key})

    def _without_empty_table(self, gone: Statement, lines: list[str]) -> list[str]:
        """The lines without the table header if the statement was alone in it; a comment keeps the header."""
        headers = [one for one in self._statements() if one.is_header]
        own = [one for one in headers if one.end <= gone.start][-1:]
        if not own or self._lines[own[0].start].lstrip().startswith("[["):
            return lines
        removed = gone.end - gone.start
        behind = [one.start - removed for one in headers if one.start > gone.start][:1] or [len(lines)]
        if any(line.strip() for line in lines[own[0].end : behind[0]]):
            return lines
        return [*lines[: own[0].start], *lines[behind[0] :]]

    def _checked(self, text: str, wanted: dict[str, Any]) -> str:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError("the text contains characters that cannot be encoded as UTF-8") from error
        read = _read([text])
        if read is None or flatten(read) != wanted:
            raise ValueError(_BY_HAND)
        return text

    # -- statements --------------------------------------------------------------------------------------------

    def _statements(self) -> Iterator[Statement]:
        """Every assignment and header, in order."""
        table, position = "", 0
        while position < len(self._lines):
            line = self._lines[position].strip()
            start, position = position, position + 1
            if not line or line.startswith("#"):
                continue
            if line.startswith("["):
                table = _table_name(line)
                yield Statement(start, position, table, is_header=True)
                continue
            while position < len(self._lines) and self._is_open[position - 1]:
                position += 1
            read = _read(self._lines[start:position])
            prefix = f"{table}." if table else ""
            yield Statement(start, position, table, tuple(prefix + key for key in flatten(read or {})))

    def _statement_of(self, key: str) -> Statement | None:
        for statement in self._statements():
            if key in statement.keys:
                if len(statement.keys) > 1:
                    raise ValueError(f"{key} shares line {statement.start + 1} with other keys: edit it by hand")
                return statement
        return None

    # -- edits -------------------------------------------------------------------------------------------------

    def _with_other_value(self, found: Statement, key: str, value: object) -> list[str]:
        """The lines with the new value. The key's spelling, its indent and the comment after it stay."""
        import tomlkit
        from tomlkit.exceptions import TOMLKitError

        try:
            assignment: Any = tomlkit.parse("".join(self._lines[found.start : found.end]))
            *outer, last = _path(assignment, key.removeprefix(f"{found.table}."))
            inner = assignment
            for part in outer:
                inner = inner[part]
            inner[last] = value
        except TOMLKitError as error:
            raise ValueError(_BY_HAND) from error
        return [*self._lines[: found.start], assignment.as_string(), *self._lines[found.end :]]

    def _with_new_line(self, key: str, value: object) -> list[str]:
        """The lines with one more assignment, after the others of its table, which is created if missing."""
        lines, newline = list(self._lines), self._newline
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += newline
        table, _, name = key.rpartition(".")
        statements = list(self._statements())
        if beside := [statement for statement in statements if statement.table == table]:
            at, written = max(statement.end for statement in beside), _assignment([name], value)
        elif beside := [one for one in statements if any(k.rpartition(".")[0] == table for k in one.keys)]:
            inside = key.removeprefix(f"{beside[-1].table}.")  # dotted keys like this one create its table
            at, written = beside[-1].end, _assignment(inside.split("."), value)
        elif table:
            space = [newline] if lines else []
            return [*lines, *space, f"[{table}]{newline}", _assignment([name], value) + newline]
        else:
            at, written = self._end_of_opening_comment(), _assignment([name], value)
        indent = re.match(r"[ \t]*", lines[beside[-1].start] if beside else "")
        return [*lines[:at], (indent[0] if indent else "") + written + newline, *lines[at:]]

    def _end_of_opening_comment(self) -> int:
        """The line after the file's opening comment, or 0 if no empty line separates the comment from the next line."""
        at = 0
        while at < len(self._lines) and self._lines[at].startswith("#"):
            at += 1
        return at if at == len(self._lines) or not self._lines[at].strip() else 0


def flatten(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted key, with tables flattened. An empty table is left out."""
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            flat |= flatten(cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _assignment(names: Sequence[str], value: object) -> str:
    import tomlkit

    document = tomlkit.document()
    document.append(tomlkit.key(names), tomlkit.item(value))
    return document.as_string().rstrip("\n")


def _path(document: dict[str, Any], key: str) -> list[str]:
    """The names that lead to a dotted key: one of them may contain dots."""
    for name, inner in document.items():
        if name == key:
            return [name]
        if key.startswith(f"{name}.") and isinstance(inner, dict):
            return [name, *_path(cast("dict[str, Any]", inner), key.removeprefix(f"{name}."))]
    raise ValueError(_BY_HAND)


def _loads(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _read(lines: list[str]) -> dict[str, Any] | None:
    try:
        return _loads("".join(lines))
    except ValueError:
        return None


def _table_name(line: str) -> str:
    """The dotted name in a header. An array of tables gets a name that no key has."""
    names: list[str] = []
    inner: Any = _read([line])
    while isinstance(inner, dict) and inner:
        name, inner = next(iter(cast("dict[str, Any]", inner).items()))
        names.append(name if isinstance(inner, dict) else f"{name}[]")
    return ".".join(names)


def _open_lines(text: str) -> list[bool]:
    """For each line, whether its statement continues on the next line. Raises `ValueError` for a text that is too long
    or too deeply nested.

    One pass, in linear time. The standard library's reader recurses for each level and takes quadratic time for a
    dotted key, so such a text must not reach it.
    """
    if len(text) > LARGEST:
        raise ValueError(f"it is longer than {LARGEST:,} characters")
    open_: list[bool] = []
    depth = parts = 0
    for token in _TOKEN.finditer(text):
        match token["mark"]:
            case None:
                if token["unended"] is not None or token["unended_literal"] is not None:
                    raise ValueError(f"the string on line {len(open_) + 1} never ends")
                open_ += [True] * token[0].count("\n")
                continue
            case "[" | "{":
                depth, parts = depth + 1, 0
            case "]" | "}":
                depth, parts = max(depth - 1, 0), 0
            case ".":
                parts += 1
            case "\n":
                open_.append(depth > 0)
                parts = 0
            case _:
                parts = 0
        if depth > MOST_LEVELS or parts >= MOST_LEVELS:
            raise ValueError(f"line {len(open_) + 1} is nested more than {MOST_LEVELS} levels deep")
    return [*open_, False]
