"""Kept events, and readers that do not delay each other."""

from __future__ import annotations

import asyncio
import socket
import time
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from swink_agent.web.channels import SessionChannels
from swink_agent.web.streams import MOST_UNSENT, EventLog, Place, Readers, write_in_time


async def test_events_are_kept_up_to_a_number_and_a_size() -> None:
    log = EventLog(most_events=10, most_bytes=100_000)
    start = log.position
    for number in range(25):
        log.append("x", b"%d" % number)
    assert log.position == start + 25
    assert log.first == start + 15
    assert [event.data for event in log.events_after(start + 20)] == [b"20", b"21", b"22", b"23", b"24"]
    assert not log.holds(start + 14)
    assert log.holds(start + 15)
    assert log.holds(log.position)
    assert not log.holds(log.position + 1)
    log.append("big", b"x" * 99_990)
    assert log.first == log.position - 1


async def test_the_run_under_way_is_kept_whole() -> None:
    log = EventLog(most_events=10)
    log.append("before", b"1")
    start = log.position
    log.begin_run()
    for _ in range(5000):
        log.append("x", b"1")
    assert log.first == start
    log.end_run()
    assert log.first == log.position - 10


async def test_ids_of_a_new_start_are_greater() -> None:
    before = EventLog()
    for _ in range(100):
        before.append("x", b"1")
    await asyncio.sleep(0.001)
    after = EventLog()
    assert after.position > before.position
    assert not after.holds(before.position)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - a connection's end has no event here
            await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(log: EventLog, readers: Readers) -> AsyncGenerator[int]:
    async def events(request: web.Request) -> web.StreamResponse:
        given = request.query.get("after")
        return await readers.serve(request, [Place(log, None if given is None else int(given))])

    app = web.Application()
    app.router.add_get("/", events)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        log.close()
        readers.close()
        await runner.cleanup()


async def deaf(port: int) -> socket.socket:
    """A reader that asks and then does not read."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(made, ("127.0.0.1", port))
    await loop.sock_sendall(made, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return made


async def test_an_event_larger_than_the_limit_reaches_every_reader() -> None:
    log, readers = EventLog(), Readers(10)
    async with (
        serving(log, readers) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/") as one,
        session.get(f"http://127.0.0.1:{port}/") as two,
    ):
        await until(lambda: len(readers) == 2)
        log.append("picture", b'"%s"' % (b"x" * (MOST_UNSENT + 2_000_000)))
        log.append("last", b"1")
        log.close()
        async with asyncio.timeout(60):
            for response in (one, two):
                assert (await response.read()).endswith(b"event: last\ndata: 1\n\n")


class _SlowResponse:
    """A response whose client reads 2 MB in a second."""

    def __init__(self) -> None:
        self.size = 0

    async def write(self, data: bytes) -> None:
        await asyncio.sleep(len(data) / 2_000_000)
        self.size += len(data)


async def test_a_client_that_reads_slowly_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.web.streams.LONGEST_UNSENT", 1.0)
    response: Any = _SlowResponse()
    request: Any = None
    await write_in_time(request, response, b"x" * 3_000_000)
    assert response.size == 3_000_000


async def test_a_reader_that_does_not_read_is_closed_and_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.web.streams.LONGEST_UNSENT", 1.0)
    log, readers = EventLog(), Readers(10)
    async with serving(log, readers) as port, aiohttp.ClientSession() as session:
        slow = await deaf(port)
        async with session.get(f"http://127.0.0.1:{port}/") as response:
            await until(lambda: len(readers) == 2)
            took: list[float] = []

            async def read() -> int:
                size = 0
                async for part in response.content.iter_any():
                    size += len(part)
                    if b'"last"' in part:
                        break
                return size

            reading = asyncio.ensure_future(read())
            for number in range(100):
                before = time.monotonic()
                log.append("x", b'"%s"' % (b"x" * 100_000))
                took.append(time.monotonic() - before)
                await asyncio.sleep(0.002 if number % 10 else 0.03)
            log.append("x", b'"last"')
            async with asyncio.timeout(60):
                assert await reading >= 100 * 100_000
            await until(lambda: len(readers) == 1)
            assert max(took) < 1
        slow.close()


async def test_a_reader_without_progress_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.web.streams.LONGEST_UNSENT", 0.3)
    monkeypatch.setattr("swink_agent.web.streams._TICK", 0.05)
    log, readers = EventLog(), Readers(10)
    async with serving(log, readers) as port:
        slow = await deaf(port)
        await until(lambda: len(readers) == 1)
        for _ in range(30):  # far below what a reader may have unsent
            log.append("x", b'"%s"' % (b"x" * 100_000))
            await asyncio.sleep(0)
        await until(lambda: not len(readers))
        slow.close()


async def test_a_reader_hears_now_and_then_and_its_place_is_free_when_it_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("swink_agent.web.streams._BEAT", 0.1)
    monkeypatch.setattr("swink_agent.web.streams._TICK", 0.05)
    log, readers = EventLog(), Readers(10)
    async with serving(log, readers) as port, aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/") as response:
            seen = b""
            async with asyncio.timeout(60):
                while b":\n\n" not in seen:
                    seen += await response.content.readany()
            assert seen.startswith(b"retry: 1000\n\n")
        await until(lambda: not len(readers))


async def test_many_deltas_are_few_writes() -> None:
    log, readers = EventLog(), Readers(10)
    async with (
        serving(log, readers) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/") as response,
    ):
        await response.content.readuntil(b"\n\n")
        for number in range(500):
            log.append("x", b"%d" % number)
        chunks = 0
        seen = b""
        async with asyncio.timeout(60):
            while b"data: 499\n" not in seen:
                seen += await response.content.readany()
                chunks += 1
    assert seen.count(b"event: x") == 500
    assert chunks < 50


def test_events_that_are_not_kept_take_no_memory() -> None:
    log = EventLog(most_bytes=1_000_000)
    tracemalloc.start()
    try:
        for _ in range(300):
            log.append("notice", b"x" * 100_000)
        assert tracemalloc.get_traced_memory()[0] < 5_000_000
    finally:
        tracemalloc.stop()
    assert len(log.events_after(log.first)) == len(log.frames_behind(log.first)) == 9
    for _ in range(2000):
        log.append("notice", b"y" * 10_000)
    assert {event.data for event in log.events_after(log.first)} == {b"y" * 10_000}


def test_streams_that_nobody_reads_have_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.web.channels._MOST_QUIET_BYTES", 10_000)

    async def never(*_: Any) -> Any:
        raise AssertionError("nothing is opened here")

    channels = SessionChannels(never, lambda _: None)
    for number in range(8):
        channels.of(f"s{number}").log.append("notice", b"x" * 3000)
    read = channels.of("s6")
    read.log.listen(lambda: None)
    channels.of("s8")
    assert [channel.id for channel in channels] == ["s4", "s5", "s7", "s6", "s8"]
