"""Schemas of servers, converted into schemas that every provider takes."""

from __future__ import annotations

import random
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.core.schemas.validation import compile_schema
from swink_agent.mcp.schemas import UnusableSchema, shown_text, tame_schema
from swink_agent.testing.fakes.kit.checks import check_json_schema

TEXT = {"type": "string"}


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.table
@pytest.mark.parametrize(
    ("written", "tame"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"type": ["object", "null"]}, {"type": "object", "properties": {}}),
        (
            {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": TEXT}, "$schema": "http://json-schema.org/x"},
            {"type": "object", "properties": {"a": TEXT}},
        ),
        (
            {"properties": {"a": {"$ref": "#/definitions/A", "description": "beside"}}, "definitions": {"A": TEXT}},
            {"type": "object", "properties": {"a": {"type": "string", "description": "beside"}}},
        ),
        (  # recursive
            {
                "properties": {"tree": {"$ref": "#/$defs/T"}},
                "$defs": {"T": {"type": "object", "properties": {"left": {"$ref": "#/$defs/T"}}}},
            },
            {"type": "object", "properties": {"tree": {"type": "object", "properties": {"left": {}}}}},
        ),
        ({"properties": {"me": {"$ref": "#"}}}, {"type": "object", "properties": {"me": {}}}),
        ({"properties": {"far": {"$ref": "https://x/y.json"}}}, {"type": "object", "properties": {"far": {}}}),
        ({"properties": {"no": {"$ref": "#/$defs/nothing"}}}, {"type": "object", "properties": {"no": {}}}),
        (  # a choice: each may be given, and only what all want is required
            {
                "anyOf": [
                    {"properties": {"a": TEXT, "c": TEXT}, "required": ["a", "c"]},
                    {"properties": {"b": TEXT, "c": TEXT}, "required": ["b", "c"]},
                ]
            },
            {
                "type": "object",
                "properties": {"a": {"anyOf": [TEXT, {}]}, "c": TEXT, "b": {"anyOf": [TEXT, {}]}},
                "required": ["c"],
            },
        ),
        (  # a choice that takes nothing else
            {
                "anyOf": [
                    {"properties": {"a": TEXT}, "additionalProperties": False},
                    {"properties": {"b": TEXT}, "additionalProperties": False},
                ]
            },
            {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        ),
        (  # what depends on a condition may be given
            {
                "properties": {"kind": TEXT},
                "if": {"properties": {"kind": {"const": "a"}}},
                "then": {"properties": {"size": {"type": "integer"}}, "required": ["size"]},
                "dependentSchemas": {"kind": {"properties": {"more": TEXT}}},
                "unevaluatedProperties": False,
            },
            {
                "type": "object",
                "properties": {
                    "kind": TEXT,
                    "size": {"anyOf": [{"type": "integer"}, {}]},
                    "more": {"anyOf": [TEXT, {}]},
                },
            },
        ),
        (  # beside a reference
            {
                "$ref": "#/$defs/A",
                "properties": {"b": TEXT},
                "required": ["b"],
                "$defs": {"A": {"properties": {"a": TEXT}, "required": ["a"], "additionalProperties": False}},
            },
            {"type": "object", "properties": {"b": TEXT, "a": TEXT}, "required": ["b", "a"]},
        ),
        (
            {
                "properties": {"x": {"$ref": "#/$defs/A", "required": ["b"]}},
                "$defs": {"A": {"properties": {"a": TEXT}, "required": ["a"]}},
            },
            {"type": "object", "properties": {"x": {"properties": {"a": TEXT}, "required": ["a", "b"]}}},
        ),
        (  # a negation of what cannot be said
            {"properties": {"x": {"not": {"$ref": "#"}}, "y": {"oneOf": [{"$ref": "#"}, TEXT]}}},
            {"type": "object", "properties": {"x": {}, "y": {"allOf": [{"anyOf": [{}, TEXT]}]}}},
        ),
        (
            {"oneOf": [{"properties": {"a": TEXT}}, {"properties": {"a": {"type": "number"}}}], "required": ["a"]},
            {"type": "object", "properties": {"a": {"anyOf": [TEXT, {"type": "number"}]}}, "required": ["a"]},
        ),
        (
            {"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"required": ["b"]}], "properties": {"b": TEXT}},
            {"type": "object", "properties": {"b": TEXT, "a": TEXT}, "required": ["a", "b"]},
        ),
        (  # a choice in a definition
            {"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"properties": {"a": TEXT}}, {"type": "null"}]}}},
            {"type": "object", "properties": {"a": TEXT}},
        ),
        ({"not": {"required": ["a"]}, "enum": [{}]}, {"type": "object", "properties": {}}),
        ({"required": ["a"]}, {"type": "object", "properties": {"a": {}}, "required": ["a"]}),
        (  # older drafts
            {"properties": {"n": {"minimum": 1, "exclusiveMinimum": True}, "t": {"items": [TEXT, {"type": "null"}]}}},
            {
                "type": "object",
                "properties": {"n": {"exclusiveMinimum": 1}, "t": {"items": {"anyOf": [TEXT, {"type": "null"}, {}]}}},
            },
        ),
        (  # a choice below the top stays
            {"properties": {"a": {"anyOf": [TEXT, {"type": "null"}]}}},
            {"type": "object", "properties": {"a": {"anyOf": [TEXT, {"type": "null"}]}}},
        ),
        (  # names of keywords may be names of properties
            {"properties": {"default": {"$ref": "#/$defs/A"}, "definitions": TEXT}, "$defs": {"A": TEXT}},
            {"type": "object", "properties": {"default": TEXT, "definitions": TEXT}},
        ),
        (  # providers want to know what is in an array
            {"properties": {"a": {"type": "array"}, "b": {"type": ["array", "null"]}, "c": True}},
            {
                "type": "object",
                "properties": {
                    "a": {"type": "array", "items": {}},
                    "b": {"type": ["array", "null"], "items": {}},
                    "c": {},
                },
            },
        ),
        (
            {"properties": {"a": {"description": "see\u200bn\U000e0041"}}},
            {"type": "object", "properties": {"a": {"description": "seen"}}},
        ),
    ],
)
def test_a_schema_becomes_one_that_providers_take(written: dict[str, Any], tame: dict[str, Any]) -> None:
    assert tame_schema(written) == tame


_LAUGHS = {f"L{n}": {"properties": {c: {"$ref": f"#/$defs/L{n + 1}"} for c in "abcdefgh"}} for n in range(12)}


@pytest.mark.table
@pytest.mark.parametrize(
    ("written", "why"),
    [
        (None, "missing"),
        (True, "missing"),
        ([], "missing"),
        ({"type": "string"}, "not describe an object"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "not describe an object"),
        ({"properties": {"a": {"enum": ["x" * 70_000]}}}, "64 KB"),
        ({"properties": {"a": {"$ref": "#/$defs/L0"}}, "$defs": _LAUGHS}, "64 KB"),
        (_nested(40), "deeper than 32"),
        ({"properties": {"a b": TEXT}}, "property 'a b'"),
        ({"properties": {"x" * 65: TEXT}}, "property"),
        ({"properties": {"": TEXT}}, "property ''"),
        ({"properties": {"a": {"type": "object", "properties": {"@id": TEXT}}}}, "property '@id'"),
        ({"anyOf": [{"properties": {"über": TEXT}}]}, "property"),
        ({"properties": {"a": {"type": "text"}}}, "not valid JSON Schema"),
        ({"properties": 3}, "not describe an object"),
    ],
)
def test_a_schema_that_no_provider_takes_is_refused_with_the_reason(written: object, why: str) -> None:
    with pytest.raises(UnusableSchema, match=why):
        tame_schema(written)


_NAMES = st.sampled_from(["a", "b", "c d", "properties", "$ref", "anyOf"])
_SCHEMAS = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(0, 3),
        st.sampled_from(["string", "object", "array", "#", "#/$defs/a", "x"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(_NAMES, inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "properties", "$ref", "$defs", "anyOf", "oneOf", "allOf", "required", "items"]),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=20,
)


@settings(max_examples=300)
@given(_SCHEMAS)
def test_any_schema_is_refused_or_made_to_fit(written: Any) -> None:
    try:
        tame = tame_schema(written)
    except UnusableSchema:
        return
    assert tame["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "$ref", "$defs"} & tame.keys()
    assert set(tame.get("required", ())) <= tame["properties"].keys()
    compile_schema(tame)
    found: list[str] = []
    check_json_schema(tame, "schema", found)
    assert not found


def test_descriptions_are_cut_and_show_all_that_they_hold() -> None:
    assert shown_text("a" * 5000) == "a" * 2047 + "…"
    assert shown_text("one\ntwo\u202e\x1b[31m\u200b!") == "one\ntwo[31m!"
    assert shown_text("👩\u200d🔬") == "👩\u200d🔬"
    assert shown_text(None) == ""


class _Dice(random.Random):
    """Makes small schemas that use every keyword which changes what others mean, and values for them."""

    keys = ("a", "b", "c")
    leaves: tuple[Any, ...] = (
        *(True, False, {}, TEXT, {"type": "integer"}, {"minLength": 3}, {"maximum": 5}, {"enum": ["x", 1]}),
        *({"required": ["a"]}, {"maxProperties": 1}, {"properties": {"b": TEXT}}, {"items": TEXT}),
    )

    def value(self, depth: int = 2) -> Any:
        kind = self.randrange(6 if depth else 4)
        if kind == 4:
            return [self.value(depth - 1) for _ in range(self.randrange(3))]
        return self.object(depth - 1) if kind == 5 else self.choice([None, 1, 7, "x", "long text", [], {}])

    def object(self, depth: int = 2) -> Any:
        return {key: self.value(depth) for key in self.keys if self.random() < 0.5}

    def schema(self, depth: int) -> Any:
        return self.parts(depth - 1) if depth and self.random() < 0.6 else self.choice(self.leaves)

    def parts(self, depth: int) -> dict[str, Any]:
        def inner() -> Any:
            return self.schema(depth)

        def several() -> list[Any]:
            return [inner() for _ in range(self.randint(1, 2))]

        def named() -> dict[str, Any]:
            return {key: inner() for key in self.sample(self.keys, self.randint(1, 2))}

        makers: dict[str, Any] = {
            "type": lambda: self.choice(["object", "array", ["object", "null"], "string"]),
            "required": lambda: self.sample(self.keys, 1),
            "patternProperties": lambda: {self.choice(["^a", "b|c"]): inner()},
            "dependentRequired": lambda: {self.choice(self.keys): ["a"]},
            "maxContains": lambda: self.randrange(3),
            "$ref": lambda: self.choice(["#", "#/$defs/A", "#/$defs/B"]),
            "const": self.value,
            **dict.fromkeys(("properties", "dependentSchemas"), named),
            **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), several),
            **dict.fromkeys(("not", "if", "then", "else", "items", "contains", "propertyNames"), inner),
            **dict.fromkeys(("additionalProperties", "unevaluatedProperties", "unevaluatedItems"), inner),
        }
        return {key: makers[key]() for key in self.sample(sorted(makers), self.randint(1, 4))}


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_the_tame_schema_accepts_what_the_original_accepts(seed: int) -> None:
    dice = _Dice(seed)
    for _ in range(40):
        written = {**dice.parts(2), "$defs": {"A": dice.schema(1), "B": dice.schema(1)}}
        try:
            tame = jsonschema_rs.validator_for(tame_schema(written))
            original = jsonschema_rs.Draft202012Validator(written)
        except (UnusableSchema, ValueError):
            continue
        for value in [dice.object() for _ in range(20)]:
            try:
                is_valid = original.is_valid(value)
            except ValueError:  # a reference to itself without an end
                break
            assert tame.is_valid(value) or not is_valid, (written, value)
