"""A compaction that is stopped at any moment: no partial result stays, and the next one succeeds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Aborted,
    Agent,
    AgentMessage,
    AssistantMessage,
    Cost,
    ModelSpec,
    Usage,
    UserMessage,
    encode_message,
    extract_text,
)
from swink_agent.core.exchanges import repair_pairs
from swink_agent.memory import JsonlSessionStore, SummarizingCompactor
from swink_agent.memory.compaction.summary_text import is_summary
from swink_agent.testing import check_conversation, scripted

MODEL = ModelSpec("test", "model")
MOST_STEPS = 200


def talk(exchanges: int = 20) -> list[AgentMessage]:
    return [
        message
        for number in range(exchanges)
        for message in (UserMessage(f"question {number}"), AssistantMessage(f"answer {number} " + "a" * 200))
    ]


def answer(request: Any) -> str:
    return "the summary of it" if "boundary lines" in request.context.system_prompt else "fine and well"


async def stop(agent: Agent, running: asyncio.Task[Any], how: str) -> None:
    for again in range(2 if how.endswith("twice") else 1):
        if again:
            await asyncio.sleep(0)
        if how.startswith("abort"):
            agent.abort()
        else:
            running.cancel()


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("work", ["a run", "on demand"])
@pytest.mark.parametrize("how", ["abort", "abort twice", "cancel", "cancel twice"])
async def test_stopped_at_any_step_it_leaves_what_was_sent_before_or_all_of_the_new(
    tmp_path: Path, how: str, work: str
) -> None:
    store = JsonlSessionStore(tmp_path, sync=False)
    for steps in range(MOST_STEPS):
        script = scripted(*[answer] * 9, suspend=True, deltas=4, usage=Usage(0, 10, total=10), cost=Cost(total=0.1))
        compactor = SummarizingCompactor(max_tokens=600, keep_recent=200)
        agent = Agent(MODEL, stream_fn=script, messages=talk(), transform_context=compactor)
        with store.create() as session:
            session.attach(agent)
            running = asyncio.ensure_future(agent.prompt("first") if work == "a run" else agent.compact())
            for _ in range(steps):
                await asyncio.sleep(0)
            was_over = running.done()
            await stop(agent, running, how)
            try:
                await asyncio.wait_for(running, 5)
            except (Aborted, asyncio.CancelledError):
                assert not was_over
            assert (await agent.prompt("second")).error is None
            asked = len(script.requests)
            assert session.info.usage.total <= 10 * asked, "nothing counts twice"
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        sent = list(script.requests[-1].messages)
        check_conversation(sent)
        assert [is_summary(message) for message in sent] == [True] + [False] * (len(sent) - 1)
        assert extract_text(sent[-1].content) == "second"
        context = store.load(session.id).context
        assert context is not None
        kept = repair_pairs(context[:-1])  # type: ignore[arg-type]
        assert list(map(encode_message, kept)) == list(map(encode_message, sent))
        if was_over:
            return
    pytest.fail("it never came to an end")
