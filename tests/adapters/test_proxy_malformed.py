"""Malformed requests: the proxy answers them with a 4xx and a line in its log, and does nothing else."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import random
import re
from collections.abc import Mapping
from typing import Any

import pytest

from swink_agent.adapters.proxy_server import ProxyServer
from swink_agent.testing import scripted, text

TOKEN = "proxy-token-1"
GOOD = b'{"model":{"provider":"a","model_id":"m"},"messages":[]}'
FORGED = "x\r\nwarning: all is well\x1b[2J\u2028"


def server(**options: Any) -> ProxyServer:
    options = {"read_seconds": 0.5, **options}
    return ProxyServer({TOKEN: 4}, lambda model: scripted(text("hello")), **options)


def post(body: bytes, headers: Mapping[str, str] | None = None, *, path: str = "/v1/stream") -> bytes:
    given = {"host": "x", "authorization": f"Bearer {TOKEN}", "content-length": str(len(body)), **(headers or {})}
    lines = [f"POST {path} HTTP/1.1", *[f"{name}: {value}" for name, value in given.items() if value]]
    return "\r\n".join([*lines, "connection: close", "", ""]).encode("utf-8", "surrogateescape") + body


async def answers(url: str, data: bytes) -> list[int]:
    """The statuses of all that comes back for these bytes."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:
        return []
    finally:
        writer.close()
    assert b"Traceback" not in answer
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) [A-Z]", answer)]


def assert_log_is_ours(caplog: pytest.LogCaptureFixture) -> None:
    for record in caplog.records:
        message = record.getMessage()
        assert record.exc_info is None, message
        assert message.isascii()
        assert message.isprintable(), message
        assert len(message) < 300
        assert message.startswith("refused "), message
        assert TOKEN not in message


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"hello",
    "half of it": GOOD[:-5],
    "two of them": GOOD + GOOD,
    "a list": b"[]",
    "a number": b"1e999",
    "bad UTF-8": b'{"model":{"provider":"\xff\xfe","model_id":"m"},"messages":[]}',
    "half a character": b'{"model":{"provider":"\\ud800","model_id":"m"},"messages":[]}',
    "a NUL": b"\0",
    "a mark": b"\xef\xbb\xbf" + GOOD,
    "wrong types": b'{"model":7,"messages":{}}',
    "a wrong role": b'{"model":{"provider":"a","model_id":"m"},"messages":[{"role":"boss","content":[]}]}',
    "a forged role": b'{"model":{"provider":"a","model_id":"m"},"messages":[{"role":"\\nwarning: x","content":[]}]}',
    "a wrong option": b'{"model":{"provider":"a","model_id":"m"},"messages":[],"options":{"max_tokens":"many"}}',
    "no model": b'{"messages":[]}',
    "deep lists": b'{"model":{"provider":"a","model_id":"m"},"messages":' + b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000,
    "deep where anything goes": (
        b'{"model":{"provider":"a","model_id":"m"},"messages":[],"options":{"extra":{"a":'
        + b"[" * 50_000
        + b"]" * 50_000
        + b"}}}"
    ),
    "UTF-16": GOOD.decode().encode("utf-16"),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
async def test_a_body_that_cannot_be_read_is_a_400(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "swink_agent")
    async with server().serve() as url:
        assert await answers(url, post(body)) == [400]
        assert await answers(url, post(GOOD)) == [200], "and the next is served"
    assert len(caplog.records) == 1
    assert_log_is_ours(caplog)


REQUESTS: dict[str, tuple[bytes, int]] = {
    "no token": (post(GOOD, {"authorization": ""}), 401),
    "a scheme alone": (post(GOOD, {"authorization": "Bearer"}), 401),
    "another scheme": (post(GOOD, {"authorization": f"Basic {TOKEN}"}), 401),
    "a token of other bytes": (post(GOOD, {"authorization": "Bearer \udcff\udcfe"}), 401),
    "a token of letters": (post(GOOD, {"authorization": "Bearer ключ"}), 401),
    "another path": (post(GOOD, path="/v1/other"), 404),
    "a forged path": (post(GOOD, path="/%0d%0awarning:%20x%1b[2J"), 404),
    "a path that climbs": (post(GOOD, path="/../../etc/passwd"), 404),
    "a long path": (post(GOOD, path="/" + "a" * 5000), 404),
    "an unknown encoding": (post(b"x", {"content-encoding": "gzip"}), 400),
    "a picture": (post(GOOD, {"content-type": "image/png"}), 415),
    "a form with files": (post(GOOD, {"content-type": "multipart/form-data; boundary=x"}), 415),
    "an expectation": (post(GOOD, {"expect": "the unexpected"}), 417),
    "a length that is none": (post(GOOD, {"content-length": "many"}), 400),
    "a negative length": (post(GOOD, {"content-length": "-1"}), 400),
    "two lengths": (post(GOOD, {"Content-Length": "3"}), 400),
    "a length and chunks": (post(GOOD, {"transfer-encoding": "chunked"}), 400),
    "chunks that are none": (post(b"zz\r\n", {"content-length": "", "transfer-encoding": "chunked"}), 400),
    "less than was said": (post(GOOD, {"content-length": "5000"}), 408),
    "another method": (b"GET /v1/stream HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 405),
    "an odd method": (b"PATCH /v1/stream HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 405),
    "no method": (b"BREW /v1/stream HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 400),
    "a header without a name": (b"POST /v1/stream HTTP/1.1\r\n: x\r\n\r\n", 400),
    "a header with a NUL": (b"POST /v1/stream HTTP/1.1\r\nhost: x\0y\r\n\r\n", 400),
    "a header that goes on": (b"POST /v1/stream HTTP/1.1\r\nx: " + b"a" * 100_000 + b"\r\n\r\n", 400),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "another protocol": (b"EHLO example.org\r\n\r\n", 400),
    "another version": (b"POST /v1/stream HTTP/9.9\r\n\r\n", 400),
    "forged lines": (FORGED.encode() + b"\r\n\r\n", 400),
}


@pytest.mark.parametrize(("data", "status"), REQUESTS.values(), ids=list(REQUESTS))
async def test_an_invalid_request_is_refused(
    data: bytes, status: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "swink_agent")
    async with server().serve() as url:
        assert (await answers(url, data))[:1] == [status]
        assert await answers(url, post(GOOD)) == [200]
    assert caplog.records
    assert_log_is_ours(caplog)
    assert "Traceback" not in capfd.readouterr().err


async def test_garbage_behind_a_good_request_is_refused_and_the_good_one_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = post(GOOD).replace(b"connection: close\r\n", b"")
    async with server().serve() as url:
        assert await answers(url, good + b"\x00\x01garbage\r\n\r\n") in ([200, 400], [400])
        assert await answers(url, good + good + post(b"{}")) == [200, 200, 400]
    assert_log_is_ours(caplog)


@pytest.mark.parametrize("name", [FORGED, "m" * 100_000])
async def test_a_model_whose_stream_fails_forges_nothing_by_its_name(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(model: object) -> Any:
        raise RuntimeError(name)

    body = json.dumps({"model": {"provider": name, "model_id": name}, "messages": []}).encode()
    async with ProxyServer({TOKEN: 4}, broken).serve() as url:
        assert await answers(url, post(body)) == [200], "the failure is an event of the stream"
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.isascii()
    assert message.isprintable()
    assert message.startswith("the stream function for ")
    assert len(message) < 150


async def test_a_client_that_expects_100_may_continue() -> None:
    async with server().serve() as url:
        assert await answers(url, post(GOOD, {"expect": "100-continue"})) == [100, 200]


@pytest.mark.sweep
async def test_a_body_that_grows_when_it_is_unpacked_is_too_large() -> None:
    packed = gzip.compress(b" " * 50_000_000)
    async with server(most_bytes=1_000_000).serve() as url:
        assert await answers(url, post(packed, {"content-encoding": "gzip"})) == [413]
        assert await answers(url, post(b" " * 2_000_000)) == [413]


@pytest.mark.parametrize("sent", [b"", b"POST /v1/str", post(GOOD)[:60], post(GOOD)[:-5]])
async def test_a_client_that_does_not_go_on_is_not_waited_for(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with server(read_seconds=0.3).serve() as url:
        async with asyncio.timeout(30):
            statuses = await answers(url, sent)
        assert statuses in ([], [408])
        assert await answers(url, post(GOOD)) == [200]
    assert_log_is_ours(caplog)


@pytest.mark.sweep
async def test_any_bad_request_gets_a_4xx_and_only_our_log(caplog: pytest.LogCaptureFixture) -> None:
    """Good requests, with bytes changed, left out, put in and doubled at random."""
    caplog.set_level(logging.DEBUG, "swink_agent")
    chance = random.Random(20261115)
    sent = [mangled(chance) for _ in range(400)]
    async with server().serve() as url:
        for start in range(0, len(sent), 100):
            batch = sent[start : start + 100]
            for data, statuses in zip(
                batch, await asyncio.gather(*[answers(url, data) for data in batch]), strict=True
            ):
                assert all(status == 200 or 400 <= status < 500 for status in statuses), data
        assert await answers(url, post(GOOD)) == [200]
    assert_log_is_ours(caplog)


def mangled(chance: random.Random) -> bytes:
    data = bytearray(post(GOOD, {"x-other": "1"}))
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.randrange(1, 9)]
            case 2:
                data[at:at] = chance.choice([b"\r\n", b"\0", b"{", b'"', b"\xff", b"\n", b":", b" "])
            case _:
                data[at:at] = data[at : at + 20]
    return bytes(data)
