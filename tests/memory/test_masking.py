"""Secrets in every part of a session: none of them reaches the file, an export or the index."""

from __future__ import annotations

import asyncio
import base64
import re
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentToolResult,
    Base64Source,
    CustomMessage,
    Document,
    Extension,
    FileImage,
    Image,
    Redactor,
    Text,
    ToolResultMessage,
    UrlImage,
    UserMessage,
    extract_text,
    tool,
)
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, fail, scripted, text, think, truncated

SECRET = "kX9-very-secret-value-42"
NESTED = {SECRET: SECRET, "list": [{"deep": SECRET}], "base64": base64.b64encode(f"x{SECRET}".encode()).decode()}
PICTURES = [
    Image(UrlImage(f"https://ann:{SECRET}@h.net/a.png?k={SECRET}")),
    Image(FileImage(f"/tmp/{SECRET}.png")),
    Document(UrlImage(f"https://h.net/a.pdf?k={SECRET}")),
    Document(FileImage(f"/tmp/{SECRET}/a.pdf")),
    Document(Base64Source("application/pdf", "JVBERi0xLjQK"), f"{SECRET}.pdf"),
]


class Notice(CustomMessage, tag="notice"):
    words: str
    data: dict[str, Any] = {}


@tool
async def show(what: dict[str, Any]) -> AgentToolResult:
    """Shows it."""
    return AgentToolResult([Text(f"it is {SECRET}"), Extension("more", NESTED), *PICTURES], NESTED)


async def talk(store: JsonlSessionStore) -> Path:
    given = [UserMessage([Text(f"given {SECRET}"), Extension("more", NESTED), *PICTURES]), Notice(SECRET, NESTED)]
    model = scripted(
        [think(f"about {SECRET}", signature="signed"), text(f"I use {SECRET}"), call("show", what=NESTED)],
        [call(SECRET, n=1), call(SECRET)],
        truncated(call("show", what={"a": SECRET})),
        text("done"),
        fail("auth", f"{SECRET} is no key"),
    )
    agent = Agent(
        "test:model", stream_fn=model, tools=[show], redactor=Redactor([SECRET]), state={"a": NESTED}, messages=given
    )
    with store.create(title=f"about {SECRET}", metadata=NESTED) as session:
        session.attach(agent)
        session.label(f"label {SECRET}")
        session.note(f"kind {SECRET}", NESTED)
        await agent.prompt([UserMessage(f"prompt {SECRET}"), Notice(SECRET, NESTED)])
        await agent.prompt("again")
        session.rename(f"now about {SECRET}")
    return session.path


@pytest.mark.parametrize("sync", [True, False])
def test_no_secret_is_in_the_file_or_what_is_made_of_it(tmp_path: Path, sync: bool) -> None:
    store = JsonlSessionStore(tmp_path, [Notice], sync=sync)
    path = asyncio.run(talk(store))
    assert store.search("given")
    documents = [store.export(path.stem, kind) for kind in ("markdown", "html", "json")]
    in_base64 = base64.b64encode(SECRET.encode()).decode()[4:-4]
    for held in [path.read_text(), *documents, *[file.read_bytes().decode("latin-1") for file in tmp_path.iterdir()]]:
        assert [line for line in held.splitlines() if SECRET in line or in_base64 in line] == []
    assert store.load(path.stem).info.problems == ()


@pytest.mark.parametrize("is_cut", [True, False])
def test_the_title_of_a_reopened_session_is_masked_for_its_first_agent(tmp_path: Path, is_cut: bool) -> None:
    store = JsonlSessionStore(tmp_path)
    with store.create(title=f"about {SECRET}") as session:
        pass
    if is_cut:  # its last newline is lost
        session.path.write_bytes(session.path.read_bytes()[:-1])
    agent = Agent("test:model", stream_fn=scripted(text("done")), redactor=Redactor([SECRET]))
    with store.open(session.id) as again:
        again.attach(agent)
        agent.prompt_sync("go")
    assert SECRET not in session.path.read_text()
    loaded = store.load(session.id)
    assert loaded.info.problems == ()
    assert loaded.info.title.startswith("about [redacted")


def test_a_picture_at_an_address_with_a_secret_is_named_in_its_place(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path, [Notice], sync=False)
    path = asyncio.run(talk(store))
    messages = store.load(path.stem).messages
    results = [message for message in messages if isinstance(message, ToolResultMessage)]
    for message in (messages[0], results[0]):
        assert isinstance(message, (UserMessage, ToolResultMessage))
        assert "[image at https://ann:[redacted:" in extract_text(message.content)
        assert "[image in the file /tmp/[redacted:" in extract_text(message.content)


def test_other_pictures_stay(tmp_path: Path) -> None:
    store = JsonlSessionStore(tmp_path, sync=False)
    pictures = [Image(UrlImage("https://h.net/a.png?size=2")), Image(FileImage("/tmp/a.png"))]
    with store.create() as session:
        session.attach(Agent("test:model", stream_fn=scripted(), messages=[UserMessage(pictures)]))
    assert store.load(session.id).messages == session.messages
    assert list(session.messages[0].content) == pictures


@pytest.mark.parametrize("value", [NESTED, {"password": {SECRET: "x"}}], ids=["nested", "below a name"])
def test_a_key_that_is_a_secret_is_not_the_name_of_a_placeholder(value: Any) -> None:
    assert SECRET not in str(Redactor([SECRET], environment={}).redact_value(value))


@pytest.mark.parametrize("cut", [1, 8, len(SECRET) - 1])
@pytest.mark.parametrize("between", [[], [Image(UrlImage("https://h.net/a.png"))]])
def test_a_secret_in_two_blocks_is_masked(tmp_path: Path, cut: int, between: list[Any]) -> None:
    blocks = [Text(f"it is {SECRET[:cut]}"), *between, Text(f"{SECRET[cut:]}, and {SECRET}"), Text("more")]

    @tool
    async def show() -> AgentToolResult:
        """Shows it."""
        return AgentToolResult(blocks)

    store = JsonlSessionStore(tmp_path, sync=False)
    agent = Agent("test:model", stream_fn=scripted(call("show"), text("ok")), tools=[show], redactor=Redactor([SECRET]))
    with store.create() as session:
        session.attach(agent)
        asyncio.run(agent.prompt([UserMessage(blocks)]))
        for message in (store.load(session.id).messages[0], agent.messages[2]):
            assert isinstance(message, UserMessage | ToolResultMessage)
            texts = [block.text for block in message.content if isinstance(block, Text)]
            assert re.fullmatch(r"it is \[redacted:\w+:\w+\]\|, and \[redacted:\w+:\w+\]\|more", "|".join(texts))
