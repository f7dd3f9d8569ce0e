"""The grammar of a schema: each of its texts is valid JSON for the schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.local.prompt.grammar import Grammar, literal

Write = Callable[..., list[str]]


def grammar_of(schema: Any, **options: Any) -> Grammar:
    grammar = Grammar()
    grammar.add("root", grammar.schema(schema, **options))
    return grammar


def check(schema: Any, write_by: Write, count: int = 40, seed: int = 1) -> list[Any]:
    """Writes texts by the grammar and holds each against the schema; returns the values."""
    grammar = grammar_of(schema)
    assert grammar.is_exact, "the grammar calls itself larger than the schema"
    validator = jsonschema_rs.validator_for(schema)
    values = [json.loads(text) for text in write_by(grammar.text(), count, seed)]
    for value in values:
        assert validator.is_valid(value), f"{value!r} is not valid against {schema}"
    return values


def test_an_object_has_its_required_properties_and_any_of_the_others(write_by: Write) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "boolean"}},
        "required": ["b"],
        "additionalProperties": False,
    }
    seen = {tuple(value) for value in check(schema, write_by, 200)}
    assert seen == {("b",), ("a", "b"), ("b", "c"), ("a", "b", "c")}


def test_every_optional_property_may_be_left_out(write_by: Write) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}}
    assert {tuple(value) for value in check(schema, write_by, 100)} == {(), ("a",), ("b",), ("a", "b")}


@pytest.mark.table
@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 0), (1, 9), (3, 17), (0, 100), (1, 600), (99, 1001), (-5, 5), (-1234, -56), (-3, 0), (1, 65535)],
)
def test_a_range_of_whole_numbers_is_exactly_that(low: int, high: int, write_by: Write) -> None:
    values = check({"type": "integer", "minimum": low, "maximum": high}, write_by, 400)
    if high - low < 20:
        assert set(values) == set(range(low, high + 1))


def test_open_ranges_and_exclusive_bounds_hold(write_by: Write) -> None:
    assert min(check({"type": "integer", "minimum": 1}, write_by, 200)) >= 1
    assert max(check({"type": "integer", "maximum": -7}, write_by, 200)) <= -7
    assert set(check({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 5}, write_by, 100)) == {2, 3, 4}
    for value in check({"type": "number", "exclusiveMinimum": 0, "maximum": 600.0}, write_by, 300):
        assert 0 < value <= 600
    check({"type": "number", "minimum": 0.5, "maximum": 2.5}, write_by, 200)
    assert set(check({"type": "number", "minimum": 3, "maximum": 3.5}, write_by)) == {3}


def test_an_impossible_range_is_an_error() -> None:
    with pytest.raises(ValueError, match="from 5 to 3"):
        grammar_of({"type": "integer", "minimum": 5, "maximum": 3})


def test_strings_keep_their_length_and_enums_their_values(write_by: Write) -> None:
    assert {len(value) for value in check({"type": "string", "minLength": 2, "maxLength": 3}, write_by, 100)} == {2, 3}
    values = ["red", 'a "quoted" one', 3, None, {"x": [1]}]
    seen = [json.dumps(value) for value in check({"enum": values}, write_by, 200)]
    assert set(seen) == {json.dumps(value) for value in values}
    assert check({"const": "é\n"}, write_by, 3) == ["é\n"] * 3


def test_arrays_keep_their_length(write_by: Write) -> None:
    schema = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1, "maxItems": 3}
    assert {len(value) for value in check(schema, write_by, 100)} == {1, 2, 3}
    assert check({"type": "array", "items": {"type": "null"}, "maxItems": 0}, write_by, 3) == [[], [], []]
    check({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}, write_by)


def test_references_recursion_and_combinations(write_by: Write) -> None:
    tree = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["name", "next"],
                "additionalProperties": False,
            }
        },
    }
    check(tree, write_by, 30)
    inner = {"anyOf": [{"$ref": "#"}, {"type": "null"}]}
    check({"type": "object", "properties": {"next": inner}, "required": ["next"]}, write_by, 30)
    check({"type": ["string", "null"]}, write_by)
    check({"oneOf": [{"type": "string"}, {"type": "object", "properties": {"a": {"type": "null"}}}]}, write_by)
    merged = {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
        ]
    }
    assert {tuple(value) for value in check(merged, write_by)} == {("a", "b")}


NODE = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


@pytest.mark.table
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 2.0, "maxLength": 3.0},
        {"type": "array", "items": {"type": "null"}, "minItems": 1.0, "maxItems": 2.0},
        {"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 1.0, "maxProperties": 1.0},
        {"type": "integer", "minimum": -1.5, "exclusiveMaximum": 3.5},
        {"type": "number", "exclusiveMinimum": 0.5, "maximum": 2.25},
        {"allOf": [True, {"type": "integer", "minimum": 3}, {"maximum": 5}]},
        {"type": "string", "allOf": [True]},
        {"type": "string", "anyOf": [True, False]},
        {"anyOf": [{"minLength": 2}, {"maxLength": 1}], "type": "string"},
        {"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s", "minLength": 3, "maxLength": 4},
        {"$defs": {"n": NODE}, "$ref": "#/$defs/n", "properties": {"b": {"type": "null"}}, "required": ["b"]},
        {"allOf": [NODE, {"properties": {"a": {"minLength": 4}}}]},
        {"type": "object", "properties": {"a": {"type": "null"}, "b": False}},
        {"type": "object", "required": ["a"], "additionalProperties": {"type": "integer"}},
        {"allOf": [{"properties": {"a": {}}, "additionalProperties": False}, {"properties": {"b": {}}}]},
        {"$defs": {"n": {"properties": {"a": {}}}}, "$ref": "#/$defs/n", "additionalProperties": False},
        {"allOf": [NODE, {"additionalProperties": {"minLength": 3}}]},
        {"allOf": [{"enum": [1, "a", "b"]}, {"const": "a"}]},
    ],
    ids=json.dumps,
)
def test_unusual_ways_to_say_it_give_the_right_grammar(schema: dict[str, Any], write_by: Write) -> None:
    check(schema, write_by)


@pytest.mark.table
@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"type": "string"}, False]},
        {"anyOf": [False]},
        {"$defs": {"n": NODE}, "$ref": "#/$defs/n", "additionalProperties": False},
        {"allOf": [{"enum": [1, 2]}, {"const": 3}]},
    ],
    ids=json.dumps,
)
def test_a_schema_that_accepts_nothing_is_an_error(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the schema"):
        grammar_of(schema)


def test_a_schema_that_says_nothing_takes_any_json(write_by: Write) -> None:
    assert {type(value) for value in check({}, write_by)} >= {str, int, bool, list, dict}
    assert {type(value) for value in check(True, write_by)} >= {str, int, bool, list, dict}
    assert any(check({"type": "object"}, write_by))
    values = check({"type": "object", "additionalProperties": {"type": "integer"}}, write_by)
    assert {type(item) for value in values for item in value.values()} == {int}


@pytest.mark.table
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^a+$"},
        {"type": "integer", "multipleOf": 3},
        {"type": "number", "minimum": 0.2, "maximum": 0.8},
        {"type": "array", "uniqueItems": True},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
        {"type": "string", "maxLength": 100_000},
        {"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]},
        {"type": "object", "properties": {"a": {}}, "dependentRequired": {"a": ["b"]}},
        {"type": "number", "minimum": 1e20},
        {"type": "integer", "minimum": 1e20},
        {"allOf": [{"type": "string"}, {"type": ["string", "null"]}]},
        {"type": "object", "additionalProperties": False, "minProperties": 1},
    ],
    ids=json.dumps,
)
def test_schemas_beyond_a_grammar_are_named(schema: dict[str, Any]) -> None:
    assert not grammar_of(schema).is_exact


def test_a_reference_to_nothing_is_an_error() -> None:
    for reference in ("#/$defs/nothing", "#anchor", "https://example.org/schema"):
        with pytest.raises(ValueError, match="which it does not contain"):
            grammar_of({"$ref": reference})


def test_literals_survive_every_character(write_by: Write) -> None:
    text = '"\\\n\té]^-[中😀\x7f'
    grammar = Grammar()
    grammar.add("root", literal(text))
    assert write_by(grammar.text(), 1) == [text]


# -- what is not to be written again -------------------------------------------------------------------------

COMMAND = {
    "type": "object",
    "properties": {"command": {"type": "string", "minLength": 1, "maxLength": 4_000}, "timeout": {"type": "integer"}},
    "required": ["command"],
}


@pytest.mark.parametrize("made", ["ls", "l", 'echo "a\\b"', "é", "a]b^c-d", "\n"])
def test_an_excluded_call_cannot_be_written(made: str, write_by: Write) -> None:
    grammar = grammar_of(COMMAND, excluding=[{"command": made}])
    validator = jsonschema_rs.validator_for(COMMAND)
    for text in write_by(grammar.text(), 400):
        value = json.loads(text)
        assert validator.is_valid(value)
        assert value["command"] != made


def test_texts_that_begin_like_an_excluded_call_are_allowed(write_by: Write) -> None:
    only = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    grammar = grammar_of(only, excluding=[{"a": "ab"}, {"a": "abc"}])
    # A writer that walks along the excluded texts reaches both ways out of them.
    seen = {json.loads(text)["a"] for text in write_by(grammar.text(), 3_000)}
    assert "a" in seen
    assert "" in seen
    assert not seen & {"ab", "abc"}


def test_an_edit_is_another_if_its_first_text_is(write_by: Write) -> None:
    text = {"type": "string"}
    edit = {"type": "object", "properties": {"old": text, "new": text}, "required": ["old", "new"]}
    schema = {
        "type": "object",
        "properties": {"path": text, "edits": {"type": "array", "items": edit, "minItems": 1}},
        "required": ["path", "edits"],
    }
    made = {"path": "a", "edits": [{"old": "x", "new": "y"}]}
    grammar = grammar_of(schema, excluding=[made])
    values = [json.loads(text) for text in write_by(grammar.text(), 300)]
    assert made not in values
    assert all(jsonschema_rs.validator_for(schema).is_valid(value) for value in values)


def test_a_call_without_strings_stays_possible(write_by: Write) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert write_by(grammar_of(schema, excluding=[{"n": 1}]).text(), 1)


# -- any schema ----------------------------------------------------------------------------------------------

_names = st.sampled_from(["a", "b", "path", "x y", 'q"', "é"])
_leaves = st.one_of(
    st.sampled_from(
        [{"type": "string"}, {"type": "boolean"}, {"type": "null"}, {"type": "integer"}, {"type": "number"}]
    ),
    st.builds(
        lambda a, b: {"type": "string", "minLength": min(a, b), "maxLength": max(a, b)}, *[st.integers(0, 6)] * 2
    ),
    st.builds(
        lambda a, b: {"type": "integer", "minimum": min(a, b), "maximum": max(a, b)}, *[st.integers(-3_000, 3_000)] * 2
    ),
    st.builds(lambda a: {"type": "number", "minimum": a}, st.integers(-20, 20)),
    st.builds(
        lambda values: {"enum": values}, st.lists(st.text(max_size=4) | st.integers(-9, 9), min_size=1, max_size=4)
    ),
)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda properties, flags: {
            "type": "object",
            "properties": properties,
            "required": [name for name, flag in zip(properties, flags, strict=False) if flag],
            "additionalProperties": False,
        },
        st.dictionaries(_names, inner, max_size=4),
        st.lists(st.booleans(), min_size=4, max_size=4),
    )


_schemas = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        _objects(inner),
        st.builds(
            lambda item, n: {"type": "array", "items": item, "minItems": n, "maxItems": n + 2}, inner, st.integers(0, 2)
        ),
        st.builds(lambda first, second: {"anyOf": [first, second]}, inner, inner),
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(schema=_schemas, seed=st.integers(0, 10_000))
def test_every_text_of_any_schema_is_valid(schema: dict[str, Any], seed: int, write_by: Write) -> None:
    assert len(check(schema, write_by, 8, seed)) == 8


_combined = st.recursive(
    _leaves | st.booleans(),
    lambda inner: st.one_of(
        _objects(inner),
        st.builds(lambda parts: {"allOf": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda outer, part: {"allOf": [part], **outer}, _objects(inner), _objects(inner)),
        st.builds(lambda outer, parts: {"anyOf": parts, **outer}, _objects(inner), st.lists(inner, min_size=1)),
        st.builds(lambda part, n: {"type": "array", "items": part, "maxItems": float(n)}, inner, st.integers(0, 2)),
    ),
    max_leaves=6,
)


@settings(max_examples=150)
@given(inner=_combined, beside=st.just({}) | _objects(_leaves), seed=st.integers(0, 10_000))
def test_a_grammar_that_calls_itself_exact_is_right(inner: Any, beside: Any, seed: int, write_by: Write) -> None:
    schema = {"$defs": {"inner": inner}, "$ref": "#/$defs/inner", **beside} if isinstance(inner, dict) else inner
    try:
        grammar = grammar_of(schema)
    except ValueError:
        return  # it accepts nothing that the grammar can write
    if grammar.is_exact:
        is_valid = jsonschema_rs.validator_for(schema).is_valid
        for text in write_by(grammar.text(), 8, seed):
            assert is_valid(json.loads(text)), f"{text} is not valid against {schema}"


EXCLUDING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (NODE | {"required": ["a", "b"]}, {"a": "x"}),
    (NODE | {"not": {"required": ["b"]}}, {"a": "x"}),
    (NODE | {"allOf": [{"required": ["b"]}]}, {"a": "x"}),
    ({"type": "object", "properties": {"a": True}, "required": ["a"]}, {"a": "x"}),
    ({"type": "object", "properties": {"a": {"type": "string", "minLength": 1.0}}, "required": ["a"]}, {"a": "x"}),
    (NODE | {"anyOf": [True, {"required": ["b"]}]}, {"a": "x"}),
]


@pytest.mark.table
@pytest.mark.parametrize(("schema", "made"), EXCLUDING, ids=json.dumps)
def test_with_an_excluded_call_the_rest_of_the_schema_holds(
    schema: dict[str, Any], made: dict[str, Any], write_by: Write
) -> None:
    grammar = grammar_of(schema, excluding=[made])
    is_valid = jsonschema_rs.validator_for(schema).is_valid
    assert not grammar.is_exact or all(is_valid(json.loads(text)) for text in write_by(grammar.text(), 40, 1))


def test_values_that_the_rest_of_the_schema_refuses_are_left_out(write_by: Write) -> None:
    assert set(check({"type": "string", "enum": ["a", 1, "b"]}, write_by)) == {"a", "b"}
    with pytest.raises(ValueError, match="accepts none of"):
        grammar_of({"type": "string", "enum": [1]})
    with pytest.raises(ValueError, match="does not accept"):
        grammar_of({"type": "object", "properties": {"a": False}, "required": ["a"]})
