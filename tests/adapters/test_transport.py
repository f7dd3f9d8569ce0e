"""A call over a real socket: whatever the server does, one typed end, in time."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AssistantMessage,
    AssistantMessageEvent,
    CancellationToken,
    ErrorKind,
    MessageAssembler,
    ModelSpec,
    StopReason,
    StreamDone,
    StreamFailed,
    StreamOptions,
    TextDelta,
    UserMessage,
)
from swink_agent.adapters.kit.transport import AiohttpTransport, HttpRequest, Limits, TransportError
from swink_agent.adapters.openai import OpenAiStreamFn
from swink_agent.testing.servers import (
    Answer,
    LoopbackServer,
    answer,
    drips,
    floods_a_line,
    gzip_bomb,
    hangs,
    resets,
)

MODEL = ModelSpec("openai", "gpt-test")
JSON = "application/json"
CONTEXT = AgentContext("Be brief.", [UserMessage("hi")])


def chunk(delta: str, finish: str = "null") -> bytes:
    return f'data: {{"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}\n\n'.encode()


HELLO = chunk('{"content":"Hel"}') + chunk('{"content":"lo"}')
WHOLE = HELLO + chunk("{}", '"stop"') + b"data: [DONE]\n\n"


async def call(
    server: LoopbackServer, cancel: CancellationToken | None = None, **limits: float
) -> list[AssistantMessageEvent]:
    stream_fn = OpenAiStreamFn(server.url, "sk-test-key", limits=Limits(**limits))
    async with asyncio.timeout(40):
        return [event async for event in stream_fn(MODEL, CONTEXT, StreamOptions(), cancel or CancellationToken())]


def check(events: list[AssistantMessageEvent]) -> MessageAssembler:
    """The events as a message; they are in order and have one end."""
    assembler = MessageAssembler(MODEL)
    for event in events:
        assembler.feed(event)
    assert not assembler.is_broken, assembler.failure
    assert assembler.is_finished
    return assembler


async def failure_of(behaviour: Answer, **limits: float) -> StreamFailed:
    async with LoopbackServer(behaviour) as server:
        events = await call(server, **limits)
    check(events)
    assert isinstance(events[-1], StreamFailed)
    assert "sk-test-key" not in repr(events)
    return events[-1]


async def test_a_reply_in_any_number_of_pieces_is_the_same_reply() -> None:
    for pieces in (1, 2, 7, len(WHOLE)):
        async with LoopbackServer(answer(WHOLE, pieces=pieces)) as server:
            events = await call(server)
        assert check(events).message().text == "Hello"
        assert isinstance(events[-1], StreamDone)


async def test_a_request_with_a_large_image_is_sent_whole_and_without_a_warning() -> None:
    context = AgentContext("", [UserMessage("x" * 3_000_000)])
    async with LoopbackServer(answer(WHOLE)) as server:
        stream_fn = OpenAiStreamFn(server.url, "sk-test-key")
        events = [event async for event in stream_fn(MODEL, context, StreamOptions(), CancellationToken())]
        [request] = server.requests
    assert check(events).message().text == "Hello"
    assert request.headers["content-length"] == str(len(request.body))
    assert len(request.body) > 3_000_000


async def test_the_request_is_a_post_with_the_key_and_the_conversation() -> None:
    async with LoopbackServer(answer(WHOLE)) as server:
        await call(server)
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == "Bearer sk-test-key"
    assert b'"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}]' in request.body


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (resets(before_headers=True), ErrorKind.NETWORK),
        (resets(HELLO), ErrorKind.NETWORK),
        (answer(HELLO), ErrorKind.NETWORK),
        (answer(b""), ErrorKind.NETWORK),
        (answer("<html><body>Welcome to the airport</body></html>", content_type="text/html"), ErrorKind.NETWORK),
        (
            answer('{"error":{"message":"no such thing","code":400}}', content_type="application/json"),
            "invalid_request",
        ),
        (answer(b"data: {not json}\n\n"), ErrorKind.NETWORK),
        (answer(WHOLE[:-20], headers={"content-length": "5000"}), ErrorKind.NETWORK),
        (answer("", status=529), ErrorKind.NETWORK),
        (answer("", status=408), ErrorKind.NETWORK),
        (answer('{"error":{"message":"prompt is too long"}}', status=400), ErrorKind.CONTEXT_OVERFLOW),
        (answer('{"error":{"message":"Incorrect API key"}}', status=400), ErrorKind.AUTH),
        (answer("nope", status=403), ErrorKind.AUTH),
        (answer("moved", status=302, headers={"location": "http://127.0.0.1:1/"}), ErrorKind.INVALID_REQUEST),
        (gzip_bomb(200_000_000), ErrorKind.NETWORK),
        (answer(b"not gzip", headers={"content-encoding": "gzip"}), ErrorKind.NETWORK),
        (answer(WHOLE, headers={"content-encoding": "br"}), ErrorKind.NETWORK),
    ],
    ids=lambda value: getattr(value, "__name__", str(value))[:20],
)
async def test_every_misbehaviour_ends_in_one_typed_failure(behaviour: Answer, kind: str) -> None:
    assert (await failure_of(behaviour)).kind == kind


async def test_text_streamed_before_a_cut_stays() -> None:
    async with LoopbackServer(resets(HELLO)) as server:
        assert check(await call(server)).message().text == "Hello"


async def test_a_flood_is_read_in_pieces_between_which_others_take_their_turn() -> None:
    sent = chunk('{"content":"word "}') * 20_000 + WHOLE
    turns, texts = 0, 0
    async with LoopbackServer(answer(sent)) as server:

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(take_turns())
        stream_fn = OpenAiStreamFn(server.url, "sk-test-key")
        most, before, told = 0, 0, 0
        async for event in stream_fn(MODEL, CONTEXT, StreamOptions(), CancellationToken()):
            texts += isinstance(event, TextDelta)
            if turns != before:
                most, before, told = max(most, texts - told), turns, texts
        other.cancel()
    assert texts == 20_002
    assert max(most, texts - told) <= 1000


async def test_a_second_terminal_frame_changes_nothing() -> None:
    async with LoopbackServer(answer(WHOLE + WHOLE)) as server:
        events = await call(server)
    assert check(events).message().text == "Hello"


@pytest.mark.parametrize("behaviour", [hangs(before_headers=True), hangs(after=HELLO), drips(HELLO * 50, pause=0.05)])
async def test_silence_and_dripping_end_at_the_progress_deadline(behaviour: Answer) -> None:
    start = time.monotonic()
    failed = await failure_of(behaviour, progress=0.4)
    assert failed.kind == ErrorKind.NETWORK
    assert time.monotonic() - start < 30


async def test_a_steady_stream_may_take_longer_than_the_progress_deadline() -> None:
    body = chunk('{"content":"x"}') * 12 + chunk("{}", '"stop"')
    async with LoopbackServer(answer(body, pieces=13, pause=0.15)) as server:
        assert check(await call(server, progress=1.5)).message().text == "x" * 12


async def test_the_total_limit_ends_even_a_steady_stream() -> None:
    body = chunk('{"content":"x"}') * 400
    failed = await failure_of(answer(body, pieces=400, pause=0.02), total=0.3)
    assert "longer than" in failed.message


async def test_a_line_without_end_is_refused_before_it_fills_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    failed = await failure_of(floods_a_line(1024 * 1024 * 1024))
    assert failed.kind == ErrorKind.NETWORK
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": format_datetime(datetime(2100, 1, 1, tzinfo=UTC), usegmt=True)}, None),
        ({"retry-after-ms": "1500"}, 1.5),
    ],
)
async def test_throttling_says_when_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    if seconds is None:
        seconds = (datetime(2100, 1, 1, tzinfo=UTC) - datetime.now(UTC)).total_seconds()
    failed = await failure_of(answer('{"error":{"message":"slow down"}}', status=429, headers=headers))
    assert failed.kind == ErrorKind.THROTTLED
    assert failed.retry_after == pytest.approx(seconds, abs=30)


async def test_nobody_there_is_a_network_failure_that_names_the_address() -> None:
    stream_fn = OpenAiStreamFn("http://127.0.0.1:9", "key")
    events = [event async for event in stream_fn(MODEL, CONTEXT, StreamOptions(), CancellationToken())]
    assert isinstance(events[-1], StreamFailed)
    assert events[-1].kind == ErrorKind.NETWORK
    assert "http://127.0.0.1:9/v1/chat/completions" in events[-1].message


async def test_an_invalid_address_is_a_failure_too() -> None:
    stream_fn = OpenAiStreamFn("not a url", "key")
    events = [event async for event in stream_fn(MODEL, CONTEXT, StreamOptions(), CancellationToken())]
    assert isinstance(events[-1], StreamFailed)


@pytest.mark.parametrize(
    ("key", "headers", "name"), [("sk-test\n", {}, "authorization"), ("sk-test", {"x-trace": "a\r\nb"}, "x-trace")]
)
async def test_a_header_that_cannot_be_sent_is_named_and_not_a_network_failure(
    key: str, headers: dict[str, str], name: str
) -> None:
    async with LoopbackServer(answer(WHOLE)) as server:
        stream = OpenAiStreamFn(server.url, key)(MODEL, CONTEXT, StreamOptions(headers=headers), CancellationToken())
        (failed,) = [event async for event in stream]
        assert server.requests == []
    assert isinstance(failed, StreamFailed)
    assert failed.kind == ErrorKind.INVALID_REQUEST
    assert f"the header {name} has a line break" in failed.message
    assert "sk-test" not in failed.message


@pytest.mark.parametrize("behaviour", [hangs(before_headers=True), hangs(after=HELLO)])
async def test_a_cancelled_token_closes_the_connection_at_once(behaviour: Answer) -> None:
    async with LoopbackServer(behaviour) as server:
        cancel = CancellationToken()

        async def cancel_when_asked() -> None:
            while not server.requests:  # noqa: ASYNC110 - a request has no event
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.1)
            cancel.cancel()

        cancelling = asyncio.ensure_future(cancel_when_asked())
        events = await call(server, cancel)
        await cancelling
        assert isinstance(events[-1], StreamFailed)
        assert (events[-1].kind, events[-1].stop_reason) == (ErrorKind.ABORTED, StopReason.ABORTED)
        check(events)
        async with asyncio.timeout(60):
            await server.closed.wait()
        assert server.open_connections == 0


async def test_a_run_that_is_aborted_before_the_provider_answers_is_aborted() -> None:
    async with LoopbackServer(hangs(before_headers=True)) as server:
        agent = Agent(MODEL, stream_fn=OpenAiStreamFn(server.url, "sk-test-key"))
        running = asyncio.ensure_future(agent.prompt("hi"))
        while not server.requests:  # noqa: ASYNC110 - a request has no event
            await asyncio.sleep(0.005)
        agent.abort()
        result = await running
    assert (result.stop_reason, result.error_kind) == (StopReason.ABORTED, ErrorKind.ABORTED)
    message = agent.messages[-1]
    assert isinstance(message, AssistantMessage)
    assert (message.stop_reason, message.error_kind) == (StopReason.ABORTED, ErrorKind.ABORTED)


async def test_a_cancelled_task_closes_the_connection_at_once() -> None:
    async with LoopbackServer(hangs(after=HELLO)) as server:
        seen = asyncio.Event()

        async def read() -> None:
            stream: Any = OpenAiStreamFn(server.url, "key")(MODEL, CONTEXT, StreamOptions(), CancellationToken())
            async for event in stream:
                if isinstance(event, TextDelta):
                    seen.set()

        task = asyncio.ensure_future(read())
        await seen.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(60):
            await server.closed.wait()


async def test_a_token_cancelled_before_the_call_sends_nothing() -> None:
    async with LoopbackServer(answer(WHOLE)) as server:
        cancel = CancellationToken()
        cancel.cancel()
        events = await call(server, cancel)
    assert events == [StreamFailed("the call was cancelled", ErrorKind.ABORTED, StopReason.ABORTED)]
    assert not server.requests


class Breaks:
    """A transport whose connection breaks when the call is cancelled."""

    @asynccontextmanager
    async def post(self, request: HttpRequest, cancel: CancellationToken) -> AsyncGenerator[Any]:
        cancel.cancel()
        raise TransportError("connection reset")
        yield


async def test_a_connection_that_breaks_after_the_cancellation_is_a_cancelled_call() -> None:
    stream_fn = OpenAiStreamFn("http://127.0.0.1:9", "sk-test-key", transport=Breaks())
    events = [event async for event in stream_fn(MODEL, CONTEXT, StreamOptions(), CancellationToken())]
    assert events == [StreamFailed("the call was cancelled", ErrorKind.ABORTED, StopReason.ABORTED)]


async def test_one_transport_serves_many_calls_at_once() -> None:
    async with LoopbackServer(answer(WHOLE, pieces=3, pause=0.01)) as server:
        stream_fn = OpenAiStreamFn(server.url, "key", transport=AiohttpTransport())

        async def one() -> str:
            assembler = MessageAssembler(MODEL)
            async for event in stream_fn(MODEL, CONTEXT, StreamOptions(), CancellationToken()):
                assembler.feed(event)
            return assembler.message().text

        assert await asyncio.gather(*[one() for _ in range(50)]) == ["Hello"] * 50


def test_a_stream_function_works_in_one_event_loop_after_another() -> None:
    stream_fn = OpenAiStreamFn("http://127.0.0.1:9", "key")

    async def use() -> Any:
        return [event async for event in stream_fn(MODEL, CONTEXT, StreamOptions(), CancellationToken())][-1]

    for _ in range(2):
        failed = asyncio.run(use())
        assert (type(failed), failed.kind) == (StreamFailed, ErrorKind.NETWORK)
