"""The invariants of a run hold, whatever the model, the tools, the people and the policies do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swink_agent import (
    Agent,
    AgentEvent,
    AgentMessage,
    AgentToolResult,
    Approve,
    ApproveWith,
    AssistantMessage,
    CustomMessage,
    DefaultRetryStrategy,
    ErrorKind,
    Inject,
    ModelSpec,
    PolicyContext,
    PreDispatchContext,
    Reject,
    Skip,
    SlidingWindow,
    Stop,
    StopReason,
    ToolContext,
    ToolError,
    ToolResultMessage,
    UserMessage,
    tool,
)
from swink_agent.testing import (
    FakeClock,
    call,
    check_conversation,
    check_events,
    fail,
    scripted,
    text,
    think,
    truncated,
)


class Notice(CustomMessage, tag="notice"):
    text: str


# -- the world -----------------------------------------------------------------------------------------------


@tool
async def quick(n: int = 0) -> int:
    """Answers at once."""
    return n


@tool
async def slow(ctx: ToolContext, n: int = 0) -> str:
    """Takes a few turns of the event loop and reports on the way."""
    for step in range(3):
        await asyncio.sleep(0)
        ctx.update(f"step {step}")
    return "slept"


@tool(on_steer="finish")
async def thorough() -> str:
    """Finishes what it began."""
    for _ in range(4):
        await asyncio.sleep(0)
    return "finished"


@tool
async def failing() -> str:
    """Fails."""
    raise ToolError("it failed")


@tool
async def exploding() -> str:
    """Raises what nobody expects."""
    raise KeyError("boom")


@tool(requires_approval=True)
async def dangerous(target: str) -> str:
    """Asks first."""
    return f"did it to {target}"


@tool
async def hanging() -> str:
    """Never ends by itself."""
    await asyncio.get_running_loop().create_future()
    return "never"


@tool
async def odd() -> AgentToolResult:
    """Returns a result with details."""
    return AgentToolResult("odd", {"nested": [1, 2]})


TOOLS = [quick, slow, thorough, failing, exploding, dangerous, odd]

calls = st.sampled_from(
    [
        call("quick", n=1),
        call("quick", n="not a number"),
        call("slow"),
        call("thorough"),
        call("failing"),
        call("exploding"),
        call("dangerous", target="x"),
        call("dangerous"),
        call("unknown", a=1),
        call("odd"),
    ]
)
speech = st.sampled_from([text("hello", deltas=3), text(""), text("  "), think("hm", signature="s"), think("hm")])
parts = st.lists(st.one_of(calls, calls, speech), min_size=0, max_size=4)
failures = st.sampled_from([*ErrorKind]).map(fail)
replies = st.lists(
    st.one_of(
        parts,
        parts,
        speech,
        st.tuples(st.lists(speech, max_size=2), failures).map(lambda pair: [*pair[0], pair[1]]),
        st.tuples(st.lists(calls, max_size=2), calls).map(lambda pair: truncated(*pair[0], pair[1])),
        st.just(truncated(text("a long story"))),
    ),
    min_size=1,
    max_size=6,
)

interventions = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from(["steer", "follow_up", "abort", "custom", "clear"])),
    max_size=4,
)
verdicts = st.lists(
    st.sampled_from([None, None, None, Stop("enough"), Skip("not now"), Inject("remember"), "nonsense", KeyError("x")]),
    min_size=1,
    max_size=4,
)
approvals = st.lists(
    st.sampled_from(
        [True, False, Approve(), Reject("no"), ApproveWith({"target": "y"}), ApproveWith({}), None, OSError()]
    ),
    min_size=1,
    max_size=3,
)


class Whimsical:
    """A policy that gives the verdicts of a list in turn, in the slots it was told to fill."""

    def __init__(self, verdicts: list[Any], is_async: bool) -> None:
        self.verdicts = verdicts
        self.is_async = is_async
        self.asked = 0

    def _next(self) -> Any:
        verdict = self.verdicts[self.asked % len(self.verdicts)]
        self.asked += 1
        if self.asked > 30:
            return Stop("a test has to end")
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    def _answer(self) -> Any:
        if not self.is_async:
            return self._next()

        async def later() -> Any:
            await asyncio.sleep(0)
            return self._next()

        return later()


class BeforeTurns(Whimsical):
    def pre_turn(self, ctx: PolicyContext) -> Any:
        return self._answer()


class BeforeCalls(Whimsical):
    def pre_dispatch(self, ctx: PreDispatchContext) -> Any:
        if ctx.name == "quick":
            ctx.arguments = {"n": 7}
        return self._answer()


class AfterTurns(Whimsical):
    def post_turn(self, ctx: PolicyContext) -> Any:
        return self._answer()


class Rewriter:
    """Replaces what the assistant said."""

    def post_turn(self, ctx: PolicyContext) -> Any:
        assert ctx.message is not None
        return Inject([AssistantMessage(ctx.message.tool_calls, stop_reason=ctx.message.stop_reason)])


class AfterLoops(Whimsical):
    def post_loop(self, ctx: PolicyContext) -> Any:
        return self._answer()


policies = st.lists(
    st.one_of(
        st.builds(BeforeTurns, verdicts, st.booleans()),
        st.builds(BeforeCalls, verdicts, st.booleans()),
        st.builds(AfterTurns, verdicts, st.booleans()),
        st.builds(AfterLoops, verdicts, st.booleans()),
        st.builds(Rewriter),
    ),
    max_size=2,
)
histories = st.lists(
    st.sampled_from(
        [
            UserMessage("earlier"),
            AssistantMessage("said"),
            AssistantMessage([*[]]),
            AssistantMessage("partial", stop_reason=StopReason.ABORTED, error_kind=ErrorKind.ABORTED),
            AssistantMessage("too long", stop_reason=StopReason.ERROR, error_kind=ErrorKind.CONTEXT_OVERFLOW),
            ToolResultMessage("nobody", "orphan"),
            Notice("hidden"),
        ]
    ),
    max_size=4,
)


def approver(answers: list[Any], is_async: bool) -> Callable[[Any], Any]:
    asked = 0

    def answer() -> Any:
        nonlocal asked
        asked += 1
        given = answers[asked % len(answers)]
        if isinstance(given, Exception):
            raise given
        return given

    async def later() -> Any:
        await asyncio.sleep(0)
        return answer()

    return (lambda _: later()) if is_async else (lambda _: answer())


# -- the property --------------------------------------------------------------------------------------------


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    replies=replies,
    history=histories,
    interventions=interventions,
    policies=policies,
    answers=approvals,
    is_async=st.booleans(),
    mode=st.sampled_from(["smart", "enabled", "bypassed"]),
    execution=st.sampled_from(["concurrent", "sequential"]),
    steering_mode=st.sampled_from(["one_at_a_time", "all"]),
    suspend=st.booleans(),
    streamed=st.booleans(),
    windowed=st.booleans(),
    has_fallback=st.booleans(),
)
def test_every_run_keeps_its_balance(
    replies: list[Any],
    history: list[AgentMessage],
    interventions: list[tuple[int, str]],
    policies: list[Any],
    answers: list[Any],
    is_async: bool,
    mode: Any,
    execution: Any,
    steering_mode: Any,
    suspend: bool,
    streamed: bool,
    windowed: bool,
    has_fallback: bool,
) -> None:
    model = scripted(*replies, suspend=suspend)
    fallback = scripted(text("from the fallback"))
    clock = FakeClock()
    agent = Agent(
        "test:model",
        stream_fn=model,
        tools=TOOLS,
        messages=history,
        policies=policies,
        approve=approver(answers, is_async),
        approval_mode=mode,
        tool_execution=execution,
        steering_mode=steering_mode,
        retry_strategy=DefaultRetryStrategy(max_attempts=2),
        transform_context=SlidingWindow(60, overflow_tokens=20) if windowed else None,
        fallbacks=[(ModelSpec("other", "model"), fallback)] if has_fallback else [],
        sleep=clock.sleep,
    )
    before = list(agent.messages)
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    agent.subscribe(_interventions(agent, interventions))
    result = asyncio.run(_run(agent, streamed))

    check_events(events)
    assert list(agent.messages) == before + list(result.messages)
    assert events[-1].messages == result.messages  # type: ignore[union-attr]
    for request in [*model.requests, *fallback.requests]:
        check_conversation(request.messages)
    check_results(result.messages)
    assert not agent.is_running
    assert not agent.pending_tool_calls
    assert agent.streaming_message is None
    assert (result.error is None) == (result.stop_reason not in (StopReason.ERROR, StopReason.ABORTED))


async def _run(agent: Agent, streamed: bool) -> Any:
    async with asyncio.timeout(30):
        if not streamed:
            result = await agent.prompt("go")
        else:
            stream = agent.prompt_stream("go")
            async for _ in stream:
                pass
            result = await stream.result()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1, "it left tasks behind"
    return result


def _interventions(agent: Agent, planned: list[tuple[int, str]]) -> Callable[[AgentEvent], None]:
    position = 0

    def intervene(event: AgentEvent) -> None:
        nonlocal position
        for when, what in planned:
            if when == position:
                match what:
                    case "steer":
                        agent.steer(f"steer at {position}")
                    case "follow_up":
                        agent.follow_up(f"follow up at {position}")
                    case "custom":
                        agent.steer(Notice("by the way"))
                    case "clear":
                        agent.clear_queues()
                    case _:
                        agent.abort()
        position += 1

    return intervene


def check_results(messages: tuple[AgentMessage, ...]) -> None:
    """Every call has exactly one result, right behind its message and in call order."""
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if isinstance(message, ToolResultMessage):
            raise AssertionError(f"a result without a call: {message}")
        if isinstance(message, AssistantMessage):
            for expected in message.tool_calls:
                result = messages[position]
                assert isinstance(result, ToolResultMessage)
                assert result.tool_call_id == expected.id
                position += 1


@settings(max_examples=60)
@given(
    batch=st.lists(
        st.sampled_from([call("hanging"), call("slow"), call("thorough"), call("quick", n=1)]), min_size=1, max_size=5
    ),
    after=st.integers(1, 25),
)
def test_an_abort_at_any_turn_of_the_loop_ends_a_batch_with_a_result_for_each_call(
    batch: list[Any], after: int
) -> None:
    agent = Agent("test:model", stream_fn=scripted(batch, text("done")), tools=[*TOOLS, hanging])
    events: list[AgentEvent] = []
    agent.subscribe(events.append)

    async def run() -> Any:
        task = asyncio.ensure_future(agent.prompt("go"))
        for _ in range(after):
            await asyncio.sleep(0)
        agent.abort()
        async with asyncio.timeout(60):
            return await task

    result = asyncio.run(run())
    check_events(events)
    check_results(result.messages)
