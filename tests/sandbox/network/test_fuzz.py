"""Whatever is sent to the proxy, it connects only to allowed hosts, and writes nothing anywhere else."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.sandbox.network.hosts import Hosts, host_entry
from swink_agent.sandbox.network.requests import BadRequest, read_request

from .world import PUBLIC, front, world

PARTS = st.sampled_from(
    [
        *(b"GET ", b"CONNECT ", b"POST ", b"http://", b"HTTP://", b"https://", b"example.org", b"evil.test", b"127.1"),
        *(b"[::1]", b"example.org.", b"EXAMPLE.ORG", b":80", b":443", b":22", b"/", b"/x", b"?", b"#", b"@", b"\\"),
        *(b" HTTP/1.1", b" HTTP/1.0", b" HTTP/2.0", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\0", b" ", b"\t", b":", b","),
        *(b"Host: evil.test", b"Content-Length: 5", b"Content-Length: 0", b"Transfer-Encoding: chunked", b"chunked"),
        *(
            b"Connection: close",
            b"Expect: 100-continue",
            b"5\r\nhello\r\n0\r\n\r\n",
            b"hello",
            b"\xff",
            b"%2e",
            b"\xc3\xbc",
        ),
    ]
)
REQUESTS = st.one_of(
    st.binary(max_size=200),
    st.lists(PARTS, max_size=30).map(b"".join),
    st.lists(PARTS, max_size=20).map(lambda parts: b"GET http://example.org/ HTTP/1.1\r\n" + b"".join(parts)),
    st.lists(PARTS, max_size=20).map(lambda parts: b"POST http://example.org/" + b"".join(parts) + b"\r\n\r\n"),
)
HEAD = re.compile(
    rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ /[^ \r\n]* HTTP/1\.[01]\r\nHost: example\.org\r\n"
    rb"([^\r\n\0]+\r\n)*Connection: close\r\n\r\n"
)


@given(REQUESTS)
@settings(max_examples=900)
def test_a_request_is_read_as_one_thing_or_refused(data: bytes) -> None:
    head = data.partition(b"\r\n\r\n")[0]
    try:
        request = read_request(head)
    except BadRequest:
        return
    if request.is_tunnel:
        assert (request.head, request.length) == (b"", 0)
        return
    lines = request.head.split(b"\r\n")
    assert request.head.endswith(b"\r\n\r\n")
    assert request.head.count(b"\r\n\r\n") == 1
    assert not re.search(rb"(?<!\r)\n|\r(?!\n)|\0", request.head)
    names = [line.partition(b":")[0].lower() for line in lines[1:-2]]
    assert names[0] == b"host"
    assert names.count(b"host") == 1
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
    assert names[-1] == b"connection" or b"connection" in names


@given(st.lists(REQUESTS, min_size=1, max_size=4), st.integers(1, 60))
@settings(max_examples=120)
def test_only_allowed_hosts_hear_and_only_one_request(requests: list[bytes], size: int) -> None:
    asyncio.run(_try(requests, size))


async def _try(requests: list[bytes], size: int) -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        data = b""
        with suppress(TimeoutError):  # it closes when nothing more comes, as a server does
            while True:
                async with asyncio.timeout(0.02):
                    if not (part := await reader.read(65536)):
                        break
                data += part
        heard.append(data)

    async with world(listen) as there, front(there, "example.org") as proxy:
        for request in requests:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            try:
                for at in range(0, len(request), size):
                    writer.write(request[at : at + size])
                writer.write_eof()
                async with asyncio.timeout(60):
                    await reader.read()
            except OSError:
                pass
            finally:
                writer.close()
    assert {address for address, _ in there.connected} <= {PUBLIC}
    assert {name for name, _ in there.resolved} <= {"example.org"}
    assert {port for _, port in there.connected} <= {80, 443}
    assert all(entry.allowed == (entry.host == "example.org" and entry.port in (80, 443)) for entry in proxy.reached)
    tunnels = any(b"CONNECT" in request for request in requests)
    for data in heard:
        assert tunnels or not data or HEAD.match(data)


@pytest.mark.sweep
@given(st.lists(REQUESTS, min_size=1, max_size=4), st.integers(1, 60))
@settings(max_examples=600)
def test_only_allowed_hosts_hear_many_more(requests: list[bytes], size: int) -> None:
    asyncio.run(_try(requests, size))


@given(st.text(max_size=60), st.integers(1, 65535))
@settings(max_examples=200)
def test_an_entry_has_a_normal_form_that_stays_or_is_refused(text: str, port: int) -> None:
    for entry in (text, f"*.{text}", f"{text}:{port}", f"[{text}]", f"{text}/8"):
        try:
            normal = host_entry(entry)
        except ValueError:
            continue
        assert host_entry(normal) == normal
        assert normal == normal.lower()
        assert normal.isascii()
        assert not re.search(r"[\s@\\#?%]", normal)
        Hosts([normal])
