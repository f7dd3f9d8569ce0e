"""Constraints and choices in types: what the model sees of them, and what is enforced."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

import annotated_types as at
import msgspec
import pydantic
import pytest

from swink_agent import Agent, ToolContext, ToolResultMessage, extract_text, tool
from swink_agent.core.schemas.schema import ValueSchema, type_schema
from swink_agent.testing import call, scripted, text

T = TypeVar("T")


def schema_of(kind: Any) -> dict[str, Any]:
    return type_schema(kind)


async def told(kind: Any, value: Any) -> str:
    """What the model is told of a call with the value, through an agent, where the tool says what it got."""

    @tool
    def take(value: Any) -> str:
        return f"got {value!r}"

    take.function.__annotations__["value"] = kind
    again = tool(take.function)
    agent = Agent("scripted:x", tools=[again], stream_fn=scripted(call("take", value=value), text("ok")))
    result = await agent.prompt("go")
    (message,) = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    direct = await again.execute(json.loads(json.dumps({"value": value})), ToolContext())
    assert direct.is_error == message.is_error, "a direct call and one through an agent are told the same"
    return extract_text(message.content)


# -- constraints -----------------------------------------------------------------------------------------------------

UserId = NewType("UserId", int)

CONSTRAINED = [
    (Annotated[int, at.Ge(1), at.Le(9)], {"minimum": 1, "maximum": 9}, [1, 9], [0, 10]),
    (Annotated[int, at.Interval(gt=1, lt=9)], {"exclusiveMinimum": 1, "exclusiveMaximum": 9}, [2], [1, 9]),
    (Annotated[int, at.MultipleOf(5)], {"multipleOf": 5}, [10], [11]),
    (Annotated[str, at.Len(2, 3)], {"minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd"]),
    (Annotated[str, at.MinLen(2)], {"minLength": 2}, ["ab"], ["a"]),
    (Annotated[list[int], at.MaxLen(2)], {"maxItems": 2}, [[1]], [[1, 2, 3]]),
    (Annotated[Sequence[int], at.MinLen(1)], {"minItems": 1}, [[1]], [[]]),
    (Annotated[dict[str, int], at.MinLen(1)], {"minProperties": 1}, [{"a": 1}], [{}]),
    (Annotated[int, pydantic.Field(ge=1, le=9)], {"minimum": 1, "maximum": 9}, [5], [0, 10]),
    (Annotated[str, pydantic.Field(pattern="^a+$")], {"pattern": "^a+$"}, ["aa"], ["b"]),
    (Annotated[str, pydantic.StringConstraints(min_length=2, pattern="^a")], None, ["ab"], ["a", "ba"]),
    (pydantic.PositiveInt, {"exclusiveMinimum": 0}, [1], [0]),
    (Annotated[float, msgspec.Meta(gt=0)], {"exclusiveMinimum": 0}, [0.5], [0.0]),
    (Annotated[int | None, msgspec.Meta(ge=1)], None, [1, None], [0]),
    (Annotated[int | None, at.Ge(1)], None, [1, None], [0]),
    (Annotated[int | str, pydantic.Field(ge=1, min_length=2)], None, [1, "ab"], [0, "a"]),
    (Annotated[int, at.Ge(1), at.Ge(3), at.Gt(3)], {"exclusiveMinimum": 3}, [4], [3]),
    (list[Annotated[int, at.Ge(0)]], {"items": {"type": "integer", "minimum": 0}}, [[1]], [[1, -1]]),
    (dict[str, Annotated[str, at.MaxLen(1)]], None, [{"a": "b"}], [{"a": "bc"}]),
    (Annotated[UserId, at.Gt(0)], {"exclusiveMinimum": 0}, [1], [0]),
    (Annotated[str, at.Predicate(str.isupper)], None, ["AB"], ["ab"]),
    (Annotated[str | None, at.Predicate(str.isupper)], None, ["AB", None], ["ab"]),
    (Annotated[str, at.Not(str.isupper)], None, ["ab"], ["AB"]),
    (at.LowerCase[str], None, ["ab"], ["AB"]),
    (Annotated[date, at.Ge(date(2020, 1, 1))], None, ["2020-02-01"], ["2019-02-01"]),
    (Annotated[Decimal, at.Lt(Decimal(10))], None, ["9.5"], ["10.5"]),
    (Annotated[str, pydantic.AfterValidator(lambda value: int(value) and value)], None, ["1"], ["x"]),
    (pydantic.HttpUrl, None, ["http://example.org"], ["nowhere"]),
]


@pytest.mark.table
@pytest.mark.parametrize(("kind", "shown", "good", "bad"), CONSTRAINED, ids=[str(item[0])[:60] for item in CONSTRAINED])
async def test_constraints_reach_the_schema_and_are_enforced(kind: Any, shown: Any, good: Any, bad: Any) -> None:
    if shown is not None:
        assert shown.items() <= schema_of(kind).items()
    for value in good:
        assert (await told(kind, value)).startswith("got "), value
    for value in bad:
        answer = await told(kind, value)
        assert answer.startswith("invalid arguments for take"), value
        assert "value" in answer.removeprefix("invalid arguments for take")


def test_the_words_of_every_vocabulary_reach_the_schema() -> None:
    words = {"description": "how many", "title": "Count", "examples": [3]}
    for metadata in (msgspec.Meta(**words), pydantic.Field(**words)):
        assert schema_of(Annotated[int, metadata]) == {"type": "integer", **words}
        holder = msgspec.defstruct("Holder", [("count", Annotated[int, metadata])])
        assert schema_of(holder)["properties"]["count"] == {"type": "integer", **words}
    assert schema_of(Annotated[int, at.doc("how many")]) == {"type": "integer", "description": "how many"}
    assert schema_of(Annotated[int, pydantic.Field(json_schema_extra={"unit": "km"})])["unit"] == "km"
    assert schema_of(Annotated[int, object(), 7]) == {"type": "integer"}


@dataclass
class Line:
    """A line of an order.

    Attributes:
        count: How many.
    """

    count: Annotated[int, at.Ge(1)]
    tags: list[Annotated[str, at.MinLen(2)]] = field(default_factory=list)
    note: Annotated[str | None, pydantic.Field(max_length=5)] = None


class Place(TypedDict):
    street: Annotated[str, at.MinLen(3)]
    number: NotRequired[Annotated[int, pydantic.Field(gt=0)]]


class Pair(NamedTuple):
    low: Annotated[int, at.Ge(0)]
    high: Annotated[int, at.Le(9)] = 9


class Order(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    all_lines: Annotated[list[Line], at.MinLen(1)]
    place: Place | None = None
    span: Pair = Pair(1)


class Node(msgspec.Struct):
    value: Annotated[int, at.Ge(0)]
    children: list[Node] = []


@dataclass
class Box(Generic[T]):
    content: Annotated[T, at.Predicate(bool)]


def test_nested_constraints_are_in_the_schema() -> None:
    schema = schema_of(Order)
    lines = schema["properties"]["allLines"]
    assert lines["minItems"] == 1
    properties = lines["items"]["properties"]
    assert properties["count"] == {"type": "integer", "minimum": 1, "description": "How many."}
    assert properties["tags"] == {"type": "array", "items": {"type": "string", "minLength": 2}, "default": []}
    assert lines["items"]["description"].startswith("A line of an order.")
    assert lines["items"]["required"] == ["count"]
    assert schema["additionalProperties"] is False
    assert "$ref" not in json.dumps(schema)
    assert schema_of(Place)["required"] == ["street"]
    assert "minimum" in json.dumps(schema_of(Node))


GOOD_ORDER = {"allLines": [{"count": 1, "tags": ["ab"]}], "place": {"street": "Elm", "number": 1}, "span": [1, 2]}


def test_nested_constraints_keep_the_types() -> None:
    order = Order([Line(1, ["ab"])], {"street": "Elm", "number": 1}, Pair(1, 2))
    assert ValueSchema(Order).convert(GOOD_ORDER) == order
    assert ValueSchema(Order).convert({"allLines": [{"count": 2}]}) == Order([Line(2)])
    assert ValueSchema(Node).convert({"value": 1, "children": [{"value": 2}]}) == Node(1, [Node(2)])
    assert ValueSchema(Box[int]).convert({"content": 3}) == Box(3)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"allLines": [{"count": 1}, {"count": 0}]}, "allLines"),
        ({"allLines": []}, "allLines"),
        ({"allLines": [{"count": 1, "tags": ["ab", "a"]}]}, "tags"),
        ({"allLines": [{"count": 1, "note": "far too long"}]}, "note"),
        ({"place": {"street": "El"}}, "street"),
        ({"place": {"street": "Elm", "number": 0}}, "number"),
        ({"span": [1, 10]}, "span"),
        ({"other": 1}, "other"),
    ],
)
async def test_nested_constraints_are_enforced_and_the_field_is_named(change: dict[str, Any], where: str) -> None:
    answer = await told(Order, GOOD_ORDER | change)
    assert answer.startswith("invalid arguments for take")
    assert where in answer
    with pytest.raises(ValueError, match=where):
        ValueSchema(Order).convert(GOOD_ORDER | change)


async def test_a_class_that_contains_itself_is_checked_all_the_way_down() -> None:
    deep = {"value": 1, "children": [{"value": 2, "children": [{"value": -1}]}]}
    assert "value" in await told(Node, deep)
    with pytest.raises(ValueError, match=r"at `\$\.children\[0\]\.children\[0\]\.value`"):
        ValueSchema(Node).convert(deep)


async def test_a_pydantic_field_may_be_the_default() -> None:
    @tool
    def search(
        query: str = pydantic.Field(min_length=2, description="what for"),
        limit: int = pydantic.Field(10, ge=1),
        tags: list[str] = pydantic.Field(default_factory=lambda: ["new"]),  # noqa: B008
    ) -> str:
        return f"{query} {limit} {tags}"

    assert search.parameters_schema["required"] == ["query"]
    properties = search.parameters_schema["properties"]
    assert properties["query"] == {"type": "string", "minLength": 2, "description": "what for"}
    assert properties["limit"] == {"type": "integer", "minimum": 1, "default": 10}
    result = await search.execute({"query": "abc"}, ToolContext())
    assert extract_text(result.content) == "abc 10 ['new']"
    assert (await search.execute({"query": "abc", "limit": 0}, ToolContext())).is_error


# -- choices ---------------------------------------------------------------------------------------------------------


@dataclass
class Cat:
    name: str
    lives: int = 9


@dataclass
class Dog:
    name: str
    barks: bool = True


class Fish(TypedDict):
    fins: int


class Bird(msgspec.Struct):
    wings: int


class Horse(pydantic.BaseModel):
    legs: int


class Circle(msgspec.Struct, tag=True):
    radius: float


class Square(msgspec.Struct, tag=True):
    side: float


@dataclass
class Zoo:
    animals: list[Cat | Dog | Fish | Bird | Horse]
    best: Cat | Dog | None = None


@dataclass
class Open:
    kind: Literal["open"]
    path: str


@dataclass
class Close:
    kind: Literal["close"]
    path: str


CHOICES = [
    (Cat | Dog, {"name": "Tom", "lives": 3}, Cat("Tom", 3)),
    (Cat | Dog, {"name": "Rex", "barks": False}, Dog("Rex", False)),
    (Cat | Dog, {"name": "who"}, Cat("who")),
    (Fish | Bird, {"fins": 2}, {"fins": 2}),
    (Fish | Bird, {"wings": 2}, Bird(2)),
    (Cat | Horse, {"legs": 4}, Horse(legs=4)),
    (Horse | int | str, "none", "none"),
    (Horse | int | str, {"legs": 3}, Horse(legs=3)),
    (Cat | Dog | int | None, None, None),
    (Cat | Dog | int | None, 7, 7),
    (list[Cat | Dog], [{"name": "a", "barks": True}, {"name": "b", "lives": 1}], [Dog("a"), Cat("b", 1)]),
    (dict[str, Fish | Bird], {"x": {"wings": 1}}, {"x": Bird(1)}),
    (Circle | Square, {"type": "Square", "side": 2.0}, Square(2.0)),
    (Circle | Square | Cat, {"type": "Circle", "radius": 1}, Circle(1.0)),
    (Circle | Square | Cat, {"name": "Tom"}, Cat("Tom")),
    (Open | Close, {"kind": "close", "path": "x"}, Close("close", "x")),
    (date | int | str, "2020-01-02", date(2020, 1, 2)),
    (date | str, "soon", "soon"),
    (list[int] | set[str], ["a"], {"a"}),
    (
        Zoo,
        {"animals": [{"fins": 1}, {"legs": 4}, {"name": "T", "lives": 1}], "best": {"name": "R", "barks": True}},
        Zoo([{"fins": 1}, Horse(legs=4), Cat("T", 1)], Dog("R")),
    ),
]


@pytest.mark.table
@pytest.mark.parametrize(("kind", "given", "meant"), CHOICES, ids=[str(item[0])[-60:] for item in CHOICES])
async def test_a_value_becomes_the_member_that_it_fits(kind: Any, given: Any, meant: Any) -> None:
    assert await told(kind, given) == f"got {meant!r}"
    schema = schema_of(kind)
    assert "$ref" not in json.dumps(schema)
    if kind in (Cat | Dog, Fish | Bird, Circle | Square):
        assert [len(member["properties"]) for member in schema["anyOf"]] == [2, 2] if kind != (Fish | Bird) else [1, 1]


@pytest.mark.parametrize("kind", [Cat | Dog, Fish | Bird, Horse | Cat, list[Cat | Dog], Zoo])
async def test_values_that_fit_no_member_are_refused(kind: Any) -> None:
    answer = await told(kind, {"what": "is this"})
    assert answer.startswith("invalid arguments for take")


async def test_a_choice_between_classes_is_a_structured_output() -> None:
    replies = [call("final_answer", value={"what": 1}), call("final_answer", value={"name": "Rex", "barks": True})]
    agent = Agent("scripted:x", stream_fn=scripted(*replies))
    answer = await agent.structured_output("who?", Cat | Dog)
    assert answer == Dog("Rex")
    agent = Agent("scripted:x", stream_fn=scripted(call("final_answer", value=[{"fins": 1}, {"legs": 4}])))
    assert await agent.structured_output("who?", list[Fish | Horse]) == [{"fins": 1}, Horse(legs=4)]
    agent = Agent("scripted:x", stream_fn=scripted(call("final_answer", **GOOD_ORDER)))
    assert isinstance(await agent.structured_output("what?", Order), Order)


def test_two_members_of_one_name_are_told_apart() -> None:
    positive = Annotated[int, at.Gt(0)]
    one = msgspec.defstruct("Same", [("x", positive)], module="here")
    two = msgspec.defstruct("Same", [("y", positive)], module="there")
    assert type(ValueSchema(one | two).convert({"y": 1})) is two
    assert type(ValueSchema(list[one | two]).convert([{"x": 1}])[0]) is one
    with pytest.raises(TypeError, match="two classes are both named"):
        schema_of(msgspec.defstruct("A", [("x", int)]) | msgspec.defstruct("A", [("y", int)]))


@pytest.mark.slow
def test_neither_vocabulary_is_loaded_by_us() -> None:
    code = (
        "import sys; from swink_agent import tool\n"
        "@tool\ndef f(a: int, b: 'int | None' = None) -> str: return ''\n"
        "assert not {'pydantic', 'annotated_types'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-I", "-c", code], check=True, timeout=30)


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (Annotated[str, msgspec.Meta(ge=3)], "ge=3 does not apply to a value of str"),
        (Annotated[int, msgspec.Meta(min_length=3)], "min_length=3 does not apply to a value of int"),
        (Annotated[int | None, msgspec.Meta(pattern="^a")], "pattern='^a' does not apply to"),
        (list[Annotated[str, msgspec.Meta(gt=0)]], "gt=0 does not apply to a value of str"),
    ],
)
def test_a_limit_that_can_never_hold_for_such_a_value_is_an_error_of_its_author(hint: Any, said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        schema_of(hint)


def test_a_limit_for_one_member_of_a_union_is_ignored_for_others() -> None:
    @tool
    def take(value: Annotated[int | str, msgspec.Meta(ge=3)]) -> str:
        """Takes."""
        return str(value)

    assert {"type": "integer", "minimum": 3} in take.parameters_schema["properties"]["value"]["anyOf"]
