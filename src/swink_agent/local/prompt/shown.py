"""Describes tools to a model on this machine, which reads slowly: a signature and one sentence each.

Has the brief form of a tool and the text around the list. Every user waits while the model reads this text at the first
start: `python -m bench.local_start` measures the cost of a change, `python -m bench.ability` its benefit. `text`
decides which calls a reply may make.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from swink_agent.core.types import OfferedTool
from swink_agent.core.values.value import Value

from .reply import ANSWER

_LONGEST_SENTENCE = 160
_LONGEST_READ = 1_000  # characters of a description: a tool of a server may have any
_LONGEST_LIST = 1_200
_NOISE = frozenset({"title", "default", "examples", "$schema", "additionalProperties"}).union(
    {"minItems", "maxItems", "minLength", "maxLength"}
)
_INTRODUCTION = """\
# Tools

You may call one function at a time to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
"""
_FORMAT = """
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
_BRIEF_INTRODUCTION = """\
# Tools

Every reply is one call: {"name": <function>, "arguments": <object>}. Functions:
"""
_EXAMPLES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "How many lines does notes.txt have?": [("bash", {"command": "wc -l notes.txt"})],
    "How many files are in the folder img?": [("bash", {"command": "ls img | wc -l"})],
    "Move a.png into the folder old.": [("bash", {"command": "mv a.png old/"})],
    "Add the line figs to list.txt.": [("bash", {"command": "echo figs >> list.txt"})],
    "What do the prices in p.csv add up to?": [
        ("read_file", {"path": "p.csv"}),
        ("bash", {"command": "awk -F, '{s+=$2} END {print s}' p.csv"}),
    ],
    "What is in the folder img?": [("list_dir", {"path": "img"})],
    "What does a.txt say?": [("read_file", {"path": "a.txt"})],
    "Which files mention Oslo?": [("search", {"pattern": "Oslo"})],
    "Which .md files are in this folder?": [("search", {"glob": "**/*.md"})],
    "Set color to blue in ui.ini.": [
        ("read_file", {"path": "ui.ini"}),
        ("edit_file", {"path": "ui.ini", "edits": [{"old": "color = red", "new": "color = blue"}]}),
    ],
}
"""Uses of the built-in tools: small models learn more from examples than from descriptions."""
_ANSWER_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_ANSWER_DESCRIPTION = "Give the final answer to the user, when the work is done or needs no function."
_ANY_CASE = "ignore_case"
_NAMED = re.compile(r"`(\w+)`|\b(?:set|with|give) (\w+)\b|\b(\w+_\w+)\b")
"""Forms in which an error message refers to a parameter; a bare name may be an ordinary word."""
_DEFAULTED = re.compile(r"\b(?:unless given|default)\b", re.IGNORECASE)


class ShownTool(Value, frozen=True):
    """A tool as the model sees it. Its calls must fit `schema`; the tool's own schema accepts them too."""

    name: str
    description: str
    schema: dict[str, Any]


# -- the brief form ------------------------------------------------------------------------------------------


def shown(tools: Sequence[OfferedTool], *, is_brief: bool, mentioned: str = "") -> list[ShownTool]:
    """The tools for the model. With `is_brief`, for small models, each has one sentence, and no optional parameters if
    it has required ones.

    Optional parameters that `mentioned`, the error of the last call, refers to are shown too.
    """
    if not is_brief:
        return [ShownTool(tool.name, tool.description, tool.parameters_schema) for tool in tools]
    words = frozenset(name for found in _NAMED.findall(mentioned) for name in found)
    return [ShownTool(tool.name, _sentence(tool.description), _brief(tool.parameters_schema, words)) for tool in tools]


def _sentence(text: str) -> str:
    """The first sentence up to a comma, with parentheses shortened to a name."""
    first = re.split(r"(?<=[.!?])\s", text.strip()[:_LONGEST_READ], maxsplit=1)[0]
    first = re.sub(r"\(([^),:;]*)(?:[,:;][^)]*)?\)", r"(\1)", first)
    first = re.match(r"[^,:;]{15,}", first + " " * 15)
    return text[:_LONGEST_SENTENCE] if first is None else first[0].strip()[:_LONGEST_SENTENCE]


def _brief(schema: dict[str, Any], words: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The schema with its required properties; if it has none, with exactly one of its optional strings.

    A small model fills in every parameter that it is offered, and an optional filter may then hide the results. A
    string with a default usually tells where or how to look, not what to look for: it is offered only if there is no
    other.
    """
    properties = cast("dict[str, Any]", schema.get("properties") or {})
    required = cast("list[str]", schema.get("required") or [])
    if set(schema) - {"type", "properties", "required", "additionalProperties", "title", "description", "$defs"}:
        return schema
    if required:
        kept = [name for name in properties if name in required or name in words]
        return {**schema, "properties": {name: _brief_items(properties[name], words) for name in kept}}
    strings = [name for name, value in properties.items() if value.get("type") == "string"]
    strings = [name for name in strings if not _has_default(properties[name])] or strings
    if not strings:
        return schema
    rest = {
        key: value for key, value in schema.items() if key not in ("properties", "required", "additionalProperties")
    }
    return {**rest, "anyOf": [_alone(name, properties) for name in strings]}  # undeclared properties are never written


def _alone(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of this one string, with a case-insensitive search if possible: `port` should find `PORT`."""
    any_case = properties.get(_ANY_CASE)
    if not isinstance(any_case, dict) or name not in str(cast("dict[str, Any]", any_case).get("description")):
        return {"properties": {name: properties[name]}, "required": [name]}
    return {"properties": {name: properties[name], _ANY_CASE: {"const": True}}, "required": [name, _ANY_CASE]}


def _has_default(schema: dict[str, Any]) -> bool:
    return "default" in schema or _DEFAULTED.search(str(schema.get("description", ""))) is not None


def _brief_items(schema: dict[str, Any], words: frozenset[str]) -> dict[str, Any]:
    items = schema.get("items")
    required = cast("dict[str, Any]", items).get("required") if isinstance(items, dict) else None
    if schema.get("type") != "array" or not required:
        return schema
    return {**schema, "items": _brief(cast("dict[str, Any]", items), words)}


# -- the text ------------------------------------------------------------------------------------------------


def tools_text(tools: Sequence[ShownTool], *, is_brief: bool = False) -> str:
    """Describes the tools and how to call them: always the same text for the same tools.

    With `is_brief`, each is a line, `name(parameters): what it does`, with examples for the built-in ones. Else each is
    a schema, as in the training of models, without the parameters' descriptions if the list would be long.
    """
    offered = [*tools, ShownTool(ANSWER, _ANSWER_DESCRIPTION, _ANSWER_SCHEMA)]
    if is_brief:
        return _BRIEF_INTRODUCTION + "\n".join(map(_line, offered)) + _examples(tools)
    lines = [_signature(tool, _NOISE) for tool in offered]
    if sum(map(len, lines)) > _LONGEST_LIST:
        lines = [_signature(tool, _NOISE | {"description"}) for tool in offered]
    return _INTRODUCTION + "\n".join(lines) + _FORMAT


def _line(tool: ShownTool) -> str:
    parameters = [_parameter(name, value) for name, value in _properties(tool.schema).items()]
    between = " or " if "anyOf" in tool.schema else ", "
    return f"{tool.name}({between.join(parameters)}): {tool.description}"


def _parameter(name: str, schema: Any) -> str:
    """A parameter with its type, unless that is a string."""
    kind = _kind(schema)
    return name if kind == "string" else f"{name}: {kind}"


def _kind(schema: Any) -> str:
    """The shape of a value, in few words."""
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
    if "enum" in fields:
        return " | ".join(spaced_json(value) for value in fields["enum"])
    if fields.get("type") == "array":
        return f"[{_kind(fields.get('items'))}]"
    if fields.get("properties"):
        return "{" + ", ".join([_parameter(name, value) for name, value in fields["properties"].items()]) + "}"
    options = cast("list[Any]", fields.get("anyOf") or [])
    if options:
        return " | ".join(dict.fromkeys([_kind(option) for option in options]))
    kind = fields.get("type") or "any"
    return " | ".join(cast("list[str]", kind)) if isinstance(kind, list) else kind


def _examples(tools: Sequence[ShownTool]) -> str:
    offered = {tool.name: set(_properties(tool.schema)) for tool in tools}
    lines = [
        f"{request} -> {' then '.join([f'{name} {spaced_json(arguments)}' for name, arguments in calls])}"
        for request, calls in _EXAMPLES.items()
        if all(set(arguments) <= offered.get(name, set()) for name, arguments in calls)
    ]
    return "\n\nExamples:\n" + "\n".join(lines) if lines else ""


def _properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    """All properties of a schema and its alternatives, without constants."""
    found: dict[str, Any] = dict(cast("dict[str, Any]", schema.get("properties") or {}))
    for option in cast("list[dict[str, Any]]", schema.get("anyOf") or []):
        found.update(option.get("properties") or {})
    return {name: value for name, value in found.items() if "const" not in value}


def _signature(tool: ShownTool, noise: frozenset[str]) -> str:
    schema = tool.schema
    if "anyOf" in schema and "properties" not in schema:
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        schema = {**rest, "properties": _properties(schema)}
    function = {"name": tool.name, "description": tool.description, "parameters": _compact(schema, noise)}
    return spaced_json({"type": "function", "function": function})


def _compact(schema: Any, noise: frozenset[str]) -> Any:
    """A schema with only the keywords that the model needs to write a call; the grammar enforces the rest."""
    if isinstance(schema, Mapping):
        fields = cast("Mapping[str, Any]", schema)
        return {
            # A property may be called like a keyword.
            key: {name: _compact(value, noise) for name, value in cast("dict[str, Any]", item).items()}
            if key in ("properties", "$defs") and isinstance(item, Mapping)
            else _compact(item, noise)
            for key, item in fields.items()
            if key not in noise
        }
    if isinstance(schema, list):
        return [_compact(item, noise) for item in cast("list[Any]", schema)]
    return schema


def call_head(name: str) -> str:
    """The beginning of a call, up to its arguments."""
    return f'{{"name": {spaced_json(name)}, "arguments": '


def spaced_json(value: Any) -> str:
    """JSON with the spaces that models write and the grammar requires."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return "{" + ", ".join(f"{spaced_json(key)}: {spaced_json(item)}" for key, item in pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(spaced_json(item) for item in cast("Sequence[Any]", value)) + "]"
    return msgspec.json.encode(value).decode()
