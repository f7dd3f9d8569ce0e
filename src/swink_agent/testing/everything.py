"""A model that calls every tool once: a quick check that an agent and its tools fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, cast

from swink_agent.core.schemas.validation import compile_schema, describe_problems
from swink_agent.core.types import AssistantMessage, OfferedTool, UserMessage

from .script import Call, ModelRequest, ReplyParts, ScriptedStream, call, scripted

_ANSWER = "final_answer"  # the tool by which a model gives a structured value: it ends the run, so it comes last
_MOST_TRIED = 200
_TEXTS = (
    *("a", "0", "A", "a1", "A1", "abc", "ABC", "1.0", "a-b", "a_b", "a.b", "a/b", "#a", "a@example.org", "+1 555 0100"),
    *("2026-01-01", "12:00:00Z", "2026-01-01T12:00:00Z", "P1D", "https://example.org", "127.0.0.1", "::1"),
    *("12345678-1234-4234-8234-123456789abc", "example.org", "/a", "000000", "AAAAAA", "AB12CD34"),
)
"""Texts of the usual formats and of simple patterns."""


def calls_everything() -> ScriptedStream:
    """Makes a scripted model that calls every tool once, with arguments that fit its schema, and then answers.

    It has no memory: any number of runs may use it. Tools that were called since the last prompt are not called again.
    If it finds no arguments that fit, as for a rare pattern, the run ends with an error that names the tool.
    """
    return scripted(_next_reply)


def _next_reply(request: ModelRequest) -> ReplyParts:
    called: set[str] = set()
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            break
        if isinstance(message, AssistantMessage):
            called.update(each.name for each in message.tool_calls)
    waiting = [tool for tool in request.tools if tool.name not in called]
    others = [tool for tool in waiting if tool.name != _ANSWER]
    if waiting:
        return [_called(tool) for tool in others or waiting]
    return f"called {', '.join(tool.name for tool in request.tools)}" if request.tools else "there are no tools"


def _called(tool: OfferedTool) -> Call:
    schema = dict(tool.parameters_schema)
    arguments = next(_fitting(schema), None)
    if not isinstance(arguments, dict):
        raise ValueError(f"calls_everything() finds no arguments for {tool.name}: script this call, by call(…)")
    return call(tool.name, **cast("dict[str, Any]", arguments))


def _fitting(schema: dict[str, Any]) -> Iterator[Any]:
    validator = compile_schema(schema)
    for number, value in enumerate(_values(schema, schema, 0)):
        if not describe_problems(validator, value):
            yield value
        if number > _MOST_TRIED:
            return


def _values(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[Any]:
    """Yields values that probably fit, the simplest first."""
    if not isinstance(schema, Mapping) or depth > 12:
        yield {}
        return
    given = cast("Mapping[str, Any]", schema)
    if "$ref" in given:
        beside = {name: value for name, value in given.items() if name != "$ref"}
        yield from _values({**_referred(given["$ref"], root), **beside}, root, depth + 1)
        return
    if "const" in given:
        yield given["const"]
        return
    yield from given.get("enum", ())
    if "default" in given:
        yield given["default"]
    yield from given.get("examples", ())
    for word in ("anyOf", "oneOf"):
        rest = {name: value for name, value in given.items() if name != word}
        for choice in given.get(word, ()):
            yield from _values({**rest, **choice}, root, depth + 1)
    if "allOf" in given:
        merged: dict[str, Any] = {name: value for name, value in given.items() if name != "allOf"}
        for part in given["allOf"]:
            merged |= _referred(part["$ref"], root) if "$ref" in part else part
        yield from _values(merged, root, depth + 1)
        return
    kinds = given.get("type", "object" if "properties" in given else "string")
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        yield from _of_kind(kind, given, root, depth)


def _of_kind(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[Any]:
    match kind:
        case "object":
            names: Sequence[str] = schema.get("required", ())
            known: Mapping[str, Any] = schema.get("properties", {})
            choices = [_some(_values(known.get(name, {}), root, depth + 1), 30) for name in names]
            for values in product(*choices):
                yield dict(zip(names, values, strict=True))
        case "array":
            least = schema.get("minItems", 0)
            prefix: Sequence[Any] = schema.get("prefixItems", ())
            items = [*prefix, *[schema.get("items", {})] * max(0, least - len(prefix))]
            for values in product(*[_some(_values(item, root, depth + 1), 30) for item in items]):
                yield list(values)
        case "string":
            least, most = schema.get("minLength", 0), schema.get("maxLength")
            for sample in _TEXTS:
                yield sample.ljust(least, sample[-1])[:most]
        case "integer" | "number":
            yield from _numbers(schema, 1 if kind == "integer" else 0.5)
        case "boolean":
            yield False
        case _:
            yield None


def _numbers(schema: Mapping[str, Any], step: float) -> Iterator[float]:
    least, most = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    by = schema.get("multipleOf", step)
    for bound, sign in ((least, 1), (above, 1), (most, -1), (below, -1)):
        if bound is not None:
            first = bound // by * by
            yield from (bound, first, first + sign * by)
            if above is not None and below is not None:
                yield (above + below) / 2
    yield from (0, by)


def _some(values: Iterator[Any], most: int) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
        if len(found) == most:
            break
    return found


def _referred(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")] if part else found
    return found
