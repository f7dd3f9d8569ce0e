"""Usage and cost of replies that failed, were given up or were aborted: each is counted once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AssistantMessageEvent,
    CancellationToken,
    Cost,
    ErrorKind,
    MessageUpdate,
    ModelSpec,
    StopReason,
    StreamDone,
    StreamFailed,
    StreamStart,
    TextDelta,
    TextStart,
    Usage,
)
from swink_agent.testing import FakeClock, scripted

MODEL = ModelSpec("test", "model")
USED, PRICE = Usage(input=10, output=2, total=12), Cost(input=0.5, total=0.5)


def failing(kind: ErrorKind) -> Any:
    async def model(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        yield StreamFailed("no", kind, usage=USED, cost=PRICE)

    return model


@pytest.mark.parametrize("kind", [ErrorKind.CONTENT_FILTERED, ErrorKind.INVALID_REQUEST, ErrorKind.CONTEXT_OVERFLOW])
async def test_usage_of_a_failed_reply_is_counted_once(kind: ErrorKind) -> None:
    result = await Agent(MODEL, stream_fn=failing(kind)).prompt("go")
    assert (result.usage, result.cost) == (USED, PRICE)
    assert (result.messages[-1].usage, result.messages[-1].cost) == (USED, PRICE)  # type: ignore[union-attr]


async def test_usage_of_abandoned_attempts_and_models_is_counted() -> None:
    agent = Agent(
        MODEL,
        stream_fn=failing(ErrorKind.THROTTLED),
        fallbacks=[("test:other", scripted("ok", usage=Usage(input=1, total=1)))],
        sleep=FakeClock().sleep,
    )
    result = await agent.prompt("go")
    assert result.usage == Usage(input=31, output=6, total=37)
    assert result.cost == Cost(input=1.5, total=1.5)


async def test_usage_of_a_failed_attempt_counts_when_the_wait_is_aborted() -> None:
    agent = Agent(MODEL, stream_fn=failing(ErrorKind.THROTTLED), sleep=FakeClock(auto=False).sleep)
    agent.subscribe(lambda event: agent.abort() if type(event).__name__ == "MessageRetry" else None)
    result = await agent.prompt("go")
    assert result.stop_reason == StopReason.ABORTED
    assert (result.usage, result.cost) == (USED, PRICE)


async def test_an_aborted_stream_that_says_what_it_used_is_heard() -> None:
    async def model(
        model: ModelSpec, context: Any, options: Any, cancel: CancellationToken
    ) -> AsyncIterator[AssistantMessageEvent]:
        yield StreamStart()
        yield TextStart(0)
        yield TextDelta(0, "half")
        await cancel.wait()
        yield StreamFailed("cancelled", ErrorKind.ABORTED, StopReason.ABORTED, usage=USED, cost=PRICE)

    agent = Agent(MODEL, stream_fn=model)
    agent.subscribe(lambda event: agent.abort() if isinstance(event, MessageUpdate) else None)
    result = await agent.prompt("go")
    assert (result.stop_reason, result.text) == (StopReason.ABORTED, "half")
    assert (result.usage, result.cost) == (USED, PRICE)


async def _done_then_hangs(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
    yield StreamStart()
    yield StreamDone(usage=USED, cost=PRICE)
    await asyncio.Event().wait()


async def _done_then_raises(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
    yield StreamStart()
    yield StreamDone(usage=USED, cost=PRICE)
    raise OSError("the connection was reset")


async def _done_twice(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
    yield StreamStart()
    yield StreamDone(usage=USED, cost=PRICE)
    yield StreamDone(usage=USED, cost=PRICE)


async def _done_too_early(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
    yield StreamStart()
    yield TextStart(0)
    yield StreamDone(usage=USED, cost=PRICE)


async def _failed_then_raises(*_: Any) -> AsyncIterator[AssistantMessageEvent]:
    try:
        yield StreamFailed("refused", ErrorKind.CONTENT_FILTERED, usage=USED, cost=PRICE)
    finally:
        raise OSError("the connection was reset")


@pytest.mark.parametrize(
    "model", [_done_then_hangs, _done_then_raises, _done_twice, _done_too_early, _failed_then_raises]
)
async def test_reported_usage_of_a_reply_is_counted_once_whatever_follows(model: Any) -> None:
    agent = Agent(MODEL, stream_fn=model)
    running = asyncio.ensure_future(agent.prompt("hi"))
    if model is _done_then_hangs:
        for _ in range(20):
            await asyncio.sleep(0)
        agent.abort()
    result = await running
    assert result.error is not None
    assert (result.usage, result.cost) == (USED, PRICE)
