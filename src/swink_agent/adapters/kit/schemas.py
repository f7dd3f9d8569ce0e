"""The part of JSON Schema that a provider takes for a whole reply.

Providers compile a schema and force the reply to fit it. Each takes another part of JSON Schema. A schema is rewritten
to that part if its meaning allows it: any value that fits the rewritten schema fits the original, except for limits of
values, which move to the description and are checked here when the reply has come. A schema that cannot be rewritten is
not sent: a tool takes the value instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from msgspec import Struct
from msgspec.json import encode

_ANNOTATIONS = frozenset(
    {"default", "examples", "$schema", "$comment", "deprecated", "readOnly", "writeOnly", "discriminator"}
)
"""Keywords that no value can break."""
_LIMITS = frozenset(
    {
        *("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
"""Keywords that only narrow a value. If a provider does not take one, it moves to the description for the model."""
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
_OF_ROOT = ("$defs", "definitions")


class _Inexpressible(Exception):
    """The schema has something that the provider does not take."""


class SchemaSubset(Struct, frozen=True):
    """The keywords that a provider takes in addition to objects, arrays, choices, references and enumerations."""

    keywords: frozenset[str]
    formats: frozenset[str] | None = None
    """The values of `format` that it knows; `None` for any."""
    most_min_items: int | None = None
    """The largest value of `minItems` that it takes; `None` for any."""
    needs_all: bool = False
    """Whether every property must be required."""
    is_closed: bool = True
    """Whether objects must exclude other properties."""
    takes_cycles: bool = False
    """Whether a definition may refer to itself."""
    enum_types: tuple[type, ...] = (str, int, float, bool, type(None))

    def express(self, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the schema of an object as the provider takes it, or `None` if it cannot be expressed."""
        try:
            expressed = self._part({"type": "object", **schema})
            if not self.takes_cycles and _has_cycle(expressed):
                return None
        except (_Inexpressible, RecursionError):
            return None
        return expressed

    def _part(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, dict):
            raise _Inexpressible  # true and false are schemas too
        given = cast("dict[str, Any]", schema)
        if "allOf" in given:
            given = _merged(given)
        if "$ref" in given:
            return _reference(given)
        part: dict[str, Any] = {}
        limits: dict[str, Any] = {}
        value: Any
        for keyword, value in given.items():
            if keyword == "enum":
                part[keyword] = value
            elif keyword == "const" and "const" not in self.keywords:
                part["enum"] = [value]
            elif keyword in ("properties", *_OF_ROOT):
                part[keyword] = {name: self._part(child) for name, child in value.items()}
            elif keyword == "items":
                if value is not False:  # false only means that a tuple has no more items
                    part[keyword] = self._part(value)
            elif keyword == "prefixItems" and keyword in self.keywords:
                part[keyword] = [self._part(child) for child in value]
            elif keyword in ("anyOf", "oneOf") and "anyOf" not in part:
                part["anyOf"] = [self._part(child) for child in value]  # `oneOf` is checked when the reply has come
            elif keyword in ("type", "required", "additionalProperties", "description") or self._takes(keyword, value):
                part[keyword] = value
            elif keyword in _LIMITS:
                limits[keyword] = value
            elif keyword not in _ANNOTATIONS and keyword != "title":
                raise _Inexpressible
        if limits:
            note = encode(limits).decode()
            part["description"] = f"{part['description']} {note}" if "description" in part else note
        return self._checked(part)

    def _takes(self, keyword: str, value: Any) -> bool:
        if keyword == "format" and self.formats is not None:
            return value in self.formats
        if keyword == "minItems" and self.most_min_items is not None:
            return value <= self.most_min_items
        return keyword in self.keywords and keyword != "prefixItems"

    def _checked(self, part: dict[str, Any]) -> dict[str, Any]:
        """Adds the required keywords to one schema, and raises for a combination that the provider does not take."""
        if "anyOf" in part and not part.keys() <= {"anyOf", "description", "title", *_OF_ROOT}:
            raise _Inexpressible
        if "enum" in part or "const" in part:
            values: list[Any] = part["enum"] if "enum" in part else [part["const"]]
            if not values or not {*map(type, values)} <= {*self.enum_types}:
                raise _Inexpressible
            names = list(dict.fromkeys([_TYPES[type(value)] for value in values]))
            part.setdefault("type", names[0] if len(names) == 1 else names)
        elif not part.keys() & {"type", "anyOf", "properties"}:
            raise _Inexpressible  # it allows any value
        kinds: Any = part.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds or []
        if "object" in kinds or "properties" in part:
            self._check_object(part)
        if "array" in kinds and not part.keys() & {"items", "prefixItems"}:
            raise _Inexpressible
        return part

    def _check_object(self, part: dict[str, Any]) -> None:
        part.setdefault("type", "object")
        properties, others = part.get("properties"), part.get("additionalProperties")
        required = part.get("required", [])
        if isinstance(others, dict):
            if self.is_closed:
                raise _Inexpressible
            part["additionalProperties"] = self._part(others)
        if properties is None:
            if self.is_closed and others is not False:
                raise _Inexpressible  # it allows any object
            properties = {}
        if self.is_closed:
            if others is True:
                raise _Inexpressible
            part["properties"], part["required"], part["additionalProperties"] = properties, required, False
        if not {*required} <= properties.keys() or (self.needs_all and {*required} != properties.keys()):
            raise _Inexpressible


def _reference(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the reference alone: providers take nothing beside one."""
    reference = schema["$ref"]
    names = _ANNOTATIONS | {"$ref", "title", "description"}
    is_known = isinstance(reference, str) and (reference == "#" or reference.startswith(("#/$defs/", "#/definitions/")))
    if not is_known or not schema.keys() <= names:
        raise _Inexpressible
    return {"$ref": reference}


def _merged(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema merged with the only member of its `allOf`, which some generators write around a reference."""
    rest = {name: value for name, value in schema.items() if name != "allOf"}
    parts: list[Any] = schema["allOf"]
    if len(parts) != 1 or not isinstance(parts[0], dict) or not rest.keys() <= {*_ANNOTATIONS, "title", "description"}:
        raise _Inexpressible
    only = cast("dict[str, Any]", parts[0])
    return {**rest, **only}


def _has_cycle(schema: dict[str, Any]) -> bool:
    """Whether a definition refers to itself, directly or through others."""
    definitions = {f"#/{group}/{name}": child for group in _OF_ROOT for name, child in schema.get(group, {}).items()}
    definitions["#"] = {name: value for name, value in schema.items() if name not in _OF_ROOT}
    refers_to = {name: {*_references(child)} for name, child in definitions.items()}
    for start in refers_to:
        reached, waiting = set[str](), [*refers_to[start]]
        while waiting:
            name = waiting.pop()
            if name == start:
                return True
            if name not in reached:
                reached.add(name)
                waiting += refers_to.get(name, ())
    return False


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        part = cast("dict[str, Any]", schema)
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for child in part.values():
            yield from _references(child)
    elif isinstance(schema, list):
        for child in cast("list[Any]", schema):
            yield from _references(child)
