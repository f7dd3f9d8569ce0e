"""The record equals the agent's history, whatever the agent did, and is valid wherever it ends."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import (
    Agent,
    AgentMessage,
    AgentToolResult,
    AssistantMessage,
    CustomMessage,
    DefaultRetryStrategy,
    ErrorKind,
    Inject,
    PolicyContext,
    Skip,
    SlidingWindow,
    Stop,
    Text,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResultMessage,
    UserMessage,
    tool,
)
from swink_agent.core.journal import MessageAdded, StateChanged
from swink_agent.core.run.transcript import Transcript
from swink_agent.core.types import LLM_MESSAGES
from swink_agent.memory import JsonlSessionStore, LoadedSession
from swink_agent.testing import FakeClock, call, check_conversation, fail, scripted, text, think, truncated


class Notice(CustomMessage, tag="notice"):
    text: str


# -- the world -----------------------------------------------------------------------------------------------


@tool
async def quick(n: int = 0) -> int:
    """Answers at once."""
    return n


@tool
async def slow(ctx: ToolContext, steps: int = 3) -> AgentToolResult:
    """Takes a few turns of the event loop and remembers that."""
    for _ in range(steps):
        await asyncio.sleep(0)
    ctx.state["slow"] = [*ctx.state.get("slow", []), steps][-3:]
    return AgentToolResult("slept " * 20, {"steps": steps})


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


TOOLS = [quick, slow, thorough, failing]


class Rewriter:
    """Replaces what was said and what came of it."""

    def post_turn(self, ctx: PolicyContext) -> Any:
        assert ctx.message is not None
        return Inject([AssistantMessage([Text("rewritten"), *ctx.message.tool_calls])])


class Whimsical:
    """Stops, skips and injects now and then."""

    def __init__(self, every: int) -> None:
        self.every, self.asked = every, 0

    def _turn(self) -> bool:
        self.asked += 1
        return self.asked % self.every == 0

    def pre_turn(self, ctx: PolicyContext) -> Any:
        return Inject("remember") if self._turn() else None

    def pre_dispatch(self, ctx: Any) -> Any:
        return Skip("not now") if self._turn() else None

    def post_turn(self, ctx: PolicyContext) -> Any:
        return Stop("enough") if self._turn() else None


calls = st.sampled_from(
    [
        call("quick", n=1),
        call("quick", n="no number"),
        call("slow", steps=5),
        call("slow", steps=1),
        call("thorough"),
        call("failing"),
        call("unknown", a=1),
        call("quick", id="again"),
    ]
)
speech = st.sampled_from([text("hello"), text(""), think("hm", signature="s"), text("a longer answer " * 9)])
parts = st.lists(st.one_of(calls, calls, speech), min_size=0, max_size=5)
replies = st.lists(
    st.one_of(
        parts,
        parts,
        speech,
        st.sampled_from([ErrorKind.NETWORK, ErrorKind.CONTEXT_OVERFLOW, ErrorKind.INVALID_REQUEST]).map(fail),
        calls.map(truncated),
    ),
    min_size=3,
    max_size=9,
)
policies = st.lists(st.one_of(st.builds(Rewriter), st.builds(Whimsical, st.integers(3, 9))), max_size=2)
histories = st.lists(
    st.one_of(
        st.builds(UserMessage, st.just("earlier")),
        st.builds(AssistantMessage, st.just("said")),
        st.builds(Notice, st.just("hidden")),
    ),
    max_size=4,
)
ACTIONS = (
    "prompt",
    "prompt",
    "prompt",
    "steer",
    "abort",
    "append",
    "cut",
    "reverse",
    "clear",
    "model",
    "state",
    "reopen",
)
actions = st.lists(st.sampled_from(ACTIONS), min_size=2, max_size=7)


def interrupt(agent: Agent, after: int, how: Callable[[], None]) -> Callable[[Any], None]:
    seen = 0

    def watch(_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == after:
            how()

    return watch


async def act(agent: Agent, action: str) -> None:
    match action:
        case "prompt":
            await agent.prompt("go on")
        case "steer":
            with agent.subscribe(interrupt(agent, 9, lambda: agent.steer([UserMessage("wait"), Notice("psst")]))):
                await agent.prompt("this may be steered")
        case "abort":
            with agent.subscribe(interrupt(agent, 11, agent.abort)):
                await agent.prompt("this may be aborted")
        case "append":
            agent.messages.append(UserMessage("by the way"))
        case "cut":
            agent.messages = cut_before_a_reply(list(agent.messages))
        case "reverse":
            agent.messages = [m for m in reversed(agent.messages) if isinstance(m, UserMessage | Notice)]
        case "clear":
            agent.messages.clear()
        case "compact":
            await agent.compact()
        case "model":
            agent.model = f"test:{len(agent.messages)}"
        case "state":
            agent.state["n"] = len(agent.messages)
        case _:
            raise AssertionError(action)


def cut_before_a_reply(messages: list[AgentMessage]) -> list[AgentMessage]:
    at = len(messages) * 2 // 3
    while at and not isinstance(messages[at - 1], UserMessage):
        at -= 1
    return messages[:at]


# -- the properties --------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    replies=replies,
    history=histories,
    actions=actions,
    policies=policies,
    execution=st.sampled_from(["concurrent", "sequential"]),
    windowed=st.booleans(),
)
def test_the_record_equals_the_history_of_the_agent(**world: Any) -> None:
    check_world(**world)


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@settings(max_examples=500)
@given(
    replies=replies,
    history=histories,
    actions=actions,
    policies=policies,
    execution=st.sampled_from(["concurrent", "sequential"]),
    windowed=st.booleans(),
)
def test_the_record_equals_the_history_of_the_agent_for_long(**world: Any) -> None:
    check_world(**world)


def check_world(
    replies: list[Any],
    history: list[AgentMessage],
    actions: list[str],
    policies: list[Any],
    execution: Any,
    windowed: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = JsonlSessionStore(folder, types=[Notice], sync=False)
        model = scripted(*replies, *[text("the end")] * 20)

        def new_agent(messages: list[AgentMessage]) -> Agent:
            return Agent(
                "test:model",
                stream_fn=model,
                tools=TOOLS,
                messages=messages,
                policies=policies,
                tool_execution=execution,
                retry_strategy=DefaultRetryStrategy(max_attempts=2),
                transform_context=SlidingWindow(120, overflow_tokens=60) if windowed else None,
                sleep=FakeClock().sleep,
            )

        agent = new_agent(history)
        session = store.create()
        session.attach(agent)

        async def live() -> None:
            nonlocal agent, session
            for action in actions:
                if action == "reopen":
                    has_past = any(isinstance(r.entry, MessageAdded | StateChanged) for r in session.records())
                    session.close()
                    session = store.open(session.id)
                    before = agent
                    agent = new_agent([UserMessage("not this")] if before.messages else [])
                    session.attach(agent)
                    if has_past:
                        check_same(agent, before)
                else:
                    await act(agent, action)
                assert session.messages == tuple(agent.messages)
                check_loaded(store.load(session.id), agent)
                assert store.list() == [store.load(session.id).info], "a list says what a full reading says"

        asyncio.run(live())
        session.close()
        for request in model.requests:
            check_conversation(request.messages)
        check_prefixes(store, session.path, agent)


def check_same(agent: Agent, other: Agent) -> None:
    assert list(agent.messages) == list(other.messages)
    assert list(agent._transcript.context) == list(other._transcript.context)
    assert dict(agent.state) == dict(other.state)
    assert agent.model == other.model


def check_loaded(loaded: LoadedSession, agent: Agent) -> None:
    assert loaded.info.problems == ()
    assert loaded.messages == tuple(agent.messages)
    context = loaded.messages if loaded.context is None else loaded.context
    assert context == tuple(agent._transcript.context)
    assert loaded.info.messages == len(agent.messages)
    assert loaded.info.model == agent.model


def check_prefixes(store: JsonlSessionStore, path: Path, agent: Agent) -> None:
    """A record that ends anywhere is that of a valid history, in a list as in a full reading."""
    lines = path.read_bytes().splitlines(keepends=True)
    step = max(1, len(lines) // 25)
    for end in range(1, len(lines), step):
        path.write_bytes(b"".join(lines[:end]))
        loaded = store.load(path.stem)
        assert loaded.info.problems == ()
        assert store.list() == [loaded.info]
        context = loaded.messages if loaded.context is None else loaded.context
        for messages in (loaded.messages, context):
            sent = [message for message in messages if type(message) in LLM_MESSAGES]
            assert sent == unrepaired(sent), "every call has its result"
            check_conversation(as_sent(messages))
        with store.open(path.stem) as session:
            again = Agent("test:model", stream_fn=scripted(text("on")), tools=TOOLS)
            session.attach(again)
            assert tuple(again.messages) == loaded.messages
            again.prompt_sync("go on")
            assert session.messages == tuple(again.messages)
        assert store.load(path.stem).messages == tuple(again.messages)
        assert store.load(path.stem).info.problems == ()


def as_sent(messages: Sequence[AgentMessage]) -> Sequence[AgentMessage]:
    transcript = Transcript(messages)
    transcript.convert_by_default()
    return transcript.conversation()


def unrepaired(messages: list[AgentMessage]) -> list[AgentMessage]:
    """The messages, if every call is answered in order; else what is wrong, as an error."""
    waiting: list[ToolCall] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            assert waiting.pop(0).id == message.tool_call_id
        else:
            assert not waiting
            waiting = list(message.tool_calls) if isinstance(message, AssistantMessage) else []
    assert not waiting
    return messages
