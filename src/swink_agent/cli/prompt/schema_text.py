"""Describes what is wrong with a `--schema` in plain words: the line if it can be found, the place, the reason.

Owns the words for errors of Python's JSON reader and of the validator.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from swink_agent.core.schemas.validation import compile_schema

_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_WORDS = (
    ("Expecting value", "a value is missing"),
    ("Expecting ',' delimiter", "a comma is missing"),
    ("Expecting ':' delimiter", "a colon is missing"),
    ("Expecting property name", "a name in double quotes is missing"),
    ("Illegal trailing comma", "there is a comma too much"),
    ("Unterminated string", "the text that begins here never ends"),
    ("Invalid control character", "a text has a line break or another control character in it"),
    ("Extra data", "there is something behind the end"),
)


def json_problem(text: str) -> str:
    """Why the text is not JSON, with its line. Empty if Python finds nothing wrong."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        reason = next((words for start, words in _WORDS if error.msg.startswith(start)), error.msg)
        return f"line {error.lineno}, column {error.colno}: {reason}"
    except RecursionError:
        return "it is nested too deeply"
    return ""


def schema_problem(schema: dict[str, Any], text: str, error: BaseException) -> str:
    """Why a JSON object is not a usable schema. `error` is what the library raised for it."""
    path: Sequence[str | int] = ()
    cause: object = None
    try:  # the user's schema by itself, so that the error's place is one in the user's text
        compile_schema(schema)
    except ValueError as alone:
        cause = alone.__cause__
        path = list(getattr(cause, "instance_path", ()))
    message: str = getattr(cause, "message", "") or str(error).rpartition("is not valid JSON Schema: ")[2]
    if not path:
        return message or "it is nested too deeply"
    value: Any = schema
    for part in path:
        value = value[part]
    return f"{_line_of(path, text)}{'.'.join(map(str, path))} {_reason(path[-1], value, message)}"


def _reason(name: str | int, value: Any, message: str) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= 40 else f"{shown[:39]}…"
    if name == "type":
        from swink_agent.core.texts.likeness import close_names

        near = close_names(value, _TYPES) if isinstance(value, str) else []
        hint = f"did you mean {near[0]}? It is" if near else "it is"
        return f"cannot be {shown}: {hint} one of {', '.join(_TYPES)}, or a list of them"
    _, is_wrong, wanted = message.partition(" is not of type ")
    if is_wrong:
        kind = {"object": "an object", "array": "a list", "boolean": "true or false"}.get(wanted.strip('"'))
        return f"cannot be {shown}: it is {kind or 'a ' + wanted.strip(chr(34))}"
    if message.endswith('is not a "regex"'):
        return f"cannot be {shown}: it is a regular expression"
    return f"cannot be {shown}: {message.partition(' is not valid')[0] if 'anyOf' in message else message}"


def _line_of(path: Sequence[str | int], text: str) -> str:
    """The line of a key that occurs once in the text; `None` for other keys, whose line would be a guess."""
    names = [part for part in path if isinstance(part, str)]
    key = json.dumps(names[-1], ensure_ascii=False) if names else ""
    if not key or text.count(key) != 1 or "\n" not in text.strip():
        return ""
    return f"line {text.count(chr(10), 0, text.index(key)) + 1}: "
