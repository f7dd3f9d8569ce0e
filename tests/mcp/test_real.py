"""Servers written with the reference package, over stdio and HTTP, and addresses without a server."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from swink_agent.core.tool import ToolContext
from swink_agent.core.types import Base64Source, Image, extract_text
from swink_agent.mcp import McpError, McpServer
from tests.mcp import real_server
from tests.mcp.raw_server import call, named, raw_server


async def _use(server: McpServer) -> None:
    """What must be the same over every transport."""
    updates: list[str] = []
    context = ToolContext(on_update=lambda partial: updates.append(extract_text(partial.content)))
    assert {tool.true_name for tool in server.tools()} >= {"add", "mirror", "picture", "fail", "count", "grow"}
    assert "$ref" not in str(named(server, "mirror").parameters_schema)
    added = await call(server, "add", a=2, b=3)
    assert extract_text(added.content) == "5"
    assert added.details["structured"] == {"result": 5}
    assert (await call(server, "mirror", point={"x": 1})).details["structured"] == {"x": -1, "y": 0}
    [image] = (await call(server, "picture")).content
    assert image == Image(Base64Source("image/png", real_server.encoded()))
    failed = await call(server, "fail")
    assert failed.is_error
    assert "it did not work" in extract_text(failed.content)
    wrong = await call(server, "add", a="two")
    assert wrong.is_error
    result = await named(server, "count").execute({"to": 3}, context)
    assert extract_text(result.content) == "counted"
    assert updates == ["1/3", "2/3", "3/3"]
    await call(server, "grow")
    await asyncio.sleep(0.05)  # over HTTP the announcement comes on another connection
    await server.settled()
    assert extract_text((await call(server, "grown")).content) == "new"


@pytest.mark.sweep  # loads the package in another process
async def test_a_real_server_over_stdio_in_the_sandbox(tmp_path: Path) -> None:
    script = Path(real_server.__file__)
    async with McpServer.stdio(
        sys.executable, str(script), name="real", cwd=tmp_path, trust_annotations=True
    ) as server:
        assert not named(server, "add").requires_approval
        assert named(server, "fail").requires_approval
        await _use(server)


@pytest.fixture
def address() -> Iterator[str]:
    with real_server.over_http(real_server.make()) as url:
        yield url


async def test_a_real_server_over_http(address: str) -> None:
    async with McpServer.http(address, name="real") as server:
        await _use(server)


async def test_a_server_over_http_that_is_gone_fails_its_calls() -> None:
    with real_server.over_http(real_server.make()) as url:
        server = McpServer.http(url, name="real")
        await server.__aenter__()
        assert extract_text((await call(server, "add", a=1, b=1)).content) == "2"
    gone = await call(server, "add", a=1, b=1)
    assert gone.is_error
    assert "real" in extract_text(gone.content)
    await server.__aexit__(None, None, None)


# -- addresses that are not a server's -------------------------------------------------------------------------------


@asynccontextmanager
async def answering(answer: Callable[[bytes], Any]) -> AsyncIterator[str]:
    """An address that gives these bytes to each request, or those of a coroutine; `None` is no answer at all."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            body = await reader.readexactly(size[0] if size else 0)
            said = answer(head + body)
            if asyncio.iscoroutine(said):
                said = await said
            if said is None:
                await reader.read()
            writer.write(said or b"")
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    web = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{web.sockets[0].getsockname()[1]}/mcp"
    finally:
        web.close()


def _http(status: str, body: bytes = b"", kind: str = "text/plain", more: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{more}\r\n"
    )
    return head.encode() + body


_LARGE = b'{"jsonrpc":"2.0","id":1,"result":{"a":"' + b"x" * (17 * 1024 * 1024) + b'"}}'


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (_http("401 Unauthorized"), "HTTP 401.*headers"),
        (_http("403 Forbidden"), "HTTP 403"),
        (_http("500 Oops", b"{}", "application/json"), "HTTP 500"),
        (_http("200 OK", b"<html>", "text/html"), "content type"),
        (_http("200 OK", b"not json", "application/json"), "JSON"),
        (_http("302 Found", more="location: http://127.0.0.1:9/elsewhere\r\n"), "HTTP 302.*Redirect"),
        (_http("200 OK", _LARGE, "application/json"), "16 MiB"),
        (_http("200 OK", b"data: " + _LARGE + b"\n\n", "text/event-stream"), "limit"),
        (_http("200 OK", b"\x1f\x8b", "application/json", "content-encoding: gzip\r\n"), "compressed"),
        (b"SSH-2.0-OpenSSH\r\n", "RemoteProtocolError"),
    ],
    ids=["401", "403", "500", "html", "no json", "redirect", "large", "large event", "compressed", "no http"],
)
async def test_an_address_that_is_not_a_server_s_is_told_with_the_reason(answer: bytes, why: str) -> None:
    async with answering(lambda request: answer) as url:
        with pytest.raises(McpError, match=f"(?s)MCP server real: .*{why}"):
            await McpServer.http(url, name="real", start_timeout=10).__aenter__()


async def test_nothing_at_the_address() -> None:
    async with answering(lambda request: b"") as url:
        pass
    with pytest.raises(McpError, match="MCP server real"):
        await McpServer.http(url, name="real", start_timeout=10).__aenter__()


@pytest.mark.parametrize("refusal", ["404 Not Found", "400 Bad Request"])
async def test_a_session_that_the_server_forgot_is_begun_anew(refusal: str) -> None:
    sessions = 0

    def answer(request: bytes) -> bytes:
        nonlocal sessions
        head, _, body = request.partition(b"\r\n\r\n")
        message = json.loads(body or b"{}")
        match message.get("method"):
            case "initialize":
                sessions += 1
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
                more = f"mcp-session-id: {sessions}\r\n"
            case "tools/list":
                result, more = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}, ""
            case "tools/call" if b"mcp-session-id: 1" in head.lower():
                return _http(refusal)
            case "tools/call":
                result, more = {"content": [{"type": "text", "text": "here"}]}, ""
            case _:
                return _http("202 Accepted" if message else "405 Method Not Allowed")
        said = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        return _http("200 OK", said, "application/json", more)

    async with answering(answer) as url, McpServer.http(url, name="real") as server:
        assert (await call(server, "t")).is_error
        assert extract_text((await call(server, "t")).content) == "here"
        assert sessions == 2


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (b"", "did not answer: RemoteProtocolError"),
        (_http("200 OK", b"{}", "application/json")[:-1], "did not answer: RemoteProtocolError"),
        (_http("200 OK", _LARGE, "application/json"), "16 MiB"),
        (_http("200 OK", b"\x1f\x8b", "application/json", "content-encoding: gzip\r\n"), "compressed"),
        (_http("400 Bad Request", b"{", "application/json"), "HTTP 400"),
    ],
    ids=["nothing", "cut off", "large", "compressed", "refused"],
)
async def test_an_answer_that_breaks_off_ends_no_other_call(broken: bytes, why: str) -> None:
    may_answer = asyncio.Event()

    async def slow(message: dict[str, Any]) -> bytes:
        await may_answer.wait()
        return _of_a_server(message)

    def answer(request: bytes) -> Any:
        message = _message(request)
        if message.get("method") != "tools/call":
            return _of_a_server(message)
        return broken if message["params"]["arguments"] else slow(message)

    async with answering(answer) as url, McpServer.http(url, name="real", timeout=20) as server:
        other = asyncio.create_task(call(server, "one"))
        await asyncio.sleep(0.1)
        failed = await call(server, "one", now=True)
        assert why in extract_text(failed.content)
        may_answer.set()
        assert extract_text((await other).content) == "called"
        assert extract_text((await call(server, "one")).content) == "called"


@pytest.mark.parametrize("are_events", [True, False])
async def test_half_of_a_character_over_http_is_replaced_and_the_rest_is_kept(are_events: bool) -> None:
    def answer(request: bytes) -> bytes:
        message = _message(request)
        if message.get("method") != "tools/call":
            return _of_a_server(message)
        said = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"cut \\ud83d"}]}}' % message["id"]
        if are_events:
            return _http("200 OK", b"event: message\ndata: " + said + b"\n\n", "text/event-stream")
        return _http("200 OK", said, "application/json")

    async with answering(answer) as url, McpServer.http(url, name="real", timeout=20) as server:
        assert extract_text((await call(server, "one")).content) == "cut ?"


async def test_headers_are_sent_and_never_shown() -> None:
    seen: list[bytes] = []

    def answer(request: bytes) -> bytes:
        seen.append(request)
        return _http("401 Unauthorized")

    secret = "Bearer 5f4e3d2c1b0a5f4e3d2c"
    async with answering(answer) as url:
        server = McpServer.http(url, name="real", headers={"Authorization": secret})
        with pytest.raises(McpError) as caught:
            await server.__aenter__()
    assert secret.encode() in seen[0]
    assert "5f4e3d2c1b0a" not in f"{caught.value}{server!r}"


@pytest.mark.parametrize(
    ("header", "value", "secret"),
    [
        ("Authorization", "Bearer 5f4e3d2c1b0a5f4e3d2c", "5f4e3d2c1b0a5f4e3d2c"),
        ("X-Api-Token", "Token 5f4e3d2c1b0a5f4e3d2c", "5f4e3d2c1b0a5f4e3d2c"),
        ("Authorization", "Basic " + b64encode(b"ada:5f4e3d2c1b0a5f4e3d2c").decode(), "5f4e3d2c1b0a5f4e3d2c"),
        ("Cookie", "theme=dark; session=5f4e3d2c1b0a5f4e3d2c", "5f4e3d2c1b0a5f4e3d2c"),
    ],
)
async def test_headers_repeated_by_a_server_are_masked_too(header: str, value: str, secret: str) -> None:
    def answer(request: bytes) -> bytes:
        message = _message(request)
        if message.get("method") != "tools/call":
            return _of_a_server(message)
        result = {"content": [{"type": "text", "text": f"it is {secret}"}]}
        return _http(
            "200 OK", json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode(), "application/json"
        )

    async with (
        answering(answer) as url,
        McpServer.http(url, name="real", headers={header: value}, timeout=20) as server,
    ):
        said = extract_text((await call(server, "one")).content)
    assert said.startswith("it is [redacted:")
    assert secret not in said


def _of_a_server(message: dict[str, Any], events: bytes = b"") -> bytes:
    """What a decent server answers; `events` come before the answer to a call."""
    if message.get("method") == "tools/call":
        result: dict[str, Any] = {"content": [{"type": "text", "text": "called"}]}
    elif message.get("method") == "tools/list":
        result = {"tools": [{"name": "one", "inputSchema": {"type": "object"}}]}
    elif message.get("method") == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "a"}}
    else:
        return _http("202 Accepted" if "id" not in message or "method" not in message else "405 No")
    said = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
    before = events if message["method"] == "tools/call" else b""
    return _http("200 OK", before + b"data: " + said + b"\n\n", "text/event-stream")


def _message(request: bytes) -> dict[str, Any]:
    body = request.partition(b"\r\n\r\n")[2]
    return json.loads(body) if body else {}


async def test_a_server_that_never_takes_a_notice_is_connected_to_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.mcp.http._NOTICE_TAKEN", 0.2)
    calls = 0

    def answer(request: bytes) -> bytes | None:
        nonlocal calls
        message = _message(request)
        calls += message.get("method") == "tools/call"
        is_first = message.get("method") == "tools/call" and calls == 1
        return None if is_first or message.get("method") == "notifications/cancelled" else _of_a_server(message)

    async with answering(answer) as url, McpServer.http(url, name="real", timeout=0.5) as server:
        assert "no sign of life" in extract_text((await call(server, "one")).content)
        said = [extract_text((await call(server, "one")).content) for _ in range(4)]
    assert said[-1] == "called", said


@pytest.mark.sweep
async def test_a_server_over_http_that_asks_without_end_is_not_answered_without_end() -> None:
    asked = b"".join(
        b'data: {"jsonrpc":"2.0","id":"a%d","method":"ping"}\n\n'
        b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n\n' % number
        for number in range(300)
    )
    answers = 0

    def answer(request: bytes) -> bytes | None:
        nonlocal answers
        message = _message(request)
        answers += "method" not in message and "id" in message
        return _of_a_server(message, asked)

    async with answering(answer) as url, McpServer.http(url, name="real") as server:
        assert extract_text((await call(server, "one")).content) == "called"
    assert 0 < answers < 200


@pytest.mark.sweep  # sixty thousand messages
async def test_a_server_over_http_that_floods_a_call_is_heard_in_the_end() -> None:
    unasked = (
        b'data: {"jsonrpc":"2.0","id":"a","method":"ping"}\n\n',
        b'data: {"jsonrpc":"2.0","method":"notifications/message",\r\ndata: "params":{}}\r\n\r\n',
        b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n',
        b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x","progress":1}}\n\n',
        b"event: other\ndata: {}\n\n",
        b": still here\r\r",
    )
    flood = b"".join(unasked) * 10_000
    async with (
        answering(lambda request: _of_a_server(_message(request), flood)) as url,
        McpServer.http(url, name="real", timeout=30) as server,
    ):
        before = time.process_time()
        assert extract_text((await call(server, "one")).content) == "called"
        assert time.process_time() - before < 5


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_server_that_sends_too_much_is_told_with_its_name(
    monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    monkeypatch.setattr("swink_agent.mcp.flood.MOST_IN_A_MINUTE", 500)
    endless = b'data: {"jsonrpc":"2.0","method":"notifications/message"}\n\n' * 1000
    async with answering(lambda request: _of_a_server(_message(request), endless)) as url:
        if transport == "http":
            server = McpServer.http(url, name="loud")
        else:
            program = """
def on_call(id, name, arguments, meta):
    while True:
        say(method="notifications/message", params={})
"""
            server = raw_server(program, name="loud")
        async with server:
            [tool] = server.tools()
            result = await call(server, tool.true_name)
    assert result.is_error
    assert "loud" in extract_text(result.content)
    assert "messages within a minute" in extract_text(result.content)


async def test_the_place_in_a_stream_is_kept_of_events_that_are_dropped() -> None:
    seen: list[bytes] = []

    def answer(request: bytes) -> bytes:
        seen.append(request)
        message = _message(request)
        if message.get("method") == "tools/call":
            unheard = b'id: 7\nretry: 1\ndata: {"jsonrpc":"2.0","method":"notifications/message"}\n\n'
            return _http("200 OK", unheard, "text/event-stream")
        if request.startswith(b"GET"):
            said = b'data: {"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"later"}]}}\n\n'
            return _http("200 OK", said, "text/event-stream")
        return _of_a_server(message)

    async with answering(answer) as url, McpServer.http(url, name="real", timeout=10) as server:
        assert extract_text((await call(server, "one")).content) == "later"
    assert any(b"last-event-id: 7" in request.lower() for request in seen)


async def test_logs_of_the_package_about_a_server_are_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    async with (
        answering(lambda request: _of_a_server(_message(request), b"data: nonsense\n\n")) as url,
        McpServer.http(url, name="real") as server,
    ):
        assert "Invalid JSON" in extract_text((await call(server, "one")).content)
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("mcp").handlers)
    assert "nonsense" not in "".join(capfd.readouterr())
