"""Accepting connections: what the system refuses for a while is waited for, and told once."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from swink_agent.adapters.kit import listener
from swink_agent.adapters.kit.listener import Connection, listening, listening_sockets, noted


class _Exhausted(socket.socket):
    """A socket that cannot accept a connection for its first tries."""

    left = 5

    def accept(self) -> Any:
        if type(self).left:
            type(self).left -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


async def serve(**given: Any) -> web.AppRunner:
    app = web.Application(middlewares=[noted])

    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    app.router.add_get("/", hello)
    runner = web.AppRunner(app)
    await runner.setup()
    return runner


async def test_a_system_out_of_descriptors_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "_PAUSE", 0.001)
    caplog.set_level(logging.DEBUG)
    runner = await serve()
    manager: Any = runner.server
    exhausted = _Exhausted(socket.AF_INET, socket.SOCK_STREAM)
    exhausted.bind(("127.0.0.1", 0))
    port = exhausted.getsockname()[1]
    loop = asyncio.get_running_loop()
    async with (
        listening(manager, [exhausted], lambda: Connection(manager, patience=30.0, loop=loop)),
        aiohttp.ClientSession() as http,
        http.get(f"http://127.0.0.1:{port}/") as response,
    ):
        assert await response.text() == "hello"
    await runner.cleanup()
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == ["0 connections are open, and no other can be accepted until one ends: Too many open files"]


async def test_a_connection_without_a_request_ends_and_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = await serve()
    manager: Any = runner.server
    loop = asyncio.get_running_loop()
    (bound, *_), made = await listening_sockets("127.0.0.1", 0), []

    def connection() -> Connection:
        made.append(Connection(manager, patience=0.3, loop=loop))
        return made[-1]

    async with listening(manager, [bound], connection), aiohttp.ClientSession() as http:
        address = f"http://127.0.0.1:{bound.getsockname()[1]}/"
        async with http.get(address):
            pass
        idle, writer = await asyncio.open_connection(*bound.getsockname())
        async with asyncio.timeout(60):
            assert await idle.read() == b""
        writer.close()
        async with http.get(address):
            pass
        assert len(made) == 2, "the first connection was used again"
    await runner.cleanup()


async def test_a_host_with_several_addresses_listens_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    async def several(*_: Any, **__: Any) -> list[Any]:
        kind = socket.SOCK_STREAM
        return [(socket.AF_INET, kind, 6, "", ("127.0.0.1", 0)), (socket.AF_INET, kind, 6, "", ("0.0.0.0", 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", several)
    made = await listening_sockets("box.example", 0)
    assert [each.getsockname()[0] for each in made] == ["127.0.0.1", "0.0.0.0"]
    for each in made:
        each.close()
