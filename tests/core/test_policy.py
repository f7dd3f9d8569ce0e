"""Policies: four places to watch, stop, add, or skip."""

from __future__ import annotations

import copy
import logging
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from swink_agent import (
    Agent,
    AgentContext,
    AgentError,
    AgentEvent,
    AgentLoopConfig,
    AgentToolResult,
    AssistantMessage,
    CustomMessage,
    DefaultRetryStrategy,
    Inject,
    MessagesInjected,
    ModelSpec,
    PolicyContext,
    PolicyFailed,
    PolicyStop,
    PolicyStopped,
    PreDispatchContext,
    Skip,
    Stop,
    StopReason,
    StreamOptions,
    Text,
    ToolCall,
    ToolContext,
    ToolResultMessage,
    TurnEnd,
    TurnEndReason,
    Usage,
    UserMessage,
    agent_loop,
    extract_text,
    tool,
)
from swink_agent.core.types import Extension
from swink_agent.testing import call, check_events, collect, fail, names, scripted, text

MODEL = ModelSpec("test", "model")


async def no_sleep(seconds: float) -> None:
    pass


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


class Before:
    name = "before"

    def __init__(self, *verdicts: Any) -> None:
        self.verdicts = list(verdicts)
        self.seen: list[PolicyContext] = []

    def _next(self, ctx: Any) -> Any:
        self.seen.append(ctx)
        verdict = self.verdicts.pop(0) if self.verdicts else None
        if isinstance(verdict, Exception):
            raise verdict
        return verdict


class PreTurn(Before):
    def pre_turn(self, ctx: PolicyContext) -> Any:
        return self._next(ctx)


class AsyncPreTurn(Before):
    async def pre_turn(self, ctx: PolicyContext) -> Any:
        return self._next(ctx)


class PreDispatch(Before):
    def pre_dispatch(self, ctx: PreDispatchContext) -> Any:
        return self._next(ctx)


class PostTurn(Before):
    def post_turn(self, ctx: PolicyContext) -> Any:
        return self._next(ctx)


class PostLoop(Before):
    def post_loop(self, ctx: PolicyContext) -> Any:
        return self._next(ctx)


async def run(policies: list[Any], *replies: Any, prompt: str = "go", **options: Any) -> tuple[Agent, list[AgentEvent]]:
    agent = Agent(MODEL, stream_fn=scripted(*replies), tools=[add], policies=policies, **options)
    events = await collect(agent.prompt_stream(prompt))
    check_events(events)
    return agent, events


def turn_ends(events: list[AgentEvent]) -> list[TurnEnd]:
    return [event for event in events if isinstance(event, TurnEnd)]


def injected(events: list[AgentEvent]) -> list[tuple[str, str]]:
    return [
        (event.source, extract_text(message.content))  # type: ignore[union-attr]
        for event in events
        if isinstance(event, MessagesInjected)
        for message in event.messages
    ]


async def test_a_pre_turn_stop_ends_the_run_before_the_model_is_asked() -> None:
    agent, events = await run([PreTurn(Stop("over budget"))], text("never"))
    assert names(events) == ["AgentStart", "TurnStart", "TurnEnd", "AgentEnd"]
    (turn,) = turn_ends(events)
    assert turn.message is None
    assert turn.reason == TurnEndReason.STOPPED
    assert events[-1].stopped_by == PolicyStop("before", "over budget")  # type: ignore[union-attr]
    assert agent.last_error is None


async def test_a_run_stopped_before_its_first_reply_has_stop_reason_stop() -> None:
    agent = Agent(MODEL, stream_fn=scripted(text("never")), policies=[PreTurn(Stop("no"))])
    result = await agent.prompt("go")
    assert result.stop_reason == StopReason.STOP
    assert result.stopped_by == PolicyStop("before", "no")
    assert result.error is None
    with pytest.raises(PolicyStopped, match="policy before stopped the run: no"):
        result.raise_for_error()


async def test_a_run_stopped_later_has_the_stop_reason_of_its_last_reply() -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("add", a=1, b=2)), tools=[add], policies=[PreTurn(None, Stop("no"))])
    result = await agent.prompt("go")
    assert result.stop_reason == StopReason.TOOL_USE


@pytest.mark.parametrize("policy", [PreTurn, AsyncPreTurn])
async def test_a_pre_turn_injection_enters_this_turn_after_the_compaction(policy: Any) -> None:
    model = scripted(text("ok"))
    agent = Agent(
        MODEL,
        stream_fn=model,
        messages=["one", "two"],
        policies=[policy(Inject([UserMessage("remember")]))],
        transform_context=lambda messages, overflow: messages[-1:],
    )
    events = await collect(agent.prompt_stream("three"))
    check_events(events)
    assert names(events)[1:5] == ["TurnStart", "ContextCompacted", "MessagesInjected", "MessageStart"]
    assert injected(events) == [("policy", "remember")]
    assert [extract_text(message.content) for message in model.requests[0].messages] == ["three", "remember"]  # type: ignore[union-attr]


async def test_the_first_stop_wins_and_later_policies_are_not_asked() -> None:
    last = PreTurn()
    _, events = await run([PreTurn(None), PreTurn(Stop("first")), PreTurn(Stop("second")), last], text("never"))
    assert events[-1].stopped_by.reason == "first"  # type: ignore[union-attr]
    assert not last.seen


@pytest.mark.parametrize(
    ("slot", "name", "asks"), [(PreTurn, "pre_turn", 0), (PostTurn, "post_turn", 1), (PostLoop, "post_loop", 1)]
)
@pytest.mark.parametrize("verdict", [KeyError("x"), "nonsense", True, Skip("here it means nothing")])
async def test_a_policy_that_fails_ends_the_run_with_its_name(slot: Any, name: str, asks: int, verdict: Any) -> None:
    model, asked_later = scripted("fine", "never"), slot()
    agent = Agent(MODEL, stream_fn=model, policies=[slot(verdict), asked_later])
    agent.follow_up("and then?")
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    result = agent.last_result
    assert result is not None
    failed = result.exception
    assert isinstance(failed, PolicyFailed)
    assert (failed.policy, failed.slot, result.stopped_by, len(model.requests)) == ("before", name, None, asks)
    assert isinstance(failed.__cause__, KeyError if isinstance(verdict, KeyError) else TypeError)
    assert not asked_later.seen
    with pytest.raises(PolicyFailed, match=f"policy before failed in {name}"):
        result.raise_for_error()


@pytest.mark.parametrize("slot", [PreTurn, AsyncPreTurn, PostTurn, PostLoop])
async def test_an_optional_policy_that_fails_is_logged_and_passed_over(
    slot: Any, caplog: pytest.LogCaptureFixture
) -> None:
    policy = slot(KeyError("x"))
    policy.optional = True
    with caplog.at_level(logging.ERROR, "swink_agent"):
        agent, _ = await run([policy], text("fine"))
    assert "policy before" in caplog.text
    assert agent.messages[-1].text == "fine"  # type: ignore[union-attr]


async def test_a_failure_after_a_turn_keeps_the_replacements_before_it() -> None:
    agent, events = await run([PostTurn(Inject([AssistantMessage("***")])), PostTurn(KeyError("x"))], text("secret"))
    assert [turn.message.text for turn in turn_ends(events) if turn.message] == ["***"]
    assert turn_ends(events)[0].reason is TurnEndReason.ERROR
    assert agent.last_error is not None


async def test_a_policy_that_fails_before_a_retry_ends_the_run() -> None:
    model = scripted(fail("network"), text("not reached"))
    agent = Agent(MODEL, stream_fn=model, policies=[Reserving(None, KeyError("x"))], retry_strategy=AtOnce())
    result = await agent.prompt("go")
    assert isinstance(result.exception, PolicyFailed)
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    "way", [lambda agent: agent.structured_output("go", int), lambda agent: collect(agent.text_stream("go"))]
)
async def test_methods_that_return_a_value_or_text_raise_the_stop(way: Any) -> None:
    agent = Agent(MODEL, stream_fn=scripted("no"), policies=[PreTurn(Stop("over budget"))])
    with pytest.raises(PolicyStopped) as stopped:
        await way(agent)
    assert (stopped.value.policy, stopped.value.reason) == ("before", "over budget")


@pytest.mark.parametrize("verdict", [KeyError("x"), "nonsense", True])
async def test_a_policy_that_fails_before_a_dispatch_skips_the_call(verdict: Any) -> None:
    _, events = await run([PreDispatch(verdict)], [call("add", a=1, b=2), call("add", a=3, b=4)], text("ok"))
    assert [result.is_error for result in turn_ends(events)[0].tool_results] == [True, False]


async def test_a_skipped_call_is_not_run_and_the_model_is_told_why() -> None:
    policy = PreDispatch(Skip("not allowed"))
    _, events = await run([policy], [call("add", a=1, b=2), call("add", a=3, b=4)], text("ok"))
    first, second = turn_ends(events)[0].tool_results
    assert extract_text(first.content) == "tool call skipped: not allowed"
    assert extract_text(second.content) == "7"
    assert names(events).count("ToolExecutionStart") == 1


async def test_a_pre_dispatch_stop_gives_every_call_an_error_runs_nothing_and_ends_the_run() -> None:
    policy = PreDispatch(None, Stop("enough"))
    _, events = await run([policy], [call("add", a=1, b=2)] * 3, text("never"))
    (turn,) = turn_ends(events)
    assert [result.is_error for result in turn.tool_results] == [True, True, True]
    assert turn.reason == TurnEndReason.STOPPED
    assert "ToolExecutionStart" not in names(events)
    assert len(policy.seen) == 2


async def test_pre_dispatch_sees_the_whole_batch_before_anyone_is_asked_for_approval() -> None:
    order: list[str] = []

    class Noting:
        def pre_dispatch(self, ctx: PreDispatchContext) -> None:
            order.append(f"policy {ctx.name} {ctx.arguments}")

    def approve(request: Any) -> bool:
        order.append("approval")
        return True

    await run([Noting()], [call("add", a=1, b=2), call("nope")], text("ok"), approve=approve, approval_mode="enabled")
    assert order == ["policy add {'a': 1, 'b': 2}", "policy nope {}", "approval"]


async def test_a_policy_can_change_the_arguments_by_assigning_or_in_place() -> None:
    class Doubling:
        def pre_dispatch(self, ctx: PreDispatchContext) -> None:
            if ctx.arguments["a"] == 1:
                ctx.arguments = {"a": 10, "b": 20}
            else:
                ctx.arguments["a"] = 100

    agent, events = await run([Doubling()], [call("add", a=1, b=2), call("add", a=3, b=4)], text("ok"))
    assert [extract_text(result.content) for result in turn_ends(events)[0].tool_results] == ["30", "104"]
    assert [item.arguments for item in agent.messages[1].tool_calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]  # type: ignore[union-attr]


async def test_arguments_that_are_not_a_dict_skip_the_call() -> None:
    class Broken:
        def pre_dispatch(self, ctx: PreDispatchContext) -> None:
            ctx.arguments = None  # type: ignore[assignment]

    _, events = await run([Broken()], call("add", a=1, b=2), text("ok"))
    assert turn_ends(events)[0].tool_results[0].is_error


async def test_a_pre_dispatch_injection_leads_the_next_turn() -> None:
    _, events = await run([PreDispatch(Inject("careful"))], call("add", a=1, b=2), text("ok"))
    assert injected(events) == [("policy", "careful")]
    assert names(events).index("MessagesInjected") > names(events).index("TurnEnd")


async def test_a_post_turn_stop_ends_the_run_after_the_turn() -> None:
    _, events = await run([PostTurn(Stop("one is enough"))], call("add", a=1, b=2), text("never"))
    (turn,) = turn_ends(events)
    assert turn.reason == TurnEndReason.STOPPED
    assert not turn.tool_results[0].is_error


async def test_a_post_turn_injection_keeps_the_agent_going() -> None:
    _, events = await run([PostTurn(Inject("and?"))], text("one"), text("two"))
    assert injected(events) == [("policy", "and?")]
    assert len(turn_ends(events)) == 2


async def test_a_post_turn_policy_sees_the_turn() -> None:
    policy = PostTurn()
    await run([policy], call("add", a=1, b=2), text("3"))
    first, second = policy.seen
    assert first.message is not None
    assert first.message.tool_calls[0].name == "add"
    assert extract_text(first.tool_results[0].content) == "3"
    assert (first.turn_index, second.turn_index) == (0, 1)
    assert [len(ctx.messages) for ctx in policy.seen] == [3, 4]
    assert second.tool_results == ()


async def test_a_post_turn_policy_can_replace_what_the_assistant_said() -> None:
    policy = PostTurn(Inject([AssistantMessage("the number is ***")]))
    agent, events = await run([policy], text("the number is 42"), text("again"))
    assert [type(message).__name__ for message in agent.messages] == ["UserMessage", "AssistantMessage"]
    assert agent.messages[-1].text == "the number is ***"  # type: ignore[union-attr]
    assert turn_ends(events)[0].message.text == "the number is ***"  # type: ignore[union-attr]
    assert events[-1].messages == tuple(agent.messages)  # type: ignore[union-attr]


async def test_a_replacement_keeps_the_calls_and_reaches_the_next_request() -> None:
    class Redact:
        def post_turn(self, ctx: PolicyContext) -> Any:
            assert ctx.message is not None
            if not ctx.message.tool_calls:
                return None
            return Inject([AssistantMessage([Text("[redacted]"), *ctx.message.tool_calls])])

    model = scripted([text("secret"), call("add", a=1, b=2)], text("3"))
    agent = Agent(MODEL, stream_fn=model, tools=[add], policies=[Redact()])
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    sent = model.requests[1].messages[1]
    assert isinstance(sent, AssistantMessage)
    assert sent.text == "[redacted]"
    assert len(agent.messages) == 4


async def test_a_replacement_with_other_calls_is_not_taken() -> None:
    policy = PostTurn(Inject([AssistantMessage("no calls at all")]))
    agent, _ = await run([policy], [text("adding"), call("add", a=1, b=2)], text("3"))
    assert agent.messages[1].text == "adding"  # type: ignore[union-attr]


class MaskResults:
    """Replaces a word in each tool result."""

    def __init__(self, word: str, mask: str) -> None:
        self.word, self.mask = word, mask

    def post_turn(self, ctx: PolicyContext) -> Any:
        return Inject(
            [
                structs.replace(result, content=(Text(extract_text(result.content).replace(self.word, self.mask)),))
                for result in ctx.tool_results
            ]
        )


@tool
def lookup(name: str) -> str:
    """Looks a name up."""
    return f"{name}: alpha beta"


async def test_a_post_turn_policy_can_replace_results_before_the_model_sees_them() -> None:
    model = scripted([call("lookup", name="one"), call("lookup", name="two")], text("ok"))
    agent = Agent(
        MODEL, stream_fn=model, tools=[lookup], policies=[MaskResults("alpha", "A"), MaskResults("beta", "B")]
    )
    events = await collect(agent.prompt_stream("go"))
    check_events(events, replaces_results=True)
    sent = [extract_text(message.content) for message in model.requests[1].messages[2:]]  # type: ignore[union-attr]
    assert sent == ["one: A B", "two: A B"]
    assert [extract_text(result.content) for result in turn_ends(events)[0].tool_results] == sent
    assert [extract_text(message.content) for message in agent.messages[2:4]] == sent  # type: ignore[union-attr]
    assert events[-1].messages == tuple(agent.messages)  # type: ignore[union-attr]
    assert not [event for event in events if isinstance(event, MessagesInjected)]


async def test_a_replacement_stands_even_if_a_later_policy_stops_the_run() -> None:
    agent = Agent(
        MODEL,
        stream_fn=scripted(call("add", a=1, b=2), text("not reached")),
        tools=[add],
        policies=[MaskResults("3", "?"), PostTurn(Stop("enough"))],
    )
    events = await collect(agent.prompt_stream("go"))
    check_events(events, replaces_results=True)
    assert [extract_text(message.content) for message in agent.messages[2:]] == ["?"]  # type: ignore[union-attr]
    assert events[-1].stopped_by == PolicyStop("before", "enough")  # type: ignore[union-attr]


async def test_a_result_for_a_call_that_the_turn_did_not_make_is_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    policy = PostTurn(Inject([ToolResultMessage("another", "planted")]))
    with caplog.at_level(logging.ERROR, "swink_agent"):
        agent, _ = await run([policy], call("add", a=1, b=2), text("3"))
    assert "planted" not in repr(agent.messages)
    assert "replaces nothing of the turn" in caplog.text


class AtOnce(DefaultRetryStrategy):
    def delay(self, attempt: int, /) -> float:
        return 0.0


class Reserving(Before):
    """A pre-turn policy that sees every call."""

    on_every_request = True

    def pre_turn(self, ctx: PolicyContext) -> Any:
        return self._next(ctx)


async def test_a_policy_on_every_request_is_asked_before_each_repetition_of_a_request() -> None:
    policy, once = Reserving(), PreTurn()
    model = scripted(fail("network"), fail("network"), text("hello"))
    agent = Agent(MODEL, stream_fn=model, policies=[policy, once], sleep=no_sleep)
    result = await agent.prompt("go")
    assert result.text == "hello"
    assert len(policy.seen) == 3
    assert [ctx.message is None for ctx in policy.seen] == [True, False, False]
    assert len(once.seen) == 1
    assert {ctx.run_id for ctx in policy.seen} == {once.seen[0].run_id}
    assert once.seen[0].run_id != 0


async def test_its_stop_leaves_the_failure_that_was_to_be_repaired() -> None:
    model = scripted(fail("network"), text("not reached"))
    agent = Agent(MODEL, stream_fn=model, policies=[Reserving(None, Stop("too dear"))], sleep=no_sleep)
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert len(model.requests) == 1
    assert "MessageRetry" not in names(events)
    assert turn_ends(events)[0].reason == TurnEndReason.ERROR
    assert events[-1].stopped_by == PolicyStop("before", "too dear")  # type: ignore[union-attr]


async def test_a_fallback_is_asked_about_with_its_own_model() -> None:
    policy = Reserving()
    other = ModelSpec("test", "other")
    agent = Agent(
        MODEL,
        stream_fn=scripted(fail("throttled")),
        fallbacks=[(other, scripted(text("from the other")))],
        retry_strategy=DefaultRetryStrategy(max_attempts=1),
        stream_options=StreamOptions(max_tokens=77),
        policies=[policy],
        sleep=no_sleep,
    )
    assert (await agent.prompt("go")).text == "from the other"
    assert [ctx.model for ctx in policy.seen] == [MODEL, other]
    assert [ctx.max_tokens for ctx in policy.seen] == [77, 77]


async def test_the_size_of_a_request_counts_a_token_for_each_new_byte() -> None:
    policy = Reserving()
    model = scripted(call("add", a=1, b=2), text("3"), usage=Usage(input=900, output=100, total=1000))
    agent = Agent(MODEL, stream_fn=model, tools=[add], system_prompt="s" * 500, policies=[policy])
    await agent.prompt("ü" * 300)
    first, second = (ctx.request_tokens for ctx in policy.seen)
    assert first >= 500 + 600
    assert 1000 < second < 1200


class Note(CustomMessage, tag="note"):
    about: Any


def _nested() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("odd", "is_argument"),
    [
        (lambda: Path("x"), True),
        (object, True),
        (lambda: {"\ud800": "\udc00"}, True),
        (lambda: 2**70, True),
        (lambda: {1, 2}, True),
        (_nested, False),
    ],
    ids=["path", "object", "half characters", "number", "set", "nested"],
)
@pytest.mark.table
async def test_a_history_that_is_not_json_has_a_size_too(odd: Callable[[], Any], is_argument: bool) -> None:
    @tool
    def chart() -> AgentToolResult:
        """Draws."""
        return AgentToolResult((Extension("chart", {"data": odd()}),))

    call_of_old = ToolCall("1", "chart", {"data": odd() if is_argument else "x"})
    given = [Note(odd()), AssistantMessage([call_of_old]), ToolResultMessage("1", "ok")]
    model = scripted(call("chart"), fail("network"), text("done"))
    policy = Reserving()
    agent = Agent(
        MODEL, stream_fn=model, messages=given, tools=[chart], policies=[policy], sleep=no_sleep, system_prompt="\ud800"
    )
    result = await agent.prompt("go")
    assert (result.error, result.text) == (None, "done")
    assert len(policy.seen) == 3


@pytest.mark.parametrize("retried", [False, True])
async def test_an_error_before_policies_are_asked_names_them(retried: bool) -> None:
    class Broken:
        """A tool that breaks at a moment."""

        name, label, parameters_schema = "broken", "Broken", {"type": "object"}
        is_broken = False

        @property
        def description(self) -> str:
            if self.is_broken:
                raise KeyError("description")
            return "Breaks."

        async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
            raise AssertionError

        def breaks(self, *_: Any) -> Any:
            self.is_broken = True
            return True

    broken = Broken()

    class Retry(DefaultRetryStrategy):
        def should_retry(self, error: AgentError, attempt: int, /) -> bool:
            return broken.breaks()

    agent = Agent(
        MODEL,
        stream_fn=scripted(fail("network")),
        tools=[broken],
        policies=[Reserving()],
        sleep=no_sleep,
        retry_strategy=Retry(),
        transform_context=None if retried else lambda messages, overflow: broken.breaks() and None,
    )
    result = await agent.prompt("go")
    assert result.error == "pre_turn_policies failed: KeyError: 'description'"


async def test_post_turn_policies_see_a_failed_turn() -> None:
    policy = PostTurn(Stop("ignored: it is over anyway"))
    _, events = await run([policy], [text("par"), fail("invalid_request")])
    assert policy.seen[0].message is not None
    assert policy.seen[0].message.is_failed
    assert turn_ends(events)[0].reason == TurnEndReason.ERROR
    assert events[-1].stopped_by is None  # type: ignore[union-attr]


async def test_async_post_turn_policies_see_an_aborted_turn_too() -> None:
    seen: list[str] = []

    class Late:
        async def post_turn(self, ctx: PolicyContext) -> None:
            assert ctx.message is not None
            seen.append(ctx.message.stop_reason)

    agent = Agent(MODEL, stream_fn=scripted(text("hello", deltas=3)), policies=[Late()])
    agent.subscribe(lambda event: agent.abort() if type(event).__name__ == "MessageUpdate" else None)
    await agent.prompt("go")
    assert seen == ["aborted"]


async def test_an_injection_after_the_loop_starts_a_turn_and_a_stop_comes_first() -> None:
    agent = Agent(
        MODEL, stream_fn=scripted(text("one"), text("two")), policies=[PostLoop(Inject("go on"), Stop("now"))]
    )
    agent.follow_up("never polled")
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert injected(events) == [("policy", "go on")]
    assert len(turn_ends(events)) == 2
    assert agent.has_queued_messages
    assert events[-1].stopped_by == PolicyStop("before", "now")  # type: ignore[union-attr]


async def test_post_loop_policies_do_not_run_after_an_error() -> None:
    policy = PostLoop()
    await run([policy], fail("auth"))
    assert not policy.seen


async def test_a_policy_sees_a_snapshot_of_state_usage_and_history() -> None:
    @tool
    async def remember(ctx: ToolContext) -> str:
        ctx.state["seen"] = ["a"]
        return "ok"

    class Meddling:
        def __init__(self) -> None:
            self.states: list[Any] = []
            self.usages: list[Usage] = []

        def pre_turn(self, ctx: PolicyContext) -> None:
            self.states.append(dict(ctx.state))
            self.usages.append(ctx.usage)
            ctx.state.get("seen", []).append("meddled")
            assert not hasattr(ctx.messages, "append")

    policy = Meddling()
    model = scripted(call("remember"), text("ok"), usage=Usage(input=1))
    agent = Agent(MODEL, stream_fn=model, tools=[remember], policies=[policy])
    await agent.prompt("go")
    assert policy.states == [{}, {"seen": ["a", "meddled"]}]
    assert agent.state == {"seen": ["a"]}
    assert policy.usages == [Usage(), Usage(input=1)]


async def test_the_loop_takes_policies_slot_by_slot() -> None:
    config = AgentLoopConfig(
        model=MODEL,
        stream_fn=scripted(text("one"), text("two")),
        pre_turn_policies=[PreTurn()],
        post_turn_policies=[PostTurn()],
        post_loop_policies=[PostLoop(Stop("done"))],
    )
    result = await agent_loop("go", AgentContext(), config).result()
    assert result.stopped_by == PolicyStop("before", "done")


@pytest.mark.parametrize("slot", ["pre_turn", "pre_dispatch", "post_turn", "post_loop"])
async def test_a_policy_does_not_have_a_slot_that_it_sets_to_none(slot: str) -> None:
    seen: list[str] = []

    class Partial:
        def pre_turn(self, ctx: PolicyContext) -> None:
            seen.append("pre_turn")

        def pre_dispatch(self, ctx: PreDispatchContext) -> None:
            seen.append("pre_dispatch")

        def post_turn(self, ctx: PolicyContext) -> None:
            seen.append("post_turn")

        def post_loop(self, ctx: PolicyContext) -> None:
            seen.append("post_loop")

    setattr(Partial, slot, None)
    agent = Agent(MODEL, stream_fn=scripted(call("add", a=1, b=2), text("ok")), tools=[add], policies=[Partial()])
    agent.add_policy(Partial())
    assert (await agent.prompt("go")).text == "ok"
    others = {"pre_turn", "pre_dispatch", "post_turn", "post_loop"} - {slot}
    assert set(seen) == others


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda context: pickle.loads(pickle.dumps(context))])
async def test_the_context_of_a_run_can_be_kept_as_a_copy(copied: Any) -> None:
    copies: list[tuple[PolicyContext, PolicyContext]] = []

    class Keeps:
        on_every_request = True

        def keep(self, ctx: PolicyContext) -> None:
            copies.append((copied(ctx), ctx))

        pre_turn = post_turn = post_loop = keep

    secret = "sk-ant-" + "a1B2" * 10
    model = scripted(call("add", a=1, b=2), text("ok"))
    options = StreamOptions(api_key=secret)
    agent: Agent[Any] = Agent(
        MODEL, stream_fn=model, tools=[add], policies=[Keeps()], state={"n": [1]}, stream_options=options
    )
    await agent.prompt("go", deps=threading.Lock())
    assert [len(kept.calls) for kept, _ in copies] == [0, 1, 0, 0, 0]
    for kept, own in copies:
        for name in set(PolicyContext.__struct_fields__) - {"deps", "redactor_fn", "calls_fn"}:
            assert getattr(kept, name) == getattr(own, name)
        assert kept.calls == own.calls
        assert kept.redactor is None  # it knows the secrets
        assert secret.encode() not in pickle.dumps(own)
        assert kept.deps is None


def test_an_object_without_a_slot_is_not_a_policy() -> None:
    with pytest.raises(TypeError, match="is not a policy"):
        Agent(MODEL, stream_fn=scripted(), policies=[object()])
