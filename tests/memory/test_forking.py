"""A fork at any message of any session is valid, and equals the session at that moment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, AssistantMessage, ModelSpec, ToolCall, ToolResultMessage, UserMessage
from swink_agent.core.journal import ContextReplaced, MessageAdded, ToolStarted
from swink_agent.memory import SessionStore
from swink_agent.testing import scripted, text

from .kinds import Kind


@pytest.fixture
def store(kind: Kind, tmp_path: Path) -> SessionStore:
    return kind.make(tmp_path / "sessions")


def agent_that(*replies: Any, model: str = "test:first", **options: Any) -> Agent:
    return Agent(model, stream_fn=scripted(*replies), **options)


def states(store: SessionStore, session_id: str) -> list[Any]:
    """The states of forks at all places."""
    found: list[Any] = []
    for at in range(len(store.load(session_id).messages) + 1):
        with store.fork(session_id, at) as fork:
            found.append(dict(fork.state))
    return found


def test_the_state_that_a_prompt_was_sent_with_is_there_at_the_prompt(store: SessionStore) -> None:
    """It is recorded behind the prompt, before the model is asked."""
    agent = agent_that(*[text("yes")] * 2, state={"user": "ann"})
    with store.create() as session:
        session.attach(agent)
        agent.prompt_sync("first")
        agent.state["user"] = "bob"
        agent.prompt_sync("second")
    ann, bob = {"user": "ann"}, {"user": "bob"}
    assert states(store, session.id) == [ann, ann, ann, bob, bob]


def test_the_first_state_of_an_agent_is_there_at_each_of_its_first_messages(
    store: SessionStore,
) -> None:
    begun = [UserMessage("a"), AssistantMessage("b"), UserMessage("c"), AssistantMessage("d")]
    agent = agent_that(text("yes"), messages=begun, state={"user": "ann"})
    with store.create() as session:
        session.attach(agent)
        agent.prompt_sync("first")
    assert states(store, session.id) == [{"user": "ann"}] * 7


def test_a_fork_before_the_first_message_has_the_model(store: SessionStore) -> None:
    agent = agent_that(*[text("yes")] * 2)
    with store.create() as session:
        session.attach(agent)
        agent.prompt_sync("first")
        agent.model = ModelSpec("test", "second")
        agent.prompt_sync("second")
    models: list[str] = []
    for at in range(5):
        with store.fork(session.id, at) as fork:
            models.append(str(fork.info.model))
    assert models == ["test:first"] * 3 + ["test:second"] * 2


def test_the_request_of_a_prompt_is_not_compacted_again(store: SessionStore) -> None:
    def last_one(messages: Any, overflow: bool) -> Any:
        return [UserMessage("what was before"), *messages[-1:]] if len(messages) == 3 else None

    agent = agent_that(*[text("yes")] * 2, transform_context=last_one)
    with store.create() as session:
        session.attach(agent)
        agent.prompt_sync("first")
        agent.prompt_sync("second")
    with store.fork(session.id, 2) as before, store.fork(session.id, 3) as fork:
        assert before.context is None
        assert fork.context is not None
        assert [str(message.content[0].text) for message in fork.context] == ["what was before", "second"]


def test_a_context_on_demand_comes_after_the_reply_before_it(store: SessionStore) -> None:
    def last_one(messages: Any, overflow: bool) -> Any:
        return [UserMessage("what was before"), *messages[-1:]] if overflow else None

    agent = agent_that(*[text("yes")] * 2, transform_context=last_one)
    with store.create() as session:
        session.attach(agent)
        agent.prompt_sync("first")
        asyncio.run(agent.compact())
        agent.prompt_sync("second")
    with store.fork(session.id, 2) as before, store.fork(session.id, 3) as fork:
        assert before.context is None
        assert fork.context is not None


def test_a_context_ends_like_the_history_where_later_calls_ended_first(
    store: SessionStore,
) -> None:
    calls = [ToolCall(f"c{number}", "add", {"n": number}) for number in range(3)]
    entries: list[Any] = [
        MessageAdded(UserMessage("old"), "prompt"),
        MessageAdded(AssistantMessage("older"), "reply"),
        MessageAdded(UserMessage("go"), "prompt"),
        ContextReplaced((UserMessage("a summary"), 3)),
        MessageAdded(AssistantMessage(calls), "reply"),
        *[ToolStarted(number, f"c{number}", "add") for number in range(3)],
        *[MessageAdded(ToolResultMessage(f"c{n}", "done", tool_name="add"), "result", n) for n in (2, 1, 0)],
    ]
    with store.create() as session:
        for entry in entries:
            session.log.record(entry)
    for at in range(4, 8):
        with store.fork(session.id, at) as fork:
            assert fork.context is not None
            assert fork.context[-4:] == fork.messages[-4:]
        again = store.load(fork.id)
        assert (again.messages, again.context) == (fork.messages, fork.context)
