"""Between MessageStart and MessageEnd: retries, fallbacks, keys, and recovery from an overflow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentMessage,
    AssistantMessage,
    AuthError,
    ContentFiltered,
    ContextCompacted,
    ContextWindowOverflow,
    CustomMessage,
    DefaultRetryStrategy,
    MessageRetry,
    ModelFallback,
    ModelSpec,
    ModelThrottled,
    NetworkError,
    SlidingWindow,
    StopReason,
    StreamDone,
    StreamError,
    StreamOptions,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolResultMessage,
    TurnEndReason,
    Usage,
    UserMessage,
    tool,
)
from swink_agent.testing import FakeClock, call, check_events, collect, fail, names, scripted, text

MODEL = ModelSpec("test", "model")


def steady(**options: Any) -> DefaultRetryStrategy:
    return DefaultRetryStrategy(jitter=False, **options)


async def test_throttling_and_network_errors_are_retried_within_one_message() -> None:
    clock = FakeClock()
    model = scripted([text("par"), fail("throttled")], fail("network"), text("whole"))
    agent = Agent(MODEL, stream_fn=model, sleep=clock.sleep, retry_strategy=steady())
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert names(events) == [
        "AgentStart",
        "TurnStart",
        "MessageStart",
        "MessageUpdate",
        "MessageRetry",
        "MessageRetry",
        "MessageUpdate",
        "MessageEnd",
        "TurnEnd",
        "AgentEnd",
    ]
    assert [event.attempt for event in events if isinstance(event, MessageRetry)] == [1, 2]
    assert clock.sleeps == [1.0, 2.0]
    assert agent.messages[-1].text == "whole"  # type: ignore[union-attr]
    assert agent.last_error is None


async def test_the_providers_own_advice_on_when_to_come_back_wins() -> None:
    clock = FakeClock()
    model = scripted(fail("throttled", retry_after=7.5), fail("network", retry_after=0.0), text("ok"))
    await Agent(MODEL, stream_fn=model, sleep=clock.sleep).prompt("go")
    assert clock.sleeps == [7.5]


async def test_three_attempts_are_all_there_is_by_default() -> None:
    model = scripted(*[fail("throttled", "slow down")] * 5)
    agent = Agent(MODEL, stream_fn=model, sleep=FakeClock().sleep)
    result = await agent.prompt("go")
    assert len(model.requests) == 3
    assert isinstance(result.exception, ModelThrottled)
    assert result.error == "slow down"


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("auth", AuthError),
        ("content_filtered", ContentFiltered),
        ("invalid_request", StreamError),
        ("stream", StreamError),
        ("context_overflow", ContextWindowOverflow),
    ],
)
async def test_other_errors_are_not_retried_and_have_their_type(kind: str, error: type[Exception]) -> None:
    model = scripted(fail(kind), text("never"))
    result = await Agent(MODEL, stream_fn=model).prompt("go")
    assert len(model.requests) == 1
    assert type(result.exception) is error
    with pytest.raises(error):
        result.raise_for_error()


async def test_the_strategy_alone_decides_what_is_retried() -> None:
    class OnlyAuth:
        def __init__(self) -> None:
            self.asked: list[tuple[str, int]] = []

        def should_retry(self, error: Exception, attempt: int) -> bool:
            self.asked.append((type(error).__name__, attempt))
            return isinstance(error, AuthError)

        def delay(self, attempt: int) -> float:
            return 0.0

    strategy = OnlyAuth()
    model = scripted(fail("auth"), fail("network"), text("never"))
    result = await Agent(MODEL, stream_fn=model, retry_strategy=strategy).prompt("go")
    assert strategy.asked == [("AuthError", 1), ("NetworkError", 2)]
    assert isinstance(result.exception, NetworkError)


async def test_a_retry_strategy_that_raises_means_no_retry() -> None:
    class Broken:
        def should_retry(self, error: Exception, attempt: int) -> bool:
            raise ZeroDivisionError

        def delay(self, attempt: int) -> float:
            raise ZeroDivisionError

    result = await Agent(MODEL, stream_fn=scripted(fail("network")), retry_strategy=Broken()).prompt("go")
    assert isinstance(result.exception, NetworkError)


async def test_tokens_of_attempts_that_were_given_up_count() -> None:
    used = Usage(input=10, total=10)
    model = scripted(fail("network", usage=used), text("ok"), usage=Usage(input=1, total=1))
    result = await Agent(MODEL, stream_fn=model, sleep=FakeClock().sleep).prompt("go")
    assert result.usage == Usage(input=11, total=11)


# -- fallbacks -----------------------------------------------------------------------------------------------


async def test_fallbacks_are_tried_in_order_each_with_its_own_key() -> None:
    primary = scripted(*[fail("throttled", "busy")] * 3)
    second = scripted(*[fail("network", "down")] * 3)
    third = scripted(text("here"))
    agent = Agent(
        MODEL,
        stream_fn=primary,
        fallbacks=[("second:m", second), (ModelSpec("third", "m"), third)],
        get_api_key=lambda provider: f"key of {provider}",
        sleep=FakeClock().sleep,
    )
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    fallbacks = [event for event in events if isinstance(event, ModelFallback)]
    assert [(str(event.from_model), str(event.to_model), event.error) for event in fallbacks] == [
        ("test:model", "second:m", "busy"),
        ("second:m", "third:m", "down"),
    ]
    assert [model.requests[0].options.api_key for model in (primary, second, third)] == [
        "key of test",
        "key of second",
        "key of third",
    ]
    message = agent.messages[-1]
    assert isinstance(message, AssistantMessage)
    assert (message.text, message.provider) == ("here", "third")
    assert len(second.requests) == 3


async def test_a_fallback_gets_neither_key_nor_headers_nor_fields_of_the_first() -> None:
    options = StreamOptions(
        api_key="for test alone", headers={"x-account": "7"}, extra={"seed": 1}, temperature=0.5, max_tokens=9
    )
    kin, stranger = scripted(*[fail("network", "down")] * 3), scripted(text("here"))
    agent = Agent(
        MODEL,
        stream_fn=scripted(*[fail("throttled", "busy")] * 3),
        stream_options=options,
        fallbacks=[("test:smaller", kin), ("other:m", stranger)],
        sleep=FakeClock().sleep,
    )
    assert (await agent.prompt("go")).text == "here"
    assert [request.options for request in kin.requests] == [options] * 3
    assert [request.options for request in stranger.requests] == [StreamOptions(temperature=0.5, max_tokens=9)]


async def test_a_fallback_is_not_tried_for_an_error_that_it_would_share() -> None:
    fallback = scripted(text("never"))
    agent = Agent(MODEL, stream_fn=scripted(fail("invalid_request")), fallbacks=[("other:m", fallback)])
    result = await agent.prompt("go")
    assert result.stop_reason == StopReason.ERROR
    assert not fallback.requests


async def test_the_next_turn_starts_with_the_primary_again() -> None:
    @tool
    async def ping() -> str:
        return "pong"

    primary = scripted(*[fail("network")] * 3, text("back"))
    fallback = scripted(call("ping"))
    agent = Agent(MODEL, stream_fn=primary, fallbacks=[("other:m", fallback)], tools=[ping], sleep=FakeClock().sleep)
    result = await agent.prompt("go")
    assert result.text == "back"


# -- keys ----------------------------------------------------------------------------------------------------


async def test_the_key_is_asked_for_before_every_call_and_is_in_no_repr() -> None:
    keys = iter(["first-secret", "second-secret"])

    async def key(provider: str) -> str:
        assert provider == "test"
        return next(keys)

    model = scripted(fail("network"), text("ok"))
    agent = Agent(
        MODEL,
        stream_fn=model,
        stream_options=StreamOptions(temperature=0.5),
        get_api_key=key,
        sleep=FakeClock().sleep,
    )
    await agent.prompt("go")
    assert [request.options.api_key for request in model.requests] == ["first-secret", "second-secret"]
    assert model.requests[0].options.temperature == 0.5
    assert "secret" not in repr(model.requests)


async def test_a_key_callback_that_fails_is_an_auth_error() -> None:
    def key(provider: str) -> str:
        raise OSError("vault sealed")

    result = await Agent(MODEL, stream_fn=scripted(text("never")), get_api_key=key).prompt("go")
    assert isinstance(result.exception, AuthError)
    assert "vault sealed" in str(result.error)


async def test_a_key_callback_that_does_not_return_a_string_is_an_auth_error_that_names_it() -> None:
    model = scripted(text("never"))
    result = await Agent(MODEL, stream_fn=model, get_api_key=lambda provider: 5).prompt("go")  # type: ignore[arg-type]
    assert isinstance(result.exception, AuthError)
    assert str(result.error).startswith("get_api_key failed for test: TypeError: ")
    assert model.requests == []


async def test_an_error_names_the_hook_that_failed_between_two_attempts() -> None:
    async def sleep(seconds: float) -> None:
        raise OSError("the clock stands still")

    model = scripted(fail("throttled"), text("never"))
    result = await Agent(MODEL, stream_fn=model, sleep=sleep).prompt("go")
    assert result.error == "sleep failed: OSError: the clock stands still"


async def test_an_error_names_the_question_to_the_stream_function_that_failed() -> None:
    model = scripted(text("never"))

    def native_schema(*_: Any) -> bool:
        raise OSError("no catalog")

    model.native_schema = native_schema  # type: ignore[attr-defined]
    agent = Agent(MODEL, stream_fn=model)
    with pytest.raises(StreamError, match="native_schema failed: OSError: no catalog"):
        await agent.structured_output("go", {"type": "integer"})


# -- overflow ------------------------------------------------------------------------------------------------


async def test_an_overflow_is_compacted_and_the_call_repeated_once_in_the_same_message() -> None:
    signals: list[bool] = []

    def halve(messages: list[AgentMessage], overflow: bool) -> list[AgentMessage] | None:
        signals.append(overflow)
        return messages[len(messages) // 2 :] if overflow else None

    model = scripted(fail("context_overflow"), text("fits"))
    agent = Agent(MODEL, stream_fn=model, messages=["1", "2", "3"], transform_context=halve)
    events = await collect(agent.prompt_stream("4"))
    check_events(events)
    assert names(events) == [
        "AgentStart",
        "TurnStart",
        "MessageStart",
        "ContextCompacted",
        "MessageUpdate",
        "MessageEnd",
        "TurnEnd",
        "AgentEnd",
    ]
    assert events[3].report.overflow  # type: ignore[union-attr]
    assert signals == [False, True]
    assert [len(request.messages) for request in model.requests] == [4, 2]
    assert len(agent.messages) == 5


def a_long_result() -> list[AgentMessage]:
    call = ToolCall("1", "look", {})
    return [UserMessage("go"), AssistantMessage([call]), ToolResultMessage("1", "x" * 20_000, tool_name="look")]


async def test_an_overflow_that_only_a_shorter_result_mends_is_announced() -> None:
    model = scripted(fail("context_overflow"), text("fits"))
    window = SlidingWindow(100_000, overflow_tokens=500)
    agent = Agent(MODEL, stream_fn=model, messages=a_long_result(), transform_context=window)
    events = await collect(agent.prompt_stream("and now?"))
    check_events(events)
    (compacted,) = [event for event in events if isinstance(event, ContextCompacted)]
    assert (compacted.report.dropped_count, compacted.report.overflow) == (0, True)
    assert compacted.report.tokens_after <= 500 < compacted.report.tokens_before
    assert [len(request.messages) for request in model.requests] == [4, 4]


async def test_a_transform_that_removes_nothing_is_not_a_compaction() -> None:
    def dated(messages: list[AgentMessage], overflow: bool) -> list[AgentMessage]:
        return [*messages, UserMessage("today is Monday")]

    agent = Agent(MODEL, stream_fn=scripted(text("well")), messages=["1"], transform_context=dated)
    assert "ContextCompacted" not in names(await collect(agent.prompt_stream("2")))


async def test_an_overflow_without_a_transform_says_what_to_give() -> None:
    agent = Agent(MODEL, stream_fn=scripted(fail("context_overflow", "too long: 9 > 8")), messages=["1"])
    result = await agent.prompt("2")
    assert result.error is not None
    assert result.error.startswith("too long: 9 > 8")
    assert "transform_context" in result.error
    assert agent.messages[-1].error_message == "too long: 9 > 8", "what the provider said"  # type: ignore[union-attr]
    assert isinstance(result.exception, ContextWindowOverflow)


async def test_a_hook_that_raises_after_an_overflow_is_named() -> None:
    def broken(messages: list[AgentMessage], overflow: bool) -> list[AgentMessage] | None:
        if overflow:
            raise RuntimeError("no room")
        return None

    agent = Agent(MODEL, stream_fn=scripted(fail("context_overflow")), messages=["1"], transform_context=broken)
    assert (await agent.prompt("2")).error == "transform_context failed: RuntimeError: no room"


async def test_a_message_that_convert_to_llm_cannot_convert_after_an_overflow_is_not_sent() -> None:
    class Summary(CustomMessage, tag="summary"):
        pass

    model = scripted(fail("context_overflow"), text("never"))
    agent = Agent(
        MODEL,
        stream_fn=model,
        transform_context=lambda messages, overflow: [Summary(), *messages] if overflow else None,
        convert_to_llm=lambda message: message,  # type: ignore[arg-type, return-value]
    )
    error = (await agent.prompt("1")).error
    assert error is not None
    assert error.startswith("convert_to_llm failed: TypeError: it returned a Summary, which is not a message")
    assert len(model.requests) == 1


async def test_an_overflow_that_a_transform_could_not_mend_is_told_as_it_is() -> None:
    agent = Agent(
        MODEL,
        stream_fn=scripted(fail("context_overflow", "too long")),
        messages=["1"],
        transform_context=lambda messages, overflow: None,
    )
    assert (await agent.prompt("2")).error == "too long"


async def test_an_overflow_that_nothing_can_be_done_about_is_typed_and_leaves_the_history() -> None:
    agent = Agent(MODEL, stream_fn=scripted(fail("context_overflow")), messages=["1"])
    events = await collect(agent.prompt_stream("2"))
    check_events(events)
    assert events[-2].reason == TurnEndReason.ERROR  # type: ignore[union-attr]
    assert [type(message).__name__ for message in agent.messages] == ["UserMessage", "UserMessage", "AssistantMessage"]
    assert agent.messages[-1].error_kind == "context_overflow"  # type: ignore[union-attr]


async def test_a_second_overflow_in_the_same_turn_ends_the_run() -> None:
    model = scripted(fail("context_overflow"), fail("context_overflow"), text("never"))
    agent = Agent(
        MODEL,
        stream_fn=model,
        messages=["word " * 50] * 8,
        transform_context=SlidingWindow(10_000, overflow_tokens=200),
    )
    result = await agent.prompt("go")
    assert len(model.requests) == 2
    assert isinstance(result.exception, ContextWindowOverflow)
    assert result.exception.model == "model"


async def test_the_run_after_an_overflow_starts_with_the_signal() -> None:
    signals: list[bool] = []

    def note(messages: list[AgentMessage], overflow: bool) -> list[AgentMessage] | None:
        signals.append(overflow)
        return messages[1:] if len(signals) == 3 else None

    agent = Agent(
        MODEL, stream_fn=scripted(fail("context_overflow"), text("ok")), messages=["1", "2"], transform_context=note
    )
    await agent.prompt("3")
    assert signals == [False, True]
    result = await agent.continue_loop()
    assert signals == [False, True, True]
    assert result.text == "ok"


async def test_overflow_recovery_is_possible_again_in_the_next_turn() -> None:
    @tool
    async def ping() -> str:
        return "pong"

    def drop_one(messages: list[AgentMessage], overflow: bool) -> list[AgentMessage] | None:
        return messages[1:] if overflow else None

    model = scripted(fail("context_overflow"), call("ping"), fail("context_overflow"), text("done"))
    agent = Agent(MODEL, stream_fn=model, tools=[ping], messages=["1", "2", "3"], transform_context=drop_one)
    result = await agent.prompt("4")
    assert result.text == "done"


async def test_a_dynamic_system_prompt_is_the_same_in_the_repeated_call() -> None:
    prompts = iter(["first", "second"])
    model = scripted(fail("context_overflow"), text("ok"))
    agent = Agent(
        MODEL,
        stream_fn=model,
        system_prompt=lambda: next(prompts),
        messages=["1"],
        transform_context=lambda messages, overflow: messages[1:] if overflow else None,
    )
    await agent.prompt("2")
    assert [request.context.system_prompt for request in model.requests] == ["first", "first"]


# -- streams that do not end ---------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_stream_that_lingers_after_its_end_is_closed_and_the_reply_is_kept() -> None:
    closed = asyncio.Event()

    async def lingering(*_: Any) -> Any:
        try:
            yield StreamStart()
            yield TextStart(0)
            yield TextDelta(0, "done")
            yield TextEnd(0)
            yield StreamDone()
            await asyncio.get_running_loop().create_future()
        finally:
            closed.set()

    async with asyncio.timeout(30):
        result = await Agent(MODEL, stream_fn=lingering).prompt("go")
    assert (result.text, result.error) == ("done", None)
    assert closed.is_set()


@pytest.mark.parametrize("pause", [lambda: asyncio.sleep(0), lambda: asyncio.sleep(0.01)], ids=["a turn", "a while"])
async def test_a_stream_may_take_a_moment_to_end_after_its_last_event(pause: Any) -> None:
    ended: list[str] = []

    async def tidy(*_: Any) -> Any:
        yield StreamStart()
        yield TextStart(0)
        yield TextDelta(0, "done")
        yield TextEnd(0)
        yield StreamDone()
        async with asyncio.timeout(30):
            await pause()
        ended.append("by itself")

    result = await Agent(MODEL, stream_fn=tidy).prompt("go")
    assert (result.text, result.error, ended) == ("done", None, ["by itself"])


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "later"])
async def test_an_event_after_the_last_one_is_a_broken_sequence(waits: bool) -> None:
    async def chatty(*_: Any) -> Any:
        yield StreamStart()
        yield StreamDone()
        if waits:
            await asyncio.sleep(0)
        yield TextStart(0)

    result = await Agent(MODEL, stream_fn=chatty).prompt("go")
    assert result.error is not None
    assert "after the terminal event" in result.error


async def test_a_failure_after_the_last_event_is_one_of_the_stream_function() -> None:
    async def careless(*_: Any) -> Any:
        yield StreamStart()
        yield StreamDone()
        raise OSError("while closing")

    result = await Agent(MODEL, stream_fn=careless).prompt("go")
    assert result.exception is not None
    assert isinstance(result.exception.__cause__, OSError)


async def test_a_stream_may_be_an_iterator_of_ones_own() -> None:
    class Own:
        def __init__(self) -> None:
            self.left = [StreamStart(), TextStart(0), TextDelta(0, "own"), TextEnd(0), StreamDone()]

        def __aiter__(self) -> Any:
            return self

        def __anext__(self) -> Any:
            future = asyncio.get_running_loop().create_future()
            if self.left:
                future.set_result(self.left.pop(0))
            else:
                future.set_exception(StopAsyncIteration())
            return future

    assert (await Agent(MODEL, stream_fn=lambda *_: Own()).prompt("go")).text == "own"
