"""`swink web` as a program: its one line of output, its flags, its signals, and a run that a signal stops."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from swink_agent.testing import FakeProvider, FakeReply
from swink_agent.web.serving import hosts_of

TOKEN = "a-token-of-a-test-0123456789"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.sweep)])
async def test_it_prints_one_line_serves_and_stops_its_run_when_told(swink: Any, number: signal.Signals) -> None:
    swink.confine()
    async with FakeProvider("anthropic", [FakeReply(calls=[("bash", {"command": "echo hi"})])]) as fake:
        swink.use(fake)
        flags = ("--no-open", "--port", "0", "--approve", "ask", "-m", "anthropic")
        program = await swink.start("web", *flags, environ={"SWINK_WEB_TOKEN": TOKEN})
        line = (await program.stdout.readline()).decode()
        found = re.fullmatch(rf"(http://127\.0\.0\.1:\d+)/\?token={TOKEN}\n", line)
        assert found, line
        api, headers = f"{found[1]}/api/v1", {"authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            async with http.post(f"{api}/sessions", json={}) as response:
                session = (await response.json())["id"]
            async with http.get(f"{api}/sessions/{session}/events") as stream:
                async with http.post(f"{api}/sessions/{session}/prompt", json={"text": "hi"}) as response:
                    assert response.status == 202, await response.text()
                seen = b""
                while b"event: question" not in seen and b"agent_end" not in seen:
                    seen += await asyncio.wait_for(stream.content.readany(), 30)
                before = time.monotonic()
                program.send_signal(number)
                while part := await asyncio.wait_for(stream.content.readany(), 30):
                    seen += part
        out, error = await asyncio.wait_for(program.communicate(), 30)
    assert (program.returncode, out) == (0, b""), error
    assert time.monotonic() - before < 5
    assert TOKEN.encode() not in error
    names = re.findall(rb"event: (\w+)", seen)
    assert names[-1] == b"bye"
    assert names.index(b"question") < names.index(b"answered") < names.index(b"agent_end")
    shown = await swink("sessions", "show", session)
    assert shown.code == 0
    assert "cancelled" in shown.stdout


async def test_the_browser_starts_without_a_secret_on_its_command_line(swink: Any, tmp_path: Path) -> None:
    programs, started, page = tmp_path / "programs", tmp_path / "started", tmp_path / "page"
    programs.mkdir()
    opener = programs / "xdg-open"
    opener.write_text(f'#!/bin/sh\ncat "${{1#file://}}" > "{page}"\necho "$@" > "{started}.part"\n'
                      f'mv "{started}.part" "{started}"\n')  # fmt: skip
    opener.chmod(0o755)
    environ = {"SWINK_WEB_TOKEN": TOKEN, "PATH": f"{programs}:/usr/bin:/bin", "SWINK_DATA_DIR": str(tmp_path / "data")}
    program = await swink.start("web", "--port", "0", environ=environ)
    address = (await program.stdout.readline()).decode().strip().partition("?")[0]
    async with asyncio.timeout(30):
        while not started.exists():  # noqa: ASYNC110 - another program writes it
            await asyncio.sleep(0.05)
    found = re.search(r'url=([^"]*)"', page.read_text())
    assert found is not None
    assert found[1].startswith(f"{address}?code=")
    code = found[1].partition("=")[2]
    assert not any(secret in started.read_text() for secret in (TOKEN, code))
    async with aiohttp.ClientSession() as http:
        for status in (200, 401):
            async with http.get(found[1]) as response:
                assert response.status == status
    program.send_signal(signal.SIGTERM)
    _, error = await asyncio.wait_for(program.communicate(), 30)
    assert TOKEN.encode() not in error
    assert code.encode() not in error
    assert list((tmp_path / "data" / "browser").iterdir()) == []


def test_wrong_ways_to_serve_are_refused(refused: Callable[..., str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port, token, said in (
            (taken.getsockname()[1], TOKEN, "cannot listen"),
            (0, "short", "22"),
            (0, "a token with 28 characters..", "character"),
        ):
            assert said in refused("web", "--no-open", "--port", str(port), SWINK_WEB_TOKEN=token)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], []),
        (["--host", "0.0.0.0", "--insecure"], ["Anyone with the token", "Nothing is encrypted", "--allow-host"]),
        (["--host", "0.0.0.0", "--insecure", "--allow-host", "box"], ["Anyone with the token", "Nothing is encrypted"]),
    ],
)
async def test_the_start_says_what_it_means_that_others_can_reach_it(
    swink: Any, flags: list[str], said: list[str]
) -> None:
    token = "a+token/of&a=test#0123456789"
    program = await swink.start("web", "--no-open", "--port", "0", *flags, environ={"SWINK_WEB_TOKEN": token})
    line = (await program.stdout.readline()).decode()
    assert line.endswith("?token=a%2Btoken%2Fof%26a%3Dtest%230123456789\n")
    async with aiohttp.ClientSession() as http, http.get(line.strip(), allow_redirects=False) as response:
        assert response.status == 303, "the address works as it is printed"
    program.send_signal(signal.SIGTERM)
    _, error = await asyncio.wait_for(program.communicate(), 30)
    lines = error.decode().splitlines()
    assert lines[-1] == "Serving. Ctrl+C ends it."
    assert len(lines) == len(said) + 1
    assert all(words in shown for words, shown in zip(said, lines, strict=False))


@pytest.mark.rows(one_of=3)
@pytest.mark.parametrize("words", [("web", "--no-open", "--port", "0"), ("mcp", "serve"), ("acp",)])
async def test_a_collector_that_does_not_answer_is_told_at_the_end(
    swink: Any, tmp_path: Path, words: tuple[str, ...]
) -> None:
    with socket.socket() as silent:  # takes connections, and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{where}", "SWINK_OTEL": "on"}
        async with FakeProvider("anthropic", ["Hello."]) as provider:
            swink.use(provider)
            program = await swink.start(*words, stdin=asyncio.subprocess.PIPE, environ=environ)
            if words[0] == "web":
                await _run_in_browser((await program.stdout.readline()).decode().strip())
                program.send_signal(signal.SIGTERM)
            elif words[0] == "mcp":
                await _run_as_tool(program)
                program.send_signal(signal.SIGTERM)
            else:
                await _run_in_editor(program, tmp_path)
                program.stdin.close()
            _, error = await asyncio.wait_for(program.communicate(), 60)
    assert f"warning: telemetry was not sent: the collector at {where}" in " ".join(error.decode().split())
    assert b"Traceback" not in error
    assert error.count(b"warning: ") == 1, error


async def _run_in_browser(address: str) -> None:
    """Runs one prompt to its end."""
    page, _, token = address.partition("/?token=")
    headers = {"authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(f"{page}/api/v1/", headers=headers) as http:
        async with http.post("sessions", json={}) as made:
            session = f"sessions/{(await made.json())['id']}"
        async with http.post(f"{session}/prompt", json={"text": "Hi."}) as accepted:
            assert accepted.status == 202
        async with asyncio.timeout(60):
            while (await (await http.get(f"{session}/messages")).json())["total"] < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def _run_as_tool(program: asyncio.subprocess.Process) -> None:
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    called = {"name": "agent", "arguments": {"prompt": "go"}}
    messages: list[dict[str, Any]] = [
        {"id": 0, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 1, "method": "tools/call", "params": called},
    ]
    assert program.stdin is not None
    assert program.stdout is not None
    for message in messages:
        program.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        if "id" in message:
            answer = json.loads(await asyncio.wait_for(program.stdout.readline(), 60))
            assert "Hello." in str(answer) or message["id"] == 0


async def _run_in_editor(program: asyncio.subprocess.Process, folder: Path) -> None:
    """Runs one prompt in a session of an editor."""
    stdin, stdout = program.stdin, program.stdout
    assert stdin is not None
    assert stdout is not None

    async def answer(number: int, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
        stdin.write(json.dumps(request).encode() + b"\n")
        while "result" not in (message := json.loads(await asyncio.wait_for(stdout.readline(), 60))):
            assert "error" not in message, message
        return message["result"]

    await answer(0, "initialize", {"protocolVersion": 1})
    session = (await answer(1, "session/new", {"cwd": str(folder), "mcpServers": []}))["sessionId"]
    prompt = [{"type": "text", "text": "Hi."}]
    assert (await answer(2, "session/prompt", {"sessionId": session, "prompt": prompt}))["stopReason"] == "end_turn"


def test_the_names_that_an_address_has() -> None:
    assert hosts_of("127.0.0.1", [], 80) == ["127.0.0.1:80"]
    assert hosts_of("0.0.0.0", ["box.example"], 80) == ["box.example"]
    assert hosts_of("fd00::1", [], 8377) == ["[fd00::1]:8377"]
