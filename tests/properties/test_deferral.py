"""However answers are split over runs and processes, the history ends as if `approve` had given them at once."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import (
    Agent,
    AgentContext,
    AgentEvent,
    AgentMessage,
    Approve,
    ApproveWith,
    Defer,
    ProposedCall,
    Reject,
    ToolOutcome,
    ToolResultMessage,
    agent_loop_resume,
    decode_message,
    encode_message,
    pending_calls,
    tool,
)
from swink_agent.testing import call, check_conversation, check_events, reply, scripted

NAMES = ("asked", "plain", "both")
ANSWERS = st.one_of(
    st.just(Approve()),
    st.just(Reject("no")),
    st.just(Reject()),
    st.builds(ApproveWith, st.fixed_dictionaries({"n": st.integers(0, 3)}), st.sampled_from(["", "changed"])),
    st.just(ApproveWith({"n": "x"})),
)


class World:
    """The tools, and what they did."""

    def __init__(self) -> None:
        self.effects: list[int] = []

    @tool(requires_approval=True)
    async def asked(self, n: int) -> str:
        self.effects.append(n)
        return f"asked {n}"

    @tool
    async def plain(self, n: int) -> str:
        return f"plain {n}"

    @tool(requires_approval=True)
    def both(self, n: int) -> str:
        if n == 1:
            raise ValueError("one")
        self.effects.append(n)
        return f"both {n}"

    def agent(self, script: Any, approve: Any, messages: list[AgentMessage] | None = None) -> Agent:
        tools = [self.asked, self.plain, self.both]
        return Agent("test:model", stream_fn=script, tools=tools, approve=approve, messages=messages or [])


def plain(messages: Any) -> list[Any]:
    """The messages without their times, with results in their places."""
    places: dict[str, int] = {}
    shown: list[Any] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            one = (message.tool_call_id, message.content, message.is_error, message.outcome)
            if message.tool_call_id in places:
                shown[places[message.tool_call_id]] = one
            else:
                places[message.tool_call_id] = len(shown)
                shown.append(one)
        else:
            shown.append((type(message).__name__, message.content))
    return shown


async def at_once(calls: list[Any], answers: list[Any]) -> tuple[list[Any], list[int]]:
    world, script = World(), scripted(reply(*calls), "done")
    pending = iter([answer for one, answer in zip(calls, answers, strict=True) if one.name != "plain"])
    agent = world.agent(script, lambda _: next(pending))
    await agent.prompt("go")
    return plain(agent.messages), sorted(world.effects)


async def split(calls: list[Any], answers: list[Any], when: list[int], where: list[str]) -> tuple[list[Any], list[int]]:
    world = World()
    by_index = dict(enumerate(answers))

    def approve(request: ProposedCall) -> Any:
        index = int(request.call_id.removeprefix("call_")) - 1
        return Defer() if when[index] else by_index[index]

    events: list[AgentEvent] = []
    agent = world.agent(scripted(reply(*calls), "done"), approve)
    agent.subscribe(events.append)
    await agent.prompt("go")
    check_events(events)
    messages = list(agent.messages)
    for step, place in zip(range(1, 4), where, strict=True):
        ready = {
            one.call_id: by_index[index]
            for one in pending_calls(messages)
            if when[index := int(one.call_id.removeprefix("call_")) - 1] == step
        }
        if not ready:
            continue
        script = scripted("done")
        if place == "same":
            await agent.resume(ready)
            messages = list(agent.messages)
        elif place == "other":
            read = [decode_message(encode_message(message)) for message in messages]
            agent = world.agent(script, approve, read)
            await agent.resume(ready)
            messages = list(agent.messages)
        else:
            context = AgentContext("", messages, agent.tools)
            config = world.agent(script, approve).config
            events = [event async for event in agent_loop_resume(ready, context, config)]
            check_events(events)
            messages += events[-1].messages  # type: ignore[union-attr]
            agent = world.agent(scripted("done"), approve, messages)
        if script.requests:
            check_conversation(script.requests[0].messages)
    assert pending_calls(messages) == ()
    return plain(messages), sorted(world.effects)


@given(st.data())
@settings(max_examples=150)
def test_splitting_answers_changes_nothing(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4))
    calls = [call(name, n=data.draw(st.integers(0, 3))) for name in kinds]
    answers = [data.draw(ANSWERS) for _ in kinds]
    when = [data.draw(st.integers(0, 3)) for _ in kinds]
    where = [data.draw(st.sampled_from(["same", "other", "loop"])) for _ in range(3)]
    expected, effects = asyncio.run(at_once(calls, answers))
    history, done = asyncio.run(split(calls, answers, when, where))
    assert [message for message in history if ToolOutcome.PENDING in message] == []
    assert (history, done) == (expected, effects)
