"""The fakes of providers: each rule of each validator, and servers that answer plain HTTP in the right format."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.core.types import StopReason, Usage
from swink_agent.testing.fakes import (
    APIS,
    FakeFailure,
    FakeProvider,
    FakeReply,
    anthropic,
    azure,
    bedrock,
    gemini,
    mistral,
    ollama,
    openai,
    openai_responses,
    xai,
)
from swink_agent.testing.fakes._sigv4 import signature_problem
from swink_agent.testing.fakes.kit.replies import sign
from swink_agent.testing.servers import LoopbackServer, ReceivedRequest

Body = dict[str, Any]
PIXEL = "iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Rule(NamedTuple):
    """One rule: what follows it passes, what breaks it is rejected with words that say so."""

    name: str
    bad: Body
    says: str
    good: Body | None = None
    """By default the same as for the other rules of the provider."""


def changed(body: Body, **fields: Any) -> Body:
    """The body with other fields; those that are `...` are left out."""
    return {name: value for name, value in {**copy.deepcopy(body), **fields}.items() if value is not ...}


def check(problems: Callable[[Body], list[str]], table: list[Rule], good: Body) -> None:
    for rule in table:
        assert problems(rule.good or good) == [], rule.name
        found = problems(rule.bad)
        assert any(rule.says in problem for problem in found), (rule.name, found)


def rules(*table: Rule) -> Any:
    """The rules of a test, in one table: hundreds of tests of a microsecond each would take a minute."""
    assert len({rule.name for rule in table}) == len(table)
    return pytest.mark.parametrize("table", [list(table)], ids=["rules"])


# -- Anthropic -----------------------------------------------------------------------------------------------


def user(*blocks: Any) -> Body:
    return {"role": "user", "content": [_text(block) for block in blocks]}


def assistant(*blocks: Any) -> Body:
    return {"role": "assistant", "content": [_text(block) for block in blocks]}


def _text(block: Any) -> Any:
    return {"type": "text", "text": block} if isinstance(block, str) else block


def use(call_id: str = "toolu_1", **more: Any) -> Body:
    return {"type": "tool_use", "id": call_id, "name": "weather", "input": {"city": "Bonn"}, **more}


def result(call_id: str = "toolu_1", **more: Any) -> Body:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "rain", **more}


def thought(text: str = "Hm.", signature: str | None = None) -> Body:
    return {"type": "thinking", "thinking": text, "signature": signature or sign("claude", text)}


PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
MARK = {"type": "ephemeral"}
CLAUDE = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 4096,
    "stream": True,
    "system": [{"type": "text", "text": "Be brief."}],
    "tools": [{"name": "weather", "description": "Tells it.", "input_schema": SCHEMA}],
    "messages": [user("Hi")],
}
THINKING = {"type": "enabled", "budget_tokens": 2048}
CLAUDE_TURN = changed(CLAUDE, messages=[user("Rain?"), assistant("Let me see.", use()), user(result())])


STRICT = {**SCHEMA, "additionalProperties": False}
_STRINGS = {"type": "array", "items": {"type": "string"}}


def claude_replying(schema: Body, model: str = "claude-sonnet-4-5") -> Body:
    """A request whose reply is held to a schema."""
    return changed(CLAUDE, model=model, output_config={"format": {"type": "json_schema", "schema": schema}})


def claude(*messages: Body, **fields: Any) -> Body:
    return changed(CLAUDE, messages=list(messages), **fields)


@rules(
    Rule("unknown fields", changed(CLAUDE, response_format={}), "response_format: extra fields"),
    Rule("max_tokens is required", changed(CLAUDE, max_tokens=...), "max_tokens: this field is required"),
    Rule("types", changed(CLAUDE, max_tokens="many"), "max_tokens: expected an integer, got a string"),
    Rule("no messages", claude(), "at least one message"),
    Rule("messages are objects", claude("Hi"), "messages.0: expected an object"),  # type: ignore[arg-type]
    Rule("roles", claude({"role": "system", "content": "Hi"}), "neither user nor assistant"),
    Rule("fields of messages", claude({**user("Hi"), "id": "1"}), "messages.0.id: extra fields"),
    Rule("fields of blocks", claude(user({"type": "text", "text": "Hi", "id": "1"})), "content.0.id: extra"),
    Rule("types of blocks", claude(user({"type": "input_text", "text": "Hi"})), "not a type of content block"),
    Rule("a user begins", claude(assistant("Hi"), user("Hi")), "first", claude(user("Hi"), user("there"))),
    Rule("the last word", claude(user("a"), assistant("b")), "must end", claude(user("a"), assistant("b"), user("c"))),
    Rule("empty content", claude({"role": "user", "content": ""}), "non-empty content"),
    Rule("empty lists", claude(user()), "non-empty content"),
    Rule("empty text", claude(user("Hi", "")), "text content blocks must be non-empty"),
    Rule("blank text", claude(user(" ")), "non-whitespace", claude(user(" ", "Hi"))),
    Rule("blank strings", claude({"role": "user", "content": " "}), "non-whitespace"),
    Rule("empty system", changed(CLAUDE, system=[_text("")]), "must be non-empty", changed(CLAUDE, system="Be.")),
    Rule("results need calls", claude(user(result())), "answers no call"),
    Rule("calls need results", claude(user("a"), assistant(use()), user("b")), "without a result"),
    Rule(
        "results come right behind",
        claude(user("a"), assistant(use()), user("b"), assistant("c"), user(result())),
        "without a result directly after",
    ),
    Rule(
        "results come first",
        claude(user("a"), assistant(use()), user("b", result())),
        "come first",
        claude(user("a"), assistant(use()), user(result(), "b")),
    ),
    Rule("one result a call", claude(user("a"), assistant(use()), user(result(), result())), "more than one result"),
    Rule(
        "ids are unique",
        claude(user("a"), assistant(use("a"), use("a")), user(result("a"))),
        "not unique",
        claude(user("a"), assistant(use("a"), use("b")), user(result("b"), result("a"))),
    ),
    Rule(
        "the form of ids",
        claude(user("a"), assistant(use("functions.x:0")), user(result("functions.x:0"))),
        "must match ^[a-zA-Z0-9_-]+$",
    ),
    Rule("input is an object", claude(user("a"), assistant(use(input="{}")), user(result())), "an object"),
    Rule("names of calls", claude(user("a"), assistant(use(name="a b")), user(result())), "not a name"),
    Rule("places of blocks", claude(user(use()), user(result())), "is not allowed in a message of the user"),
    Rule(
        "foreign signatures",
        claude(user("a"), assistant(thought(signature="EqQBCgIY"), "b"), user("c")),
        "invalid signature",
        claude(user("a"), assistant(thought(), "b"), user("c")),
    ),
    Rule(
        "thinking is as it was signed",
        claude(user("a"), assistant({**thought(), "thinking": "Ha."}, "b"), user("c")),
        "invalid signature",
        claude(user("a"), assistant(thought(), "b"), user("c")),
    ),
    Rule(
        "missing signatures",
        claude(user("a"), assistant({"type": "thinking", "thinking": "Hm."}, "b"), user("c")),
        "the signature is required",
        claude(user("a"), assistant("b"), user("c")),
    ),
    Rule(
        "redacted thinking is issued here",
        claude(user("a"), assistant({"type": "redacted_thinking", "data": "x"}, "b"), user("c")),
        "not issued",
        claude(user("a"), assistant({"type": "redacted_thinking", "data": sign("claude", "redacted")}, "b"), user("c")),
    ),
    Rule(
        "thinking comes first while tools are used",
        changed(CLAUDE_TURN, thinking=THINKING),
        "must start with a thinking block",
        claude(user("a"), assistant(thought(), use()), user(result()), thinking=THINKING),
    ),
    Rule(
        "but not with adaptive thinking",
        changed(CLAUDE_TURN, thinking={"type": "adaptive"}),
        "'adaptive' is not supported by claude-sonnet-4-5",
        changed(CLAUDE_TURN, model="claude-sonnet-4-6", thinking={"type": "adaptive"}),
    ),
    Rule(
        "thinking is not disabled for Sonnet 5.5",
        changed(CLAUDE, model="claude-sonnet-5-5", thinking={"type": "disabled"}),
        "'disabled' is not one of enabled, adaptive, between_tools",
        changed(CLAUDE, model="claude-sonnet-5-5", thinking={"type": "between_tools"}),
    ),
    Rule(
        "no budget for the newest",
        changed(CLAUDE, model="claude-opus-4-7", thinking=THINKING),
        "'enabled' is not supported by claude-opus-4-7",
        changed(CLAUDE, thinking=THINKING),
    ),
    Rule(
        "the budget is below max_tokens",
        changed(CLAUDE, thinking=THINKING, max_tokens=2048),
        "must be greater than thinking.budget_tokens",
        changed(CLAUDE, thinking=THINKING),
    ),
    Rule(
        "the budget is not too small",
        changed(CLAUDE, thinking={"type": "enabled", "budget_tokens": 10}),
        "at least 1024",
        changed(CLAUDE, thinking=THINKING),
    ),
    Rule(
        "temperature and thinking",
        changed(CLAUDE, thinking=THINKING, temperature=0.2),
        "may only be 1",
        changed(CLAUDE, thinking=THINKING, temperature=1),
    ),
    Rule(
        "temperature and the newest",
        changed(CLAUDE, model="claude-opus-4-8", temperature=0.2),
        "temperature: not supported",
        changed(CLAUDE, temperature=0.2),
    ),
    Rule(
        "forced calls and thinking",
        changed(CLAUDE, thinking=THINKING, tool_choice={"type": "any"}),
        "when a call is forced",
        changed(CLAUDE, thinking=THINKING, tool_choice={"type": "auto"}),
    ),
    Rule("tools that were used are defined", changed(CLAUDE_TURN, tools=...), "must define tools"),
    Rule(
        "fields of tools",
        changed(CLAUDE, tools=[{"name": "a", "input_schema": SCHEMA, "parameters": {}}]),
        "tools.0.parameters: extra",
    ),
    Rule("schemas are required", changed(CLAUDE, tools=[{"name": "a"}]), "input_schema: this field is required"),
    Rule("schemas of objects", changed(CLAUDE, tools=[{"name": "a", "input_schema": {}}]), "of type 'object'"),
    Rule(
        "no choices at the top of a schema",
        changed(CLAUDE, tools=[{"name": "a", "input_schema": {"type": "object", "anyOf": []}}]),
        "anyOf is not supported",
    ),
    Rule(
        "keys of schemas",
        changed(CLAUDE, tools=[{"name": "a", "input_schema": {"type": "object", "properties": {"ä": {}}}}]),
        "the key 'ä'",
    ),
    Rule("names of tools", changed(CLAUDE, tools=[{"name": "a.b", "input_schema": SCHEMA}]), "not a name for a tool"),
    Rule("tools are unique", changed(CLAUDE, tools=CLAUDE["tools"] * 2), "'weather' is not unique"),
    Rule(
        "a choice of tools",
        changed(CLAUDE, tool_choice={"type": "required"}),
        "not one of auto, any, tool, none",
        changed(CLAUDE, tool_choice={"type": "none"}),
    ),
    Rule("images", claude(user({**PICTURE, "source": {"type": "base64"}})), "media_type", claude(user(PICTURE))),
    Rule(
        "errors are text",
        claude(user("a"), assistant(use()), user(result(content=[PICTURE], is_error=True))),
        "must be text if is_error",
        claude(user("a"), assistant(use()), user(result(content=[PICTURE]))),
    ),
    Rule(
        "errors say something",
        claude(user("a"), assistant(use()), user(result(content="", is_error=True))),
        "cannot be empty if is_error",
        claude(user("a"), assistant(use()), user(result(is_error=True))),
    ),
    Rule(
        "at most four cache marks",
        claude(*[user({**_text("a"), "cache_control": MARK})] * 5),
        "at most 4",
        claude(*[user({**_text("a"), "cache_control": MARK})] * 4),
    ),
    Rule(
        "cache marks",
        claude(user({**_text("a"), "cache_control": {"type": "default"}})),
        "not a cache mark",
        claude(user({**_text("a"), "cache_control": {**MARK, "ttl": "1h"}})),
    ),
    Rule("schemas of replies", claude_replying(SCHEMA), "must be explicitly set to false", claude_replying(STRICT)),
    Rule("keywords of replies", claude_replying({**STRICT, "minProperties": 1}), "'minProperties' is not permitted"),
    Rule(
        "lengths in replies",
        claude_replying({**STRICT, "properties": {"city": {**_STRINGS, "minItems": 2}}}),
        "other than 0 or 1",
        claude_replying({**STRICT, "properties": {"city": {**_STRINGS, "minItems": 1}}}),
    ),
    Rule("older models", claude_replying(STRICT, "claude-opus-4-1"), "does not support output format"),
    Rule("output", changed(CLAUDE, output_config={"form": {}}), "output_config.form"),
)
def test_anthropic(table: list[Rule]) -> None:
    check(anthropic.problems, table, CLAUDE_TURN)


# -- Bedrock -------------------------------------------------------------------------------------------------


def turn(role: str, *blocks: Any) -> Body:
    return {"role": role, "content": [{"text": block} if isinstance(block, str) else block for block in blocks]}


def tool_use(call_id: str = "tooluse_1", **more: Any) -> Body:
    return {"toolUse": {"toolUseId": call_id, "name": "weather", "input": {"city": "Bonn"}, **more}}


def tool_result(call_id: str = "tooluse_1", **more: Any) -> Body:
    return {"toolResult": {"toolUseId": call_id, "content": [{"text": "rain"}], "status": "success", **more}}


def reasoning(text: str = "Hm.", signature: str | None = None) -> Body:
    return {"reasoningContent": {"reasoningText": {"text": text, "signature": signature or sign("claude", text)}}}


CONVERSE = {
    "system": [{"text": "Be brief."}, {"cachePoint": {"type": "default"}}],
    "inferenceConfig": {"maxTokens": 4096},
    "toolConfig": {"tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": SCHEMA}}}]},
    "messages": [turn("user", "Hi")],
}


def converse(*messages: Body, **fields: Any) -> Body:
    return changed(CONVERSE, messages=list(messages), **fields)


def spec(**fields: Any) -> Body:
    tool = {"toolSpec": {"name": "weather", "inputSchema": {"json": SCHEMA}, **fields}}
    return changed(CONVERSE, toolConfig={"tools": [tool]})


CONVERSE_TURN = converse(turn("user", "a"), turn("assistant", tool_use()), turn("user", tool_result()))
BUDGET = {"thinking": THINKING}


@rules(
    Rule("a user begins", converse(turn("assistant", "a"), turn("user", "b")), "must start with a user message"),
    Rule(
        "roles alternate",
        converse(turn("user", "a"), turn("user", "b")),
        "must alternate",
        converse(turn("user", "a"), turn("assistant", "b"), turn("user", "c")),
    ),
    Rule("a user ends", converse(turn("user", "a"), turn("assistant", "b")), "must end with a user message"),
    Rule("roles", converse(turn("system", "a")), "every role is user or assistant"),
    Rule("no messages", converse(), "must start with a user message"),
    Rule("types", converse({"role": "user", "content": "Hi"}), "content: expected an array"),
    Rule("empty content", converse(turn("user")), "content field is empty"),
    Rule("blank text", converse(turn("user", " ")), "text field is blank"),
    Rule("empty system", changed(CONVERSE, system=[{"text": ""}]), "at least 1"),
    Rule("unknown blocks", converse(turn("user", {"type": "text"})), "exactly one of"),
    Rule("one member a block", converse(turn("user", {"text": "a", "cachePoint": {}})), "exactly one of"),
    Rule("results need calls", converse(turn("user", tool_result())), "answers no call"),
    Rule(
        "calls need results",
        converse(turn("user", "a"), turn("assistant", tool_use()), turn("user", "b")),
        "without a result",
    ),
    Rule(
        "results come right behind",
        converse(
            turn("user", "a"),
            turn("assistant", tool_use()),
            turn("user", "b"),
            turn("assistant", "c"),
            turn("user", tool_result()),
        ),
        "without a result directly after",
    ),
    Rule(
        "ids are unique",
        converse(turn("user", "a"), turn("assistant", tool_use(), tool_use()), turn("user", tool_result())),
        "not unique",
    ),
    Rule(
        "the form of ids",
        converse(turn("user", "a"), turn("assistant", tool_use("x" * 65)), turn("user", tool_result("x" * 65))),
        "must match [a-zA-Z0-9_-]{1,64}",
    ),
    Rule(
        "input is an object",
        converse(turn("user", "a"), turn("assistant", tool_use(input="{}")), turn("user", tool_result())),
        "input: expected an object",
    ),
    Rule(
        "the status of results",
        converse(turn("user", "a"), turn("assistant", tool_use()), turn("user", tool_result(status="bad"))),
        "neither success nor error",
        converse(turn("user", "a"), turn("assistant", tool_use()), turn("user", tool_result(status="error"))),
    ),
    Rule(
        "blank results",
        converse(turn("user", "a"), turn("assistant", tool_use()), turn("user", tool_result(content=[{"text": ""}]))),
        "text field is blank",
        converse(turn("user", "a"), turn("assistant", tool_use()), turn("user", tool_result(content=[]))),
    ),
    Rule("tools that were used are defined", changed(CONVERSE_TURN, toolConfig=...), "toolConfig"),
    Rule("some tools", changed(CONVERSE, toolConfig={"tools": []}), "at least one tool"),
    Rule("fields of tools", spec(parameters={}), "parameters: extra fields", spec(description="Tells it.")),
    Rule("descriptions say something", spec(description=""), "description: the length"),
    Rule("names of tools", spec(name="a.b"), "not a name for a tool"),
    Rule("schemas of objects", spec(inputSchema={"json": {"type": "string"}}), "of type 'object'"),
    Rule(
        "a choice of tools",
        changed(CONVERSE, toolConfig={**CONVERSE["toolConfig"], "toolChoice": {"none": {}}}),
        "not one of auto, any, tool",
        changed(CONVERSE, toolConfig={**CONVERSE["toolConfig"], "toolChoice": {"auto": {}}}),
    ),
    Rule(
        "foreign signatures",
        converse(turn("user", "a"), turn("assistant", reasoning(signature="x"), "b"), turn("user", "c")),
        "invalid signature",
        converse(turn("user", "a"), turn("assistant", reasoning(), "b"), turn("user", "c")),
    ),
    Rule(
        "missing signatures",
        converse(
            turn("user", "a"),
            turn("assistant", {"reasoningContent": {"reasoningText": {"text": "Hm."}}}, "b"),
            turn("user", "c"),
        ),
        "the signature is required",
        converse(turn("user", "a"), turn("assistant", "b"), turn("user", "c")),
    ),
    Rule(
        "thinking comes first while tools are used",
        changed(CONVERSE_TURN, additionalModelRequestFields=BUDGET),
        "must start with a thinking block",
        converse(
            turn("user", "a"),
            turn("assistant", reasoning(), tool_use()),
            turn("user", tool_result()),
            additionalModelRequestFields=BUDGET,
        ),
    ),
    Rule(
        "the budget is below max_tokens",
        changed(CONVERSE, additionalModelRequestFields=BUDGET, inferenceConfig={"maxTokens": 2000}),
        "must be greater than thinking.budget_tokens",
        changed(CONVERSE, additionalModelRequestFields=BUDGET),
    ),
    Rule(
        "images",
        converse(turn("user", {"image": {"format": "image/png", "source": {"bytes": PIXEL}}})),
        "not one of png, jpeg, gif, webp",
        converse(turn("user", {"image": {"format": "png", "source": {"bytes": PIXEL}}})),
    ),
    Rule(
        "redacted thinking is issued here",
        converse(
            turn("user", "a"), turn("assistant", {"reasoningContent": {"redactedContent": "x"}}), turn("user", "b")
        ),
        "not issued",
    ),
    Rule("options", changed(CONVERSE, inferenceConfig={"max_tokens": 5}), "max_tokens: extra fields"),
    Rule(
        "at most four cache points",
        converse(turn("user", *["a", {"cachePoint": {"type": "default"}}] * 4)),
        "at most 4",
    ),
    Rule(
        "cache points stand behind something",
        converse(turn("user", {"cachePoint": {"type": "default"}}, "a")),
        "must come after",
    ),
)
def test_bedrock(table: list[Rule]) -> None:
    check(bedrock.problems, table, CONVERSE_TURN)


def test_bedrock_takes_reasoning_back_for_claude_only() -> None:
    body = converse(turn("user", "a"), turn("assistant", reasoning(), "b"), turn("user", "c"))
    assert bedrock.problems(body, "us.anthropic.claude-opus-4-7") == []
    assert "does not accept reasoning" in bedrock.problems(body, "amazon.nova-pro-v1:0")[0]


# -- chat completions ----------------------------------------------------------------------------------------


def says(role: str, content: Any, **more: Any) -> Body:
    return {"role": role, "content": content, **more}


def call(call_id: str = "call00001", **more: Any) -> Body:
    function = {"name": "weather", "arguments": '{"city":"Bonn"}', **more}
    return {"id": call_id, "type": "function", "function": function}


def calls(*given_calls: Body, **more: Any) -> Body:
    return {"role": "assistant", "tool_calls": list(given_calls), **more}


def answers(call_id: str = "call00001", **more: Any) -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": "rain", **more}


FUNCTION = {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}
CHAT = {
    "model": "some-model",
    "stream": True,
    "tools": [{"type": "function", "function": FUNCTION}],
    "messages": [says("system", "Be brief."), says("user", "Hi")],
}
IMAGE_PART = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


def chat(*messages: Body, **fields: Any) -> Body:
    return changed(CHAT, messages=list(messages), **fields)


def declared(**fields: Any) -> Body:
    return changed(CHAT, tools=[{"type": "function", "function": {**FUNCTION, **fields}}])


CHAT_TURN = chat(says("user", "a"), calls(call()), answers())
USER = says("user", "a")


def replying(schema: Any, **more: Any) -> Body:
    """A request whose reply is held to a schema."""
    described = {"name": "answer", "strict": True, "schema": schema, **more}
    return changed(CHAT, tools=..., response_format={"type": "json_schema", "json_schema": described})


def strictly(**city: Any) -> Body:
    return replying({**STRICT, "properties": {"city": city}})


SHARED_RULES = [
    Rule("messages are required", changed(CHAT, messages=...), "messages: this field is required"),
    Rule("no messages", chat(), "messages: the array is too short"),
    Rule("types", changed(CHAT, temperature="hot"), "temperature: expected a number, got a string"),
    Rule("roles", chat(says("model", "a")), "role: 'model' is not one of"),
    Rule("results need calls", chat(USER, says("assistant", "b"), answers()), "answers no call"),
    Rule("calls need results", chat(USER, calls(call()), says("assistant", "b"), USER), "without a result"),
    Rule(
        "results come right behind",
        chat(USER, calls(call()), says("assistant", "b"), answers(), says("assistant", "c"), USER),
        "without a result directly after",
    ),
    Rule(
        "one result a call",
        chat(USER, calls(call()), answers(), answers()),
        "more than one result",
        chat(USER, calls(call(), call("call00002")), answers("call00002"), answers()),
    ),
    Rule("ids are unique", chat(USER, calls(call(), call()), answers()), "not unique"),
    Rule(
        "ids are unique in all of the conversation",
        chat(USER, calls(call()), answers(), calls(call()), answers()),
        "not unique",
        chat(USER, calls(call()), answers(), calls(call("call00002")), answers("call00002")),
    ),
    Rule("arguments are a string", chat(USER, calls(call(arguments={})), answers()), "expected a string"),
    Rule("names of calls", chat(USER, calls(call(name="a.b")), answers()), "not a name for a tool"),
    Rule("some calls", chat(USER, calls(content="b"), USER), "tool_calls: the array is too short"),
    Rule("names of tools", declared(name="a b"), "not a name for a tool"),
    Rule("schemas of objects", declared(parameters={"type": "string"}), "of type 'object'"),
    Rule(
        "arrays have items",
        declared(parameters={"type": "object", "properties": {"a": {"type": "array"}}}),
        "an array schema without items",
        declared(parameters={"type": "object", "properties": {"a": {"type": "array", "items": {}}}}),
    ),
    Rule("parts", chat(says("user", [{"type": "image"}])), "'image' is not allowed", chat(says("user", [IMAGE_PART]))),
    Rule("formats", changed(CHAT, response_format={"type": "xml"}), "'xml' is not supported", replying(STRICT)),
    Rule("replies are objects", replying({"type": "string"}), "of type 'object'", replying(STRICT)),
    Rule("types of values", strictly(description="A city."), "must have a 'type' key", strictly(type="string")),
    Rule("keywords of replies", strictly(type="string", minLength=1), "'minLength' is not permitted"),
    Rule("options of streams", changed(CHAT, stream=False, stream_options={}), "only allowed when stream"),
]


@pytest.mark.parametrize("module", [openai, azure, xai, mistral], ids=lambda module: module.__name__.split(".")[-1])
@rules(*SHARED_RULES)
def test_chat_completions(module: Any, table: list[Rule]) -> None:
    check(module.problems, table, CHAT_TURN)


OPENAI_RULES = [
    Rule("unknown fields", changed(CHAT, max_token=1), "unrecognized request argument supplied: max_token"),
    Rule("fields of messages", chat(says("user", "a", id="1")), "supplied: messages.0.id"),
    Rule("reasoning", chat(USER, says("assistant", "b", reasoning_content="c"), USER), "reasoning_content"),
    Rule("fields of tools", declared(input_schema={}), "supplied: tools.0.function.input_schema"),
    Rule(
        "the length of ids",
        chat(USER, calls(call("c" * 41)), answers("c" * 41)),
        "at most 40 characters",
        chat(USER, calls(call("c" * 40)), answers("c" * 40)),
    ),
    Rule("an assistant says something", chat(USER, {"role": "assistant"}, USER), "got null"),
    Rule("empty lists", chat(says("user", [])), "content: the array is too short"),
    Rule("images are the user's", chat(USER, calls(call()), answers(content=[IMAGE_PART])), "not allowed"),
    Rule(
        "a choice of tools", changed(CHAT, tool_choice="any"), "not one of auto", changed(CHAT, tool_choice="required")
    ),
    Rule("no choice without tools", changed(CHAT, tools=..., tool_choice="auto"), "when tools are specified"),
    Rule(
        "strict schemas",
        declared(strict=True, parameters=SCHEMA),
        "additionalProperties must be false",
        declared(strict=True, parameters=STRICT),
    ),
    Rule(
        "strict schemas require everything",
        declared(strict=True, parameters={**STRICT, "required": []}),
        "required must name every property",
        declared(strict=True, parameters=STRICT),
    ),
    Rule("strict replies", replying(SCHEMA), "additionalProperties must be false", replying(STRICT)),
    Rule("loose replies", replying(SCHEMA, other=1), "json_schema.other", replying(SCHEMA, strict=False)),
    Rule("references stand alone", strictly(**{"$ref": "#", "title": "A"}), "beside it", strictly(**{"$ref": "#"})),
    Rule(
        "efforts",
        changed(CHAT, model="gpt-5", reasoning_effort="extra_high"),
        "reasoning_effort: 'extra_high'",
        changed(CHAT, model="gpt-5", reasoning_effort="minimal"),
    ),
    Rule(
        "efforts are for models that reason",
        changed(CHAT, model="gpt-4o", reasoning_effort="low"),
        "reasoning_effort: not supported by gpt-4o",
        changed(CHAT, model="gpt-5", reasoning_effort="low"),
    ),
    Rule(
        "the name of the limit",
        changed(CHAT, model="o3", max_tokens=5),
        "use max_completion_tokens",
        changed(CHAT, model="gpt-4o", max_tokens=5),
    ),
]


@pytest.mark.parametrize("module", [openai, azure], ids=["openai", "azure"])
@rules(*OPENAI_RULES)
def test_openai(module: Any, table: list[Rule]) -> None:
    check(module.problems, table, CHAT_TURN)


def test_the_model_may_be_named_by_azures_path_alone() -> None:
    body = changed(CHAT, model=...)
    assert azure.problems(body) == []
    assert openai.problems(body) == ["model: this field is required"]


@rules(
    Rule("empty content", chat(says("user", "")), "at least one non-empty content element"),
    Rule("empty replies", chat(USER, says("assistant", ""), USER), "at least one non-empty content element"),
    Rule("empty lists", chat(USER, says("assistant", []), USER), "content: the array is too short"),
    Rule("empty text", chat(says("user", [{"type": "text", "text": ""}])), "at least one non-empty"),
    Rule(
        "reasoning may come back",
        chat(USER, says("assistant", "b", reasoning_content=["c"]), USER),
        "reasoning_content: expected a string",
        chat(USER, says("assistant", "b", reasoning_content="c"), USER),
    ),
    Rule(
        "efforts",
        changed(CHAT, model="grok-4.3", reasoning_effort="xhigh"),
        "reasoning_effort: 'xhigh'",
        changed(CHAT, model="grok-4.3", reasoning_effort="high"),
    ),
    Rule(
        "efforts are for some models",
        changed(CHAT, model="grok-4-fast-reasoning", reasoning_effort="high"),
        "does not support it",
        changed(CHAT, model="grok-3-mini", reasoning_effort="high"),
    ),
)
def test_xai(table: list[Rule]) -> None:
    check(xai.problems, table, CHAT_TURN)


THOUGHT_PART = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}


@rules(
    Rule("unknown fields", changed(CHAT, max_completion_tokens=5), "extra fields", changed(CHAT, max_tokens=5)),
    Rule("fields of messages", chat(says("user", "a", name="Jo")), "messages.0.name: extra fields"),
    Rule("reasoning", chat(USER, says("assistant", "b", reasoning_content="c"), USER), "reasoning_content: extra"),
    Rule("the form of ids", chat(USER, calls(call("call_00001")), answers("call_00001")), "with a length of 9"),
    Rule("the form of the ids of results", chat(USER, calls(call()), answers("short")), "a length of 9"),
    Rule(
        "no user behind a tool",
        chat(USER, calls(call()), answers(), USER),
        "unexpected role 'user' after role 'tool'",
        chat(USER, calls(call()), answers(), says("assistant", "b"), USER),
    ),
    Rule("two user messages in a row", chat(USER, answers()), "role 'tool' after role 'user'", chat(USER, USER)),
    Rule(
        "the last word",
        chat(USER, says("assistant", "b")),
        "expected the last role to be user or tool",
        chat(USER, says("assistant", "b", prefix=True)),
    ),
    Rule("an assistant says something", chat(USER, says("assistant", ""), USER), "but not none"),
    Rule(
        "names of results",
        chat(USER, answers(name="")),
        "not a name",
        chat(USER, calls(call()), answers(name="weather")),
    ),
    Rule("a choice of tools", changed(CHAT, tool_choice="some"), "not one of auto", changed(CHAT, tool_choice="any")),
    Rule(
        "schemas and tools exclude each other",
        changed(replying(STRICT), tools=CHAT["tools"]),
        "Cannot use json_schema response type with tools",
        replying(STRICT),
    ),
    Rule(
        "thinking",
        chat(USER, says("assistant", [{**THOUGHT_PART, "signature": "x"}]), USER),
        "signature: extra fields",
        chat(USER, says("assistant", [THOUGHT_PART, {"type": "text", "text": "b"}]), USER),
    ),
    Rule(
        "images of tools",
        chat(USER, says("assistant", [IMAGE_PART]), USER),
        "'image_url' is not allowed",
        chat(USER, calls(call()), answers(content=[IMAGE_PART])),
    ),
)
def test_mistral(table: list[Rule]) -> None:
    check(mistral.problems, table, CHAT_TURN)


# -- OpenAI Responses ----------------------------------------------------------------------------------------


def item(role: str, *texts: str, **more: Any) -> Body:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts], **more}


def function_call(call_id: str = "call_1", **more: Any) -> Body:
    return {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": "{}", **more}


def output(call_id: str = "call_1", **more: Any) -> Body:
    return {"type": "function_call_output", "call_id": call_id, "output": "rain", **more}


def reasons(item_id: str = "rs_1", **more: Any) -> Body:
    encrypted = f"{item_id}.{sign('openai', item_id)}"
    return {"type": "reasoning", "id": item_id, "summary": [], "encrypted_content": encrypted, **more}


RESPONSES = {
    "model": "gpt-5",
    "stream": True,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}],
    "input": [item("user", "Hi")],
}


def responses(*entries: Body, **fields: Any) -> Body:
    return changed(RESPONSES, input=list(entries), **fields)


ASK = item("user", "a")
RESPONSES_TURN = responses(ASK, reasons(), function_call(), output())


@rules(
    Rule(
        "schemas of replies",
        changed(RESPONSES, text={"format": {"type": "json_schema", "name": "a", "strict": True, "schema": SCHEMA}}),
        "text.format.schema: in strict mode additionalProperties must be false",
        changed(RESPONSES, text={"format": {"type": "json_schema", "name": "a", "strict": True, "schema": STRICT}}),
    ),
    Rule("unknown fields", changed(RESPONSES, messages=[]), "unknown parameter: 'messages'"),
    Rule("input is required", responses(), "must be provided"),
    Rule("types", changed(RESPONSES, input=5), "input: expected a string or an array"),
    Rule("fields of items", responses(item("user", "a", name="b")), "unknown parameter: 'input.0.name'"),
    Rule("types of items", responses({"type": "tool_result"}), "not a type of item"),
    Rule("roles", responses(item("tool", "a")), "not one of user, assistant"),
    Rule("empty content", responses(item("user")), "content: the array is empty"),
    Rule(
        "parts of the assistant",
        responses({**item("user", "b"), "role": "assistant"}),
        "not one of output_text, refusal",
        responses(ASK, item("assistant", "b"), ASK),
    ),
    Rule("parts of the user", responses({**item("assistant", "b"), "role": "user"}), "not one of input_text"),
    Rule("outputs need calls", responses(ASK, output()), "no tool call found"),
    Rule("calls need outputs", responses(ASK, function_call(), ASK), "no tool output found"),
    Rule("outputs come behind calls", responses(ASK, output(), function_call()), "no tool call found"),
    Rule("one output a call", responses(ASK, function_call(), output(), output()), "a second output"),
    Rule(
        "ids are unique",
        responses(function_call(), function_call(), output()),
        "duplicate call_id",
        responses(function_call(), function_call("call_2"), output(), output("call_2")),
    ),
    Rule(
        "the length of ids",
        responses(function_call("c" * 65), output("c" * 65)),
        "at most 64 characters",
        responses(function_call("c" * 64), output("c" * 64)),
    ),
    Rule("ids say something", responses(function_call(""), output("")), "call_id: empty string"),
    Rule(
        "the prefix of item ids",
        responses(function_call(id="call_1"), output()),
        "does not begin with 'fc'",
        responses(function_call(id="fc_1"), output()),
    ),
    Rule("the form of item ids", responses(function_call(id="fc_ä"), output()), "letters, numbers"),
    Rule("arguments are a string", responses(function_call(arguments={}), output()), "a string"),
    Rule(
        "outputs with images",
        responses(function_call(), output(output=[{"type": "image_url", "image_url": {"url": "a"}}])),
        "not one of input_text, input_image",
        responses(function_call(), output(output=[{"type": "input_image", "image_url": "data:image/png;base64,aa"}])),
    ),
    Rule(
        "foreign reasoning",
        responses(ASK, reasons(encrypted_content="gAAAAB"), function_call(), output()),
        "could not be verified",
    ),
    Rule(
        "reasoning of another item",
        responses(ASK, {**reasons("rs_1"), "id": "rs_2"}, function_call(), output()),
        "could not be verified",
    ),
    Rule(
        "nothing is stored", responses(ASK, reasons(encrypted_content=None), function_call(), output()), "not persisted"
    ),
    Rule("no references", responses({"type": "item_reference", "id": "fc_1"}), "not persisted"),
    Rule("no responses before", changed(RESPONSES, previous_response_id="resp_1"), "was not found"),
    Rule("reasoning leads somewhere", responses(ASK, reasons(), ASK), "its required following item"),
    Rule("reasoning has a summary", responses(reasons(summary=None), item("assistant", "b")), "summary"),
    Rule("reasoning has no status", responses(reasons(status="done"), item("assistant", "b")), "status"),
    Rule("fields of tools", changed(RESPONSES, tools=[{"type": "function", "function": {}}]), "'tools.0.func"),
    Rule(
        "schemas of objects",
        changed(RESPONSES, tools=[{"type": "function", "name": "a", "parameters": {}}]),
        "of type 'object'",
    ),
    Rule(
        "names of tools",
        changed(RESPONSES, tools=[{"type": "function", "name": "a.b", "parameters": SCHEMA}]),
        "not a name for a tool",
    ),
    Rule(
        "a choice of tools",
        changed(RESPONSES, tool_choice="any"),
        "not one of",
        changed(RESPONSES, tool_choice="required"),
    ),
    Rule(
        "efforts",
        changed(RESPONSES, reasoning={"effort": "most"}),
        "reasoning.effort",
        changed(RESPONSES, reasoning={"effort": "high", "summary": "auto"}),
    ),
    Rule("few tokens", changed(RESPONSES, max_output_tokens=15), ">= 16", changed(RESPONSES, max_output_tokens=16)),
)
def test_openai_responses(table: list[Rule]) -> None:
    check(openai_responses.problems, table, RESPONSES_TURN)


# -- Gemini --------------------------------------------------------------------------------------------------


def content(role: str, *parts: Any) -> Body:
    return {"role": role, "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


SIGNED = {"thoughtSignature": sign("gemini", "")}


def function(call_id: str | None = None, **more: Any) -> Body:
    fields = {"name": "weather", "args": {"city": "Bonn"}, **({"id": call_id} if call_id else {})}
    return {"functionCall": fields, **more}


def response(call_id: str | None = None, **more: Any) -> Body:
    fields = {"name": "weather", "response": {"output": "rain"}, **({"id": call_id} if call_id else {}), **more}
    return {"functionResponse": fields}


GEMINI = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "tools": [{"functionDeclarations": [{"name": "weather", "parametersJsonSchema": {**STRICT, "$schema": "x"}}]}],
    "contents": [content("user", "Hi")],
}


def generate(*contents: Body, **fields: Any) -> Body:
    return changed(GEMINI, contents=list(contents), **fields)


def parameters(**fields: Any) -> Body:
    declaration = {"name": "weather", "parameters": {**SCHEMA, **fields}}
    return changed(GEMINI, tools=[{"functionDeclarations": [declaration]}])


GEMINI_TURN = generate(content("user", "a"), content("model", function(**SIGNED)), content("user", response()))


@rules(
    Rule("unknown fields", changed(GEMINI, messages=[]), "unknown name 'messages'"),
    Rule(
        "schemas are for JSON",
        changed(GEMINI, tools=..., generationConfig={"responseJsonSchema": SCHEMA}),
        "must be application/json",
    ),
    Rule("either case", changed(GEMINI, generation_configs={}), "unknown name", changed(GEMINI, generation_config={})),
    Rule("contents are required", generate(), "contents: is not specified"),
    Rule("roles", generate(content("assistant", "a")), "valid role"),
    Rule("fields of contents", generate({**content("user", "a"), "id": 1}), "unknown name 'contents.0.id'"),
    Rule("empty contents", generate(content("user")), "must not be empty"),
    Rule("empty text", generate(content("user", "")), "empty text parameter", generate(content("user", "", "a"))),
    Rule("parts hold data", generate(content("user", {})), "exactly one of"),
    Rule("types", generate(content("user", {"text": 5})), "text: expected a string"),
    Rule(
        "two contents in a row",
        generate(content("user", "a"), content("model", "b")),
        "must end with a user role",
        generate(content("user", "a"), content("user", "b")),
    ),
    Rule("responses need calls", generate(content("user", response())), "after a function call turn"),
    Rule("calls need responses", generate(*GEMINI_TURN["contents"][:2], content("user", "b")), "number of"),
    Rule("calls at the end", generate(*GEMINI_TURN["contents"][:2]), "have no responses"),
    Rule(
        "responses come right behind",
        generate(
            *GEMINI_TURN["contents"][:2], content("user", "b"), content("model", "c"), content("user", response())
        ),
        "immediately after a function call turn",
    ),
    Rule(
        "as many responses as calls",
        generate(content("user", "a"), content("model", function(**SIGNED), function()), content("user", response())),
        "number of function responses",
        generate(
            content("user", "a"),
            content("model", function(**SIGNED), function()),
            content("user", response(), response()),
        ),
    ),
    Rule("calls come behind the user", generate(*GEMINI_TURN["contents"][1:]), "after a user"),
    Rule(
        "calls come behind no model",
        generate(content("user", "a"), content("model", "b"), *GEMINI_TURN["contents"][1:]),
        "after a user or function response turn",
    ),
    Rule(
        "responses name the calls",
        generate(*GEMINI_TURN["contents"][:2], content("user", response(name="news"))),
        "other functions than the calls",
    ),
    Rule(
        "the ids of responses",
        generate(content("user", "a"), content("model", function("x", **SIGNED)), content("user", response("y"))),
        "not that of a call",
        generate(content("user", "a"), content("model", function("x", **SIGNED)), content("user", response("x"))),
    ),
    Rule(
        "ids are unique",
        generate(
            content("user", "a"),
            content("model", function("x", **SIGNED), function("y")),
            content("user", response("x"), response("x")),
        ),
        "the same id",
        generate(
            content("user", "a"),
            content("model", function("x", **SIGNED), function("y")),
            content("user", response("x"), response("y")),
        ),
    ),
    Rule("responses are objects", generate(content("user", response(response="rain"))), "expected an object"),
    Rule(
        "missing signatures",
        generate(content("user", "a"), content("model", function()), content("user", response())),
        "missing a thought_signature",
    ),
    Rule(
        "but not those of turns before",
        generate(
            content("user", "a"),
            content("model", function(**SIGNED)),
            content("user", response()),
            content("model", function()),
            content("user", response()),
        ),
        "missing a thought_signature",
        generate(
            content("user", "a"),
            content("model", function()),
            content("user", response()),
            content("model", "b"),
            content("user", "c"),
        ),
    ),
    Rule(
        "foreign signatures",
        generate(
            content("user", "a"), content("model", function(thoughtSignature="EqQBCgIY")), content("user", response())
        ),
        "corrupted thought signature",
        generate(
            content("user", "a"),
            content("model", function(thoughtSignature="skip_thought_signature_validator")),
            content("user", response()),
        ),
    ),
    Rule("names of calls", generate(content("user", response(name="1a"))), "not a name for a tool"),
    Rule(
        "names of tools", changed(GEMINI, tools=[{"functionDeclarations": [{"name": "a b"}]}]), "not a name for a tool"
    ),
    Rule(
        "tools are unique",
        changed(GEMINI, tools=[{"functionDeclarations": [{"name": "a"}, {"name": "a"}]}]),
        "not unique",
    ),
    Rule("no $schema", parameters(**{"$schema": "x"}), "$schema', cannot find field", parameters()),
    Rule("no additionalProperties", parameters(additionalProperties=False), "additionalProperties'", parameters()),
    Rule("no $ref", parameters(properties={"city": {"$ref": "#/$defs/City"}}), "$ref'", parameters()),
    Rule("no $defs", parameters(**{"$defs": {}}), "$defs'", parameters()),
    Rule(
        "one type a schema",
        parameters(properties={"city": {"type": ["string", "null"]}}),
        "type: expected a string",
        parameters(properties={"city": {"type": "string", "nullable": True}}),
    ),
    Rule(
        "enums of strings",
        parameters(properties={"city": {"type": "integer", "enum": [1]}}),
        "only strings",
        parameters(properties={"city": {"type": "string", "enum": ["Bonn"]}}),
    ),
    Rule(
        "arrays have items",
        parameters(properties={"cities": {"type": "array"}}),
        "items: missing field",
        parameters(properties={"cities": {"type": "array", "items": {"type": "string"}}}),
    ),
    Rule(
        "one kind of schema",
        changed(
            GEMINI, tools=[{"functionDeclarations": [{"name": "a", "parameters": {}, "parametersJsonSchema": {}}]}]
        ),
        "exclude each other",
    ),
    Rule(
        "ways to think",
        changed(GEMINI, generationConfig={"thinkingConfig": {"thinkingLevel": "LOW", "thinkingBudget": 5}}),
        "only one of",
        changed(GEMINI, generationConfig={"thinkingConfig": {"thinkingLevel": "LOW"}}),
    ),
    Rule(
        "constants and defaults",
        parameters(properties={"now": {"type": "boolean", "const": True}}),
        "const', cannot find field",
        parameters(properties={"now": {"type": "boolean", "default": True}}),
    ),
    Rule(
        "levels of thinking",
        changed(GEMINI, generationConfig={"thinkingConfig": {"thinkingLevel": "EXTRA_HIGH"}}),
        "invalid value",
        changed(GEMINI, generationConfig={"thinkingConfig": {"thinkingLevel": "high"}}),
    ),
    Rule(
        "images",
        generate(content("user", {"inlineData": {"data": PIXEL}})),
        "mimeType: this field is required",
        generate(content("user", {"inlineData": {"mimeType": "image/png", "data": PIXEL}})),
    ),
    Rule(
        "images in responses",
        generate(*GEMINI_TURN["contents"][:2], content("user", response(parts=[{"inlineData": {}}]))),
        "data: must not be empty",
        generate(
            *GEMINI_TURN["contents"][:2],
            content("user", response(parts=[{"inlineData": {"mimeType": "image/png", "data": PIXEL}}])),
        ),
    ),
)
def test_gemini(table: list[Rule]) -> None:
    check(gemini.problems, table, GEMINI_TURN)


def test_gemini_took_no_schema_beside_tools_before_its_third_version() -> None:
    body = changed(GEMINI, generationConfig={"responseMimeType": "application/json", "responseJsonSchema": SCHEMA})
    (problem,) = gemini.problems(body, "gemini-2.5-flash")
    assert "function calling with a response mime type" in problem
    assert gemini.problems(changed(body, tools=...), "gemini-2.5-flash") == []
    assert gemini.problems(body, "gemini-3-flash-preview") == []


def test_gemini_insists_on_signatures_since_its_third_generation() -> None:
    body = generate(content("user", "a"), content("model", function()), content("user", response()))
    assert gemini.problems(body, "gemini-2.5-flash") == []
    assert gemini.problems(body, "gemini-3-flash-preview") != []


# -- Ollama --------------------------------------------------------------------------------------------------


def named(name: str = "weather", **more: Any) -> Body:
    return {"function": {"name": name, "arguments": {"city": "Bonn"}, **more}}


def tool_message(name: str = "weather") -> Body:
    return {"role": "tool", "content": "rain", "tool_name": name}


LOCAL = {
    "model": "qwen3",
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": {**STRICT, "$schema": "x"}}}],
    "messages": [says("user", "Hi")],
    "anything": "else",
}


def local(*messages: Body, **fields: Any) -> Body:
    return changed(LOCAL, messages=list(messages), **fields)


LOCAL_TURN = local(USER, calls(named(), content=""), tool_message())


@rules(
    Rule("a model is required", changed(LOCAL, model=...), "model is required"),
    Rule("types", changed(LOCAL, options=[]), "options: expected an object"),
    Rule("content is a string", local(says("user", [{"type": "text", "text": "Hi"}])), "content: expected a string"),
    Rule("roles", local(says("model", "a")), "invalid role"),
    Rule("arguments are an object", local(USER, calls(named(arguments="{}")), tool_message()), "an object"),
    Rule("images", local(says("user", "a", images=["data:,"])), "base64", local(says("user", "a", images=[PIXEL]))),
    Rule("levels of thinking", changed(LOCAL, think="minimal"), "invalid think value", changed(LOCAL, think="low")),
    Rule(
        "schemas",
        changed(LOCAL, tools=[{"function": {"name": "a", "parameters": {"properties": []}}}]),
        "properties: expected an object",
    ),
    Rule("results need calls", local(USER, tool_message()), "answers no call"),
    Rule("results name the calls", local(USER, calls(named()), tool_message("news")), "answers no call"),
    Rule("calls need results", local(USER, calls(named()), USER), "without a result"),
    Rule("calls at the end", local(USER, calls(named())), "without a result"),
    Rule("formats", {**local(USER), "format": "xml"}, "invalid format", {**local(USER), "format": SCHEMA}),
)
def test_ollama(table: list[Rule]) -> None:
    check(ollama.problems, table, LOCAL_TURN)


# -- all of them ---------------------------------------------------------------------------------------------

MODULES = {
    "anthropic": anthropic,
    "openai": openai,
    "openai-responses": openai_responses,
    "azure": azure,
    "xai": xai,
    "mistral": mistral,
    "gemini": gemini,
    "ollama": ollama,
    "bedrock": bedrock,
}
TURNS: dict[str, Body] = {
    "anthropic": CLAUDE_TURN,
    "openai": CHAT_TURN,
    "openai-responses": RESPONSES_TURN,
    "azure": CHAT_TURN,
    "xai": CHAT_TURN,
    "mistral": CHAT_TURN,
    "gemini": GEMINI_TURN,
    "ollama": LOCAL_TURN,
    "bedrock": CONVERSE_TURN,
}
_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["user", "tool", "text"])
_GARBAGE = st.recursive(
    _SCALARS, lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children)
)


def _with_garbage(value: Any, draw: Callable[[], Any]) -> Any:
    """The value with garbage in the place of one thing in it, wherever the draw says."""
    if isinstance(value, dict) and value and draw() != "stop":
        name = sorted(value)[abs(hash(str(draw()))) % len(value)]
        return {**value, name: _with_garbage(value[name], draw)}
    if isinstance(value, list) and value and draw() != "stop":
        return [_with_garbage(value[0], draw), *value[1:]]
    return draw()


@pytest.mark.sweep
@pytest.mark.parametrize("api", APIS)
@settings(max_examples=40)
@given(data=st.data())
def test_validators_never_raise(api: str, data: st.DataObject) -> None:
    body = _with_garbage(copy.deepcopy(TURNS[api]), lambda: data.draw(_GARBAGE | st.just("stop")))
    found = MODULES[api].problems(body if isinstance(body, dict) else {})
    assert all(isinstance(problem, str) for problem in found)


# -- servers -------------------------------------------------------------------------------------------------


class Door(NamedTuple):
    """How to knock at one fake."""

    path: str
    headers: dict[str, str]
    body: Body


BEARER = {"authorization": "Bearer fake-key"}
DOORS = {
    "anthropic": Door("/v1/messages", {"x-api-key": "fake-key", "anthropic-version": "2023-06-01"}, CLAUDE_TURN),
    "openai": Door("/v1/chat/completions", BEARER, CHAT_TURN),
    "openai-responses": Door("/v1/responses", BEARER, RESPONSES_TURN),
    "azure": Door("/openai/v1/chat/completions", {"api-key": "fake-key"}, CHAT_TURN),
    "xai": Door("/v1/chat/completions", BEARER, CHAT_TURN),
    "mistral": Door("/v1/chat/completions", BEARER, CHAT_TURN),
    "gemini": Door(
        "/v1beta/models/gemini-3-pro-preview:streamGenerateContent?alt=sse", {"x-goog-api-key": "fake-key"}, GEMINI_TURN
    ),
    "ollama": Door("/api/chat", {}, LOCAL_TURN),
    "bedrock": Door("/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream", BEARER, CONVERSE_TURN),
}


class Answered(NamedTuple):
    status: int
    content_type: str
    data: bytes


async def knock(fake: FakeProvider, body: Body | bytes | None = None, **changes: Any) -> Answered:
    """One plain request over a real socket."""
    door = DOORS[fake.api]._replace(**changes)
    data = body if isinstance(body, bytes) else json.dumps(body or door.body).encode()
    async with aiohttp.ClientSession() as session:
        url = aiohttp.client.URL(fake.url + door.path, encoded=True)
        async with session.post(url, data=data, headers=door.headers) as answer:
            return Answered(answer.status, answer.content_type, await answer.read())


def sse_events(data: bytes) -> list[Any]:
    """The payloads of server-sent events, each of which is complete."""
    assert data.endswith(b"\n\n")
    payloads = [line[6:] for line in data.decode().splitlines() if line.startswith("data: ")]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


def aws_events(data: bytes) -> list[tuple[str, Any]]:
    """The names and payloads of an AWS event stream, both of whose checksums hold."""
    events: list[tuple[str, Any]] = []
    while data:
        total, length = struct.unpack(">II", data[:8])
        message, data = data[:total], data[total:]
        assert struct.unpack(">I", message[8:12])[0] == zlib.crc32(message[:8])
        assert struct.unpack(">I", message[-4:])[0] == zlib.crc32(message[:-4])
        headers = message[12 : 12 + length]
        assert b":message-type\x07\x00\x05event" in headers
        name = re.search(rb":event-type\x07\x00.([A-Za-z]+)", headers, re.DOTALL)
        assert name is not None
        events.append((name[1].decode().rstrip("\r"), json.loads(message[12 + length : -4])))
    return events


WEATHER = [("weather", {"city": "Bonn"}), ("weather", {"city": "Rome"})]
REPLY = FakeReply(thinking="Hm, rain?", text="Let me see.", calls=WEATHER, usage=Usage(10, 6, total=16))


async def streamed(api: str, reply: FakeReply = REPLY) -> bytes:
    async with FakeProvider(api, [reply]) as fake:
        answered = await knock(fake)
        assert answered.status == 200, answered.data
        assert answered.content_type == fake._api.content_type.partition(";")[0]
        assert fake.rejections == []
        assert fake.bodies == [DOORS[api].body]
        return answered.data


async def test_anthropic_streams_messages() -> None:
    events = sse_events(await streamed("anthropic"))
    assert [event["type"] for event in events if "content_block" not in event["type"]] == [
        "message_start",
        "ping",
        "message_delta",
        "message_stop",
    ]
    starts = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    assert starts == ["thinking", "text", "tool_use", "tool_use"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("thinking", "") for delta in deltas) == "Hm, rain?"
    assert "".join(delta.get("text", "") for delta in deltas) == "Let me see."
    assert [delta["signature"] for delta in deltas if "signature" in delta] == [sign("claude", "Hm, rain?")]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert events[-2]["usage"]["output_tokens"] == 6


@pytest.mark.parametrize("api", ["openai", "azure", "xai", "mistral"])
async def test_the_family_streams_chunks(api: str) -> None:
    *chunks, last = sse_events(await streamed(api))
    assert last == "[DONE]"
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    contents = [choice["delta"].get("content") for choice in choices]
    assert "".join(content for content in contents if isinstance(content, str)) == "Let me see."
    found = [call for choice in choices for call in choice["delta"].get("tool_calls", [])]
    assert [call["function"]["name"] for call in found if "name" in call["function"]] == ["weather", "weather"]
    arguments = ["".join(call["function"]["arguments"] for call in found if call["index"] == index) for index in (0, 1)]
    assert [json.loads(text) for text in arguments] == [{"city": "Bonn"}, {"city": "Rome"}]
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["tool_calls"]
    assert [chunk["usage"]["total_tokens"] for chunk in chunks if "usage" in chunk] == [16]


async def test_mistral_streams_thinking_as_parts_and_ids_of_nine() -> None:
    chunks = sse_events(await streamed("mistral"))[:-1]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    parts = [part for delta in deltas if isinstance(delta.get("content"), list) for part in delta["content"]]
    assert "".join(part["thinking"][0]["text"] for part in parts) == "Hm, rain?"
    ids = [call["id"] for delta in deltas for call in delta.get("tool_calls", [])]
    assert all(re.fullmatch(r"[a-zA-Z0-9]{9}", call_id) for call_id in ids)


async def test_xai_counts_reasoning_apart() -> None:
    reply = FakeReply(text="Yes.", usage=Usage(10, 6, total=16, extra={"reasoning": 4}))
    usage = sse_events(await streamed("xai", reply))[-2]["usage"]
    assert (usage["completion_tokens"], usage["total_tokens"]) == (2, 16)


async def test_openai_streams_responses() -> None:
    events = sse_events(await streamed("openai-responses"))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call", "function_call"]
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["output"] == done
    again = responses(ASK, done[0], done[2], output(done[2]["call_id"]))
    assert openai_responses.problems(again) == []


async def test_gemini_streams_candidates() -> None:
    parts = [event["candidates"][0]["content"]["parts"][0] for event in sse_events(await streamed("gemini"))]
    assert "".join(part["text"] for part in parts if part.get("thought")) == "Hm, rain?"
    assert "".join(part["text"] for part in parts if "text" in part and not part.get("thought")) == "Let me see."
    found = [part for part in parts if "functionCall" in part]
    assert [part["functionCall"]["args"] for part in found] == [{"city": "Bonn"}, {"city": "Rome"}]
    assert [part.get("thoughtSignature") for part in found] == [sign("gemini", ""), None]


async def test_ollama_streams_lines() -> None:
    lines = [json.loads(line) for line in (await streamed("ollama")).splitlines()]
    assert "".join(line["message"].get("thinking", "") for line in lines) == "Hm, rain?"
    assert "".join(line["message"]["content"] for line in lines) == "Let me see."
    found = [call for line in lines for call in line["message"].get("tool_calls", [])]
    assert [call["function"]["arguments"] for call in found] == [{"city": "Bonn"}, {"city": "Rome"}]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]


async def test_bedrock_streams_events() -> None:
    events = aws_events(await streamed("bedrock"))
    assert [name for name, _ in events if "Block" not in name] == ["messageStart", "messageStop", "metadata"]
    deltas = [payload["delta"] for name, payload in events if name == "contentBlockDelta"]
    reasoning_deltas = [delta["reasoningContent"] for delta in deltas if "reasoningContent" in delta]
    assert "".join(delta.get("text", "") for delta in reasoning_deltas) == "Hm, rain?"
    assert reasoning_deltas[-1] == {"signature": sign("claude", "Hm, rain?")}
    assert "".join(delta.get("text", "") for delta in deltas) == "Let me see."
    assert events[-2] == ("messageStop", {"stopReason": "tool_use"})
    assert events[-1][1]["usage"]["totalTokens"] == 16


@pytest.mark.table
@pytest.mark.parametrize("api", APIS)
async def test_a_reply_may_end_for_its_length(api: str) -> None:
    data = await streamed(api, FakeReply(text="As I was", stop_reason=StopReason.LENGTH))
    assert re.search(rb"max_tokens|length|max_output_tokens|MAX_TOKENS", data)


ERRORS: dict[str, Callable[[Any], str]] = {
    "anthropic": lambda error: error["error"]["message"],
    "openai": lambda error: error["error"]["message"],
    "openai-responses": lambda error: error["error"]["message"],
    "azure": lambda error: error["error"]["message"],
    "xai": lambda error: error["error"],
    "mistral": lambda error: error.get("message") or error["detail"],
    "gemini": lambda error: error["error"]["message"],
    "ollama": lambda error: error["error"],
    "bedrock": lambda error: error["message"],
}


async def refused(fake: FakeProvider, status: int, **knocking: Any) -> str:
    """The message of an answer that is an error in the provider's own shape."""
    answered = await knock(fake, **knocking)
    assert (answered.status, answered.content_type) == (status, "application/json")
    return ERRORS[fake.api](json.loads(answered.data))


@pytest.mark.table
@pytest.mark.parametrize("api", APIS)
async def test_a_body_with_problems_is_rejected_as_the_provider_would(api: str) -> None:
    bad = changed(
        TURNS[api], **{"input" if api == "openai-responses" else "contents" if api == "gemini" else "messages": 5}
    )
    problems = MODULES[api].problems(bad)
    async with FakeProvider(api, ["never said"]) as fake:
        assert await refused(fake, 400, body=bad) == problems[0]
        assert fake.rejections == ["; ".join(problems)]
        assert fake.replies == ["never said"]


@pytest.mark.table
@pytest.mark.parametrize("api", APIS)
async def test_a_request_that_comes_to_the_wrong_door_is_rejected(api: str) -> None:
    async with FakeProvider(api, ["never said"]) as fake:
        assert "/v0/talk" in await refused(fake, 404, path="/v0/talk")
        await refused(fake, 400, body=b"{")
        if api != "ollama":
            headers = {"authorization": "Bearer other", "x-api-key": "other", "api-key": "other"}
            await refused(fake, {"gemini": 400, "xai": 400, "bedrock": 403}.get(api, 401), headers=headers)
        assert len(fake.rejections) == (2 if api == "ollama" else 3)


@pytest.mark.table
@pytest.mark.parametrize("api", APIS)
async def test_failures_and_the_end_of_the_script(api: str) -> None:
    async with FakeProvider(api, [FakeFailure(503, "overloaded")]) as fake:
        assert await refused(fake, 503) == "overloaded"
        assert fake.rejections == []
        assert "no reply is left" in await refused(fake, 400)
        assert len(fake.rejections) == 1


@pytest.mark.table
@pytest.mark.parametrize("api", ["anthropic", "openai", "openai-responses", "azure", "xai", "mistral"])
async def test_a_request_that_asks_for_no_stream_is_rejected(api: str) -> None:
    async with FakeProvider(api, ["never said"]) as fake:
        assert await refused(fake, 400, body=changed(TURNS[api], stream=False)) == "stream: this fake only streams"


async def test_anthropics_version_is_asked_for() -> None:
    async with FakeProvider("anthropic", ["never said"]) as fake:
        assert "anthropic-version" in await refused(fake, 401, headers={"x-api-key": "fake-key"})


async def test_azure_takes_deployments_with_a_version_and_tokens() -> None:
    path = "/openai/deployments/mine/chat/completions"
    async with FakeProvider("azure", ["Yes."]) as fake:
        await refused(fake, 404, path=path)
        answered = await knock(fake, path=f"{path}?api-version=2024-10-21", headers=BEARER)
        assert answered.status == 200
        assert sse_events(answered.data)[1]["model"] == "mine"


@pytest.mark.table
@pytest.mark.parametrize("api", APIS)
async def test_a_reply_that_is_cut_has_no_end(api: str) -> None:
    whole, cut = await streamed(api, FakeReply(text="Yes.")), await streamed(api, FakeReply(text="Yes.", ends="cut"))
    assert 0 < len(cut) < len(whole)
    assert not re.search(rb"message_stop|DONE|response.completed|finishReason|\"done\":true|messageStop", cut)


async def test_a_reply_that_hangs_keeps_its_connection_open() -> None:
    reply = FakeReply(text="Yes, but", ends="hangs")
    async with FakeProvider("openai", [reply]) as fake, aiohttp.ClientSession() as session:
        url = fake.url + "/v1/chat/completions"
        async with session.post(url, json=CHAT_TURN, headers=BEARER) as answer:
            assert await answer.content.readuntil(b"Yes")
            assert fake.open_connections == 1


async def test_calls_may_be_given_ids_and_get_ones_of_their_own_else() -> None:
    reply = FakeReply(calls=[("weather", {}, "functions.weather:0"), ("weather", {})])
    chunks = sse_events(await streamed("openai", reply))[:-1]
    found = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", [])]
    first, second = [call["id"] for call in found if "id" in call]
    assert first == "functions.weather:0"
    assert re.fullmatch(r"call_[a-zA-Z0-9]{24}", second)


async def test_a_fake_that_raises_says_so_instead_of_closing_the_connection() -> None:
    def broken(*_: object) -> Any:
        raise KeyError("city")

    for fields in ({"problems": broken}, {"stream": broken}):
        async with FakeProvider(dataclasses.replace(openai.API, **fields), ["hi"]) as fake:
            async with aiohttp.ClientSession() as session:
                answer = await session.post(f"{fake.url}/v1/chat/completions", json=CHAT_TURN, headers=BEARER)
            said = (await answer.json())["error"]["message"]
            assert (answer.status, said) == (500, "the fake failed: KeyError: 'city'")
            assert fake.rejections == [said]


async def test_an_answer_that_raises_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("city")

    async with LoopbackServer(broken) as server, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await session.get(server.url)
    assert "KeyError: 'city'" in caplog.text


def test_an_api_that_is_not_faked_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"no fake of 'cohere': there are anthropic, .*bedrock"):
        FakeProvider("cohere")


def test_a_reply_of_another_kind_is_an_error_before_any_request() -> None:
    with pytest.raises(TypeError, match=r"a FakeReply, a FakeFailure or a text, not a tuple"):
        FakeProvider("anthropic", [("weather", {})])  # pyright: ignore[reportArgumentType]


def test_the_check_of_signed_requests_agrees_with_amazons_example() -> None:
    def request(signature: str = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31") -> ReceivedRequest:
        credential = "AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"
        authorization = (
            f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host;x-amz-date, Signature={signature}"
        )
        headers = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z", "authorization": authorization}
        return ReceivedRequest("GET", "/", headers, b"")

    secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    assert signature_problem(request(), secret, "service") is None
    assert signature_problem(request(), "another", "service") is not None
    assert signature_problem(request("0" * 64), secret, "service") is not None
    assert signature_problem(request(), secret, "bedrock") is not None
    assert signature_problem(ReceivedRequest("GET", "/", {}, b""), secret, "service") == "the request is not signed"
