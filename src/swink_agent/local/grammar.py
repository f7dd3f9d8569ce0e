"""From a JSON Schema to a grammar (GBNF) whose every text is JSON that the schema accepts.

Owns the translation. The language is smaller than the schema's: properties come in the order in which the schema
names them, undeclared ones are left out, numbers are of moderate length. It is never larger, except where `is_exact`
says so: some keywords (`pattern`, `not`, `multipleOf`, …) cannot be written as a grammar, and whoever decodes with it
has to validate the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from ._numbers import bounds, whole_numbers

__all__ = ["Grammar", "literal"]

JsonSchema = Mapping[str, Any]

_DIGITS = 15  # more would leave what a double holds exactly
_MOST_REPEATS = 500  # each is a rule of its own, and the parser of grammars refuses thousands
_DEEPEST = 24
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "format", "deprecated", "readOnly", "writeOnly", "discriminator"}
    | {"$defs", "definitions", "$schema", "$id", "$comment", "contentEncoding", "contentMediaType", "nullable"}
)
_KNOWN = {
    "object": frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}),
    "array": frozenset({"items", "minItems", "maxItems", "prefixItems"}),
    "string": frozenset({"minLength", "maxLength"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "boolean": frozenset[str](),
    "null": frozenset[str](),
}
_ANY_KEYWORD = frozenset[str]().union(*_KNOWN.values()) | {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}

_PRIMITIVES = {
    "json-char": r'[^"\\\x00-\x1F\x7F] | "\\" ["\\/bfnrt]',
    "json-string": '"\\"" json-char* "\\""',
    "json-integer": f'"-"? ("0" | [1-9] [0-9]{{0,{_DIGITS - 1}}})',
    "json-number": f'"-"? ("0" | [1-9] [0-9]{{0,{_DIGITS - 1}}}) ("." [0-9]{{1,{_DIGITS}}})?',
    "json-boolean": '"true" | "false"',
    "json-null": '"null"',
    # Two levels of any value are plenty for a schema that says nothing, and every reply ends.
    "json-flat": "json-string | json-number | json-boolean | json-null",
    "json-flat-array": '"[" (json-flat (", " json-flat)*)? "]"',
    "json-flat-object": '"{" (json-string ": " json-flat (", " json-string ": " json-flat)*)? "}"',
    "json-value": "json-flat | json-flat-array | json-flat-object",
    "json-array": '"[" (json-value (", " json-value)*)? "]"',
    "json-object": '"{" (json-string ": " json-value (", " json-string ": " json-value)*)? "}"',
    "json-any": "json-flat | json-array | json-object",
}


class Grammar:
    """Rules that grow as schemas are added. `text()` is the whole, with `root` as its start."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._names: dict[bytes, str] = {}
        self.is_exact = True
        """Whether every text of the grammar is valid against the schemas added so far."""

    def add(self, name: str, body: str) -> str:
        """A rule of the caller's own; returns its name. Names are lower case letters, digits and dashes."""
        self._rules[name] = body
        return name

    def text(self) -> str:
        return "".join(f"{name} ::= {body}\n" for name, body in self._rules.items())

    def primitive(self, name: str) -> str:
        """One of the JSON rules, with those that it is made of."""
        if name not in self._rules:
            body = self._rules[name] = _PRIMITIVES[name]
            for other in _PRIMITIVES:
                if other in body.replace("(", " ").replace(")", " ").replace("*", " ").split():
                    self.primitive(other)
        return name

    def schema(self, schema: JsonSchema | bool, *, excluding: Sequence[Mapping[str, Any]] = ()) -> str:
        """A rule for the JSON that the schema accepts, without the objects in `excluding`; returns its name.

        They are left out by the strings in them, with others that have one of those strings in the same place; an
        object without any stays allowed.
        """
        builder = _Schemas(self, schema)
        if excluding and isinstance(schema, Mapping):
            return builder.differing(schema, excluding)
        return builder.rule(schema)

    def fresh(self, body: str) -> str:
        """A rule under a name of its own; the same body twice is one rule."""
        key = body.encode()
        if key not in self._names:
            self._names[key] = self.add(f"r{len(self._names)}", body)
        return self._names[key]


def literal(text: str) -> str:
    """A terminal that matches exactly this text."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isascii() and character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02X}" if code < 0x80 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def _json(value: Any) -> str:
    return literal(msgspec.json.encode(value).decode())


class _Schemas:
    """One schema document being translated; `$ref`s are looked up in it."""

    def __init__(self, grammar: Grammar, document: JsonSchema | bool) -> None:
        self.grammar = grammar
        self.document = document
        self._references: dict[str, str] = {}
        self._depth = 0

    def rule(self, schema: JsonSchema | bool) -> str:
        if schema is False:
            raise ValueError("the schema asks for a value where it accepts none")
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
            self._note(schema, {"$ref"})
            return self._reference(str(schema["$ref"]))
        if "const" in schema:
            return self._one_of(schema, [schema["const"]])
        if "enum" in schema:
            return self._one_of(schema, cast("list[Any]", schema["enum"]))
        if "allOf" in schema:
            return self.rule(self._merged(schema))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._choice(schema, keyword)
        kinds = schema.get("type") or _implied(schema)
        if isinstance(kinds, list):
            return self._alternatives(self.rule({**schema, "type": kind}) for kind in cast("list[str]", kinds))
        return self._typed(str(kinds), schema)

    def _typed(self, kind: str, schema: JsonSchema) -> str:
        if kind not in _KNOWN:
            self._note(schema, ())
            return self.grammar.primitive("json-any")
        self._note(schema, {"type"} | (_ANY_KEYWORD if kind in ("boolean", "null") else _KNOWN[kind]))
        match kind:
            case "object":
                return self._object(schema)
            case "array":
                return self._array(schema)
            case "string":
                return self._string(schema)
            case "integer":
                return self._integer(schema)
            case "number":
                return self._number(schema)
            case _:
                return self.grammar.primitive(f"json-{kind}")

    def _note(self, schema: JsonSchema, understood: Iterable[str]) -> None:
        """Keywords that the grammar does not hold make it larger than the schema."""
        foreign = set(schema) - set(understood) - _ANNOTATIONS
        if {key for key in foreign if key not in _ANY_KEYWORD or key in ("anyOf", "oneOf", "allOf", "$ref")}:
            self.grammar.is_exact = False

    def _alternatives(self, bodies: Iterable[str]) -> str:
        return self.grammar.fresh(" | ".join(dict.fromkeys(bodies)))

    def _one_of(self, schema: JsonSchema, values: Sequence[Any]) -> str:
        """Those of the values that the rest of the schema accepts too."""
        rest = {key: value for key, value in schema.items() if key not in _ANNOTATIONS and key not in ("enum", "const")}
        if rest:
            import jsonschema_rs

            whole = {**schema, "$defs": cast("Any", self.document).get("$defs", {})}
            is_valid = jsonschema_rs.validator_for(whole).is_valid
            values = [value for value in values if is_valid(value)]
        if not values:
            raise ValueError("the schema lists values of which it accepts none")
        return self._alternatives(_json(value) for value in values)

    # -- references and combinations -------------------------------------------------------------------------

    def _reference(self, reference: str) -> str:
        if reference in self._references:
            return self._references[reference]
        name = self._references[reference] = f"ref{len(self._references)}-{len(self.grammar.text())}"
        self.grammar.add(name, "")
        self.grammar.add(name, self.rule(self._resolved(reference)))
        return name

    def _resolved(self, reference: str) -> JsonSchema:
        found: Any = self.document
        for part in reference.removeprefix("#").strip("/").split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            found = cast("Mapping[str, Any]", found).get(key) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            raise ValueError(f"the schema refers to {reference!r}, which it does not hold")
        return cast("JsonSchema", found)

    def _merged(self, schema: JsonSchema) -> dict[str, Any]:
        """`allOf` as one schema: properties joined, the last word where two disagree."""
        merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
        for part in cast("list[JsonSchema]", schema["allOf"]):
            part = self._resolved(str(part["$ref"])) if "$ref" in part else part
            for key, value in part.items():
                if key == "properties":
                    merged[key] = {**merged.get(key, {}), **value}
                elif key == "required":
                    merged[key] = [*merged.get(key, []), *value]
                else:
                    self.grammar.is_exact = self.grammar.is_exact and merged.get(key, value) == value
                    merged[key] = value
        return merged

    def _choice(self, schema: JsonSchema, keyword: str) -> str:
        self._note(schema, {keyword, "type"})
        rest = {key: value for key, value in schema.items() if key != keyword and key not in _ANNOTATIONS}
        options = cast("list[JsonSchema]", schema[keyword])
        if keyword == "oneOf":  # a value that fits two of them is invalid
            self.grammar.is_exact = self.grammar.is_exact and _are_apart(options)
        return self._alternatives(
            self.rule({**rest, **option} if isinstance(cast("Any", option), Mapping) else option) for option in options
        )

    # -- objects ---------------------------------------------------------------------------------------------

    def _object(self, schema: JsonSchema) -> str:
        properties = cast("dict[str, JsonSchema]", schema.get("properties") or {})
        required = set(cast("list[str]", schema.get("required") or []))
        undeclared = schema.get("additionalProperties", True)
        if not properties and not required and undeclared is not False:
            return self._map(undeclared, schema)
        unnamed: dict[str, JsonSchema] = {name: {} for name in sorted(required - set(properties))}
        properties = {**properties, **unnamed}
        least, most = schema.get("minProperties", 0), schema.get("maxProperties", len(properties))
        if len(required) < least or len(properties) > most:
            self.grammar.is_exact = False
        pairs = [(name, self.rule(value), name in required) for name, value in properties.items()]
        return self.grammar.fresh('"{" ' + self._members(pairs) + ' "}"')

    def _map(self, values: JsonSchema | bool, schema: JsonSchema) -> str:
        pair = f'{self.grammar.primitive("json-string")} ": " {self.rule(values)}'
        least, most = schema.get("minProperties", 0), schema.get("maxProperties")
        if least > 1:
            self.grammar.is_exact = False  # the same name twice is one property
        return self.grammar.fresh(f'"{{" {_repeated(pair, least, most)} "}}"')

    def _members(self, pairs: Sequence[tuple[str, str, bool]]) -> str:
        """The properties in order, optional ones or not, with commas between those that are there."""
        behind = '""'  # what may follow once something was written
        first = '""'  # what may follow while nothing was
        for name, rule, is_required in reversed(pairs):
            pair = f"{_json(name)} {literal(': ')} {rule}"
            here, comma = self.grammar.fresh(f"{pair} {behind}"), self.grammar.fresh(f'", " {pair} {behind}')
            first = here if is_required else self.grammar.fresh(f"{here} | {first}")
            behind = comma if is_required else self.grammar.fresh(f"{comma} | {behind}")
        return first

    # -- what is not to be written again ---------------------------------------------------------------------

    def differing(self, schema: JsonSchema, excluding: Sequence[Any]) -> str:
        """The schema's rule without those values, as far as a string in them can be another; else the plain rule."""
        return self._differing(schema, excluding) or self.rule(schema)

    def _differing(self, schema: JsonSchema, excluding: Sequence[Any]) -> str | None:
        """A rule whose every text differs from all of those; `None` if no string is there that could."""
        if "anyOf" in schema:
            options = [{**schema, **option} for option in cast("list[dict[str, Any]]", schema["anyOf"])]
            for option in options:
                option.pop("anyOf")
            return self._alternatives(self.differing(option, excluding) for option in options)
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
        items, most = cast("JsonSchema", schema.get("items", {})), schema.get("maxItems")
        first = self._differing(items, [value[0] for value in excluding if isinstance(value, list) and value])
        if first is None or not isinstance(cast("Any", items), Mapping) or most == 0:
            return None
        more = f'(", " {self.rule(items)}){_times(max(0, int(schema.get("minItems", 0)) - 1), most and most - 1)}'
        return self.grammar.fresh(f'"[" {first} {more} "]"')

    def _object_differing(self, schema: JsonSchema, excluding: Sequence[Any]) -> str | None:
        """Some required property differs, the others are free."""
        properties = cast("dict[str, JsonSchema]", schema.get("properties") or {})
        required = set(cast("list[str]", schema.get("required") or []))
        values = [cast("Mapping[str, Any]", value) for value in excluding if isinstance(value, Mapping)]
        alternatives: list[str] = []
        for name in properties:
            taken = [value[name] for value in values if name in value]
            other = self._differing(properties[name], taken) if name in required and taken else None
            if other is not None:
                pairs = [
                    (key, other if key == name else self.rule(value), key in required)
                    for key, value in properties.items()
                ]
                alternatives.append(self.grammar.fresh('"{" ' + self._members(pairs) + ' "}"'))
        return self._alternatives(alternatives) if alternatives else None

    def _not_one_of(self, texts: Sequence[str]) -> str:
        """A JSON string that is none of these, by the tree of their characters."""
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
        plain = "".join(_in_class(step) for step in branches if len(step) == 1)
        escapes = "".join(_in_class(e) for e in '"\\/bfnrt' if f"\\{e}" not in branches)
        bodies = [f'[^"\\\\\\x00-\\x1F\\x7F{plain}] {anything}', f'"\\\\" [{escapes}] {anything}']
        bodies += [f"{literal(step)} {self._off_the_tree(spelled, prefix + step)}" for step in branches]
        if prefix not in spelled:
            bodies.append('""')
        return self.grammar.fresh(" | ".join(bodies))

    # -- arrays, strings, numbers ----------------------------------------------------------------------------

    def _array(self, schema: JsonSchema) -> str:
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
        if schema.get("uniqueItems") and most != 1:
            self.grammar.is_exact = False
        if "prefixItems" in schema:
            items = [self.rule(item) for item in cast("list[JsonSchema]", schema["prefixItems"])]
            if least > len(items) or (most is not None and most < len(items)):
                self.grammar.is_exact = False
            return self.grammar.fresh('"[" ' + ' ", " '.join(items) + ' "]"')
        item = self.rule(cast("JsonSchema", schema.get("items", {})))
        return self.grammar.fresh(f'"[" {_repeated(item, least, most)} "]"')

    def _string(self, schema: JsonSchema) -> str:
        least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
        if not least and most is None:
            return self.grammar.primitive("json-string")
        if least > _MOST_REPEATS:
            self.grammar.is_exact = False
            return self.grammar.primitive("json-string")
        if most is not None and most > _MOST_REPEATS:
            self.grammar.is_exact = False
            most = None
        count = f"{{{least},{'' if most is None else most}}}"
        return self.grammar.fresh(f'"\\"" {self.grammar.primitive("json-char")}{count} "\\""')

    def _integer(self, schema: JsonSchema) -> str:
        low, high = bounds(schema)
        if low is None and high is None:
            return self.grammar.primitive("json-integer")
        furthest = 10**_DIGITS - 1
        return self._alternatives(
            whole_numbers(
                max(-furthest, -furthest if low is None else low), min(furthest, furthest if high is None else high)
            )
        )

    def _number(self, schema: JsonSchema) -> str:
        """Bounded numbers are whole ones, but for a fraction where that cannot cross a bound."""
        low, high = bounds(schema)
        if low is None and high is None:
            return self.grammar.primitive("json-number")
        whole = self._integer(schema)
        fraction = f'"." [0-9]{{1,{_DIGITS}}}'
        furthest = 10**_DIGITS - 1
        inner = (
            self._alternatives(
                whole_numbers(max(0, -1 if low is None else low), min(furthest, furthest if high is None else high - 1))
            )
            if (high is None or high > 0)
            else ""
        )
        return self._alternatives([whole, f"{inner} {fraction}"] if inner else [whole])


def _implied(schema: JsonSchema) -> str:
    """The type that the keywords speak of, where the schema does not say it."""
    for kind in ("object", "array", "string", "number"):
        if set(schema) & _KNOWN[kind]:
            return kind
    return "any"


def _is_free(schema: JsonSchema) -> bool:
    """Whether any text will do, but perhaps an empty one or one of great length."""
    has_no_more = not set(schema) - _ANNOTATIONS - {"type", "minLength", "maxLength"}
    return (
        has_no_more and schema.get("minLength", 0) <= 1 and schema.get("maxLength", _MOST_REPEATS + 1) > _MOST_REPEATS
    )


def _are_apart(options: Sequence[JsonSchema]) -> bool:
    """Whether no value can fit two of them, as far as their types and constants show."""
    kinds: list[str] = []
    for option in options:
        if not isinstance(cast("Any", option), Mapping):
            return False
        constants = option.get("enum") or ([option["const"]] if "const" in option else None)
        if constants is not None:
            kinds += [f"value {msgspec.json.encode(value)!r}" for value in dict.fromkeys(map(repr, constants))]
            kind = ""
        else:
            kind = option.get("type")
            if not isinstance(kind, str) or kind == "number":
                return False
            kinds.append(kind)
    has_constants = any(kind.startswith("value ") for kind in kinds)
    return len(set(kinds)) == len(kinds) and (not has_constants or all(kind.startswith("value ") for kind in kinds))


def _in_class(character: str) -> str:
    """A character as it stands between square brackets."""
    return (
        f"\\{character}"
        if character in '\\]["'
        else "\\x5E"
        if character == "^"
        else ("\\x2D" if character == "-" else _escaped(character))
    )


def _repeated(item: str, least: int, most: int | None) -> str:
    """The item so many times, with commas between."""
    if most is not None and most <= 0:
        return '""'
    if least > _MOST_REPEATS:
        raise ValueError(f"the schema asks for at least {least} items: more than can be written")
    more = f'(", " {item}){_times(max(0, least - 1), None if most is None else most - 1)}'
    return f"({item} {more})" if least else f"({item} {more})?"


def _times(least: int, most: int | None) -> str:
    if most is not None and most > _MOST_REPEATS:
        most = _MOST_REPEATS
    return f"{{{least},{'' if most is None else most}}}"
