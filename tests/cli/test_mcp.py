"""`swink mcp`: the servers of the settings, whether they work, and the agent's own tools for others."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from swink_agent.testing import FakeProvider, FakeReply
from tests.mcp.raw_server import program

from ..ending import ends_cleanly


def _settings(swink: Any, *tables: str) -> Path:
    path = swink.home / "config" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(tables))
    return path


def _table(name: str, lines: str = "") -> str:
    return (
        f'[mcp.servers.{name}]\ncommand = "{sys.executable}"\nsandbox = "off"\n'
        f"args = [\"-I\", \"-S\", \"-c\", '''{program(lines)}''']\n".replace("'''\nimport", "'''import")
    )


async def test_list_shows_the_servers_and_starts_none(swink: Any) -> None:
    bad = '[mcp.servers.web]\nurl = "https://u:pass-word-1@example.com/x?key=abc"\nheaders = { A = "${NOT_SET}" }\n'
    path = _settings(swink, bad, '[mcp.servers.off]\ncommand = "no-such-program"\nenabled = false\n')
    done = await swink("mcp", "list", "--json")
    assert done.code == 0, done
    assert json.loads(done.stdout) == [
        {
            "name": "web",
            "transport": "http",
            "target": "https://example.com/x",
            "source": f"{path}:1",
            "enabled": True,
            "problem": "NOT_SET is not set in the environment",
        },
        {
            "name": "off",
            "transport": "stdio",
            "target": "no-such-program",
            "source": f"{path}:5",
            "enabled": False,
            "problem": None,
        },
    ]
    shown = await swink("mcp")
    assert "web" in shown.stdout
    assert "disabled" in shown.stdout


@pytest.mark.sweep  # loads the package in each of three processes
async def test_test_starts_one_server_and_tells_its_tools(swink: Any) -> None:
    _settings(swink, _table("one", "tools.append({'name': 'bad'})"), _table("bad", "sys.exit(9)"))
    done = await swink("mcp", "test", "one", "--json")
    assert done.code == 0, done
    told = json.loads(done.stdout)
    assert told["tools"] == [{"name": "mcp__one__echo", "description": "Does echo."}]
    assert "'bad' is left out" in told["warnings"][0]
    failed = await swink("mcp", "test", "bad")
    assert failed.code == 1
    assert "MCP server bad: it ended with exit code 9" in failed.stderr
    unknown = await swink("mcp", "test", "two")
    assert unknown.code == 2
    assert "there are: one, bad" in unknown.stderr


async def test_a_prompt_uses_the_servers_unless_it_is_told_not_to(swink: Any) -> None:
    _settings(swink, _table("one"), _table("bad", "sys.exit(9)"))
    asks = FakeReply(calls=[("mcp__one__echo", {"text": "from the server"})])
    async with FakeProvider("anthropic", [asks, "done", "alone"]) as provider:
        swink.use(provider)
        done = await swink("-p", "go", "--tools", "none", "--allow", "mcp__one__*", "--no-session")
        assert (done.code, done.stdout) == (0, "done\n"), done
        assert "MCP server bad: it ended with exit code 9" in done.stderr
        assert "from the server" in json.dumps(provider.bodies[1])
        alone = await swink("-p", "go", "--tools", "none", "--no-mcp", "--no-session")
        assert alone.stdout == "alone\n"
        assert "mcp__" not in json.dumps(provider.bodies[2])


async def _session(process: asyncio.subprocess.Process, *requests: tuple[str, dict[str, Any]]) -> list[Any]:
    """The results of these requests, one after the other; stdout has nothing else."""
    assert process.stdin is not None
    assert process.stdout is not None
    results: list[Any] = []
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    for number, (method, params) in enumerate([("initialize", client), *requests]):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        process.stdin.write(json.dumps(message).encode() + b"\n")
        if method == "initialize":
            process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        answer = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        assert answer["id"] == number, answer
        results.append(answer.get("result", answer))
    return results[1:]


@pytest.mark.sweep  # loads the package in a process that shares nothing
async def test_serve_offers_the_tools_and_the_agent(swink: Any) -> None:
    swink.confine()
    (swink.folder / "a.txt").write_text("hello\n")
    told = swink.home / "told"
    _settings(
        swink,
        '[hooks.guard]\nevent = "before_tool"\ntools = ["list_dir"]\ncommand = ["/bin/false"]\n',
        f'[hooks.after]\nevent = "after_tool"\ncommand = ["/bin/sh", "-c", "cat >> {told}"]\n',
        f'[hooks.start]\nevent = "run_start"\ncommand = ["/bin/sh", "-c", "cat >> {told}"]\n',
    )
    async with FakeProvider("anthropic", ["the answer"]) as provider:
        swink.use(provider)
        process = await swink.start(
            *("mcp", "serve", "--deny", "bash: ls", "--allow", "write_file"), stdin=asyncio.subprocess.PIPE
        )
        listed, guarded, read, refused, written, answered, gone = await _session(
            process,
            ("tools/list", {}),
            ("tools/call", {"name": "list_dir", "arguments": {}}),
            ("tools/call", {"name": "read_file", "arguments": {"path": "a.txt"}}),
            ("tools/call", {"name": "bash", "arguments": {"command": "ls"}}),
            ("tools/call", {"name": "write_file", "arguments": {"path": "b.txt", "content": "new"}}),
            ("tools/call", {"name": "agent", "arguments": {"prompt": "go"}}),
            ("tools/call", {"name": "agent", "arguments": {"prompt": "go", "session": "no-such-session"}}),
        )
        names = [item["name"] for item in listed["tools"]]
        assert {"read_file", "bash", "write_file", "agent"} <= set(names)
        assert "the hook guard refused it" in guarded["content"][0]["text"]
        assert "hello" in read["content"][0]["text"]
        assert refused["isError"]
        assert not written.get("isError"), written
        assert (swink.folder / "b.txt").read_text() == "new"
        assert answered["content"][0]["text"] == "the answer"
        structured = answered["structuredContent"]
        assert (structured["text"], structured["stop_reason"]) == ("the answer", "stop")
        assert gone["isError"]
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 30) == 0
        assert (await swink("sessions", "show", structured["session"])).code == 0
    hooks = [json.loads(line) for line in told.read_text().splitlines()]
    assert sorted((item["event"], item.get("tool")) for item in hooks if item.get("tool") != "agent") == [
        ("after_tool", "read_file"),
        ("after_tool", "write_file"),
        ("run_start", None),  # of the agent; a client's own call is not a run of it
    ]


@pytest.mark.sweep
async def test_without_a_key_the_tools_are_served_and_a_signal_ends_it(swink: Any) -> None:
    process = await swink.start("mcp", "serve", "--tools", "read_file", stdin=asyncio.subprocess.PIPE)
    asks = ("tools/call", {"name": "agent", "arguments": {"prompt": "go"}})
    listed, answered = await _session(process, ("tools/list", {}), asks)
    assert [item["name"] for item in listed["tools"]] == ["read_file", "agent"]
    assert answered["isError"]  # there is no key
    assert "swink keys set" in answered["content"][0]["text"]
    await ends_cleanly(process, signal.SIGTERM, asyncio.sleep(0, b""))


async def test_a_missing_package_is_wrong_usage(swink: Any, tmp_path: Path) -> None:
    _settings(swink, _table("one"))
    hidden = tmp_path / "site"
    (hidden / "mcp").mkdir(parents=True)
    (hidden / "mcp" / "__init__.py").write_text("raise ImportError('not here')")
    swink.packages.append(str(hidden))
    done = await swink("mcp", "test", "one")
    assert done.code == 2
    assert "pip install 'swink-agent[mcp]'" in done.stderr
