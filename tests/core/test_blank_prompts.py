"""A prompt without any content is refused before anything happens, and an empty conversation is not sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AgentLoopConfig,
    AssistantMessage,
    CustomMessage,
    ErrorKind,
    Extension,
    Image,
    ModelSpec,
    StopReason,
    Text,
    UrlImage,
    UserMessage,
    agent_loop,
    agent_loop_continue,
    decode_message,
    encode_message,
)
from swink_agent.testing import ScriptedStream, collect, names, scripted

MODEL = ModelSpec("test", "model")
PICTURE = Image(UrlImage("https://example.org/a.png"))
SCHEMA = {"type": "object", "properties": {}}


class Notice(CustomMessage, tag="blank_notice"):
    text: str


BLANK: dict[str, Any] = {
    "nothing": "",
    "white space": " \n\t\u00a0",
    "no message": [],
    "no messages in a tuple": (),
    "a message without blocks": UserMessage([]),
    "a message of blank text": UserMessage([Text(""), Text("  ")]),
    "several": ["", UserMessage([]), UserMessage(" ")],
}


def _ways(agent: Agent) -> dict[str, Callable[[Any], Any]]:
    return {
        "prompt": lambda given: asyncio.run(agent.prompt(given)),
        "prompt_stream": agent.prompt_stream,
        "prompt_sync": agent.prompt_sync,
        "structured_output": lambda given: asyncio.run(agent.structured_output(given, SCHEMA)),
        "structured_output_sync": lambda given: agent.structured_output_sync(given, SCHEMA),
        "steer": agent.steer,
        "follow_up": agent.follow_up,
    }


WAYS = tuple(_ways(Agent(MODEL, stream_fn=scripted())))


@pytest.mark.table
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", BLANK)
def test_a_blank_prompt_is_refused_and_nothing_has_happened(what: str, way: str) -> None:
    script = scripted("hello")
    agent = Agent(MODEL, stream_fn=script)
    heard: list[Any] = []
    agent.subscribe(heard.append)
    with pytest.raises(ValueError, match="has no content"):
        _ways(agent)[way](BLANK[what])
    assert (heard, script.requests, list(agent.messages)) == ([], [], [])
    assert not agent.is_running
    assert not agent.has_queued_messages
    assert agent.prompt_sync("hi").text == "hello"


@pytest.mark.table
@pytest.mark.parametrize("what", BLANK)
def test_the_bare_loop_refuses_it_too(what: str) -> None:
    script = scripted("hello")
    with pytest.raises(ValueError, match="has no content"):
        agent_loop(BLANK[what], AgentContext(), AgentLoopConfig(model=MODEL, stream_fn=script))
    assert script.requests == []


@pytest.mark.table
@pytest.mark.parametrize(
    "content",
    ["hi", [PICTURE], [Text(""), PICTURE], [Extension("x")], ["", "hi"], UserMessage([PICTURE])],
)
async def test_prompts_with_content_are_sent(content: Any) -> None:
    given = content if isinstance(content, UserMessage) or isinstance(content[0], str) else UserMessage(content)
    assert (await Agent(MODEL, stream_fn=scripted("hello")).prompt(given)).text == "hello"


async def test_a_picture_alone_is_sent_without_an_empty_text() -> None:
    script = scripted("a cat")
    await Agent(MODEL, stream_fn=script).prompt("", images=[PICTURE])
    (message,) = script.requests[0].messages
    assert message.content == (PICTURE,)


async def test_a_message_of_the_applications_own_counts() -> None:
    script = scripted("hello")
    agent = Agent(MODEL, stream_fn=script, messages=["hi"])
    assert (await agent.prompt(Notice("saved"))).text == "hello"


def test_a_message_without_blocks_can_be_made_and_read() -> None:
    empty = UserMessage([])
    assert decode_message(encode_message(empty)) == empty


EMPTY_CONVERSATIONS: dict[str, Callable[[ScriptedStream], Agent]] = {
    "a transform that leaves nothing": lambda script: Agent(MODEL, stream_fn=script, transform_context=lambda *_: []),
    "an async one": lambda script: Agent(MODEL, stream_fn=script, async_transform_context=_nothing),
    "a transform that leaves blanks": lambda script: Agent(
        MODEL, stream_fn=script, transform_context=lambda *_: [UserMessage([])]
    ),
    "a conversion to nothing": lambda script: Agent(MODEL, stream_fn=script, convert_to_llm=lambda _: None),
}


async def _nothing(*_: object) -> list[Any]:
    return []


@pytest.mark.parametrize("what", EMPTY_CONVERSATIONS)
async def test_an_empty_conversation_is_not_sent(what: str) -> None:
    script = scripted("hello")
    agent = EMPTY_CONVERSATIONS[what](script)
    events = await collect(agent.prompt_stream("hi"))
    told = [name for name in names(events) if name != "ContextCompacted"]
    assert told == ["AgentStart", "TurnStart", "MessageStart", "MessageEnd", "TurnEnd", "AgentEnd"]
    last = agent.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason, last.error_kind) == (StopReason.ERROR, ErrorKind.INVALID_REQUEST)
    assert "nothing to ask the model" in (agent.last_error or "")
    assert script.requests == []


async def test_a_history_of_the_applications_own_messages_alone_is_not_sent() -> None:
    script = scripted("hello")
    agent = Agent(MODEL, stream_fn=script)
    result = await agent.prompt(Notice("saved"))
    assert "nothing to ask the model" in (result.error or "")
    config = AgentLoopConfig(model=MODEL, stream_fn=script)
    bare = await agent_loop_continue(AgentContext("", (Notice("saved"),)), config).result()
    assert "nothing to ask the model" in (bare.error or "")
    assert script.requests == []
