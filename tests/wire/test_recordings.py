"""Each recorded response, served over a real socket and read by the real adapter, gives what its digest lists."""

from __future__ import annotations

import asyncio
import random
import re
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest

from swink_agent import AgentContext, CancellationToken, MessageAssembler, StreamOptions, UserMessage
from swink_agent.adapters.kit.frames import FrameError
from swink_agent.core.errors import ErrorKind
from swink_agent.testing.servers import LoopbackServer, answer

from .adapters import MODEL, adapter_for
from .recordings import Recording, all_recordings

CONTEXT = AgentContext("Be brief.", [UserMessage("hi")])
RECORDINGS = all_recordings()
STREAMS = [recording for recording in RECORDINGS if not recording.is_error]


@pytest.fixture(autouse=True)
def aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)


def test_readme_says_how_many_recordings_there_are() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"{len(RECORDINGS)} recorded responses" in readme.replace("\n", " ")


@pytest.mark.table
@pytest.mark.parametrize("recording", RECORDINGS, ids=repr)
async def test_a_recording_is_read_as_its_digest_says(recording: Recording) -> None:
    headers = recording.headers
    content_type = headers.pop("content-type", None)
    served = answer(recording.body, status=recording.status, headers=headers, content_type=content_type, pieces=3)
    assembler = MessageAssembler(MODEL)
    async with LoopbackServer(served) as server, asyncio.timeout(60):
        stream = adapter_for(recording, server.url)(MODEL, CONTEXT, StreamOptions(), CancellationToken())
        async for event in stream:
            assembler.feed(event)
    assert not assembler.is_broken, assembler.failure
    message = assembler.message()
    if recording.is_error:
        recording.check_failure(message)
    else:
        recording.check_message(message)


def parsed(recording: Recording, pieces: list[bytes]) -> MessageAssembler:
    """The pieces fed to the bare parser, without any I/O."""
    parser = adapter_for(recording).parser(MODEL, recording.headers)
    try:
        for piece in pieces:
            parser.feed(piece)
        parser.end()
    except FrameError as error:
        parser.writer.fail(str(error), ErrorKind.NETWORK)
    parser.writer.fail("the connection ended before the reply did", ErrorKind.NETWORK)
    assembler = MessageAssembler(MODEL)
    for event in parser.writer.take():
        assembler.feed(event)
    return assembler


def comparable(assembler: MessageAssembler) -> object:
    message = assembler.message()
    blocks = [
        (type(block).__name__, getattr(block, "text", None), getattr(block, "arguments", None))
        for block in message.content
    ]
    return message.stop_reason, message.usage, message.error_message, blocks


@pytest.mark.sweep
@pytest.mark.parametrize("recording", STREAMS, ids=repr)
def test_recorded_bytes_may_be_split_cut_or_spoiled_anywhere(recording: Recording) -> None:
    chance = random.Random(recording.name)
    body = recording.body
    whole = parsed(recording, [body])
    for _ in range(4):
        cuts = sorted(chance.sample(range(len(body) + 1), min(len(body), chance.choice([1, 3, 40]))))
        edges = [0, *cuts, len(body)]
        split = [body[start:end] for start, end in pairwise(edges)]
        assert comparable(parsed(recording, split)) == comparable(whole)
    if len(body) < 20_000:
        assert comparable(parsed(recording, [body[i : i + 1] for i in range(len(body))])) == comparable(whole)
    for _ in range(25):
        cut = parsed(recording, [body[: chance.randrange(len(body))]])
        assert cut.is_finished
        # A finish reason that a server sends before the arguments are complete leaves arguments that are no JSON.
        assert not cut.is_broken or "not a JSON object" in cut.message().error_message
        spoiled = bytearray(body)
        for _ in range(chance.randrange(1, 6)):
            position = chance.randrange(len(spoiled))
            if chance.random() < 0.5:
                spoiled[position] = chance.randrange(256)
            else:
                spoiled[position:position] = bytes([chance.randrange(256)])
        assert parsed(recording, [bytes(spoiled)]).is_finished


FAKED = {
    "anthropic-messages": "anthropic",
    "openai-responses": "openai_responses",
    "gemini": "gemini",
    "ollama-chat": "ollama",
    "bedrock-converse": "bedrock",
}
FAMILY = {"openai-chat": "openai", "azure": "azure", "xai": "xai", "mistral": "mistral"}
OF_OTHERS = re.compile(r"signature|encrypted_content|not persisted|was not found|no tool call found")
"""Signatures, and what was stored elsewhere, which a fake cannot check."""


def test_fakes_accept_requests_that_real_providers_accepted() -> None:
    rejected: list[str] = []
    for recording in RECORDINGS:
        meta, provider = recording.meta, recording.provider
        body = meta["request"].get("body")
        name = FAMILY.get(provider) if recording.api == "openai-chat" else FAKED.get(recording.api)
        if recording.status != 200 or not isinstance(body, dict) or name is None:
            continue
        if provider in ("compat", "deepseek") or meta.get("variant") == "vertex":
            continue
        model = re.search(r"models?/([^/:]+)[:/]", unquote(meta["request"]["path"]))
        arguments = [model[1]] if model is not None and name in ("gemini", "bedrock") else []
        problems = import_module(f"swink_agent.testing.fakes.{name}").problems(body, *arguments)
        rejected += [f"{recording}: {problem}" for problem in problems if not OF_OTHERS.search(problem)]
    assert rejected == []
