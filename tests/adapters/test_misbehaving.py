"""Every adapter survives every misbehaviour of a server: one typed end, in time, and open blocks closed."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from swink_agent import (
    Agent,
    AgentContext,
    CancellationToken,
    Cost,
    ErrorKind,
    MessageAssembler,
    MessageUpdate,
    ModelSpec,
    StopReason,
    StreamFailed,
    StreamOptions,
    StreamStart,
    TextDelta,
    Usage,
    UserMessage,
)
from swink_agent.adapters import (
    AnthropicStreamFn,
    AzureStreamFn,
    BedrockStreamFn,
    GeminiStreamFn,
    Limits,
    MistralStreamFn,
    OllamaStreamFn,
    OpenAiResponsesStreamFn,
    OpenAiStreamFn,
    ProxyStreamFn,
    XAiStreamFn,
)
from swink_agent.testing.servers import Answer, LoopbackServer, answer, drips, floods_a_line, gzip_bomb, hangs, resets

SSE, NDJSON, AWS = "text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream"
MODEL = ModelSpec("test", "some-model")
CONTEXT = AgentContext("Be brief.", [UserMessage("hi")])

ADAPTERS: dict[str, tuple[Callable[..., Any], str]] = {
    "anthropic": (AnthropicStreamFn, SSE),
    "openai": (OpenAiStreamFn, SSE),
    "openai-responses": (OpenAiResponsesStreamFn, SSE),
    "azure": (AzureStreamFn, SSE),
    "xai": (XAiStreamFn, SSE),
    "mistral": (MistralStreamFn, SSE),
    "gemini": (GeminiStreamFn, SSE),
    "ollama": (OllamaStreamFn, NDJSON),
    "bedrock": (lambda url, key, **options: BedrockStreamFn("us-east-1", url, **options), AWS),
    "proxy": (ProxyStreamFn, SSE),
}


BEHAVIOURS: dict[str, tuple[Callable[[str], Answer], set[ErrorKind]]] = {
    "resets before the headers": (lambda kind: resets(before_headers=True), {ErrorKind.NETWORK}),
    "resets in the body": (lambda kind: resets(b"\n", content_type=kind), {ErrorKind.NETWORK}),
    "hangs before the headers": (lambda kind: hangs(before_headers=True), {ErrorKind.NETWORK}),
    "hangs in the body": (lambda kind: hangs(content_type=kind), {ErrorKind.NETWORK}),
    "drips": (lambda kind: drips(b": drip" * 200, pause=0.02, content_type=kind), {ErrorKind.NETWORK}),
    "sends a line without end": (
        lambda kind: floods_a_line(1024 * 1024 * 1024, content_type=kind),
        {ErrorKind.NETWORK},
    ),
    "sends a gzip bomb": (lambda kind: gzip_bomb(50_000_000, content_type=kind), {ErrorKind.NETWORK}),
    "ends without a terminal": (lambda kind: answer(b"", content_type=kind), {ErrorKind.NETWORK}),
    "sends a page": (lambda kind: answer("<html>Hello</html>", content_type="text/html"), {ErrorKind.NETWORK}),
    "sends garbage": (lambda kind: answer(bytes(range(256)) * 40, content_type=kind), {ErrorKind.NETWORK}),
    "throttles": (
        lambda kind: answer('{"error":{"message":"slow"}}', status=429, headers={"retry-after": "3"}),
        {ErrorKind.THROTTLED},
    ),
    "throttles until a date": (
        lambda kind: answer("{}", status=429, headers={"retry-after": "Fri, 01 Jan 2100 00:00:00 GMT"}),
        {ErrorKind.THROTTLED},
    ),
    "is overloaded": (lambda kind: answer('{"error":{"message":"busy"}}', status=529), {ErrorKind.NETWORK}),
    "refuses the key": (lambda kind: answer('{"error":{"message":"who?"}}', status=401), {ErrorKind.AUTH}),
    "says nothing about a wrong request": (lambda kind: answer("", status=400), {ErrorKind.INVALID_REQUEST}),
}


@pytest.fixture(autouse=True)
def aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-secret")


@pytest.mark.sweep
@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
async def test_a_misbehaving_server_gives_one_typed_failure_in_time(adapter: str, behaviour: str) -> None:
    make, content_type = ADAPTERS[adapter]
    answer_with, kinds = BEHAVIOURS[behaviour]
    assembler = MessageAssembler(MODEL)
    start = time.monotonic()
    async with LoopbackServer(answer_with(content_type)) as server, asyncio.timeout(60):
        stream = make(server.url, "the-secret-key", limits=Limits(progress=0.3))(
            MODEL, CONTEXT, StreamOptions(), CancellationToken()
        )
        events = [event async for event in stream]
    for event in events:
        assembler.feed(event)
    assert not assembler.is_broken, assembler.failure
    failed = events[-1]
    assert isinstance(failed, StreamFailed)
    assert failed.kind in kinds, failed
    assert time.monotonic() - start < 15
    assert "secret" not in repr(events) + failed.message
    if "throttles" in behaviour:
        assert failed.retry_after is not None
        assert failed.retry_after >= 3


# -- what a reply cost that did not end well ---------------------------------------------------------------------

PRICED = {
    "anthropic": ModelSpec("anthropic", "claude-sonnet-4-6"),
    "openai": ModelSpec("openai", "gpt-4o"),
    "openai-responses": ModelSpec("openai-responses", "gpt-4o"),
    "gemini": ModelSpec("gemini", "gemini-2.5-pro"),
    "bedrock": ModelSpec("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    "ollama": ModelSpec("ollama", "llama"),
}


def sse(*frames: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(frame) + b"\n\n" for frame in frames)


def wrapped(*events: dict[str, Any]) -> bytes:
    """Anthropic's events, as Bedrock's older call wraps them."""
    from swink_agent.testing.fakes.kit.replies import aws_event

    data = [base64.b64encode(msgspec.json.encode(event)).decode() for event in events]
    return b"".join(aws_event("chunk", {"bytes": piece}) for piece in data)


CLAUDE_STARTS = (
    {"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
)
STARTS = {
    "anthropic": sse(*CLAUDE_STARTS),
    "bedrock": wrapped(*CLAUDE_STARTS),
    "openai": sse(
        {"choices": [{"index": 0, "delta": {"content": "Hel"}}], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    ),
    "openai-responses": sse(
        {"type": "response.in_progress", "response": {"usage": {"input_tokens": 7, "output_tokens": 1}}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"},
    ),
    "gemini": sse(
        {
            "candidates": [{"content": {"parts": [{"text": "Hel"}]}}],
            "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 1},
        }
    ),
    "ollama": b'{"message":{"content":"Hel"},"prompt_eval_count":7,"eval_count":1}\n',
}
ERRORS = {
    "anthropic": sse({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}),
    "bedrock": wrapped({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}),
    "openai": sse({"error": {"code": 503, "message": "Busy"}}),
    "openai-responses": sse({"type": "error", "code": "server_error", "message": "Busy"}),
    "gemini": sse({"error": {"code": 503, "message": "Busy"}}),
    "ollama": b'{"error":"Busy"}\n',
}
GARBLED = {name: b"data: {no json\n\n" if name != "ollama" else b"{no json\n" for name in STARTS}
GARBLED["bedrock"] = b"\0" * 64


@pytest.mark.table
@pytest.mark.parametrize("adapter", STARTS)
@pytest.mark.parametrize("ending", ["cut", "reset", "error", "garbled", "aborted"])
async def test_a_reply_that_does_not_end_well_says_what_it_has_used(adapter: str, ending: str) -> None:
    make, content_type = ADAPTERS[adapter]
    start, model, cancel = STARTS[adapter], PRICED[adapter], CancellationToken()
    answers = {
        "cut": answer(start, content_type=content_type),
        "reset": resets(start, content_type=content_type),
        "error": answer(start + ERRORS[adapter], content_type=content_type),
        "garbled": answer(start + GARBLED[adapter], content_type=content_type),
        "aborted": hangs(after=start, content_type=content_type),
    }
    async with LoopbackServer(answers[ending]) as server, asyncio.timeout(60):
        events: list[Any] = []
        async for event in make(server.url, "key")(model, CONTEXT, StreamOptions(), cancel):
            events.append(event)
            if ending == "aborted" and isinstance(event, TextDelta):
                cancel.cancel()
    failed = events[-1]
    assert isinstance(failed, StreamFailed)
    assert failed.kind == (ErrorKind.ABORTED if ending == "aborted" else ErrorKind.NETWORK)
    assert failed.usage == Usage(input=7, output=1, total=8)
    assert failed.cost is not None
    assert (failed.cost.total > 0) == (adapter != "ollama")


@pytest.mark.table
@pytest.mark.parametrize("adapter", STARTS)
async def test_an_aborted_run_counts_what_its_reply_had_used(adapter: str) -> None:
    make, content_type = ADAPTERS[adapter]
    async with LoopbackServer(hangs(after=STARTS[adapter], content_type=content_type)) as server, asyncio.timeout(30):
        agent = Agent(PRICED[adapter], stream_fn=make(server.url, "key"))
        agent.subscribe(lambda event: agent.abort() if isinstance(event, MessageUpdate) else None)
        result = await agent.prompt("hi")
    assert result.stop_reason == StopReason.ABORTED
    assert (result.text, result.usage) == ("Hel", Usage(input=7, output=1, total=8))
    assert (result.cost.total > 0) == (adapter != "ollama")


async def test_a_reply_of_which_nothing_was_told_says_nothing() -> None:
    async with LoopbackServer(answer(b"")) as server:
        stream = OpenAiStreamFn(server.url, "key")(MODEL, CONTEXT, StreamOptions(), CancellationToken())
        failed = [event async for event in stream][-1]
    assert isinstance(failed, StreamFailed)
    assert (failed.usage, failed.cost) == (None, None)


async def test_the_proxy_passes_on_what_a_failed_reply_cost() -> None:
    failed = StreamFailed("No", ErrorKind.CONTENT_FILTERED, usage=Usage(input=7, total=7), cost=Cost(input=1, total=1))
    body = b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in (StreamStart(), failed))
    async with LoopbackServer(answer(body)) as server:
        stream = ProxyStreamFn(server.url, "key")(MODEL, CONTEXT, StreamOptions(), CancellationToken())
        assert [event async for event in stream][-1] == failed


async def cancel_when_asked(server: LoopbackServer, cancel: CancellationToken) -> None:
    """Cancels a moment after the request has come, however long it took to send the first one."""
    while not server.requests:  # noqa: ASYNC110 - a request has no event
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)
    cancel.cancel()


@pytest.mark.table
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_cancelled_call_closes_its_connection_at_once(adapter: str) -> None:
    make, content_type = ADAPTERS[adapter]
    async with LoopbackServer(hangs(content_type=content_type)) as server:
        cancel = CancellationToken()
        cancelling = asyncio.ensure_future(cancel_when_asked(server, cancel))
        stream = make(server.url, "key")(MODEL, CONTEXT, StreamOptions(), cancel)
        events = [event async for event in stream]
        await cancelling
        assert isinstance(events[-1], StreamFailed)
        assert events[-1].kind == ErrorKind.ABORTED
        async with asyncio.timeout(60):
            await server.closed.wait()


@pytest.mark.parametrize(
    ("adapter", "variable"),
    [
        (AnthropicStreamFn, "ANTHROPIC_API_KEY"),
        (OpenAiStreamFn, "OPENAI_API_KEY"),
        (OpenAiResponsesStreamFn, "OPENAI_API_KEY"),
        (AzureStreamFn, "AZURE_OPENAI_ENDPOINT"),
        (XAiStreamFn, "XAI_API_KEY"),
        (MistralStreamFn, "MISTRAL_API_KEY"),
        (GeminiStreamFn, "GEMINI_API_KEY"),
        (BedrockStreamFn, "AWS_ACCESS_KEY_ID"),
        (ProxyStreamFn, "SWINK_PROXY_URL"),
    ],
)
async def test_a_missing_key_names_its_variable_before_any_request(
    adapter: Any, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL", "_TOKEN", "_ENDPOINT")) or name.startswith(("AWS_", "SWINK_PROXY")):
            monkeypatch.delenv(name)
    (failed,) = [event async for event in adapter()(MODEL, CONTEXT, StreamOptions(), CancellationToken())]
    assert isinstance(failed, StreamFailed)
    assert variable in failed.message
