"""Invariants of summaries over many turns and in a reopened session, whatever happens in it."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import (
    Agent,
    AgentMessage,
    AgentResult,
    Cost,
    ModelSpec,
    SlidingWindow,
    ToolResultMessage,
    Usage,
    UserMessage,
    encode_message,
    estimate_tokens,
    extract_text,
    tool,
)
from swink_agent.core.exchanges import repair_pairs
from swink_agent.memory import JsonlSessionStore, SummarizingCompactor
from swink_agent.memory.compaction.summary_text import is_summary
from swink_agent.testing import call, check_conversation, check_events, fail, reply, scripted, text, truncated

MODEL = ModelSpec("test", "model")
BUDGET = 2_000
LONGEST = 1_200
"""Characters of a prompt: with what must stay besides it, there is room in the budget."""

sizes = st.integers(0, 100) | st.integers(0, LONGEST)
turns = st.lists(st.sampled_from([0, 100, 2_000, 30_000]), max_size=4)  # the characters of each turn's result
runs = st.lists(st.tuples(sizes, turns), min_size=1, max_size=8)
summaries = st.lists(st.sampled_from(["good", "good", "good", "fails", "empty", "cut", "calls", "long"]), max_size=20)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.CRITICAL, logger="swink_agent")
    return iter(())


@tool
def look(size: int) -> str:
    """Looks."""
    return "r" * size


class Model:
    """Gives each run its turns, and sums up as well as it was told to."""

    def __init__(self, outcomes: list[str]) -> None:
        self.outcomes = list(outcomes)
        self.plan: list[int] = []
        self.sent: list[tuple[AgentMessage, ...]] = []
        self.asked = 0
        self.script = scripted(*[self.answer] * 500, usage=Usage(0, 110, total=110), cost=Cost(total=0.25))

    def answer(self, request: Any) -> Any:
        if "boundary lines" not in request.context.system_prompt:
            self.sent.append(tuple(request.messages))
            return call("look", size=self.plan.pop(0)) if self.plan else "an answer"
        self.asked += 1
        match self.outcomes.pop(0) if self.outcomes else "good":
            case "good":
                return "## Goal\n" + "to know " * 40
            case "fails":
                return fail("network")
            case "cut":
                return truncated("## Goal\n" + "to know " * 40)
            case "calls":
                return reply(text("first I look"), call("look", size=1))
            case "long":
                return "word " * 4_000
            case _:
                return ""


def outline(messages: Any) -> list[bytes]:
    return [encode_message(message) for message in messages]


def check_request(sent: tuple[AgentMessage, ...], prompt: str) -> None:
    check_conversation(sent)
    assert isinstance(sent[0], UserMessage)
    assert [is_summary(message) for message in sent].count(True) <= 1
    assert not any(map(is_summary, sent[1:])), "a summary stands first"
    assert [extract_text(message.content) for message in sent if isinstance(message, UserMessage)].count(prompt) == 1
    results = sum(isinstance(message, ToolResultMessage) for message in sent)
    assert estimate_tokens(sent) <= max(BUDGET, LONGEST // 2 + 300 * (results + 3))


async def live(plan: list[tuple[int, list[int]]], outcomes: list[str], transform: Any, folder: str) -> None:
    store = JsonlSessionStore(folder, sync=False)
    name = store.create().id
    model = Model(outcomes)
    used = Usage()
    for number, (size, results) in enumerate(plan):
        agent = Agent(MODEL, stream_fn=model.script, tools=[look], transform_context=transform)
        events: list[Any] = []
        agent.subscribe(events.append)
        prompt = f"prompt {number} " + "p" * size
        model.plan, before = list(results), len(model.sent)
        with store.open(name) as session:  # each run in a session that is opened anew
            session.attach(agent)
            result: AgentResult = await agent.prompt(prompt)
            used += result.usage
            assert session.info.usage == used
        assert result.error is None
        check_events(events)
        for sent in model.sent[before:]:
            check_request(sent, prompt)
        loaded = store.load(name)
        kept = loaded.messages if loaded.context is None else loaded.context
        assert outline(repair_pairs(kept[:-1])) == outline(model.sent[-1]), "what is kept is what was sent"  # type: ignore[arg-type]
    failed = outcomes[: model.asked].count("fails")
    assert used.total == 110 * (len(model.sent) + model.asked - failed), "each request counts once"


@settings(max_examples=40, deadline=None)
@given(runs, summaries, st.sampled_from([0, 200, 500, 1_000]))
def test_requests_are_valid_and_fit_and_are_what_the_session_keeps(
    plan: list[tuple[int, list[int]]], outcomes: list[str], keep_recent: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live(plan, outcomes, SummarizingCompactor(max_tokens=BUDGET, keep_recent=keep_recent), folder))


@settings(max_examples=30, deadline=None)
@given(runs, st.integers(0, 3))
def test_the_same_holds_for_a_window(plan: list[tuple[int, list[int]]], keep_first: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live(plan, [], SlidingWindow(BUDGET, keep_first=keep_first), folder))
