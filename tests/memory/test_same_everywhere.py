"""Random conversations: a live agent, its events, their JSON and its session show the same, also to who goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentError,
    AgentEvent,
    AgentStart,
    AgentToolResult,
    ApproveWith,
    Defer,
    PendingCall,
    Reject,
    RunRecord,
    SlidingWindow,
    Usage,
    UserMessage,
    pending_calls,
    tool,
)
from swink_agent.core.encoding.codec import decode_event, encode_event
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, scripted, text

from .test_replay_property import MODEL, TOOLS, a_reply, approve, no_wait, one_run, some_options


@tool(external=True)
async def outside(n: int) -> str:
    """Others run it."""
    raise AssertionError


def a_desk(dice: random.Random) -> Any:
    """A delegate in which calls may wait."""
    replies = [[call("guarded", n=dice.randrange(4)), call("outside", n=1)], [call("good", n=2)], text("so it is")]
    model = scripted(*[dice.choice(replies) for _ in range(40)], usage=Usage(output=2))
    desk = Agent(MODEL, stream_fn=model, tools=[*TOOLS, outside], sleep=no_wait, approve=deferring(dice.random()))
    return desk.as_tool("desk", "Does the work.")


def deferring(salt: float) -> Any:
    def answer(request: Any) -> Any:
        return Defer("later") if random.Random(f"{salt} {request.arguments}").random() < 0.5 else approve(request)

    return answer


def an_answer(dice: random.Random, one: PendingCall) -> Any:
    if one.kind == "external":
        return dice.choice([AgentToolResult("from outside"), AgentToolResult.error("broken"), Reject("no")])
    return dice.choice([True, False, ApproveWith({"n": 3}, "less"), Reject("never"), AgentToolResult("by hand")])


class Conversation:
    """An agent, the events of each of its runs, and its session."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.dice = dice = random.Random(seed)
        self.store = JsonlSessionStore(folder, sync=False)
        options = some_options(seed, dice) | {"approve": deferring(seed)}
        if dice.random() < 0.3:
            options["transform_context"] = SlidingWindow(60, overflow_tokens=30, keep_first=1)
        parts = [lambda: a_reply(dice)] * 4 + [lambda: call("outside", n=1), lambda: call("desk", task="do it")]
        replies = [dice.choice(parts)() for _ in range(60)]
        self.options = options | {"tools": [*TOOLS, outside, a_desk(dice)], "sleep": no_wait}
        self.model = scripted(*replies, usage=Usage(input=3, output=1))
        self.runs: list[list[AgentEvent]] = []

    def agent(self) -> Agent:
        agent = Agent(MODEL, stream_fn=self.model, **self.options)
        agent.subscribe(self._observe)
        return agent

    def _observe(self, event: AgentEvent) -> None:
        if isinstance(event, AgentStart):
            self.runs.append([])
        self.runs[-1].append(event)

    async def go_on(self, agent: Agent) -> None:
        waiting: Sequence[PendingCall] = agent.pending
        chosen = [one for one in waiting if self.dice.random() < 0.7]
        if chosen and self.dice.random() < 0.8:
            ending = asyncio.get_running_loop().call_later(0.1, agent.abort)
            with suppress(AgentError, ValueError):
                await agent.resume({one.call_id: an_answer(self.dice, one) for one in chosen})
            ending.cancel()
        else:
            await one_run(agent, self.dice)
        if self.dice.random() < 0.1:
            agent.messages.append(UserMessage("by the way"))


async def check(seed: int, folder: Path) -> None:
    talk = Conversation(seed, folder)
    agent = talk.agent()
    with talk.store.create() as session:
        session.attach(agent)
        for _ in range(talk.dice.randrange(1, 4)):
            await talk.go_on(agent)
            assert session.messages == tuple(agent.messages)
    again = talk.agent()
    with talk.store.open(session.id) as session:
        session.attach(again)
        assert list(again.messages) == list(agent.messages)
        assert again.pending == agent.pending == pending_calls(agent.messages)
        assert dict(again.state) == dict(agent.state)
        await talk.go_on(again)

    loaded = talk.store.load(session.id)
    assert loaded.messages == tuple(again.messages)
    assert loaded.info.problems == ()
    live = [RunRecord.of(events) for events in talk.runs]
    assert [RunRecord.of([decode_event(encode_event(one)) for one in events]) for events in talk.runs] == live
    assert list(loaded.runs()) == live
    total = sum([run.total_usage for run in live], Usage())
    assert loaded.info.usage == total


@pytest.mark.parametrize("first", range(0, 16, 8))
async def test_agent_events_and_session_show_the_same(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 8):
        try:
            await check(seed, tmp_path / str(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
