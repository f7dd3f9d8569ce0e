"""SameModel runs no tool of a reply that another model gave."""

from __future__ import annotations

import pytest

from swink_agent import Agent, AssistantMessage, PolicyStop, ToolOutcome, tool
from swink_agent.policies import SameModel
from swink_agent.testing import call, scripted, text


@tool
async def look() -> str:
    """Looks."""
    return "seen"


def agent(served: str | None, *allow: str) -> Agent:
    model = scripted(call("look"), text("done"), served_model=served)
    return Agent("openai:gpt-4o", stream_fn=model, tools=[look], policies=[SameModel(allow)])


async def test_a_reply_by_another_model_stops_the_run_before_its_tools() -> None:
    result = await agent("gpt-4o-mini").prompt("go")
    why = "openai:gpt-4o was asked, and gpt-4o-mini answered; to accept it: SameModel(allow=['gpt-4o-mini'])"
    assert result.stopped_by == PolicyStop("same_model", why)
    assert [message.outcome for message in result.messages if hasattr(message, "outcome")] == [ToolOutcome.SKIPPED]


@pytest.mark.parametrize("served", [None, "", "gpt-4o", "gpt-4o-2024-08-06"])
async def test_a_reply_by_the_model_that_was_asked_goes_on(served: str | None) -> None:
    result = await agent(served).prompt("go")
    assert (result.text, result.stopped_by) == ("done", None)


async def test_models_that_are_allowed_may_stand_in() -> None:
    assert (await agent("gpt-4o-mini-2024-07-18", "gpt-4o-mini").prompt("go")).text == "done"


async def test_a_reply_without_calls_ends_the_run_as_ever() -> None:
    model = scripted("hello", served_model="another")
    result = await Agent("openai:gpt-4o", stream_fn=model, policies=[SameModel()]).prompt("go")
    (*_, reply) = result.messages
    assert isinstance(reply, AssistantMessage)
    assert (result.text, result.stopped_by, reply.served_model) == ("hello", None, "another")
