"""Both ends of the proxy, over a real socket."""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AssistantMessage,
    AssistantMessageEvent,
    CancellationToken,
    Cost,
    ErrorKind,
    MessageAssembler,
    ModelSpec,
    StreamDone,
    StreamFailed,
    StreamFn,
    StreamOptions,
    StreamStart,
    TextDelta,
    TextStart,
    Usage,
    UserMessage,
    tool,
)
from swink_agent.adapters.proxy import ProxyStreamFn
from swink_agent.adapters.proxy_server import ProxyServer
from swink_agent.testing import call, check_stream_fn, collect, fail, scripted, text, think

MODEL = ModelSpec("proxy", "anthropic:claude-test")
CONTEXT = AgentContext("Be brief.", [UserMessage("hi")])
TOKEN = "proxy-token-1"


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def server(upstream: StreamFn, tokens: dict[str, int] | None = None, **options: Any) -> ProxyServer:
    return ProxyServer(tokens or {TOKEN: 4}, lambda model: upstream, **options)


async def events_from(url: str, token: str = TOKEN, context: AgentContext = CONTEXT) -> list[AssistantMessageEvent]:
    stream_fn = ProxyStreamFn(url, token)
    options = StreamOptions(temperature=0.5, output_schema={"type": "object"})
    return await collect(stream_fn(MODEL, context, options, CancellationToken()))


async def test_a_reply_comes_through_as_it_was() -> None:
    used = Usage(input=3, output=5, total=8)
    parts = [think("hm", signature="s1"), text("hello", deltas=3), call("add", a=1, b=2), call("add", a=3, b=4)]
    upstream = scripted(parts, usage=used, cost=Cost(total=0.5))
    async with server(upstream).serve() as url:
        events = await events_from(url)
    direct = await collect(
        scripted(parts, usage=used, cost=Cost(total=0.5))(MODEL, CONTEXT, StreamOptions(), CancellationToken())
    )
    assert events == direct
    assembler = MessageAssembler(MODEL)
    for event in events:
        assembler.feed(event)
    assert assembler.message().usage == used


async def test_the_proxy_asks_upstream_for_what_the_client_asked() -> None:
    upstream = scripted(text("ok"))
    context = AgentContext("Be brief.", [UserMessage("hi"), AssistantMessage("hello"), UserMessage("again")], [add])
    async with server(upstream).serve() as url:
        await events_from(url, context=context)
    (request,) = upstream.requests
    assert request.model == ModelSpec("anthropic", "claude-test")
    assert request.context.system_prompt == "Be brief."
    assert request.messages == context.messages
    assert [item.name for item in request.context.tools] == ["add"]
    assert request.context.tools[0].parameters_schema == add.parameters_schema
    assert request.options.temperature == 0.5
    assert request.options.output_schema == {"type": "object"}
    assert request.options.api_key is None


async def test_an_agent_works_through_the_proxy() -> None:
    upstream = scripted(call("add", a=2, b=3), text("5"))
    async with server(upstream).serve() as url:
        agent = Agent(MODEL, stream_fn=ProxyStreamFn(url, TOKEN), tools=[add])
        result = await agent.prompt("2+3?")
    assert result.text == "5"
    assert len(upstream.requests) == 2


async def test_failures_keep_their_kind_and_their_advice() -> None:
    async with server(scripted([text("par"), fail("throttled", "slow down", retry_after=7.5)])).serve() as url:
        events = await events_from(url)
    failed = events[-1]
    assert isinstance(failed, StreamFailed)
    assert (failed.kind, failed.retry_after, failed.message) == (ErrorKind.THROTTLED, 7.5, "slow down")


async def test_a_wrong_token_is_an_auth_failure_and_asks_nobody() -> None:
    upstream = scripted(text("never"))
    async with server(upstream).serve() as url:
        events = await events_from(url, token="wrong")
    assert isinstance(events[-1], StreamFailed)
    assert events[-1].kind == ErrorKind.AUTH
    assert not upstream.requests


async def test_a_token_has_its_own_number_of_streams() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        begun.set()
        yield StreamStart()
        await release.wait()
        yield StreamDone()

    proxy = server(slow, {"one": 1, "two": 1})
    async with proxy.serve() as url:
        first = asyncio.ensure_future(events_from(url, "one"))
        await begun.wait()
        refused = await events_from(url, "one")
        assert isinstance(refused[-1], StreamFailed)
        assert (refused[-1].kind, refused[-1].retry_after) == (ErrorKind.THROTTLED, 1.0)
        second = asyncio.ensure_future(events_from(url, "two"))
        release.set()
        assert isinstance((await first)[-1], StreamDone)
        assert isinstance((await second)[-1], StreamDone)
        assert proxy.open_streams == 0
        assert repr(proxy) == "<ProxyServer, 2 tokens, 0 streams open>"


async def test_a_request_that_is_too_large_is_refused() -> None:
    async with server(scripted(text("never")), most_bytes=1000).serve() as url:
        events = await events_from(url, context=AgentContext("", [UserMessage("x" * 5000)]))
    assert isinstance(events[-1], StreamFailed)
    assert "larger than 1000 bytes" in events[-1].message


async def test_the_upstream_call_ends_when_the_client_goes_away() -> None:
    ended = asyncio.Event()

    async def endless(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        try:
            yield StreamStart()
            yield TextStart(0)
            yield TextDelta(0, "hi")
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    async with server(endless).serve() as url:
        stream: Any = ProxyStreamFn(url, TOKEN)(MODEL, CONTEXT, StreamOptions(), CancellationToken())
        async for event in stream:
            if isinstance(event, TextDelta):
                break
        await stream.aclose()
        async with asyncio.timeout(60):
            await ended.wait()


async def test_a_stream_function_that_raises_upstream_says_nothing_about_how(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        raise RuntimeError("secret-key-in-the-error")

    with caplog.at_level(logging.DEBUG):
        async with server(broken).serve() as url:
            events = await events_from(url)
    assert isinstance(events[-1], StreamFailed)
    assert "secret" not in repr(events) + caplog.text


async def test_no_log_has_a_token_or_a_prompt(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with server(scripted(text("a private answer"))).serve() as url:
            await events_from(url, context=AgentContext("", [UserMessage("a private question")]))
            await events_from(url, token="wrong-token")
    for secret in (TOKEN, "wrong-token", "private"):
        assert secret not in caplog.text


async def test_a_plain_client_gets_server_sent_events() -> None:
    content = '[{"type":"text","text":"hi"}]'
    body = f'{{"model":{{"provider":"a","model_id":"m"}},"messages":[{{"role":"user","content":{content}}}]}}'
    async with server(scripted(text("hello"))).serve() as url:
        curl = shutil.which("curl")
        output = await (post_with_curl(curl, url, body) if curl else post_over_a_socket(url, body))
    lines = output.split("\n\n")
    assert lines[0] == 'data: {"type":"stream_start"}'
    assert 'data: {"type":"text_delta","index":0,"delta":"hello"}' in lines
    assert "message" not in output


async def post_with_curl(curl: str, url: str, body: str) -> str:
    arguments = ["-sS", "-N", "-H", f"authorization: Bearer {TOKEN}", "-d", body, f"{url}/v1/stream"]
    process = await asyncio.create_subprocess_exec(curl, *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return output.decode()


async def post_over_a_socket(url: str, body: str) -> str:
    """What curl does, for machines that have none: HTTP/1.0, so that the body comes as it is."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/stream HTTP/1.0\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    answer = await reader.read()
    writer.close()
    return answer.decode().partition("\r\n\r\n")[2]


async def test_a_bare_socket_gets_the_same() -> None:
    async with server(scripted(text("hello"))).serve() as url:
        body = '{"model":{"provider":"a","model_id":"m"},"messages":[]}'
        assert (await post_over_a_socket(url, body)).startswith('data: {"type":"stream_start"}')


def test_it_keeps_the_rules_of_stream_functions() -> None:
    """The server lives in a thread of its own, so that the check for tasks left behind sees the client's alone."""
    ready, done = threading.Event(), threading.Event()
    addresses: list[str] = []

    async def serve() -> None:
        async with server(scripted(*[text("hello", deltas=4)] * 50), {TOKEN: 50}).serve() as url:
            addresses.append(url)
            ready.set()
            await asyncio.to_thread(done.wait, 30)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(30)
        shared = ProxyStreamFn(addresses[0], TOKEN)
        asyncio.run(check_stream_fn(lambda: shared, model=MODEL))
    finally:
        done.set()
        thread.join()


def test_a_proxy_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        ProxyServer({})


@pytest.mark.parametrize("value", [None, ""])
async def test_a_missing_address_or_token_names_its_variable(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SWINK_PROXY_URL", "SWINK_PROXY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    (failed,) = await collect(ProxyStreamFn()(MODEL, CONTEXT, StreamOptions(), CancellationToken()))
    assert "SWINK_PROXY_URL" in failed.message  # type: ignore[union-attr]
    (failed,) = await collect(ProxyStreamFn("http://127.0.0.1:9")(MODEL, CONTEXT, StreamOptions(), CancellationToken()))
    assert "SWINK_PROXY_TOKEN" in failed.message  # type: ignore[union-attr]
