"""A server over stdio and its tools, from the start to the end."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from pathlib import Path

import pytest

from swink_agent import Agent, ToolResultMessage
from swink_agent.approvals import ApprovalChoice, Approvals
from swink_agent.core.approval import Grant
from swink_agent.core.errors import ToolError
from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.core.types import extract_text
from swink_agent.mcp import McpError, McpServer
from swink_agent.testing import call as calling
from swink_agent.testing import scripted
from swink_agent.testing import text as saying
from tests.mcp.raw_server import call, named, program, raw_server
from tests.sandbox.back_ends import gone, lives

# -- the start -------------------------------------------------------------------------------------------------------


async def test_a_server_is_started_lists_its_tools_and_is_called() -> None:
    async with raw_server() as server:
        assert [tool.name for tool in server.tools()] == ["mcp__raw__echo"]
        assert [tool.name for tool in server.tools(prefix="")] == ["echo"]
        assert named(server, "echo") is named(server, "echo")
        with pytest.raises(ValueError, match="offers no usable tool 'other'; there are: echo"):
            server.tools(only=["other"])
        result = await call(server, "echo", text="hello")
        assert extract_text(result.content) == "hello"
        assert result.details == {"server": "raw", "tool": "echo", "structured": None}
        assert server.state == "running"
    assert server.state == "closed"
    assert "is not running" in extract_text((await call(server, "echo")).content)


async def test_every_page_of_the_list_is_read_and_the_true_name_is_heard() -> None:
    pages = """
def on_list(id, params):
    page = int(params.get("cursor", "0"))
    more = {"nextCursor": str(page + 1)} if page < 2 else {}
    say(id=id, result={"tools": [tool(f"do it {page}")], **more})
"""
    async with raw_server(pages) as server:
        assert [tool.name for tool in server.tools()] == [f"mcp__raw__do_it_{n}" for n in range(3)]
        assert extract_text((await call(server, "do it 1")).content) == "do it 1"


_REFUSES = "def on_initialize(id, params): fail(id, -32601, 'unheard of')\n"


async def test_a_server_that_knows_only_the_newest_version_is_used_too() -> None:
    newest = """
def on_initialize(id, params): fail(id, -32022, "only 2026-07-28")
def on_other(message):
    if message["method"] == "server/discover":
        assert message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        say(id=message["id"], result={"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
def on_call(id, name, arguments, meta):
    tools.append(tool("grown"))
    say(method="notifications/tools/list_changed")
    text(id, meta["io.modelcontextprotocol/clientInfo"]["name"])
"""
    async with raw_server(newest) as server:
        assert extract_text((await call(server, "echo")).content) == "swink-agent"
        await server.settled()
        assert [tool.true_name for tool in server.tools()] == ["echo", "grown"]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (f"{_REFUSES}def on_other(message): fail(message.get('id'), -32601, 'no')", "unheard of"),
        ("print('no such file', file=sys.stderr); sys.exit(3)", "it ended with exit code 3\n  no such file"),
        ("def on_initialize(id, params): fail(id, -32603, 'not today')", "not today"),
        ("def on_initialize(id, params): say(id=id, result={'protocolVersion': '1999'})", "version '1999'"),
        ("def on_list(id, params): fail(id, -32603, 'no list')", "no list"),
        (
            "def on_initialize(id, params): print('waiting', file=sys.stderr, flush=True)",
            "not ready after 1 s\n  waiting",
        ),
    ],
)
async def test_a_start_that_fails_says_which_and_why(lines: str, why: str) -> None:
    server = raw_server(lines, start_timeout=1 if "not ready" in why else 30)
    with pytest.raises(McpError, match="MCP server raw: ") as caught:
        await server.__aenter__()
    assert why in str(caught.value)
    assert caught.value.server == "raw"
    assert server.state == "closed"


def test_the_folders_of_a_server_may_be_paths() -> None:
    McpServer.stdio("uvx", name="a", write=Path("/srv/written"), hidden=[Path("/srv/private")])


async def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(McpError, match="no-such-program is not installed"):
        await McpServer.stdio("no-such-program", name="a", sandbox="off").__aenter__()


@pytest.mark.parametrize("sandbox", ["auto", "off"])
@pytest.mark.parametrize("place", ["missing", "unusable", "folder"])
async def test_a_program_given_by_its_path_that_cannot_run_is_named(tmp_path: Path, sandbox: str, place: str) -> None:
    (tmp_path / "unusable").write_text("no program")
    (tmp_path / "folder").mkdir()
    server = McpServer.stdio(str(tmp_path / place), name="a", cwd=tmp_path, sandbox=sandbox)
    with pytest.raises(McpError, match=f"{place} (does not exist|is not a program)"):
        await server.__aenter__()
    assert server.state == "closed"


async def test_a_link_in_the_folder_does_not_widen_what_a_server_may_write(tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    work.mkdir()
    other.mkdir()
    (work / "cache").symlink_to(other)
    server = raw_server(cwd=work, write=["cache"])
    with pytest.raises(McpError, match="cache leads out of"):
        await server.__aenter__()
    (work / "cache").unlink()
    async with server:
        assert (work / "cache").is_dir()
        moved = work.rename(tmp_path / "moved")
        work.symlink_to(other)
        with pytest.raises(McpError, match="another folder than before"):
            await server.restart()
        work.unlink()
        moved.rename(work)
        await server.restart()


async def test_a_program_that_is_a_link_starts_in_the_sandbox_with_what_it_leads_to(tmp_path: Path) -> None:
    package = tmp_path / "node_modules" / "a-package"
    package.mkdir(parents=True)
    (package / "server.py").write_text(f"#!{sys.executable} -IS\n{program()}")
    (package / "server.py").chmod(0o755)
    link = tmp_path / "node_modules" / ".bin" / "server"
    link.parent.mkdir()
    link.symlink_to("../a-package/server.py")
    async with McpServer.stdio(str(link), name="a") as server:
        assert [tool.true_name for tool in server.tools()] == ["echo"]


async def test_a_package_of_node_starts_with_those_that_it_uses(tmp_path: Path) -> None:
    packages = tmp_path / "node_modules"
    for name in ("@scope/server/dist", "other"):
        (packages / name).mkdir(parents=True)
    (packages / "other" / "word.py").write_text("WORD = 'from another package'")
    script = packages / "@scope" / "server" / "dist" / "index.py"
    lines = f"sys.path.append({str(packages / 'other')!r})\nimport word\n"
    lines += "def on_call(id, name, arguments, meta): text(id, word.WORD)"
    script.write_text(program(lines))
    async with McpServer.stdio(sys.executable, str(script), name="raw") as server:
        assert extract_text((await call(server, "echo")).content) == "from another package"


async def test_a_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(McpError, match="/dev/null/folder"):
        await McpServer.stdio("/bin/cat", name="a", cwd="/dev/null/folder").__aenter__()


async def test_a_program_that_fetches_is_told_what_it_lacks_in_the_sandbox(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "uvx"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho no route to host >&2\nexit 1\n")
    program.chmod(0o755)
    server = McpServer.stdio(str(program), name="a", cwd=tmp_path)
    with pytest.raises(McpError) as caught:
        await server.__aenter__()
    assert "no route to host" in str(caught.value)
    assert "network = true" in str(caught.value)
    assert 'write = ["~/.cache/uv"]' in str(caught.value)


async def test_a_missing_package_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from swink_agent.core.machine.extras import MissingExtra

    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra, match=r"pip install 'swink-agent\[mcp\]'"):
        await raw_server().__aenter__()


async def test_a_server_that_stays_open_without_the_package_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from swink_agent.core.machine.extras import MissingExtra

    server = raw_server()
    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, "mcp", None)
        with pytest.raises(MissingExtra):
            await server.open()
    assert server.state == "failed"
    assert "pip install" in server.problem
    await server.restart()
    assert server.state == "running"
    await server.close()


# -- confinement -----------------------------------------------------------------------------------------------------

_LOOKS = """
def on_call(id, name, arguments, meta):
    def tries(path):
        try:
            open(path, "w").close()
            return True
        except OSError:
            return False
    text(id, json.dumps({"cwd": os.getcwd(), "here": tries("here"), "there": tries(arguments["text"]),
                         "environment": sorted(os.environ), "given": os.environ.get("GIVEN")}))
"""


async def test_a_server_is_confined_and_has_a_clean_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-servers")
    inside, outside, granted = tmp_path / "inside", tmp_path / "outside", tmp_path / "granted"
    for folder in (inside, outside, granted):
        folder.mkdir()
    server = raw_server(_LOOKS, sandbox="auto", cwd=inside, write=[granted], env={"GIVEN": "yes"})
    async with server:
        seen = json.loads(extract_text((await call(server, "echo", text=str(outside / "x"))).content))
        allowed = json.loads(extract_text((await call(server, "echo", text=str(granted / "x"))).content))
    assert seen["cwd"] == str(inside)
    assert (seen["here"], seen["there"], allowed["there"]) == (True, False, True)
    assert seen["given"] == "yes"
    assert "OPENAI_API_KEY" not in seen["environment"]


async def test_a_server_in_the_temporary_folder_is_found_with_the_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'from beside'")
    script = tmp_path / "server.py"
    lines = "import beside\ndef on_call(id, name, arguments, meta): text(id, beside.WORD)"
    script.write_text(program(lines))
    async with McpServer.stdio(sys.executable, str(script), name="raw") as server:
        assert extract_text((await call(server, "echo")).content) == "from beside"


async def test_a_server_without_a_folder_has_a_private_one_that_is_removed() -> None:
    import json

    async with raw_server(_LOOKS) as server:
        seen = json.loads(extract_text((await call(server, "echo", text="/")).content))
        folder: Path = Path(seen["cwd"])
        assert await asyncio.to_thread(folder.is_dir)
    assert not await asyncio.to_thread(folder.exists)


async def test_stderr_goes_to_the_log_alone_without_what_is_secret(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = "print('key is', os.environ['API_KEY'], file=sys.stderr, flush=True)"
    with caplog.at_level(logging.INFO, "swink_agent.mcp"):
        async with raw_server(lines, env={"API_KEY": "4f9a8b7c6d5e4f3a2b1c"}):
            pass
    [record] = [record for record in caplog.records if record.name == "swink_agent.mcp"]
    assert record.getMessage().startswith("key is ")
    assert "4f9a8b7c" not in record.getMessage()
    assert "key is" not in "".join(capfd.readouterr())


async def test_secrets_given_to_a_server_are_masked_in_its_results() -> None:
    tells = "def on_call(id, name, arguments, meta): text(id, 'it is ' + os.environ['API_KEY'])"
    async with raw_server(tells, env={"API_KEY": "4f9a8b7c6d5e4f3a2b1c"}) as server:
        said = extract_text((await call(server, "echo")).content)
    assert said.startswith("it is ")
    assert "4f9a8b7c" not in said


# -- calls -----------------------------------------------------------------------------------------------------------


async def test_progress_is_updates_and_keeps_a_call_alive() -> None:
    slow = """
def on_call(id, name, arguments, meta):
    def tell(**params):
        say(method="notifications/progress", params={"progressToken": meta["progressToken"], **params})
    for step in range(1, 4):
        time.sleep(0.2)
        tell(progress=step, total=3)
    tell(progress=3, message="done")
    text(id, "ready")
"""
    updates: list[str] = []
    async with raw_server(slow, timeout=0.5) as server:
        context = ToolContext(on_update=lambda partial: updates.append(extract_text(partial.content)))
        result = await named(server, "echo").execute({}, context)
    assert extract_text(result.content) == "ready"
    assert updates == ["1/3", "2/3", "3/3", "done"]


_REMEMBERS = """
heard = []
def on_other(message):
    heard.append(message["method"])
def on_call(id, name, arguments, meta):
    if arguments.get("text") == "heard":
        text(id, *heard)
    elif arguments.get("text") == "crash":
        print("last words", file=sys.stderr, flush=True)
        os._exit(7)
"""


async def test_a_call_past_its_timeout_is_an_error_and_the_server_is_told() -> None:
    async with raw_server(_REMEMBERS, timeout=0.2) as server:
        result = await call(server, "echo")
        assert result.is_error
        assert "no sign of life for 0.2 s" in extract_text(result.content)
        heard = await call(server, "echo", text="heard")
    assert extract_text(heard.content).endswith("notifications/cancelled")


async def test_a_cancelled_call_ends_at_once_and_the_server_is_told() -> None:
    async with raw_server(_REMEMBERS) as server:
        running = asyncio.create_task(call(server, "echo"))
        await asyncio.sleep(0.1)
        before = asyncio.get_running_loop().time()
        running.cancel()
        await asyncio.wait([running])
        assert asyncio.get_running_loop().time() - before < 1
        assert running.cancelled()
        heard = await call(server, "echo", text="heard")
    assert extract_text(heard.content).endswith("notifications/cancelled")


async def test_an_abort_of_the_run_does_not_wait_for_a_server_that_does_not_read() -> None:
    hangs = "def on_call(id, name, arguments, meta): time.sleep(60)"
    async with raw_server(hangs) as server:
        agent = Agent(
            "scripted:x",
            stream_fn=scripted(calling("mcp__raw__echo", text="x" * 300_000)),
            tools=server.tools(),
            approve=lambda request: True,
        )
        running = asyncio.create_task(agent.prompt("go"))
        await asyncio.sleep(0.2)
        before = asyncio.get_running_loop().time()
        agent.abort()
        await asyncio.wait([running])
        assert asyncio.get_running_loop().time() - before < 1


async def test_steering_tells_the_server_too() -> None:
    async with raw_server(_REMEMBERS) as server:
        stream = scripted(calling("mcp__raw__echo"), calling("mcp__raw__echo", text="heard"), saying("ready"))
        agent = Agent("scripted:x", stream_fn=stream, tools=server.tools(), approve=lambda request: True)
        running = asyncio.create_task(agent.prompt("go"))
        while not agent.pending_tool_calls:  # noqa: ASYNC110 - the call itself tells nobody
            await asyncio.sleep(0.01)
        agent.steer("something else")
        await running
        said = [extract_text(message.content) for message in agent.messages if isinstance(message, ToolResultMessage)]
        assert "user requested steering interrupt" in said[0]
        assert said[1].endswith("notifications/cancelled")


# -- the end ---------------------------------------------------------------------------------------------------------


async def test_a_crash_fails_its_open_calls_and_the_next_call_starts_it_anew() -> None:
    async with raw_server(_REMEMBERS) as server:
        waiting, crashing = await asyncio.gather(call(server, "echo"), call(server, "echo", text="crash"))
        for result in (waiting, crashing):
            assert result.is_error
            assert "ended with exit code 7" in extract_text(result.content)
            assert "last words" in extract_text(result.content)
        assert server.state == "ended"
        again = await call(server, "echo", text="heard")
        assert extract_text(again.content) == "notifications/initialized"
        assert server.state == "running"


async def test_starts_that_fail_are_repeated_with_growing_pauses(tmp_path: Path) -> None:
    flag = tmp_path / "starts"
    lines = f"""
with open({str(flag)!r}, "a") as file:
    file.write("x")
if os.path.getsize({str(flag)!r}) > 1:
    sys.exit(5)
def on_call(id, name, arguments, meta): os._exit(0)
"""
    now = 100.0
    server = raw_server(lines)
    server._clock = lambda: now  # the public constructor takes it too
    async with server:
        assert (await call(server, "echo")).is_error
        for wait in (1, 2, 4):
            failed = extract_text((await call(server, "echo")).content)
            assert "exit code 5" in failed
            tried = flag.stat().st_size
            refused = extract_text((await call(server, "echo")).content)
            assert f"tried again in {wait} s" in refused
            assert flag.stat().st_size == tried
            assert server.state == "failed"
            now += wait
        for _ in range(5):
            await call(server, "echo")
            now += 60
        await call(server, "echo")
        assert "tried again in 60 s" in extract_text((await call(server, "echo")).content)


async def test_leaving_in_another_task_ends_the_process_tree(tmp_path: Path) -> None:
    lines = """
import subprocess
child = subprocess.Popen(["sleep", "601.25"])
"""
    server = raw_server(lines)
    await asyncio.create_task(server.__aenter__())
    assert lives("601.25")
    await asyncio.create_task(server.__aexit__(None, None, None))
    assert await gone("601.25")


_HANGS = """
def on_call(id, name, arguments, meta):
    if arguments.get("text") == "hang":
        say(method="notifications/progress", params={"progressToken": meta["progressToken"], "progress": 1})
        time.sleep(60)
    text(id, name)
"""


async def _hanging(server: McpServer) -> asyncio.Task[AgentToolResult]:
    """A call that the server has begun and never answers."""
    is_begun, here = asyncio.Event(), asyncio.get_running_loop()
    context = ToolContext(on_update=lambda _: here.call_soon_threadsafe(is_begun.set))  # the server's loop calls it
    task = asyncio.ensure_future(named(server, "echo").execute({"text": "hang"}, context))
    await is_begun.wait()
    return task


@pytest.mark.parametrize("way", ["close", "restart"])
async def test_a_call_of_a_server_that_is_ended_meanwhile_is_told_so(way: str) -> None:
    async with raw_server(_HANGS) as server:
        running = await _hanging(server)
        await (server.close() if way == "close" else server.restart())
        with pytest.raises(ToolError, match="the MCP server raw ended: it was closed during the call"):
            await running
        assert (await call(server, "echo")).is_error == (way == "close")


async def test_a_call_from_another_loop_is_told_that_the_loop_of_the_server_ended() -> None:
    server = raw_server(_HANGS)
    is_open, is_over = asyncio.Event(), threading.Event()
    here = asyncio.get_running_loop()

    async def there() -> None:
        async with server:
            own = asyncio.all_tasks()
            here.call_soon_threadsafe(is_open.set)
            await asyncio.to_thread(is_over.wait, 60)
            for task in asyncio.all_tasks() - own:
                task.cancel()  # as `asyncio.run` does at its end

    running = asyncio.create_task(asyncio.to_thread(asyncio.run, there()))
    try:
        await is_open.wait()
        calling = await _hanging(server)
        is_over.set()
        with pytest.raises(ToolError, match="the MCP server raw ended: its event loop ended during the call"):
            await calling
    finally:
        is_over.set()
        await running


async def test_a_call_that_is_cancelled_while_the_server_is_left_stays_cancelled() -> None:
    async with raw_server(_HANGS) as server:
        running = await _hanging(server)
        running.cancel()
        await server.close()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_server_that_is_closed_while_it_starts_says_so() -> None:
    server = raw_server("def on_initialize(id, params): time.sleep(60)")
    entering = asyncio.create_task(server.__aenter__())
    await asyncio.sleep(0)
    assert server.state == "starting"
    await server.close()
    with pytest.raises(McpError, match="MCP server raw: it was closed while it started"):
        await entering


async def test_nobody_is_asked_about_a_call_of_a_server_that_was_left() -> None:
    async with raw_server() as server:
        tools = server.tools()
    agent = Agent("scripted:x", stream_fn=scripted(calling("mcp__raw__echo"), saying("ready")), tools=tools)
    result = await agent.prompt("go")
    assert result.text == "ready"
    assert "the MCP server raw is not running" in str(agent.messages[2])


# -- the list --------------------------------------------------------------------------------------------------------

_CHANGES = """
def on_call(id, name, arguments, meta):
    if name == "echo":
        tools[:] = [tool("echo2"), tool("kept", description=arguments.get("text", ""))]
        say(method="notifications/tools/list_changed")
    text(id, name)
tools.append(tool("kept", description="as it was"))
"""


async def test_a_changed_list_is_read_again_and_a_tool_that_is_gone_is_an_error() -> None:
    async with raw_server(_CHANGES) as server:
        gone, kept = named(server, "echo"), named(server, "kept")
        await call(server, "echo", text="as it was")
        await server.settled()
        assert [tool.true_name for tool in server.tools()] == ["echo2", "kept"]
        assert named(server, "kept") is kept
        with pytest.raises(Exception, match="no longer offers echo"):
            await gone.execute({}, ToolContext())


async def test_approval_is_bound_to_the_definition() -> None:
    async with raw_server(_CHANGES) as server:
        kept = named(server, "kept")
        assert kept.requires_approval
        scope = kept.approval_scope({})
        assert scope.keys() == {"server", "tool", "definition"}
        grant = Grant(kept.name, {}, scope)
        assert extract_text((await kept.execute({}, ToolContext(grant=grant))).content) == "kept"
        with pytest.raises(Exception, match="changed the tool after it was approved"):
            await kept.execute({"other": 1}, ToolContext(grant=grant))
        await call(server, "echo", text="now it deletes everything")
        await server.settled()
        assert kept.approval_scope({}) != scope
        with pytest.raises(Exception, match="changed the tool after it was approved"):
            await kept.execute({}, ToolContext(grant=grant))


async def test_the_trust_of_a_session_ends_when_a_tool_changes() -> None:
    asked: list[str] = []

    def ask(question: object) -> ApprovalChoice:
        asked.append(question.request.name)  # type: ignore[attr-defined]
        return ApprovalChoice.SESSION_TOOL

    async with raw_server(_CHANGES) as server:
        agent = Agent(
            "scripted:x",
            stream_fn=scripted(
                calling("mcp__raw__kept"),
                calling("mcp__raw__kept"),
                calling("mcp__raw__echo", text="changed"),
                saying("ready"),
                calling("mcp__raw__kept"),
                saying("ready"),
            ),
            tools=server.tools,
            approve=Approvals(ask),
        )
        await agent.prompt("go")
        assert asked == ["mcp__raw__kept", "mcp__raw__echo"]
        await server.settled()
        await agent.prompt("go")
        assert asked == ["mcp__raw__kept", "mcp__raw__echo", "mcp__raw__kept"]


async def test_tools_that_only_read_run_unasked_if_annotations_are_trusted() -> None:
    hinted = 'tools[:] = [tool("look", annotations={"readOnlyHint": True}), tool("change")]'
    async with raw_server(hinted) as server:
        assert [tool.requires_approval for tool in server.tools()] == [True, True]
    async with raw_server(hinted, trust_annotations=True) as server:
        assert [tool.requires_approval for tool in server.tools()] == [False, True]


async def test_a_run_in_another_thread_calls_the_tool_where_the_server_runs() -> None:
    async with raw_server() as server:
        replies = scripted(calling("mcp__raw__echo", text="from afar"), saying("done"))
        agent = Agent("any:model", stream_fn=replies, tools=server.tools(), approve=lambda request: True)
        result = await asyncio.to_thread(agent.prompt_sync, "go")
    [answer] = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert extract_text(answer.content) == "from afar"


async def test_a_run_that_blocks_the_loop_of_the_server_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.mcp.tool.PATIENCE", 0.2)
    async with raw_server() as server:
        replies = scripted(calling("mcp__raw__echo"), saying("done"))
        agent = Agent("any:model", stream_fn=replies, tools=server.tools(), approve=lambda request: True)
        result = agent.prompt_sync("go")
        [answer] = [message for message in result.messages if isinstance(message, ToolResultMessage)]
        assert answer.is_error
        assert "await agent.prompt" in extract_text(answer.content)
        assert extract_text((await call(server, "echo", text="still here")).content) == "still here"
