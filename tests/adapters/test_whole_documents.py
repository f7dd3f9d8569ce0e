"""A server that answers with one JSON document where a stream was asked for: it is read as that reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swink_agent import (
    AgentContext,
    CancellationToken,
    ErrorKind,
    MessageAssembler,
    StopReason,
    StreamOptions,
    Text,
    Thinking,
    ToolCall,
    UserMessage,
)
from swink_agent.adapters.kit.frames import MOST_BYTES
from swink_agent.testing.servers import LoopbackServer, answer
from tests.adapters.each_provider import ADAPTERS, adapter_at, model_of

JSON = "application/json; charset=utf-8"
CALL = {"name": "weather", "arguments": '{"city":"Rome"}'}
COUNTS = {"input_tokens": 9, "output_tokens": 4}

_chat = {
    "id": "c",
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Let me look. ☀",
                "reasoning_content": "Hm.",
                "refusal": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": CALL}],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13},
}
_anthropic = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "Let me look. ☀"},
        {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Rome"}},
    ],
    "stop_reason": "tool_use",
    "usage": COUNTS,
}
_responses = {
    "id": "r",
    "object": "response",
    "status": "completed",
    "error": None,
    "output": [
        {"type": "reasoning", "id": "x", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "message", "id": "y", "content": [{"type": "output_text", "text": "Let me look. ☀"}]},
        {"type": "function_call", "id": "z", "call_id": "call_1", **CALL},
    ],
    "usage": COUNTS,
}
_gemini = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "Hm.", "thought": True},
                    {"text": "Let me look. ☀"},
                    {"functionCall": {"id": "call_1", "name": "weather", "args": {"city": "Rome"}}},
                ],
            },
            "finishReason": "STOP",
        }
    ],
    "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 4},
}
_ollama = {
    "model": "qwen3",
    "message": {
        "role": "assistant",
        "thinking": "Hm.",
        "content": "Let me look. ☀",
        "tool_calls": [{"id": "call_1", "function": {"name": "weather", "arguments": {"city": "Rome"}}}],
    },
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 9,
    "eval_count": 4,
}
_bedrock = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}},
                {"text": "Let me look. ☀"},
                {"toolUse": {"toolUseId": "call_1", "name": "weather", "input": {"city": "Rome"}}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 9, "outputTokens": 4},
}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "anthropic": _anthropic,
    "openai-responses": _responses,
    "gemini": _gemini,
    "ollama": _ollama,
    "bedrock": _bedrock,
}
apis = pytest.mark.parametrize("api", sorted(ADAPTERS))


async def reply_to(api: str, body: str | bytes, content_type: str = JSON, **given: Any) -> Any:
    """The message that the adapter makes of the server's answer."""
    async with LoopbackServer(answer(body, content_type=content_type, **given)) as server:
        assembler = MessageAssembler(model_of(api))
        context, options = AgentContext("", [UserMessage("hi")]), StreamOptions()
        stream_fn = adapter_at(api, server.url, "key-that-is-secret")
        async for event in stream_fn(model_of(api), context, options, CancellationToken()):
            assembler.feed(event)
    return assembler.message()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "key-that-is-secret")


@apis
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("content_type", [JSON, "text/event-stream", "text/plain"])
@pytest.mark.table
async def test_one_document_is_the_reply(api: str, indent: int | None, content_type: str) -> None:
    body = json.dumps(DOCUMENTS.get(api, _chat), indent=indent, ensure_ascii=False)
    message = await reply_to(api, f"\n{body}\n", content_type, pieces=7)
    assert message.error_message is None
    thinking = "".join(block.thinking for block in message.content if isinstance(block, Thinking))
    assert [thinking, message.text] == ["Hm.", "Let me look. ☀"]
    assert message.content[-2:] == (Text("Let me look. ☀"), ToolCall("call_1", "weather", {"city": "Rome"}))
    assert (message.stop_reason, message.usage.input, message.usage.output) == (StopReason.TOOL_USE, 9, 4)


@pytest.mark.parametrize(
    ("api", "change", "expected"),
    [
        ("openai", {"choices": [{"message": {"content": "a"}}]}, StopReason.STOP),
        ("openai", {"choices": [{"message": {"content": "a"}, "finish_reason": "length"}]}, StopReason.LENGTH),
        ("openai", {"choices": [{"message": {"refusal": "no"}, "finish_reason": "stop"}]}, ErrorKind.CONTENT_FILTERED),
        ("anthropic", {"stop_reason": "max_tokens"}, StopReason.LENGTH),
        ("anthropic", {"stop_reason": None}, StopReason.TOOL_USE),
        ("anthropic", {"stop_reason": "refusal"}, ErrorKind.CONTENT_FILTERED),
        ("openai-responses", {"status": "incomplete", "incomplete_details": {}}, StopReason.LENGTH),
        ("openai-responses", {"status": "failed", "error": {"code": "server_error"}}, ErrorKind.NETWORK),
        ("bedrock", {"stopReason": "max_tokens"}, StopReason.LENGTH),
        ("bedrock", {"stopReason": "guardrail_intervened"}, ErrorKind.CONTENT_FILTERED),
    ],
)
@pytest.mark.table
async def test_the_end_of_a_document_has_its_meaning(api: str, change: Any, expected: Any) -> None:
    message = await reply_to(api, json.dumps({**DOCUMENTS.get(api, _chat), **change}))
    assert (message.error_kind if message.is_failed else message.stop_reason) is expected


@apis
@pytest.mark.table
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('{"error": {"type": "rate_limit_error", "message": "rate limit reached"}}', ErrorKind.THROTTLED),
        ('{"type": "error", "error": {"message": "rate limit reached"}}', ErrorKind.THROTTLED),
    ],
)
async def test_an_error_in_a_document_keeps_its_kind(api: str, body: str, kind: ErrorKind) -> None:
    message = await reply_to(api, body)
    assert (message.error_kind, "rate limit" in message.error_message) == (kind, True)


@apis
@pytest.mark.table
@pytest.mark.parametrize("body", ['{"detail": "hello"}', '{"choices": []}', '{"output": 3}', "{", "null", "{}"])
async def test_any_other_document_is_a_failure(api: str, body: str) -> None:
    assert (await reply_to(api, body)).is_failed


@pytest.mark.parametrize("api", ["openai", "ollama"])
async def test_a_document_that_fills_the_memory_is_a_failure(api: str) -> None:
    message = await reply_to(api, b'{\n"a": "' + b"x" * 1024 * 1024 + b'",\n"b": "' + b"y" * MOST_BYTES + b'"}')
    assert message.is_failed
    assert f"more than {MOST_BYTES} bytes" in message.error_message
