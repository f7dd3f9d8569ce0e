"""From a conversation to the text that a model goes on with, and the grammar of what it may write.

Owns the words of the prompt: how tools are shown, how calls and results read, the internal `answer` call through which
a model that always calls something speaks. The chat format is that of ChatML models (Qwen, SmolLM2 and many more);
other models get the same words through their own template. What gives way in a full window is in `window`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from swink_agent.core.stream import StreamOptions
from swink_agent.core.tool import AgentTool
from swink_agent.core.types import (
    AgentContext,
    AssistantMessage,
    Image,
    LlmMessage,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    extract_text,
)
from swink_agent.core.value import Value

from ._reply import ANSWER, CALL_END, CALL_START
from .grammar import Grammar, literal

__all__ = ["Choice", "ShownTool", "Turn", "choice_of", "plain", "render_chatml", "shown", "tools_text", "turns"]

_THINKS = "<think>"
_LONGEST_SENTENCE = 160
_MOST_SIGNATURES = 1_200
_NOISE = frozenset(
    {
        "title",
        "default",
        "examples",
        "$schema",
        "additionalProperties",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
    }
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
_EXAMPLES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("How many lines does notes.txt have?", "bash", {"command": "wc -l notes.txt"}),
    ("How many files are in the folder img?", "bash", {"command": "ls img | wc -l"}),
    ("Move a.png into the folder old.", "bash", {"command": "mv a.png old/"}),
    ("What is in this folder?", "list_dir", {"path": "."}),
    ("Which file defines the class Item?", "search", {"pattern": "class Item"}),
    ("Which .md files are there?", "search", {"glob": "**/*.md"}),
    ("What does a.txt say?", "read_file", {"path": "a.txt"}),
    ("What do the prices in p.txt add up to?", "bash", {"command": "awk '{s+=$1} END {print s}' p.txt"}),
    ("Set color to blue in ui.ini.", "read_file", {"path": "ui.ini"}),
    (
        "Now that ui.ini was seen to say color = red",
        "edit_file",
        {"path": "ui.ini", "edits": [{"old": "color = red", "new": "color = blue"}]},
    ),
)
"""What the built-in tools are for, for models that learn it from a few cases rather than from descriptions."""
_ANSWER_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_ANSWER_DESCRIPTION = "Give the final answer to the user, when the work is done or needs no function."
_AFTER_SUCCESS = "Is something still to be changed, run or looked up? Then make that call now. If not, call answer."
_AFTER_FAILURE = "That failed. Try another way."


# -- what the model sees of the tools ------------------------------------------------------------------------


class ShownTool(Value, frozen=True):
    """A tool as it is shown to the model and as its calls are decoded: what `schema` accepts, the tool's own does."""

    name: str
    description: str
    schema: dict[str, Any]


def shown(tools: Sequence[AgentTool], *, is_brief: bool) -> list[ShownTool]:
    """The tools. In brief, for small models: one sentence each, and no optional parameters where required ones are."""
    if not is_brief:
        return [ShownTool(tool.name, tool.description, tool.parameters_schema) for tool in tools]
    return [ShownTool(tool.name, _sentence(tool.description), _brief(tool.parameters_schema)) for tool in tools]


def _sentence(text: str) -> str:
    """The first sentence, or as much of it as says what the tool is for."""
    first = re.split(r"(?<=[.!?])\s", text.strip(), maxsplit=1)[0]
    first = re.match(r"(?:\([^)]*\)|[^(,:;]){20,}", first + " " * 20)
    return text[:_LONGEST_SENTENCE] if first is None else first[0].strip()[:_LONGEST_SENTENCE]


def _brief(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its required properties; if it has none, with exactly one of its optional strings.

    A small model fills in whatever it is offered, so that an optional filter hides what it looks for.
    """
    properties = cast("dict[str, Any]", schema.get("properties") or {})
    required = cast("list[str]", schema.get("required") or [])
    if set(schema) - {"type", "properties", "required", "additionalProperties", "title", "description", "$defs"}:
        return schema
    if required:
        return {
            **schema,
            "properties": {name: _brief_items(properties[name]) for name in properties if name in required},
        }
    strings = [name for name, value in properties.items() if value.get("type") == "string"]
    if not strings:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("properties", "required")}
    return {**rest, "anyOf": [{"properties": {name: properties[name]}, "required": [name]} for name in strings]}


def _brief_items(schema: dict[str, Any]) -> dict[str, Any]:
    items = schema.get("items")
    if (
        schema.get("type") != "array"
        or not isinstance(items, dict)
        or not cast("dict[str, Any]", items).get("required")
    ):
        return schema
    return {**schema, "items": _brief(cast("dict[str, Any]", items))}


# -- which replies there can be ------------------------------------------------------------------------------


class Choice(Value, frozen=True):
    """What the model may do in one reply."""

    grammar: str = ""
    """Empty: plain text."""
    is_exact: bool = True
    """Whether whatever the grammar lets through is valid against the tools' schemas."""
    start: str = ""
    """What the reply begins with; it is put into the model's mouth."""

    @property
    def is_call(self) -> bool:
        return bool(self.grammar)


def choice_of(
    context: AgentContext,
    tools: Sequence[ShownTool],
    options: StreamOptions,
    *,
    thinks: bool = False,
    is_thinking: bool = False,
) -> Choice:
    """The choice for this turn: text only without tools, a call of the ones allowed, or of `answer`, with them."""
    silence = f"{_THINKS}\n\n</think>\n\n" if thinks and not is_thinking else ""
    if not tools or options.tool_choice == "none":
        return Choice(start=silence)
    if options.tool_choice not in ("auto", "required"):
        tools = [tool for tool in tools if tool.name == options.tool_choice] or tools
    grammar = Grammar()
    used = _calls_not_to_repeat(context)
    if options.tool_choice == "auto":
        stuck = _stuck_tool(context)
        tools = [tool for tool in tools if tool.name != stuck]
    calls = [_call_rule(grammar, tool, [call.arguments for call in used if call.name == tool.name]) for tool in tools]
    if options.tool_choice == "auto":
        calls.append(
            f"{literal(_head(ANSWER) + msgspec.json.encode('text').decode().join(('{', ': ')))} "
            f"{grammar.primitive('json-string')} {literal('}')}"
        )
    call = f"({' | '.join(calls)}) {literal('}' + CALL_END)}"
    if thinks and is_thinking:
        grammar.add("thought", '([^<] | "<" [^/] | "</" [^t])*')
        grammar.add("root", f"{literal(_THINKS)} thought {literal('</think>')} [\\n]* {literal(CALL_START)} {call}")
        return Choice(grammar.text(), grammar.is_exact)
    grammar.add("root", call)
    return Choice(grammar.text(), grammar.is_exact, silence + CALL_START)


def _call_rule(grammar: Grammar, tool: ShownTool, excluding: Sequence[Mapping[str, Any]]) -> str:
    return f"{literal(_head(tool.name))} {grammar.schema(tool.schema, excluding=excluding)}"


def _head(name: str) -> str:
    """A call up to its arguments."""
    return f'{{"name": {_json(name)}, "arguments": '


def _calls_not_to_repeat(context: AgentContext) -> list[ToolCall]:
    """The last call, and those made more than once since the user spoke: small models go in circles."""
    made: list[ToolCall] = []
    for message in reversed(context.messages):
        if type(message) is UserMessage:
            break
        if type(message) is AssistantMessage:
            made.extend(message.tool_calls)
    keys = [(call.name, _json(call.arguments)) for call in made]
    return [call for call, key in zip(made, keys, strict=True) if key == keys[0] or keys.count(key) > 1]


_CONTROL = re.compile(
    r"<(?=\|)|<(?=/?(?:s|unk|pad|bos|eos|think|tools?|tool_call|tool_response|start_of_turn|end_of_turn)>)|\[(?=/?INST\])"
)


def plain(text: str) -> str:
    """Text in which nothing is a control token: a file cannot end its own message and speak as somebody else."""
    return _CONTROL.sub(lambda found: f"{found[0]} ", text)


def _stuck_tool(context: AgentContext) -> str:
    """The tool of the last two calls, if both failed: a third try of a small model is no better."""
    failed: list[str] = []
    for message in reversed(context.messages):
        if type(message) is UserMessage or len(failed) == 2:
            break
        if type(message) is ToolResultMessage:
            if not message.is_error:
                return ""
            failed.append(message.tool_name)
    return failed[0] if len(failed) == 2 and failed[0] == failed[1] else ""


# -- words ---------------------------------------------------------------------------------------------------


class Turn(Value, frozen=True):
    """What stays or goes as a whole: one message, or a call with its results. Each text has its role."""

    texts: tuple[tuple[str, str], ...]
    is_request: bool = False
    """Whether it is what the user asked last, without which the rest means nothing."""

    @property
    def length(self) -> int:
        return sum(len(text) for _, text in self.texts)


def tools_text(tools: Sequence[ShownTool], *, is_brief: bool = False) -> str:
    """The tools as the model was trained to see them: the same text for the same tools, at every turn and start.

    In brief, a list that would be long has an outline of each tool's parameters instead of their schema.
    """
    offered = [*tools, ShownTool(ANSWER, _ANSWER_DESCRIPTION, _ANSWER_SCHEMA)]
    lines = [_signature(tool, _NOISE) for tool in offered]
    if sum(map(len, lines)) > _MOST_SIGNATURES:
        lines = [_outline(tool) if is_brief else _signature(tool, _NOISE | {"description"}) for tool in offered]
    return _INTRODUCTION + "\n".join(lines) + _FORMAT + (_examples(tools) if is_brief else "")


def _outline(tool: ShownTool) -> str:
    parameters = {name: _kind(value) for name, value in _properties(tool.schema).items()}
    return _json({"name": tool.name, "description": tool.description, "arguments": parameters})


def _kind(schema: Any) -> Any:
    """What a value looks like, in as few words as can be."""
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
    if "enum" in fields:
        return " | ".join(_json(value) for value in fields["enum"])
    if fields.get("type") == "array":
        return [_kind(fields.get("items"))]
    if fields.get("properties"):
        return {name: _kind(value) for name, value in fields["properties"].items()}
    return fields.get("type") or "any"


def _examples(tools: Sequence[ShownTool]) -> str:
    """Cases for those of the tools that are known here."""
    offered = {tool.name: set(_properties(tool.schema)) for tool in tools}
    lines = [
        f"{request} -> {_head(name)}{_json(arguments)}}}"
        for request, name, arguments in _EXAMPLES
        if set(arguments) <= offered.get(name, set())
    ]
    return "\n\nExamples:\n" + "\n".join(lines) if lines else ""


def _properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    """All properties that a shown schema names, in whichever of its alternatives."""
    found: dict[str, Any] = dict(cast("dict[str, Any]", schema.get("properties") or {}))
    for option in cast("list[dict[str, Any]]", schema.get("anyOf") or []):
        found.update(option.get("properties") or {})
    return found


def _signature(tool: ShownTool, noise: frozenset[str]) -> str:
    schema = tool.schema
    if "anyOf" in schema and "properties" not in schema:
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        schema = {**rest, "properties": _properties(schema)}
    function = {"name": tool.name, "description": tool.description, "parameters": _compact(schema, noise)}
    return _json({"type": "function", "function": function})


def _compact(schema: Any, noise: frozenset[str]) -> Any:
    """A schema without what a model does not need in order to write a call; the grammar holds the rest."""
    if isinstance(schema, Mapping):
        fields = cast("Mapping[str, Any]", schema)
        return {
            # Names of properties are not keywords, whatever they are.
            key: {name: _compact(value, noise) for name, value in cast("dict[str, Any]", item).items()}
            if key in ("properties", "$defs") and isinstance(item, Mapping)
            else _compact(item, noise)
            for key, item in fields.items()
            if key not in noise
        }
    if isinstance(schema, list):
        return [_compact(item, noise) for item in cast("list[Any]", schema)]
    return schema


def turns(messages: Sequence[LlmMessage], *, with_tools: bool, result_characters: int) -> list[Turn]:
    """The conversation, a call together with its results."""
    found: list[Turn] = []
    for message in messages:
        match message:
            case UserMessage():
                found.append(Turn((("user", _said(message)),), is_request=True))
            case AssistantMessage():
                if text := _spoken(message, with_tools=with_tools):
                    found.append(Turn((("assistant", text),)))
            case ToolResultMessage():
                text = _result(message, result_characters, with_tools=with_tools)
                if found and not found[-1].is_request:
                    found[-1] = Turn((*found[-1].texts, ("user", text)))
    requests = [turn for turn in found if turn.is_request]
    return [Turn(turn.texts, is_request=bool(requests) and turn is requests[-1]) for turn in found]


def _said(message: UserMessage) -> str:
    text = plain(extract_text(message.content))
    images = sum(type(block) is Image for block in message.content)
    return text + f"\n({images} image{'s' * (images > 1)}, which you cannot see)" if images else text


def _spoken(message: AssistantMessage, *, with_tools: bool) -> str:
    """An assistant's message the way this model would have written it, so that what it wrote is read from the cache."""
    calls = [f"{CALL_START}{_head(call.name)}{plain(_json(call.arguments))}}}{CALL_END}" for call in message.tool_calls]
    text = plain(message.text)
    if not text.strip():
        return "\n".join(calls)
    if not with_tools or calls:
        return "\n".join([text, *calls])
    return f"{CALL_START}{_head(ANSWER)}{_json({'text': text})}}}{CALL_END}"


def _result(message: ToolResultMessage, most: int, *, with_tools: bool) -> str:
    text = plain(extract_text(message.content).strip())
    if any(type(block) is Image for block in message.content):
        text += "\n(an image, which you cannot see)"
    text = _shortened(text or "(no output)", most)
    hint = (_AFTER_FAILURE if message.is_error else _AFTER_SUCCESS) if with_tools else ""
    return f"<tool_response>\n{text}\n</tool_response>" + (f"\n{hint}" if hint else "")


def _shortened(text: str, most: int) -> str:
    """The beginning and the end of a long text: prompts are read slowly, and a small model loses its way in them."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most - most * 2 // 3
    return f"{text[:head]}\n… ({len(text) - most} characters left out) …\n{text[-tail:]}"


def render_chatml(system: str, conversation: Sequence[Turn]) -> str:
    """The prompt up to where the assistant speaks."""
    parts = [f"<|im_start|>system\n{system}<|im_end|>\n"] if system else []
    for turn in conversation:
        parts += [f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turn.texts]
    return "".join(parts) + "<|im_start|>assistant\n"


def _json(value: Any) -> str:
    """JSON with the spaces that models write, and that the grammar asks for."""
    return _spaced(value)


def _spaced(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return "{" + ", ".join(f"{_spaced(key)}: {_spaced(item)}" for key, item in pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_spaced(item) for item in cast("Sequence[Any]", value)) + "]"
    return msgspec.json.encode(value).decode()
