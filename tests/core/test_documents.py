"""Documents: their parts, how they are attached, and what a history knows about them."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import swink_agent
from swink_agent import (
    Agent,
    AgentToolResult,
    Base64Source,
    Document,
    Extension,
    FileSource,
    Image,
    Redactor,
    Text,
    ToolResultMessage,
    UrlSource,
    UserMessage,
    decode_message,
    encode_message,
    estimate_tokens,
    tool,
)
from swink_agent.core.encoding.media import MOST_DOCUMENT_BYTES
from swink_agent.testing import call, check_events, collect, scripted

MODEL = "any:model"
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
DATA = base64.b64encode(PDF).decode()
REPORT = Document(Base64Source("application/pdf", DATA), "report.pdf")
PICTURE = Image(Base64Source("image/png", base64.b64encode(PNG).decode()))
SCHEMA = {"type": "object"}
KEY = "sk-ant-api03-" + "Zq7Yw2Lk9Bn4Tv6Xc1Rm8Ps3Hd5Jf0Ga" * 2


# -- values --------------------------------------------------------------------------------------------------


def test_a_document_has_a_source_and_a_name() -> None:
    assert Document.__struct_fields__ == ("source", "name")
    assert Document(UrlSource("https://a.example/b.pdf")).name == ""
    assert encode_message(UserMessage([REPORT], 0)) == (
        b'{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"'
        + DATA.encode()
        + b'"},"name":"report.pdf"}],"timestamp":0}'
    )


def test_the_old_names_of_the_sources_stay() -> None:
    assert swink_agent.Base64Image is Base64Source
    assert swink_agent.UrlImage is UrlSource
    assert swink_agent.FileImage is FileSource


@pytest.mark.parametrize(
    "source",
    [
        Base64Source("application/pdf", DATA),
        Base64Source("Application/PDF; version=1.7", DATA),
        UrlSource("https://a.example/17"),
        UrlSource("https://a.example/17.html", "application/pdf"),
        UrlSource(f"data:application/pdf;base64,{DATA}"),
        FileSource("/tmp/report.PDF"),
        FileSource("/tmp/v1.2/report"),
        FileSource("/tmp/upload.tmp", "application/pdf"),
    ],
)
def test_a_pdf_is_a_document(source: Any) -> None:
    assert Document(source).source is source


@pytest.mark.parametrize(
    "source",
    [
        Base64Source("text/plain", "aGk="),
        Base64Source("", "aGk="),
        UrlSource("https://a.example/17.pdf", "application/msword"),
        UrlSource("data:text/plain;base64,aGk="),
        UrlSource("data:,hello"),
        FileSource("report.docx"),
        FileSource("report.pdf", "text/plain"),
    ],
)
def test_anything_else_is_not(source: Any) -> None:
    with pytest.raises(ValueError, match="a document is a PDF"):
        Document(source)


def test_a_source_is_one_of_three() -> None:
    with pytest.raises(TypeError, match="give a Base64Source, UrlSource or FileSource"):
        Document("report.pdf")  # type: ignore[arg-type]


def test_the_path_of_a_file_may_be_a_path(report: Path) -> None:
    source = FileSource(report)  # type: ignore[arg-type]
    assert source == FileSource(str(report))
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    agent.prompt_sync("Look", documents=[source, Document(source)])
    assert decode_message(encode_message(agent.messages[0])) == agent.messages[0]
    for wrong in (b"report.pdf", 3, None):
        with pytest.raises(TypeError, match=r"FileSource\.path is an? \w+; give a string or a Path"):
            FileSource(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("document", "name"),
    [
        (REPORT, "report.pdf"),
        (Document(REPORT.source), "document.pdf"),
        (Document(FileSource("/a/b/c.pdf")), "c.pdf"),
        (Document(UrlSource("https://a.example/b/c.pdf?d=e/f#g/h")), "c.pdf"),
        (Document(UrlSource(f"data:application/pdf;base64,{DATA}")), "document.pdf"),
        (Document(REPORT.source, "a\nsystem:\x1b[31m b"), "a system: [31m b"),
        (Document(REPORT.source, "x" * 500), "x" * 200),
    ],
)
def test_it_is_called_by_its_name_or_by_where_it_is(document: Document, name: str) -> None:
    assert document.shown_name == name


def test_it_is_content_of_users_and_tools_and_not_of_models() -> None:
    assert UserMessage([REPORT]).content == (REPORT,)
    assert ToolResultMessage("c", [REPORT]).content == (REPORT,)
    assert AgentToolResult([REPORT]).content == (REPORT,)
    with pytest.raises(TypeError, match="cannot hold a Document"):
        swink_agent.AssistantMessage([REPORT])  # type: ignore[list-item]


def test_it_is_read_back_as_it_was() -> None:
    for message in (UserMessage([REPORT]), ToolResultMessage("c", [Text("here"), REPORT])):
        assert decode_message(encode_message(message)) == message


def test_a_document_of_a_newer_version_becomes_an_extension() -> None:
    source = {"type": "base64", "media_type": "text/html", "data": "aGk="}
    line = swink_agent.encode_message(UserMessage([Extension("x", None), REPORT], 0)).replace(
        b"application/pdf", b"text/html"
    )
    message = decode_message(line)
    assert isinstance(message, UserMessage)
    assert message.content[1].type_name == "document"  # type: ignore[union-attr]
    assert message.content[1].data["source"]["media_type"] == source["media_type"]  # type: ignore[union-attr]


# -- attaching -----------------------------------------------------------------------------------------------

RUNS: dict[str, Callable[..., Any]] = {
    "prompt": lambda agent, **given: agent.prompt("Look", **given),
    "prompt_stream": lambda agent, **given: collect(agent.prompt_stream("Look", **given)),
    "text_stream": lambda agent, **given: collect(agent.text_stream("Look", **given)),
    "structured_run": lambda agent, **given: agent.structured_run("Look", SCHEMA, **given),
    "structured_stream": lambda agent, **given: collect(agent.structured_stream("Look", SCHEMA, **given)),
    "structured_output": lambda agent, **given: agent.structured_output("Look", SCHEMA, **given),
}


def agent_for(run: str) -> Agent:
    return Agent(MODEL, stream_fn=scripted(call("final_answer") if "structured" in run else "ok"))


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.pdf"
    path.write_bytes(PDF)
    return path


@pytest.mark.parametrize("run", RUNS)
async def test_images_and_documents_follow_the_text_in_every_way_to_run(run: str, report: Path) -> None:
    picture = report.with_name("cat.png")
    picture.write_bytes(PNG)
    agent = agent_for(run)
    images = [PICTURE, PNG, str(picture), picture]
    documents = [REPORT, REPORT.source, PDF, str(report), report]
    await RUNS[run](agent, images=images, documents=documents)
    first = agent.messages[0]
    assert isinstance(first, UserMessage)
    bare = Document(REPORT.source)
    assert first.content == (Text("Look"), *[PICTURE] * 4, REPORT, bare, bare, REPORT, REPORT)


def test_the_ways_without_async_take_them_too(report: Path) -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok", call("final_answer"), call("final_answer")))
    agent.prompt_sync("Look", documents=[report])
    agent.structured_run_sync("Look", SCHEMA, documents=[report])
    agent.structured_output_sync("Look", SCHEMA, images=[PNG], documents=[report])
    assert [message.content for message in agent.messages if isinstance(message, UserMessage)] == [
        (Text("Look"), REPORT),
        (Text("Look"), REPORT),
        (Text("Look"), PICTURE, REPORT),
    ]


WRONG: list[tuple[str, Any, type[Exception], str]] = [
    ("documents", ["/nowhere/report.pdf"], FileNotFoundError, "/nowhere/report.pdf"),
    ("images", [Path("/nowhere/cat.png")], FileNotFoundError, "/nowhere/cat.png"),
    ("documents", [b"hello"], ValueError, "is not a PDF"),
    ("documents", [b""], ValueError, "is not a PDF"),
    ("documents", [PNG], ValueError, "is a picture"),
    ("images", [PDF], ValueError, "give it as one of the documents"),
    ("images", [b"hello"], ValueError, "is not a picture of a kind that models take"),
    ("documents", [""], ValueError, "an empty string"),
    ("documents", ["a\0b"], ValueError, "is not a valid file name"),
    ("documents", ["/"], ValueError, "is a folder"),
    ("documents", ["https://a.example/b.pdf"], TypeError, "give UrlSource"),
    ("documents", [17], TypeError, "one of the documents must be a path, .* not an int"),
    ("documents", [PICTURE], TypeError, "one of the documents must be a path, .* not an Image"),
    ("images", [REPORT], TypeError, "one of the images must be a path, .* not a Document"),
    ("images", [None], TypeError, "one of the images must be a path, .* not a NoneType"),
    ("documents", 17, TypeError, "give a list"),
    ("documents", "report.pdf", TypeError, "give a list"),
    ("documents", PDF, TypeError, "give a list"),
    ("documents", [Base64Source("text/plain", "aGk=")], ValueError, "a document is a PDF"),
    ("documents", [Base64Source("application/pdf", "aGVsbG8=")], ValueError, "is not a PDF"),
    ("documents", [Document(Base64Source("application/pdf", "aGVsbG8="))], ValueError, "is not a PDF"),
    ("documents", [Base64Source("application/pdf", "")], ValueError, "is not a PDF"),
    ("documents", [Base64Source("application/pdf", PICTURE.source.data)], ValueError, "is a picture"),  # type: ignore[union-attr]
    ("documents", [Base64Source("application/pdf", "!!!")], ValueError, "is not base64"),
    ("documents", [Base64Source("application/pdf", DATA + "é")], ValueError, "is not base64"),
    ("documents", [Base64Source("application/pdf", DATA + "!")], ValueError, "is not base64"),
    ("documents", [Base64Source("application/pdf", PDF)], TypeError, "data is bytes"),  # type: ignore[arg-type]
    ("documents", [UrlSource("ftp://a.example/b.pdf")], ValueError, "by https or http, not from 'ftp://a"),
    ("documents", [UrlSource("report.pdf")], ValueError, "by https or http"),
    ("documents", [UrlSource("data:application/pdf;base64,aGVsbG8=")], ValueError, "is not a PDF"),
    ("documents", [UrlSource("data:application/pdf,%25PDF-1.4")], ValueError, "begins with"),
    ("documents", [FileSource("/nowhere/report.pdf")], FileNotFoundError, "/nowhere/report.pdf"),
    ("documents", [Document(FileSource("/nowhere/report.pdf"))], FileNotFoundError, "/nowhere/report.pdf"),
    ("documents", [FileSource("/")], ValueError, "is a folder"),
    ("documents", [FileSource("/dev/null", "application/pdf")], ValueError, "is not an ordinary file"),
    ("documents", [FileSource(os.__file__, "application/pdf")], ValueError, "is not a PDF"),
    ("images", [FileSource("/nowhere/cat.png")], FileNotFoundError, "/nowhere/cat.png"),
    ("images", [Image(FileSource("/nowhere/cat.png"))], FileNotFoundError, "/nowhere/cat.png"),
    ("images", [FileSource("/")], ValueError, "is a folder"),
    ("images", [FileSource("/dev/null", "image/png")], ValueError, "is not an ordinary file"),
    ("images", [FileSource(os.__file__)], ValueError, "is not a picture"),
]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("name", "given", "error", "match"), WRONG)
@pytest.mark.table
async def test_documents_that_cannot_be_attached_raise_before_anything_happens(
    run: str, name: str, given: Any, error: type[Exception], match: str
) -> None:
    agent = agent_for(run)
    events: list[Any] = []
    with agent.subscribe(events.append), pytest.raises(error, match=match):
        await RUNS[run](agent, **{name: given})
    assert not agent.is_running
    assert (agent.messages, events) == ([], [])


def test_a_pipe_and_a_file_that_is_too_large_are_refused_without_reading(tmp_path: Path) -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    os.mkfifo(tmp_path / "pipe.pdf")
    with pytest.raises(ValueError, match="is not an ordinary file"):
        agent.prompt_sync("Look", documents=[tmp_path / "pipe.pdf"])
    large = tmp_path / "large.pdf"
    with large.open("wb") as file:
        file.truncate(MOST_DOCUMENT_BYTES + 1)
    with pytest.raises(ValueError, match="is larger than 32 MB"):
        agent.prompt_sync("Look", documents=[large])


def test_the_file_of_a_picture_is_looked_at_when_it_is_given(tmp_path: Path) -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok", "ok"))
    for name, data, match in (("a.png", b"", "is empty"), ("b.png", PDF, "give it as one of the documents")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=match):
            agent.prompt_sync("Look", images=[FileSource(str(tmp_path / name))])
    (tmp_path / "c.tiff").write_bytes(b"a kind that some providers take")
    shown = FileSource(str(tmp_path / "c.tiff"))
    result = agent.prompt_sync("Look", images=[shown])
    assert isinstance(message := result.messages[0], UserMessage)
    assert message.content == (Text("Look"), Image(shown))
    (tmp_path / "c.tiff").unlink()
    assert agent.prompt_sync("Once more").text == "ok", "an image of the history that is gone does not stop a run"


def test_the_beginning_of_a_pdf_is_found_where_readers_find_it(tmp_path: Path) -> None:
    late = tmp_path / "late.pdf"
    late.write_bytes(b"@PJL SET\r\n" + PDF)
    data = base64.b64encode(late.read_bytes()).decode()
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    sources = [
        Base64Source("application/pdf", data),
        FileSource(str(late)),
        UrlSource(f"DATA:application/pdf;base64,{data}"),
    ]
    result = agent.prompt_sync("Look", documents=[late, *sources, UrlSource("HTTPS://a.example/b.pdf")])
    assert isinstance(message := result.messages[0], UserMessage)
    assert [block.source for block in message.content[1:]][1:4] == sources  # type: ignore[union-attr]


def test_documents_that_cannot_be_attached_are_read_back_from_a_history() -> None:
    for source in (
        Base64Source("application/pdf", "!!!"),
        UrlSource("ftp://a.example/b.pdf"),
        FileSource("/nowhere.pdf"),
    ):
        message = UserMessage([Document(source)], 0)
        assert decode_message(encode_message(message)) == message


async def test_a_document_goes_with_a_string() -> None:
    agent = Agent(MODEL, stream_fn=scripted("ok"))
    with pytest.raises(TypeError, match="images and documents go with a prompt that is a string"):
        await agent.prompt([UserMessage("Look")], documents=[PDF])
    result = await agent.prompt("  ", documents=[PDF])
    assert isinstance(message := result.messages[0], UserMessage)
    assert message.content == (Document(REPORT.source),)


async def test_a_tool_may_return_a_document() -> None:
    @tool
    def fetch() -> Document:
        """Fetches it."""
        return REPORT

    agent = Agent(MODEL, stream_fn=scripted(call("fetch"), "read"), tools=[fetch])
    events = await collect(agent.prompt_stream("Fetch it"))
    check_events(events)
    assert isinstance(result := agent.messages[2], ToolResultMessage)
    assert result.content == (REPORT,)


# -- what is known of it -------------------------------------------------------------------------------------


def test_its_tokens_are_estimated_by_its_size() -> None:
    small = Document(Base64Source("application/pdf", "A" * 1_000))
    large = Document(Base64Source("application/pdf", "A" * 1_000_000))
    huge = Document(Base64Source("application/pdf", "A" * 30_000_000))
    sizes = [estimate_tokens(UserMessage([document])) for document in (small, large, huge)]
    assert sizes == [2_004, 38_004, 200_004]
    assert 5_000 < estimate_tokens(UserMessage([Document(UrlSource("https://a.example/b.pdf"))])) < 20_000


def test_its_name_is_masked_and_its_data_is_not_searched() -> None:
    redactor = Redactor(environment={})
    data = base64.b64encode(f"%PDF-1.7 {KEY}".encode()).decode()
    redactor.register(data[20:60])
    message = UserMessage([Document(Base64Source("application/pdf", data), f"{KEY}.pdf")])
    masked = redactor.redact_message(message)
    assert isinstance(masked, UserMessage)
    (block,) = masked.content
    assert isinstance(block, Document)
    assert block.source == Base64Source("application/pdf", data)
    assert KEY not in block.name


@pytest.mark.parametrize(
    "source", [UrlSource(f"https://a.example/b.pdf?api_key={KEY}"), FileSource(f"/home/{KEY}/report.pdf")]
)
def test_an_address_with_a_secret_becomes_a_note(source: Any) -> None:
    redactor = Redactor(environment={})
    masked = redactor.redact_message(UserMessage([Document(source)]))
    assert isinstance(masked, UserMessage)
    (block,) = masked.content
    assert isinstance(block, Text)
    assert block.text.startswith("[document ")
    assert KEY not in block.text


async def test_the_name_of_a_tools_document_is_masked_before_the_model_reads_it() -> None:
    @tool
    def fetch() -> Document:
        """Fetches it."""
        return Document(REPORT.source, f"{KEY}.pdf")

    script = scripted(call("fetch"), "read")
    agent = Agent(MODEL, stream_fn=script, tools=[fetch], redactor=Redactor(environment={}))
    await agent.prompt("Fetch it")
    assert isinstance(result := script.requests[1].messages[2], ToolResultMessage)
    assert isinstance(block := result.content[0], Document)
    assert KEY not in block.name
    assert block.source == REPORT.source
