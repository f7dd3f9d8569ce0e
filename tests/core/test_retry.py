"""When a failed request is repeated, and after which delay."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from swink_agent import (
    Aborted,
    Agent,
    AgentError,
    AuthError,
    ContentFiltered,
    ContextWindowOverflow,
    DefaultRetryStrategy,
    ErrorKind,
    MessageEnd,
    MessageRetry,
    ModelFallback,
    ModelSpec,
    ModelThrottled,
    NetworkError,
    StopReason,
    StreamError,
)
from swink_agent.testing import (
    FakeClock,
    check_events,
    collect,
    fail,
    names,
    scripted,
    text,
)

MODEL = ModelSpec("test", "model")

# -- the default strategy --------------------------------------------------------------------------------------


def test_throttling_and_network_errors_are_tried_three_times_in_all() -> None:
    strategy = DefaultRetryStrategy()
    for error in (ModelThrottled(), ModelThrottled(retry_after=5.0), NetworkError()):
        assert [strategy.should_retry(error, attempt) for attempt in (1, 2, 3, 4)] == [True, True, False, False]


def test_no_other_error_is_retried() -> None:
    errors = [
        AuthError("no key"),
        ContentFiltered("refused"),
        ContextWindowOverflow("model"),
        StreamError("broken"),
        StreamError("bad request", kind=ErrorKind.INVALID_REQUEST),
        Aborted(),
        AgentError("anything"),
    ]
    assert [error for error in errors if DefaultRetryStrategy().should_retry(error, 1)] == []


def test_the_wait_begins_at_one_second_and_doubles_up_to_a_minute() -> None:
    strategy = DefaultRetryStrategy(jitter=False)
    assert [strategy.delay(attempt) for attempt in range(1, 10)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_jitter_goes_from_half_to_one_and_a_half() -> None:
    lowest = DefaultRetryStrategy(random=lambda: 0.0)
    highest = DefaultRetryStrategy(random=lambda: 1.0)
    assert [lowest.delay(attempt) for attempt in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert [highest.delay(attempt) for attempt in (1, 2, 3)] == [1.5, 3.0, 6.0]


def test_the_jitter_never_lifts_a_wait_above_the_longest() -> None:
    strategy = DefaultRetryStrategy(random=lambda: 1.0)
    assert max(strategy.delay(attempt) for attempt in range(1, 50)) == 60.0


def test_waits_are_random_unless_told_otherwise() -> None:
    strategy = DefaultRetryStrategy()
    waits = [strategy.delay(3) for _ in range(50)]
    assert len(set(waits)) > 1
    assert all(2.0 <= wait <= 6.0 for wait in waits)


def test_an_attempt_of_any_number_has_a_wait() -> None:
    strategy = DefaultRetryStrategy(max_attempts=10**9, jitter=False)
    assert strategy.delay(10**6) == 60.0


def test_the_settings_can_be_changed() -> None:
    strategy = DefaultRetryStrategy(max_attempts=5, base_delay=0.1, max_delay=0.5, multiplier=3.0, jitter=False)
    assert [strategy.should_retry(NetworkError(), attempt) for attempt in (4, 5)] == [True, False]
    assert [strategy.delay(attempt) for attempt in (1, 2, 3)] == pytest.approx([0.1, 0.3, 0.5])
    assert not DefaultRetryStrategy(max_attempts=1).should_retry(NetworkError(), 1)


def test_settings_that_make_no_sense_are_refused() -> None:
    for name, value in (("max_attempts", 0), ("base_delay", -1.0), ("max_delay", -0.1)):
        with pytest.raises(ValueError, match=name):
            DefaultRetryStrategy(**{name: value})  # type: ignore[arg-type]


# -- in a run --------------------------------------------------------------------------------------------------


class Recording:
    """A strategy that retries everything a few times and remembers what it was asked."""

    def __init__(self, attempts: int) -> None:
        self.attempts = attempts
        self.asked: list[tuple[type[AgentError], int]] = []

    def should_retry(self, error: AgentError, attempt: int) -> bool:
        self.asked.append((type(error), attempt))
        return attempt < self.attempts

    def delay(self, attempt: int) -> float:
        return float(attempt)


async def test_the_strategy_alone_decides_what_is_retried_and_attempts_count_from_one() -> None:
    clock, strategy = FakeClock(), Recording(3)
    script = scripted(fail("auth"), fail("content_filtered"), text("at last"))
    result = await Agent(MODEL, stream_fn=script, retry_strategy=strategy, sleep=clock.sleep).prompt("hello")
    assert result.text == "at last"
    assert strategy.asked == [(AuthError, 1), (ContentFiltered, 2)]
    assert clock.sleeps == [1.0, 2.0]


async def test_all_attempts_share_one_message() -> None:
    clock = FakeClock()
    script = scripted(text("gone") + fail("network"), text("gone too") + fail("throttled"), text("here"))
    agent = Agent(MODEL, stream_fn=script, retry_strategy=DefaultRetryStrategy(jitter=False), sleep=clock.sleep)
    events = await collect(agent.prompt_stream("hello"))
    check_events(events)
    assert [event for event in names(events) if event.startswith("Message")] == [
        "MessageStart",
        "MessageUpdate",
        "MessageRetry",
        "MessageUpdate",
        "MessageRetry",
        "MessageUpdate",
        "MessageEnd",
    ]
    retries = [event for event in events if isinstance(event, MessageRetry)]
    assert [(retry.attempt, retry.delay) for retry in retries] == [(1, 1.0), (2, 2.0)]
    (end,) = [event for event in events if isinstance(event, MessageEnd)]
    assert end.message.text == "here"


@pytest.mark.parametrize("advice", [0.0, 0.25, 90.0])
async def test_the_providers_advice_wins_over_the_strategy(advice: float) -> None:
    clock = FakeClock()
    script = scripted(fail("throttled", retry_after=advice), text("ok"))
    events = await collect(Agent(MODEL, stream_fn=script, sleep=clock.sleep).prompt_stream("hello"))
    (retry,) = [event for event in events if isinstance(event, MessageRetry)]
    assert retry.delay == advice
    assert sum(clock.sleeps) == advice


async def test_the_last_error_ends_the_run_when_the_attempts_are_used_up() -> None:
    clock = FakeClock()
    script = scripted(fail("network", "first"), fail("network", "second"), fail("throttled", "third", retry_after=7.0))
    result = await Agent(MODEL, stream_fn=script, sleep=clock.sleep).prompt("hello")
    assert (result.stop_reason, result.error) == (StopReason.ERROR, "third")
    assert isinstance(result.exception, ModelThrottled)
    assert result.exception.retry_after == 7.0
    assert len(script.requests) == 3


async def test_an_abort_ends_the_wait_at_once() -> None:
    clock, asleep = FakeClock(auto=False), asyncio.Event()

    async def sleep(seconds: float) -> None:
        asleep.set()
        await clock.sleep(seconds)

    agent = Agent(MODEL, stream_fn=scripted(fail("network"), text("never")), sleep=sleep)
    run = asyncio.ensure_future(agent.prompt("hello"))
    await asleep.wait()
    agent.abort()
    result = await run
    assert result.stop_reason == StopReason.ABORTED
    assert clock.now == 0.0


# -- how long a provider may ask to wait -----------------------------------------------------------------------


class _WithoutACeiling:
    max_retry_after = None

    def should_retry(self, error: AgentError, attempt: int, /) -> bool:
        return attempt < 2

    def delay(self, attempt: int, /) -> float:
        return 0.0


class _WithAnOddCeiling(_WithoutACeiling):
    max_retry_after = cast("None", "soon")


@pytest.mark.parametrize("strategy", [_WithoutACeiling(), _WithAnOddCeiling()])
async def test_a_strategy_with_an_invalid_ceiling_has_the_usual_one(strategy: Any) -> None:
    throttled = fail(ErrorKind.THROTTLED, "slow down", retry_after=0.0)
    agent = Agent(MODEL, stream_fn=scripted(throttled, "whole"), retry_strategy=strategy)
    assert (await agent.prompt("hi")).text == "whole"
    throttled = fail(ErrorKind.THROTTLED, "slow down", retry_after=301.0)
    agent = Agent(MODEL, stream_fn=scripted(throttled, "never"), retry_strategy=strategy)
    assert "max_retry_after is 300 s" in str((await agent.prompt("hi")).error)


async def test_a_wait_beyond_the_ceiling_is_skipped_and_named_in_the_error() -> None:
    clock = FakeClock()
    model = scripted(fail("throttled", "slow down", retry_after=3600), "never")
    result = await Agent(MODEL, stream_fn=model, sleep=clock.sleep).prompt("go")
    assert clock.now == 0
    assert len(model.requests) == 1
    assert isinstance(result.exception, ModelThrottled)
    assert result.exception.retry_after == 3600
    assert result.error is not None
    assert "slow down" in result.error
    assert "3,600 s" in result.error
    assert "300 s" in result.error


async def test_a_wait_up_to_the_ceiling_is_waited_for_and_the_ceiling_can_be_set() -> None:
    clock = FakeClock()
    model = scripted(fail("throttled", retry_after=300), "ok")
    assert (await Agent(MODEL, stream_fn=model, sleep=clock.sleep).prompt("go")).text == "ok"
    assert clock.now == 300
    patient = DefaultRetryStrategy(max_retry_after=7200)
    model = scripted(fail("throttled", retry_after=3600), "ok")
    assert (await Agent(MODEL, stream_fn=model, sleep=clock.sleep, retry_strategy=patient).prompt("go")).text == "ok"


async def test_a_model_that_asks_for_too_much_patience_counts_as_exhausted() -> None:
    agent = Agent(
        MODEL,
        stream_fn=scripted(fail("throttled", retry_after=301)),
        fallbacks=[("test:other", scripted("from the other"))],
    )
    events = await collect(agent.prompt_stream("go"))
    assert any(isinstance(event, ModelFallback) for event in events)
    assert agent.messages[-1].text == "from the other"  # type: ignore[union-attr]


@pytest.mark.parametrize("advised", [float("nan"), float("inf"), -5.0, "soon", [1]])
async def test_invalid_advice_is_ignored(advised: Any) -> None:
    clock = FakeClock()
    model = scripted(fail("throttled", retry_after=advised), "ok")
    result = await Agent(MODEL, stream_fn=model, sleep=clock.sleep).prompt("go")
    assert result.text == "ok" or (advised == float("inf") and isinstance(result.exception, ModelThrottled))
