"""Parts of a conversation that cannot be sent: the request is sent, with a note instead."""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentContext,
    AgentMessage,
    AssistantMessage,
    Base64Image,
    CancellationToken,
    ErrorKind,
    Extension,
    FileImage,
    Image,
    ModelSpec,
    StreamFailed,
    StreamOptions,
    Text,
    ToolCall,
    ToolResultMessage,
    UrlImage,
    UserMessage,
)
from swink_agent.adapters import (
    AnthropicStreamFn,
    AzureStreamFn,
    BedrockStreamFn,
    GeminiStreamFn,
    MistralStreamFn,
    OllamaStreamFn,
    OpenAiResponsesStreamFn,
    OpenAiStreamFn,
    ProxyStreamFn,
    XAiStreamFn,
)
from swink_agent.adapters.kit.images import MOST_IMAGE_BYTES, Note, Picture, picture
from swink_agent.adapters.kit.outgoing import OutgoingMessages
from swink_agent.adapters.proxy_server import ProxyServer
from swink_agent.testing import scripted, text
from swink_agent.testing.servers import LoopbackServer, answer

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
ADAPTERS: dict[str, Callable[[str], Any]] = {
    "anthropic": lambda url: AnthropicStreamFn(url, "k"),
    "openai": lambda url: OpenAiStreamFn(url, "k"),
    "openai-responses": lambda url: OpenAiResponsesStreamFn(url, "k"),
    "azure": lambda url: AzureStreamFn(url, "k"),
    "xai": lambda url: XAiStreamFn(url, "k"),
    "mistral": lambda url: MistralStreamFn(url, "k"),
    "gemini": lambda url: GeminiStreamFn(url, "k"),
    "ollama": OllamaStreamFn,
    "bedrock": lambda url: BedrockStreamFn("us-east-1", url),
    "proxy": lambda url: ProxyStreamFn(url, "k"),
}


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)


async def bodies_sent(adapter: str, *histories: list[AgentMessage], model: str = "some-model") -> list[str]:
    """What reaches the server for each history, asked by one and the same adapter."""
    async with LoopbackServer(answer("{}", status=400, content_type="application/json")) as server:
        stream_fn = ADAPTERS[adapter](server.url)
        for history in histories:
            context = AgentContext("", history)
            spec = ModelSpec(adapter, model)
            events = [event async for event in stream_fn(spec, context, StreamOptions(), CancellationToken())]
            assert [event.kind for event in events if isinstance(event, StreamFailed)] == [ErrorKind.INVALID_REQUEST]
        return [request.body.decode() for request in server.requests]


def history_with(*blocks: Any) -> list[AgentMessage]:
    """The blocks in a user's message and in a tool's result."""
    return [
        UserMessage([Text("Look at this"), *blocks]),
        AssistantMessage([ToolCall("a12345678", "shot", {})], "x", "y"),
        ToolResultMessage("a12345678", [Text("Taken"), *blocks], tool_name="shot"),
        UserMessage("What is it?"),
    ]


def problems_in(adapter: str, body: str) -> list[str]:
    """What the provider would reject, by its strict fake."""
    if adapter == "proxy":
        return []
    api = importlib.import_module(f"swink_agent.testing.fakes.{adapter.replace('-', '_')}").API
    return api.problems(json.loads(body), "some-model")


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_note_stands_in_place_of_a_picture_that_is_gone(adapter: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(PNG)
    history = history_with(Image(FileImage(str(path))))
    path.unlink()
    (body,) = await bodies_sent(adapter, history)
    assert body.count("[image missing: photo.png could not be read: No such file or directory]") == 2
    assert str(tmp_path) not in body
    assert problems_in(adapter, body) == []


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_picture_that_was_sent_once_is_not_read_again(adapter: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(PNG)
    history = history_with(Image(FileImage(str(path))))
    data = base64.b64encode(PNG).decode()
    async with LoopbackServer(answer("{}", status=400, content_type="application/json")) as server:
        stream_fn = ADAPTERS[adapter](server.url)
        for _ in range(2):
            stream = stream_fn(ModelSpec(adapter, "m"), AgentContext("", history), StreamOptions(), CancellationToken())
            assert [event async for event in stream]
            path.unlink(missing_ok=True)
    first, second = [request.body for request in server.requests]
    assert first == second
    assert first.decode().count(data) == 2


@pytest.mark.parametrize("adapter", ["ollama", "bedrock"])
async def test_a_note_stands_in_place_of_a_url_where_only_data_is_taken(adapter: str) -> None:
    (body,) = await bodies_sent(adapter, history_with(Image(UrlImage("https://host/a.png"))))
    assert body.count("[image left out: ") == 2
    assert "https://host/a.png" in body
    assert problems_in(adapter, body) == []


@pytest.mark.table
@pytest.mark.parametrize("adapter", [name for name in ADAPTERS if name != "proxy"])
async def test_a_note_stands_in_place_of_a_block_of_a_newer_version(adapter: str) -> None:
    alone: list[AgentMessage] = [UserMessage([Extension("hologram", {"secret": "data"})])]
    within, by_itself = await bodies_sent(adapter, history_with(Extension("hologram", {"secret": "data"})), alone)
    assert within.count("a block of the type 'hologram' was here, which cannot be sent") == 2
    assert by_itself.count("hologram") == 1
    assert "secret" not in within
    assert problems_in(adapter, within) == problems_in(adapter, by_itself) == []


@pytest.mark.parametrize(
    ("adapter", "model"),
    [("openai", "gpt-3.5-turbo"), ("mistral", "codestral-latest"), ("bedrock", "amazon.nova-micro-v1:0")],
)
async def test_a_model_without_images_gets_a_note_instead(adapter: str, model: str) -> None:
    (body,) = await bodies_sent(adapter, history_with(Image(Base64Image("image/png", "aGk="))), model=model)
    assert body.count("[image left out: this model takes no images]") == 2
    assert "aGk=" not in body


@pytest.mark.parametrize("adapter", ["openai", "anthropic", "ollama"])
async def test_a_model_that_nobody_knows_is_shown_them(adapter: str) -> None:
    (body,) = await bodies_sent(adapter, history_with(Image(Base64Image("image/png", "aGk="))), model="my-own-model")
    assert body.count("aGk=") == 2


# -- files -----------------------------------------------------------------------------------------------------------


def note_of(path: Path, media_type: str | None = None) -> str:
    found = picture(Image(FileImage(str(path), media_type)))
    assert isinstance(found, Note), found
    return found.text


def test_a_false_picture_is_reported_as_such(tmp_path: Path) -> None:
    page = tmp_path / "page.png"
    page.write_text("<html><body>This page could not be found, sorry.</body></html>")
    words = tmp_path / "notes.txt"
    words.write_text("short")
    empty = tmp_path / "empty.png"
    empty.touch()
    assert note_of(page) == "[image missing: page.png is not an image]"
    assert note_of(words) == "[image missing: notes.txt is not an image]"
    assert note_of(empty) == "[image missing: empty.png is empty]"
    assert note_of(tmp_path) == f"[image missing: {tmp_path.name} is a folder]"
    assert "is not a valid file name" in note_of(Path("a\0b.png"))
    assert "is not an ordinary file" in note_of(Path("/dev/zero"))


def test_a_picture_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.png"
    with path.open("wb") as file:
        file.write(PNG)
        file.truncate(MOST_IMAGE_BYTES + 1)
    assert note_of(path) == "[image missing: huge.png is larger than 20 MB]"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.png"
    os.mkfifo(path)
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(note_of(path)), daemon=True)
    thread.start()
    thread.join(30)
    assert found == ["[image missing: pipe.png is not an ordinary file]"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_picture_that_may_not_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    path = tmp_path / "mine.png"
    path.write_bytes(PNG)
    path.chmod(0)
    assert note_of(path) == "[image missing: mine.png could not be read: Permission denied]"


def test_a_picture_is_called_what_its_bytes_say(tmp_path: Path) -> None:
    path = tmp_path / "wrong.jpg"
    path.write_bytes(PNG)
    found = picture(Image(FileImage(str(path))))
    assert isinstance(found, Picture)
    assert found.media_type == "image/png"
    nameless = tmp_path / "screenshot"
    nameless.write_bytes(b"\xff\xd8\xff\xe0" + bytes(40))
    assert picture(Image(FileImage(str(nameless)))) == ("image/jpeg", base64.b64encode(nameless.read_bytes()).decode())


# -- the proxy ---------------------------------------------------------------------------------------------------------


async def test_the_proxy_is_sent_pictures_and_reads_no_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(PNG)
    upstream = scripted(text("seen"))
    async with ProxyServer({"token": 1}, lambda model: upstream).serve() as url:
        agent = Agent("proxy:test:model", stream_fn=ProxyStreamFn(url, "token"))
        assert (await agent.prompt("Look", images=[FileImage(str(path))])).text == "seen"
        (message,) = upstream.requests[0].context.messages
        assert message.content == (Text("Look"), Image(Base64Image("image/png", base64.b64encode(PNG).decode())))


async def test_a_path_in_a_request_to_the_proxy_is_not_read_there(tmp_path: Path) -> None:
    import aiohttp

    path = tmp_path / "secret.png"
    path.write_bytes(PNG)
    upstream = scripted(text("seen"))
    message = {"role": "user", "content": [{"type": "image", "source": {"type": "file", "path": str(path)}}]}
    asked = {"model": {"provider": "test", "model_id": "m"}, "messages": [{**message, "timestamp": 1}]}
    async with (
        ProxyServer({"token": 1}, lambda model: upstream).serve() as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/stream", json=asked, headers={"authorization": "Bearer token"}) as response,
    ):
        assert b"seen" in await response.read()
    (received,) = upstream.requests[0].context.messages
    assert received.content == (Text("[image left out: it is a file on another machine]"),)


# -- the system prompt -----------------------------------------------------------------------------------------------


async def later() -> str:
    await asyncio.sleep(0)
    return "Be very brief."


@pytest.mark.table
@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("prompt", [lambda: "Be very brief.", later], ids=["plain", "async"])
async def test_a_prompt_that_is_a_function_is_sent_as_its_text(adapter: str, prompt: Any) -> None:
    async with LoopbackServer(answer("{}", status=400, content_type="application/json")) as server:
        context = AgentContext(prompt, [UserMessage("hi")])
        stream = ADAPTERS[adapter](server.url)(ModelSpec(adapter, "m"), context, StreamOptions(), CancellationToken())
        assert [event async for event in stream]
        assert "Be very brief." in server.requests[0].body.decode()


@pytest.mark.table
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_half_of_a_character_is_replaced_wherever_it_is(adapter: str) -> None:
    async with LoopbackServer(answer("{}", status=400, content_type="application/json")) as server:
        messages = [
            UserMessage([Text("What is /home/caf\udce9?")]),
            AssistantMessage([ToolCall("c1", "look", {"at": "/home/b\udce9"})]),
            ToolResultMessage("c1", [Text("n\udce9e")], tool_name="look"),
        ]
        context = AgentContext("You work in /home/caf\udce9.", messages)
        stream = ADAPTERS[adapter](server.url)(ModelSpec(adapter, "m"), context, StreamOptions(), CancellationToken())
        assert [event async for event in stream]
        body = server.requests[0].body.decode()
        assert all(text in body for text in ("You work in /home/caf?.", "What is /home/caf??", "/home/b?", "n?e"))


def fails() -> str:
    raise RuntimeError("no idea today")


@pytest.mark.table
@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize(
    ("prompt", "words"),
    [(lambda: None, "gave nothing"), (lambda: 7, "of the type int"), (fails, "no idea today")],
    ids=["nothing", "a number", "an exception"],
)
async def test_a_prompt_that_gives_no_text_is_an_error_before_the_request(
    adapter: str, prompt: Any, words: str
) -> None:
    async with LoopbackServer(answer("{}", status=400)) as server:
        context = AgentContext(prompt, [UserMessage("hi")])
        stream = ADAPTERS[adapter](server.url)(ModelSpec(adapter, "m"), context, StreamOptions(), CancellationToken())
        (failed,) = [event async for event in stream]
        assert (failed.kind, server.requests) == (ErrorKind.INVALID_REQUEST, [])
        assert "the system prompt" in failed.message
        assert words in failed.message


# -- ids that recur ------------------------------------------------------------------------------------------


def turn_of(provider: str, model_id: str, *ids: str) -> list[AgentMessage]:
    calls = [ToolCall(call_id, "look") for call_id in ids]
    return [AssistantMessage(calls, provider, model_id), *[ToolResultMessage(call_id, "seen") for call_id in ids]]


def ids_in(messages: Any) -> list[tuple[str, ...]]:
    """The ids of each reply, which are those of the results that follow it."""
    found: list[tuple[str, ...]] = []
    results: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            found.append(tuple(call.id for call in message.tool_calls))
        elif isinstance(message, ToolResultMessage):
            results.append(message.tool_call_id)
    assert results == [call_id for ids in found for call_id in ids]
    return found


async def test_ids_that_recur_become_different_and_stay_the_same_from_request_to_request() -> None:
    outgoing = OutgoingMessages()
    messages = [*turn_of("a", "m", "x", "y"), *turn_of("a", "m", "x", "z"), *turn_of("b", "m", "x", "x")]
    sent = await outgoing.prepare(messages, lambda: True)
    first, second, third = ids_in(sent)
    assert (first, second[1]) == (("x", "y"), "z")
    assert len({*first, *second, *third}) == 6
    longer = await outgoing.prepare([*messages, *turn_of("a", "m", "x")], lambda: True)
    assert all(new is old for new, old in zip(longer, sent, strict=False)), "what was encoded once is not again"
    unlike = [*turn_of("a", "m", "x"), *turn_of("a", "m", "y")]
    assert await outgoing.prepare(unlike, lambda: True) is unlike


async def test_a_model_gets_back_the_recurring_ids_that_it_gave_itself() -> None:
    asked = ModelSpec("openai", "kimi")
    messages = [*turn_of("other", "m", "x:0"), *turn_of("openai", "kimi", "x:0"), *turn_of("openai", "kimi", "x:0")]
    sent = await OutgoingMessages().prepare(messages, lambda: True, keeps_ids_of=asked)
    others, *own = ids_in(sent)
    assert own == [("x:0",), ("x:0",)]
    assert others != ("x:0",)
