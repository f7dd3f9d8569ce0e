"""More idle connections than a server has descriptors for: one line in the log, and service when connections end."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest


@pytest.mark.parametrize("words", [("web", "--no-open", "--port", "0"), ("proxy", "--port", "0")])
async def test_idle_connections_take_one_line_and_service_goes_on(swink: Any, words: tuple[str, ...]) -> None:
    limited = ("/bin/sh", "-c", 'ulimit -n 64; exec "$@"', "sh")
    command = [*limited, *swink.command(*words)]
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(
        *command, cwd=swink.folder, env=swink.environ, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe,
        start_new_session=True,
    )  # fmt: skip
    address = urlsplit((await program.stdout.readline()).decode().rpartition("URL=")[2].strip())  # type: ignore[union-attr]
    assert address.port is not None
    idle = [socket.create_connection(("127.0.0.1", address.port)) for _ in range(200)]
    said = b""
    async with asyncio.timeout(30):
        while b"connections are open" not in said:
            said += await program.stderr.readline()  # type: ignore[union-attr]
    for each in idle:
        each.close()
    health = f"http://127.0.0.1:{address.port}/health"
    async with asyncio.timeout(30), aiohttp.ClientSession() as http, http.get(health) as response:
        assert response.status == 200
    program.send_signal(signal.SIGTERM)
    _, rest = await asyncio.wait_for(program.communicate(), 30)
    assert (said + rest).count(b"connections are open") == 1
    assert len((said + rest).splitlines()) <= 4, said + rest
