"""Turns the schema of a server's tool into one that every provider takes, or explains why that is impossible.

If a provider does not take one schema, it refuses the whole request, with the tools of every other server. Keywords
that are dropped here only widen the schema: the server checks its arguments itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from swink_agent.core.schemas.validation import InvalidSchema, compile_schema
from swink_agent.core.texts.invisible import is_deceptive, ordinary_places

if TYPE_CHECKING:
    from swink_agent.core.secrets.redaction import Redactor

LONGEST_DESCRIPTION = 2048
_LARGEST = 64 * 1024
_DEEPEST = 32
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_CHOICES = ("anyOf", "oneOf")
_DEFINITIONS = frozenset({"$defs", "definitions", "$schema", "$id", "id", "$comment", "$anchor", "$dynamicAnchor"})
"""Keywords that only serve references, which are written out."""
_NOT_AT_TOP = frozenset({"not", "if", "then", "else", "enum", "const", "dependentSchemas", "dependencies"})
"""Keywords that providers refuse at the top, in addition to `anyOf`, `oneOf` and `allOf`."""
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords whose value is an object of schemas, under names that the author chooses."""
_DATA = frozenset({"default", "const", "enum", "examples", "example"})  # keywords whose value is not a schema

Schema = dict[str, Any]


class UnusableSchema(ValueError):
    """A schema that no provider would take. The message continues "its schema"."""


def tame_schema(given: object) -> Schema:
    """The schema for providers. Raises `UnusableSchema` with the reason."""
    if not isinstance(given, dict):
        raise UnusableSchema("is missing")
    schema = cast("Schema", given)
    _check_size(schema)
    written = _Inliner(schema).written(schema)
    merged = _merged(written)
    if merged is None:
        raise UnusableSchema("does not describe an object")
    top = {key: value for key, value in merged.items() if key not in _NOT_AT_TOP}
    properties: Schema = top.setdefault("properties", {})
    top["type"] = "object"
    if "required" in top:
        for name in top["required"]:
            properties.setdefault(name, {})  # a provider refuses a required property that is not described
    _check_size(top)
    _check_names(top)
    try:
        compile_schema(top)
    except InvalidSchema as error:
        raise UnusableSchema(f"is not valid JSON Schema ({error.reason[:200]})") from None
    return top


def shown_text(text: object, most: int = LONGEST_DESCRIPTION, *redactors: Redactor | None) -> str:
    """A server's text without invisible characters and without secrets, cut to `most` characters.

    Of a longer text, only the beginning is masked, and it ends before what may be the beginning of a secret.
    """
    if not isinstance(text, str):
        return ""
    shown = text[: most * 4]  # a longer one is cut anyway
    if not (shown.isascii() and shown.isprintable()):
        ordinary = ordinary_places(shown)
        kept = [c for place, c in enumerate(shown) if c in "\n\t" or place in ordinary or not is_deceptive(c)]
        shown = "".join(kept)
    for redactor in redactors:  # not before: an invisible character within a secret would hide it
        if redactor is not None:
            shown = redactor.redact(shown if len(text) <= most * 4 else shown[: redactor.safe_length(shown)])
    shown = shown.strip()
    return shown if len(shown) <= most else shown[: most - 1] + "…"


# -- references ------------------------------------------------------------------------------------------------------


class _Inliner:
    """Writes references out, with a bound: a few short definitions may refer to each other a billion times."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _LARGEST

    def written(self, node: Any, path: tuple[str, ...] = (), depth: int = 0) -> Any:
        """The schema without references. `path` are the references that lead here."""
        self._spend(2 + (len(node) if isinstance(node, str) else 0))
        if depth > _DEEPEST:
            raise UnusableSchema(f"is nested deeper than {_DEEPEST} levels")
        if isinstance(node, list):
            return [self.written(item, path, depth + 1) for item in cast("list[Any]", node)]
        if not isinstance(node, dict):
            return node
        fields = cast("Schema", node)
        reference = fields.get("$ref", fields.get("$dynamicRef"))
        if reference is None:
            return self._fields(fields, path, depth)
        beside = {key: value for key, value in fields.items() if key not in ("$ref", "$dynamicRef")}
        target = None if not isinstance(reference, str) or reference in path else self._target(reference)
        named: Schema = {} if target is None else self.written(target, (*path, str(reference)), depth)
        return {**named, **self._fields(beside, path, depth)}

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise UnusableSchema("is larger than 64 KB when its references are written out")

    def _fields(self, fields: Schema, path: tuple[str, ...], depth: int) -> Schema:
        written: Schema = {}
        for key, value in fields.items():
            self._spend(len(key))
            if key in _DEFINITIONS and not (key == "id" and not isinstance(value, str)):
                continue
            if key in _DATA:
                self._spend(len(msgspec.json.encode(value)))
                written[key] = value
            elif key in ("description", "title"):
                if text := shown_text(value):
                    self._spend(len(text))
                    written[key] = text
            elif key in _BY_NAME and isinstance(value, dict):
                named = cast("Schema", value)
                written[key] = {
                    name: {} if item is True else self.written(item, path, depth + 2) for name, item in named.items()
                }
            else:
                written[key] = self.written(value, path, depth + 1)
        return _modern(written)

    def _target(self, reference: str) -> Schema | None:
        """The target of a reference within the schema; `None` for any other reference, which is not fetched."""
        if reference in ("#", "#/"):
            return None  # the whole schema: it would contain itself
        if not reference.startswith("#/"):
            return None
        node: Any = self._root
        for part in reference[2:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~").replace("%24", "$").replace("%20", " ")
            if isinstance(node, dict):
                node = cast("Schema", node).get(name)
            elif isinstance(node, list) and name.isdecimal() and int(name) < len(cast("list[Any]", node)):
                node = cast("list[Any]", node)[int(name)]
            else:
                return None
        return cast("Schema", node) if isinstance(node, dict) else None


def _modern(schema: Schema) -> Schema:
    """Rewrites keywords of older drafts: providers take only the current one, with `items` for every array."""
    kind = schema.get("type")
    if kind == "array" or (isinstance(kind, list) and "array" in kind):
        schema.setdefault("items", {})
    items = schema.get("items")
    if isinstance(items, list):  # a tuple
        choices = cast("list[Any]", items)
        schema["items"] = choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {}
        schema.pop("additionalItems", None)
    for bound, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(strict), bool):
            is_strict = schema.pop(strict)
            if is_strict and bound in schema:
                schema[strict] = schema.pop(bound)
    if "required" in schema and not isinstance(schema["required"], list):
        del schema["required"]  # a draft that marked each property
    return schema


# -- the top ---------------------------------------------------------------------------------------------------------


def _merged(schema: Schema) -> Schema | None:
    """The schema with its `anyOf`, `oneOf` and `allOf` merged into `properties`; `None` if it is not an object's."""
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        return None
    base = {key: value for key, value in schema.items() if key not in ("allOf", *_CHOICES)}
    properties = base.get("properties", {})
    if not isinstance(properties, dict):
        return None
    base["properties"] = dict(cast("Schema", properties))
    required = _required(base)
    for part in _branches(schema, "allOf"):
        merged = _merged(part)
        if merged is None:
            return None
        for name, value in merged["properties"].items():
            there = base["properties"].get(name)
            both = isinstance(there, dict) and isinstance(value, dict)
            base["properties"][name] = {**cast("Schema", there), **value} if both else value
        required += _required(merged)
    for keyword in _CHOICES:
        branches = [merged for part in _branches(schema, keyword) if (merged := _merged(part)) is not None]
        if not branches:
            if _branches(schema, keyword):
                return None
            continue
        _add_choices(base["properties"], branches)
        first, *others = [_required(branch) for branch in branches]
        required += [name for name in first if all(name in other for other in others)]
    base.pop("required", None)
    if required:
        base["required"] = list(dict.fromkeys(required))
    return base


def _add_choices(properties: Schema, branches: list[Schema]) -> None:
    """Adds the properties of the branches. Any branch may apply, so a property may have any of its forms."""
    forms: dict[str, list[Any]] = {}
    for branch in branches:
        for name, value in branch["properties"].items():
            known = forms.setdefault(name, [properties[name]] if name in properties else [])
            if value not in known:
                known.append(value)
    for name, values in forms.items():
        properties[name] = values[0] if len(values) == 1 else {"anyOf": values}


def _branches(schema: Schema, keyword: str) -> list[Schema]:
    parts = schema.get(keyword)
    return [part for part in cast("list[Any]", parts) if isinstance(part, dict)] if isinstance(parts, list) else []


def _required(schema: Schema) -> list[str]:
    names = schema.get("required")
    return [name for name in cast("list[Any]", names) if isinstance(name, str)] if isinstance(names, list) else []


# -- limits ----------------------------------------------------------------------------------------------------------


def _check_size(schema: Schema) -> None:
    # The depth first: encoding recurses.
    level: list[Any] = [schema]
    for _ in range(_DEEPEST):
        level = [inner for item in level for inner in _inner(item)]
        if not level:
            break
    if any(isinstance(item, (dict, list)) for item in level):
        raise UnusableSchema(f"is nested deeper than {_DEEPEST} levels")
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError) as error:
        raise UnusableSchema(f"is not JSON ({error})") from None
    if size > _LARGEST:
        raise UnusableSchema("is larger than 64 KB")


def _inner(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return cast("Schema", item).values()
    return cast("list[Any]", item) if isinstance(item, list) else ()


def _check_names(node: Any) -> None:
    if isinstance(node, list):
        for item in cast("list[Any]", node):
            _check_names(item)
    elif isinstance(node, dict):
        for key, value in cast("Schema", node).items():
            if key == "properties" and isinstance(value, dict):
                for name in cast("Schema", value):
                    if not _PROPERTY.fullmatch(name):
                        shown = shown_text(name, 80)
                        raise UnusableSchema(f"has the property {shown!r}: 1 to 64 of A-Z, a-z, 0-9, '_', '.', '-'")
            if key in _BY_NAME and isinstance(value, dict):
                for item in cast("Schema", value).values():
                    _check_names(item)
            elif key not in _DATA:
                _check_names(value)
