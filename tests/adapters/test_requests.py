"""What all requests have in common: the choice of tools, ids of calls, blank content, the same beginning each turn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import pytest

from swink_agent import (
    AgentContext,
    AgentMessage,
    AssistantMessage,
    Base64Image,
    CancellationToken,
    ErrorKind,
    Extension,
    Image,
    ModelSpec,
    StopReason,
    StreamOptions,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    tool,
)
from swink_agent.adapters import (
    AnthropicStreamFn,
    AzureStreamFn,
    BedrockStreamFn,
    GeminiStreamFn,
    MistralStreamFn,
    OllamaStreamFn,
    OpenAiResponsesStreamFn,
    OpenAiStreamFn,
    XAiStreamFn,
)

HOST = "https://provider.example"
CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
MARKS = re.compile(rb',"cache_control":\{"type":"ephemeral"\}|,\{"cachePoint":\{"type":"default"\}\}')
"""Cache marks, which move from turn to turn."""


class Provider(NamedTuple):
    """An adapter, and how its requests say what all of them say."""

    stream_fn: Any
    model_id: str
    call: str
    """The key of the object that is a call, or of its id."""
    call_id: str
    result_id: str
    ids: str = r"[A-Za-z0-9_-]{1,64}"
    """The form of ids that the provider takes."""
    arguments: str = "input"
    empty: Any = {}


def chat(stream_fn: Any, model_id: str, ids: str = r".{1,40}") -> Provider:
    return Provider(stream_fn, model_id, "tool_calls", "id", "tool_call_id", ids, "arguments", "{}")


PROVIDERS = {
    "anthropic": Provider(AnthropicStreamFn(HOST), "claude-sonnet-4-5", "tool_use", "id", "tool_use_id"),
    "bedrock": Provider(BedrockStreamFn("us-east-1", HOST), CLAUDE, "toolUse", "toolUseId", "toolUseId"),
    "gemini": Provider(GeminiStreamFn(HOST), "gemini-3-pro-preview", "functionCall", "id", "id", arguments="args"),
    "openai-responses": Provider(
        OpenAiResponsesStreamFn(HOST),
        "gpt-5.6-terra",
        "function_call",
        "call_id",
        "call_id",
        arguments="arguments",
        empty="{}",
    ),
    "openai": chat(OpenAiStreamFn(HOST), "gpt-5.6-terra"),
    "azure": chat(AzureStreamFn(HOST), "deployment"),
    "xai": chat(XAiStreamFn(HOST), "grok-4.3"),
    "mistral": chat(MistralStreamFn(HOST), "mistral-medium-latest", "[A-Za-z0-9]{9}"),
    "ollama": Provider(
        OllamaStreamFn(HOST), "qwen3", "tool_calls", "id", "tool_call_id", ids="(?s).+", arguments="arguments"
    ),
}
every_provider = pytest.mark.parametrize("name", PROVIDERS)


@tool
def clock() -> str:
    """The time."""
    return "noon"


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return city


def request_body(name: str, messages: Sequence[AgentMessage], tools: Sequence[Any] = (), **options: Any) -> bytes:
    provider = PROVIDERS[name]
    context = AgentContext("Be brief.", list(messages), tools)
    return provider.stream_fn.build(
        ModelSpec(name, provider.model_id), context, StreamOptions(api_key="k", **options)
    ).body


def sent(name: str, messages: Sequence[AgentMessage], tools: Sequence[Any] = (), **options: Any) -> Any:
    return json.loads(request_body(name, messages, tools, **options))


def values(document: Any, key: str) -> Iterator[Any]:
    """All values under a key, at any depth, in order."""
    if isinstance(document, dict):
        for name, value in cast("dict[str, Any]", document).items():
            if name == key:
                yield value
            yield from values(value, key)
    elif isinstance(document, list):
        for item in cast("list[Any]", document):
            yield from values(item, key)


def reply(name: str, *blocks: Any, **fields: Any) -> AssistantMessage:
    return AssistantMessage(blocks, name, PROVIDERS[name].model_id, **fields)


# -- the choice of tools ---------------------------------------------------------------------------------------

FUNCTION = {"type": "function", "function": {"name": "clock"}}
CHOICES: dict[str, dict[str, Any]] = {
    "anthropic": {
        "none": {"tool_choice": {"type": "none"}},
        "required": {"tool_choice": {"type": "any"}},
        "clock": {"tool_choice": {"type": "tool", "name": "clock"}},
    },
    "bedrock": {
        "none": {},  # the tools are left out
        "required": {"toolChoice": {"any": {}}},
        "clock": {"toolChoice": {"tool": {"name": "clock"}}},
    },
    "gemini": {
        "none": {"functionCallingConfig": {"mode": "NONE"}},
        "required": {"functionCallingConfig": {"mode": "ANY"}},
        "clock": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["clock"]}},
    },
    "openai-responses": {
        "none": {"tool_choice": "none"},
        "required": {"tool_choice": "required"},
        "clock": {"tool_choice": {"type": "function", "name": "clock"}},
    },
    "mistral": {
        "none": {"tool_choice": "none"},
        "required": {"tool_choice": "any"},
        "clock": {"tool_choice": FUNCTION},
    },
    "ollama": {"none": {}, "required": {}, "clock": {}},  # the tools that are offered are the choice
    "openai": (
        as_written := {
            "none": {"tool_choice": "none"},
            "required": {"tool_choice": "required"},
            "clock": {"tool_choice": FUNCTION},
        }
    ),
    "azure": as_written,
    "xai": as_written,
}
OFFERED = {("bedrock", "none"): [], ("ollama", "none"): [], ("ollama", "clock"): ["clock"]}
"""Where the choice changes which tools the request has."""


@pytest.mark.table
@every_provider
@pytest.mark.parametrize("choice", ["auto", "none", "required", "clock"])
def test_the_choice_of_tools_has_the_providers_words(name: str, choice: str) -> None:
    body = sent(name, [UserMessage("hi")], [weather, clock], tool_choice=choice)
    words = ("tool_choice", "toolChoice", "functionCallingConfig")
    said = {word: value for word in words for value in values(body, word)}
    assert said == ({} if choice == "auto" else CHOICES[name][choice])
    tools = [found for key in ("tools", "functionDeclarations", "toolSpec") for found in values(body, key)]
    offered = [tool for tool in dict.fromkeys(values(tools, "name")) if tool in ("weather", "clock")]
    assert offered == OFFERED.get((name, choice), ["weather", "clock"])


@pytest.mark.table
@every_provider
def test_a_choice_of_tools_is_not_sent_without_tools(name: str) -> None:
    assert b"hoice" not in request_body(name, [UserMessage("hi")], tool_choice="required")


# -- messages --------------------------------------------------------------------------------------------------


@pytest.mark.table
@every_provider
@pytest.mark.parametrize(
    "given",
    ["toolu_01ABC", "call-2bef41fa-3091-4ced-a7f7-b5ade68841cf-1", "functions.add:0", "x" * 65, "é", "a b|c", "d" * 90],
)
def test_an_id_of_another_provider_is_taken_and_the_same_in_call_and_result(name: str, given: str) -> None:
    provider = PROVIDERS[name]
    others = AssistantMessage(
        [ToolCall(given, "clock"), ToolCall(given + "2", "clock")], "elsewhere", "m", stop_reason=StopReason.TOOL_USE
    )
    results = [ToolResultMessage(call.id, "noon", tool_name="clock") for call in others.tool_calls]
    body = sent(name, [UserMessage("time?"), others, *results])
    calls = [one for found in _calls(body, provider) for one in values(found, provider.call_id)]
    answered = list(values(_without_calls(body, provider), provider.result_id))
    assert calls == answered[-2:]
    assert calls[0] != calls[1]
    assert all(re.fullmatch(provider.ids, call) for call in calls)
    if re.fullmatch(provider.ids, given):
        assert calls[0] == given


def _calls(body: Any, provider: Provider) -> list[Any]:
    found = list(values(body, provider.call))
    return found or [item for item in _objects(body) if item.get("type") == provider.call]


def _without_calls(body: Any, provider: Provider) -> Any:
    if isinstance(body, dict):
        known = cast("dict[str, Any]", body)
        if known.get("type") == provider.call:
            return {}
        return {key: _without_calls(value, provider) for key, value in known.items() if key != provider.call}
    return [_without_calls(item, provider) for item in cast("list[Any]", body)] if isinstance(body, list) else body


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, dict):
        yield cast("dict[str, Any]", document)
        document = list(cast("dict[str, Any]", document).values())
    if isinstance(document, list):
        for item in cast("list[Any]", document):
            yield from _objects(item)


@pytest.mark.table
@every_provider
def test_a_call_that_was_cut_off_is_sent_without_arguments(name: str) -> None:
    provider = PROVIDERS[name]
    cut = reply(name, ToolCall("abcdefgh1", "clock", {}, partial_json='{"ci'), stop_reason=StopReason.LENGTH)
    body = sent(name, [UserMessage("go"), cut, ToolResultMessage("abcdefgh1", "cut", is_error=True, tool_name="clock")])
    (call,) = _calls(body, provider)
    assert list(values(call, provider.arguments)) == [provider.empty]


CHATS = ("openai", "azure", "xai", "mistral", "ollama")
PICTURE = Image(Base64Image("image/png", "iVBORw=="))


def result_of(name: str, content: Any, *, is_error: bool) -> Any:
    """What a chat model reads as the result of a call."""
    result = ToolResultMessage("abcdefgh1", content, is_error=is_error, tool_name="clock")
    messages = sent(name, [UserMessage("go"), reply(name, ToolCall("abcdefgh1", "clock", {})), result])["messages"]
    (told,) = [message["content"] for message in messages if message["role"] == "tool"]
    return told


@pytest.mark.table
@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize(
    ("content", "good", "failed"),
    [
        ("no bell", "no bell", "Error: no bell"),
        ([Text(" a\n"), Text("b ")], " a\nb ", "Error:  a\nb "),
        ("Error: no bell", "Error: no bell", "Error: no bell"),
        ([], "(no output)", "Error: (no output)"),
        ("", "(no output)", "Error: (no output)"),
        ([Text(""), Text("")], "(no output)", "Error: (no output)"),
    ],
)
def test_a_chat_model_reads_that_a_tool_failed(name: str, content: Any, good: str, failed: str) -> None:
    assert result_of(name, content, is_error=False) == good
    assert result_of(name, content, is_error=True) == failed


@pytest.mark.table
@pytest.mark.parametrize("name", CHATS)
def test_a_chat_model_reads_that_a_tool_with_a_picture_failed(name: str) -> None:
    good, failed = [result_of(name, [PICTURE], is_error=is_error) for is_error in (False, True)]
    if name == "mistral":  # its results take pictures
        assert failed == [{"type": "text", "text": "Error:"}, *good]
    else:
        assert (good, failed) == ("(see the image below)", "Error: (see the image below)")
    assert "bell" in str(result_of(name, [Text("no bell"), PICTURE], is_error=True))


class NotJson:
    """A tool with a schema that JSON cannot express."""

    name = label = description = "look"
    parameters_schema: ClassVar[dict[str, Any]] = {"type": "object", "properties": {"at": {"default": object()}}}
    requires_approval = False

    async def execute(self, arguments: dict[str, Any], ctx: Any) -> Any: ...


@pytest.mark.table
@every_provider
@pytest.mark.parametrize(
    ("tools", "extra", "field"),
    [((), {"x": object()}, "x"), ((), {"x": "\ud800"}, "x"), ((NotJson(),), {}, "tool")],
)
async def test_values_that_json_cannot_express_are_named_by_their_field(
    name: str, tools: Any, extra: Any, field: str
) -> None:
    context = AgentContext("", [UserMessage("hi")], tools)
    stream_fn, model = PROVIDERS[name].stream_fn, ModelSpec(name, PROVIDERS[name].model_id)
    options = StreamOptions(api_key="k", extra=extra)
    (failed,) = [event async for event in stream_fn(model, context, options, CancellationToken())]
    assert failed.kind == ErrorKind.INVALID_REQUEST
    assert failed.message.startswith(f"the field '{field}")
    assert "cannot be written as JSON" in failed.message


@pytest.mark.table
@every_provider
def test_empty_fields_are_left_out(name: str) -> None:
    history = [
        UserMessage([Text(""), Text("hi"), Extension("widget", {})]),
        reply(name, Text(""), Thinking("unsigned"), Extension("widget", {})),
        AssistantMessage([], "elsewhere", "m", stop_reason=StopReason.ABORTED),
        UserMessage("again"),
    ]
    body = request_body(name, history)
    assert b"widget" not in body
    said = [text for key in ("text", "content") for text in values(json.loads(body), key) if isinstance(text, str)]
    assert [text for text in said if text in ("hi", "again")] == ["hi", "again"]
    assert not [text for text in said if not text.strip()]


@every_provider
def test_the_origin_of_a_message_is_not_sent(name: str) -> None:
    own, made = UserMessage("Hello.", 1), UserMessage("Hello.", 1, origin="summary")
    assert request_body(name, [made]) == request_body(name, [own])


@pytest.mark.table
@every_provider
def test_sent_messages_stay_the_same_from_turn_to_turn(name: str) -> None:
    history: list[AgentMessage] = [UserMessage("weather?")]
    before = b""
    for turn in range(4):
        body = MARKS.sub(b"", request_body(name, history, [weather, clock], session_id="s"))
        assert body.startswith(before)
        before = body.rstrip(b"]}")
        history += [
            reply(name, Text("one moment"), ToolCall(f"abcdefgh{turn}", "weather", {"city": "Rome"})),
            ToolResultMessage(f"abcdefgh{turn}", "sunny", tool_name="weather"),
        ]
