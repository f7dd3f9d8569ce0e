"""A policy can be added to an existing agent, and a journal can leave the agent its own model."""

from __future__ import annotations

import asyncio

import pytest

from swink_agent import Agent, AlreadyRunning, ModelSpec, Stop
from swink_agent.core.journal import Past
from swink_agent.testing import scripted, stall, text


class Stopper:
    def __init__(self, word: str) -> None:
        self.word = word

    def post_turn(self, ctx: object) -> Stop:
        return Stop(self.word)


async def test_an_added_policy_comes_after_the_others() -> None:
    agent = Agent("test:model", stream_fn=scripted(text("one"), text("two")))
    agent.add_policy(Stopper("second"))
    assert (await agent.prompt("go")).stopped_by == agent.last_result.stopped_by  # type: ignore[union-attr]
    assert agent.last_result is not None
    assert agent.last_result.stopped_by is not None
    assert agent.last_result.stopped_by.reason == "second"
    first = Agent("test:model", stream_fn=scripted(text("one")), policies=[Stopper("first")])
    first.add_policy(Stopper("second"))
    stopped = (await first.prompt("go")).stopped_by
    assert stopped is not None
    assert stopped.reason == "first"


async def test_invalid_policies_and_additions_during_a_run_are_refused() -> None:
    agent = Agent("test:model", stream_fn=scripted(stall()))
    with pytest.raises(TypeError):
        agent.add_policy(object())  # type: ignore[arg-type]
    run = asyncio.create_task(agent.prompt("go"))
    await asyncio.sleep(0.01)
    with pytest.raises(AlreadyRunning):
        agent.add_policy(Stopper("late"))
    agent.abort()
    await run


class Records(list[object]):
    def record(self, entry: object, redactor: object = None, /) -> int:
        self.append(entry)
        return len(self)

    async def durable(self) -> None:
        pass


def test_with_keep_model_a_past_leaves_the_agent_its_model() -> None:
    past = Past(model=ModelSpec("test", "old"))
    for keep, model in ((False, "old"), (True, "new")):
        agent = Agent("test:new", stream_fn=scripted())
        agent.attach_journal(Records(), past, keep_model=keep)
        assert agent.model.model_id == model
