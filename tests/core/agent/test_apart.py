"""Runs apart: `messages=` begins a run from other messages, beside all other runs of the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from swink_agent import (
    Aborted,
    Agent,
    AgentContext,
    AgentEnd,
    AgentEvent,
    AgentLoopConfig,
    AgentResult,
    AssistantMessage,
    CancellationToken,
    Defer,
    InvalidContinue,
    ModelRequest,
    ModelSpec,
    NoMessages,
    StopReason,
    ToolContext,
    UserMessage,
    agent_loop,
    decode_event,
    encode_event,
    tool,
)
from swink_agent.testing import call, collect, names, scripted, stall

MODEL = ModelSpec("test", "model")
PAST = ["My dog is called Rex.", AssistantMessage("A fine name.")]


def words(messages: Any) -> list[str]:
    return [message.text if isinstance(message, AssistantMessage) else message.content[0].text for message in messages]


@tool
def count(ctx: ToolContext) -> str:
    """Counts its calls."""
    ctx.state["count"] = ctx.state.get("count", 0) + 1
    return str(ctx.state["count"])


# -- the history of a result ---------------------------------------------------------------------------------


async def test_the_history_of_a_result_is_what_was_before_and_what_was_added() -> None:
    agent = Agent(MODEL, stream_fn=scripted("Rex.", {"answer": 3}, "Bye."), messages=PAST)
    result = await agent.prompt("How is it called?")
    assert words(result.history) == ["My dog is called Rex.", "A fine name.", "How is it called?", "Rex."]
    assert result.history == tuple(agent.messages)
    stream = agent_loop("hi", AgentContext(messages=PAST), AgentLoopConfig(model=MODEL, stream_fn=scripted("hello")))
    assert words((await stream.result()).history) == ["My dog is called Rex.", "A fine name.", "hi", "hello"]


async def test_the_history_is_not_in_events_and_repr() -> None:
    agent = Agent(MODEL, stream_fn=scripted("Rex."), messages=PAST)
    events = await collect(agent.prompt_stream("How is it called?"))
    end = events[-1]
    assert isinstance(end, AgentEnd)
    assert end.result is not None
    assert end.result.history == ()
    assert b"fine name" not in encode_event(end)
    assert decode_event(encode_event(end)) == end
    assert "fine name" not in repr(agent.last_result)


# -- what a run apart begins from, and what it leaves alone ----------------------------------------------------


async def test_a_run_apart_begins_from_its_messages_and_leaves_the_agent_as_it_is() -> None:
    model = scripted("Rex.", "Yes.")
    agent = Agent(MODEL, stream_fn=model, messages=["own"], state={"a": 1})
    seen: list[AgentEvent] = []
    agent.subscribe(seen.append)
    agent.follow_up("queued")
    result = await agent.prompt("How is it called?", messages=PAST)
    assert words(result.history) == ["My dog is called Rex.", "A fine name.", "How is it called?", "Rex."]
    assert words(model.requests[0].messages) == ["My dog is called Rex.", "A fine name.", "How is it called?"]
    assert words(agent.messages) == ["own"]
    assert (seen, agent.last_result, agent.last_error, agent.is_running) == ([], None, None, False)
    assert agent.total_usage == type(agent.total_usage)()
    assert agent.has_queued_messages
    again = await agent.prompt("Sure?", messages=result.history)
    assert words(again.history)[-2:] == ["Sure?", "Yes."]
    assert again.history[: len(result.history)] == result.history


async def test_runs_apart_go_on_beside_each_other_and_beside_the_own_run() -> None:
    agent = Agent(MODEL, stream_fn=scripted(lambda request: words(request.messages)[-1].upper()))
    results = await asyncio.gather(
        agent.prompt("own"), *[agent.prompt(name, messages=()) for name in ("first", "second", "third")]
    )
    assert [result.text for result in results] == ["OWN", "FIRST", "SECOND", "THIRD"]
    assert words(agent.messages) == ["own", "OWN"]


async def test_the_state_of_a_run_apart_is_a_copy_of_the_first_or_the_given_one() -> None:
    model = scripted(*[part for _ in range(3) for part in (call("count"), "ok")])
    agent = Agent(MODEL, stream_fn=model, tools=[count], state={"count": 10})
    agent.state["count"] = 50
    given = {"count": 20}
    first = await agent.prompt("go", messages=())
    second = await agent.prompt("go", messages=(), state=given)
    assert [message.content[0].text for result in (first, second) for message in result.messages[2:3]] == ["11", "21"]  # type: ignore[union-attr]
    assert (given, agent.state) == ({"count": 21}, {"count": 50})


WAYS: dict[str, Callable[[Agent, Any], Any]] = {
    "prompt": lambda agent, past: agent.prompt("go", messages=past),
    "prompt_stream": lambda agent, past: agent.prompt_stream("go", messages=past).result(),
    "text_stream": lambda agent, past: agent.text_stream("go", messages=past).result(),
    "continue_loop": lambda agent, past: agent.continue_loop(messages=[*past, "go"]),
    "continue_loop_stream": lambda agent, past: agent.continue_loop_stream(messages=[*past, "go"]).result(),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_every_way_to_run_can_be_apart(way: Callable[[Agent, Any], Any]) -> None:
    agent = Agent(MODEL, stream_fn=scripted("Rex."))
    result: AgentResult = await way(agent, PAST)
    assert words(result.history) == ["My dog is called Rex.", "A fine name.", "go", "Rex."]
    assert list(agent.messages) == []


def test_a_run_apart_from_code_that_is_not_async_leaves_the_agent_as_it_is() -> None:
    agent = Agent(MODEL, stream_fn=scripted("Rex."))
    assert words(agent.prompt_sync("go", messages=PAST).history)[-1] == "Rex."
    assert list(agent.messages) == []


async def test_a_structured_run_can_be_apart() -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("final_answer", value=3)))
    found = await agent.structured_run("how many?", int, messages=PAST)
    assert found.value == 3
    assert words(found.result.history[:2]) == ["My dog is called Rex.", "A fine name."]
    assert list(agent.messages) == []


async def test_calls_that_wait_are_answered_from_the_given_history_alone() -> None:
    @tool(requires_approval=True)
    def delete() -> str:
        """Deletes."""
        return "deleted"

    agent = Agent(MODEL, stream_fn=scripted(call("delete"), "done"), tools=[delete], approve=lambda _: Defer())
    waiting = await agent.prompt("go", messages=())
    assert agent.pending == ()
    result = await agent.resume({waiting.pending[0].call_id: True}, messages=waiting.history)
    assert result.text == "done"
    assert result.history == (*waiting.history[:-1], *result.messages)
    assert list(agent.messages) == []


# -- the ends of runs apart --------------------------------------------------------------------------------


async def test_abort_and_steering_of_the_agent_do_not_reach_a_run_apart() -> None:
    agent = Agent(MODEL, stream_fn=scripted("Rex.", "own"))
    stream = agent.prompt_stream("go", messages=())
    await anext(stream)
    agent.abort()
    agent.steer("stop that")
    result = await stream.result()
    assert (result.stop_reason, words(result.history)) == (StopReason.STOP, ["go", "Rex."])


@pytest.mark.parametrize("given", [{"messages": ()}, {}], ids=["apart", "own"])
async def test_a_token_of_the_caller_ends_a_run_as_an_abort_does(given: dict[str, Any]) -> None:
    agent, cancel = Agent(MODEL, stream_fn=scripted(stall(), stall())), CancellationToken()
    run = asyncio.create_task(agent.prompt("go", cancel=cancel, **given))
    await asyncio.sleep(0)
    cancel.cancel()
    assert (await run).stop_reason == StopReason.ABORTED
    with pytest.raises(Aborted):
        await agent.structured_output("go", int, cancel=cancel, **given)


async def test_leaving_its_stream_ends_a_run_apart() -> None:
    agent = Agent(MODEL, stream_fn=scripted(stall()))
    async with agent.prompt_stream("go", messages=()) as stream:
        await anext(stream)
    assert (await stream.result()).stop_reason == StopReason.ABORTED


# -- wrong arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"messages": "hello"}, "messages must be a list of messages and strings"),
        ({"messages": UserMessage("hello")}, "messages must be a list of messages and strings"),
        ({"messages": [3]}, "is not a message"),
        ({"state": {}}, "only together with messages"),
        ({"messages": (), "state": 3}, "state must be a mapping"),
        ({"cancel": True}, "cancel must be a CancellationToken"),
    ],
    ids=str,
)
async def test_arguments_that_no_run_can_begin_from_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        await Agent(MODEL, stream_fn=scripted("never")).prompt("go", **given)


async def test_a_run_apart_with_nothing_to_answer_is_refused() -> None:
    agent = Agent(MODEL, stream_fn=scripted("never"), messages=["own"])
    agent.follow_up("queued")
    with pytest.raises(NoMessages):
        await agent.continue_loop(messages=())
    with pytest.raises(InvalidContinue):
        await agent.continue_loop(messages=PAST)


# -- observers -----------------------------------------------------------------------------------------------


class Watcher:
    """Notes what it sees of each run."""

    def __init__(self, seen: list[str] | None = None) -> None:
        self.seen: list[str] = [] if seen is None else seen

    def on_event(self, event: AgentEvent) -> None:
        self.seen.extend(names([event]))

    def on_request(self, request: ModelRequest) -> None:
        self.seen.append("request")

    @contextmanager
    def around_tool(self, context: ToolContext) -> Iterator[None]:
        self.seen.append("tool")
        yield


class WatcherOfRuns(Watcher):
    """Has an observer for each run."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[tuple[str, str | None, list[str]]] = []

    def for_run(self, run_id: str, parent: str | None) -> Watcher:
        watcher = Watcher()
        self.runs.append((run_id, parent, watcher.seen))
        return watcher


async def test_observers_see_runs_apart() -> None:
    agent, watcher = Agent(MODEL, stream_fn=scripted("Rex.")), Watcher()
    agent.observe(watcher)
    await agent.prompt("go", messages=())
    assert [name for name in watcher.seen if name != "MessageUpdate"] == [
        "AgentStart",
        "TurnStart",
        "MessageStart",
        "request",
        "MessageEnd",
        "TurnEnd",
        "AgentEnd",
    ]


async def test_an_observer_may_have_one_for_each_run_and_each_delegate() -> None:
    helper = Agent(MODEL, stream_fn=scripted("helped"))
    model = scripted("own", call("help", prompt="please"), "apart")
    agent = Agent(MODEL, stream_fn=model, tools=[helper.as_tool("help", "Helps.")])
    watcher = WatcherOfRuns()
    agent.observe(watcher)
    await agent.prompt("go")
    await agent.prompt("go", messages=())
    (own, apart, delegate) = watcher.runs
    assert [own[1], apart[1], delegate[1]] == [None, None, apart[0]]
    assert [run[2].count("AgentStart") for run in watcher.runs] == [1, 1, 1]
    assert [run[2].count("request") for run in watcher.runs] == [1, 2, 1]
    assert (apart[2].count("tool"), apart[2].count("DelegateEvent") > 0) == (1, True)
    assert watcher.seen == []


async def test_an_observer_that_fails_for_a_run_does_not_change_it(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Watcher):
        def for_run(self, run_id: str, parent: str | None) -> Watcher:
            raise OSError("no room")

    agent = Agent(MODEL, stream_fn=scripted("Rex."))
    agent.observe(Failing())
    assert (await agent.prompt("go", messages=())).text == "Rex."
    assert "an observer failed at the start of a run" in caplog.text
