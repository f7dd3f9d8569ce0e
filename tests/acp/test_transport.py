"""Malformed lines from an editor: each is answered, and the connection stays open."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

from acp import run_agent

from swink_agent.acp.editor_agent import EditorAgent
from swink_agent.acp.transport import LineTransport

HELLO = {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {"protocolVersion": 1}}


@asynccontextmanager
async def connected(limit: int = 64 * 1024) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """The editor's end of a connection to an agent."""
    ours, theirs = socket.socketpair()
    agent = EditorAgent({})
    agents_reader, agents_writer = await asyncio.open_connection(sock=ours, limit=limit)
    serving = asyncio.create_task(run_agent(agent, LineTransport(agents_reader, agents_writer)))
    reader, writer = await asyncio.open_connection(sock=theirs)
    with closing(agents_writer):
        with closing(writer):
            yield reader, writer
        await asyncio.wait_for(serving, 10)


async def answers(lines: list[bytes], limit: int = 64 * 1024) -> list[dict[str, Any]]:
    """What the agent answers to the lines, until it answers the message behind them."""
    async with connected(limit) as (reader, writer):
        writer.write(b"\n".join([*lines, json.dumps(HELLO).encode(), b""]))
        found: list[dict[str, Any]] = []
        while not found or found[-1].get("id") != "hello":
            found.append(json.loads(await asyncio.wait_for(reader.readuntil(b"\n"), 10)))
    assert found.pop()["result"]["protocolVersion"] == 1
    return found


async def test_a_line_that_is_not_json_is_answered_and_the_connection_goes_on() -> None:
    said = await answers([b"garbage", b"\xff\xfe", b"[" * 50_000])
    assert [(one["id"], one["error"]["code"]) for one in said] == [(None, -32700)] * 3


async def test_json_that_is_not_a_message_is_answered_and_the_connection_goes_on() -> None:
    lines = [b"[]", b"null", b"5", b'"x"', b"{}", b'{"id": [1]}', b'{"id": {}, "result": 1}', b'{"id": 8, "method": 5}']
    said = await answers(lines)
    assert [(one["id"], one["error"]["code"]) for one in said] == [(None, -32600)] * 7 + [(8, -32600)]


async def test_numbers_that_json_cannot_hold_are_not_repeated_to_the_editor() -> None:
    said = await answers([b'{"id": 1e999, "method": "x"}', b'{"id": 1, "method": "x", "params": {"cwd": NaN}}'])
    assert [(one["id"], one["error"]["code"]) for one in said] == [(None, -32700)] * 2


async def test_half_of_a_character_is_replaced() -> None:
    ours, theirs = socket.socketpair()
    agents_reader, agents_writer = await asyncio.open_connection(sock=ours)
    _, writer = await asyncio.open_connection(sock=theirs)
    with closing(agents_writer), closing(writer):
        writer.write(b'{"method": "x", "params": ["\\uD83D cut", "\\ud83d\\ude00 whole", "\\u00e9"]}\n')
        message = await LineTransport(agents_reader, agents_writer).receive()
    assert message == {"method": "x", "params": ["? cut", "\U0001f600 whole", "\u00e9"]}


async def test_answers_to_nothing_and_empty_lines_are_ignored() -> None:
    assert await answers([b"", b"  ", b'{"id": 77, "error": [1]}', b'{"id": 0, "error": "x"}', b'{"id": 0}']) == []


async def test_a_line_that_is_too_long_is_answered_and_the_next_one_read() -> None:
    [said] = await answers([b'{"a": "' + b"x" * 100_000 + b'"}'], limit=4096)
    assert "at most" in said["error"]["message"]


async def test_a_cancelled_sender_does_not_end_the_wait_of_the_others() -> None:
    ours, theirs = socket.socketpair()
    agents_reader, agents_writer = await asyncio.open_connection(sock=ours)
    transport = LineTransport(agents_reader, agents_writer)
    large = {"jsonrpc": "2.0", "id": 1, "result": "x" * 1_000_000}
    first, second = asyncio.create_task(transport.send(large)), asyncio.create_task(transport.send(large))
    await asyncio.sleep(0)
    first.cancel()
    reader, writer = await asyncio.open_connection(sock=theirs, limit=2_000_000)
    with closing(writer), closing(agents_writer):
        assert [json.loads(await reader.readuntil(b"\n")) for _ in range(2)] == [large, large]
        await asyncio.wait_for(second, 10)
