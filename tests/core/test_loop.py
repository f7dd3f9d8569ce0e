"""The order of runs, turns and messages, and how a run ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from swink_agent import (
    Aborted,
    Agent,
    AgentContext,
    AgentEnd,
    AgentLoopConfig,
    AgentMessage,
    AssistantMessage,
    CancellationToken,
    Cost,
    CustomMessage,
    DefaultRetryStrategy,
    ErrorKind,
    InvalidContinue,
    MessageEnd,
    MessagesInjected,
    MessageUpdate,
    ModelSpec,
    NoMessages,
    PolicyContext,
    StopReason,
    StreamDone,
    StreamError,
    StreamFailed,
    StreamStart,
    Text,
    TextDelta,
    TextEnd,
    TextStart,
    ToolResultMessage,
    TurnEnd,
    TurnEndReason,
    Usage,
    UserMessage,
    agent_loop,
    agent_loop_continue,
    tool,
)
from swink_agent.testing import call, check_events, collect, fail, names, scripted, stall, text, think, truncated

MODEL = ModelSpec("test", "model")


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


class Notice(CustomMessage, tag="notice"):
    text: str


ONE_TEXT_TURN = ["AgentStart", "TurnStart", "MessageStart", "MessageUpdate", "MessageEnd", "TurnEnd", "AgentEnd"]
TOOL_TURN = [
    "TurnStart",
    "MessageStart",
    "MessageUpdate",
    "MessageEnd",
    "ToolExecutionStart",
    "ToolExecutionEnd",
    "TurnEnd",
]


async def test_a_run_with_one_text_reply() -> None:
    agent = Agent(MODEL, stream_fn=scripted(text("hello")))
    events = await collect(agent.prompt_stream("hi"))
    assert names(events) == ONE_TEXT_TURN
    check_events(events)
    assert events[-2].reason == TurnEndReason.COMPLETE  # type: ignore[union-attr]


async def test_a_tool_call_is_followed_by_another_turn() -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("add", a=2, b=3), text("5")), tools=[add])
    events = await collect(agent.prompt_stream("2+3?"))
    assert names(events) == ["AgentStart", *TOOL_TURN, *ONE_TEXT_TURN[1:]]
    check_events(events)
    assert [event.reason for event in events if isinstance(event, TurnEnd)] == ["tools_executed", "complete"]
    assert [event.turn_index for event in events if isinstance(event, TurnEnd)] == [0, 1]


async def test_every_delta_is_an_update_and_they_join_to_the_message() -> None:
    agent = Agent(MODEL, stream_fn=scripted([think("let me see", deltas=2), text("hello world", deltas=5)]))
    events = await collect(agent.prompt_stream("hi"))
    assert names(events).count("MessageUpdate") == 7
    (message,) = [event.message for event in events if isinstance(event, MessageEnd)]
    assert message.text == "hello world"


async def test_streaming_is_live() -> None:
    """A delta reaches the reader while the provider is still silent about the rest."""
    release = asyncio.Event()

    async def slow_model(*_: Any) -> Any:
        yield StreamStart()
        yield TextStart(0)
        yield TextDelta(0, "first")
        await release.wait()
        yield TextEnd(0)
        yield StreamDone()

    seen: list[str] = []
    async for event in Agent(MODEL, stream_fn=slow_model).prompt_stream("hi"):
        seen.append(type(event).__name__)
        if type(event).__name__ == "MessageUpdate":
            assert not release.is_set()
            release.set()
    assert seen == ONE_TEXT_TURN


async def test_the_loop_function_leaves_its_context_as_it_was() -> None:
    context = AgentContext("Be brief.", [UserMessage("earlier"), AssistantMessage("yes")], [add])
    config = AgentLoopConfig(model=MODEL, stream_fn=scripted(call("add", a=1, b=1), text("2")))
    stream = agent_loop([UserMessage("1+1?")], context, config)
    events = await collect(stream)
    check_events(events)
    assert len(context.messages) == 2
    result = await stream.result()
    assert [type(message).__name__ for message in result.messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolResultMessage",
        "AssistantMessage",
    ]
    assert events[-1] == AgentEnd(result.messages, result=result)


async def test_the_model_is_sent_the_system_prompt_the_history_and_the_tools() -> None:
    model = scripted(text("ok"))
    agent = Agent(MODEL, system_prompt="Be brief.", tools=[add], messages=["earlier"], stream_fn=model)
    await agent.prompt("now")
    (request,) = model.requests
    assert request.model == MODEL
    assert request.context.system_prompt == "Be brief."
    assert request.context.tools == (add,)
    assert [message.content[0].text for message in request.messages] == ["earlier", "now"]  # type: ignore[union-attr]


async def test_a_request_is_a_snapshot_that_later_turns_do_not_change() -> None:
    model = scripted(call("add", a=1, b=2), call("add", a=3, b=4), text("end"))
    await Agent(MODEL, stream_fn=model, tools=[add]).prompt("go")
    assert [len(request.messages) for request in model.requests] == [1, 3, 5]
    for shorter, longer in zip(model.requests, model.requests[1:], strict=False):
        assert list(longer.messages)[: len(shorter.messages)] == list(shorter.messages)


async def test_a_system_prompt_function_is_called_once_per_turn() -> None:
    turns = 0

    def prompt() -> str:
        nonlocal turns
        turns += 1
        return f"turn {turns}"

    model = scripted(call("add", a=1, b=2), text("end"))
    await Agent(MODEL, system_prompt=prompt, stream_fn=model, tools=[add]).prompt("go")
    assert [request.context.system_prompt for request in model.requests] == ["turn 1", "turn 2"]


async def test_a_function_for_the_system_prompt_is_a_text_wherever_a_model_is_asked() -> None:
    async def prompt() -> str:
        await asyncio.sleep(0)
        return "Be brief."

    primary, fallback = scripted(*[fail("throttled")] * 3), scripted(text("hi"))
    config = AgentLoopConfig(model=MODEL, stream_fn=primary, fallbacks=[(MODEL, fallback)], sleep=_no_wait)
    result = await agent_loop("go", AgentContext(prompt), config).result()  # type: ignore[arg-type]
    assert result.text == "hi"
    structured = scripted(call("final_answer", n=1))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    agent = Agent(MODEL, system_prompt=prompt, stream_fn=structured)  # type: ignore[arg-type]
    assert await agent.structured_output("go", schema) == {"n": 1}
    for model in (primary, fallback, structured):
        assert {request.context.system_prompt for request in model.requests} == {"Be brief."}


async def _no_wait(_: float) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (lambda: None, "gave nothing: it must be a string"),
        (lambda: ["a"], "gave a value of the type list"),
        (7, "gave a value of the type int"),
        (None, "gave nothing"),
    ],
)
async def test_a_system_prompt_that_is_not_text_ends_the_run_before_a_request(prompt: Any, words: str) -> None:
    model = scripted(text("never"))
    result = await agent_loop("go", AgentContext(prompt), AgentLoopConfig(model=MODEL, stream_fn=model)).result()
    assert isinstance(result.exception, StreamError)
    assert result.error is not None
    assert words in result.error
    assert model.requests == []


async def test_custom_messages_stay_in_the_history_and_out_of_the_request() -> None:
    model = scripted(text("ok"))
    agent = Agent(MODEL, stream_fn=model)
    result = await agent.prompt([Notice("note"), UserMessage("hi")])
    assert isinstance(agent.messages[0], Notice)
    assert isinstance(result.messages[0], Notice)
    assert [type(message) for message in model.requests[0].messages] == [UserMessage]


async def test_convert_to_llm_can_let_a_custom_message_through_and_sees_each_message_once() -> None:
    seen: list[AgentMessage] = []

    def convert(message: AgentMessage) -> Any:
        seen.append(message)
        return UserMessage(f"[{message.text}]") if isinstance(message, Notice) else message

    model = scripted(call("add", a=1, b=2), text("ok"))
    agent = Agent(MODEL, stream_fn=model, tools=[add], convert_to_llm=convert)
    await agent.prompt([Notice("note"), UserMessage("hi")])
    assert model.requests[0].messages[0].content[0].text == "[note]"  # type: ignore[union-attr]
    assert seen == list(agent.messages)[:-1]


async def _later(message: object) -> Any:
    return {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("convert", "returned"),
    [
        (lambda message: message, "a Notice"),
        (lambda message: "hi", "a str"),
        (lambda message: [UserMessage("hi")], "a list"),
        (lambda message: Text("hi"), "a Text"),
        (lambda message: UserMessage, "the class UserMessage"),
        (lambda message: False, "a bool"),
        (_later, "a dict"),
    ],
)
async def test_results_of_convert_to_llm_reach_a_model_only_as_messages(convert: Any, returned: str) -> None:
    model = scripted(text("never"))
    events = await collect(Agent(MODEL, stream_fn=model, convert_to_llm=convert).prompt_stream([Notice("note")]))
    check_events(events)
    assert names(events) == ["AgentStart", "TurnStart", "MessageStart", "MessageEnd", "TurnEnd", "AgentEnd"]
    error = events[-1].result.error  # type: ignore[union-attr]
    assert error.startswith("convert_to_llm failed: TypeError: it returned " + returned)  # type: ignore[union-attr]
    assert "return a UserMessage" in error  # type: ignore[operator]
    assert model.requests == []


async def test_strings_in_a_context_are_messages_of_the_user_as_in_an_agent() -> None:
    model = scripted(text("ok"), text("ok"))
    config = AgentLoopConfig(model=MODEL, stream_fn=model)
    await agent_loop("and now?", AgentContext("", ["one", Notice("two"), UserMessage("three")]), config).result()  # type: ignore[list-item]
    await agent_loop_continue(AgentContext("", "four"), config).result()  # type: ignore[arg-type]
    sent = [[message.content[0].text for message in request.messages] for request in model.requests]  # type: ignore[union-attr]
    assert sent == [["one", "three", "and now?"], ["four"]]


@pytest.mark.parametrize("wrong", [5, {"role": "user"}, Text("hi"), UserMessage])
def test_a_context_with_what_is_not_a_message_is_refused_before_anything_happens(wrong: Any) -> None:
    config = AgentLoopConfig(model=MODEL, stream_fn=scripted(text("never")))
    context = AgentContext("", [UserMessage("hi"), wrong])
    with pytest.raises(TypeError, match="is not a message"):
        agent_loop("go", context, config)
    with pytest.raises(TypeError, match="is not a message"):
        agent_loop_continue(context, config)


async def test_transforms_run_before_conversion_on_every_turn_async_one_first() -> None:
    order: list[str] = []

    async def fetch(messages: list[AgentMessage], overflow: bool) -> None:
        order.append("async")

    def prune(messages: list[AgentMessage], overflow: bool) -> None:
        order.append("sync")

    def convert(message: AgentMessage) -> Any:
        if order[-1] != "convert":
            order.append("convert")
        return message

    agent = Agent(
        MODEL,
        stream_fn=scripted(call("add", a=1, b=2), text("ok")),
        tools=[add],
        async_transform_context=fetch,
        transform_context=prune,
        convert_to_llm=convert,
    )
    await agent.prompt("hi")
    assert order == ["async", "sync", "convert"] * 2


async def test_a_transformed_context_is_sent_and_the_history_is_untouched() -> None:
    given: list[int] = []

    def keep_two(messages: list[AgentMessage], overflow: bool) -> list[AgentMessage]:
        given.append(len(messages))
        messages.reverse()  # a copy: this changes nothing
        messages.reverse()
        return messages[-2:]

    model = scripted(call("add", a=1, b=2), text("ok"), text("again"))
    agent = Agent(MODEL, stream_fn=model, tools=[add], messages=["one", "two", "three"], transform_context=keep_two)
    before = list(agent.messages)
    events = await collect(agent.prompt_stream("four"))
    check_events(events)
    assert list(agent.messages)[:3] == before
    assert given == [4, 4]
    compacted = [event.report for event in events if type(event).__name__ == "ContextCompacted"]
    assert [report.dropped_count for report in compacted] == [2, 2]  # type: ignore[union-attr]
    assert compacted[0].tokens_before > compacted[0].tokens_after > 0  # type: ignore[union-attr]
    await agent.prompt("five")
    assert given == [4, 4, 4], "a compaction is done once, also for the next prompt"


async def test_a_reply_of_the_model_that_failed_is_not_sent_back_at_the_end() -> None:
    model = scripted([text("par"), fail("invalid_request")], text("whole"))
    agent = Agent(MODEL, stream_fn=model)
    await agent.prompt("hi")
    await agent.continue_loop()
    assert [type(message).__name__ for message in model.requests[1].messages] == ["UserMessage"]
    assert [message.text for message in agent.messages if isinstance(message, AssistantMessage)] == ["par", "whole"]


async def test_an_aborted_reply_is_sent_when_the_person_goes_on_after_it() -> None:
    model = scripted([text("par"), fail("aborted")], text("whole"))
    agent = Agent(MODEL, stream_fn=model)
    await agent.prompt("hi")
    await agent.prompt("no, differently")
    assert [type(message).__name__ for message in model.requests[1].messages] == [
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
    ]


async def test_calls_and_results_without_partners_are_repaired_before_sending() -> None:
    model = scripted(text("ok"))
    history: list[AgentMessage] = [
        ToolResultMessage("nobody", "orphan"),
        AssistantMessage([call_block("lost"), call_block("kept")]),
        ToolResultMessage("kept", "fine"),
        AssistantMessage([]),
    ]
    agent = Agent(MODEL, stream_fn=model, messages=history)
    await agent.prompt("go on")
    sent = list(model.requests[0].messages)
    assert [type(message).__name__ for message in sent] == [
        "AssistantMessage",
        "ToolResultMessage",
        "ToolResultMessage",
        "UserMessage",
    ]
    assert [message.is_error for message in sent[1:3]] == [True, False]  # type: ignore[union-attr]
    assert list(agent.messages)[:4] == history


def call_block(call_id: str) -> Any:
    from swink_agent import ToolCall

    return ToolCall(call_id, "add", {"a": 1, "b": 2})


async def test_usage_and_cost_are_summed_over_the_turns() -> None:
    model = scripted(call("add", a=1, b=2), text("ok"), usage=Usage(input=10, output=5, total=15, extra={"r": 1}))
    result = await Agent(MODEL, stream_fn=model, tools=[add]).prompt("hi")
    assert result.usage == Usage(input=20, output=10, total=30, extra={"r": 2})


# -- follow-ups ----------------------------------------------------------------------------------------------


async def test_a_follow_up_keeps_the_agent_going() -> None:
    agent = Agent(MODEL, stream_fn=scripted(text("one"), text("two")))
    agent.follow_up("more")
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert names(events) == [
        *ONE_TEXT_TURN[:-1],
        "TurnStart",
        "MessagesInjected",
        *ONE_TEXT_TURN[2:],
    ]
    (injected,) = [event for event in events if isinstance(event, MessagesInjected)]
    assert injected.source == "follow_up"
    assert injected.messages[0].content[0].text == "more"  # type: ignore[union-attr]


async def test_follow_ups_come_one_at_a_time_or_all_at_once() -> None:
    async def turns(mode: Any) -> int:
        agent = Agent(MODEL, stream_fn=scripted(*[text("ok")] * 3), follow_up_mode=mode)
        agent.follow_up("a")
        agent.follow_up("b")
        return names(await collect(agent.prompt_stream("go"))).count("TurnStart")

    assert await turns("one_at_a_time") == 3
    assert await turns("all") == 2


@pytest.mark.parametrize("ending", [fail("invalid_request"), fail("aborted")])
async def test_after_an_error_or_an_abort_nothing_is_polled(ending: Any) -> None:
    agent = Agent(MODEL, stream_fn=scripted([text("par"), ending], text("never")))
    agent.follow_up("later")
    agent.steer("now")
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert names(events).count("TurnStart") == 1
    assert agent.has_queued_messages


# -- errors and aborts ---------------------------------------------------------------------------------------


async def test_an_error_keeps_text_and_thinking_but_no_calls() -> None:
    model = scripted([think("hm"), text("so far"), call("add", a=1, b=2), fail("invalid_request", "bad request")])
    agent = Agent(MODEL, stream_fn=model, tools=[add])
    result = await agent.prompt("go")
    (message,) = [message for message in result.messages if isinstance(message, AssistantMessage)]
    assert [type(block).__name__ for block in message.content] == ["Thinking", "Text"]
    assert (message.stop_reason, message.error_kind, message.error_message) == (
        StopReason.ERROR,
        "invalid_request",
        "bad request",
    )
    assert result.stop_reason == StopReason.ERROR
    assert result.error == agent.last_error == "bad request"
    with pytest.raises(StreamError, match="bad request"):
        result.raise_for_error()


async def test_a_stream_function_that_raises_becomes_an_error_message() -> None:
    async def broken(*_: Any) -> Any:
        yield StreamStart()
        yield TextStart(0)
        yield TextDelta(0, "half")
        raise OSError("disk on fire")

    events = await collect(Agent(MODEL, stream_fn=broken).prompt_stream("hi"))
    check_events(events)
    message = events[-3].message  # type: ignore[union-attr]
    assert message.text == "half"  # type: ignore[union-attr]
    assert "OSError: disk on fire" in message.error_message  # type: ignore[union-attr, operator]


async def test_a_stream_function_that_raises_before_it_yields_becomes_an_error_message() -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("no model")

    result = await Agent(MODEL, stream_fn=broken).prompt("hi")
    assert result.stop_reason == StopReason.ERROR
    assert isinstance(result.exception, StreamError)


async def test_a_broken_event_sequence_is_an_error_that_is_not_retried() -> None:
    calls = 0

    async def broken(*_: Any) -> Any:
        nonlocal calls
        calls += 1
        yield StreamStart()
        yield StreamDone()
        yield StreamDone()

    class Always:
        def should_retry(self, error: Exception, attempt: int) -> bool:
            return True

        def delay(self, attempt: int) -> float:
            return 0

    result = await Agent(MODEL, stream_fn=broken, retry_strategy=Always()).prompt("hi")
    assert calls == 1
    assert isinstance(result.exception, StreamError)
    assert "broken event sequence" in str(result.error)


@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm", "get_api_key", "system_prompt"])
async def test_a_hook_that_raises_ends_the_run_with_an_error_message(hook: str) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("hook trouble")

    options: dict[str, Any] = {hook: broken}
    events = await collect(Agent(MODEL, stream_fn=scripted(text("never")), **options).prompt_stream("hi"))
    check_events(events)
    assert names(events) == ["AgentStart", "TurnStart", "MessageStart", "MessageEnd", "TurnEnd", "AgentEnd"]
    assert hook in events[3].message.error_message  # type: ignore[union-attr, operator]


async def test_an_abort_keeps_what_was_streamed() -> None:
    agent = Agent(MODEL, stream_fn=scripted([think("hm"), text("so far"), stall()]))
    agent.subscribe(lambda event: agent.abort() if "so far" in repr(event) else None)
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    message = events[-3].message  # type: ignore[union-attr]
    assert message.text == "so far"  # type: ignore[union-attr]
    assert message.stop_reason == StopReason.ABORTED  # type: ignore[union-attr]
    assert agent.last_error == str(Aborted())


async def test_a_cancelled_token_given_to_the_loop_ends_it_before_the_first_turn() -> None:
    token = CancellationToken()
    token.cancel()
    config = AgentLoopConfig(model=MODEL, stream_fn=scripted(text("never")))
    stream = agent_loop("hi", AgentContext(), config, token)
    assert names(await collect(stream)) == ["AgentStart", "AgentEnd"]
    result = await stream.result()
    assert result.stop_reason == StopReason.ABORTED
    assert isinstance(result.exception, Aborted)


async def test_cancelling_the_task_aborts_the_run_and_lets_the_cancellation_through() -> None:
    agent = Agent(MODEL, stream_fn=scripted([text("so far"), stall()]))
    begun = asyncio.Event()
    agent.subscribe(lambda event: begun.set() if isinstance(event, MessageUpdate) else None)
    task = asyncio.ensure_future(agent.prompt("go"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not agent.is_running
    assert agent.messages[-1].stop_reason == StopReason.ABORTED  # type: ignore[union-attr]


async def test_a_timeout_around_a_run_is_a_timeout() -> None:
    agent = Agent(MODEL, stream_fn=scripted([text("so far"), stall()]))
    loop, limit = asyncio.get_running_loop(), asyncio.timeout(None)
    # The time is over when the reply has begun, however long that took.
    agent.subscribe(lambda event: limit.reschedule(loop.time()) if isinstance(event, MessageUpdate) else None)
    with pytest.raises(TimeoutError):
        async with limit:
            await agent.prompt("go")
    assert agent.messages[-1].text == "so far"  # type: ignore[union-attr]


# -- length --------------------------------------------------------------------------------------------------


async def test_a_call_cut_by_the_length_limit_fails_and_complete_ones_run() -> None:
    model = scripted(truncated(call("add", a=1, b=2), call("add", a=3, b=4)), text("ok"))
    events = await collect(Agent(MODEL, stream_fn=model, tools=[add]).prompt_stream("go"))
    check_events(events)
    first = next(event for event in events if isinstance(event, TurnEnd))
    assert first.message is not None
    assert first.message.stop_reason == StopReason.LENGTH
    assert [call.is_incomplete for call in first.message.tool_calls] == [False, True]
    assert first.message.tool_calls[1].arguments == {}
    assert [result.is_error for result in first.tool_results] == [False, True]
    assert first.reason == TurnEndReason.TOOLS_EXECUTED
    assert names(events).count("ToolExecutionStart") == 1


async def test_a_text_cut_off_by_the_length_limit_ends_the_run() -> None:
    result = await Agent(MODEL, stream_fn=scripted(truncated("a long story"))).prompt("go")
    assert result.stop_reason == StopReason.LENGTH
    assert result.error is None


# -- continuing ----------------------------------------------------------------------------------------------


def test_there_is_nothing_to_continue_in_an_empty_context() -> None:
    with pytest.raises(NoMessages):
        agent_loop_continue(AgentContext(), AgentLoopConfig(model=MODEL, stream_fn=scripted()))


def test_the_assistants_last_word_cannot_be_continued() -> None:
    context = AgentContext("", [UserMessage("hi"), AssistantMessage("bye")])
    with pytest.raises(InvalidContinue):
        agent_loop_continue(context, AgentLoopConfig(model=MODEL, stream_fn=scripted()))


async def test_a_context_that_ends_with_a_user_message_is_continued_without_adding_one() -> None:
    context = AgentContext("", [UserMessage("hi")])
    stream = agent_loop_continue(context, AgentLoopConfig(model=MODEL, stream_fn=scripted(text("hello"))))
    events = await collect(stream)
    assert names(events) == ONE_TEXT_TURN
    assert [type(message).__name__ for message in (await stream.result()).messages] == ["AssistantMessage"]


ODD_BILLS = {
    "cost without tokens": (Usage(), Cost(total=0.25)),
    "parts of a cost without a total": (Usage(), Cost(input=0.25)),
    "cached tokens alone": (Usage(cache_read=500), Cost()),
    "tokens written to the cache alone": (Usage(cache_write=500), Cost()),
    "counts of the provider's own": (Usage(extra={"searches": 2}), Cost(extra={"searches": 0.02})),
}


@pytest.mark.parametrize("what", ODD_BILLS)
async def test_usage_of_every_reply_counts(what: str) -> None:
    usage, cost = ODD_BILLS[what]
    seen: list[tuple[Usage, Cost]] = []

    class Look:
        def post_turn(self, ctx: PolicyContext) -> None:
            seen.append((ctx.usage, ctx.cost))

    script = scripted(call("add", a=2, b=3), "5", usage=usage, cost=cost)
    result = await Agent(MODEL, stream_fn=script, tools=[add], policies=[Look()]).prompt("go")
    assert (result.usage, result.cost) == (usage + usage, cost + cost)
    assert seen == [(usage, cost), (usage + usage, cost + cost)]


@pytest.mark.parametrize("what", ["cost without tokens", "cached tokens alone"])
async def test_usage_of_a_failed_attempt_counts_too(what: str) -> None:
    usage, cost = ODD_BILLS[what]

    async def stream(*_: object) -> Any:
        yield StreamFailed("later", ErrorKind.NETWORK, usage=usage, cost=cost)

    agent = Agent(MODEL, stream_fn=stream, retry_strategy=DefaultRetryStrategy(2, base_delay=0))
    result = await agent.prompt("go")
    assert (result.usage, result.cost) == (usage + usage, cost + cost)
