"""Commands that were approved because they can only read: what they can do, and what is told of them."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, AgentToolResult, ModelSpec, ToolContext, ToolResultMessage, extract_text
from swink_agent.approvals import Approvals
from swink_agent.core.approval import Grant
from swink_agent.sandbox import Sandbox, SandboxProfile, SandboxUnavailable, open_sandbox, open_unconfined
from swink_agent.sandbox.open import backend_names
from swink_agent.testing import call, scripted, text
from swink_agent.tools import BashTool, CheckpointStore, standard_tools

TOLD = "[sandbox: it could only read; to let it change files, call again with write=true]"


@pytest.fixture
def work() -> Iterator[Path]:
    """A folder to work in, not in /tmp, of which commands have one of their own."""
    with tempfile.TemporaryDirectory(prefix="swink-test-", dir="/var/tmp") as made:
        folder = Path(made, "work")
        folder.mkdir()
        (folder / "a.txt").write_text("one\n")
        yield folder


@pytest.fixture(params=backend_names())
def backend(request: pytest.FixtureRequest, work: Path) -> str:
    try:
        open_sandbox(SandboxProfile(write=(str(work),)), backend=request.param).close()
    except SandboxUnavailable as error:
        pytest.skip(f"{request.param} does not work here: {error}")
    return request.param


@pytest.fixture
def shell(backend: str, work: Path) -> Iterator[BashTool]:
    profile = SandboxProfile(write=(str(work),))
    tool = BashTool(work, profile, open_sandbox=lambda profile: open_sandbox(profile, backend=backend))
    yield tool
    tool.close()


async def run(shell: BashTool, command: str, *, reads_only: bool = True, **arguments: Any) -> AgentToolResult:
    """Runs it with the grant that `smart` gives, or with that of `auto`."""
    asked = {"command": command, **arguments}
    scope = shell.approval_scope(asked)
    if not reads_only:
        scope.pop("reads_only", None)
    return await shell.execute(asked, ToolContext(grant=Grant("bash", asked, scope)))


def said(result: AgentToolResult) -> str:
    return extract_text(result.content)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_it_reads_and_writes_its_temporary_folder_alone(shell: BashTool, work: Path) -> None:
    result = await run(shell, 'cat a.txt; echo two > "$TMPDIR/x"; cat "$TMPDIR/x"; diff <(echo 1) <(echo 1)')
    assert (said(result), result.is_error) == ("one\ntwo\n", False)
    assert result.details["reads_only"] is True
    assert "limits" not in result.details
    assert files(work) == ["a.txt"]


@pytest.mark.parametrize(
    "command", ["touch b", "echo x > a.txt", "rm a.txt", "mkdir d", "mkfifo p", "touch {work}/b", "touch b | cat"]
)
async def test_a_refused_write_is_told_with_the_way_to_write(shell: BashTool, work: Path, command: str) -> None:
    result = await run(shell, command.format(work=work))
    assert said(result).endswith(f"\n{TOLD}")
    assert result.details["limits"] == [{"kind": "write"}]
    assert (work / "a.txt").read_text() == "one\n"
    assert files(work) == ["a.txt"]


async def test_one_that_failed_for_another_reason_is_told_too(shell: BashTool) -> None:
    result = await run(shell, "exit 3")
    assert said(result) == f"[exit code 3]\n{TOLD}"
    assert "limits" not in result.details


@pytest.mark.parametrize("command", ["touch b", "touch b 2>/dev/null; exit 1"])
async def test_one_that_may_write_is_told_nothing(shell: BashTool, work: Path, command: str) -> None:
    for asked in ({"write": True}, {"reads_only": False}):
        result = await run(shell, command, **asked)
        assert "could only read" not in said(result)
        assert "reads_only" not in result.details
        assert files(work) == ["a.txt", "b"]


async def test_a_file_outside_is_told_as_such(shell: BashTool, work: Path) -> None:
    result = await run(shell, f"touch {work.parent}/b")
    assert result.details["limits"] == [{"kind": "outside", "path": str(work.parent)}]
    assert f'access={{"write": ["{work.parent}"]}}' in said(result)


async def test_it_has_no_hosts_and_its_own_loopback(backend: str, work: Path) -> None:
    profile = SandboxProfile(write=(str(work),), hosts=("example.org",))
    tool = BashTool(work, profile, open_sandbox=lambda profile: open_sandbox(profile, backend=backend))
    try:
        result = await run(tool, "env | grep -ci https_proxy=")
        assert said(result).startswith("0\n")
        assert "example.org" not in said(result)
    finally:
        tool.close()


SERVER = "python3 -u -m http.server -b 127.0.0.1 0"
GET = 'exec 3<>"/dev/tcp/127.0.0.1/{port}" && printf "GET /a.txt HTTP/1.0\\r\\n\\r\\n" >&3 && tail -1 <&3'


@pytest.mark.parametrize("hosts", [(), ("example.org",)])
async def test_it_reaches_a_background_server_unless_commands_reach_hosts(
    backend: str, work: Path, hosts: tuple[str, ...]
) -> None:
    with open_sandbox(SandboxProfile(write=(str(work),), hosts=hosts), backend=backend) as sandbox:
        tool = BashTool(work, sandbox)
        task = tool.tasks.find((await run(tool, SERVER, reads_only=False, background=True)).details["task"])
        while (port := re.search(r" port (\d+) ", task.newest)) is None:
            assert task.is_running, task.newest
            await asyncio.sleep(0.01)
        result = await run(tool, GET.format(port=port[1]))
        assert ("one\n" in said(result)) == (not hosts and getattr(sandbox, "has_loopback", True)), said(result)
        tool.close()


async def test_it_reads_the_folder_if_reading_goes_by_a_list(backend: str, work: Path) -> None:
    profile = SandboxProfile(write=(str(work),), read=("/usr",))
    tool = BashTool(work, profile, open_sandbox=lambda profile: open_sandbox(profile, backend=backend))
    try:
        assert said(await run(tool, "cat a.txt")) == "one\n"
    finally:
        tool.close()


@pytest.fixture
def beneath_tmp() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="swink-test-", dir="/tmp") as made:
        Path(made, "a.txt").write_text("one\n")
        yield Path(made)


async def test_it_reads_a_folder_beneath_the_temporary_one(backend: str, beneath_tmp: Path) -> None:
    profile = SandboxProfile(write=(str(beneath_tmp),))
    tool = BashTool(beneath_tmp, profile, open_sandbox=lambda profile: open_sandbox(profile, backend=backend))
    assert said(await run(tool, "touch b 2>/dev/null; cat a.txt")) == "one\n"
    tool.close()
    assert files(beneath_tmp) == ["a.txt"]


async def test_checkers_keep_their_caches_in_its_temporary_folder(shell: BashTool) -> None:
    names = "$RUFF_CACHE_DIR $MYPY_CACHE_DIR ${PYTEST_ADDOPTS#-o cache_dir=}"
    result = await run(shell, f'for each in {names}; do case "$each" in "$TMPDIR"/*) echo in ;; esac; done')
    assert said(result) == "in\nin\nin\n"
    assert said(await run(shell, "echo ${RUFF_CACHE_DIR-none}", reads_only=False)) == "none\n"


async def test_a_background_command_can_only_read_too(shell: BashTool, work: Path) -> None:
    result = await run(shell, "touch b; echo done", background=True)
    task = shell.tasks.find(result.details["task"])
    assert task.over.wait(30)
    assert task.newest.endswith("done\n")
    assert result.details["reads_only"] is True
    assert files(work) == ["a.txt"]


async def test_a_sandbox_of_another_kind_is_not_used_for_it(work: Path) -> None:
    def opened(profile: SandboxProfile) -> Sandbox:
        return open_sandbox(profile) if profile.write else open_unconfined(profile)

    shell = BashTool(work, SandboxProfile(write=(str(work),)), open_sandbox=opened)
    result = await run(shell, "touch b")
    assert "a sandbox of" in said(result)
    assert "off was opened" in said(result)
    assert files(work) == ["a.txt"]
    shell.close()


async def test_without_a_sandbox_no_call_is_said_to_only_read(work: Path) -> None:
    shell = BashTool(work, "off")
    assert "reads_only" not in shell.approval_scope({"command": "cat a.txt"})
    assert shell.approval_scope({"command": "touch b", "write": True})
    shell.close()


def test_write_is_true_or_false(work: Path) -> None:
    shell = BashTool(work, "off")
    with pytest.raises(Exception, match="write is 'yes': give true or false"):
        shell.approval_scope({"command": "true", "write": "yes"})
    shell.close()


# -- in an agent ---------------------------------------------------------------------------------------------


async def told(work: Path, store: CheckpointStore, mode: Any, *script: Any) -> list[str]:
    profile = SandboxProfile(write=(str(work),), hidden=(*SandboxProfile().hidden, str(store.folder)))
    tools = standard_tools(work, profile, checkpoints=store)
    agent = Agent(
        ModelSpec("test", "model"),
        tools=tools,
        stream_fn=scripted(*script, text("done")),
        approve=Approvals(mode=mode),
    )
    result = await agent.prompt("go")
    for tool in tools[-2:]:
        tool.close()  # type: ignore[attr-defined]
    return [extract_text(message.content) for message in result.messages if isinstance(message, ToolResultMessage)]


async def test_smart_lets_it_read_without_a_checkpoint_and_refuses_what_writes_unattended(work: Path) -> None:
    store = CheckpointStore(work.parent / "checkpoints")
    results = await told(
        *(work, store, "smart"),
        call("bash", command="cat a.txt && python3 -c 'print(2)'"),
        call("bash", command="touch b"),
    )
    assert results[0] == "one\n2\n"
    assert TOLD in results[1]
    assert store.checkpoints(work) == []
    (refused,) = await told(work, store, "smart", call("bash", command="touch b", write=True))
    assert "use a command that only reads, without write" in refused
    assert files(work) == ["a.txt"]


async def test_auto_lets_every_command_write(work: Path) -> None:
    store = CheckpointStore(work.parent / "checkpoints")
    assert await told(work, store, "auto", call("bash", command="touch b && ls")) == ["a.txt\nb\n"]
    assert store.checkpoints(work) != []


async def test_where_no_checkpoint_can_be_kept_auto_lets_a_command_read(work: Path) -> None:
    (work.parent / "store").write_text("in its way")
    store = CheckpointStore(work.parent / "store/in")
    results = await told(
        *(work, store, "auto"), call("bash", command="touch b"), call("bash", command="cat a.txt; touch c")
    )
    assert results[0].startswith("the command was not run: ")
    assert results[1].startswith("one\n")
    assert results[1].endswith(TOLD)
    assert files(work) == ["a.txt"]
