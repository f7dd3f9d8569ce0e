"""A provider's own web search: how it is requested, what is kept of it, and what is sent back."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AssistantMessage,
    CancellationToken,
    ModelSpec,
    StreamOptions,
    Text,
    Thinking,
    UserMessage,
    tool,
)
from swink_agent.adapters.anthropic import AnthropicStreamFn
from swink_agent.adapters.gemini import GeminiStreamFn
from swink_agent.adapters.kit.searches import Sources
from swink_agent.adapters.openai import OpenAiStreamFn
from swink_agent.adapters.openai_responses import OpenAiResponsesStreamFn
from swink_agent.testing.fakes import anthropic as anthropic_rules
from swink_agent.testing.fakes import gemini as gemini_rules
from swink_agent.testing.fakes import openai_responses as responses_rules
from swink_agent.testing.servers import LoopbackServer, answer
from tests.wire.exchanges import body_of, load

CLAUDE = "anthropic:claude-sonnet-4-6"
ON = StreamOptions(web_search=True)


@tool
def clock() -> str:
    """The time."""
    return "noon"


@tool
def web_search(query: str) -> str:
    """Another search."""
    return query


RESULTS = [{"type": "web_search_result", "url": "https://a.example/1", "title": "A", "encrypted_content": "EqgfCio="}]
SOURCES = "\n\nSources:\n- Time in Oslo: https://a.example/1"


def served(api: str, case: str) -> Any:
    return answer(body_of(api, load(api, f"{case}.reply")), pieces=9)


def bodies(server: LoopbackServer) -> list[dict[str, Any]]:
    return [json.loads(request.body) for request in server.requests]


async def test_claude_searches_and_gets_its_searches_back() -> None:
    async with LoopbackServer(served("anthropic", "web_search"), served("anthropic", "text")) as server:
        agent = Agent(CLAUDE, tools=[clock], stream_fn=AnthropicStreamFn(server.url, "key"), stream_options=ON)
        result = await agent.prompt("What time is it in Oslo?")
        assert result.text == "Noon."
        await agent.prompt("thanks", stream_options=StreamOptions())
    asked, answered, without = bodies(server)
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    assert [each.get("type") for each in asked["tools"]] == [None, "web_search_20250305"]
    assert asked["tools"][-1] == {**search, "cache_control": {"type": "ephemeral"}}
    sent = answered["messages"][1]["content"]
    assert sent[:2] == [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "oslo time"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": RESULTS},
    ]
    assert [block["type"] for block in sent[2:]] == ["text", "text", "tool_use"]
    assert [anthropic_rules.problems(body) for body in (asked, answered, without)] == [[], [], []]
    reply: Any = agent.messages[1]
    assert reply.text == f"It is noon.{SOURCES}"
    assert [block.thinking for block in reply.content if isinstance(block, Thinking)] == [
        "Searched the web: oslo time\n"
    ]
    assert (reply.usage.extra, reply.cost.extra) == ({"web_searches": 2}, {"web_searches": 0.02})
    assert reply.cost.total > 0.02
    # Without the tool, the searches stay behind.
    assert [block["type"] for block in without["messages"][1]["content"]] == ["text", "text", "tool_use"]


async def test_a_search_without_results_and_unknown_blocks_do_no_harm() -> None:
    async with LoopbackServer(served("anthropic", "web_search_of_other_blocks")) as server:
        agent = Agent(CLAUDE, stream_fn=AnthropicStreamFn(server.url, "key"), stream_options=ON)
        await agent.prompt("hi")
    reply: Any = agent.messages[1]
    assert reply.content == (Text("ok"),)


async def test_an_error_of_a_search_goes_back_too() -> None:
    error = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    async with LoopbackServer(served("anthropic", "web_search_failed")) as server:
        agent = Agent(CLAUDE, stream_fn=AnthropicStreamFn(server.url, "key"), stream_options=ON)
        await agent.prompt("hi")
        await agent.prompt("again")
    sent = bodies(server)[1]["messages"][1]["content"]
    assert sent[0]["input"] == {"query": "x"}
    assert sent[1]["content"] == error


async def test_openai_searches_and_names_the_sources_that_the_text_does_not() -> None:
    text = "Noon ([a](https://a.example/1))."
    async with LoopbackServer(served("openai-responses", "web_search")) as server:
        stream_fn = OpenAiResponsesStreamFn(server.url, "key")
        agent = Agent("openai-responses:gpt-5", tools=[clock], stream_fn=stream_fn, stream_options=ON)
        result = await agent.prompt("What time is it?")
        await agent.prompt("again")
    assert result.text == f"{text}\n\nSources:\n- B: https://b.example/2"
    assert (result.usage.extra, result.cost.extra) == ({"web_searches": 1}, {"web_searches": 0.01})
    reply: Any = agent.messages[1]
    assert reply.content[0] == Thinking("Searched the web: x\n")
    asked, again = bodies(server)
    assert asked["tools"][-1] == {"type": "web_search"}
    assert [responses_rules.problems(body) for body in (asked, again)] == [[], []]


async def test_gemini_searches_and_gets_its_searches_back() -> None:
    ran, gave = load("gemini", "web_search.reply")[0]["candidates"][0]["content"]["parts"]
    async with LoopbackServer(served("gemini", "web_search"), served("gemini", "web_search_sources")) as server:
        stream_fn = GeminiStreamFn(server.url, "key")
        agent = Agent("gemini:gemini-3-flash-preview", tools=[clock], stream_fn=stream_fn, stream_options=ON)
        result = await agent.prompt("What time is it in Oslo?")
        await agent.prompt("thanks", stream_options=StreamOptions())
    asked, answered, without = bodies(server)
    assert asked["tools"][1] == {"googleSearch": {}}
    assert asked["toolConfig"] == {"includeServerSideToolInvocations": True}
    sent = answered["contents"][1]["parts"]
    assert sent[:2] == [ran, gave]
    assert "functionCall" in sent[2]
    assert ["functionCall" in part for part in without["contents"][1]["parts"]] == [True]
    unsigned = [problem for body in (asked, answered, without) for problem in gemini_rules.problems(body)]
    assert [problem for problem in unsigned if "thought signature" not in problem] == []
    assert result.text == "Noon.\n\nSources:\n- a.example: https://a.example/1"
    assert result.usage.extra["web_searches"] == 2
    reply: Any = agent.messages[1]
    assert reply.content[0].thinking == "Searched the web: time\n"
    assert result.cost.extra == {"web_searches": 0.028}


async def test_other_providers_are_sent_no_searches() -> None:
    kept = Thinking("", 'search:[{"type": "server_tool_use", "id": "srvtoolu_1"}]')
    history = [UserMessage("a"), _reply(kept, Text("b")), UserMessage("c")]
    for stream_fn, model in (
        (GeminiStreamFn("http://127.0.0.1:9", "key"), ModelSpec("gemini", "gemini-3-flash-preview")),
        (OpenAiResponsesStreamFn("http://127.0.0.1:9", "key"), ModelSpec("openai-responses", "gpt-5")),
        (OpenAiStreamFn("http://127.0.0.1:9", "key"), ModelSpec("openai", "gpt-5")),
    ):
        request = stream_fn.build(model, AgentContext("", history), ON)
        assert b"srvtoolu_1" not in request.body


def _reply(*blocks: Any) -> AssistantMessage:
    return AssistantMessage(blocks, "anthropic", "claude-sonnet-4-6")


@pytest.mark.table
@pytest.mark.parametrize(
    ("stream_fn", "model", "tools", "why"),
    [
        (OpenAiStreamFn, "openai:gpt-5", [], "openai cannot do it for gpt-5"),
        (AnthropicStreamFn, "anthropic:qwen3", [], "anthropic cannot do it for qwen3"),
        (AnthropicStreamFn, CLAUDE, [web_search], "a tool is called web_search"),
        (
            OpenAiResponsesStreamFn,
            "openai-responses:gpt-4.1-nano",
            [],
            "openai-responses cannot do it for gpt-4.1-nano",
        ),
        (
            GeminiStreamFn,
            "gemini:gemini-2.5-flash",
            [clock],
            "gemini cannot do it for gemini-2.5-flash next to other tools",
        ),
    ],
)
async def test_where_it_cannot_be_used_one_warning_says_so(
    stream_fn: Any, model: str, tools: list[Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()  # the rows share it
    async with LoopbackServer(answer(b"", status=400)) as server:
        made = stream_fn(server.url, "key")
        context = AgentContext("", [UserMessage("hi")], tuple(tools))
        for _ in range(2):
            [event async for event in made(ModelSpec.parse(model), context, ON, CancellationToken())]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [f"web_search is not used: {why}"]
    for body in bodies(server):
        assert "web_search_20250305" not in json.dumps(body)
        assert "googleSearch" not in json.dumps(body)


async def test_a_structured_reply_is_not_searched_for() -> None:
    options = StreamOptions(web_search=True, output_schema={"type": "object", "properties": {}})
    async with LoopbackServer(served("anthropic", "text")) as server:
        made = AnthropicStreamFn(server.url, "key")
        context = AgentContext("", [UserMessage("hi")])
        [event async for event in made(ModelSpec.parse(CLAUDE), context, options, CancellationToken())]
    assert "tools" not in bodies(server)[0]


def test_sources_are_few_short_and_of_the_web() -> None:
    sources = Sources()
    for number in range(50):
        sources.add(f"https://x.example/{number}", "t" * 500)
    for wrong in ("ftp://x", "https://x y", "https://x\u200b.example", 7, "https://" + "x" * 3000):
        sources.add(wrong, "title")
    lines = sources.take().splitlines()
    assert (len(lines), max(map(len, lines)) < 160, sources.take()) == (23, True, "")


def test_only_a_switch_turns_it_on() -> None:
    with pytest.raises(TypeError, match="web_search"):
        StreamOptions(web_search="yes")  # type: ignore[arg-type]
