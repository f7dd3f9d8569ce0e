"""Hooks: their settings, when they run, what they receive, and what their exit codes mean."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest

from swink_agent import ModelSpec, ToolExecutionEnd, extract_text
from swink_agent.app.agent.own_program import OwnProgram
from swink_agent.app.agent.standard import AgentOptions, StandardAgent, standard_agent
from swink_agent.app.doctor import examine
from swink_agent.app.errors import SettingsError
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.settings.settings import load_settings, parse_file, set_value
from swink_agent.approvals.approvals import ApprovalChoice, ApprovalQuestion
from swink_agent.core.types import StopReason
from swink_agent.testing import call, scripted, text

SECRET = "hook-secret-" + "7" * 12


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("SWINK_HOOK", raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("hello\n")
    return folder


def hook(name: str, event: str, script: str, more: str = "") -> str:
    """The table of a hook that is a line of shell."""
    return f'[hooks.{name}]\nevent = "{event}"\ncommand = ["/bin/sh", "-c", {json.dumps(script)}]\n{more}\n'


def told(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def made(root: Path, tables: str, *replies: Any, is_watched: bool = True, **options: Any) -> StandardAgent:
    path = root.parent / "config.toml"
    path.write_text(tables)
    agent = standard_agent(
        AgentOptions(
            settings=load_settings(path=path, environ={}, flags=options.pop("flags", {})),
            credentials=Credentials(root.parent / "keys.json", environ={"ANTHROPIC_API_KEY": SECRET}),
            folder=root,
            model=ModelSpec("anthropic", "claude-sonnet-4-6"),
            stream_fn=scripted(*replies),
            **options,
        )
    )
    if agent.hooks is not None and is_watched:
        agent.hooks.watch(agent.agent)
    return agent


async def results(agent: StandardAgent, prompt: str = "go") -> list[str]:
    """The text of each result."""
    found: list[str] = []

    def keep(event: object) -> None:
        if isinstance(event, ToolExecutionEnd):
            found.append(extract_text(event.result.content))

    with agent, agent.agent.subscribe(keep):
        await agent.agent.prompt(prompt)
        await agent.finish()
    return found


# -- settings --------------------------------------------------------------------------------------------------------


def test_a_table_describes_a_hook(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '[hooks.guard]\nevent = "before_tool"\ntools = ["bash", "mcp__git__*"]\ncommand = ["~/bin/guard", "-v"]\n'
        'timeout = 2.5\n\n[hooks.bell]\nevent = "run_end"\ncommand = ["bell"]\nenabled = false\n'
    )
    guard, bell = load_settings(path=path, environ={}).hooks
    assert (guard.name, guard.source, guard.timeout, guard.enabled) == ("guard", f"{path}:1", 2.5, True)
    assert guard.argv == [os.path.expanduser("~/bin/guard"), "-v"]
    assert [guard.is_for("before_tool", name) for name in ("bash", "mcp__git__log", "mcp__got__log")] == [
        True,
        True,
        False,
    ]
    assert not guard.is_for("after_tool", "bash")
    assert not bell.is_for("run_end")
    assert guard.summary == "before_tool of bash, mcp__git__*: ~/bin/guard -v"


@pytest.mark.table
@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("hooks = 1\n", "line 1: hooks must have a table for each hook"),
        ('[[hooks]]\nevent = "waits"\n', "hooks must have a table for each hook"),
        ('[hooks.a]\nevent = "waits"\n', "line 1: hooks.a needs command"),
        ('[hooks.a]\ncommand = ["x"]\n', "line 1: hooks.a needs event: one of run_start"),
        ('\n[hooks.a]\ncommand = "x y"\nevent = "waits"\n', "line 3: hooks.a.command must be a list"),
        ('[hooks.a]\ncommand = []\nevent = "waits"\n', "line 2: hooks.a.command must be a list"),
        ('[hooks.a]\ncommand = ["x"]\nevent = "wait"\n', "line 3: hooks.a.event must be one of"),
        ('[hooks.a]\ncommand = ["x"]\nevent = "run_end"\ntools = ["bash"]\n', "a.tools cannot be used with run_end"),
        ('[hooks.a]\ncommand = ["x"]\nevent = "waits"\ntimeout = 0\n', "line 4: hooks.a.timeout must be a number"),
        ('[hooks.a]\ncommand = ["x"]\nevent = "waits"\ncomand = 1\n', "line 4: .*did you mean command"),
        ('[hooks."a b"]\ncommand = ["x"]\nevent = "waits"\n', "line 1: .* a hook's name has"),
    ],
)
def test_a_mistake_names_the_file_and_the_line(lines: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        parse_file("my.toml", lines.encode())


def test_a_project_has_no_hooks_and_is_told_so(tmp_path: Path) -> None:
    project = parse_file("p/.swink/config.toml", hook("evil", "run_start", "touch /tmp/x").encode())
    settings = load_settings(path=tmp_path / "none", environ={}, project=project)
    assert settings.hooks == ()
    assert settings.notes == (
        "p/.swink/config.toml:1: a project may not set hooks.evil, so it is not used; it belongs in your own settings",
    )


def test_a_hook_is_not_set_from_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"edited by hand: \[hooks.NAME\]"):
        set_value("hooks.a.event", "waits", path=tmp_path / "config.toml")


# -- when they run ---------------------------------------------------------------------------------------------------


async def test_each_hook_runs_at_its_moment_and_is_told_what_happens(root: Path) -> None:
    log = root.parent / "told.jsonl"
    events = ("run_start", "before_tool", "after_tool", "run_end")
    tables = "".join(hook(f"h-{event}".replace("_", "-"), event, f"cat >> {log}") for event in events)
    agent = made(root, tables, call("read_file", path="a.txt"), text(f"the key is {SECRET}"))
    assert await results(agent, f"use {SECRET}") == ["hello\n"]
    start, before, after, end = told(log)
    run_id = start["run_id"]
    common = {"folder": str(root), "session": None, "run_id": run_id, "delegates": []}
    assert run_id
    assert SECRET not in log.read_text()
    assert start == {**common, "event": "run_start", "hook": "h-run-start", "kind": "prompt", "prompt": start["prompt"]}
    assert start["prompt"].startswith("use [")
    of_call = {"tool": "read_file", "call_id": before["call_id"], "arguments": {"path": "a.txt"}}
    assert before == {**common, "event": "before_tool", "hook": "h-before-tool", **of_call}
    assert after["seconds"] > 0
    assert after == {
        **common,
        "event": "after_tool",
        "hook": "h-after-tool",
        **of_call,
        "outcome": "ran",
        "reason": "",
        "seconds": after["seconds"],
        "is_error": False,
        "result": "hello\n",
    }
    assert (end["event"], end["run_id"], end["stop_reason"], end["error"]) == ("run_end", run_id, "stop", None)
    assert end["text"].startswith("the key is [")
    assert (end["usage"]["total"] >= 0, end["pending"], end["stopped_by"]) == (True, [], None)


async def test_the_next_request_waits_for_a_hook_after_a_tool(root: Path) -> None:
    tables = hook("format", "after_tool", f"sleep 0.2; touch {root.parent}/formatted")
    agent = made(root, tables, call("read_file", path="a.txt"), text("done"))
    order: list[str] = []
    agent.agent.subscribe(lambda event: order.append(f"{type(event).__name__} {(root.parent / 'formatted').exists()}"))
    await results(agent)
    assert "ToolExecutionEnd False" in order
    assert order[order.index("ToolExecutionEnd False") :][1] == "TurnEnd True"


async def test_a_hook_that_ends_with_another_code_refuses_the_call_in_its_words(root: Path) -> None:
    script = "grep -q secret && { echo 'not that file' >&2; exit 3; }; exit 0"
    tables = hook("guard", "before_tool", script, 'tools = ["read_*"]') + hook(
        "never", "before_tool", "exit 1", 'tools = ["bash"]'
    )
    (root / "secret.txt").write_text("x\n")
    reads = [call("read_file", path=path) for path in ("secret.txt", "a.txt")]
    agent = made(root, tables, *reads, call("list_dir"), text("done"))
    refused, read, listed = await results(agent)
    assert refused == "tool call skipped: the hook guard refused it: not that file"
    assert (read, "a.txt" in listed) == ("hello\n", True)


async def test_a_silent_refusal_says_its_exit_code(root: Path) -> None:
    agent = made(root, hook("no", "before_tool", "exit 4"), call("read_file", path="a.txt"), text("done"))
    assert await results(agent) == ["tool call skipped: the hook no refused it: it ended with exit code 4"]


async def test_a_hook_before_a_tool_that_cannot_decide_refuses(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    (root / "in-the-folder").write_text("#!/bin/sh\nexit 0\n")
    (root / "in-the-folder").chmod(0o755)
    cases = {
        '["/no/such/program"]': "/no/such/program could not be started: No such file",
        '["no-such-program-here"]': "no-such-program-here could not be started: No such file",
        f'["{root}/in-the-folder"]': "in a folder that commands may write, so it is not started",
        f'["/bin/sh", "{root}/in-the-folder"]': "in a folder that commands may write, so it is not started",
        '["/bin/sh", "-c", "sleep 60 & sleep 60"]': "it did not end within 0.2 seconds and was stopped",
        '["/bin/sh", "-c", "kill -9 $$"]': "it ended with signal 9",
    }
    for command, problem in cases.items():
        tables = f'[hooks.g]\nevent = "before_tool"\ntimeout = 0.2\ncommand = {command}\n'
        caplog.clear()
        with caplog.at_level(logging.WARNING, "swink_agent.hooks"):
            (refused,) = await results(made(root, tables, call("read_file", path="a.txt"), text("done")))
        assert refused.startswith("tool call skipped: the hook g must allow it and did not: "), command
        assert problem in refused, command
        assert problem in caplog.text, command


async def test_a_hook_that_observes_and_fails_is_a_warning(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    tables = (
        hook("missing", "run_start", "").replace('"/bin/sh"', '"/no/such"')
        + hook("angry", "after_tool", "echo 'no good' >&2; exit 2")
        + hook("slow", "run_end", "sleep 60", "timeout = 0.2")
    )
    with caplog.at_level(logging.WARNING, "swink_agent.hooks"):
        assert await results(made(root, tables, call("read_file", path="a.txt"), text("done"))) == ["hello\n"]
    assert [record.getMessage() for record in caplog.records if record.name == "swink_agent.hooks"] == [
        "hook missing (run_start): /no/such could not be started: No such file or directory",
        "hook angry (after_tool): it ended with exit code 2: no good",
        "hook slow (run_end): it did not end within 0.2 seconds and was stopped",
    ]


async def test_a_question_to_a_person_runs_the_hooks_that_wait(root: Path) -> None:
    log = root.parent / "told.jsonl"
    asked: list[ApprovalQuestion] = []

    async def ask(question: ApprovalQuestion) -> ApprovalChoice:
        asked.append(question)
        return ApprovalChoice.NO

    write = call("write_file", path="b.txt", content="new")
    tables = hook("ring", "waits", f"cat >> {log}") + hook("other", "waits", f"cat >> {log}", 'tools = ["bash"]')
    agent = made(root, tables, write, text("done"), ask=ask, flags={"approve": "smart", "undo": False})
    await results(agent)
    (waits,) = told(log)
    assert (len(asked), waits["event"], waits["tool"]) == (1, "waits", "write_file")
    assert waits["arguments"] == {"path": "b.txt", "content": "new"}
    assert waits["run_id"]
    assert waits["reason"]


async def test_an_agent_that_is_not_watched_runs_the_hooks_before_tools_alone(root: Path) -> None:
    log = root.parent / "told.jsonl"
    events = ("run_start", "waits", "before_tool", "after_tool", "run_end")
    tables = "".join(hook(f"h{number}", event, f"cat >> {log}") for number, event in enumerate(events))
    write = call("write_file", path="b.txt", content="new")
    agent = made(root, tables, write, text("done"), is_watched=False, ask=_yes, flags={"approve": "ask", "undo": False})
    await results(agent)
    assert [item["event"] for item in told(log)] == ["before_tool"]
    assert (root / "b.txt").read_text() == "new"


async def _yes(_: ApprovalQuestion) -> ApprovalChoice:
    return ApprovalChoice.ONCE


async def test_hooks_see_the_calls_of_a_delegate(root: Path) -> None:
    log = root.parent / "told.jsonl"
    tables = "".join(
        hook(f"{event[0]}", event, f"cat >> {log}") for event in ("before_tool", "after_tool", "run_start")
    )
    replies = [call("task", prompt="look"), call("read_file", path="a.txt"), text("found"), text("done")]
    await results(made(root, tables, *replies))
    found = [(item["event"], item.get("tool"), item["delegates"]) for item in told(log)]
    assert found == [
        ("run_start", None, []),
        ("before_tool", "task", []),
        ("before_tool", "read_file", ["task"]),
        ("after_tool", "read_file", ["task"]),
        ("after_tool", "task", []),
    ]
    runs = [item["run_id"] for item in told(log)]
    assert runs[0] == runs[1] == runs[4]
    assert runs[2] == runs[3] != runs[0]


async def test_an_abort_ends_a_hook_and_what_it_started(root: Path) -> None:
    pids = root.parent / "pids"
    begun = f"sleep 60 & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"
    tables = hook("hang", "before_tool", begun) + hook("end", "run_end", f"cat > {root.parent}/end")
    agent = made(root, tables, call("read_file", path="a.txt"), text("done"))
    with agent:
        running = asyncio.ensure_future(agent.agent.prompt("go"))
        await _until(pids.exists)
        started = time.monotonic()
        agent.agent.abort()
        result = await running
        assert (result.stop_reason, time.monotonic() - started < 5) == (StopReason.ABORTED, True)
        await _until(lambda: not any(_is_alive(int(pid)) for pid in pids.read_text().split()))
        await agent.finish()
    (end,) = told(root.parent / "end")
    assert end["stop_reason"] == "aborted"


async def test_a_closed_agent_leaves_no_hook_running(root: Path) -> None:
    pids = root.parent / "pids"
    tables = hook("end", "run_end", f"echo $$ > {pids}.new; mv {pids}.new {pids}; sleep 60")
    agent = made(root, tables, text("done"))
    with agent:
        await agent.agent.prompt("go")
        await _until(pids.exists)
        await agent.finish(0.01)
    await _until(lambda: not _is_alive(int(pids.read_text())))


async def test_hooks_of_a_run_that_is_over_continue_with_the_next_agent(root: Path) -> None:
    log = root.parent / "told.jsonl"
    begun, go_on = root.parent / "begun", root.parent / "go-on"
    tables = hook("first", "run_end", f"touch {begun}; while [ ! -e {go_on} ]; do sleep 0.01; done")
    tables += hook("second", "run_end", f"cat >> {log}")
    before, after = made(root, tables, text("done")), made(root, tables)
    assert before.hooks is not None
    assert after.hooks is not None
    with after:
        await before.agent.prompt("go")
        await _until(begun.exists)
        after.hooks.take_over(before.hooks)
        before.close()
        go_on.touch()
        await after.finish()
    assert [item["hook"] for item in told(log)] == ["second"]


def test_a_flood_is_read_and_cut(root: Path) -> None:
    script = "head -c 3000000 /dev/zero | tr '\\0' x; exit 1"
    end = OwnProgram(["/bin/sh", "-c", script], timeout=30, outside=lambda: [str(root)]).run(b"{}\n")
    assert (end.code, len(end.text)) == (1, 16 * 1024)


def test_a_program_that_reads_nothing_gets_a_document_of_any_size(root: Path) -> None:
    end = OwnProgram(["/bin/sh", "-c", "exit 0"], timeout=30, outside=lambda: [str(root)]).run(b"x" * 3_000_000)
    assert end.code == 0


def test_processes_left_by_a_hook_do_not_delay_it(root: Path) -> None:
    started = time.monotonic()
    command = ["/bin/sh", "-c", "echo said; sleep 5 & exit 0"]
    end = OwnProgram(command, timeout=60, outside=lambda: [str(root)]).run(b"{}\n")
    assert (end.code, end.text, time.monotonic() - started < 4) == (0, "said", True)


async def test_no_hook_runs_inside_a_hook(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWINK_HOOK", "1")
    agent = made(root, hook("no", "before_tool", "exit 4"), call("read_file", path="a.txt"), text("done"))
    assert any("hooks are not used here" in warning for warning in agent.warnings)
    assert await results(agent) == ["hello\n"]


def test_the_doctor_finds_a_program_that_cannot_run(root: Path, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    gone = hook("gone", "waits", "").replace('"/bin/sh"', '"/no/such"')
    (config / "config.toml").write_text(
        hook("good", "waits", "true") + gone + gone.replace("gone", "off") + "enabled = false"
    )
    found = {
        finding.text.partition(",")[0]: finding.state
        for finding in examine(root, environ={**os.environ, "SWINK_CONFIG_DIR": str(config)})
        if finding.area == "hooks"
    }
    assert found == {"good": "ok", "gone": "problem", "off": "note"}


async def _until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - a process tells nobody
            await asyncio.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
