"""Background commands with real processes: what is reported, who can reach them, and that nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentEvent,
    AgentToolResult,
    ModelSpec,
    TaskEnded,
    TaskStarted,
    ToolContext,
    extract_text,
)
from swink_agent.core.approval import Grant
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.sandbox import Sandbox, SandboxProfile, SandboxUnavailable, open_sandbox, open_unconfined
from swink_agent.testing import call, check_events, scripted, text
from swink_agent.tools import BashOutputTool, BashStopTool, BashTool, CheckpointStore, standard_tools
from swink_agent.tools.commands.tasks import MOST_TASKS, BackgroundTask

MODEL = ModelSpec("test", "model")
BACK_ENDS = ("bubblewrap", "landlock", "off")
PATIENCE = 30.0
SERVER = "import http.server as h; h.HTTPServer(('127.0.0.1', {port}), h.SimpleHTTPRequestHandler).serve_forever()"
CLIENT = """
import time, urllib.request
for _ in range(200):
    try:
        print(urllib.request.urlopen("http://127.0.0.1:{port}/hello.txt", timeout=5).read().decode())
        break
    except OSError as error:
        time.sleep(0.05)
else:
    print(error)
"""


def opened(name: str, folder: Path) -> Sandbox:
    profile = SandboxProfile(write=(str(folder),))
    try:
        return open_unconfined(profile) if name == "off" else open_sandbox(profile, backend=name)
    except SandboxUnavailable as error:
        pytest.skip(f"{name} does not work here: {error}")


@pytest.fixture(params=BACK_ENDS)
def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sandbox]:
    with opened(request.param, tmp_path) as sandbox:
        yield sandbox


class Shell:
    """The three tools, as a model uses them."""

    def __init__(self, bash: BashTool, redactor: Redactor | None = None) -> None:
        self.bash, self._redactor = bash, redactor
        self._output, self._stop = BashOutputTool(bash), BashStopTool(bash)

    async def run(self, command: str, **more: Any) -> AgentToolResult:
        return await self.bash.execute({"command": command, **more}, ToolContext(redactor=self._redactor))

    async def start(self, command: str, **more: Any) -> BackgroundTask:
        result = await self.run(command, background=True, **more)
        assert not result.is_error, extract_text(result.content)
        assert result.details["task"] in extract_text(result.content)
        return self.bash.tasks.find(result.details["task"])

    async def output(self, task_id: str) -> AgentToolResult:
        return await self._output.execute({"id": task_id}, ToolContext())

    async def stop(self, task_id: str) -> AgentToolResult:
        return await self._stop.execute({"id": task_id}, ToolContext())

    async def until(self, task_id: str, wanted: str) -> str:
        """All new output, once it has this."""
        seen = ""
        end = time.monotonic() + PATIENCE
        while wanted not in seen:
            assert time.monotonic() < end, seen
            seen += extract_text((await self.output(task_id)).content)
            await asyncio.sleep(0.01)
        return seen


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Shell]]:
    with contextlib.ExitStack() as opened:

        def build(sandbox: Any = "off", redactor: Redactor | None = None, **options: Any) -> Shell:
            bash = BashTool(tmp_path, sandbox, **options)
            opened.callback(bash.close)
            return Shell(bash, redactor)

        yield build


async def over(task: BackgroundTask) -> None:
    assert await asyncio.to_thread(task.over.wait, PATIENCE)


async def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def python(code: str, **values: object) -> str:
    # The interpreter itself: a virtual environment beneath /tmp is out of a command's sight.
    return f"{Path(sys.executable).resolve()} -c {shlex.quote(code.format(**values))}"


def lives(marker: str) -> bool:
    return subprocess.run(["pgrep", "-f", marker], capture_output=True, check=False).returncode == 0


@contextlib.asynccontextmanager
async def marked() -> AsyncIterator[str]:
    """A command whose processes can be found: its shell, its child, and one that left group and session."""
    number = f"98{secrets.randbelow(10**6):06}"
    yield f"setsid sleep {number} & sleep {number} & echo started; wait"
    await until(lambda: not lives(f"sleep {number}"))


# -- what a model is told ----------------------------------------------------------------------------------------


async def test_the_id_is_there_at_once_and_each_look_gives_what_is_new(
    make: Callable[..., Shell], tmp_path: Path
) -> None:
    shell = make()
    began = time.monotonic()
    task = await shell.start("echo one; while [ ! -e go ]; do sleep 0.01; done; echo two; exit 3")
    assert time.monotonic() - began < PATIENCE
    assert "one\n" in await shell.until(task.id, "one")
    again = await shell.output(task.id)
    assert extract_text(again.content).startswith("[no new output]\n[b1: running for ")
    assert again.details == {"task": "b1", "running": True, "exit_code": None, "left_out": 0}
    (tmp_path / "go").touch()
    await over(task)
    last = await shell.output(task.id)
    assert extract_text(last.content) == "two\n[b1: exit code 3]"
    assert last.details == {"task": "b1", "running": False, "exit_code": 3, "left_out": 0}
    assert extract_text((await shell.output(task.id)).content) == "[no new output]\n[b1: exit code 3]"


async def test_an_unknown_id_names_those_there_are(make: Callable[..., Shell]) -> None:
    shell = make()
    for tool in (shell.output, shell.stop):
        nothing = await tool("b1")
        assert nothing.is_error
        assert extract_text(nothing.content) == "there is no background command 'b1': none was started"
    ended = await shell.start("true")
    await over(ended)
    await shell.start("sleep 100")
    for tool in (shell.output, shell.stop):
        wrong = await tool("b7")
        assert wrong.is_error
        assert extract_text(wrong.content) == "there is no background command 'b7': there are b1 (ended), b2 (running)"


async def test_the_end_of_one_is_told_once_with_the_next_result(make: Callable[..., Shell]) -> None:
    shell = make()
    await over(await shell.start("exit 4"))
    told = extract_text((await shell.run("echo hi")).content)
    assert told == 'hi\n[b1 ended: exit code 4; bash_output(id="b1") has its last output]'
    assert extract_text((await shell.run("echo hi")).content) == "hi\n"
    looked_at = await shell.start("true")
    await over(looked_at)
    await shell.output(looked_at.id)
    assert extract_text((await shell.run("echo hi")).content) == "hi\n"


async def test_no_more_than_eight_run_and_a_stopped_one_makes_room(make: Callable[..., Shell]) -> None:
    shell = make()
    tasks = [await shell.start("sleep 100") for _ in range(MOST_TASKS)]
    refused = await shell.run("echo never > there", background=True)
    assert refused.is_error
    assert extract_text(refused.content) == (
        "the command was not run: 8 background commands run already (b1, b2, b3, b4, b5, b6, b7, b8), and no more may; "
        "end one with bash_stop"
    )
    stopped = await shell.stop(tasks[2].id)
    assert extract_text(stopped.content) == "[no new output]\n[b3: stopped: ended with everything that it started]"
    assert stopped.details == {"task": "b3", "running": False, "exit_code": None, "left_out": 0}
    assert (await shell.start("sleep 100")).id == "b9"


async def test_at_most_a_mebibyte_is_kept_and_the_rest_is_counted(make: Callable[..., Shell]) -> None:
    shell = make()
    lines = 600_000
    task = await shell.start(f"seq 1 {lines}")
    await over(task)
    result = await shell.output(task.id)
    shown = extract_text(result.content)
    assert len(shown.encode()) <= 100 * 1024
    assert f"\n{lines}\n[b1: exit code 0]" in shown
    printed = sum(len(f"{number}\n") for number in range(1, lines + 1))
    numbers = [line for line in shown.splitlines() if line.isdigit()]
    assert result.details["left_out"] == printed - sum(len(number) + 1 for number in numbers)
    first = int(numbers[0])
    kept = sum(len(f"{number}\n") for number in range(first, lines + 1))
    assert 256 * 1024 < kept <= 1024 * 1024
    assert shown.startswith(f"[… {printed - kept:,} bytes left out …]\n")


async def test_a_secret_is_masked_also_where_two_looks_cut_it(make: Callable[..., Shell], tmp_path: Path) -> None:
    redactor, secret = Redactor(), "correct-horse-battery-staple"
    redactor.register(secret, "KEY")
    shell = make(redactor=redactor)
    (tmp_path / "key").write_text(secret)
    wait = "while [ ! -e go ]; do sleep 0.01; done"
    task = await shell.start(f"echo ready; head -c 14 key; echo > half; {wait}; tail -c +15 key; echo; exit 0")
    await until((tmp_path / "half").exists)
    seen = await shell.until(task.id, "ready")
    for _ in range(20):
        seen += extract_text((await shell.output(task.id)).content)
        assert "horse" not in f"{seen} {task.last_line} {task.newest}"
        await asyncio.sleep(0.005)
    (tmp_path / "go").touch()
    await over(task)
    seen += extract_text((await shell.output(task.id)).content)
    assert "horse" not in seen
    assert "staple" not in seen
    assert redactor.redact(secret) in seen
    assert task.last_line == redactor.redact(secret)


async def test_a_command_has_a_timeout_only_if_one_is_given(make: Callable[..., Shell]) -> None:
    shell = make(timeout=0.05)
    forever = await shell.start("sleep 100")
    short = await shell.start("sleep 100", timeout=0.1)
    await over(short)
    assert short.state == "timed out after 0.1 s and was ended with everything that it started"
    assert forever.is_running


async def test_it_runs_only_as_it_was_approved(make: Callable[..., Shell], tmp_path: Path) -> None:
    bash = make().bash
    asked = {"command": "echo hi > there", "background": True}
    grant = Grant("bash", {"command": "echo hi > there"}, bash.approval_scope(asked))
    refused = await bash.execute(asked, ToolContext(grant=grant))
    assert refused.is_error
    assert "is not what was approved" in extract_text(refused.content)
    assert not bash.tasks.all
    asked = {**asked, "write": True}
    granted = await bash.execute(asked, ToolContext(grant=Grant("bash", asked, bash.approval_scope(asked))))
    await over(bash.tasks.find(granted.details["task"]))
    assert (tmp_path / "there").read_text() == "hi\n"


# -- who reaches it, and what is left ----------------------------------------------------------------------------


@pytest.mark.rows(one_of=10)
async def test_later_commands_reach_its_server_and_nothing_else_does(
    make: Callable[..., Shell], sandbox: Sandbox, tmp_path: Path
) -> None:
    if not getattr(sandbox, "has_loopback", True):
        pytest.skip("commands have no sockets here")
    (tmp_path / "hello.txt").write_text("hello from the background")
    shell, port = make(sandbox), free_port()
    server = await shell.start(python(SERVER, port=port))
    second = await shell.start("sleep 100")
    reached = await shell.run(python(CLIENT, port=port), timeout=60)
    assert extract_text(reached.content) == "hello from the background\n", extract_text(reached.content)
    if sandbox.backend != "off":
        with pytest.raises(ConnectionRefusedError):  # the machine's own network has no such server
            socket.create_connection(("127.0.0.1", port), timeout=5)
    await shell.stop(server.id)
    other = free_port()  # the network stays with the one that still runs
    await shell.start(python(SERVER, port=other))
    assert "hello" in extract_text((await shell.run(python(CLIENT, port=other), timeout=60)).content)
    assert second.is_running


async def test_a_later_command_keeps_its_own_limits(
    make: Callable[..., Shell], sandbox: Sandbox, tmp_path: Path
) -> None:
    if sandbox.backend == "off":
        pytest.skip("nothing limits it")
    shell = make(sandbox)
    await shell.start("sleep 100")
    outside = tmp_path.parent / f"outside-{secrets.token_hex(4)}"
    result = await shell.run(
        f"echo no > {outside}; id -u; echo yes > inside; grep -c sleep /proc/[0-9]*/comm | tail -1"
    )
    assert not outside.exists()
    assert (tmp_path / "inside").read_text() == "yes\n"
    assert (tmp_path / "inside").stat().st_uid == os.geteuid()
    assert f"\n{os.geteuid()}\n" in f"\n{extract_text(result.content)}"
    with socket.create_server(("127.0.0.1", 0)) as ours:
        refused = await shell.run(f"exec 3<>/dev/tcp/127.0.0.1/{ours.getsockname()[1]} && echo reached")
        assert "reached" not in extract_text(refused.content)


async def test_stopping_closing_and_forgetting_end_all_that_it_started(
    make: Callable[..., Shell], sandbox: Sandbox
) -> None:
    shell = make(sandbox)
    async with marked() as command:
        task = await shell.start(command)
        await shell.until(task.id, "started")
        await shell.stop(task.id)
    async with marked() as command:
        await shell.until((await shell.start(command)).id, "started")
        shell.bash.close()
    assert (await shell.run("true", background=True)).is_error


async def test_a_tool_that_nobody_holds_ends_what_it_started(tmp_path: Path) -> None:
    async with marked() as command:
        shell = Shell(BashTool(tmp_path, "off"))
        await shell.until((await shell.start(command)).id, "started")
        del shell
        gc.collect()


CRASHING = """
import asyncio, sys
from swink_agent import ToolContext
from swink_agent.sandbox import SandboxProfile, open_sandbox, open_unconfined
from swink_agent.tools import BashTool

async def main():
    backend, folder, command = sys.argv[1:]
    profile = SandboxProfile(write=(folder,))
    sandbox = open_unconfined(profile) if backend == "off" else open_sandbox(profile, backend=backend)
    bash = BashTool(folder, sandbox)
    for _ in range(2):
        started = await bash.execute({"command": command, "background": True}, ToolContext())
        task = bash.tasks.find(started.details["task"])
        while "started" not in task.newest:
            await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.mark.rows(one_of=10)
async def test_nothing_is_left_of_it_when_the_program_is_killed(sandbox: Sandbox, tmp_path: Path) -> None:
    async with marked() as command:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", textwrap.dedent(CRASHING), sandbox.backend, str(tmp_path), command),
            stdout=subprocess.PIPE,
        )
        assert program.stdout is not None
        assert await asyncio.wait_for(program.stdout.readline(), 60) == b"ready\n"
        program.send_signal(signal.SIGKILL)
        await program.wait()


# -- in a conversation -------------------------------------------------------------------------------------------


def agent_of(tools: Any, *script: Any) -> tuple[Agent, list[AgentEvent]]:
    agent = Agent(MODEL, tools=tools, stream_fn=scripted(*script), approve=lambda request: True)
    events: list[AgentEvent] = []
    agent.subscribe(events.append)
    return agent, events


async def test_its_start_is_among_the_events_of_the_call_and_its_end_where_it_happens(
    make: Callable[..., Shell], tmp_path: Path
) -> None:
    bash = make().bash
    waiting = "while [ ! -e go ]; do sleep 0.01; done; exit 5"
    agent, events = agent_of(
        [bash],
        call("bash", command=waiting, background=True),
        text("it runs"),
        call("bash", command="touch go"),
        text("ok"),
    )
    await agent.prompt("serve")
    check_events(events)
    names = [type(event).__name__ for event in events]
    assert names.index("ToolExecutionStart") < names.index("TaskStarted") < names.index("ToolExecutionEnd")
    assert TaskStarted("b1", waiting) in events
    assert not [event for event in events if isinstance(event, TaskEnded)]
    (tmp_path / "go").touch()
    await over(bash.tasks.find("b1"))
    await asyncio.sleep(0)
    assert events[-1] == TaskEnded("b1", 5)


def test_it_lives_on_from_one_event_loop_to_the_next(make: Callable[..., Shell], tmp_path: Path) -> None:
    bash = make().bash
    agent, events = agent_of(
        [bash, BashOutputTool(bash)],
        *(call("bash", command="echo a; while [ ! -e go ]; do sleep 0.01; done; echo b", background=True), text("yes")),
        *(call("bash_output", id="b1"), text("I see")),
    )
    agent.prompt_sync("start")
    (tmp_path / "go").touch()
    assert bash.tasks.find("b1").over.wait(PATIENCE)
    result = agent.prompt_sync("look")
    assert extract_text(result.messages[2].content) == "a\nb\n[b1: exit code 0]"
    assert [event for event in events if isinstance(event, TaskEnded)] == [TaskEnded("b1", 0)]


@pytest.mark.rows(one_of=10)
async def test_foreground_and_background_commands_start_at_once_in_several_threads(
    make: Callable[..., Shell], sandbox: Sandbox
) -> None:
    shell = make(sandbox)

    async def start() -> str:
        return (await shell.start("sleep 100")).id

    async def run(number: int) -> str:
        return extract_text((await shell.run(f"echo {number}")).content)

    results = await asyncio.gather(*(start() for _ in range(4)), *(run(number) for number in range(8)))
    assert sorted(results[:4]) == ["b1", "b2", "b3", "b4"]
    assert results[4:] == [f"{number}\n" for number in range(8)]


async def test_a_call_that_is_cancelled_while_it_starts_leaves_nothing(make: Callable[..., Shell]) -> None:
    async with marked() as command:
        shell = make()
        for delay in (0, 0.0005, 0.002, 0.01):
            starting = asyncio.ensure_future(shell.run(command, background=True))
            await asyncio.sleep(delay)
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                task = shell.bash.tasks.find((await starting).details["task"])
                await shell.stop(task.id)
        for task in shell.bash.tasks.all:
            await over(task)


async def test_background_changes_are_the_runs_and_each_call_can_be_undone_alone(tmp_path: Path) -> None:
    root, store = tmp_path / "root", CheckpointStore(tmp_path / "store")
    root.mkdir()
    tools = {tool.name: tool for tool in standard_tools(root, "off", checkpoints=store)}
    first, later = ToolContext(run_id="first"), ToolContext(run_id="later")
    waiting = (
        "while [ ! -e go ]; do sleep 0.01; done; echo mine > by-task; rm go; while [ ! -e go ]; do sleep 0.01; done"
    )
    started = await tools["bash"].execute({"command": waiting, "background": True}, first)
    (root / "go").touch()
    await until(lambda: not (root / "go").exists())
    await tools["write_file"].execute({"path": "by-call", "content": "x"}, later)
    owners = [(point.owner, point.run_id, point.changed) for point in reversed(store.checkpoints(root))]
    assert owners == [("other", "first", 0), ("run", "first", 0), ("run", "first", 1), ("run", "later", 1)]
    plan = store.plan(root, store.checkpoints(root)[0], runs="later")
    assert [(item.path, item.what) for item in store.plan(root, store.checkpoints(root)[1], runs="later")] == [
        ("by-call", "remove")
    ]
    assert plan == []
    (root / "go").touch()
    task = tools["bash"].tasks.find(started.details["task"])  # type: ignore[attr-defined]
    await over(task)
    newest = store.checkpoints(root)[0]
    assert (newest.owner, newest.run_id, newest.changed) == ("run", "first", 1)
    (root / "by-user").touch()
    await tools["write_file"].execute({"path": "again", "content": "x"}, later)
    assert [(point.owner, point.changed) for point in store.checkpoints(root)[:2]] == [("run", 1), ("other", 1)]
    tools["bash"].close()  # type: ignore[attr-defined]


async def test_a_program_that_dies_leaves_its_changes_to_the_run(tmp_path: Path) -> None:
    """What a task changed between calls, and no checkpoint has yet, is the run's in the next program too."""
    root, store = tmp_path / "root", CheckpointStore(tmp_path / "store")
    root.mkdir()
    tools = {tool.name: tool for tool in standard_tools(root, "off", checkpoints=store)}
    await tools["bash"].execute({"command": "sleep 100", "background": True}, ToolContext(run_id="first"))
    (root / "by-task").touch()
    reopened = CheckpointStore(tmp_path / "store")
    reopened.settle(root)
    assert [(point.owner, point.run_id) for point in reopened.checkpoints(root) if point.changed] == [("run", "first")]
    tools["bash"].close()  # type: ignore[attr-defined]


def test_no_thread_is_left_behind(make: Callable[..., Shell]) -> None:
    async def once() -> None:
        shell = make()
        await over(await shell.start("true"))
        shell.bash.close()

    asyncio.run(once())
    end = time.monotonic() + PATIENCE
    while any(thread.name == "swink-background" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)


async def test_closing_does_not_wait_for_what_could_not_be_started(make: Callable[..., Shell], tmp_path: Path) -> None:
    sandbox = open_unconfined(SandboxProfile(write=(str(tmp_path),)))
    shell = make(sandbox)
    sandbox.close()
    refused = await shell.run("true", background=True)
    assert refused.is_error
    assert "was not run" in extract_text(refused.content)
    assert not shell.bash.tasks.all
    began = time.monotonic()
    shell.bash.close()
    assert time.monotonic() - began < 2
