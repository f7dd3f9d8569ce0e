"""The bash tool with real processes: its results, its stream, and that no process survives a call."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import shutil
import subprocess
import sys
import time
import tracemalloc
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from signal import SIGINT, SIGKILL, Signals
from typing import Any

import pytest

from swink_agent import (
    Agent,
    AgentToolResult,
    Approve,
    ApproveWith,
    CancellationToken,
    ModelSpec,
    ProposedCall,
    ToolContext,
    ToolError,
    ToolExecutionEnd,
    ToolExecutionUpdate,
    extract_text,
)
from swink_agent.core.approval import Grant
from swink_agent.sandbox import (
    Sandbox,
    SandboxedProcess,
    SandboxError,
    SandboxProfile,
    SandboxUnavailable,
    open_sandbox,
    open_unconfined,
)
from swink_agent.sandbox.kernel.process_tree import can_tell_exits
from swink_agent.testing import call, check_events, collect, scripted, text
from swink_agent.tools import BashTool

MODEL = ModelSpec("test", "model")
TRUE = {"command": "true"}
TRIES = 12
"""How often something may be too slow: a machine is busy now and then, what hangs does so every time."""
ShellFn = Callable[..., BashTool]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[ShellFn]:
    """Shells in the test's folder, closed at its end."""
    with contextlib.ExitStack() as opened:

        def build(sandbox: Any = "auto", **options: Any) -> BashTool:
            shell = BashTool(tmp_path, sandbox, **options)
            opened.callback(shell.close)
            return shell

        yield build


@pytest.fixture(
    params=[
        "auto",
        "off",
        *([pytest.param("landlock", marks=pytest.mark.sweep)] if sys.platform == "linux" else []),
    ]
)
def shell(request: pytest.FixtureRequest, make: ShellFn) -> BashTool:
    if request.param == "landlock":
        return make(open_sandbox=partial(open_sandbox, backend="landlock"))
    return make(request.param)


@pytest.fixture
def here(tmp_path: Path) -> str:
    """The test's folder as a command sees it."""
    return str(tmp_path.resolve())


async def run(shell: BashTool, command: str, ctx: ToolContext | None = None, **arguments: Any) -> AgentToolResult:
    return await shell.execute({"command": command, **arguments}, ctx or ToolContext())


def said(result: AgentToolResult) -> str:
    return extract_text(result.content)


def details_but_time(result: AgentToolResult) -> dict[str, Any]:
    return {name: value for name, value in result.details.items() if name not in ("duration", "sandbox")}


def running(marker: str) -> list[int]:
    """The processes of the whole machine with the marker among their arguments."""
    found: list[int] = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and marker.encode() in Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0"):
                found.append(int(entry))
    return found


async def gone(marker: str) -> bool:
    """Whether the marked processes are no more; one that was just killed has a moment to leave the table."""
    end = time.monotonic() + 30
    while is_there := running(marker):
        if time.monotonic() > end:
            break
        await asyncio.sleep(0.01)
    return not is_there


def marker() -> str:
    """A number of seconds that no other process sleeps for."""
    return f"9{secrets.randbelow(10**9)}.{secrets.randbelow(10**9)}"


# -- results -------------------------------------------------------------------------------------------------


async def test_a_command_runs_in_the_folder_and_gives_both_of_its_outputs(shell: BashTool, here: str) -> None:
    result = await run(shell, "pwd; echo problem >&2")
    assert said(result) == f"{here}\nproblem\n"
    assert not result.is_error
    assert details_but_time(result) == {
        "exit_code": 0,
        "signal": None,
        "timed_out": False,
        "cancelled": False,
        "truncated": False,
    }
    assert 0 <= result.details["duration"] < 10


async def test_the_details_say_which_sandbox_held_the_command(make: ShellFn) -> None:
    assert (await run(make("off"), "true")).details["sandbox"] == "off"
    assert (await run(make(), "true")).details["sandbox"] in ("bubblewrap", "landlock", "sandbox-exec")


async def test_an_exit_code_that_is_not_zero_is_an_error_that_names_it(shell: BashTool) -> None:
    result = await run(shell, "printf partial; exit 3")
    assert (said(result), result.is_error) == ("partial\n[exit code 3]", True)
    assert result.details["exit_code"] == 3


async def test_a_signal_is_named(shell: BashTool) -> None:
    result = await run(shell, "sleep 0.1; kill -SEGV $$")
    if result.details["sandbox"] == "bubblewrap" and not can_tell_exits():
        assert said(result) == "[exit code 139]"
    else:
        assert (said(result), result.is_error) == ("[exit code 139: killed by SIGSEGV]", True)
        assert (result.details["exit_code"], result.details["signal"]) == (139, "SIGSEGV")


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    ("command", "code", "ending"),
    [
        ("exit 137", 137, "[exit code 137]"),
        ("sleep 0.1; exit 137", 137, "[exit code 137]"),
        ("bash -c 'kill -TERM $$'; exit $?", 143, "[exit code 143]"),
        ("exit 128", 128, "[exit code 128]"),
        ("exit 129", 129, "[exit code 129]"),  # what git says of options that it does not know, not of SIGHUP
        ("exit 160", 160, "[exit code 160]"),
        ("exit 255", 255, "[exit code 255]"),
    ],
)
async def test_a_status_is_reported_as_it_is(shell: BashTool, command: str, code: int, ending: str) -> None:
    """A code that reads as a signal does not mean that there was one."""
    result = await run(shell, command)
    assert said(result).endswith(ending)
    assert (result.details["exit_code"], result.details["signal"], result.is_error) == (code, None, True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed, and the command runs it")
async def test_files_left_behind_for_later_are_reported(shell: BashTool, tmp_path: Path, here: str) -> None:
    result = await run(shell, "git init -q n && git -C n config core.fsmonitor ./evil && git init -q m && echo made")
    if result.details["sandbox"] == "off":  # without a sandbox, nothing checks what is left
        assert "left_behind" not in result.details
        return
    text = f"'{here}/n/.git/config': core.fsmonitor can make git run programs. It was moved to 'config.swink-1'"
    assert said(result).startswith(f"made\n[sandbox: {text}")
    assert result.details["left_behind"][0].startswith(text)
    assert not result.is_error
    assert not (tmp_path / "n/.git/config").exists()
    assert "left_behind" not in (await run(shell, "git -C n config user.name A; git -C n status")).details


async def test_remains_are_looked_at_also_if_the_call_is_cut_short(shell: BashTool, tmp_path: Path) -> None:
    """As a limit of time for all tools does, which does not wait for the command's end."""
    if (await run(shell, "true")).details["sandbox"] == "off":  # without a sandbox, nothing checks what is left
        return
    script = "mkdir -p n/.git; printf '[core]\\n\\tfsmonitor = ./evil\\n' > n/.git/config; echo > made; sleep 60"
    call = asyncio.ensure_future(run(shell, script))
    async with asyncio.timeout(60):
        while not (tmp_path / "made").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        while not (tmp_path / "n/.git/config.swink-1").exists():  # noqa: ASYNC110 - a thread makes it
            await asyncio.sleep(0.01)
    assert not (tmp_path / "n/.git/config").exists()


@pytest.fixture
def repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)


@pytest.mark.usefixtures("repository")
async def test_the_remedy_for_a_held_configuration_is_named(shell: BashTool) -> None:
    result = await run(shell, "git config core.pager less")
    if result.details["sandbox"] == "off":
        assert not result.is_error
        return
    assert result.is_error
    assert "commands may change only harmless ones" in said(result)
    assert said(result).endswith("give it to one command (git -c name=value), or ask the user to set it]")
    again = await run(shell, "git -c user.name=a -c user.email=a commit -q --allow-empty -m x && git log --format=%an")
    assert (said(again), again.is_error) == ("a\n", False)


async def test_silence_is_said(shell: BashTool) -> None:
    assert said(await run(shell, "true")) == "[no output]\n[exit code 0]"
    assert said(await run(shell, "false")) == "[exit code 1]"


async def test_each_call_starts_afresh(shell: BashTool, tmp_path: Path, here: str) -> None:
    (tmp_path / "inner").mkdir()
    await run(shell, "cd inner; VALUE=kept; export VALUE")
    assert said(await run(shell, 'pwd; echo "[$VALUE]"')) == f"{here}\n[]\n"


async def test_stdin_is_empty(shell: BashTool) -> None:
    assert said(await run(shell, "cat; read -r line || echo nothing to read")) == "nothing to read\n"


async def test_a_command_that_looks_like_an_option_is_a_command(shell: BashTool) -> None:
    result = await run(shell, "--version")
    assert "not found" in said(result)
    assert result.details["exit_code"] == 127


async def test_start_files_of_the_shell_are_not_read(
    make: ShellFn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tmp_path / "start"
    start.write_text("echo started\n")
    for name in (".bashrc", ".bash_profile", ".profile"):
        (tmp_path / name).write_text("echo started\n")
    monkeypatch.setenv("BASH_ENV", str(start))
    monkeypatch.setenv("ENV", str(start))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert said(await run(make("off"), "echo only this")) == "only this\n"


async def test_secrets_of_the_environment_do_not_reach_a_command(
    make: ShellFn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-canary")
    for choice in ("auto", "off"):
        result = await run(make(choice), "env; cat /proc/self/environ")
        assert "PATH=" in said(result)
        assert "sk-canary" not in said(result)


async def test_the_sandbox_holds(make: ShellFn, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "file"
    result = await run(make(), f"echo in > inside; echo out > {outside}")
    assert result.is_error
    assert (tmp_path / "inside").read_text() == "in\n"
    assert not outside.exists()


async def test_calls_at_once_do_not_mix(shell: BashTool) -> None:
    results = await asyncio.gather(*[run(shell, f"echo start {i}; sleep 0.05; echo end {i}") for i in range(8)])
    assert [said(result) for result in results] == [f"start {i}\nend {i}\n" for i in range(8)]


# -- output --------------------------------------------------------------------------------------------------


async def test_long_output_keeps_both_ends_and_says_what_is_missing(shell: BashTool) -> None:
    result = await run(shell, "echo first; seq 1 200000; echo last; exit 1")
    output = said(result)
    assert len(output.encode()) <= 100 * 1024
    assert output.startswith("first\n1\n2\n")
    assert output.endswith("\n200000\nlast\n[exit code 1]")
    assert "left out; to see them, send the output to a file and read parts of it" in output
    assert result.details["truncated"] is True
    shown = [line for line in output.splitlines() if line.isdigit()]
    assert all(0 < int(line) <= 200000 for line in shown), "no line is cut"


async def test_a_flood_is_ended_and_costs_no_memory(make: ShellFn) -> None:
    shell = make("off", most_output=32 * 1024 * 1024)
    await run(shell, "true")
    tracemalloc.start()
    try:
        result = await run(shell, "yes flood", timeout=20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.is_error
    assert said(result).endswith("[ended, as it printed more than 32 MiB; send the output to a file]")
    assert len(said(result).encode()) <= 100 * 1024
    assert (result.details["timed_out"], result.details["signal"]) == (False, "SIGKILL")
    assert peak < 12 * 1024 * 1024


async def test_other_tasks_run_during_a_flood(make: ShellFn) -> None:
    shell = make("off", most_output=64 * 1024 * 1024)
    longest = 0.0
    for _ in range(TRIES):
        longest = 0.0
        flood = asyncio.create_task(run(shell, "yes", timeout=20))
        while not flood.done():
            before = time.monotonic()
            await asyncio.sleep(0.001)
            longest = max(longest, time.monotonic() - before)
        if longest < 0.5:
            break
    assert longest < 0.5


async def test_colours_and_overwritten_lines_are_cleaned_away(shell: BashTool) -> None:
    result = await run(shell, r"printf '\e[1;31mred\e[0m \e]0;title\a10%%\r20%%\rdone 30%%\r\nend\b\0\n'")
    assert said(result) == "done 30%\nen\n"


async def test_invalid_bytes_do_no_harm(shell: BashTool) -> None:
    assert said(await run(shell, r"printf 'a\xff\xfeb\n'")) == "a\ufffd\ufffdb\n"


# -- updates -------------------------------------------------------------------------------------------------


async def updates_of(shell: BashTool, command: str, **arguments: Any) -> tuple[list[str], AgentToolResult]:
    updates: list[str] = []
    ctx = ToolContext(on_update=lambda update: updates.append(extract_text(update.content)))
    result = await run(shell, command, ctx, **arguments)
    return updates, result


async def test_output_is_streamed_as_it_comes(shell: BashTool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    seen = asyncio.Event()

    def on_update(update: AgentToolResult) -> None:
        assert extract_text(update.content) == "before\n"
        seen.set()

    running_call = asyncio.create_task(
        run(shell, "echo before; read -r _ < gate; exit 7", ToolContext(on_update=on_update))
    )
    async with asyncio.timeout(30):
        await seen.wait()
        assert not running_call.done()
        await asyncio.to_thread((tmp_path / "gate").write_text, "go\n")
        assert said(await running_call) == "before\n[exit code 7]"


@pytest.mark.rows(one_of=10)
async def test_updates_hold_what_is_new_and_come_no_faster_than_twenty_a_second(shell: BashTool) -> None:
    started = time.monotonic()
    updates, result = await updates_of(shell, "for i in {1..300}; do echo line $i; sleep 0.001; done")
    elapsed = time.monotonic() - started
    assert "".join(updates) == said(result)
    assert 2 < len(updates) <= elapsed * 20 + 2


async def test_characters_and_sequences_cut_by_the_pipe_arrive_whole(shell: BashTool) -> None:
    pieces = (
        r"printf '\xe2\x82'; sleep 0.12; printf '\xac \x1b['; sleep 0.12; printf '31mred\r'; sleep 0.12; printf '\n'"
    )
    updates, result = await updates_of(shell, pieces)
    assert "".join(updates) == said(result) == "€ red\n"
    assert "\ufffd" not in "".join(updates)


async def test_an_update_of_a_flood_is_small(make: ShellFn) -> None:
    updates, _ = await updates_of(make("off", most_output=16 * 1024 * 1024), "yes 0123456789", timeout=20)
    assert updates
    assert all(len(update) < 20 * 1024 for update in updates)


# -- endings -------------------------------------------------------------------------------------------------


async def test_a_timeout_ends_everything_that_was_started(shell: BashTool) -> None:
    mark = marker()
    command = f"echo begun; (setsid sleep {mark} & ); nohup sleep {mark} >/dev/null 2>&1 & sleep {mark}"
    started = time.monotonic()
    result = await run(shell, command, timeout=2)
    assert time.monotonic() - started < 30
    assert result.is_error
    assert said(result) == (
        "begun\n[timed out after 2 s and was ended with everything that it started; give a longer timeout]"
    )
    assert details_but_time(result) == {
        "exit_code": None,
        "signal": "SIGKILL",
        "timed_out": True,
        "cancelled": False,
        "truncated": False,
    }
    assert await gone(mark)


async def test_a_child_in_the_background_that_holds_the_pipe_is_not_waited_for(shell: BashTool) -> None:
    mark = marker()
    started = time.monotonic()
    result = await run(shell, f"sleep {mark} & echo done")
    assert time.monotonic() - started < 30
    assert (said(result), result.is_error) == ("done\n", False)
    assert await gone(mark)


async def test_output_before_the_exit_is_complete(shell: BashTool) -> None:
    mark = marker()
    result = await run(shell, f"seq 1 10000; sleep {mark} &")
    assert said(result) == "".join(f"{number}\n" for number in range(1, 10001))
    assert await gone(mark)


async def test_a_command_that_closes_its_output_still_runs_to_its_end(shell: BashTool, tmp_path: Path) -> None:
    result = await run(shell, "exec >&- 2>&-; sleep 0.1; : > reached; exit 5")
    assert (said(result), result.details["exit_code"]) == ("[exit code 5]", 5)
    assert (tmp_path / "reached").exists()


async def test_a_token_ends_the_command_within_a_tenth_of_a_second_and_keeps_its_output(shell: BashTool) -> None:
    mark = marker()
    in_time, tries = 0, 0
    while tries < 3 or (not in_time and tries < TRIES):
        tries += 1
        cancel = CancellationToken()
        seen = asyncio.Event()
        ctx = ToolContext(cancel=cancel, on_update=lambda _, seen=seen: seen.set())
        call_task = asyncio.create_task(run(shell, f"echo partial; sleep {mark} & sleep {mark}", ctx))
        async with asyncio.timeout(30):
            await seen.wait()
        before = time.monotonic()
        cancel.cancel()
        result = await call_task
        is_prompt = time.monotonic() - before < 0.1
        # A busy machine may not have ended it by then, which is not waited for.
        ending = said(result).removeprefix("partial\n[cancelled: ")
        assert ending in (
            "ended with everything that it started]",
            "told to end, but something of it is still held by the system]",
        )
        in_time += is_prompt and ending.startswith("ended")
        assert (result.is_error, result.details["cancelled"], result.details["timed_out"]) == (True, True, False)
    assert in_time
    assert await gone(mark)


async def test_cancelling_the_task_ends_the_command_within_a_tenth_of_a_second(shell: BashTool) -> None:
    mark = marker()
    times: list[float] = []
    while len(times) < 3 or (min(times) >= 0.1 and len(times) < TRIES):
        seen = asyncio.Event()
        ctx = ToolContext(on_update=lambda _, seen=seen: seen.set())
        call_task = asyncio.create_task(run(shell, f"echo begun; sleep {mark} & sleep {mark}", ctx))
        async with asyncio.timeout(30):
            await seen.wait()
        before = time.monotonic()
        call_task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call_task
        times.append(time.monotonic() - before)
    assert min(times) < 0.1
    assert await gone(mark)


async def test_a_call_cancelled_at_any_moment_leaves_no_process(shell: BashTool) -> None:
    mark = marker()
    for delay in range(0, 40, 4):
        call_task = asyncio.create_task(run(shell, f"sleep {mark} & sleep {mark}"))
        await asyncio.sleep(delay / 1000)
        call_task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call_task
    assert await gone(mark)


PROGRAM = """
import asyncio, sys
from swink_agent import ToolContext
from swink_agent.tools import BashTool

async def main():
    shell = BashTool(sys.argv[1], sys.argv[2])
    show = ToolContext(on_update=lambda _: print("begun", flush=True))
    await shell.execute({"command": f"echo begun; setsid sleep {sys.argv[3]} & sleep {sys.argv[3]}"}, show)

asyncio.run(main())
"""


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(("choice", "number"), [("auto", SIGINT), ("off", SIGINT), ("auto", SIGKILL)])
async def test_a_program_that_ends_takes_its_commands_along(tmp_path: Path, choice: str, number: Signals) -> None:
    mark = marker()
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(tmp_path), choice, mark), stdout=PIPE, stderr=DEVNULL
    )
    assert program.stdout is not None
    async with asyncio.timeout(40):
        assert await program.stdout.readline() == b"begun\n"
        while len(running(mark)) < 2:  # noqa: ASYNC110 - other processes cannot wake us
            await asyncio.sleep(0.01)
    program.send_signal(number)
    await program.communicate()
    assert await gone(mark)


async def test_a_token_that_is_cancelled_already_starts_nothing(shell: BashTool, tmp_path: Path) -> None:
    cancel = CancellationToken()
    cancel.cancel()
    result = await run(shell, ": > made", ToolContext(cancel=cancel))
    assert (said(result), result.is_error) == ("the command was cancelled before it began", True)
    assert not (tmp_path / "made").exists()


async def test_closing_the_tool_ends_what_runs_and_refuses_more(shell: BashTool) -> None:
    mark = marker()
    seen = asyncio.Event()
    call_task = asyncio.create_task(
        run(shell, f"echo begun; sleep {mark}", ToolContext(on_update=lambda _: seen.set()))
    )
    async with asyncio.timeout(30):
        await seen.wait()
        shell.close()
        shell.close()
        assert (await call_task).is_error
    assert await gone(mark)
    assert (
        said(await run(shell, "true")) == "the command was not run: the tool was closed: make a new one to run commands"
    )


async def test_a_forgotten_tool_closes_its_sandbox(tmp_path: Path) -> None:
    opened: list[Sandbox] = []

    def keep(profile: SandboxProfile) -> Sandbox:
        opened.append(open_unconfined(profile))
        return opened[0]

    shell = BashTool(tmp_path, open_sandbox=keep)
    await run(shell, "true")
    del shell
    gc.collect()
    with pytest.raises(Exception, match="closed"):
        await opened[0].spawn(["/bin/true"], cwd="/")


# -- what is not run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"command": ""}, "the command is empty: give one to run"),
        ({"command": " \n\t"}, "the command is empty: give one to run"),
        ({"command": "echo a\0b"}, "the command holds a NUL character, which no command can: leave it out"),
        (
            {"command": "echo \ud800"},
            "the command holds half of a character (a lone surrogate): write it as UTF-8",
        ),
        (
            {"command": "x" * 100_001},
            "the command has 100,001 bytes, more than the 100,000 that can be run: "
            "write it to a file with write_file, and run that",
        ),
        ({"command": "true", "timeout": 601}, "timeout is 601: give seconds, more than 0 and at most 600"),
        ({"command": "true", "timeout": 0}, "timeout is 0: give seconds, more than 0 and at most 600"),
        ({"command": "true", "timeout": -1.5}, "timeout is -1.5: give seconds, more than 0 and at most 600"),
        ({"command": "true", "timeout": float("nan")}, "timeout is nan: give seconds, more than 0 and at most 600"),
        ({"command": "true", "timeout": True}, "timeout is True: give seconds, more than 0 and at most 600"),
    ],
)
async def test_a_call_that_cannot_be_meant_is_refused(make: ShellFn, arguments: dict[str, Any], problem: str) -> None:
    shell = make("off")
    result = await shell.execute(arguments, ToolContext())
    assert (said(result), result.is_error) == (problem, True)
    with pytest.raises(ToolError) as refused:
        shell.approval_scope(arguments)
    assert str(refused.value) == problem


async def test_without_a_sandbox_the_tool_refuses_and_says_what_to_do(make: ShellFn, tmp_path: Path) -> None:
    def nothing_works(profile: SandboxProfile) -> Sandbox:
        raise SandboxUnavailable

    shell = make(open_sandbox=nothing_works)
    result = await run(shell, ": > made")
    assert result.is_error
    assert said(result).startswith("the command was not run: no sandbox works on this machine")
    assert 'sandbox="off"' in said(result)
    assert not (tmp_path / "made").exists()
    with pytest.raises(ToolError, match="no sandbox works on this machine"):
        shell.approval_scope(TRUE)


async def test_a_sandbox_that_works_later_is_used_then(make: ShellFn) -> None:
    attempts = 0

    def second_time(profile: SandboxProfile) -> Sandbox:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise SandboxUnavailable
        return open_sandbox(profile)

    shell = make(open_sandbox=second_time)
    assert (await run(shell, "true")).is_error
    assert not (await run(shell, "true")).is_error
    assert not (await run(shell, "true")).is_error
    assert attempts == 2


async def test_calls_at_once_open_one_sandbox(make: ShellFn) -> None:
    opened = 0

    def count(profile: SandboxProfile) -> Sandbox:
        nonlocal opened
        opened += 1
        time.sleep(0.05)
        return open_unconfined(profile)

    shell = make(open_sandbox=count)
    assert not any(result.is_error for result in await asyncio.gather(*[run(shell, "true") for _ in range(5)]))
    assert opened == 1


def test_no_argument_can_turn_the_sandbox_off(make: ShellFn) -> None:
    for choice in ("auto", "off"):
        schema = make(choice).parameters_schema
        asks = ["access", "reason"] if choice == "auto" else []
        assert sorted(schema["properties"]) == sorted(["background", "command", "timeout", "write", *asks])
        assert schema["additionalProperties"] is False
        assert schema["properties"]["timeout"]["maximum"] == 600


def test_the_description_tells_what_a_model_must_know(make: ShellFn) -> None:
    walls = "Files can be written only in the workspace and in $TMPDIR. There is no network."
    assert walls in make().description
    assert walls not in make("off").description
    assert "There is no network" not in make(SandboxProfile(network=True)).description
    assert "cd and variables do not last" in make().description


@pytest.mark.parametrize("wrong", [None, True, "none", "OFF", object()])
def test_a_sandbox_that_is_none_of_the_choices_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(TypeError, match='give "auto", "off", a SandboxProfile or an open Sandbox'):
        BashTool(tmp_path, wrong)


def test_a_root_or_timeout_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("missing", "file"):
        with pytest.raises(NotADirectoryError):
            BashTool(tmp_path / name)
    for timeout in (0, -1, 601, float("nan")):
        with pytest.raises(ValueError, match="more than 0 and at most 600"):
            BashTool(tmp_path, timeout=timeout)


async def test_a_shell_that_the_workspace_brings_along_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "bin" / "bash"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    monkeypatch.chdir(planted.parent)
    for path in (str(planted.parent), ".", ""):
        monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
        shell = BashTool(tmp_path, "off")
        assert said(await run(shell, "echo real")) == "real\n"
        shell.close()


async def test_without_bash_it_is_sh_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swink_agent.tools.shell.find_program", lambda name, **_: "/bin/sh" if name == "sh" else None)
    shell = BashTool(tmp_path, "off")
    assert "a command in sh (there is no bash here)" in shell.description
    assert said(await run(shell, "-n; echo sh")).endswith("sh\n")
    shell.close()


# -- what was approved is what runs --------------------------------------------------------------------------


async def test_the_scope_binds_folder_and_sandbox(make: ShellFn, here: str) -> None:
    with open_sandbox(SandboxProfile(write=(here,))) as sandbox:
        usual = {"folder": here, "sandbox": sandbox.fingerprint, "backend": sandbox.backend}
        assert make(sandbox).approval_scope({"command": "true"}) == {**usual, "reads_only": True}
        assert make(sandbox).approval_scope({"command": "true", "write": True}) == usual
        assert make(sandbox).approval_scope(TRUE) != make("off").approval_scope(TRUE)


async def test_a_call_runs_only_as_it_was_approved(make: ShellFn, tmp_path: Path) -> None:
    shell = make()
    scope = shell.approval_scope({"command": ": > made"})
    del scope["reads_only"]  # the grant decides: approved as in `auto`

    async def attempt(grant: Grant) -> AgentToolResult:
        return await run(shell, ": > made", ToolContext(grant=grant))

    for grant in (
        Grant("bash", {"command": "true"}, scope),
        Grant("bash", {"command": ": > made", "timeout": 5}, scope),
        Grant("read_file", {"command": ": > made"}, scope),
        Grant("bash", {"command": ": > made"}, {}),
        Grant("bash", {"command": ": > made"}, scope | {"sandbox": "another"}),
        Grant("bash", {"command": ": > made"}, scope | {"folder": "/"}),
    ):
        result = await attempt(grant)
        assert result.is_error
        assert "is not what was approved" in said(result)
        assert not (tmp_path / "made").exists()
    assert not (await attempt(Grant("bash", {"command": ": > made"}, scope))).is_error
    assert (tmp_path / "made").exists()


async def test_a_sandbox_that_changes_after_the_approval_runs_nothing(make: ShellFn, tmp_path: Path) -> None:
    class Changing(Sandbox):
        backend = "landlock"
        spawned = 0

        async def spawn(self, *_: Any, **__: Any) -> SandboxedProcess:
            self.spawned += 1
            raise AssertionError("not to be reached")

        def close(self) -> None: ...

    sandbox = Changing(SandboxProfile(write=(str(tmp_path),)))
    shell = make(sandbox)
    grant = Grant("bash", {"command": "true"}, shell.approval_scope({"command": "true"}))
    sandbox.profile = SandboxProfile(write=(str(tmp_path),), network=True)
    assert (await run(shell, "true", ToolContext(grant=grant))).is_error
    assert sandbox.spawned == 0


async def test_a_folder_that_was_replaced_is_not_worked_in(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    shell = BashTool(root, "off")
    root.rename(tmp_path / "moved")
    root.mkdir()
    result = await run(shell, ": > made")
    assert said(result) == f"the command was not run: {root} is no longer the folder that the user gave"
    assert not (root / "made").exists()
    shell.close()


class Staged(Sandbox):
    """A sandbox in which one command prints and ends as the test says."""

    backend = "bubblewrap"

    def __init__(self, printed: bytes, ending: int | Exception, because: str = "") -> None:
        super().__init__(SandboxProfile())
        self.printed = printed
        self.ending = ending
        self.because = because

    async def spawn(self, *_: Any, **__: Any) -> SandboxedProcess:
        output = asyncio.StreamReader()
        output.feed_data(self.printed)
        output.feed_eof()
        exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if isinstance(self.ending, Exception):
            exited.set_exception(self.ending)
        else:
            exited.set_result(self.ending)
        process = SandboxedProcess(0, output, exited, lambda: None)
        process.ended_because = self.because
        return process

    def close(self) -> None: ...


async def test_limits_that_end_a_command_at_its_start_are_named(make: ShellFn) -> None:
    result = await run(make(Staged(b"no room\n", SandboxError("the walls fell"))), "true")
    assert (said(result), result.is_error) == ("the command was not run: the walls fell\nno room\n", True)


async def test_a_limit_of_the_sandbox_is_said(make: ShellFn) -> None:
    result = await run(make(Staged(b"forked\n", -9, "it had more than 512 processes")), "true")
    assert said(result) == "forked\n[ended by the sandbox, as it had more than 512 processes]"
    assert (result.is_error, result.details["exit_code"], result.details["signal"]) == (True, 137, "SIGKILL")


async def test_a_given_sandbox_is_not_closed_with_the_tool(tmp_path: Path) -> None:
    with open_unconfined(SandboxProfile()) as sandbox:
        first, second = BashTool(tmp_path, sandbox), BashTool(tmp_path, sandbox)
        first.close()
        assert not (await run(second, "true")).is_error


# -- in an agent ---------------------------------------------------------------------------------------------


async def test_an_agent_sees_updates_and_asks_before_it_runs(make: ShellFn, tmp_path: Path) -> None:
    asked: list[ProposedCall] = []

    def approve(request: ProposedCall) -> Approve:
        assert not (tmp_path / "made").exists()
        asked.append(request)
        return Approve()

    shell = make()
    script = scripted(call("bash", command="echo one; sleep 0.2; : > made; echo two"), text("ok"))
    agent = Agent(MODEL, stream_fn=script, tools=[shell], approve=approve)
    events = await collect(agent.prompt_stream("go"))
    check_events(events)
    assert [(request.name, request.scope) for request in asked] == [("bash", shell.approval_scope(TRUE))]
    updates = [extract_text(event.update.content) for event in events if isinstance(event, ToolExecutionUpdate)]
    assert updates == ["one\n", "two\n"]
    assert [said(event.result) for event in events if isinstance(event, ToolExecutionEnd)] == ["one\ntwo\n"]


async def test_an_agent_with_nobody_to_ask_runs_nothing(make: ShellFn, tmp_path: Path) -> None:
    agent = Agent(MODEL, stream_fn=scripted(call("bash", command=": > made"), text("ok")), tools=[make()])
    events = await collect(agent.prompt_stream("go"))
    ends = [event for event in events if isinstance(event, ToolExecutionEnd)]
    assert [event.is_error for event in ends] == [True]
    assert not (tmp_path / "made").exists()


async def test_nobody_is_asked_about_a_command_that_cannot_run(make: ShellFn) -> None:
    def nothing_works(profile: SandboxProfile) -> Sandbox:
        raise SandboxUnavailable

    def approve(_: ProposedCall) -> bool:
        raise AssertionError("not to be asked")

    script = scripted(call("bash", command="true"), text("ok"))
    agent = Agent(MODEL, stream_fn=script, tools=[make(open_sandbox=nothing_works)], approve=approve)
    events = await collect(agent.prompt_stream("go"))
    (end,) = [event for event in events if isinstance(event, ToolExecutionEnd)]
    assert said(end.result).startswith("the command was not run: no sandbox works on this machine")


async def test_a_person_may_change_the_command(make: ShellFn, tmp_path: Path) -> None:
    script = scripted(call("bash", command=": > made"), text("ok"))
    agent = Agent(MODEL, stream_fn=script, tools=[make()], approve=lambda _: ApproveWith({"command": "echo safe"}))
    events = await collect(agent.prompt_stream("go"))
    assert [said(event.result) for event in events if isinstance(event, ToolExecutionEnd)] == ["safe\n"]
    assert not (tmp_path / "made").exists()


async def test_aborting_the_agent_ends_the_command(make: ShellFn) -> None:
    mark = marker()
    script = scripted(call("bash", command=f"echo begun; sleep {mark} & sleep {mark}"), text("ok"))
    agent = Agent(MODEL, stream_fn=script, tools=[make()], approve=lambda _: True)
    outcomes: list[str] = []
    async for event in agent.prompt_stream("go"):
        if isinstance(event, ToolExecutionUpdate):
            agent.abort()
        elif isinstance(event, ToolExecutionEnd):
            outcomes.append(event.outcome)
    assert outcomes == ["cancelled"]
    assert await gone(mark)


async def test_a_timeout_beyond_the_longest_is_told_to_the_model(make: ShellFn) -> None:
    script = scripted(call("bash", command="true", timeout=3600), text("ok"))
    agent = Agent(MODEL, stream_fn=script, tools=[make()], approve=lambda _: True)
    events = await collect(agent.prompt_stream("go"))
    (end,) = [event for event in events if isinstance(event, ToolExecutionEnd)]
    assert end.is_error
    assert "timeout" in said(end.result)
    assert "600" in said(end.result)
