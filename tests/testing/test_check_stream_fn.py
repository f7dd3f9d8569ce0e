"""The checker of stream functions: it accepts correct ones, and reports what is wrong with the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from swink_agent import (
    AgentContext,
    AssistantMessageEvent,
    CancellationToken,
    ErrorKind,
    ModelSpec,
    StopReason,
    StreamDone,
    StreamFailed,
    StreamFn,
    StreamOptions,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UserMessage,
)
from swink_agent.testing import ScriptedStream, call, check_stream_fn, fail, scripted, text

Stream = AsyncIterator[AssistantMessageEvent]
SOON = 0.3
"""Seconds after which a check that hangs is given up."""


def saying(*events: AssistantMessageEvent) -> Callable[[], StreamFn]:
    """A factory of stream functions that yield these events."""

    async def stream_fn(
        model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> Stream:
        for event in events:
            await asyncio.sleep(0)
            yield event

    return lambda: stream_fn


# -- those that keep the rules -------------------------------------------------------------------------------


@pytest.mark.parametrize("suspend", [False, True])
async def test_a_scripted_model_is_accepted(suspend: bool) -> None:
    given = text("hello", deltas=4) + call("add", a=1)
    await check_stream_fn(lambda: scripted(given, suspend=suspend))


async def test_one_that_fails_by_the_rules_is_accepted() -> None:
    await check_stream_fn(lambda: scripted(text("half") + fail("network")))
    await check_stream_fn(saying(StreamFailed("no connection", ErrorKind.NETWORK)))


async def test_one_that_ends_its_reply_when_the_token_is_cancelled_is_accepted() -> None:
    async def obedient(model: Any, context: Any, options: Any, cancel: CancellationToken) -> Stream:
        yield StreamStart()
        yield TextStart(0)
        for _ in range(20):
            await asyncio.sleep(0)
            if cancel.is_cancelled:
                yield TextEnd(0)
                yield StreamFailed("aborted", ErrorKind.ABORTED, StopReason.ABORTED)
                return
            yield TextDelta(0, "x")
        yield TextEnd(0)
        yield StreamDone()

    await check_stream_fn(lambda: obedient)


async def test_one_that_just_stops_when_the_token_is_cancelled_is_accepted() -> None:
    async def curt(model: Any, context: Any, options: Any, cancel: CancellationToken) -> Stream:
        for event in (StreamStart(), TextStart(0), TextDelta(0, "x"), TextEnd(0), StreamDone()):
            await asyncio.sleep(0)
            if cancel.is_cancelled:
                return
            yield event

    await check_stream_fn(lambda: curt)


async def test_blocks_that_are_streamed_side_by_side_are_accepted() -> None:
    await check_stream_fn(
        saying(
            StreamStart(),
            ThinkingStart(0),
            ToolCallStart(1, "a", "f"),
            ToolCallStart(2, "b", "f"),
            ToolCallDelta(2, "{}"),
            ThinkingDelta(0, "hm"),
            ToolCallEnd(1),
            ToolCallEnd(2),
            ThinkingEnd(0),
            StreamDone(StopReason.TOOL_USE),
        )
    )


async def test_the_function_is_called_with_what_the_test_gives() -> None:
    made: list[ScriptedStream] = []
    model, options = ModelSpec("mine", "best"), StreamOptions(temperature=0.5)
    context = AgentContext("Be brief.", [UserMessage("hello")])

    def factory() -> StreamFn:
        made.append(scripted("ok"))
        return made[-1]

    await check_stream_fn(factory, model=model, context=context, options=options)
    asked = [request for stream in made for request in stream.requests]
    assert len(asked) > 5
    assert {(str(request.model), request.options.temperature) for request in asked} == {("mine:best", 0.5)}
    assert all(request.context is context for request in asked)


# -- those that break them -----------------------------------------------------------------------------------

BROKEN_SEQUENCES: dict[str, tuple[AssistantMessageEvent, ...]] = {
    "nothing at all": (),
    "no start": (TextStart(0), TextEnd(0), StreamDone()),
    "two starts": (StreamStart(), StreamStart(), StreamDone()),
    "no terminal event": (StreamStart(), TextStart(0), TextDelta(0, "x"), TextEnd(0)),
    "two terminal events": (StreamStart(), StreamDone(), StreamDone()),
    "a failure after the end": (StreamStart(), StreamDone(), StreamFailed("late")),
    "more after the end": (StreamStart(), StreamDone(), TextStart(0)),
    "a block that is left open": (StreamStart(), TextStart(0), TextDelta(0, "x"), StreamDone()),
    "a delta without a block": (StreamStart(), TextDelta(0, "x"), StreamDone()),
    "a delta of another kind": (StreamStart(), TextStart(0), ThinkingDelta(0, "x"), TextEnd(0), StreamDone()),
    "a delta for a closed block": (StreamStart(), TextStart(0), TextEnd(0), TextDelta(0, "x"), StreamDone()),
    "an end of another kind": (StreamStart(), TextStart(0), ThinkingEnd(0), StreamDone()),
    "a block that is closed twice": (StreamStart(), TextStart(0), TextEnd(0), TextEnd(0), StreamDone()),
    "an index that is skipped": (StreamStart(), TextStart(1), TextEnd(1), StreamDone()),
    "an index that is used twice": (
        StreamStart(),
        TextStart(0),
        TextEnd(0),
        TextStart(0),
        TextEnd(0),
        StreamDone(),
    ),
    "two calls with one id": (
        StreamStart(),
        ToolCallStart(0, "a", "f"),
        ToolCallEnd(0),
        ToolCallStart(1, "a", "f"),
        ToolCallEnd(1),
        StreamDone(StopReason.TOOL_USE),
    ),
    "something that is no event": (StreamStart(), "hello", StreamDone()),  # type: ignore[dict-item]
}


@pytest.mark.table
@pytest.mark.parametrize("name", BROKEN_SEQUENCES)
async def test_a_broken_sequence_is_rejected(name: str) -> None:
    with pytest.raises(AssertionError, match="a call: "):
        await check_stream_fn(saying(*BROKEN_SEQUENCES[name]))


async def test_one_that_raises_is_rejected() -> None:
    async def raising(*_: Any) -> Stream:
        yield StreamStart()
        raise ConnectionError("gone")

    with pytest.raises(AssertionError, match=r"raised ConnectionError.*instead of ending with StreamFailed"):
        await check_stream_fn(lambda: raising)


async def test_one_that_raises_when_it_is_called_is_rejected() -> None:
    def raising(*_: Any) -> Stream:
        raise KeyError("API_KEY")

    with pytest.raises(AssertionError, match="raised KeyError"):
        await check_stream_fn(lambda: raising)


@pytest.mark.parametrize("returned", [None, [StreamStart(), StreamDone()], iter([StreamStart()])])
async def test_one_that_returns_no_stream_is_rejected(returned: Any) -> None:
    with pytest.raises(AssertionError, match="not an async generator"):
        await check_stream_fn(lambda: lambda *_: returned)


async def test_one_that_never_ends_is_rejected() -> None:
    async def hanging(*_: Any) -> Stream:
        yield StreamStart()
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="did not end within"):
        await check_stream_fn(lambda: hanging, time_limit=SOON)


async def test_one_that_never_ends_and_swallows_its_cancellation_is_rejected_all_the_same() -> None:
    release = asyncio.Event()

    async def stubborn(*_: Any) -> Stream:
        yield StreamStart()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass
        yield StreamDone()

    asyncio.get_running_loop().call_later(40 * SOON, release.set)
    started = time.monotonic()
    with pytest.raises(AssertionError, match="did not end within"):
        await check_stream_fn(lambda: stubborn, time_limit=SOON)
    took = time.monotonic() - started
    release.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert took < 30 * SOON


async def test_one_that_is_late_because_it_swallowed_the_cancellation_is_rejected() -> None:
    async def late(*_: Any) -> Stream:
        yield StreamStart()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
        yield StreamDone()

    with pytest.raises(AssertionError, match="a call: it did not end within"):
        await check_stream_fn(lambda: late, time_limit=SOON)


async def test_one_that_goes_on_when_its_task_is_cancelled_is_rejected() -> None:
    async def insistent(*_: Any) -> Stream:
        yield StreamStart()
        yield TextStart(0)
        for _ in range(5):
            try:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                pass
            yield TextDelta(0, "x")
        yield TextEnd(0)
        yield StreamDone()

    with pytest.raises(AssertionError, match="task is cancelled"):
        await check_stream_fn(lambda: insistent)


async def test_one_that_leaves_a_task_behind_is_rejected() -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def littering(*_: Any) -> Stream:
        tasks.append(asyncio.create_task(asyncio.sleep(60)))
        yield StreamStart()
        yield StreamDone()

    with pytest.raises(AssertionError, match="left tasks behind"):
        await check_stream_fn(lambda: littering)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_one_that_leaves_a_task_behind_only_when_it_is_closed_early_is_rejected() -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def littering(*_: Any) -> Stream:
        reader = asyncio.create_task(asyncio.sleep(60))
        tasks.append(reader)
        yield StreamStart()
        yield TextStart(0)
        yield TextEnd(0)
        reader.cancel()
        yield StreamDone()

    with pytest.raises(AssertionError, match=r"closed after .*left tasks behind"):
        await check_stream_fn(lambda: littering)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_one_that_goes_on_when_it_is_closed_is_rejected() -> None:
    async def clinging(*_: Any) -> Stream:
        yield StreamStart()
        try:
            yield TextStart(0)
            yield TextEnd(0)
        finally:
            yield StreamDone()

    with pytest.raises(AssertionError, match=" after "):
        await check_stream_fn(lambda: clinging)


async def test_one_that_hangs_when_it_is_closed_is_rejected() -> None:
    async def hanging(*_: Any) -> Stream:
        is_complete = False
        try:
            yield StreamStart()
            yield TextStart(0)
            yield TextEnd(0)
            is_complete = True
            yield StreamDone()
        finally:
            if not is_complete:
                await asyncio.Event().wait()

    with pytest.raises(AssertionError, match=r"closed after .*did not end within"):
        await check_stream_fn(lambda: hanging, time_limit=SOON)


async def test_one_that_hangs_when_its_token_is_cancelled_is_rejected() -> None:
    async def hanging(model: Any, context: Any, options: Any, cancel: CancellationToken) -> Stream:
        for event in (StreamStart(), TextStart(0), TextDelta(0, "x"), TextEnd(0), StreamDone()):
            if cancel.is_cancelled:
                await asyncio.Event().wait()
            yield event

    with pytest.raises(AssertionError, match="cancelled"):
        await check_stream_fn(lambda: hanging, time_limit=SOON)


async def test_one_that_raises_when_its_token_is_cancelled_is_rejected() -> None:
    async def raising(model: Any, context: Any, options: Any, cancel: CancellationToken) -> Stream:
        for event in (StreamStart(), TextStart(0), TextDelta(0, "x"), TextEnd(0), StreamDone()):
            if cancel.is_cancelled:
                raise RuntimeError("cancelled")
            yield event

    with pytest.raises(AssertionError, match=r"cancelled .*raised RuntimeError"):
        await check_stream_fn(lambda: raising)


@pytest.mark.parametrize(
    "last_words",
    [
        (TextDelta(7, "x"), StreamFailed("aborted", ErrorKind.ABORTED)),
        (StreamFailed("aborted", ErrorKind.ABORTED), StreamFailed("aborted", ErrorKind.ABORTED)),
        (TextDelta(7, "x"),),
        (StreamStart(),),
    ],
)
async def test_one_whose_last_words_after_a_cancellation_are_out_of_order_is_rejected(
    last_words: tuple[AssistantMessageEvent, ...],
) -> None:
    async def confused(model: Any, context: Any, options: Any, cancel: CancellationToken) -> Stream:
        yield StreamStart()
        for event in (TextStart(0), TextDelta(0, "x"), TextEnd(0), StreamDone()):
            if cancel.is_cancelled:
                for word in last_words:
                    yield word
                return
            yield event

    with pytest.raises(AssertionError, match="cancelled after"):
        await check_stream_fn(lambda: confused)


async def test_one_that_mixes_up_two_calls_is_rejected() -> None:
    shared: dict[str, int] = {"blocks": 0}

    async def mixing(*_: Any) -> Stream:
        shared["blocks"] = 0
        yield StreamStart()
        for _ in range(3):
            await asyncio.sleep(0)
            index = shared["blocks"]
            shared["blocks"] += 1
            yield TextStart(index)
            yield TextEnd(index)
        yield StreamDone()

    with pytest.raises(AssertionError, match="two calls at once"):
        await check_stream_fn(lambda: mixing)
