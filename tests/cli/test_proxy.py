"""`swink proxy`, and a `swink -p` that has no key and asks through it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from typing import Any

import pytest

from swink_agent.testing import FakeProvider

from ..ending import ends_cleanly


async def test_a_machine_without_keys_asks_through_one_that_has_them(swink: Any) -> None:
    async with FakeProvider("anthropic", ["Hello from afar."]) as provider:
        address = {"ANTHROPIC_BASE_URL": provider.url}
        (swink.home / "config").mkdir(mode=0o700)
        keys = swink.home / "config" / "keys.json"
        descriptor = os.open(keys, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(descriptor, b'{"anthropic": {"store": "file", "key": "fake-key"}}')
        os.close(descriptor)
        server = await swink.start("proxy", "--port", "0", environ=address)
        said = [(await server.stdout.readline()).decode().strip() for _ in range(2)]
        client = dict(line.removeprefix("export ").split("=", 1) for line in said)
        assert client["SWINK_PROXY_URL"].startswith("http://127.0.0.1:")
        client["SWINK_CONFIG_DIR"] = str(swink.home / "other")
        arguments = ("-p", "hi", "--tools", "none", "--model", "proxy:anthropic:claude-sonnet-4-6")
        asked = await swink(*arguments, environ=client)
        refused = await swink(*arguments, environ={**client, "SWINK_PROXY_TOKEN": "another-token"})
        _, stderr = await ends_cleanly(server, signal.SIGINT, asyncio.sleep(0, b""), code=0)
    assert (asked.code, asked.stdout) == (0, "Hello from afar.\n")
    assert refused.code == 3
    assert "another-token" not in refused.stderr
    assert stderr == b"Serving. Ctrl+C ends it.\n"


@pytest.mark.sweep
async def test_an_invalid_request_is_one_line_on_stderr(swink: Any) -> None:
    server = await swink.start("proxy", "--port", "0")
    address = (await server.stdout.readline()).decode().strip().rpartition("/")[2]
    await server.stdout.readline()
    host, _, port = address.partition(":")
    for data in (b"\x1b[2J\r\nerror: x\r\n\r\n", b"GET /%0aerror:%20x%1b[2J HTTP/1.0\r\n\r\n"):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        assert re.match(rb"HTTP/1.[01] 4\d\d ", await asyncio.wait_for(reader.read(), 60))
        writer.close()
    server.send_signal(signal.SIGINT)
    _, stderr = await server.communicate()
    lines = stderr.decode().splitlines()
    assert lines[0] == "warning: no key is set here; to store one: swink keys set PROVIDER"
    assert lines[1] == "Serving. Ctrl+C ends it."
    assert lines[2:] == [
        "warning: refused a request that cannot be read: BadHttpMethod",
        "warning: refused GET /\\nerror: x\\x1b[2J from 127.0.0.1 with 404: not found",
    ]
