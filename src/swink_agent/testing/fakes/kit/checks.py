"""Checks that several validators share: shapes of objects, pairs of calls and results, JSON Schemas.

Every function appends problems to a list and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, cast

from swink_agent.adapters.kit.documents import items as items
from swink_agent.adapters.kit.documents import mapping as mapping
from swink_agent.adapters.kit.documents import text as string
from swink_agent.core.values.value import Value

Types: TypeAlias = type | tuple[type, ...]

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOUNS: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
    list: "an array",
    dict: "an object",
}


def objects(value: object, where: str, found: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the objects of an array, each with its path; anything else is a problem."""
    for index, item in enumerate(items(value)):
        path = f"{where}.{index}"
        if isinstance(item, dict):
            yield path, cast("dict[str, Any]", item)
        else:
            found.append(f"{path}: expected an object, got {_noun(item)}")


class Shape:
    """The fields that an object may have, with their types; `null` counts as absent.

    `unknown` is the message for any other field; `None` allows them.
    """

    __slots__ = ("fields", "required", "unknown")

    def __init__(
        self,
        fields: Mapping[str, Types],
        *,
        required: Collection[str] = (),
        unknown: str | None = "{path}: extra fields are not permitted",
    ) -> None:
        self.fields = fields
        self.required = required
        self.unknown = unknown

    def check(self, value: Mapping[str, Any], where: str, found: list[str]) -> None:
        for name, item in value.items():
            path = f"{where}.{name}" if where else name
            if name not in self.fields:
                if self.unknown is not None:
                    found.append(self.unknown.format(path=path))
            elif item is not None and not _fits(item, self.fields[name]):
                found.append(f"{path}: expected {_nouns(self.fields[name])}, got {_noun(item)}")
        for name in self.required:
            if value.get(name) is None:
                found.append(f"{where}.{name}: this field is required" if where else f"{name}: this field is required")


def typed(*groups: tuple[Types, str]) -> dict[str, Types]:
    """The fields of a `Shape`, by type: each group is a type and the names of its fields, with spaces between them."""
    return {name: types for types, names in groups for name in names.split()}


def check_lengths(body: Mapping[str, Any], names: Iterable[str], most: int, found: list[str], where: str = "") -> None:
    """Checks that the strings of these names have at most `most` characters."""
    for name in names:
        if len(string(body.get(name))) > most:
            found.append(f"{where}{name}: the string is too long: at most {most} characters are allowed")


def _fits(value: object, types: Types) -> bool:
    allowed = types if isinstance(types, tuple) else (types,)
    if isinstance(value, bool):
        return bool in allowed or object in allowed
    return isinstance(value, allowed) or (isinstance(value, int) and float in allowed)


def _nouns(types: Types) -> str:
    allowed = types if isinstance(types, tuple) else (types,)
    return " or ".join(_NOUNS.get(kind, kind.__name__) for kind in allowed)


def _noun(value: object) -> str:
    return "null" if value is None else _NOUNS.get(type(value), type(value).__name__)


class Turn(Value, frozen=True):
    """The calls and results of one message, or of consecutive tool messages."""

    where: str
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


def check_pairs(turns: Iterable[Turn], found: list[str]) -> None:
    """Checks that every call has one result in the next turn, every result a call, and that ids are unique."""
    waiting: list[str] = []
    asker = ""
    seen = set[str]()
    for turn in turns:
        answered = set[str]()
        for result in turn.results:
            if result in answered:
                found.append(f"{turn.where}: the call {result!r} has more than one result")
            elif result not in waiting:
                found.append(f"{turn.where}: the result for {result!r} answers no call of the message before it")
            answered.add(result)
        _check_answered([call for call in waiting if call not in answered], asker, found)
        for call in turn.calls:
            if call in seen:
                found.append(f"{turn.where}: the call id {call!r} is not unique")
            seen.add(call)
        waiting, asker = list(turn.calls), turn.where
    _check_answered(waiting, asker, found)


def _check_answered(open_calls: list[str], asker: str, found: list[str]) -> None:
    if open_calls:
        names = ", ".join(open_calls)
        found.append(f"{asker}: calls without a result directly after them: {names}")


def check_names(names: Iterable[tuple[str, object]], pattern: re.Pattern[str], found: list[str]) -> None:
    """Checks that the names of tools, each with its path, have the right form and are unique."""
    seen = set[str]()
    for where, name in names:
        if not isinstance(name, str) or not pattern.fullmatch(name):
            found.append(f"{where}: {name!r} is not a name for a tool: it must match {pattern.pattern}")
        elif name in seen:
            found.append(f"{where}: the tool name {name!r} is not unique")
        else:
            seen.add(name)


def check_json_schema(schema: object, where: str, found: list[str]) -> None:
    """Checks the schema of a tool's arguments: an object, with items for every array."""
    if not isinstance(schema, dict):
        found.append(f"{where}: expected a JSON Schema, got {_noun(schema)}")
        return
    if mapping(cast("object", schema)).get("type") != "object":
        found.append(f"{where}: the schema must be of type 'object'")
    for path, part in subschemas(cast("object", schema), where):
        if part.get("type") == "array" and "items" not in part and "prefixItems" not in part:
            found.append(f"{path}: an array schema without items")


def check_strict(schema: object, where: str, found: list[str]) -> None:
    """Checks the requirements of OpenAI's strict mode for objects."""
    for path, part in subschemas(schema, where):
        if part.get("type") == "object":
            if part.get("additionalProperties") is not False:
                found.append(f"{path}: in strict mode additionalProperties must be false")
            if set(mapping(part.get("properties"))) != set(map(str, items(part.get("required")))):
                found.append(f"{path}: in strict mode required must name every property")


SCHEMA_KEYWORDS = frozenset(
    {
        *("type", "title", "description", "enum", "const", "anyOf", "$ref", "$defs", "definitions"),
        *("properties", "required", "additionalProperties", "items", "format"),
    }
)
"""The keywords that every provider takes in the JSON Schema of a reply."""
STRICT_KEYWORDS = SCHEMA_KEYWORDS | {
    *("pattern", "multipleOf", "minItems", "maxItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
"""The keywords of OpenAI's strict mode."""


def check_output_schema(described: dict[str, Any], where: str, keywords: frozenset[str], found: list[str]) -> None:
    """Checks the name and the JSON Schema of a whole reply."""
    check_names([(f"{where}.name", described.get("name"))], TOOL_NAME, found)
    schema = described.get("schema")
    check_json_schema(schema, f"{where}.schema", found)
    if described.get("strict") is True:
        check_strict(schema, f"{where}.schema", found)
        check_keywords(schema, f"{where}.schema", keywords, found)


def check_keywords(schema: object, where: str, keywords: frozenset[str], found: list[str]) -> None:
    """Checks that a JSON Schema for a reply has no other keywords, and a type for every value."""
    for path, part in subschemas(schema, where):
        found += [f"{path}: {name!r} is not permitted" for name in part if name not in keywords]
        if "$ref" in part and len(part) > 1:
            found.append(f"{path}: $ref cannot have other keywords beside it")
        if not part.keys() & {"type", "$ref", "anyOf", "allOf"}:
            found.append(f"{path}: the schema must have a 'type' key")


def subschemas(schema: object, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the schema and all schemas in it, each with its path."""
    part = mapping(schema)
    yield where, part
    for name in ("properties", "$defs", "definitions"):
        for key, child in mapping(part.get(name)).items():
            yield from subschemas(child, f"{where}.{name}.{key}")
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for index, child in enumerate(items(part.get(name))):
            yield from subschemas(child, f"{where}.{name}.{index}")
    for name in ("items", "additionalProperties"):
        if isinstance(part.get(name), dict):
            yield from subschemas(part[name], f"{where}.{name}")
