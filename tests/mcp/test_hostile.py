"""Servers that lie, flood, hang and crash: no other call is harmed, and the agent continues to work."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from swink_agent import Redactor
from swink_agent.core.errors import ToolError
from swink_agent.core.tool import ToolContext
from swink_agent.core.types import extract_text
from swink_agent.mcp import McpError, McpServer
from tests.mcp.raw_server import call, named, raw_server


async def said(server: object, name: str = "echo", **arguments: object) -> str:
    return extract_text((await call(server, name, **arguments)).content)  # type: ignore[arg-type]


async def test_one_bad_tool_is_left_out_alone() -> None:
    lies = """
deep = {"type": "object"}
for _ in range(300):
    deep = {"type": "object", "properties": {"a": deep}}
tools[:] = [
    tool("fine"), tool("bad name", {"type": "object", "properties": {"a b": {}}}), {"name": "schemaless"}, "no tool",
    tool("text", {"type": "string"}), {"name": 3, "inputSchema": {}}, tool("deep", deep), tool("fine"),
    {"name": "odd", "inputSchema": {}, "description": 7, "annotations": "x", "outputSchema": [], "icons": 1},
    tool("task", execution={"taskSupport": "required"}), tool("either", execution={"taskSupport": "optional"}),
]
"""
    async with raw_server(lies) as server:
        assert [tool.name for tool in server.tools()] == ["mcp__raw__fine", "mcp__raw__odd", "mcp__raw__either"]
        assert await said(server, "odd") == "odd"
        told = "\n".join(server.warnings)
        for word in (
            "'bad name'",
            "'schemaless'",
            "'text'",
            "'deep'",
            "'fine' is listed twice",
            "usable name",
            "'task'",
        ):
            assert word in told


async def test_tools_beyond_128_are_left_out() -> None:
    endless = """
def on_list(id, params):
    at = int(params.get("cursor", "0"))
    say(id=id, result={"tools": [tool(f"t{at + n}") for n in range(50)], "nextCursor": str(at + 50)})
"""
    async with raw_server(endless) as server:
        assert len(server.tools()) == 128
        assert "more than 128 tools" in server.warnings[-1]


async def test_a_list_that_leads_in_a_circle_ends() -> None:
    circle = "def on_list(id, params): say(id=id, result={'tools': tools, 'nextCursor': 'again'})"
    async with raw_server(circle) as server:
        assert len(server.tools()) == 1
        assert any("leads back" in warning for warning in server.warnings)


async def test_a_server_without_tools_is_used_without_tools() -> None:
    lines = """
def on_initialize(id, params): say(id=id, result={"protocolVersion": "2024-11-05", "capabilities": {}})
def on_list(id, params): fail(id, -32601, "what?")
"""
    async with raw_server(lines) as server:
        assert server.tools() == []
        assert server.warnings == ("it offers no tools",)


async def test_lines_that_are_not_json_rpc_harm_no_call() -> None:
    noise = r"""
def on_call(id, name, arguments, meta):
    for line in ("", "hello", "[]", "[1, 2]", "{", "null", '{"id": 99999, "result": {}}', '{"jsonrpc": "2.0"}',
                 '{"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "x"}}', "[" * 100000,
                 '{"jsonrpc": "2.0", "id": true, "result": {}}', '{"jsonrpc": "2.0", "method": "x", "params": 3}',
                 '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[1],"progress":"a"}}',
                 '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}' % id):
        sys.stdout.write(line + "\n")
    sys.stdout.buffer.write(b"\xff\xfe\n")
    say(id=12345, result={"content": []})
    text(id, "first")
    text(id, "second")
"""
    async with raw_server(noise) as server:
        assert [await said(server) for _ in range(3)] == ["first"] * 3


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("answer", ["3", "null", "[]", '"text"', '{"content": 5}', '{"content": [{"type": []}]}'])
async def test_answers_of_wrong_shapes_end_their_own_call_at_once(answer: str) -> None:
    lines = f"""
def on_call(id, name, arguments, meta):
    if arguments.get("text"):
        return text(id, "fine")
    sys.stdout.write('{{"jsonrpc": "2.0", "id": %d, "result": %s}}\\n' % (id, {answer!r}))
    sys.stdout.flush()
"""
    async with raw_server(lines, timeout=20) as server:
        odd, fine = await asyncio.gather(said(server), said(server, text="x"))
        assert fine == "fine"
        assert odd


async def test_a_line_without_an_end_ends_the_server_and_the_next_call_starts_it() -> None:
    flood = """
def on_call(id, name, arguments, meta):
    if arguments.get("text"):
        return text(id, "fine")
    while True:
        sys.stdout.write("x" * 65536)
"""
    async with raw_server(flood) as server:
        assert "a line of more than 16 MiB" in await said(server)
        assert await said(server, text="x") == "fine"


@pytest.mark.parametrize("size", [1000, pytest.param(20_000, marks=pytest.mark.sweep)])
async def test_a_large_result_is_cut_and_a_flood_of_notifications_is_survived(size: int) -> None:
    flood = f"""
def on_call(id, name, arguments, meta):
    if arguments.get("text"):
        return text(id, "y" * 5_000_000)
    for n in range({size}):
        say(method="notifications/message", params={{"level": "info", "data": "x" * 100}})
        say(method="notifications/progress", params={{"progressToken": "other", "progress": n}})
        say(id=f"q{{n}}", method="sampling/createMessage", params={{}})
    text(id, "after the flood")
"""
    async with raw_server(flood) as server:
        started = time.monotonic()
        assert await said(server) == "after the flood"
        assert time.monotonic() - started < 60
        large = await said(server, text="x")
        assert len(large.encode()) <= 100 * 1024
        assert "bytes left out" in large


async def test_half_of_a_character_is_replaced_and_the_rest_is_kept() -> None:
    lines = "def on_call(id, name, arguments, meta): text(id, 'cut \\ud83d', '\\U0001f600', 'back\\\\ud800slash')"
    async with raw_server(lines, timeout=20) as server:
        assert await said(server) == "cut ?\U0001f600back\\ud800slash"


async def test_last_words_have_nothing_that_does_not_show() -> None:
    lines = "sys.stderr.write('\\x1b[31mred\\u202e\\n'); sys.stderr.flush(); os._exit(3)"
    with pytest.raises(McpError, match=r"exit code 3\n  \[31mred$"):
        await raw_server(lines).__aenter__()


async def test_a_very_long_line_on_stderr_does_not_show_half_of_a_secret() -> None:
    secret = "4f9a8b7c6d5e4f3a2b1c"
    lines = f"""
key = os.environ['API_KEY']
sys.stderr.write('begin ' + 'x' * 50 + key + 'y' * ({64 * 1024} - 10)); sys.stderr.flush(); os._exit(3)
"""
    with pytest.raises(McpError) as raised:
        await raw_server(lines, env={"API_KEY": secret}).__aenter__()
    assert secret[-10:] not in str(raised.value)
    assert "  begin xxx" in str(raised.value)


async def test_a_huge_error_does_not_block_the_event_loop() -> None:
    lines = """
def on_call(id, name, arguments, meta):
    if name == "echo": text(id, "ready")
    else: fail(id, -32000, "sk-aB3xyz12kk9aB3xyz12kk9 " * (600 * 1024))
tools.append(tool("huge"))
"""
    async with raw_server(lines) as server:
        calling = asyncio.create_task(said(server, "huge"))
        longest = 0.0
        while not calling.done():
            begun = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - begun)
        assert "answered with an error: [redacted:" in calling.result()
        assert longest < 3


async def test_a_list_that_cannot_be_read_again_is_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    lines = """
def on_list(id, params, again=[]):
    if again: fail(id, -32000, "not now, \u202e" + os.environ["API_KEY"])
    else: say(id=id, result={"tools": tools})
    again.append(1)
def on_call(id, name, arguments, meta):
    say(method="notifications/tools/list_changed")
    text(id, "changed")
"""
    async with raw_server(lines, env={"API_KEY": "4f9a8b7c6d5e4f3a2b1c"}) as server:
        assert await said(server) == "changed"
        await server.settled()
    [record] = [record for record in caplog.records if record.name == "swink_agent.mcp"]
    assert "cannot be read: not now, [redacted:API_KEY:" in record.getMessage()


@pytest.mark.parametrize("padding", [0, 2040])
async def test_progress_shows_no_secret_and_no_half_of_one(padding: int) -> None:
    lines = f"""
def on_call(id, name, arguments, meta):
    for key in (os.environ["API_KEY"], "k2mPx4Wt7LrBq8vZ"):
        told = {{"progressToken": meta["progressToken"], "progress": 1, "message": "." * {padding} + key}}
        say(method="notifications/progress", params=told)
    text(id, "ready")
"""
    updates: list[str] = []
    known = Redactor(["k2mPx4Wt7LrBq8vZ"], environment={})
    context = ToolContext(on_update=lambda partial: updates.append(extract_text(partial.content)), redactor=known)
    async with raw_server(lines, env={"API_KEY": "4f9a8b7c6d5e4f3a2b1c"}) as server:
        await named(server, "echo").execute({}, context)
    assert len(updates) == 2
    assert "4f9a" not in updates[0]
    assert "k2mP" not in known.redact(updates[1])


async def test_an_error_that_is_cut_shows_no_half_of_a_secret() -> None:
    lines = """
def on_call(id, name, arguments, meta): fail(id, -32000, "." * 2040 + "k2mPx4Wt7LrBq8vZ")
"""
    known = Redactor(["k2mPx4Wt7LrBq8vZ"], environment={})
    async with raw_server(lines) as server:
        with pytest.raises(ToolError, match=r"answered with an error: \.{2000}") as raised:
            await named(server, "echo").execute({}, ToolContext(redactor=known))
    assert "k2mP" not in str(raised.value)


async def test_stderr_may_flood_too() -> None:
    flood = """
def on_call(id, name, arguments, meta):
    for n in range(2000):
        sys.stderr.write("e" * 5000 + "\\n")
    sys.stderr.write("z" * 3_000_000)
    sys.stderr.flush()
    text(id, "fine")
"""
    async with raw_server(flood) as server:
        assert await said(server) == "fine"


async def test_requests_of_a_server_are_not_offered() -> None:
    asks = """
def on_call(id, name, arguments, meta):
    answers = []
    for n, method in enumerate(("ping", "sampling/createMessage", "elicitation/create", "roots/list", "made/up")):
        say(id=f"a{n}", method=method, params={})
        answer = hear()
        answers.append(answer.get("error", {}).get("code", "fine"))
    text(id, json.dumps(answers))
"""
    async with raw_server(asks) as server:
        assert await said(server) == '["fine", -32601, -32601, -32601, -32601]'


@pytest.mark.sweep
async def test_lies_about_list_changes_do_not_keep_us_busy() -> None:
    lies = """
lists = 0
def on_list(id, params):
    global lists
    lists += 1
    say(id=id, result={"tools": tools})
    for _ in range(3):
        say(method="notifications/tools/list_changed")
def on_call(id, name, arguments, meta):
    for _ in range(2000):
        say(method="notifications/tools/list_changed")
    text(id, str(lists))
"""
    async with raw_server(lies) as server:
        await said(server)
        await asyncio.sleep(0.3)
        assert int(await said(server)) <= 4
        assert len(server.tools()) == 1


async def test_a_changed_list_that_cannot_be_read_keeps_the_old_one() -> None:
    lies = """
count = 0
def on_list(id, params):
    global count
    count += 1
    if count > 1:
        return fail(id, -32603, "no more")
    say(id=id, result={"tools": tools})
def on_call(id, name, arguments, meta):
    say(method="notifications/tools/list_changed")
    text(id, "fine")
"""
    async with raw_server(lies) as server:
        await said(server)
        await server.settled()
        assert await said(server) == "fine"


async def test_a_server_that_answers_nothing_does_not_hold_up_leaving() -> None:
    deaf = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def on_call(id, name, arguments, meta):
    while True:
        time.sleep(60)
"""
    async with raw_server(deaf, timeout=0.2) as server:
        assert "no sign of life" in await said(server, text="x" * 1_000_000)
        started = time.monotonic()
    assert time.monotonic() - started < 10


async def test_leaving_waits_for_what_is_loaded_when_a_start_took_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    is_loaded = threading.Event()
    monkeypatch.setattr("swink_agent.mcp.server._load", lambda: is_loaded.wait(60))
    asyncio.get_running_loop().call_later(0.5, is_loaded.set)
    with pytest.raises(McpError, match="not ready"):
        async with McpServer.http("http://127.0.0.1:9", name="slow", start_timeout=0.05):
            pass
    assert is_loaded.is_set()


@pytest.mark.sweep  # it waits for an end that does not come
async def test_a_server_that_closes_its_output_is_a_server_that_ended() -> None:
    closes = """
def on_call(id, name, arguments, meta):
    os.close(1)
    time.sleep(600)
"""
    async with raw_server(closes) as server:
        assert "ended" in await said(server)


async def test_a_server_that_ends_at_once_every_time_cannot_be_entered() -> None:
    with pytest.raises(McpError, match="exit code 0"):
        await raw_server("sys.exit(0)").__aenter__()


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("unit", ["[]", "{}", "0", '{"jsonrpc":"2.0","method":"x"}'])
async def test_a_line_of_a_million_messages_holds_nobody_up(unit: str) -> None:
    flood = f"""
def on_call(id, name, arguments, meta):
    unit = {unit!r}
    sys.stdout.write("[" + ",".join([unit] * (4_000_000 // (len(unit) + 1))) + "]\\n")
    text(id, "answered")
"""
    async with raw_server(flood) as server:
        before = time.process_time()
        assert await said(server) == "answered"
        assert time.process_time() - before < 1


async def test_messages_that_share_a_line_are_read() -> None:
    batch = """
def on_call(id, name, arguments, meta):
    answer = {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "of a batch"}]}}
    print(json.dumps([{"jsonrpc": "2.0", "id": 4711}, 3, answer]), flush=True)
"""
    async with raw_server(batch) as server:
        assert await said(server) == "of a batch"


@pytest.mark.sweep
async def test_a_result_and_a_list_with_a_million_parts_are_cut() -> None:
    many = """
def on_list(id, params): say(id=id, result={"tools": [*tools, *[{}] * 500_000, tool("never seen")]})
def on_call(id, name, arguments, meta): say(id=id, result={"content": [{"type": "text", "text": "a"}] * 200_000})
"""
    async with raw_server(many) as server:
        assert [tool.true_name for tool in server.tools()] == ["echo"]
        assert any("longer than 2,000 entries" in warning for warning in server.warnings)
        result = await call(server, "echo")
        assert len(result.content) == 1001
        assert "199,000 more parts left out" in extract_text(result.content[-1:])
