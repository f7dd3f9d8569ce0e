"""An event loop whose tasks begin at once, before their creator continues: the events are the same."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AgentEvent,
    AgentLoopConfig,
    AgentToolResult,
    Approve,
    AssistantMessage,
    CancellationToken,
    Inject,
    ModelSpec,
    PolicyContext,
    Skip,
    Stop,
    StreamDone,
    StreamOptions,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    ToolContext,
    ToolError,
    ToolResultMessage,
    TurnEnd,
    agent_loop,
    tool,
)
from swink_agent.evals import EvalCase, EvalRunner, EvalSet
from swink_agent.testing import call, check_events, collect, fail, names, scripted, stall, text

MODEL = ModelSpec("test", "model")
ADD = call("add", a=2, b=3)

needs_eager_tasks = pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio has eager tasks from 3.12 on")


@tool
async def add(a: int, b: int) -> int:
    """Adds, and never waits."""
    return a + b


@tool
async def nap() -> str:
    """Waits for a turn of the event loop."""
    await asyncio.sleep(0)
    return "rested"


@tool
async def fall() -> str:
    """Raises, and never waits."""
    raise ToolError("it fell")


@tool
async def tell(ctx: ToolContext) -> str:
    """Reports, and never waits."""
    ctx.update("halfway")
    return "told"


@tool
async def give_up() -> str:
    """Cancels the task that it is in."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return "not to be seen"


@tool(requires_approval=True)
async def careful() -> str:
    """Asks first."""
    return "done with care"


class Watcher:
    """Policies of every slot, which never wait."""

    async def pre_turn(self, ctx: PolicyContext) -> None:
        assert ctx.turn_index >= 0

    async def pre_dispatch(self, ctx: Any) -> Skip | None:
        return Skip("not this one") if ctx.arguments.get("a") == 13 else None

    async def post_turn(self, ctx: PolicyContext) -> Stop | None:
        return Stop("enough") if ctx.turn_index == 3 else None

    async def post_loop(self, ctx: PolicyContext) -> Inject | None:
        return Inject("once more") if ctx.turn_index == 1 else None


class Provider:
    """Messages of an application, given by coroutines that never wait."""

    def __init__(self) -> None:
        self.steering = [["look here"]]
        self.follow_ups = [["and then"]]

    async def poll_steering(self) -> list[Any]:
        return self.steering.pop() if self.steering else []

    async def poll_follow_up(self) -> list[Any]:
        return self.follow_ups.pop() if self.follow_ups else []


async def plain_stream(
    model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken
) -> AsyncIterator[Any]:
    """A coroutine that returns its iterator."""

    async def events() -> AsyncIterator[Any]:
        for event in (StreamStart(), TextStart(0), TextDelta(0, "hello"), TextEnd(0), StreamDone()):
            yield event

    return events()


async def yes(_: object) -> Approve:
    return Approve()


async def broken(_: object) -> Approve:
    raise RuntimeError("nobody is at home")


async def shorter(messages: list[Any], overflow: bool) -> list[Any]:
    return messages[-1:]


Told = list[tuple[str, object]]
"""What a run said: the names of its events, and what the model was told of its calls."""


def _told(events: list[AgentEvent], messages: Any) -> Told:
    check_events(events)
    told: Told = [(name, None) for name in names(events)]
    for message in messages:
        if isinstance(message, ToolResultMessage):
            told.append((message.tool_name, (message.outcome, message.content)))
        elif isinstance(message, AssistantMessage):
            told.append(("reply", (message.text, message.stop_reason, message.error_message)))
    return told


async def _prompted(agent: Agent) -> Told:
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    await agent.prompt("go")
    return _told(events, agent.messages)


async def _streamed(agent: Agent) -> Told:
    stream = agent.prompt_stream("go")
    events: list[AgentEvent] = []
    agent.subscribe(events.append)  # before the run does anything, so it hears all of it
    read = await collect(stream)
    assert names(read) == names(events)
    return _told(read, agent.messages)


async def _in_a_task(agent: Agent) -> Told:
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    task = asyncio.create_task(agent.prompt("go"))
    other = asyncio.create_task(asyncio.sleep(0))
    await task
    await other
    return _told(events, agent.messages)


def _agent(*replies: Any, suspend: bool = False, **options: Any) -> Agent:
    script = scripted(*replies, suspend=suspend)
    return Agent(MODEL, **{"stream_fn": script, "tools": [add, nap, fall, tell, give_up, careful], **options})


RUNS: dict[str, Callable[[], Agent]] = {
    "a reply": lambda: _agent("hello"),
    "a reply from afar": lambda: _agent("hello", suspend=True),
    "a stream function that is a coroutine": lambda: _agent(stream_fn=plain_stream),
    "a tool that never waits": lambda: _agent(ADD, "5"),
    "two of them": lambda: _agent(ADD + call("tell"), "5"),
    "one that waits, one that does not, one that fails": lambda: _agent(call("nap") + ADD + call("fall"), "5"),
    "a tool that fails": lambda: _agent(call("fall"), "oh"),
    "a tool with news": lambda: _agent(call("tell"), "so"),
    "a tool that cancels itself": lambda: _agent(call("give_up"), "oh"),
    "a tool that cancels itself, beside another": lambda: _agent(call("give_up") + ADD, "oh"),
    "one tool after another": lambda: _agent(ADD + call("fall") + call("nap"), "5", tool_execution="sequential"),
    "an approval": lambda: _agent(call("careful"), "done", approve=yes),
    "an approval that fails": lambda: _agent(call("careful"), "oh", approve=broken),
    "policies": lambda: _agent(ADD, "5", call("add", a=13, b=1), "no", policies=[Watcher()]),
    "a transform": lambda: _agent("a", messages=["one", "two"], async_transform_context=shorter),
    "a message provider": lambda: _agent(ADD, "5", "seen", "then", message_provider=Provider()),
    "a failure": lambda: _agent(fail("auth")),
    "a broken stream": lambda: _agent(lambda _: 1 / 0),
}
WAYS = {"prompt": _prompted, "stream": _streamed, "task": _in_a_task}


def _run(work: Callable[[], Coroutine[Any, Any, Any]], factory: Any = None) -> Any:
    async def main() -> Any:
        asyncio.get_running_loop().set_task_factory(factory)
        return await work()

    return asyncio.run(main())


def _eager() -> Any:
    return getattr(asyncio, "eager_task_factory")  # noqa: B009 - not before 3.12


@needs_eager_tasks
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", RUNS)
@pytest.mark.table
def test_a_run_says_the_same(what: str, way: str) -> None:
    tell_all, make = WAYS[way], RUNS[what]
    assert _run(lambda: tell_all(make()), _eager()) == _run(lambda: tell_all(make()))


@needs_eager_tasks
def test_a_factory_of_eager_tasks_of_the_applications_own_class() -> None:
    class Task(asyncio.Task[Any]):
        pass

    factory: Any = getattr(asyncio, "create_eager_task_factory")(Task)  # noqa: B009
    kinds: set[type] = set()

    @tool
    async def look() -> str:
        kinds.add(type(asyncio.current_task()))
        return "looked"

    async def work() -> list[Any]:
        agent = Agent(MODEL, stream_fn=scripted(call("look"), "so"), tools=[look])
        await agent.prompt("go")
        return [message.outcome for message in agent.messages if isinstance(message, ToolResultMessage)]

    assert _run(work, factory) == ["ran"]
    assert kinds == {Task}


@needs_eager_tasks
@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_abort_ends_a_run_that_waits(is_streamed: bool) -> None:
    async def work() -> str:
        agent = Agent(MODEL, stream_fn=scripted(text("so") + stall()))
        asyncio.get_running_loop().call_later(0.01, agent.abort)
        result = await agent.prompt_stream("go").result() if is_streamed else await agent.prompt("go")
        assert not agent.is_running
        return result.stop_reason

    assert _run(work, _eager()) == "aborted"


def _plain(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(work, loop=loop, **options)


@pytest.mark.parametrize("factory", [None, _plain, pytest.param("eager", marks=needs_eager_tasks)])
def test_messages_of_another_task_after_the_reply_are_answered_in_the_same_run(factory: Any) -> None:
    async def work() -> list[str]:
        agent = Agent(MODEL, stream_fn=scripted("first", "second"))
        replied = asyncio.Event()
        agent.subscribe(lambda event: replied.set() if isinstance(event, TurnEnd) else None)
        task = asyncio.ensure_future(agent.prompt("go"))
        await replied.wait()
        agent.follow_up("and?")
        return [message.text for message in (await task).messages if isinstance(message, AssistantMessage)]

    assert _run(work, _eager() if factory == "eager" else factory) == ["first", "second"]


@needs_eager_tasks
def test_a_run_that_is_aborted_before_it_begins() -> None:
    async def work() -> Told:
        agent = Agent(MODEL, stream_fn=scripted(ADD, "5"), tools=[add])
        stream = agent.prompt_stream("go")
        agent.abort()
        return _told(await collect(stream), agent.messages)

    assert _run(work, _eager()) == _run(work)


@needs_eager_tasks
def test_a_loop_without_an_agent() -> None:
    async def work() -> list[str]:
        config = AgentLoopConfig(model=MODEL, stream_fn=scripted(ADD, "5"))
        return names(await collect(agent_loop("go", AgentContext("", (), (add,)), config)))

    assert _run(work, _eager()) == _run(work)


@needs_eager_tasks
def test_a_value_and_a_run_that_blocks() -> None:
    async def work() -> list[Any]:
        answer = Agent(MODEL, stream_fn=scripted(call("final_answer", n=3)))
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        blocking = Agent(MODEL, stream_fn=scripted(ADD, "5"), tools=[add])
        return [await answer.structured_output("go", schema), blocking.prompt_sync("go").text]

    assert _run(work, _eager()) == [{"n": 3}, "5"]


@needs_eager_tasks
def test_a_subagent_as_a_tool() -> None:
    class Delegate:
        name = label = description = "delegate"
        parameters_schema: dict[str, Any] = {"type": "object"}
        requires_approval = False

        async def execute(self, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
            inner = Agent(MODEL, stream_fn=scripted(ADD, "5"), tools=[add])
            return AgentToolResult.text((await inner.prompt("go")).text)

    async def work() -> Told:
        return await _prompted(_agent(call("delegate") + call("delegate"), "so", tools=[Delegate()]))

    assert _run(work, _eager()) == _run(work)


@needs_eager_tasks
def test_an_evaluation() -> None:
    async def work() -> list[bool]:
        cases = [
            EvalCase(f"case-{n}", "Adds", user_messages=["2+3?"], expected_response={"contains": "5"}) for n in range(3)
        ]
        runner = EvalRunner(lambda *_: Agent(MODEL, stream_fn=scripted(ADD, "5"), tools=[add]), parallel=2)
        return [result.passed for result in (await runner.run(EvalSet("sums", "Sums", cases))).results]

    assert _run(work, _eager()) == [True, True, True]
