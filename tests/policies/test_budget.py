"""Budget reserves the highest cost before a call, so that the limit is never exceeded."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextvars import Context
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AssistantMessage,
    Cost,
    MessageUpdate,
    ModelSpec,
    PolicyContext,
    Stop,
    StopReason,
    StreamDone,
    StreamOptions,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    Usage,
    extract_text,
    tool,
)
from swink_agent.policies import Budget, MaxTurns
from swink_agent.testing import call, fail, scripted, stall, text

MODEL = ModelSpec("test", "model")
TurnFn = Callable[..., PolicyContext]


def per_token(model: ModelSpec, tokens: int, output: int | None) -> tuple[float | None, int | None]:
    """A cent for each token, and replies of at most 100."""
    output = 100 if output is None else output
    return (tokens + output) * 0.01, output


def said(usage: Usage | None = None, cost: float = 0.0) -> AssistantMessage:
    return AssistantMessage("ok", "test", "model", usage or Usage(), Cost(total=cost))


@tool
async def look() -> str:
    """Looks."""
    return "seen"


# -- reserving and settling ------------------------------------------------------------------------------------


def test_a_call_that_could_cost_too_much_is_not_made(turn: TurnFn) -> None:
    verdict = Budget(1.0, worst_case=per_token).pre_turn(turn(request_tokens=1))
    assert isinstance(verdict, Stop)
    assert verdict.reason == (
        "the next call to test:model can cost up to $1.0100 (1 tokens in, 100 out); of the budget of $1, $0.0000 are "
        "spent. Raise max_cost, or allow shorter replies (max_tokens)"
    )


def test_a_tiny_budget_is_written_as_people_write_it(turn: TurnFn) -> None:
    verdict = Budget(0.000001, worst_case=per_token).pre_turn(turn(request_tokens=1))
    assert isinstance(verdict, Stop)
    assert "of the budget of $0.000001, " in verdict.reason


def test_a_call_that_just_fits_is_made(turn: TurnFn) -> None:
    assert Budget(1.01, worst_case=per_token).pre_turn(turn(request_tokens=1)) is None


def test_the_limit_on_replies_in_the_stream_options_makes_the_reservation_smaller(turn: TurnFn) -> None:
    budget = Budget(1.0, worst_case=per_token)
    assert budget.pre_turn(turn(request_tokens=1, max_tokens=50)) is None
    assert budget.remaining == pytest.approx(0.49)


def test_actual_usage_replaces_the_reservation(turn: TurnFn) -> None:
    budget = Budget(5.0, 1000, worst_case=per_token)
    assert budget.pre_turn(turn(request_tokens=10)) is None
    assert (budget.remaining, budget.remaining_tokens) == (pytest.approx(3.9), 890)
    budget.post_turn(turn(message=said(Usage(8, 2, total=10), 0.07)))
    assert (budget.spent, budget.spent_tokens) == (pytest.approx(0.07), 10)
    assert (budget.remaining, budget.remaining_tokens) == (pytest.approx(4.93), 990)


def test_tokens_are_limited_with_cached_ones_among_them(turn: TurnFn) -> None:
    budget = Budget(max_tokens=300, worst_case=per_token)
    assert budget.pre_turn(turn(request_tokens=100)) is None
    budget.post_turn(turn(message=said(Usage(10, 20, 60, 10))))
    assert budget.spent_tokens == 100
    verdict = budget.pre_turn(turn(request_tokens=101))
    assert isinstance(verdict, Stop)
    assert "up to 201 tokens; of the budget of 300, 100 are spent." in verdict.reason


def test_runs_that_share_a_budget_see_each_others_reservations(turn: TurnFn) -> None:
    budget = Budget(2.5, worst_case=per_token)
    assert budget.pre_turn(turn(request_tokens=0, run_id=1)) is None
    assert budget.pre_turn(turn(request_tokens=0, run_id=2)) is None
    verdict = budget.pre_turn(turn(request_tokens=0, run_id=3))
    assert isinstance(verdict, Stop)
    assert "and $2.0000 reserved by other runs" in verdict.reason
    budget.post_turn(turn(message=said(cost=0.1), run_id=2))
    assert budget.pre_turn(turn(request_tokens=0, run_id=3)) is None


def test_a_reply_whose_cost_nobody_gave_is_priced_by_its_tokens(turn: TurnFn) -> None:
    budget = Budget(5.0, worst_case=per_token)
    budget.pre_turn(turn(request_tokens=10))
    budget.post_turn(turn(message=said(Usage(8, 2, total=10))))
    assert budget.spent == pytest.approx(0.1)


def test_a_reply_that_nobody_counted_counts_at_its_most(turn: TurnFn) -> None:
    """Else a server that reports no usage would have no limit at all."""
    budget = Budget(5.0, 1000, worst_case=per_token)
    budget.pre_turn(turn(request_tokens=10))
    budget.post_turn(turn(message=said()))
    assert 10 < budget.spent_tokens <= 110
    assert budget.spent == pytest.approx(budget.spent_tokens * 0.01)


@pytest.mark.parametrize(
    ("message", "is_counted"),
    [
        (AssistantMessage("half", stop_reason=StopReason.ERROR), True),
        (AssistantMessage((), stop_reason=StopReason.ABORTED), True),
        (AssistantMessage((), stop_reason=StopReason.ERROR), False),
    ],
    ids=["broken off", "aborted", "refused"],
)
def test_a_reply_that_failed_counts_if_the_provider_worked_on_it(
    turn: TurnFn, message: AssistantMessage, is_counted: bool
) -> None:
    budget = Budget(5.0, worst_case=per_token)
    budget.pre_turn(turn(request_tokens=10))
    budget.post_turn(turn(message=message))
    assert (budget.spent >= 0.1) is is_counted
    assert budget.remaining == pytest.approx(5.0 - budget.spent)


def test_a_reset_starts_the_account_anew(turn: TurnFn) -> None:
    budget = Budget(2.0, worst_case=per_token)
    budget.pre_turn(turn(request_tokens=10))
    budget.post_turn(turn(message=said(cost=1.5)))
    assert isinstance(budget.pre_turn(turn(request_tokens=10)), Stop)
    budget.reset()
    assert budget.spent == 0.0
    assert budget.pre_turn(turn(request_tokens=10)) is None


# -- prices that are not known ---------------------------------------------------------------------------------


def test_a_model_without_a_price_is_refused(turn: TurnFn) -> None:
    verdict = Budget(100.0).pre_turn(turn(model=ModelSpec("nobody", "knows")))
    assert isinstance(verdict, Stop)
    assert "the price of nobody:knows is not known" in verdict.reason
    assert "unknown_prices='allow'" in verdict.reason


def test_a_model_without_a_price_is_free_if_that_is_allowed(turn: TurnFn) -> None:
    budget = Budget(0.01, unknown_prices="allow")
    assert budget.pre_turn(turn(model=ModelSpec("nobody", "knows"), request_tokens=10)) is None
    budget.post_turn(turn(message=said(Usage(10, 10, total=20))))
    assert budget.spent == 0.0


def test_tokens_can_be_limited_without_a_price(turn: TurnFn) -> None:
    assert Budget(max_tokens=100_000).pre_turn(turn(model=ModelSpec("nobody", "knows"))) is None


@pytest.mark.parametrize("answer", [RuntimeError("no table"), (float("nan"), 100), ("free", 100)])
def test_a_price_table_that_fails_stops_the_run_and_does_not_let_it_go_unpaid(turn: TurnFn, answer: Any) -> None:
    def broken(model: ModelSpec, tokens: int, output: int | None) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert isinstance(Budget(1.0, worst_case=broken).pre_turn(turn()), Stop)


def test_the_prices_of_the_catalog_are_the_ones_that_count(turn: TurnFn) -> None:
    model = ModelSpec("anthropic", "claude-sonnet-4-5")
    budget = Budget(1.0)
    assert budget.pre_turn(turn(model=model, request_tokens=1000, max_tokens=1000)) is None
    assert 0.015 < 1.0 - (budget.remaining or 0.0) < 0.1
    assert isinstance(Budget(1.0).pre_turn(turn(model=model, request_tokens=1_000_000, max_tokens=1000)), Stop)


def test_models_on_this_machine_cost_nothing(turn: TurnFn) -> None:
    budget = Budget(0.0)
    assert budget.pre_turn(turn(model=ModelSpec("local", "any"), request_tokens=1000)) is None
    assert budget.remaining == 0.0


def test_the_reply_is_assumed_as_long_as_the_caller_says_if_nobody_limits_it(turn: TurnFn) -> None:
    budget = Budget(max_tokens=1000, max_output=300, worst_case=lambda model, tokens, output: (0.0, output))
    assert budget.pre_turn(turn(request_tokens=100)) is None
    assert budget.remaining_tokens == 600


# -- in a run --------------------------------------------------------------------------------------------------


def spending(*replies: Any, cost: float = 0.0, usage: Usage | None = None, budget: Any, **options: Any) -> Agent:
    stream = scripted(*replies, cost=Cost(total=cost), usage=usage)
    return Agent(MODEL, stream_fn=stream, tools=[look], policies=[budget], **options)


async def test_a_run_ends_before_the_call_that_could_overshoot() -> None:
    budget = Budget(1.0, worst_case=lambda model, tokens, output: (0.3, 10))
    agent = spending(*[call("look")] * 10, cost=0.3, usage=Usage(1, 1, total=2), budget=budget)
    result = await agent.prompt("go")
    assert result.stopped_by is not None
    assert result.stopped_by.policy == "budget"
    assert budget.spent == pytest.approx(0.9)


async def test_the_size_of_the_request_is_part_of_the_worst_case() -> None:
    seen: list[tuple[int, int | None]] = []

    def record(model: ModelSpec, tokens: int, output: int | None) -> tuple[float | None, int | None]:
        seen.append((tokens, output))
        return 0.0, 10

    agent = spending(
        text("ok"),
        usage=Usage(1, 1, total=2),
        budget=Budget(1.0, worst_case=record),
        stream_options=StreamOptions(max_tokens=7),
    )
    await agent.prompt("x" * 10_000)
    assert seen[0][0] >= 10_000
    assert seen[0][1] == 7


async def test_every_attempt_is_reserved_for_and_counted() -> None:
    """A retry is a call like any other; what the failed attempt used is spent."""
    used = Usage(100, 0, total=100)
    budget = Budget(2.5, worst_case=lambda model, tokens, output: (1.0, 10))
    agent = spending(
        fail("network", usage=used), fail("network", usage=used), text("never"), budget=budget, sleep=no_wait
    )
    result = await agent.prompt("go")
    assert budget.spent == pytest.approx(2.0)
    assert result.stopped_by is not None
    assert result.stopped_by.policy == "budget"
    assert result.stop_reason == StopReason.ERROR
    assert budget.remaining == pytest.approx(0.5)


async def test_a_fallback_is_reserved_for_at_its_own_price() -> None:
    asked: list[str] = []

    def record(model: ModelSpec, tokens: int, output: int | None) -> tuple[float | None, int | None]:
        asked.append(str(model))
        return 0.1, 10

    budget = Budget(1.0, worst_case=record)
    agent = Agent(
        MODEL,
        stream_fn=scripted(fail("network"), fail("network"), fail("network")),
        fallbacks=[("other:model", scripted(text("ok"), cost=Cost(total=0.05)))],
        policies=[budget],
        sleep=no_wait,
    )
    result = await agent.prompt("go")
    assert result.text == "ok"
    assert asked[:4] == ["test:model"] * 3 + ["other:model"]
    assert budget.spent == pytest.approx(0.05)


async def test_many_runs_at_once_never_overshoot() -> None:
    """Each call takes its time and costs its worst case: what is let through is what fits."""
    calls = 0

    async def slow(model: Any, context: Any, options: Any, cancel: Any) -> AsyncIterator[Any]:
        nonlocal calls
        calls += 1
        yield StreamStart()
        for _ in range(5):
            await asyncio.sleep(0)
        yield TextStart(0)
        yield TextDelta(0, "ok")
        yield TextEnd(0)
        yield StreamDone(StopReason.STOP, Usage(1, 1, total=2), Cost(total=0.3))

    budget = Budget(1.0, worst_case=lambda model, tokens, output: (0.3, 10))
    agents = [Agent(MODEL, stream_fn=slow, policies=[budget]) for _ in range(20)]
    results = await asyncio.gather(*[agent.prompt("go") for agent in agents])
    assert calls == 3
    assert budget.spent == pytest.approx(0.9)
    assert sum(result.stopped_by is not None for result in results) == 17


# -- waiting for each other -------------------------------------------------------------------------------------


class Gate:
    """A stream function whose replies cost a tenth of their worst case, and wait until they may go on."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.asked = 0
        self.most_at_once = 0
        self._at_once = 0
        self._open = asyncio.Event()
        self.someone_came = asyncio.Event()
        if is_open:
            self._open.set()

    def open(self) -> None:
        self._open.set()

    async def __call__(self, model: Any, context: Any, options: Any, cancel: Any) -> AsyncIterator[Any]:
        self.asked += 1
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self.someone_came.set()
        try:
            yield StreamStart()
            await self._open.wait()
            await asyncio.sleep(0)
            yield TextStart(0)
            yield TextDelta(0, "ok")
            yield TextEnd(0)
            yield StreamDone(StopReason.STOP, Usage(1, 1, total=2), Cost(total=0.01))
        finally:
            self._at_once -= 1


def a_tenth() -> Budget:
    """Room for ten calls at once, and a hundred in all."""
    return Budget(1.0, worst_case=lambda model, tokens, output: (0.1, 10))


async def until_waiting(budget: Budget, number: int = 1) -> None:
    async with asyncio.timeout(30.0):
        while len(budget._waiting) < number:  # noqa: ASYNC110 - there is no event for the wait
            await asyncio.sleep(0)


async def test_two_hundred_small_documents_get_done_under_one_budget_twenty_at_once() -> None:
    budget = Budget(2.5, worst_case=lambda model, tokens, output: (0.3, 10))
    gate, twenty = Gate(is_open=True), asyncio.Semaphore(20)

    async def read(number: int) -> bool:
        async with twenty:
            result = await Agent(MODEL, stream_fn=gate, policies=[budget]).prompt(f"document {number}")
            return result.text == "ok" and result.stopped_by is None

    async with asyncio.timeout(30.0):
        done = await asyncio.gather(*[read(number) for number in range(200)])
    assert all(done)
    assert gate.most_at_once == 8
    assert budget.spent == pytest.approx(2.0)
    assert budget.remaining == pytest.approx(0.5)


def test_agents_in_threads_wait_for_each_other() -> None:
    budget = Budget(2.5, worst_case=lambda model, tokens, output: (0.3, 10))
    results: list[bool] = []

    def work() -> None:
        async def several() -> None:
            gate = Gate(is_open=True)
            agents = [Agent(MODEL, stream_fn=gate, policies=[budget]) for _ in range(10)]
            done = await asyncio.gather(*[agent.prompt("go") for agent in agents])
            results.extend(result.text == "ok" for result in done)

        asyncio.run(several())

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert results == [True] * 80
    assert budget.spent == pytest.approx(0.8)


async def test_it_refuses_once_not_even_everything_returned_would_do() -> None:
    budget = Budget(0.105, worst_case=lambda model, tokens, output: (0.1, 10))
    gate = Gate()
    agents = [Agent(MODEL, stream_fn=gate, policies=[budget]) for _ in range(3)]
    runs = [asyncio.create_task(agent.prompt("go")) for agent in agents]
    await until_waiting(budget, 2)
    await gate.someone_came.wait()
    assert gate.asked == 1
    gate.open()
    first, *others = await asyncio.gather(*runs)
    assert first.text == "ok"
    assert [result.stopped_by is not None for result in others] == [True, True]
    assert "reserved by other runs" not in others[0].stopped_by.reason
    assert budget.spent == pytest.approx(0.01)


async def test_a_large_call_is_not_passed_by_small_ones_for_ever() -> None:
    order: list[str] = []
    gate = Gate()
    budget = Budget(1.0, worst_case=lambda model, tokens, output: (float(model.model_id), 10))

    async def ask(price: str) -> None:
        await Agent(ModelSpec("test", price), stream_fn=gate, policies=[budget]).prompt("go")
        order.append(price)

    runs = [asyncio.create_task(ask("0.6"))]
    await gate.someone_came.wait()
    for number, price in enumerate(["0.9", "0.3", "0.31"]):
        runs.append(asyncio.create_task(ask(price)))
        await until_waiting(budget, number + 1)
    gate.open()
    await asyncio.gather(*runs)
    assert order[:2] == ["0.6", "0.9"]


async def test_a_run_that_waits_ends_at_once_when_it_is_aborted() -> None:
    budget, gate = Budget(0.15, worst_case=lambda model, tokens, output: (0.1, 10)), Gate()
    first = asyncio.create_task(Agent(MODEL, stream_fn=gate, policies=[budget]).prompt("go"))
    await gate.someone_came.wait()
    agent = Agent(MODEL, stream_fn=gate, policies=[budget])
    second = asyncio.create_task(agent.prompt("go"))
    third = asyncio.create_task(Agent(MODEL, stream_fn=gate, policies=[budget]).prompt("go"))
    await until_waiting(budget, 2)
    agent.abort()
    async with asyncio.timeout(30.0):
        result = await second
    assert result.stop_reason == StopReason.ABORTED
    assert len(budget._waiting) == 1
    gate.open()
    assert [(await run).text for run in (first, third)] == ["ok", "ok"]
    assert budget.spent == pytest.approx(0.02)


async def test_an_attempt_is_counted_once_if_its_repetition_is_aborted_while_it_waits() -> None:
    budget, gate = Budget(0.35, worst_case=lambda model, tokens, output: (0.1, 10)), Gate()

    others = [asyncio.create_task(Agent(MODEL, stream_fn=gate, policies=[budget]).prompt("go")) for _ in range(2)]
    await gate.someone_came.wait()
    failing = scripted(fail("network", usage=Usage(100, 0, total=100)), text("never"))
    agent = Agent(MODEL, stream_fn=failing, policies=[budget], sleep=no_wait)
    run = asyncio.create_task(agent.prompt("go"))
    await until_waiting(budget)
    agent.abort()
    await run
    assert budget.spent == pytest.approx(0.1)
    gate.open()
    await asyncio.gather(*others)
    assert budget.spent == pytest.approx(0.12)


async def test_an_agent_in_a_tool_does_not_wait_for_the_agent_that_waits_for_it() -> None:
    budget = Budget(0.15, worst_case=lambda model, tokens, output: (0.1, 10))

    @tool
    async def ask_another() -> str:
        """Asks another agent."""
        other = Agent(MODEL, stream_fn=scripted("from below", cost=Cost(total=0.01)), policies=[budget])
        return (await other.prompt("go")).text

    replies = scripted(call("ask_another"), "done", cost=Cost(total=0.01))
    async with asyncio.timeout(30.0):
        result = await Agent(MODEL, stream_fn=replies, tools=[ask_another], policies=[budget]).prompt("go")
    assert result.text == "done"
    assert extract_text(result.messages[2].content) == "from below"
    assert budget.spent == pytest.approx(0.03)


async def test_an_agent_in_a_tool_waits_in_the_queue_like_others() -> None:
    budget, gate = Budget(0.15, worst_case=lambda model, tokens, output: (0.1, 10)), Gate()
    other: asyncio.Task[Any] | None = None

    @tool
    async def ask_another() -> str:
        """Asks another agent, while a third has reserved the rest."""
        nonlocal other
        other = asyncio.create_task(Agent(MODEL, stream_fn=gate, policies=[budget]).prompt("go"), context=Context())
        await gate.someone_came.wait()
        below = Agent(MODEL, stream_fn=scripted("from below", cost=Cost(total=0.01)), policies=[budget])
        asking = asyncio.create_task(below.prompt("go"))
        await until_waiting(budget)
        gate.open()
        return (await asking).text

    replies = scripted(call("ask_another"), "done", cost=Cost(total=0.01))
    async with asyncio.timeout(30.0):
        result = await Agent(MODEL, stream_fn=replies, tools=[ask_another], policies=[budget]).prompt("go")
    assert result.text == "done"
    assert extract_text(result.messages[2].content) == "from below"
    assert other is not None
    assert (await other).text == "ok"


async def test_an_agent_in_a_hook_is_refused_rather_than_left_to_wait_for_ever() -> None:
    """While the context is compacted after an overflow, the request's own reservation cannot come back."""
    budget = Budget(0.15, worst_case=lambda model, tokens, output: (0.1, 10))
    stopped: list[bool] = []

    async def summarize(messages: Any, overflow: bool) -> Any:
        if overflow:
            result = await Agent(MODEL, stream_fn=scripted("short"), policies=[budget]).prompt("sum it up")
            stopped.append(result.stopped_by is not None)
            return messages[-1:]
        return None

    agent = Agent(
        MODEL,
        messages=["long ago", AssistantMessage("yes")],
        stream_fn=scripted(fail("context_overflow"), "done"),
        async_transform_context=summarize,
        policies=[budget],
    )
    async with asyncio.timeout(30.0):
        result = await agent.prompt("go")
    assert (result.text, stopped) == ("done", [True])


async def test_two_agents_whose_hooks_wait_for_each_other_both_end() -> None:
    budget = Budget(0.25, worst_case=lambda model, tokens, output: (0.1, 10))
    both = asyncio.Barrier(2)

    async def summarize(messages: Any, overflow: bool) -> Any:
        if overflow:
            await both.wait()
            await Agent(MODEL, stream_fn=scripted("short", cost=Cost(total=0.01)), policies=[budget]).prompt("sum up")
            return messages[-1:]
        return None

    agents = [
        Agent(
            MODEL,
            messages=["long ago", AssistantMessage("yes")],
            stream_fn=scripted(fail("context_overflow"), "done"),
            async_transform_context=summarize,
            policies=[budget],
        )
        for _ in range(2)
    ]
    async with asyncio.timeout(30.0):
        results = await asyncio.gather(*[agent.prompt("go") for agent in agents])
    assert [result.text for result in results] == ["done", "done"]


async def test_a_run_that_another_policy_stopped_holds_nothing_that_others_wait_for() -> None:
    class Stopper:
        def pre_turn(self, ctx: PolicyContext) -> Stop:
            return Stop("no")

    budget = Budget(0.15, worst_case=lambda model, tokens, output: (0.1, 10))
    await Agent(MODEL, stream_fn=scripted(text("never")), policies=[budget, Stopper()]).prompt("go")
    assert budget.remaining == pytest.approx(0.15)


def test_a_run_that_died_with_its_event_loop_is_not_waited_for(turn: TurnFn) -> None:
    budget = Budget(0.15, worst_case=lambda model, tokens, output: (0.1, 10))
    loop = asyncio.new_event_loop()

    async def run() -> None:
        assert budget.pre_turn(turn()) is None
        await asyncio.Event().wait()

    dead = loop.create_task(run())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert not dead.done()
    assert budget.remaining == pytest.approx(0.05)

    async def go_on() -> str:
        async with asyncio.timeout(30.0):
            return (await Agent(MODEL, stream_fn=scripted("ok"), policies=[budget]).prompt("go")).text

    assert asyncio.run(go_on()) == "ok"
    dead.get_coro().close()
    dead._log_destroy_pending = False


async def test_a_turn_that_another_policy_stops_leaves_nothing_reserved() -> None:
    class Stopper:
        def pre_turn(self, ctx: PolicyContext) -> Stop:
            return Stop("no")

    budget = Budget(1.0, worst_case=lambda model, tokens, output: (0.6, 10))
    for _ in range(5):
        await Agent(MODEL, stream_fn=scripted(text("never")), policies=[budget, Stopper()]).prompt("go")
    result = await Agent(MODEL, stream_fn=scripted("ok", cost=Cost(total=0.6)), policies=[budget]).prompt("go")
    assert result.text == "ok"


async def test_an_aborted_call_is_counted_and_its_reservation_given_back() -> None:
    budget = Budget(50.0, worst_case=per_token)
    agent = Agent(MODEL, stream_fn=scripted(text("half") + stall()), policies=[budget])
    agent.subscribe(lambda event: agent.abort() if isinstance(event, MessageUpdate) else None)
    result = await agent.prompt("x" * 100)
    assert result.stop_reason == StopReason.ABORTED
    assert budget.spent > 1.0
    assert budget.remaining == pytest.approx(50.0 - budget.spent)


def test_a_budget_is_kept_by_many_threads(turn: TurnFn) -> None:
    budget = Budget(10.0, worst_case=lambda model, tokens, output: (1.0, 10))
    made: list[int] = []

    def spend(number: int) -> None:
        for attempt in range(50):
            if budget.pre_turn(turn(run_id=number)) is None:
                made.append(attempt)
                budget.post_turn(turn(run_id=number, message=said(cost=1.0)))

    threads = [threading.Thread(target=spend, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert len(made) == 10
    assert budget.spent == pytest.approx(10.0)


async def no_wait(seconds: float) -> None:
    await asyncio.sleep(0)


# -- its making ------------------------------------------------------------------------------------------------


async def test_it_works_next_to_other_limits(caplog: pytest.LogCaptureFixture) -> None:
    budget = Budget(1.0, worst_case=lambda model, tokens, output: (0.1, 10))
    with caplog.at_level(logging.WARNING, "swink_agent"):
        agent = Agent(
            MODEL,
            stream_fn=scripted(*[call("look")] * 5, cost=Cost(total=0.1)),
            tools=[look],
            policies=[MaxTurns(2), budget],
        )
        result = await agent.prompt("go")
    assert result.stopped_by is not None
    assert result.stopped_by.policy == "max_turns"
    assert budget.spent == pytest.approx(0.2)
    assert budget.remaining == pytest.approx(0.8)
    assert not caplog.records


def test_the_repr_shows_the_account() -> None:
    assert repr(Budget(1.5)) == "Budget(max_cost=1.5, max_tokens=None, spent=0.000000)"


@pytest.mark.parametrize("cost", [Cost(total=0.25), Cost(input=0.25), Cost(cache_read=0.125, output=0.125)])
async def test_a_cost_without_tokens_is_spent(cost: Cost) -> None:
    budget = Budget(max_cost=0.4, unknown_prices="allow")
    agent = Agent(MODEL, stream_fn=scripted("a", "b", "c", cost=cost), policies=[budget])
    results = [await agent.prompt("go") for _ in range(3)]
    assert [result.stopped_by is not None for result in results] == [False, False, True]
    assert agent.total_cost.amount == 0.5


async def test_cached_tokens_alone_are_spent() -> None:
    budget = Budget(max_tokens=11_000)
    agent = Agent(
        MODEL,
        stream_fn=scripted("a", "b", usage=Usage(cache_read=10_000)),
        stream_options=StreamOptions(max_tokens=100),
        policies=[budget],
    )
    assert [(await agent.prompt("go")).stopped_by is not None for _ in range(2)] == [False, True]
