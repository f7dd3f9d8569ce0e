"""Changing one value in a TOML file without touching the rest of it.

Owns where a key stands in the text, so that comments and order survive an edit and errors can name a line. Reading is
the standard library's business. Every edit is checked by reading its outcome: what cannot be edited safely is refused.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any, cast

from swink_agent.core.values.value import Value

from .toml_shape import open_lines

__all__ = ["TomlFile", "flatten", "write_value"]


class Statement(Value, frozen=True):
    """One assignment, or the header of a table: its lines (from, up to), its table, the dotted keys that it sets."""

    start: int
    end: int
    table: str
    keys: tuple[str, ...] = ()
    is_header: bool = False


class TomlFile:
    """The text of a file and what it says. Raises `ValueError` for what is not TOML, or too much of it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._is_open = open_lines(text)  # first: it refuses what would take the reader too long
        self.values = flatten(_loads(text))
        """Values by dotted key."""
        self._lines = re.split(r"(?<=\n)(?!\Z)", text) if text else []
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def line_of(self, key: str) -> int | None:
        """The line (from 1) on which a key is set."""
        return self.lines().get(key)

    def lines(self) -> dict[str, int]:
        """The line (from 1) on which each key is set; of an array of tables, none."""
        found: dict[str, int] = {}
        for statement in self._statements():
            for key in statement.keys:
                found.setdefault(key, statement.start + 1)
        return found

    def with_value(self, key: str, value: object) -> str:
        """The text with the key set. Raises `ValueError` if that cannot be done safely."""
        table, _, name = key.rpartition(".")
        found = self._statement_of(key)
        if found is not None:
            written = f"{key[len(found.table) :].lstrip('.')} = {write_value(value)}{self._comment_of(found)}"
            lines = [*self._lines[: found.start], written + self._newline, *self._lines[found.end :]]
        else:
            lines = self._with_new_line(table, f"{name} = {write_value(value)}")
        return self._checked("".join(lines), {**self.values, key: value})

    def without(self, key: str) -> str:
        """The text with the key gone; the same text if it was not there. Raises `ValueError` if that is not safe."""
        found = self._statement_of(key)
        if found is None:
            return self.text
        lines = [*self._lines[: found.start], *self._lines[found.end :]]
        return self._checked("".join(lines), {name: value for name, value in self.values.items() if name != key})

    def _checked(self, text: str, wanted: dict[str, Any]) -> str:
        try:
            read = flatten(_loads(text))
        except ValueError:
            read = None
        if read != wanted:
            raise ValueError("the file is written in a way that cannot be edited safely from here: edit it by hand")
        return text

    # -- where things stand ------------------------------------------------------------------------------------

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
                    raise ValueError(f"{key} stands with others on line {statement.start + 1}: edit it by hand")
                return statement
        return None

    def _comment_of(self, statement: Statement) -> str:
        """The comment behind an assignment of one line, with the space before it."""
        line = self._lines[statement.start].rstrip("\r\n")
        if statement.end - statement.start > 1:
            return ""
        whole = _read([line])
        for position, character in enumerate(line):
            if character == "#" and _read([line[:position]]) == whole:
                before = line[:position]
                return before[len(before.rstrip()) :] + line[position:]
        return ""

    def _with_new_line(self, table: str, assignment: str) -> list[str]:
        """The lines with one more assignment at the end of its table, which is made if it is not there."""
        lines, newline = list(self._lines), self._newline
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += newline
        statements = [statement for statement in self._statements() if statement.table == table]
        if statements:
            at = max(statement.end for statement in statements)
        elif table:
            space = [newline] if lines else []
            return [*lines, *space, f"[{table}]{newline}", assignment + newline]
        else:
            at = self._end_of_opening_comment()
        return [*lines[:at], assignment + newline, *lines[at:]]

    def _end_of_opening_comment(self) -> int:
        """Behind the comment that opens the file, unless it belongs to what follows without a blank line."""
        at = 0
        while at < len(self._lines) and self._lines[at].startswith("#"):
            at += 1
        return at if at == len(self._lines) or not self._lines[at].strip() else 0


def flatten(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted key, tables taken apart; an empty table is nothing."""
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            flat |= flatten(cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def write_value(value: object) -> str:
    """A value as TOML. Raises `ValueError` for one that TOML cannot carry."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError("the text holds characters that no file can carry") from error
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(write_value(item) for item in cast("list[object]", value)) + "]"
    raise ValueError(f"a {type(value).__name__} cannot be written to a settings file")


def _loads(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it goes too deep") from error


def _read(lines: list[str]) -> dict[str, Any] | None:
    try:
        return _loads("".join(lines))
    except ValueError:
        return None


def _table_name(line: str) -> str:
    """The dotted name in a header; an array of tables gets a name that no key has."""
    names: list[str] = []
    inner: Any = _read([line])
    while isinstance(inner, dict) and inner:
        name, inner = next(iter(cast("dict[str, Any]", inner).items()))
        names.append(name if isinstance(inner, dict) else f"{name}[]")
    return ".".join(names)
