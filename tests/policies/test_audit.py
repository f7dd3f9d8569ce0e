"""AuditLog writes what an agent did as lines of JSON, and never fails a run."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    ApprovalMode,
    ApproveWith,
    Cost,
    PolicyContext,
    PreDispatchContext,
    ProposedCall,
    Reject,
    RunRecord,
    Usage,
    tool,
)
from swink_agent.policies import AuditLog, DenyList, Redactor
from swink_agent.testing import FakeClock, call, fail, scripted, text

AskedFn = Callable[..., PreDispatchContext]
SECRET = "correct-horse-battery"


@tool
async def look(where: str, api_key: str = "") -> str:
    """Looks."""
    return "seen"


@tool
async def drop() -> str:
    """Drops everything."""
    raise RuntimeError(f"no {SECRET}")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def run(log: AuditLog, *replies: Any, policies: tuple[Any, ...] = ()) -> Any:
    model = scripted(*replies, usage=Usage(3, 4, total=7), cost=Cost(total=0.25))
    agent = Agent("test:model", stream_fn=model, tools=[look, drop], policies=[log, *policies], retry_strategy=None)
    return await agent.prompt("go")


async def test_calls_turns_and_ends_are_written_in_order(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    clock = FakeClock(5.0)
    await run(AuditLog(path, clock=clock.time), call("look", where="here").with_id("a"), text("done"))
    lines = lines_of(path)
    assert 0 <= lines[1]["results"][0].pop("seconds") < 60
    run_id = lines[0]["run"]
    common = {"time": 5.0, "run": run_id}
    usage = {"input": 3, "output": 4, "cache_read": 0, "cache_write": 0, "total": 7, "extra": {}}
    reply = {"model": "test:model", "error": None, "error_kind": None, "usage": usage, "cost": 0.25}
    assert lines == [
        {**common, "event": "call", "turn": 0, "call_id": "a", "tool": "look", "arguments": {"where": "here"}},
        {
            **common,
            **reply,
            "event": "turn",
            "turn": 0,
            "stop_reason": "tool_use",
            "text_size": 0,
            "results": [{"call_id": "a", "tool": "look", "outcome": "ran", "size": 4}],
        },
        {**common, **reply, "event": "turn", "turn": 1, "stop_reason": "stop", "text_size": 4, "results": []},
        {
            **common,
            "event": "end",
            "turn": 2,
            "usage": {**usage, "input": 6, "output": 8, "total": 14},
            "cost": 0.5,
        },
    ]


async def test_refused_and_failed_calls_are_recorded_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    await run(AuditLog(path), call("look", where="x") + call("drop"), text("done"), policies=(DenyList("look"),))
    (turn,) = [line for line in lines_of(path) if line["event"] == "turn" and line["results"]]
    skipped, failed = turn["results"]
    assert (skipped["outcome"], failed["outcome"]) == ("skipped", "failed")
    assert skipped["reason"] == "the tool look is not allowed here; do without it"
    assert skipped["seconds"] == 0
    assert "RuntimeError" in failed["reason"]


async def test_a_line_has_what_a_person_answered_and_what_ran(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def approve(request: ProposedCall) -> ApproveWith | Reject:
        if request.arguments["where"] == "there":
            return Reject("not there")
        return ApproveWith({"where": "here"}, note="only here")

    model = scripted(call("look", where="everywhere") + call("look", where="there"), text("done"))
    modes: Any = {"approve": approve, "approval_mode": ApprovalMode.ENABLED}
    agent = Agent("test:model", stream_fn=model, tools=[look], policies=[AuditLog(path)], **modes)
    record = RunRecord()
    with agent.subscribe(record.feed):
        await agent.prompt("go")
    (turn,) = [line for line in lines_of(path) if line["event"] == "turn" and line["results"]]
    changed, rejected = turn["results"]
    assert (changed["approval"], changed["note"], changed["arguments"]) == ("approved", "only here", {"where": "here"})
    assert "reason" not in changed
    assert (rejected["approval"], rejected["reason"], rejected["outcome"]) == ("rejected", "not there", "rejected")
    assert "arguments" not in rejected
    assert [line["seconds"] for line in turn["results"]] == [round(one.seconds or 0, 3) for one in record.calls]


async def test_a_failed_reply_is_a_line_too(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    await run(AuditLog(path), fail("auth", "bad key"))
    (turn,) = lines_of(path)
    assert (turn["stop_reason"], turn["error"], turn["error_kind"]) == ("error", "bad key", "auth")


async def test_secrets_are_masked_in_arguments_and_errors(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, redactor=Redactor([SECRET], environment={}))
    arguments = {"where": f"x{SECRET}", "api_key": "abc"}
    await run(log, call("look", **arguments) + call("drop"), text("done"))
    written = path.read_text()
    assert SECRET not in written
    assert '"abc"' not in written
    assert re.fullmatch(r"x\[redacted:secret:[0-9a-f]{8}\]", lines_of(path)[0]["arguments"]["where"])


def test_a_long_text_is_cut_after_it_was_masked(tmp_path: Path, asked: AskedFn) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, redactor=Redactor([SECRET], environment={}))
    log.pre_dispatch(asked("look", where="x" * 1995 + SECRET + "y" * 5000))
    where = lines_of(path)[0]["arguments"]["where"]
    assert where.startswith("x" * 1995 + "[reda…+")
    assert len(where) < 2020


def test_the_file_is_for_its_owner_alone_and_added_to(tmp_path: Path, asked: AskedFn) -> None:
    path = tmp_path / "audit.jsonl"
    previous = os.umask(0)
    try:
        AuditLog(path).pre_dispatch(asked("one"))
        AuditLog(str(path)).pre_dispatch(asked("two"))
    finally:
        os.umask(previous)
    assert [line["tool"] for line in lines_of(path)] == ["one", "two"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_open_file_will_do(asked: AskedFn) -> None:
    file = io.StringIO()
    AuditLog(file).pre_dispatch(asked("one", where="x"))
    assert json.loads(file.getvalue())["tool"] == "one"


@pytest.mark.parametrize("where", ["folder", "missing", "link", "pipe", "closed", "full"])
async def test_a_run_never_fails_for_its_log(where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file: Any = tmp_path / "audit.jsonl"
    if where == "folder":
        file.mkdir()
    elif where == "missing":
        file = tmp_path / "nowhere" / "audit.jsonl"
    elif where == "link":
        file.symlink_to(tmp_path / "elsewhere")
    elif where == "pipe":
        os.mkfifo(file)
    elif where == "closed":
        file = io.StringIO()
        file.close()
    else:
        file = Path("/dev/full")
    with caplog.at_level(logging.WARNING, "swink_agent"):
        result = await run(AuditLog(file), call("look", where="x"), text("done"))
    assert result.text == "done"
    assert len(caplog.records) == 1
    assert "the audit log cannot be written, lines are lost" in caplog.text
    assert not (tmp_path / "elsewhere").exists()


def test_values_that_json_cannot_hold_are_written_in_some_way(tmp_path: Path, asked: AskedFn) -> None:
    path = tmp_path / "audit.jsonl"
    AuditLog(path).pre_dispatch(asked("one", half="\ud800", thing=object(), number=float("nan")))
    assert lines_of(path)[0]["tool"] == "one"


def test_the_text_of_an_object_is_cut_too(tmp_path: Path, asked: AskedFn) -> None:
    class Big:
        def __str__(self) -> str:
            return "big " * 10_000

    AuditLog(tmp_path / "log").pre_dispatch(asked("send", body=Big()))
    assert len((tmp_path / "log").read_bytes()) < 3_000


def test_lines_of_many_threads_do_not_mix(tmp_path: Path, asked: AskedFn) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)

    def write(number: int) -> None:
        for _ in range(50):
            log.pre_dispatch(asked("tool", where=str(number) * 500))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    lines = lines_of(path)
    assert len(lines) == 200
    assert all(len(set(line["arguments"]["where"])) == 1 for line in lines)


def test_it_shows_where_it_writes(tmp_path: Path, turn: Callable[..., PolicyContext]) -> None:
    assert repr(AuditLog(tmp_path / "a")) == f"AuditLog({tmp_path / 'a'})"
    AuditLog(tmp_path / "a").post_turn(turn())
    assert lines_of(tmp_path / "a")[0]["results"] == []
