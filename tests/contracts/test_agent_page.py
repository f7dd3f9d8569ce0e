"""docs/agent.md has every parameter, method and property of `Agent`, with the right signature and an example."""

from __future__ import annotations

import ast
import inspect
import re
from enum import Enum

import msgspec

from swink_agent import Agent, StreamOptions

from .documents import ROOT, blocks_of

PAGE = ROOT / "docs/agent.md"
EXAMPLES = "\n".join(block.code for block in blocks_of(PAGE) if block.language == "python")


def rows(first_heading: str) -> list[tuple[str, str, str]]:
    """Returns the rows of all tables with this first heading, without the code marks of their first two cells."""
    found: list[tuple[str, str, str]] = []
    table = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("|") else []
        if not cells:
            table = ""
        elif not table:
            table = cells[0].strip("` |")
        elif table == first_heading and not set(line) <= set("|-"):
            found.append((cells[0].strip("` "), cells[1].strip("` ") if len(cells) > 2 else "", cells[-1]))
    return found


def public(kind: type | tuple[type, ...] = object) -> dict[str, object]:
    members = {name: inspect.getattr_static(Agent, name) for name in dir(Agent) if not name.startswith("_")}
    return {name: member for name, member in members.items() if isinstance(member, kind)}


def test_every_parameter_is_on_the_page_with_its_default() -> None:
    shown = {name: default for name, default, _ in rows("Parameter")}
    parameters = inspect.signature(Agent).parameters
    assert sorted(shown) == sorted(parameters)
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty:
            assert shown[name] == "required"
        else:
            said = ast.literal_eval(shown[name])
            said = type(parameter.default)(said) if isinstance(parameter.default, Enum) else said  # by any of its names
            assert said == parameter.default, f"the default of {name}"


def test_every_parameter_is_used_in_an_example() -> None:
    calls = [node for node in ast.walk(ast.parse(EXAMPLES)) if isinstance(node, ast.Call)]
    made = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Agent"]
    given = {keyword.arg for call in made for keyword in call.keywords} | {"model"}
    assert given == set(inspect.signature(Agent).parameters)


def test_every_method_is_on_the_page_as_it_is_called() -> None:
    def as_called(name: str, method: object) -> str:
        parameters = [
            parameter.replace(annotation=inspect.Parameter.empty)
            for parameter in list(inspect.signature(method).parameters.values())[1:]  # type: ignore[arg-type]
        ]
        awaited = "await " if inspect.iscoroutinefunction(method) else ""
        return f"{awaited}{name}{inspect.Signature(parameters)}"

    methods = {name: member for name, member in public().items() if inspect.isfunction(member)}
    assert sorted(row[0] for row in rows("Method")) == sorted(as_called(*item) for item in methods.items())
    unused = [name for name in methods if not re.search(rf"\.{name}\(", EXAMPLES)]
    assert not unused, f"no example calls {unused}"


def test_every_property_is_on_the_page_and_says_whether_it_can_be_assigned() -> None:
    properties = {
        name: "no" if isinstance(member, property) and member.fset is None else "yes"
        for name, member in public().items()
        if not inspect.isfunction(member)
    }
    assert {name: assigned for name, assigned, _ in rows("Property")} == properties
    unused = [name for name in properties if not re.search(rf"agent\.{name}\b", EXAMPLES)]
    assert not unused, f"no example looks at {unused}"


def test_the_stream_options_are_on_the_page_with_their_defaults() -> None:
    defaults = {field.name: field.default for field in msgspec.structs.fields(StreamOptions)}
    made = StreamOptions()
    shown = {name: ast.literal_eval(default) for name, default, _ in rows("StreamOptions")}
    assert shown == {name: getattr(made, name) for name in defaults if name != "transport"}
