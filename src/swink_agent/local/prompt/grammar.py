"""Translates a JSON Schema to a grammar (GBNF), so that every text of the grammar is JSON that the schema accepts.

The grammar accepts less than the schema: properties come in the order in which the schema names them, undeclared ones
are left out, numbers have a moderate length. It accepts more only if `is_exact` is false: some keywords (`pattern`,
`not`, `multipleOf`, …) cannot be written as a grammar, and the caller must validate the decoded value. `gbnf` has the
notation.

We do not use the engine's `json_schema_to_grammar`. Its output is for llguidance. When llguidance meets a keyword that
it does not know (`not`, `uniqueItems`, `oneOf`, an unknown `format`), the engine decodes without any grammar and only
logs that, whereas a GBNF grammar that cannot be parsed is an error. It also cannot exclude calls that were made before,
and its numbers may have no end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from .gbnf import DIGITS, MOST_REPEATS, Rules, in_class, json_literal, literal, repeated, times, whole_numbers

JsonSchema = Mapping[str, Any]

_FURTHEST = 10**DIGITS - 1
_DEEPEST = 24
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "format", "deprecated", "readOnly", "writeOnly", "discriminator"}
    | {"$defs", "definitions", "$schema", "$id", "$comment", "contentEncoding", "contentMediaType", "nullable"}
)
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
_KNOWN = {
    "object": frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}),
    "array": frozenset({"items", "minItems", "maxItems", "prefixItems"}),
    "string": frozenset({"minLength", "maxLength"}),
    "integer": _BOUNDS,
    "number": _BOUNDS,
    "boolean": frozenset[str](),
    "null": frozenset[str](),
}
_OF_ONE_TYPE = frozenset[str]().union(*_KNOWN.values()) | {"type", "enum", "const"}
"""Keywords that the grammar enforces for the type that they apply to; they have no effect on other types."""


class Grammar(Rules):
    """A grammar to which schemas are added. `text()` returns all of it; it starts at `root`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_exact = True
        """Whether every text of the grammar is valid against the schemas that were added."""

    def schema(self, schema: JsonSchema | bool, *, excluding: Sequence[Mapping[str, Any]] = ()) -> str:
        """Adds a rule for the JSON that the schema accepts, without the objects in `excluding`; returns its name.

        An object is excluded by its strings, so objects with the same string in the same place are excluded too. One
        without strings stays allowed. Raises `ValueError` for a schema that accepts nothing or is too large.
        """
        builder = _Schemas(self, schema)
        if excluding and isinstance(schema, Mapping):
            return builder.differing(schema, excluding)
        return builder.rule(schema)


class _Schemas:
    """Translates one schema document, in which `$ref`s are resolved."""

    def __init__(self, grammar: Grammar, document: JsonSchema | bool) -> None:
        self.grammar = grammar
        self.document = document
        self._references: dict[str, str] = {}
        self._depth = 0

    def rule(self, schema: JsonSchema | bool) -> str:
        if schema is False:
            raise ValueError("the schema requires a value that it does not accept (false)")
        if isinstance(schema, bool) or not schema:
            return self.grammar.primitive("json-any")
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise ValueError(f"the schema is nested more than {_DEEPEST} deep: make it flatter")
            return self._rule(schema)
        finally:
            self._depth -= 1

    def _rule(self, schema: JsonSchema) -> str:
        if "$ref" in schema:
            beside = {key: value for key, value in schema.items() if key != "$ref" and key not in _ANNOTATIONS}
            if not beside:
                return self._reference(str(schema["$ref"]))
            return self.rule(self._merged([{"$ref": schema["$ref"]}, beside]))
        if "const" in schema:
            return self._one_of(schema, "const", [schema["const"]])
        if "enum" in schema:
            return self._one_of(schema, "enum", cast("list[Any]", schema["enum"]))
        if "allOf" in schema:
            beside = {key: value for key, value in schema.items() if key != "allOf"}
            return self.rule(self._merged([beside, *cast("list[JsonSchema | bool]", schema["allOf"])]))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._choice(schema, keyword)
        kinds = schema.get("type") or _implied(schema)
        if isinstance(kinds, list):
            return self._alternatives(self.rule({**schema, "type": kind}) for kind in cast("list[str]", kinds))
        return self._typed(str(kinds), schema)

    def _typed(self, kind: str, schema: JsonSchema) -> str:
        self._note(schema)
        schema = _with_whole_counts(schema)
        makers = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
        }
        if kind in makers:
            return makers[kind](schema)
        return self.grammar.primitive(f"json-{kind}" if kind in ("boolean", "null") else "json-any")

    def _note(self, schema: JsonSchema, *understood: str) -> None:
        """Clears `is_exact` for a keyword that the grammar does not enforce: it then accepts more than the schema."""
        if set(schema) - set(understood) - _OF_ONE_TYPE - _ANNOTATIONS:
            self.grammar.is_exact = False

    def _alternatives(self, bodies: Iterable[str]) -> str:
        return self.grammar.fresh(" | ".join(dict.fromkeys(bodies)))

    def _one_of(self, schema: JsonSchema, keyword: str, values: Sequence[Any]) -> str:
        """A rule for those of the keyword's values that the rest of the schema accepts too."""
        if set(schema) - _ANNOTATIONS - {keyword}:
            import jsonschema_rs

            places = {key: cast("Any", self.document).get(key, {}) for key in ("$defs", "definitions")}
            whole = {**schema, **places}
            is_valid = jsonschema_rs.validator_for(whole).is_valid
            values = [value for value in values if is_valid(value)]
        if not values:
            raise ValueError("the schema accepts none of the values that it lists")
        return self._alternatives(json_literal(value) for value in values)

    # -- references and combinations -------------------------------------------------------------------------

    def _reference(self, reference: str) -> str:
        if reference in self._references:
            return self._references[reference]
        name = self._references[reference] = self.grammar.reserved()
        return self.grammar.add(name, self.rule(self._resolved(reference)))

    def _resolved(self, reference: str) -> JsonSchema:
        found: Any = self.document if reference == "#" or reference.startswith("#/") else None
        for part in reference.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = cast("Mapping[str, Any]", found).get(key) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            raise ValueError(f"the schema refers to {reference!r}, which it does not contain")
        return cast("JsonSchema", found)

    def _merged(self, parts: Iterable[JsonSchema | bool]) -> JsonSchema | bool:
        """One schema for values that all parts accept. Where two parts disagree on a keyword, the last one wins."""
        merged: dict[str, Any] = {}
        for part in parts:
            if part is False:
                return False
            if part is True:
                continue
            resolved = self._resolved(str(part["$ref"])) if set(part) - _ANNOTATIONS == {"$ref"} else part
            part = {key: value for key, value in resolved.items() if key not in _ANNOTATIONS}
            merged, part = _accepted(merged, part), _accepted(part, merged)
            for key, value in part.items():
                merged[key] = self._both(key, merged[key], value) if key in merged else value
        return merged

    def _both(self, key: str, first: Any, second: Any) -> Any:
        """The value of a keyword that two parts have."""
        if first == second:
            return first
        match key:
            case "properties":
                return {
                    **first,
                    **{name: _all(first[name], value) if name in first else value for name, value in second.items()},
                }
            case "items" | "additionalProperties":
                return _all(first, second)
            case "required" | "allOf":
                return [*first, *second]
            case "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties":
                return max(first, second)
            case "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties":
                return min(first, second)
            case _:
                self.grammar.is_exact = False
                return second

    def _choice(self, schema: JsonSchema, keyword: str) -> str:
        self._note(schema, keyword)
        rest = {key: value for key, value in schema.items() if key != keyword and key not in _ANNOTATIONS}
        options = cast("list[JsonSchema | bool]", schema[keyword])
        if keyword == "oneOf":  # a value that fits two of them is invalid
            self.grammar.is_exact = self.grammar.is_exact and _are_apart(options)
        possible = [option for option in options if option is not False]
        if not possible:
            raise ValueError(f"the schema accepts nothing: {keyword} has no option that does")
        return self._alternatives(self.rule(self._merged([rest, option]) if rest else option) for option in possible)

    # -- objects ---------------------------------------------------------------------------------------------

    def _object(self, schema: JsonSchema) -> str:
        properties, required = self._declared(schema)
        undeclared = schema.get("additionalProperties", True)
        if not properties and undeclared is not False:
            return self._map(undeclared, schema)
        pairs = [(name, self.rule(value), name in required) for name, value in properties.items()]
        return self.grammar.fresh('"{" ' + self._members(pairs) + ' "}"')

    def _declared(self, schema: JsonSchema) -> tuple[dict[str, JsonSchema | bool], set[str]]:
        """The properties that are written, and the names of those that must be."""
        required = set(cast("list[str]", schema.get("required") or []))
        properties = cast("dict[str, JsonSchema | bool]", schema.get("properties") or {})
        properties = {name: value for name, value in properties.items() if value is not False or name in required}
        undeclared = cast("JsonSchema | bool", schema.get("additionalProperties", True))
        properties |= dict.fromkeys(sorted(required - set(properties)), undeclared)
        if properties or undeclared is False:
            least, most = schema.get("minProperties", 0), schema.get("maxProperties", len(properties))
            if len(required) < least or len(properties) > most:
                self.grammar.is_exact = False
        return properties, required

    def _map(self, values: JsonSchema | bool, schema: JsonSchema) -> str:
        pair = f'{self.grammar.primitive("json-string")} ": " {self.rule(values)}'
        least, most = schema.get("minProperties", 0), schema.get("maxProperties")
        if least > 1:
            self.grammar.is_exact = False  # the same name twice is one property
        return self.grammar.fresh(f'"{{" {repeated(pair, least, most)} "}}"')

    def _members(self, pairs: Sequence[tuple[str, str, bool]]) -> str:
        """The properties in order, with commas between those that are written."""
        behind = '""'  # the rule for the rest after a property
        first = '""'  # the rule for the rest if no property was written yet
        for name, rule, is_required in reversed(pairs):
            pair = f"{json_literal(name)} {literal(': ')} {rule}"
            here, comma = self.grammar.fresh(f"{pair} {behind}"), self.grammar.fresh(f'", " {pair} {behind}')
            first = here if is_required else self.grammar.fresh(f"{here} | {first}")
            behind = comma if is_required else self.grammar.fresh(f"{comma} | {behind}")
        return first

    # -- exclusions ------------------------------------------------------------------------------------------

    def differing(self, schema: JsonSchema | bool, excluding: Sequence[Any]) -> str:
        """The schema's rule without the excluded values, if a string in them can differ; else the plain rule."""
        return self._differing(schema, excluding) or self.rule(schema)

    def _differing(self, schema: JsonSchema | bool, excluding: Sequence[Any]) -> str | None:
        """A rule whose every text differs from all excluded values; `None` if no string in it can differ."""
        if isinstance(schema, bool) or set(schema) & {"$ref", "allOf", "oneOf", "enum", "const"}:
            return None
        if "anyOf" in schema:
            rest = {key: value for key, value in schema.items() if key != "anyOf"}
            options = [self._merged([rest, option]) for option in cast("list[JsonSchema | bool]", schema["anyOf"])]
            if any(isinstance(option, bool) for option in options):
                return None
            return self._alternatives(self.differing(option, excluding) for option in options)
        schema = _with_whole_counts(schema)
        match schema.get("type"):
            case "string" if _is_free(schema):
                texts = [value for value in excluding if isinstance(value, str)]
                return self._not_one_of(texts + [""] * schema.get("minLength", 0)) if texts else None
            case "array" if not set(schema) & {"prefixItems", "uniqueItems"}:
                return self._array_differing(schema, excluding)
            case "object":
                return self._object_differing(schema, excluding)
            case _:
                return None

    def _array_differing(self, schema: JsonSchema, excluding: Sequence[Any]) -> str | None:
        items, most = cast("JsonSchema | bool", schema.get("items", {})), schema.get("maxItems")
        first = self._differing(items, [value[0] for value in excluding if isinstance(value, list) and value])
        if first is None or most == 0:
            return None
        self._note(schema)
        more = f'(", " {self.rule(items)}){times(max(0, schema.get("minItems", 0) - 1), most and most - 1)}'
        return self.grammar.fresh(f'"[" {first} {more} "]"')

    def _object_differing(self, schema: JsonSchema, excluding: Sequence[Any]) -> str | None:
        """A rule for objects in which one required property differs; the others are free."""
        properties, required = self._declared(schema)
        values = [cast("Mapping[str, Any]", value) for value in excluding if isinstance(value, Mapping)]
        alternatives: list[str] = []
        for name in properties:
            taken = [value[name] for value in values if name in value]
            other = self._differing(properties[name], taken) if name in required and taken else None
            if other is not None:
                rules = {key: other if key == name else self.rule(value) for key, value in properties.items()}
                pairs = [(key, rule, key in required) for key, rule in rules.items()]
                alternatives.append(self.grammar.fresh('"{" ' + self._members(pairs) + ' "}"'))
        if alternatives:
            self._note(schema)
        return self._alternatives(alternatives) if alternatives else None

    def _not_one_of(self, texts: Sequence[str]) -> str:
        """A rule for all JSON strings except these, built along the tree of their characters."""
        spelled = {msgspec.json.encode(text).decode()[1:-1] for text in texts}
        return self.grammar.fresh(f'"\\"" {self._off_the_tree(spelled, "")} "\\""')

    def _off_the_tree(self, spelled: set[str], prefix: str) -> str:
        anything = f"{self.grammar.primitive('json-char')}*"
        branches: dict[str, None] = {}
        for text in spelled:
            if text.startswith(prefix) and len(text) > len(prefix):
                step = text[len(prefix) : len(prefix) + (2 if text[len(prefix)] == "\\" else 1)]
                branches[step] = None
        if not branches:
            return f"{self.grammar.primitive('json-char')}+" if prefix in spelled else anything
        plain = "".join(in_class(step) for step in branches if len(step) == 1)
        escapes = "".join(in_class(e) for e in '"\\/bfnrt' if f"\\{e}" not in branches)
        bodies = [f'[^"\\\\\\x00-\\x1F\\x7F{plain}] {anything}', f'"\\\\" [{escapes}] {anything}']
        bodies += [f"{literal(step)} {self._off_the_tree(spelled, prefix + step)}" for step in branches]
        if prefix not in spelled:
            bodies.append('""')
        return self.grammar.fresh(" | ".join(bodies))

    # -- arrays, strings, numbers ----------------------------------------------------------------------------

    def _array(self, schema: JsonSchema) -> str:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if "prefixItems" in schema:
            items = [self.rule(item) for item in cast("list[JsonSchema]", schema["prefixItems"])]
            if least > len(items) or (most is not None and most < len(items)):
                self.grammar.is_exact = False
            return self.grammar.fresh('"[" ' + ' ", " '.join(items) + ' "]"')
        item = self.rule(cast("JsonSchema", schema.get("items", {})))
        return self.grammar.fresh(f'"[" {repeated(item, least, most)} "]"')

    def _string(self, schema: JsonSchema) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        if not least and most is None:
            return self.grammar.primitive("json-string")
        if least > MOST_REPEATS:
            self.grammar.is_exact = False
            return self.grammar.primitive("json-string")
        if most is not None and most > MOST_REPEATS:
            self.grammar.is_exact = False
            most = None
        return self.grammar.fresh(f'"\\"" {self.grammar.primitive("json-char")}{times(least, most)} "\\""')

    def _integer(self, schema: JsonSchema) -> str:
        if not _BOUNDS & set(schema):
            return self.grammar.primitive("json-integer")
        low, high = _bounds(schema)
        if low > _FURTHEST or high < -_FURTHEST:  # it has more digits than the grammar writes
            self.grammar.is_exact = False
            return self.grammar.primitive("json-integer")
        return self._alternatives(whole_numbers(low, high))

    def _number(self, schema: JsonSchema) -> str:
        """A rule for a number. A bounded one is whole, or has a fraction that cannot cross a bound."""
        if not _BOUNDS & set(schema):
            return self.grammar.primitive("json-number")
        low, high = _bounds(schema)
        if low == high + 1 or low > _FURTHEST or high < -_FURTHEST:  # no whole number to write lies between them
            self.grammar.is_exact = False
            return self.grammar.primitive("json-number")
        whole = self._integer(schema)
        if max(0, low) >= high:
            return whole
        inner = self._alternatives(whole_numbers(max(0, low), high if high == _FURTHEST else high - 1))
        return self._alternatives([whole, f'{inner} "." [0-9]{{1,{DIGITS}}}'])


def _bounds(schema: JsonSchema) -> tuple[int, int]:
    """The smallest and the largest whole number that the schema allows and the grammar can write."""
    lows, highs = [-_FURTHEST], [_FURTHEST]
    for key, value in schema.items():
        if key not in _BOUNDS or isinstance(value, bool) or math.isinf(value):
            continue
        match key:
            case "minimum":
                lows.append(math.ceil(value))
            case "maximum":
                highs.append(math.floor(value))
            case "exclusiveMinimum":
                lows.append(math.floor(value) + 1)
            case _:
                highs.append(math.ceil(value) - 1)
    return max(lows), min(highs)


def _with_whole_counts(schema: JsonSchema) -> JsonSchema:
    """The schema with counts as whole numbers: `2.0` is one in JSON."""
    whole = {
        key: math.ceil(value) if key.startswith("min") else math.floor(value)
        for key, value in schema.items()
        if key in _COUNTS and isinstance(value, float)
    }
    return {**schema, **whole} if whole else schema


def _all(first: JsonSchema | bool, second: JsonSchema | bool) -> JsonSchema | bool:
    if first is False or second is False:
        return False
    return second if first is True else first if second is True else {"allOf": [first, second]}


def _accepted(part: dict[str, Any], other: JsonSchema) -> dict[str, Any]:
    """The part, with its properties as the other part accepts those that it does not declare itself."""
    undeclared, known = other.get("additionalProperties", True), cast("JsonSchema", other.get("properties", {}))
    if undeclared is True or "properties" not in part:
        return part
    properties = cast("dict[str, JsonSchema | bool]", part["properties"])
    accepted = {name: value if name in known else _all(value, undeclared) for name, value in properties.items()}
    return {**part, "properties": accepted}


def _implied(schema: JsonSchema) -> str:
    """The type that the keywords apply to, for a schema without `type`."""
    for kind in ("object", "array", "string", "number"):
        if set(schema) & _KNOWN[kind]:
            return kind
    return "any"


def _is_free(schema: JsonSchema) -> bool:
    """Whether the schema accepts any text, except perhaps an empty or a very long one."""
    has_no_more = not set(schema) - _ANNOTATIONS - {"type", "minLength", "maxLength"}
    return has_no_more and schema.get("minLength", 0) <= 1 and schema.get("maxLength", MOST_REPEATS + 1) > MOST_REPEATS


def _are_apart(options: Sequence[JsonSchema | bool]) -> bool:
    """Whether no value fits two of the options, as far as their types and constants show."""
    types: list[str] = []
    constants: list[str] = []
    for option in options:
        if isinstance(option, bool):
            return False
        kind = option.get("type")
        if "enum" in option or "const" in option:
            constants += {repr(value) for value in option.get("enum") or [option.get("const")]}
        elif isinstance(kind, str) and kind != "number":
            types.append(kind)
        else:
            return False
    return len({*types, *constants}) == len(types) + len(constants) and not (types and constants)
