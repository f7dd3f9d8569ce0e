"""The totals of a conversation: those of its runs, and of the compactions between them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from swink_agent import Agent, AgentMessage, CompactionContext, Cost, Usage, UserMessage
from swink_agent.app.settings.settings import load_settings
from swink_agent.app.talk.usage import UsageTotals
from swink_agent.testing import scripted

USAGE, COST = Usage(input=10, output=5, total=15), Cost(total=0.25)


@pytest.mark.parametrize("has_run", [True, False])
@pytest.mark.parametrize("outcome", ["nothing", "other messages", "fewer messages"])
async def test_a_compaction_between_runs_is_counted_once_whatever_it_did(outcome: str, has_run: bool) -> None:
    async def compact(messages: Sequence[AgentMessage], overflow: bool) -> list[AgentMessage] | None:
        context = CompactionContext.current()
        if context is None or not context.is_on_demand:
            return None
        await context.ask("Sum it up.")
        match outcome:
            case "nothing":
                return None
            case "other messages":
                return [UserMessage("short") for _ in messages]
            case _:
                return list(messages[1:])

    agent = Agent(
        "test:model",
        stream_fn=scripted(*["fine"] * 3, usage=USAGE, cost=COST),
        messages=["one", "two"],
        async_transform_context=compact,
    )
    totals = UsageTotals()
    settings = load_settings(environ={}, flags={})
    totals.begin(agent, settings, sent=agent.messages, usage=Usage(), cost=Cost())
    with agent.subscribe(totals.on_event):
        if has_run:
            totals.begin_run()
            await agent.prompt("go")
        report = await agent.compact()
        assert (report is None) == (outcome == "nothing")
        if report is not None and not report.is_told:
            totals.shrink(report)
        requests = 2 if has_run else 1
        assert (totals.tokens, totals.cost.amount) == (15 * requests, 0.25 * requests)
        totals.begin_run()
        await agent.prompt("and now?")
    assert (totals.tokens, totals.cost.amount) == (15 * (requests + 1), 0.25 * (requests + 1))
