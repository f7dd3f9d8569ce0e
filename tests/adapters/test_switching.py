"""Conversations that change providers: a history from any provider is accepted by every other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from swink_agent import Agent, AgentResult, AgentToolResult, Base64Image, Image, ModelSpec, Text, ThinkingLevel, tool
from swink_agent.core.errors import AgentError
from swink_agent.core.events import AgentEvent, MessageUpdate
from swink_agent.core.stream import TextDelta, ThinkingDelta
from swink_agent.core.types import AssistantMessage, StopReason, Thinking, Usage
from swink_agent.testing import call, scripted, text
from swink_agent.testing.fakes import APIS, FakeFailure, FakeProvider, FakeReply

from .each_provider import ADAPTERS, adapter_at

PAIRS = [(first, second) for first in APIS for second in APIS]
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@tool
def photograph(subject: str) -> AgentToolResult:
    """Takes a picture.

    Args:
        subject: What to take it of.
    """
    return AgentToolResult([Text(f"a picture of {subject}"), Image(Base64Image("image/png", PICTURE))])


@tool
def weigh(thing: str, unit: str = "kg") -> str:
    """Weighs a thing."""
    raise ValueError(f"there is no {thing} to weigh in {unit}")


BOTH_CALLS = [("photograph", {"subject": "a cat"}), ("weigh", {"thing": "the cat"})]
ONE_CALL = [("photograph", {"subject": "another cat"})]


class NeverAgain:
    """No retries: a failure stays in the history."""

    def should_retry(self, error: AgentError, attempt: int, /) -> bool:
        return False

    def delay(self, attempt: int, /) -> float:
        return 0.0


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The fakes' key as AWS wants it; and nothing of the machine's own that would lead elsewhere."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "OLLAMA_HOST", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDFAKE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "fake-key")
    return iter(())


def agent_at(fake: FakeProvider, messages: Any = (), **options: Any) -> Agent:
    return Agent(
        ModelSpec(fake.api, ADAPTERS[fake.api][2], ThinkingLevel.MEDIUM),
        system_prompt="You know cats.",
        messages=list(messages),
        stream_fn=adapter_at(fake.api, fake.url, fake.key),
        retry_strategy=NeverAgain(),
        **{"tools": [photograph, weigh], **options},
    )


async def good(result: Any, fake: FakeProvider) -> AgentResult:
    """The result of a run that went well."""
    result = await result
    assert fake.rejections == []
    assert result.error is None
    return result


async def aborted_after(agent: Agent, prompt: str, kind: type, delay: float = 0.0) -> AgentResult:
    """A run that is aborted when the first delta of the kind has come, or a while later."""
    has_come = asyncio.Event()

    def look(event: AgentEvent) -> None:
        if isinstance(event, MessageUpdate) and isinstance(event.delta, kind):
            has_come.set()

    with agent.subscribe(look):
        running = asyncio.create_task(agent.prompt(prompt))
        running.add_done_callback(lambda _: has_come.set())
        await has_come.wait()
        await asyncio.sleep(delay)
        agent.abort()
        result = await running
    assert result.stop_reason == StopReason.ABORTED
    return result


async def make_history(fake: FakeProvider) -> Agent:
    """An agent that has seen it all: thinking, parallel tools with an error and an image, two aborts, two failures."""
    fake.replies += [
        FakeReply(thinking="Cats, then.", text="I shall look.", calls=BOTH_CALLS),
        FakeReply(thinking="So small.", text="It is one pixel big."),
        FakeReply(thinking="Another one.", text="The other cat is", ends="hangs"),
        FakeReply(thinking="I could take one more.", calls=ONE_CALL, ends="hangs"),
        FakeReply(thinking="Hm.", text="As I was say", ends="cut"),
        FakeFailure(503, "overloaded"),
    ]
    agent = agent_at(fake)
    await good(agent.prompt("What of the cat?"), fake)
    await aborted_after(agent, "And the other?", TextDelta)
    await aborted_after(agent, "Well?", ThinkingDelta, delay=0.05)  # it has signed its thinking by then
    assert (await agent.prompt("Go on.")).stop_reason == StopReason.ERROR
    assert (await agent.prompt("Please.")).stop_reason == StopReason.ERROR
    assert fake.rejections == []
    assert fake.replies == []
    return agent


# -- whole conversations -------------------------------------------------------------------------------------


@pytest.mark.sweep
@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_a_history_made_with_one_provider_goes_on_with_another(first: str, second: str) -> None:
    async with FakeProvider(first) as maker, FakeProvider(second) as taker:
        history = (await make_history(maker)).messages
        results = [message for message in history if hasattr(message, "tool_call_id")]
        assert [result.is_error for result in results] == [False, True]

        taker.replies += [
            FakeReply(thinking="A new cat.", text="Let me see.", calls=BOTH_CALLS),
            FakeReply(thinking="Seen.", text="Two cats by now."),
            "Three.",
        ]
        agent = agent_at(taker, history)
        result = await good(agent.prompt("How many cats is that?"), taker)
        assert result.text == "Two cats by now."
        assert (await good(agent.prompt("And now?"), taker)).text == "Three."
        assert len(taker.bodies) == 3


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("api", APIS)
async def test_three_turns_with_the_same_provider(api: str) -> None:
    async with FakeProvider(api) as fake:
        agent = await make_history(fake)
        for number in ("one", "two", "three"):
            fake.replies += [
                FakeReply(thinking=f"Turn {number}.", text="A look.", calls=BOTH_CALLS),
                FakeReply(calls=ONE_CALL),
                FakeReply(thinking="Done.", text=f"That was {number}."),
            ]
            result = await good(agent.prompt(f"Turn {number}!"), fake)
            assert result.text == f"That was {number}."


@pytest.mark.table
@pytest.mark.parametrize("api", APIS)
async def test_a_reply_comes_through_whole(api: str) -> None:
    usage = Usage(10, 6, 0, 0, 16)
    async with FakeProvider(
        api, [FakeReply(thinking="Hm.", text="Yes.", calls=ONE_CALL, usage=usage), "Done."]
    ) as fake:
        agent = agent_at(fake)
        result = await good(agent.prompt("Is it?"), fake)
    reply = result.messages[1]
    assert isinstance(reply, AssistantMessage)
    assert [block.thinking for block in reply.content if isinstance(block, Thinking) and block.thinking] == ["Hm."]
    assert reply.text == "Yes."
    assert [(call.name, call.arguments) for call in reply.tool_calls] == ONE_CALL
    assert reply.stop_reason == StopReason.TOOL_USE
    assert reply.usage == usage


OTHER_MODELS = [
    ("anthropic", "claude-opus-4-7"),
    ("anthropic", "claude-3-5-sonnet-latest"),
    ("bedrock", "amazon.nova-pro-v1:0"),
    ("bedrock", "openai.gpt-oss-120b-1:0"),
    ("gemini", "gemini-2.5-flash"),
    ("openai-responses", "gpt-4o"),
    ("ollama", "gpt-oss:20b"),
]


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("first", ["anthropic", "openai-responses", "gemini"])
@pytest.mark.parametrize(("second", "model_id"), OTHER_MODELS)
async def test_models_of_other_kinds_take_the_history_too(first: str, second: str, model_id: str) -> None:
    replies = [FakeReply(thinking="Hm.", text="Let me see.", calls=BOTH_CALLS), FakeReply(thinking="So.", text="Two.")]
    async with FakeProvider(first) as maker, FakeProvider(second, [*replies, "Three."]) as taker:
        history = (await make_history(maker)).messages
        agent = agent_at(taker, history)
        agent.model = ModelSpec(second, model_id, ThinkingLevel.MEDIUM)
        assert (await good(agent.prompt("How many cats is that?"), taker)).text == "Two."
        assert (await good(agent.prompt("And now?"), taker)).text == "Three."


# -- in the middle of a turn ---------------------------------------------------------------------------------


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_another_provider_answers_the_tool_results_that_one_asked_for(first: str, second: str) -> None:
    asking = [FakeReply(thinking="Cats.", text="I look.", calls=BOTH_CALLS), FakeFailure(503, "overloaded")]
    answering = [FakeReply(thinking="Once more.", calls=ONE_CALL), "It is small."]
    async with FakeProvider(first, asking) as maker, FakeProvider(second, answering) as taker:
        agent = agent_at(maker)
        assert (await agent.prompt("What of the cat?")).stop_reason == StopReason.ERROR
        assert maker.rejections == []
        other = agent_at(taker, agent.messages)
        assert (await good(other.continue_loop(), taker)).text == "It is small."


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("second", APIS)
async def test_a_history_with_tools_goes_on_without_them(second: str) -> None:
    async with FakeProvider("openai") as maker, FakeProvider(second, ["No more tools."]) as taker:
        history = (await make_history(maker)).messages
        agent = agent_at(taker, history, tools=[])
        result = await good(agent.prompt("Just talk."), taker)
        assert result.text == "No more tools."


@pytest.mark.table
@pytest.mark.parametrize("second", APIS)
@pytest.mark.parametrize("call_id", ["functions.photograph:0", "call|" + "x" * 60, "a b/c+d=", "7"])
async def test_ids_that_a_compatible_server_makes_up_are_accepted_everywhere(second: str, call_id: str) -> None:
    calls = [(name, arguments, f"{call_id}{number}") for number, (name, arguments) in enumerate(BOTH_CALLS)]
    async with (
        FakeProvider("ollama", [FakeReply(calls=calls), "Seen."]) as maker,
        FakeProvider(second, ["Yes."]) as taker,
    ):
        agent = agent_at(maker)
        await good(agent.prompt("What of the cat?"), maker)
        other = agent_at(taker, agent.messages)
        result = await good(other.prompt("Really?"), taker)
        assert result.text == "Yes."


@pytest.mark.parametrize("api", APIS)
async def test_call_ids_that_recur_in_later_replies_are_accepted_by_every_provider(api: str) -> None:
    """Some servers count the calls of each reply from the start, and a session may come from several of them."""
    again = [call("photograph", subject="a cat").with_id("call_0"), call("weigh", thing="it").with_id("call_1")]
    first = Agent("any:counts", stream_fn=scripted(again, again, again, text("Three cats.")), tools=[photograph, weigh])
    await first.prompt("What of the cats?")
    async with FakeProvider(api, ["Three.", FakeReply(calls=ONE_CALL), "Four."]) as fake:
        agent = agent_at(fake, first.messages)
        await good(agent.prompt("How many?"), fake)
        assert (await good(agent.prompt("And now?"), fake)).text == "Four."
