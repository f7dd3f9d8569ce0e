"""An application may give an agent any history: after a crash, the same messages are sent to the model."""

from __future__ import annotations

import json
import tempfile
import zlib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swink_agent import (
    Agent,
    AgentMessage,
    AssistantMessage,
    CustomMessage,
    StopReason,
    Text,
    ToolCall,
    ToolOutcome,
    ToolResultMessage,
    UserMessage,
    tool,
)
from swink_agent.core.exchanges import repair_pairs
from swink_agent.core.journal import MessageAdded, ToolStarted
from swink_agent.core.types import LLM_MESSAGES, extract_text
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, check_conversation, scripted, text


class Aside(CustomMessage, tag="aside"):
    text: str


IDS = ("a", "b", "c")


def reply(words: str, ids: list[str], stop_reason: StopReason = StopReason.STOP) -> AssistantMessage:
    content = [Text(words)] if words else []
    return AssistantMessage([*content, *[ToolCall(call_id, "act") for call_id in ids]], stop_reason=stop_reason)


calls = st.lists(st.sampled_from(IDS), unique=True, max_size=3)
messages = st.one_of(
    st.builds(UserMessage, st.sampled_from(["do this", "and that"])),
    st.builds(Aside, st.just("psst")),
    st.builds(reply, st.sampled_from(["", "said"]), calls),
    st.builds(reply, st.just(""), calls, st.just(StopReason.ERROR)),
    st.builds(ToolResultMessage, st.sampled_from(IDS), st.sampled_from(["done", "done again"])),
    st.builds(ToolResultMessage, st.sampled_from(IDS), st.just("done once more")),
)


def sent(history: Any) -> list[Any]:
    """What a model would be sent of it; one word for a result that is missing, whoever says so."""
    conversation = repair_pairs([message for message in history if type(message) in LLM_MESSAGES])
    return [_missing(message) if _is_missing(message) else message for message in conversation]


def _is_missing(message: AgentMessage) -> bool:
    return isinstance(message, ToolResultMessage) and (
        message.outcome in (ToolOutcome.LOST, ToolOutcome.NEVER_RAN)
        or extract_text(message.content).startswith("no result:")
    )


def _missing(message: Any) -> tuple[str, str]:
    return ("missing", message.tool_call_id)


def check_history(history: list[AgentMessage], more: list[AgentMessage]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = JsonlSessionStore(folder, [Aside], sync=False)
        agent = Agent("test:model", stream_fn=scripted(), messages=history)
        with store.create() as session:
            session.attach(agent)
            agent.messages.extend(more)
            assert sent(session.messages) == sent(agent.messages)
            assert session.info.messages == len(session.messages)
        assert sent(store.load(session.id).messages) == sent(agent.messages)
        for _ in range(2):
            other = Agent("test:model", stream_fn=scripted())
            with store.open(session.id) as session:
                session.attach(other)
                assert session.messages == tuple(other.messages)
            assert sent(other.messages) == sent(agent.messages)
        assert store.load(session.id).info.damage == ()


@settings(max_examples=300)
@example(history=[reply("", ["a"]), reply("", []), ToolResultMessage("a", "done")], more=[])
@given(history=st.lists(messages, max_size=8), more=st.lists(messages, max_size=4))
def test_any_history_is_sent_as_it_was_after_a_crash(history: list[AgentMessage], more: list[AgentMessage]) -> None:
    check_history(history, more)


def test_a_result_that_came_late_is_still_the_result_of_its_call() -> None:
    """Else the model would be told that what it has done never ran, and do it again."""
    asked = AssistantMessage([ToolCall("a", "pay"), ToolCall("b", "pay")])
    paid, refused = ToolResultMessage("a", "paid"), ToolResultMessage("b", "refused")
    with tempfile.TemporaryDirectory() as folder:
        store = JsonlSessionStore(folder)
        agent = Agent("test:model", stream_fn=scripted(text("Done.")), messages=["Pay.", asked, refused, "Wait.", paid])
        with store.create() as session:
            session.attach(agent)
            agent.prompt_sync("And?")
        other = Agent("test:model", stream_fn=scripted(text("Still done.")))
        with store.open(session.id) as session:
            session.attach(other)
            assert other.messages[:5] == [agent.messages[0], asked, paid, refused, agent.messages[3]]
        assert session.info.problems == ()


def asks(n: int) -> MessageAdded:
    return MessageAdded(AssistantMessage([ToolCall("a", "pay", {"n": n})]), "reply")


STARTED = ToolStarted(0, "a", "pay")


@pytest.mark.table
@pytest.mark.parametrize(
    "entries",
    [
        (asks(1), MessageAdded(UserMessage("1"), "prompt"), asks(2), STARTED),
        (asks(1), STARTED, MessageAdded(UserMessage("1"), "prompt"), asks(2)),
        (asks(1), asks(2), STARTED, MessageAdded(UserMessage("2"), "prompt")),
        (asks(1), STARTED, asks(2), MessageAdded(UserMessage("2"), "prompt")),
        (asks(1), asks(2), STARTED, asks(3)),
        (asks(1), STARTED, asks(2), asks(3), STARTED, MessageAdded(UserMessage("3"), "prompt"), asks(4)),
    ],
)
def test_calls_without_results_are_told_apart_where_their_ids_recur(entries: tuple[Any, ...]) -> None:
    """Else a call that had started would be one that never ran, and be repeated."""
    with tempfile.TemporaryDirectory() as folder:
        store = JsonlSessionStore(folder)
        with store.create() as session:
            for entry in entries:
                session.log.record(entry)
        known = store.load(session.id).messages
        with store.open(session.id) as session:
            session.attach(agent := Agent("test:model", stream_fn=scripted()))
        assert tuple(agent.messages) == store.load(session.id).messages == known


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_a_result_that_is_not_understood_costs_no_other(odd: int) -> None:
    """A later version may have results that this one cannot read."""

    @tool
    async def act(n: int) -> str:
        """Acts."""
        return f"done {n}"

    with tempfile.TemporaryDirectory() as folder:
        store = JsonlSessionStore(folder)
        replies = [call("act", n=0), call("act", n=1), call("act", n=2)], text("Done.")
        agent = Agent("test:model", stream_fn=scripted(*replies), tools=[act])
        with store.create() as session:
            session.attach(agent)
            agent.prompt_sync("go")
        lines = [json.loads(line) for line in session.path.read_bytes().splitlines()]
        for line in lines:
            del line["crc"]
            if line["type"] == "message" and line.get("call") == odd:
                line["message"]["content"] = [["something", "new"]]
        bodies = [json.dumps(line, separators=(",", ":")).encode()[:-1] for line in lines]
        session.path.write_bytes(b"".join([body + b',"crc":"%08x"}\n' % zlib.crc32(body) for body in bodies]))
        loaded = store.load(session.id)
        check_conversation(loaded.messages)
        said = [extract_text(m.content) for m in loaded.messages if isinstance(m, ToolResultMessage)]
        assert [words.startswith("outcome unknown") for words in said] == [n == odd for n in range(3)]
        assert [words for words in said if words.startswith("done")] == [f"done {n}" for n in range(3) if n != odd]
        (problem,) = loaded.info.damage
        assert "'tool_result'" in problem
