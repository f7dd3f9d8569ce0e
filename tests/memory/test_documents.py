"""Documents in sessions: stored, reloaded, found, summarized and exported; none makes a session unusable."""

from __future__ import annotations

import base64
from pathlib import Path

from swink_agent import (
    Agent,
    AgentToolResult,
    Base64Source,
    Document,
    ErrorKind,
    FileSource,
    Text,
    ToolResultMessage,
    UrlSource,
    UserMessage,
    estimate_tokens,
    tool,
)
from swink_agent.adapters import MistralStreamFn
from swink_agent.memory import JsonlSessionStore, export_html, export_markdown
from swink_agent.memory.compaction.summary_text import record_of
from swink_agent.memory.search.words import text_of
from swink_agent.testing import call, scripted
from swink_agent.testing.fakes import FakeProvider

PDF = b"%PDF-1.4\n1 0 obj <</Type /Catalog>> endobj\n%\n"
REPORT = Document(Base64Source("application/pdf", base64.b64encode(PDF).decode()), "Q3 <report>.pdf")
LINKED = Document(UrlSource("https://a.example/b.pdf"))
LOCAL = Document(FileSource("/tmp/c.pdf"))


@tool
def fetch() -> AgentToolResult:
    """Fetches it."""
    return AgentToolResult([Text("here"), REPORT])


async def test_documents_are_stored_reloaded_and_exported(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    agent = Agent("any:model", stream_fn=scripted(call("fetch"), "Done."), tools=[fetch])
    with store.create() as session:
        session.attach(agent)
        await agent.prompt(UserMessage([Text("Compare them"), REPORT, LINKED, LOCAL]))
        session_id = session.id
    with store.open(session_id) as again:
        assert again.messages == agent.messages
        info = again.info
    page, text = export_html(info, agent.messages), export_markdown(info, agent.messages)
    first, result = agent.messages[0], agent.messages[2]
    assert isinstance(first, UserMessage)
    assert isinstance(result, ToolResultMessage)
    assert first.content[1:] == (REPORT, LINKED, LOCAL)
    assert result.content == (Text("here"), REPORT)
    size = f"{len(PDF)} bytes"
    assert f"Document <bdi>Q3 &lt;report&gt;.pdf</bdi>, not shown: <code>application/pdf, {size}</code>" in page
    assert 'Document <bdi>b.pdf</bdi> at <code><a href="https://a.example/b.pdf"' in page
    assert "Document <bdi>c.pdf</bdi> in the file <code>/tmp/c.pdf</code>" in page
    assert f"[document `Q3 <report>.pdf`, application/pdf, {size}]" in text
    assert "[document `b.pdf` at `https://a.example/b.pdf`]" in text
    assert "[document `c.pdf` in the file `/tmp/c.pdf`]" in text
    data = REPORT.source.data  # type: ignore[union-attr]
    assert data not in page
    assert data not in text


async def test_a_session_with_a_refused_document_goes_on_in_another_process(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path)
    async with FakeProvider("mistral", ["Hello."]) as fake:
        agent = Agent("mistral:mistral-medium-latest", stream_fn=MistralStreamFn(fake.url, fake.key))
        with store.create() as session:
            session.attach(agent)
            assert (await agent.prompt("Look", documents=[REPORT])).error_kind == ErrorKind.INVALID_REQUEST
        with store.open(session.id) as again:
            stream_fn = MistralStreamFn(fake.url, fake.key)
            fresh = Agent("mistral:mistral-medium-latest", stream_fn=stream_fn)
            again.attach(fresh)
            assert (await fresh.prompt("Say hello")).text == "Hello."
    assert fake.rejections == []
    assert "[document Q3 <report>.pdf left out" in str(fake.bodies[0])


def test_a_document_is_found_by_its_name_and_address_and_not_by_its_data() -> None:
    words = text_of(UserMessage([REPORT, LINKED, LOCAL]))
    assert "Q3 <report>.pdf" in words
    assert "https://a.example/b.pdf" in words
    assert "/tmp/c.pdf" in words
    assert REPORT.source.data not in words  # type: ignore[union-attr]


def test_a_summary_names_the_document() -> None:
    record = record_of([UserMessage([Text("Compare"), REPORT])], 10_000, estimate_tokens)
    assert "(the document Q3 <report>.pdf)" in record
