"""Documents at every provider: what is sent, what is refused, and that none makes a conversation unusable."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent import (
    Agent,
    AgentContext,
    AgentMessage,
    AgentToolResult,
    AssistantMessage,
    Base64Source,
    CancellationToken,
    Document,
    ErrorKind,
    FileSource,
    ModelSpec,
    StreamFailed,
    StreamOptions,
    Text,
    ToolCall,
    ToolResultMessage,
    UrlSource,
    UserMessage,
    tool,
)
from swink_agent.adapters import ProxyStreamFn
from swink_agent.adapters.bedrock import DocumentNames
from swink_agent.adapters.kit.outgoing import refused_files
from swink_agent.adapters.proxy_server import ProxyServer
from swink_agent.core.exchanges import repair_pairs
from swink_agent.local import LocalStreamFn
from swink_agent.local.prompt.text import turns
from swink_agent.testing import scripted
from swink_agent.testing.fakes import APIS, FakeProvider, FakeReply
from swink_agent.testing.fakes.provider import _APIS

from .each_provider import adapter_at, model_of

PDF = b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\n"
DATA = base64.b64encode(PDF).decode()
DATA_URL = f"data:application/pdf;base64,{DATA}"
REPORT = Document(Base64Source("application/pdf", DATA), "Q3 report.pdf")
LINKED = Document(UrlSource("https://a.example/papers/17.pdf?v=2"))
TAKERS = ("anthropic", "openai", "openai-responses", "gemini", "bedrock")
OTHERS = [api for api in APIS if api not in TAKERS]
NOTE = "[document Q3 report.pdf left out: this model takes no documents]"

SENT: dict[str, Any] = {
    "anthropic": {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": DATA},
        "title": "Q3 report.pdf",
    },
    "openai": {"type": "file", "file": {"filename": "Q3 report.pdf", "file_data": DATA_URL}},
    "openai-responses": {"type": "input_file", "filename": "Q3 report.pdf", "file_data": DATA_URL},
    "gemini": {"inlineData": {"mimeType": "application/pdf", "data": DATA}},
    "bedrock": {"document": {"format": "pdf", "name": "Q3 report", "source": {"bytes": DATA}}},
}
"""What each provider is sent for `REPORT`."""

LEFT_OUT = "[document 17.pdf left out: this provider is given the data of documents, not their URLs]"
SENT_BY_URL: dict[str, Any] = {
    "anthropic": {"type": "document", "source": {"type": "url", "url": "https://a.example/papers/17.pdf?v=2"}},
    "openai": {"type": "text", "text": LEFT_OUT},
    "openai-responses": {"type": "input_file", "file_url": "https://a.example/papers/17.pdf?v=2"},
    "gemini": {"fileData": {"fileUri": "https://a.example/papers/17.pdf?v=2", "mimeType": "application/pdf"}},
    "bedrock": {"text": LEFT_OUT},
}
"""What each provider is sent for `LINKED`."""


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "OLLAMA_HOST", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDFAKE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "fake-key")
    return iter(())


def agent_at(fake: FakeProvider, **options: Any) -> Agent:
    return Agent(model_of(fake.api), stream_fn=adapter_at(fake.api, fake.url, fake.key), **options)


def parts_of(body: dict[str, Any]) -> list[Any]:
    """All content parts of a request, those inside tool results included."""
    found: list[Any] = []
    waiting: list[Any] = [body.get("messages") or body.get("input") or body.get("contents")]
    while waiting:
        item = waiting.pop(0)
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, dict):
            found.append({name: value for name, value in item.items() if name != "cache_control"})
            waiting += [item[name] for name in ("content", "parts", "output") if isinstance(item.get(name), list)]
            waiting += [item[name] for name in ("toolResult", "functionResponse") if name in item]
    return found


def words_of(body: dict[str, Any]) -> str:
    return msgspec.json.encode(body).decode()


# -- the table -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", TAKERS)
@pytest.mark.parametrize(("document", "sent"), [(REPORT, SENT), (LINKED, SENT_BY_URL)], ids=["data", "url"])
@pytest.mark.table
async def test_a_document_of_the_user_is_sent(api: str, document: Document, sent: dict[str, Any]) -> None:
    async with FakeProvider(api, ["It is about cats."]) as fake:
        result = await agent_at(fake).prompt("What is it about?", documents=[document])
    assert (result.error, fake.rejections) == (None, [])
    assert sent[api] in parts_of(fake.bodies[0])


@pytest.mark.parametrize("api", TAKERS)
async def test_a_document_alone_is_a_prompt(api: str) -> None:
    async with FakeProvider(api, ["Yes."]) as fake:
        result = await agent_at(fake).prompt("", documents=[REPORT, PDF])
    assert (result.error, fake.rejections) == (None, [])
    assert SENT[api] in parts_of(fake.bodies[0])


def two_turns(result: ToolResultMessage) -> list[AgentMessage]:
    call = AssistantMessage((ToolCall("call_1", "fetch", {}),))
    return [UserMessage("Fetch it."), call, result]


@pytest.mark.parametrize("api", TAKERS)
@pytest.mark.parametrize("is_error", [False, True])
@pytest.mark.parametrize("content", [(Text("here it is"), REPORT), (REPORT,)], ids=["with text", "alone"])
@pytest.mark.table
async def test_a_document_of_a_tool_is_sent(api: str, is_error: bool, content: tuple[Any, ...]) -> None:
    result = ToolResultMessage("call_1", content, is_error=is_error, tool_name="fetch")
    async with FakeProvider(api, ["It is about cats."]) as fake:
        answer = await agent_at(fake, messages=two_turns(result)).continue_loop()
    assert (answer.error, fake.rejections) == (None, [])
    assert SENT[api] in parts_of(fake.bodies[0])


async def test_gemini_before_3_is_sent_the_document_of_a_tool_behind_the_result() -> None:
    result = ToolResultMessage("call_1", (REPORT,), tool_name="fetch")
    async with FakeProvider("gemini", ["It is about cats."]) as fake:
        agent = Agent(
            "gemini:gemini-2.5-flash", stream_fn=adapter_at("gemini", fake.url, fake.key), messages=two_turns(result)
        )
        assert (await agent.continue_loop()).error is None
    *_, last = fake.bodies[0]["contents"]
    assert last["parts"][0]["functionResponse"]["response"] == {"output": "(see the document)"}
    assert last["parts"][1:] == [{"text": "Document from fetch:"}, SENT["gemini"]]


@pytest.mark.parametrize("api", OTHERS)
async def test_unsupported_new_documents_are_refused_and_old_ones_become_notes(api: str) -> None:
    async with FakeProvider(api, ["Hello.", "Hello again."]) as fake:
        agent = agent_at(fake)
        refused = await agent.prompt("What is it about?", documents=[REPORT])
        assert (refused.error_kind, fake.bodies) == (ErrorKind.INVALID_REQUEST, [])
        assert refused.error is not None
        assert refused.error.startswith(f"{api} takes no documents, so 'Q3 report.pdf' was not sent")
        assert (await agent.continue_loop()).error_kind == ErrorKind.INVALID_REQUEST  # it asks the same again
        assert fake.bodies == []

        assert (await agent.prompt("Then just say hello.")).text == "Hello."
        assert (await agent.prompt("Again.")).text == "Hello again."
    assert fake.rejections == []
    for body in fake.bodies:
        assert NOTE in words_of(body)
        assert DATA not in words_of(body)


@pytest.mark.parametrize("api", OTHERS)
async def test_elsewhere_a_document_of_a_tool_is_refused_once(api: str) -> None:
    @tool
    def fetch() -> AgentToolResult:
        """Fetches it."""
        return AgentToolResult([REPORT])

    async with FakeProvider(api, [FakeReply(calls=[("fetch", {})]), "Hello."]) as fake:
        agent = agent_at(fake, tools=[fetch])
        refused = await agent.prompt("Fetch it.")
        assert (refused.error_kind, len(fake.bodies)) == (ErrorKind.INVALID_REQUEST, 1)
        assert (await agent.prompt("Never mind.")).text == "Hello."
    assert fake.rejections == []
    assert NOTE in words_of(fake.bodies[-1])


async def test_the_local_model_refuses_a_new_document_and_reads_a_note_for_an_old_one() -> None:
    model, options = ModelSpec("local", "default"), StreamOptions()
    context = AgentContext("", (UserMessage((Text("Look"), REPORT)),))
    events = [event async for event in LocalStreamFn()(model, context, options, CancellationToken())]
    assert events == [
        StreamFailed(
            "local takes no documents, so 'Q3 report.pdf' was not sent: leave it out, or choose a model that takes "
            "documents",
            ErrorKind.INVALID_REQUEST,
        )
    ]
    old = [UserMessage((Text("Look"), REPORT)), AssistantMessage("Yes."), UserMessage("And?")]
    assert turns(old, with_tools=False, result_characters=500)[0].texts == (("user", f"Look\n{NOTE}"),)


async def test_a_model_of_openai_without_eyes_takes_no_documents() -> None:
    async with FakeProvider("openai", ["Hello."]) as fake:
        agent = Agent("openai:o3-mini", stream_fn=adapter_at("openai", fake.url, fake.key))
        refused = await agent.prompt("What is it about?", documents=[REPORT])
        assert refused.error_kind == ErrorKind.INVALID_REQUEST
        assert refused.error is not None
        assert refused.error.startswith("openai:o3-mini takes no documents")
        assert (await agent.prompt("Hello.")).text == "Hello."
    assert NOTE in words_of(fake.bodies[0])


# -- files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", TAKERS)
async def test_a_file_is_read_for_the_first_request(api: str, tmp_path: Path) -> None:
    path = tmp_path / "Q3 report.pdf"
    path.write_bytes(PDF)
    async with FakeProvider(api, ["Yes.", "Yes."]) as fake:
        agent = agent_at(fake)
        await agent.prompt("Look", documents=[Document(FileSource(str(path)))])
        path.unlink()
        await agent.prompt("Again")
    assert fake.rejections == []
    for body in fake.bodies:
        assert SENT[api] in parts_of(body)


@pytest.mark.parametrize("api", TAKERS)
@pytest.mark.parametrize("what", ["missing", "text", "empty"])
async def test_a_file_that_is_not_there_is_a_note(api: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "gone.pdf"
    if what != "missing":
        path.write_text("" if what == "empty" else "hello")
    async with FakeProvider(api, ["Yes."]) as fake:
        result = await agent_at(fake).prompt(UserMessage([Text("Look"), Document(FileSource(str(path)))]))
    assert (result.error, fake.rejections) == (None, [])
    assert "[document missing: gone.pdf " in words_of(fake.bodies[0])


# -- bedrock's names -----------------------------------------------------------------------------------------


def test_bedrock_is_given_names_that_it_takes_and_none_twice() -> None:
    names = DocumentNames()
    given_names = ["Q3_report.v2.pdf", "q3-Report-V2.pdf", "分期.pdf", "", "John's  big\nfile (1) [a].pdf", "-.pdf"]
    documents = [Document(Base64Source("application/pdf", DATA), name) for name in given_names]
    assert [names(document) for document in documents] == [
        "Q3-report-v2",
        "q3-Report-V2 2",
        "document",
        "document 2",
        "John-s big file (1) [a]",
        "document 3",
    ]


async def test_the_same_document_twice_does_not_break_a_conversation_at_bedrock() -> None:
    async with FakeProvider("bedrock", ["Yes."] * 3) as fake:
        agent = agent_at(fake)
        for _ in range(3):
            assert (await agent.prompt("Look", documents=[REPORT, REPORT])).error is None
    assert fake.rejections == []
    first, *_, last = fake.bodies
    assert last["messages"][: len(first["messages"])][0]["content"][:3] == first["messages"][0]["content"][:3]


# -- the proxy -----------------------------------------------------------------------------------------------


async def test_a_proxy_passes_documents_on(tmp_path: Path) -> None:
    path = tmp_path / "report.pdf"
    path.write_bytes(PDF)
    upstream = scripted("Yes.")
    async with ProxyServer({"t": 1}, lambda model: upstream).serve() as url:
        agent = Agent("any:model", stream_fn=ProxyStreamFn(url, "t"))
        assert (await agent.prompt("Look", documents=[FileSource(str(path)), REPORT])).text == "Yes."
    sent = upstream.requests[0].messages[0]
    assert isinstance(sent, UserMessage)
    assert sent.content[1:] == (Document(Base64Source("application/pdf", DATA), "report.pdf"), REPORT)


async def test_behind_a_proxy_too_a_document_is_refused_once() -> None:
    async with FakeProvider("mistral", ["Hello."]) as fake:
        adapter = adapter_at("mistral", fake.url, fake.key)
        async with ProxyServer({"t": 1}, lambda model: adapter).serve() as url:
            agent = Agent(model_of("mistral"), stream_fn=ProxyStreamFn(url, "t"))
            assert (await agent.prompt("Look", documents=[REPORT])).error_kind == ErrorKind.INVALID_REQUEST
            assert (await agent.prompt("Say hello.")).text == "Hello."
    assert fake.rejections == []


async def test_a_file_of_another_machine_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "secret.pdf"
    path.write_bytes(PDF)
    (message,) = refused_files([UserMessage((Document(FileSource(str(path))),))])
    assert isinstance(message, UserMessage)
    assert message.content == (Text("[document left out: it is a file on another machine]"),)


# -- any history ---------------------------------------------------------------------------------------------

NAMES = st.one_of(st.just(""), st.sampled_from(["a.pdf", "A.pdf", "x" * 300, "\n", "é/ü"]), st.text(max_size=20))
SOURCES = st.one_of(
    st.just(Base64Source("application/pdf", DATA)),
    st.sampled_from([UrlSource("https://a.example/b.pdf"), UrlSource(DATA_URL), FileSource("/nowhere/b.pdf")]),
)
DOCUMENTS = st.builds(Document, SOURCES, NAMES)
BLOCKS = st.lists(
    st.one_of(DOCUMENTS, st.builds(Text, st.text(min_size=1, max_size=9).filter(str.strip))), min_size=1, max_size=3
)
EXCHANGES = st.lists(
    st.one_of(
        st.builds(lambda blocks: [UserMessage(blocks)], BLOCKS),
        st.just([AssistantMessage("Yes.")]),
        st.builds(
            lambda call_id, blocks, is_error: [
                AssistantMessage((ToolCall(call_id, "fetch", {}),)),
                ToolResultMessage(call_id, blocks, is_error=is_error, tool_name="fetch"),
            ],
            st.uuids().map(lambda uuid: f"call_{uuid.hex}"),
            BLOCKS,
            st.booleans(),
        ),
    ),
    max_size=6,
)


@pytest.mark.parametrize("api", APIS)
@settings(max_examples=40)
@given(exchanges=EXCHANGES)
def test_any_history_with_documents_is_accepted_by_every_provider(api: str, exchanges: list[list[Any]]) -> None:
    history = [message for exchange in exchanges for message in exchange]
    messages = repair_pairs([UserMessage("Hello."), *history, AssistantMessage("Well."), UserMessage("And now?")])
    adapter, model = adapter_at(api, "https://example.com/v1", "k"), model_of(api)

    async def body() -> dict[str, Any]:
        context = await adapter.prepared(model, AgentContext("", messages))
        return msgspec.json.decode(adapter.build(model, context, StreamOptions()).body)

    built = asyncio.run(body())
    assert _APIS[api].problems(built, model.model_id) == []
    if api not in TAKERS:
        assert DATA not in words_of(built)
