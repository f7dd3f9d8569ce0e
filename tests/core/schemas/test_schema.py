"""From type hints and docstrings to a schema, and from JSON back to the types."""

from __future__ import annotations

import datetime
import functools
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict, Union

import msgspec
import pydantic
import pytest
import typing_extensions

from swink_agent import AgentToolResult, ToolContext, extract_text, tool
from swink_agent.core.schemas.schema import ValueSchema, type_schema
from swink_agent.core.tool import Toolbox


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Mode(StrEnum):
    FAST = "fast"
    SAFE = "safe"


@dataclass
class Point:
    x: Annotated[int, "how far to the right"]
    y: int = 0


@dataclass
class Shape:
    """A shape.

    Attributes:
        name: what to call it
    """

    name: str
    corners: list[Point]
    color: Color = Color.RED
    tags: list[str] = field(default_factory=list)


class Options(TypedDict):
    depth: Annotated[int, "how deep to look"]
    pattern: NotRequired[str]


class Loose(TypedDict, total=False):
    depth: int
    pattern: str


class Order(msgspec.Struct):
    item: Annotated[str, msgspec.Meta(min_length=1)]
    count: Annotated[int, "how many"] = 1


class Address(pydantic.BaseModel):
    """Where somebody lives."""

    street: str = pydantic.Field(description="without the number")
    number: int = pydantic.Field(ge=1)


class Person(pydantic.BaseModel):
    name: str
    home: Address
    others: list[Address] = []


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


class Link(msgspec.Struct):
    value: int
    next: Link | None = None


class Folder(TypedDict):
    value: int
    folders: NotRequired[list[Folder]]


class Comment(pydantic.BaseModel):
    value: int
    replies: list[Comment] = []


@dataclass
class Employee:
    value: int
    team: Team | None = None


@dataclass
class Team:
    members: list[Employee]


@dataclass
class Keywords:
    """Fields named as the keywords of JSON Schema are."""

    default: Point
    enum: Point
    const: Point
    examples: Point
    title: Point
    properties: Point
    required: Point


class Garden:
    @dataclass
    class Item:
        name: Annotated[str, "which plant"]


class Kitchen:
    @dataclass
    class Item:
        name: Annotated[str, "which pot"]


@dataclass
class Stock:
    plant: Garden.Item
    pot: Kitchen.Item


class Forest:
    @dataclass
    class Node:
        height: int
        nodes: list[Forest.Node] = field(default_factory=list)


class Network:
    @dataclass
    class Node:
        address: str
        nodes: list[Network.Node] = field(default_factory=list)


class Outline:
    class Node(pydantic.BaseModel):
        heading: bool
        nodes: list[Outline.Node] = []


Outline.Node.model_rebuild()


@dataclass
class Mixture:
    tree: Forest.Node
    section: Outline.Node


class Circle(msgspec.Struct, tag="circle"):
    radius: float


class Square(msgspec.Struct, tag="square"):
    side: float


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    return tool(function).parameters_schema


def parameter(kind: Any) -> dict[str, Any]:
    """The schema of a tool's only parameter."""

    def function(value: Any) -> None: ...

    function.__annotations__["value"] = kind
    return schema_of(function)["properties"]["value"]


async def called(function: Callable[..., Any], **arguments: Any) -> Any:
    """What the function returned when it was called as an agent calls it: checked first, then converted."""
    returned: list[Any] = []

    @functools.wraps(function)
    def keep(*positional: Any, **named: Any) -> str:
        returned.append(function(*positional, **named))
        return "kept"

    item = tool(keep)
    problem = Toolbox([item]).problems(item.name, arguments)
    assert problem is None, problem
    result = await item.execute(json.loads(json.dumps(arguments)), ToolContext())
    assert result == AgentToolResult("kept"), extract_text(result.content)
    return returned[0]


def problems(function: Callable[..., Any], **arguments: Any) -> str:
    item = tool(function)
    return Toolbox([item]).problems(item.name, arguments) or ""


# -- types -----------------------------------------------------------------------------------------------------


def test_builtin_types_have_the_schema_one_expects() -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    flags = {"type": "array", "items": {"type": "boolean"}}
    kinds: list[tuple[Any, dict[str, Any]]] = [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (list, {"type": "array", "items": {}}),
        (list[int], numbers),
        (Sequence[int], numbers),
        (tuple[int, ...], numbers),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (list[dict[str, list[bool]]], {"type": "array", "items": {"type": "object", "additionalProperties": flags}}),
        (Any, {}),
    ]
    for kind, schema in kinds:
        assert type_schema(kind) == schema
        assert parameter(kind) == schema


def test_choices_are_an_enum_of_their_values() -> None:
    kinds: list[tuple[Any, list[Any]]] = [
        (Literal["a", "b"], ["a", "b"]),
        (Literal[1, 2], [1, 2]),
        (Literal[True], [True]),
        (Color, ["blue", "red"]),
        (Size, [1, 2]),
        (Mode, ["fast", "safe"]),
    ]
    for kind, choices in kinds:
        assert sorted(type_schema(kind)["enum"]) == choices


def test_an_optional_value_may_be_null() -> None:
    for kind in (int | None, Optional[int], Union[int, None]):  # noqa: UP007, UP045
        options = type_schema(kind)["anyOf"]
        assert {"type": "integer"} in options
        assert {"type": "null"} in options


def test_a_union_lists_its_members() -> None:
    assert {"type": "string"} in type_schema(int | str)["anyOf"]
    assert {"type": "integer"} in type_schema(int | str)["anyOf"]


def test_a_dataclass_is_an_object_with_its_fields_described() -> None:
    schema = type_schema(Shape)
    assert schema["type"] == "object"
    assert schema["required"] == ["name", "corners"]
    assert schema["properties"]["name"] == {"type": "string", "description": "what to call it"}
    point = schema["properties"]["corners"]["items"]
    assert point["properties"]["x"] == {"type": "integer", "description": "how far to the right"}
    assert point["required"] == ["x"]
    assert schema["properties"]["color"]["default"] == "red"


def test_a_typed_dict_requires_what_it_says_it_requires() -> None:
    assert type_schema(Options)["required"] == ["depth"]
    assert type_schema(Options)["properties"]["depth"]["description"] == "how deep to look"
    assert not type_schema(Loose).get("required")


class Watched(TypedDict):
    plain: typing_extensions.ReadOnly[int]
    maybe: typing_extensions.ReadOnly[NotRequired[str]]
    other: NotRequired[typing_extensions.ReadOnly[str]]


def test_read_only_keys_of_a_typed_dict_are_required_unless_marked() -> None:
    schema = type_schema(Watched)
    assert schema["required"] == ["plain"]
    assert {name: part["type"] for name, part in schema["properties"].items()} == {
        "plain": "integer",
        "maybe": "string",
        "other": "string",
    }


def test_a_msgspec_struct_brings_its_constraints() -> None:
    schema = type_schema(Order)
    assert schema["properties"]["item"] == {"type": "string", "minLength": 1}
    assert schema["properties"]["count"] == {"type": "integer", "description": "how many", "default": 1}
    assert schema["required"] == ["item"]


def test_a_pydantic_model_brings_its_own_schema() -> None:
    schema = type_schema(Person)
    home = schema["properties"]["home"]
    assert home["properties"]["street"] == {"type": "string", "description": "without the number"}
    assert home["properties"]["number"]["minimum"] == 1
    assert home["required"] == ["street", "number"]
    assert schema["properties"]["others"]["items"]["type"] == "object"
    assert schema["required"] == ["name", "home"]


def test_types_that_do_not_contain_themselves_need_no_references() -> None:
    for kind in (Shape, Person, list[Point], dict[str, Order], Options | None, Stock):
        assert "$ref" not in json.dumps(type_schema(kind))
        assert "$ref" not in json.dumps(parameter(kind))


def test_fields_named_like_keywords_of_json_schema_are_fields_like_any_other() -> None:
    properties = type_schema(Keywords)["properties"]
    assert len(properties) == 7
    for name, schema in properties.items():
        assert schema["properties"]["x"]["type"] == "integer", name


def test_two_classes_of_one_name_keep_their_own_descriptions() -> None:
    def stock(plant: Garden.Item, pot: Kitchen.Item) -> None: ...

    for properties in (schema_of(stock)["properties"], type_schema(Stock)["properties"]):
        assert properties["plant"]["properties"]["name"]["description"] == "which plant"
        assert properties["pot"]["properties"]["name"]["description"] == "which pot"


# -- descriptions ----------------------------------------------------------------------------------------------


def annotated(
    a: Annotated[int, "the a"],
    b: Annotated[int | None, "the b"] = None,
    c: Annotated[Literal["x", "y"], "the c"] = "x",
    d: Annotated[list[Annotated[str, "one of d"]], "the d"] = [],  # noqa: B006
    e: Annotated[Point, "the e"] = Point(1),  # noqa: B008
    f: Annotated[int, msgspec.Meta(ge=0, description="the f")] = 0,
    g: Annotated[int, pydantic.Field(description="the g")] = 0,
) -> None: ...


def test_annotations_describe_parameters_with_and_without_defaults() -> None:
    properties = schema_of(annotated)["properties"]
    for name in "abcdefg":
        assert properties[name]["description"] == f"the {name}"
    assert properties["d"]["items"] == {"type": "string", "description": "one of d"}
    assert properties["f"]["minimum"] == 0
    assert properties["e"]["properties"]["x"]["description"] == "how far to the right"


def google(path: str, depth: int = 1, *, pattern: str = "", mode: Mode = Mode.FAST, undocumented: int = 0) -> None:
    """Looks through a folder.

    It follows no links.

    Args:
        path: where to start; see https://example.org:8080/docs
            and the lines that follow.
        depth (int, optional): how deep to look
        pattern (str): which files:
            all of them if empty

        mode: fast or safe

    Returns:
        Nothing at all: it has no result.

    Raises:
        OSError: never.
    """


def rest(path: str, depth: int = 1, pattern: str = "", mode: Mode = Mode.FAST) -> None:
    """Looks through a folder.

    It follows no links.

    :param path: where to start; see https://example.org:8080/docs
        and the lines that follow.
    :param int depth: how deep to look
    :param pattern:
        which files: all of them if empty
    :type pattern: str
    :param mode: fast or safe
    :returns: Nothing at all: it has no result.
    :raises OSError: never.
    """


@pytest.mark.parametrize("function", [google, rest])
def test_a_docstring_describes_the_tool_and_its_parameters(function: Callable[..., Any]) -> None:
    item = tool(function)
    assert item.description == "Looks through a folder.\n\nIt follows no links."
    described = {name: schema.get("description") for name, schema in item.parameters_schema["properties"].items()}
    described.pop("undocumented", None)
    assert described == {
        "path": "where to start; see https://example.org:8080/docs and the lines that follow.",
        "depth": "how deep to look",
        "pattern": "which files: all of them if empty",
        "mode": "fast or safe",
    }


def test_a_type_in_a_docstring_may_have_parentheses_of_its_own() -> None:
    def look(path: str, sizes: list[int], depth: int) -> None:
        """Looks.

        Args:
            path: where to look
            sizes (list of (width, height)): which sizes
            depth (int): how deep
        """

    properties = schema_of(look)["properties"]
    assert [schema.get("description") for schema in properties.values()] == ["where to look", "which sizes", "how deep"]


def test_a_parameter_that_the_docstring_leaves_out_has_no_description() -> None:
    assert "description" not in schema_of(google)["properties"]["undocumented"]


def test_a_docstring_of_one_line_is_the_description() -> None:
    def look(path: str) -> None:
        """Looks: that is all."""

    assert tool(look).description == "Looks: that is all."


def test_a_tool_without_a_docstring_still_has_a_description() -> None:
    def look_around(path: str) -> None: ...

    assert "ook" in tool(look_around).description


def test_text_after_the_parameters_belongs_to_the_description_again() -> None:
    def look(path: str) -> None:
        """Looks.

        Args:
            path: where to look

        Use it sparingly.
        """

    assert tool(look).description == "Looks.\n\nUse it sparingly."
    assert schema_of(look)["properties"]["path"]["description"] == "where to look"


# -- parameters and defaults -----------------------------------------------------------------------------------


def test_a_parameter_with_a_default_is_not_required_and_shows_it() -> None:
    def look(path: str, depth: int = 3, mode: Mode = Mode.SAFE, limit: int | None = None) -> None: ...

    schema = schema_of(look)
    assert schema["required"] == ["path"]
    properties = schema["properties"]
    assert (properties["depth"]["default"], properties["mode"]["default"]) == (3, "safe")
    assert properties["limit"]["default"] is None
    assert "default" not in properties["path"]
    json.dumps(schema)


async def test_an_infinite_default_is_not_shown_since_json_has_no_such_number() -> None:
    def look(limit: float = float("inf"), between: tuple[float, float] = (0.0, float("nan"))) -> Any:
        return limit

    assert all("default" not in shown for shown in schema_of(look)["properties"].values())
    assert await called(look) == float("inf")


async def test_a_default_is_used_when_the_model_leaves_the_argument_out() -> None:
    marker = object()

    def look(path: str, depth: int = 3, spot: Point = Point(7), other: Any = marker) -> Any:  # noqa: B008
        return path, depth, spot, other

    assert await called(look, path="a") == ("a", 3, Point(7), marker)
    assert await called(look, path="a", depth=4, spot={"x": 1}) == ("a", 4, Point(1), marker)


async def test_null_for_an_optional_argument_is_not_its_default() -> None:
    def look(limit: int | None = 10) -> Any:
        return limit

    assert await called(look) == 10
    assert await called(look, limit=None) is None


def test_arguments_that_the_function_does_not_have_are_refused() -> None:
    def look(path: str) -> None: ...

    assert schema_of(look)["additionalProperties"] is False
    assert "pth" in problems(look, path="a", pth="b")


async def test_a_parameter_without_a_hint_takes_anything() -> None:
    def look(value, other=5) -> Any:  # type: ignore[no-untyped-def]
        return value, other

    assert await called(look, value={"a": [1]}) == ({"a": [1]}, 5)


def positional(a: int, b: int = 2, c: int = 3, /, d: int = 4, *, e: int = 5) -> tuple[int, ...]:
    return a, b, c, d, e


async def test_positional_parameters_get_their_own_arguments() -> None:
    assert await called(positional, a=1) == (1, 2, 3, 4, 5)
    assert await called(positional, a=10, b=20, c=30, d=40, e=50) == (10, 20, 30, 40, 50)
    assert await called(positional, a=10, b=20) == (10, 20, 3, 4, 5)
    assert await called(positional, a=10, d=40) == (10, 2, 3, 40, 5)


async def test_positional_parameters_that_are_left_out_do_not_shift_the_others() -> None:
    assert await called(positional, a=10, c=30) == (10, 2, 30, 4, 5)
    assert await called(positional, c=30, a=10, e=50) == (10, 2, 30, 4, 50)


# -- conversion ------------------------------------------------------------------------------------------------


CONVERSIONS: list[tuple[Any, Any, Any]] = [
    (Color, "blue", Color.BLUE),
    (Size, 2, Size.LARGE),
    (Point, {"x": 1}, Point(1, 0)),
    (Shape, {"name": "dot", "corners": [{"x": 1, "y": 2}]}, Shape("dot", [Point(1, 2)])),
    (Options, {"depth": 1}, {"depth": 1}),
    (Order, {"item": "tea"}, Order("tea", 1)),
    (Address, {"street": "Elm", "number": 1}, Address(street="Elm", number=1)),
    (Address | None, {"street": "Elm", "number": 1}, Address(street="Elm", number=1)),
    (Address | None, None, None),
    (list[Address], [{"street": "Elm", "number": 1}], [Address(street="Elm", number=1)]),
    (dict[str, Address], {"a": {"street": "Elm", "number": 1}}, {"a": Address(street="Elm", number=1)}),
    (Path, "/tmp/a", Path("/tmp/a")),
    (PurePosixPath, "a/b", PurePosixPath("a/b")),
    (list[Path], ["a"], [Path("a")]),
    (float, 2, 2.0),
    (int, 5.0, 5),
    (set[int], [1, 2], {1, 2}),
    (tuple[int, str], [1, "a"], (1, "a")),
    (dict[int, str], {"1": "one"}, {1: "one"}),
    (datetime.date, "2024-02-29", datetime.date(2024, 2, 29)),
    (uuid.UUID, "12345678123456781234567812345678", uuid.UUID("12345678123456781234567812345678")),
    (Decimal, "1.50", Decimal("1.50")),
    (Circle | Square, {"type": "square", "side": 2.0}, Square(2.0)),
    (str | None, "null", "null"),
    (int | str, "5", "5"),
]


async def test_arguments_are_converted_to_the_declared_type() -> None:
    def take(value: Any) -> Any:
        return value

    def take_by_default(value: Any = None) -> Any:
        return value

    for kind, value, expected in CONVERSIONS:
        for function in (take, take_by_default):
            function.__annotations__["value"] = kind
            converted = await called(function, value=value)
            assert converted == expected, kind
            assert type(converted) is type(expected), kind


async def test_one_argument_that_needs_conversion_does_not_bend_the_others() -> None:
    def take(count: int, text: str | None, either: int | str, flag: bool | None = None) -> Any:
        return count, text, either, flag

    assert await called(take, count=5.0, text="null", either="5") == (5, "null", "5", None)


def test_a_value_that_does_not_fit_is_a_value_error_that_names_the_field() -> None:
    with pytest.raises(ValueError, match="corners"):
        ValueSchema(Shape).convert({"name": "a", "corners": [{"x": "far"}]})
    with pytest.raises(ValueError, match="number"):
        ValueSchema(Person).convert({"name": "a", "home": {"street": "Elm", "number": 0}})


# -- types that contain themselves -----------------------------------------------------------------------------

DEEP_TREE = {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]}
BAD_TREE = {"value": 1, "children": [{"value": 2, "children": [{"value": "three"}]}]}
RECURSIVE: dict[str, tuple[Any, Any, Any, Any]] = {
    "dataclass": (Tree, DEEP_TREE, BAD_TREE, Tree(1, [Tree(2, [Tree(3)])])),
    "struct": (
        Link,
        {"value": 1, "next": {"value": 2}},
        {"value": 1, "next": {"value": "two"}},
        Link(1, Link(2)),
    ),
    "typed dict": (
        Folder,
        {"value": 1, "folders": [{"value": 2}]},
        {"value": 1, "folders": [{"value": "two"}]},
        {"value": 1, "folders": [{"value": 2}]},
    ),
    "pydantic": (
        Comment,
        {"value": 1, "replies": [{"value": 2}]},
        {"value": 1, "replies": [{"value": "two"}]},
        Comment(value=1, replies=[Comment(value=2)]),
    ),
    "in a list": (list[Tree], [DEEP_TREE], [BAD_TREE], [Tree(1, [Tree(2, [Tree(3)])])]),
    "optional": (Tree | None, DEEP_TREE, BAD_TREE, Tree(1, [Tree(2, [Tree(3)])])),
    "pydantic in a list": (list[Comment], [{"value": 1}], [{"value": "one"}], [Comment(value=1)]),
    "two of them": (
        Team,
        {"members": [{"value": 1, "team": {"members": [{"value": 2}]}}]},
        {"members": [{"value": 1, "team": {"members": [{"value": "two"}]}}]},
        Team([Employee(1, Team([Employee(2)]))]),
    ),
}


@pytest.mark.parametrize("case", RECURSIVE)
async def test_a_type_that_contains_itself_can_be_a_parameter(case: str) -> None:
    kind, good, bad, expected = RECURSIVE[case]

    def take(value: Any) -> Any:
        return value

    take.__annotations__["value"] = kind
    assert await called(take, value=good) == expected
    assert "value" in problems(take, value=bad)


async def test_two_parameters_may_have_types_that_contain_themselves() -> None:
    def take(tree: Tree, link: Link, again: Tree | None = None) -> Any:
        return tree, link, again

    assert await called(take, tree=DEEP_TREE, link={"value": 1}) == (Tree(1, [Tree(2, [Tree(3)])]), Link(1), None)
    assert "tree" in problems(take, tree=BAD_TREE, link={"value": 1})


TREE = {"height": 3, "nodes": [{"height": 2}]}
HOST = {"address": "::1", "nodes": [{"address": "::2"}]}
SECTION = {"heading": True, "nodes": [{"heading": False}]}


def test_recursive_types_of_one_name_are_kept_apart_in_several_parameters() -> None:
    def take(tree: Forest.Node, host: Network.Node, section: Outline.Node) -> None: ...

    assert problems(take, tree=TREE, host=HOST, section=SECTION) == ""
    assert "tree" in problems(take, tree=HOST, host=HOST, section=SECTION)


def test_types_of_one_name_that_contain_themselves_are_kept_apart_in_one_parameter() -> None:
    def take(mixture: Mixture) -> None: ...

    assert problems(take, mixture={"tree": TREE, "section": SECTION}) == ""
    assert "mixture.tree" in problems(take, mixture={"tree": HOST, "section": SECTION})


def test_the_schema_of_a_type_that_contains_itself_is_complete() -> None:
    for case, (kind, *_) in RECURSIVE.items():
        schema = type_schema(kind)
        assert set(_references(schema)) <= {f"#/$defs/{name}" for name in schema.get("$defs", {})}, case


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [name for item in node for name in _references(item)]
    if isinstance(node, dict):
        here = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return here + [name for item in node.values() for name in _references(item)]
    return []


# -- what cannot be a tool -------------------------------------------------------------------------------------


def takes_the_rest(*rest: int) -> None: ...


def takes_any_names(**names: int) -> None: ...


def takes_a_complex_number(number: complex) -> None: ...


def takes_a_function(then: Callable[[int], int]) -> None: ...


def takes_an_object_in_a_list(things: list[object]) -> None: ...


def takes_what_nobody_knows(thing: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def test_a_signature_that_json_cannot_carry_is_a_type_error_that_says_which() -> None:
    functions: list[tuple[Callable[..., Any], list[str]]] = [
        (takes_the_rest, ["takes_the_rest", "rest"]),
        (takes_any_names, ["takes_any_names", "names"]),
        (takes_a_complex_number, ["takes_a_complex_number", "number", "complex"]),
        (takes_a_function, ["takes_a_function", "then"]),
        (takes_an_object_in_a_list, ["takes_an_object_in_a_list", "things", "object"]),
        (takes_what_nobody_knows, ["takes_what_nobody_knows", "Nowhere"]),
    ]
    for function, words in functions:
        with pytest.raises(TypeError) as caught:
            tool(function)
        for word in words:
            assert word in str(caught.value)


def test_the_error_gives_no_advice_that_the_author_of_a_tool_cannot_follow() -> None:
    for function in (takes_a_complex_number, takes_a_function, takes_an_object_in_a_list):
        with pytest.raises(TypeError) as caught:
            tool(function)
        assert "schema_hook" not in str(caught.value)
