"""The proxy alone, over loopback: what it accepts, passes on, and refuses before it connects."""

from __future__ import annotations

import asyncio
import base64
import resource
import socket
import ssl
import threading

import pytest

from swink_agent.sandbox import Reached
from swink_agent.sandbox.network import proxy as proxy_module
from swink_agent.sandbox.network import serving as serving_module

from .world import PUBLIC, World, front, world

GET = b"GET http://example.org/page?x=1 HTTP/1.1\r\nHost: example.org\r\n\r\n"
NOT_AMONG = "is not among the hosts that may be reached"


async def test_a_request_to_an_allowed_host_is_passed_on_and_told() -> None:
    async with world() as there, front(there, "example.org") as proxy:
        answer = await proxy.ask(GET)
    assert answer == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    assert there.heard == [b"GET /page?x=1 HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n"]
    assert there.resolved == [("example.org", 80)]
    assert there.connected == [(PUBLIC, 80)]
    assert proxy.reached == [Reached("example.org", 80, True, "")]


async def test_other_hosts_are_403_and_nothing_is_resolved() -> None:
    async with world() as there, front(there, "example.org", "*.example.net") as proxy:
        for name in (b"evil.test", b"www.example.org", b"example.net", b"example.org:8080", b"127.0.0.1", b"[::1]"):
            answer = await proxy.ask(b"GET http://%b/ HTTP/1.1\r\n\r\n" % name)
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert NOT_AMONG.encode() in answer
        assert await proxy.status(b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n") == 403
        assert await proxy.status(b"CONNECT example.org:22 HTTP/1.1\r\n\r\n") == 403
    assert there.resolved == there.connected == []
    assert proxy.reached[0] == Reached("evil.test", 80, False, NOT_AMONG)
    assert [entry.host for entry in proxy.reached if entry.port == 443] == ["evil.test"]
    assert not any(entry.allowed for entry in proxy.reached)


@pytest.mark.parametrize(
    "addresses",
    [
        *(["10.0.0.5"], ["127.0.0.1"], ["169.254.169.254"], ["168.63.129.16"], ["224.0.0.1"], ["::1"], ["fe80::1"]),
        *(["fd00:ec2::254"], ["::ffff:127.0.0.1"], ["64:ff9b::7f00:1"], ["2002:7f00:1::"], ["2001:0:7f00:1::"]),
        *(["0.0.0.0"], [PUBLIC, "192.168.1.1"], ["192.168.1.1", PUBLIC], ["fe80::1%eth0", PUBLIC], ["not an address"]),
    ],
)
@pytest.mark.table
async def test_every_address_of_a_name_must_be_public(addresses: list[str]) -> None:
    async with world() as there, front(there, "example.org", "*") as proxy:
        there.names["example.org"] = addresses
        status = await proxy.status(GET)
    assert status in (403, 502)
    assert there.connected == []
    assert len(there.resolved) == 1
    if status == 403:
        assert [(entry.allowed, "not a public address" in entry.why) for entry in proxy.reached] == [(False, True)]


async def test_an_address_or_its_network_may_be_named_besides() -> None:
    async with world() as there, front(there, "inner.test", "10.0.0.0/8") as proxy:
        there.names["inner.test"] = ["10.0.0.5"]
        assert await proxy.status(b"GET http://inner.test/ HTTP/1.1\r\n\r\n") == 200
        assert await proxy.status(b"GET http://0x0a000006/ HTTP/1.1\r\n\r\n") == 200
        there.names["inner.test"] = ["10.0.0.5", "192.168.0.1"]
        assert await proxy.status(b"GET http://inner.test/ HTTP/1.1\r\n\r\n") == 403
    assert there.connected == [("10.0.0.5", 80), ("10.0.0.6", 80)]
    assert [entry.host for entry in proxy.reached] == ["inner.test", "10.0.0.6", "inner.test"]


async def test_metadata_addresses_are_named_one_by_one() -> None:
    for hosts, status in ((("169.254.0.0/16", "*"), 403), (("169.254.169.254",), 200)):
        async with world() as there, front(there, *hosts) as proxy:
            assert await proxy.status(b"GET http://169.254.169.254/latest/ HTTP/1.1\r\n\r\n") == status


async def test_names_are_compared_in_one_form() -> None:
    async with world() as there, front(there, "bücher.example", "127.0.0.1:8080") as proxy:
        for name in ("BÜCHER.example", "xn--bcher-kva.EXAMPLE.", "bücher.example.:80"):
            assert await proxy.status(f"GET http://{name}/ HTTP/1.1\r\n\r\n".encode()) == 200
        for name in ("127.1", "0x7f.1", "2130706433", "0177.0.0.1", "[::ffff:127.0.0.1]"):
            assert await proxy.status(f"CONNECT {name}:8080 HTTP/1.1\r\n\r\n".encode()) == 200
    assert {host for host, _ in there.resolved} == {"xn--bcher-kva.example"}
    assert [heard.split(b"\r\n")[1] for heard in there.heard[:3]] == [b"Host: xn--bcher-kva.example"] * 3
    assert {entry.host for entry in proxy.reached} == {"xn--bcher-kva.example", "127.0.0.1"}


async def test_the_host_and_the_connection_are_said_by_the_proxy() -> None:
    lines = [
        *(b"POST HTTP://Example.ORG:80?q HTTP/1.1", b"Host: evil.test", b"HOST: other.test", b"Accept: */*"),
        *(b"Connection: keep-alive, X-Secret", b"X-Secret: 1", b"Proxy-Authorization: Basic eDp5", b"Keep-Alive: 5"),
        *(b"Upgrade: h2c", b"TE: trailers", b"Content-Length: 3", b"X-Kept:  \tyes "),
    ]
    async with world() as there, front(there, "example.org") as proxy:
        there.answer = b"HTTP/1.1 200 OK\nConnection: keep-alive\nKeep-Alive: 9\nX: 1\n\nend"
        answer = await proxy.ask(b"\r\n".join(lines) + b"\r\n\r\nabcGET / HTTP/1.1\r\n\r\n")
    assert answer == b"HTTP/1.1 200 OK\r\nX: 1\r\nConnection: close\r\n\r\nend"
    assert there.heard == [
        b"POST /?q HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\nX-Kept: yes\r\nContent-Length: 3\r\n"
        b"Connection: close\r\n\r\nabc"
    ]


async def test_a_port_that_is_not_the_usual_one_is_in_the_host() -> None:
    async with world() as there, front(there, "example.org:8080", "[2606:4700::1]:8080") as proxy:
        assert await proxy.status(b"GET http://example.org:8080 HTTP/1.0\r\n\r\n") == 200
        assert await proxy.status(b"GET http://[2606:4700:0::1]:8080/ HTTP/1.1\r\n\r\n") == 200
    assert [heard.split(b"\r\n")[:2] for heard in there.heard] == [
        [b"GET / HTTP/1.0", b"Host: example.org:8080"],
        [b"GET / HTTP/1.1", b"Host: [2606:4700::1]:8080"],
    ]


async def test_one_request_for_a_connection() -> None:
    second = b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"
    async with world() as there, front(there, "example.org") as proxy:
        answer = await proxy.ask(GET + second + GET)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert len(there.heard) == 1
    assert len(proxy.reached) == 1


async def test_chunks_are_read_and_written_anew() -> None:
    head = b"POST http://example.org/ HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n"
    body = b"3;name=value\r\nabc\r\n00A\r\n0123456789\r\n0\r\nTrailer: dropped\r\n\r\nrest"
    async with world() as there, front(there, "example.org") as proxy:
        assert (await proxy.ask(head + body)).endswith(b"hello")
    assert there.heard == [
        b"POST / HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n"
    ]


@pytest.mark.parametrize(
    "body",
    [
        *(b"3\r\nabcd\r\n0\r\n\r\n", b"3\nabc\r\n0\r\n\r\n", b"x\r\nabc\r\n0\r\n\r\n", b"-1\r\n\r\n", b"\r\n0\r\n\r\n"),
        *(b"0x3\r\nabc\r\n0\r\n\r\n", b"1" * 17 + b"\r\n", b"3 3\r\nabc\r\n", b"9" * 2000, b"3\r\nabc\n0\r\n\r\n"),
    ],
)
@pytest.mark.table
async def test_chunks_that_are_not_clear_end_the_connection(body: bytes) -> None:
    head = b"POST http://example.org/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with world() as there, front(there, "example.org") as proxy:
        assert await proxy.ask(head + body) == b""
    assert there.heard == []


BAD = {
    "two lengths": b"POST http://example.org/ HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "both lengths": b"POST http://example.org/ HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a list of lengths": b"POST http://example.org/ HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\nabc",
    "a sign": b"POST http://example.org/ HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc",
    "hexadecimal": b"POST http://example.org/ HTTP/1.1\r\nContent-Length: 0x3\r\n\r\nabc",
    "no length": b"POST http://example.org/ HTTP/1.1\r\nContent-Length:\r\n\r\nabc",
    "a huge length": b"POST http://example.org/ HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\nabc",
    "another encoding": b"POST http://example.org/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "an encoding twice": b"GET http://a.org/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-encoding: x\r\n\r\n",
    "an encoding of 1.0": b"POST http://example.org/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a space before the colon": b"POST http://example.org/ HTTP/1.1\r\nContent-Length : 3\r\n\r\nabc",
    "a folded line": b"GET http://example.org/ HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
    "a line feed alone": b"GET http://example.org/ HTTP/1.1\nHost: a\n\n",
    "a line feed alone within": b"GET http://example.org/ HTTP/1.1\r\nA: b\nContent-Length: 3\r\n\r\n",
    "a carriage return alone": b"GET http://example.org/ HTTP/1.1\r\nA: b\rC: d\r\n\r\n",
    "two carriage returns": b"GET http://example.org/ HTTP/1.1\r\r\n\r\n",
    "a zero byte": b"GET http://example.org/ HTTP/1.1\r\nA: b\0c\r\n\r\n",
    "a line first": b"\r\nGET http://example.org/ HTTP/1.1\r\n\r\n",
    "no colon": b"GET http://example.org/ HTTP/1.1\r\nheader\r\n\r\n",
    "no name": b"GET http://example.org/ HTTP/1.1\r\n: x\r\n\r\n",
    "a control": b"GET http://example.org/ HTTP/1.1\r\nA: \x1b[0m\r\n\r\n",
    "an origin": b"GET /page HTTP/1.1\r\nHost: example.org\r\n\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\nHost: example.org\r\n\r\n",
    "https": b"GET https://example.org/ HTTP/1.1\r\n\r\n",
    "another scheme": b"GET ftp://example.org/ HTTP/1.1\r\n\r\n",
    "a user": b"GET http://user:word@example.org/ HTTP/1.1\r\n\r\n",
    "an allowed user": b"GET http://example.org@evil.test/ HTTP/1.1\r\n\r\n",
    "a backslash": b"GET http://example.org\\@evil.test/ HTTP/1.1\r\n\r\n",
    "a fragment": b"GET http://example.org#@evil.test/ HTTP/1.1\r\n\r\n",
    "an encoded host": b"GET http://example%2eorg/ HTTP/1.1\r\n\r\n",
    "a tab": b"GET\thttp://example.org/ HTTP/1.1\r\n\r\n",
    "two spaces": b"GET  http://example.org/ HTTP/1.1\r\n\r\n",
    "no version": b"GET http://example.org/\r\n\r\n",
    "HTTP/2": b"GET http://example.org/ HTTP/2.0\r\n\r\n",
    "HTTP/2 itself": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2": b"GET http://example.org/ HTTP/1.2\r\n\r\n",
    "another version": b"GET http://example.org/ http/1.1\r\n\r\n",
    "no host": b"GET http:///x HTTP/1.1\r\n\r\n",
    "no port": b"CONNECT example.org HTTP/1.1\r\n\r\n",
    "an empty port": b"CONNECT example.org: HTTP/1.1\r\n\r\n",
    "port 0": b"CONNECT example.org:0 HTTP/1.1\r\n\r\n",
    "a large port": b"CONNECT example.org:70000 HTTP/1.1\r\n\r\n",
    "an address": b"CONNECT http://example.org:443/ HTTP/1.1\r\n\r\n",
    "a tunnel with a body": b"CONNECT example.org:443 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    "not text": b"CONNECT \xff.org:443 HTTP/1.1\r\n\r\n",
    "a number that is none": b"CONNECT 1.2.3.4.5:443 HTTP/1.1\r\n\r\n",
    "TLS": bytes.fromhex("160301") + b"\0\5\1\0\0\1\3" + b"\r\n\r\n",
    "a long head": b"GET http://example.org/ HTTP/1.1\r\n" + b"A: " + b"b" * 70_000 + b"\r\n\r\n",
    "a head without end": b"GET http://example.org/ HTTP/1.1\r\n" + b"A: b\r\n" * 20_000,
    "many headers": b"GET http://example.org/ HTTP/1.1\r\n" + b"A: b\r\n" * 300 + b"\r\n",
    "a long address": b"GET http://example.org/" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
}


@pytest.mark.table
@pytest.mark.parametrize("request_", BAD.values(), ids=BAD.keys())
async def test_ambiguous_requests_get_status_400(request_: bytes) -> None:
    async with world() as there, front(there, "example.org", "evil.test") as proxy:
        assert await proxy.status(request_) == 400
    assert there.resolved == there.connected == []
    assert proxy.reached == []


async def test_a_head_that_never_ends_and_one_that_comes_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as there, front(there, "example.org") as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        for at in range(len(GET)):
            writer.write(GET[at : at + 1])
            await asyncio.sleep(0)
        assert (await reader.read()).endswith(b"hello")
        writer.close()
        monkeypatch.setattr(proxy_module, "_HEAD_WITHIN", 0.05)
        assert await proxy.ask(GET[:-2]) == b""
    assert len(there.connected) == 1


async def test_a_redirect_is_a_new_request() -> None:
    async with world() as there, front(there, "example.org") as proxy:
        there.answer = b"HTTP/1.1 302 Found\r\nLocation: http://evil.test/\r\nContent-Length: 0\r\n\r\n"
        answer = await proxy.ask(GET)
        assert b"Location: http://evil.test/" in answer  # the client may follow it, by asking again
        assert await proxy.status(b"GET http://evil.test/ HTTP/1.1\r\n\r\n") == 403
    assert len(there.connected) == 1


async def test_unreachable_hosts_are_reported_as_allowed_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise ConnectionRefusedError(111, "Connection refused")

    async def unknown(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    async def silent(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.get_running_loop().create_future()

    async def broken(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise RuntimeError("a way out of the application's that fails")

    there = World()
    there.connect = fail  # type: ignore[method-assign]
    async with front(there, "example.org") as proxy:
        assert await proxy.status(GET) == 502
    assert proxy.reached == [Reached("example.org", 80, True, "could not be reached: connection refused")]
    there.resolve = unknown  # type: ignore[method-assign]
    async with front(there, "example.org") as proxy:
        assert await proxy.status(GET) == 502
    assert proxy.reached == [Reached("example.org", 80, True, "could not be resolved")]
    monkeypatch.setattr(proxy_module, "_CONNECT_WITHIN", 0.1)
    for way, status in ((silent, 504), (broken, 502)):
        there = World()
        there.connect = way  # type: ignore[method-assign]
        async with front(there, "example.org") as proxy:
            assert await proxy.status(GET) == status
        assert [entry.allowed for entry in proxy.reached] == [True]


async def test_a_server_of_names_that_does_not_answer_takes_nothing_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: stuck.wait(60) and [])
    looking = [asyncio.ensure_future(proxy_module.resolve_by_system(f"h{n}.example.org", 443)) for n in range(64)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(lambda: "done") == "done"
            for task in looking:  # as when a command ends
                task.cancel()
            await asyncio.gather(*looking, return_exceptions=True)
            await asyncio.get_running_loop().shutdown_default_executor()
    finally:
        stuck.set()


async def test_addresses_are_tried_in_turn() -> None:
    async with world() as there:
        good = there.connect

        async def first_fails(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            if address != PUBLIC:
                there.connected.append((address, port))
                raise OSError(113, "No route to host")
            return await good(address, port)

        there.connect = first_fails  # type: ignore[method-assign]
        there.names["example.org"] = ["2606:4700::1", PUBLIC]
        async with front(there, "example.org") as proxy:
            assert await proxy.status(GET) == 200
    assert there.connected == [("2606:4700::1", 80), (PUBLIC, 80)]


async def test_a_token_is_asked_for_where_others_reach_the_listener() -> None:
    right = base64.b64encode(b"swink:word")
    async with world() as there, front(there, "example.org", token="word") as proxy:
        assert (await proxy.ask(GET)).startswith(b"HTTP/1.1 407 ")
        for said, status in ((b"Basic " + right, 200), (b"Basic eDp5", 407), (b"Bearer " + right, 407)):
            head = GET[:-2] + b"Proxy-Authorization: " + said + b"\r\n\r\n"
            assert await proxy.status(head) == status
    assert len(there.heard) == 1
    assert b"Authorization" not in there.heard[0]


async def test_a_server_that_does_not_speak_http_is_502() -> None:
    for answer in (b"SSH-2.0-OpenSSH\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\n"):
        async with world() as there, front(there, "example.org") as proxy:
            there.answer = answer
            assert await proxy.status(GET) == 502


async def test_an_answer_may_come_before_the_body_and_after_100_continue() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too large\r\nContent-Length: 0\r\n\r\n")

    async with world(serve) as there, front(there, "example.org") as proxy:
        answer = await proxy.ask(b"PUT http://example.org/ HTTP/1.1\r\nContent-Length: 100000\r\n\r\nfirst part")
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 413 Too large\r\n")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def test_a_tunnel_passes_both_ways_and_each_may_end_first() -> None:
    data = bytes(range(256)) * 4096
    async with world(echo) as there, front(there, "example.org") as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"CONNECT example.org:443 HTTP/1.1\r\nHost: whatever\r\n\r\nat once ")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        assert await reader.readexactly(8) == b"at once "
        writer.write(data)
        writer.write_eof()
        assert await reader.read(-1) == data
        writer.close()
    assert there.connected == [(PUBLIC, 443)]
    assert proxy.reached == [Reached("example.org", 443, True)]


async def test_a_tunnel_to_port_80_carries_no_plain_request_for_another_host() -> None:
    async with world(echo) as there, front(there, "example.org") as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"CONNECT example.org:80 HTTP/1.1\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        writer.write(b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")
        assert (await reader.read(-1)).startswith(b"HTTP/1.1 400 ")
        writer.close()
    assert there.heard == []
    assert [entry.allowed for entry in proxy.reached] == [True, False]


async def test_a_server_may_speak_first_in_a_tunnel() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-x\r\n")

    async with world(greet) as there, front(there, "example.org:22") as proxy:
        assert (await proxy.ask(b"CONNECT example.org:22 HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nSSH-2.0-x\r\n")


def hello_of(name: str | None) -> bytes:
    """What a TLS client sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    sent = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return sent.read()


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    ("name", "passes"),
    [("example.org", True), ("EXAMPLE.org", True), (None, True), ("evil.test", False), ("www.example.org", False)],
)
async def test_tls_that_names_another_host_is_closed(name: str | None, passes: bool) -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(100_000))
        writer.write(b"answer")

    async with world(listen) as there, front(there, "example.org", "evil.test") as proxy:
        answer = await proxy.ask(b"CONNECT example.org:443 HTTP/1.1\r\n\r\n" + hello_of(name))
    assert answer.endswith(b"answer") is passes
    assert (heard == [hello_of(name)] or heard[0][:1] == b"\x16") if passes else heard in ([], [b""])
    assert proxy.reached[0] == Reached("example.org", 443, True)
    if not passes:
        assert proxy.reached[1:] == [
            Reached("example.org", 443, False, f"was closed: TLS inside the connection names {name}")
        ]


async def test_many_connections_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "_MOST_CONNECTIONS", 8)
    async with world(echo) as there, front(there, "example.org") as proxy:
        pairs = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(12)]
        for _, writer in pairs:
            writer.write(b"CONNECT example.org:443 HTTP/1.1\r\n\r\n")
        answers = [asyncio.ensure_future(reader.read(12)) for reader, _ in pairs]
        for answer in answers[:8]:
            assert await answer == b"HTTP/1.1 200"
        assert len(there.connected) == 8
        for _, writer in pairs[:8]:
            writer.close()
        for answer in answers[8:]:  # they waited
            assert await answer == b"HTTP/1.1 200"
        for _, writer in pairs[8:]:
            writer.close()


async def test_a_process_without_descriptors_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "_WITHOUT_DESCRIPTORS", 0.05)
    async with world() as there, front(there, "example.org") as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            await asyncio.sleep(0.02)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        writer.write(GET)
        assert (await reader.read()).endswith(b"hello")
        writer.close()


async def test_reached_hosts_are_listed_once_and_at_most_200() -> None:
    async with front(World(), "example.org") as proxy:
        for number in range(210):
            assert await proxy.status(b"CONNECT h%d.test:443 HTTP/1.1\r\n\r\n" % (number % 205)) == 403
    assert [entry.host for entry in proxy.reached] == [f"h{number}.test" for number in range(200)]


async def test_a_connection_in_which_nothing_happens_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "_IDLE", 0.1)
    async with world(echo) as there, front(there, "example.org") as proxy:
        assert await proxy.ask(b"CONNECT example.org:443 HTTP/1.1\r\n\r\n") == (
            b"HTTP/1.1 200 Connection established\r\n\r\n"
        )
