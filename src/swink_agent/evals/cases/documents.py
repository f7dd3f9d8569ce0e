"""Reads YAML and JSON into plain data, with the line of each value.

Owns the limits: how large and how deep a document may be, and how often aliases may repeat its parts. From YAML it
accepts what JSON can express, read as YAML 1.2 does (`no` is a text), with anchors, aliases and merge keys. Tags that
make objects are refused. `loading` gives the data its meaning.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, TypeAlias, cast

from swink_agent.core.machine.extras import MissingExtra, install, require

from ..errors import EvalSetError

Place: TypeAlias = tuple[str | int, ...]
"""The path from the top of a document to one of its values."""

_DEEPEST = 64
_LARGEST = 32 * 1024 * 1024
_MOST_VALUES = 1_000_000
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_CORE = "tag:yaml.org,2002:"
_NO_NUMBERS = frozenset({"NaN", "Infinity", "-Infinity"})  # Python's parser accepts them
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|\n', re.DOTALL)


class DocumentError(Exception):
    """A text is not a document, or exceeds the limits."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


class Document:
    """Data, and the line of each of its values, counted from 1."""

    def __init__(self, data: Any, lines: dict[Place, int]) -> None:
        self.data = data
        self._lines = lines

    def line(self, place: Place) -> int | None:
        """The line of a value; if it is missing, the line of the collection that would contain it."""
        while place and place not in self._lines:
            place = place[:-1]
        return self._lines.get(place)


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file with cases or a script. Raises `EvalSetError`."""
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise EvalSetError(f"cannot be read: {os.strerror(error.errno or 0)}", path=path) from error
    if len(data) > _LARGEST:
        raise EvalSetError(f"is larger than {_LARGEST >> 20} MiB: split it", path=path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise EvalSetError("is not UTF-8 text", path=path, line=data.count(b"\n", 0, error.start) + 1) from error


def parse(text: str, path: str | os.PathLike[str], *, is_json: bool, hint: str = "") -> Document:
    """The document in the text of a file. Raises `EvalSetError`, with the line and the hint if the text is at fault."""
    try:
        return parse_json(text) if is_json else parse_yaml(text)
    except DocumentError as error:
        raise EvalSetError(f"{error}{hint}", path=path, line=error.line) from error
    except EvalSetError as error:
        raise EvalSetError(error.message, path=path) from error.__cause__


# -- YAML ------------------------------------------------------------------------------------------------------------


class _Collection:
    def __init__(self, data: Any, line: int, anchor: str | None) -> None:
        self.data: Any = data
        self.line = line
        self.anchor = anchor
        self.is_mapping = isinstance(data, dict)
        self.key: str | None = None
        self.key_line = line
        self.lines: dict[Place, int] = {(): line}
        self.merged: list[tuple[Any, dict[Place, int]]] = []


def parse_yaml(text: str) -> Document:
    """One YAML document. Raises `DocumentError`, and `EvalSetError` without a line if PyYAML is not installed."""
    try:
        yaml = require("yaml", extra="evals")
    except MissingExtra as error:
        raise EvalSetError(f"YAML is an extra: {install(error.extra)}, or write the set as JSON") from error
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _YamlReader(yaml).read(yaml.parse(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        raise DocumentError(f"not YAML: {said}", None if mark is None else mark.line + 1) from error
    except yaml.YAMLError as error:  # a character that YAML does not have
        position = getattr(error, "position", None)
        line = None if not isinstance(position, int) else text.count("\n", 0, position) + 1
        raise DocumentError(f"not YAML: {str(error).splitlines()[0]}", line) from error


class _YamlReader:
    """Builds data from the parser's events, without recursion: a deep document must not overflow the stack."""

    def __init__(self, yaml: Any) -> None:
        self._yaml = yaml
        self._open: list[_Collection] = []
        self._anchors: dict[str, tuple[Any, dict[Place, int]]] = {}
        self._values = 0
        self._top: tuple[Any, dict[Place, int]] | None = None

    def read(self, events: Any) -> Document:
        yaml = self._yaml
        for event in events:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.ScalarEvent):
                self._add(_scalar(event, line), {(): line}, event.anchor, line)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                if event.tag not in (None, "!", f"{_CORE}map", f"{_CORE}seq"):
                    raise DocumentError(f"the tag {event.tag} has no meaning here", line)
                if len(self._open) >= _DEEPEST:
                    raise DocumentError(f"it is nested more than {_DEEPEST} deep", line)
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                self._open.append(_Collection({} if is_mapping else [], line, event.anchor))
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                self._close(line)
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in self._anchors:
                    raise DocumentError(f"the alias *{event.anchor} has no anchor", line)
                data, lines = self._anchors[event.anchor]
                self._add(data, lines, None, line)
            elif isinstance(event, yaml.DocumentStartEvent) and self._top is not None:
                raise DocumentError("there is a second document; a file is one set", line)
        if self._top is None:
            raise DocumentError("it is empty", 1)
        return Document(*self._top)

    def _close(self, line: int) -> None:
        done = self._open.pop()
        for data, lines in done.merged:
            for key, value in data.items():
                if key not in done.data:
                    done.data[key] = value
                    done.lines |= {place: at for place, at in lines.items() if place[:1] == (key,)}
        self._add(done.data, done.lines, done.anchor, done.line)

    def _add(self, data: Any, lines: dict[Place, int], anchor: str | None, line: int) -> None:
        # Each use of an alias counts: a few lines can expand to more than fits into memory.
        self._values += len(lines)
        if self._values > _MOST_VALUES:
            raise DocumentError(f"it has more than {_MOST_VALUES:,} values, aliases counted as often as used", line)
        if anchor is not None:
            self._anchors[anchor] = (data, lines)
        if not self._open:
            self._top = (data, lines)
            return
        parent = self._open[-1]
        if not parent.is_mapping:
            self._put(parent, len(parent.data), data, lines)
        elif parent.key is None:
            if not isinstance(data, str):
                raise DocumentError(f"the name of a field is a text, not {json.dumps(data)[:40]}; quote it", line)
            if data in parent.data:
                raise DocumentError(f"the field {data!r} occurs twice", line)
            parent.key, parent.key_line = data, line
        elif parent.key == "<<":
            parent.merged += self._merged(data, lines, line)
            parent.key = None
        else:
            self._put(parent, parent.key, data, lines)
            parent.lines[(parent.key,)] = parent.key_line
            parent.key = None

    def _put(self, parent: _Collection, key: str | int, data: Any, lines: dict[Place, int]) -> None:
        if isinstance(key, int):
            parent.data.append(data)
        else:
            parent.data[key] = data
        # The places are rewritten at each level: a document is a few levels deep.
        parent.lines.update({(key, *place): line for place, line in lines.items()})

    @staticmethod
    def _merged(data: Any, lines: dict[Place, int], line: int) -> list[tuple[Any, dict[Place, int]]]:
        if isinstance(data, dict):
            return [(data, lines)]
        if isinstance(data, list) and all(isinstance(item, dict) for item in cast("list[Any]", data)):
            items = cast("list[Any]", data)
            return [
                (item, {place[1:]: at for place, at in lines.items() if place[:1] == (position,)})
                for position, item in enumerate(items)
            ]
        raise DocumentError("<< takes a mapping, or a list of them", line)


def _scalar(event: Any, line: int) -> Any:
    value: str = event.value
    tag = event.tag
    if tag in (f"{_CORE}str", "!") or (tag is None and not event.implicit[0]):
        return value
    if tag is not None and tag not in {f"{_CORE}{kind}" for kind in ("int", "float", "bool", "null")}:
        raise DocumentError(f"the tag {tag} has no meaning here", line)
    if value in _NULL:
        return None
    if value in _BOOLS:
        return _BOOLS[value]
    try:
        if _INT.fullmatch(value):
            return int(value, 0) if value[:2] in ("0o", "0x") else int(value)
        if _FLOAT.fullmatch(value):
            return float(value)
    except ValueError as error:  # more digits than Python accepts
        raise DocumentError(f"the number {value[:20]}… is too long", line) from error
    return value


# -- JSON ------------------------------------------------------------------------------------------------------------


def parse_json(text: str) -> Document:
    """One JSON document. Raises `DocumentError`."""
    lines = _json_lines(text)
    try:
        return Document(json.loads(text), lines)
    except json.JSONDecodeError as error:
        raise DocumentError(f"not JSON: {error.msg}", error.lineno) from error
    except ValueError as error:
        raise DocumentError(f"not JSON: {error}", None) from error


def _json_lines(text: str) -> dict[Place, int]:
    """The line of each value. For text that is not JSON the result is arbitrary: the parser reports it."""
    lines: dict[Place, int] = {}
    line = 1
    stack: list[str | int] = []
    """The path to the current value: names and positions."""
    names: list[set[str]] = []
    """The names so far, in each collection on that path."""
    expects_key = False
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == "\n":
            line += 1
        elif token in "]}":
            if stack:
                stack.pop()
                names.pop()
            expects_key = False
        elif token == ",":
            last = stack[-1] if stack else None
            expects_key = isinstance(last, str)
            if isinstance(last, int):
                stack[-1] = last + 1
        elif token == ":":
            expects_key = False
        elif expects_key:
            name = _name(token)
            if name in names[-1]:
                raise DocumentError(f"the field {name!r} occurs twice", line)
            names[-1].add(name)
            stack[-1] = name
            lines[tuple(stack)] = line
        elif token in _NO_NUMBERS:
            raise DocumentError(f"not JSON: {token} is not a number in JSON", line)
        else:
            lines.setdefault(tuple(stack), line)
            if len(lines) > _MOST_VALUES:
                raise DocumentError(f"it has more than {_MOST_VALUES:,} values", line)
            if token in "[{":
                if len(stack) >= _DEEPEST:
                    raise DocumentError(f"it is nested more than {_DEEPEST} deep", line)
                stack.append(0 if token == "[" else "")
                names.append(set())
                expects_key = token == "{"
    return lines


def _name(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token
