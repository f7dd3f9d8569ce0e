"""Sets from files: `load_set` and `case_schema`.

Owns the way from a file to an `EvalSet`, and the file and line of everything that is wrong in it. The text is read by
`documents`, what may be said is in `cases`.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import msgspec

from .cases import BadValue, EvalSet
from .documents import Document, DocumentError, Place, parse_json, parse_yaml
from .errors import EvalSetError

__all__ = ["case_schema", "load_set", "read_set"]

_LARGEST = 32 * 1024 * 1024
_WHERE = re.compile(r" - at `\$?(.*)`$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)


def load_set(path: str | os.PathLike[str]) -> EvalSet:
    """The set in a YAML or JSON file (by its suffix: `.json`, else YAML).

    Raises `EvalSetError`, with the file and the line, for anything in it that cannot be.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise EvalSetError(f"cannot be read: {os.strerror(error.errno or 0)}", path=path) from error
    if len(data) > _LARGEST:
        raise EvalSetError(f"is larger than {_LARGEST >> 20} MiB, which is no set of cases", path=path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise EvalSetError("is not UTF-8 text", path=path, line=line) from error
    return read_set(text, path, is_json=Path(path).suffix.lower() == ".json")


def read_set(text: str, path: str | os.PathLike[str] = "", *, is_json: bool = False) -> EvalSet:
    """The set in a text; `path` is the file that errors name. Raises `EvalSetError`."""
    try:
        document = parse_json(text) if is_json else parse_yaml(text)
    except DocumentError as error:
        raise EvalSetError(str(error), path=path, line=error.line) from error
    except EvalSetError as error:
        raise EvalSetError(error.message, path=path) from error.__cause__
    try:
        eval_set = msgspec.convert(document.data, EvalSet)
    except msgspec.ValidationError as error:
        message, place = _explained(error, document)
        raise EvalSetError(message, path=path, line=document.line(place)) from error
    if not eval_set.cases:
        raise EvalSetError("the set has no cases", path=path, line=document.line(("cases",)))
    return eval_set


def _explained(error: msgspec.ValidationError, document: Document) -> tuple[str, Place]:
    """What is wrong, in words, and where."""
    message = str(error)
    where = _WHERE.search(message)
    place: Place = ()
    if where is not None:
        message = message[: where.start()]
        place = _place(where.group(1), document)
    cause = error.__cause__
    if isinstance(cause, BadValue):
        place += cause.at
    elif unknown := _UNKNOWN.match(message):
        near = get_close_matches(unknown.group(1), _fields_beside(place), 1)
        message = f"unknown field {unknown.group(1)!r}{f'; did you mean {near[0]}?' if near else ''}"
        place += (unknown.group(1),)
        return _named(message, place[:-1]), place
    elif missing := _MISSING.match(message):
        message = f"the field {missing.group(1)!r} is missing"
    return _named(message, place), place


def _named(message: str, place: Place) -> str:
    """The message with the way to what it is about."""
    way = "".join([f"[{step}]" if isinstance(step, int) else f".{step}" for step in place]).lstrip(".")
    return f"{way}: {message}" if way else message


def _place(path: str, document: Document) -> Place:
    place: Place = ()
    value: Any = document.data
    for step in _STEP.finditer(path):
        name, index = step.groups()
        if index is not None:
            key: str | int = int(index)
        elif name is not None:
            key = name
        else:  # a value of a mapping, without its key: the first that is no text, as all of ours must be
            items = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
            key = next((key for key, item in items.items() if not isinstance(item, str)), "")
        place += (key,)
        try:
            value = cast("Any", value)[key]
        except (LookupError, TypeError):
            value = None
    return place


def _fields_beside(place: Place) -> list[str]:
    """The names of the fields that may stand at a place."""
    schema: Any = case_schema()
    here = schema
    for step in place:
        here = _resolved(here.get("items", {}) if isinstance(step, int) else here["properties"].get(step, {}), schema)
    return list(here.get("properties", ()))


def _resolved(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    for choice in (part, *part.get("anyOf", ())):
        reference = choice.get("$ref")
        if reference is not None:
            return schema["$defs"][reference.rpartition("/")[2]]
    return part


def case_schema() -> dict[str, Any]:
    """The JSON Schema of a whole set, for editors that complete and check: a new dict at each call."""
    definitions = msgspec.json.schema(EvalSet)["$defs"]
    whole = definitions.pop("EvalSet")
    criteria = definitions["ResponseCriteria"]
    # What a constructor checks beyond the types, as far as a schema can say it.
    criteria["oneOf"] = [{"required": [name]} for name in criteria["properties"]]
    definitions["ExpectedFile"]["not"] = {"required": ["content", "regex"]}
    for name in criteria["properties"]:
        _without_null(criteria["properties"], name)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **whole,
        "title": "A set of evaluation cases",
        "$defs": definitions,
    }


def _without_null(properties: dict[str, Any], name: str) -> None:
    part = properties[name]
    choices = [choice for choice in part.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        rest = {key: value for key, value in part.items() if key not in ("anyOf", "default")}
        properties[name] = {**choices[0], **rest}
