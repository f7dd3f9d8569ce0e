"""The user's own status line: the program's input, its output on the screen, and that it never delays the UI."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from swink_agent.app.errors import SettingsError
from swink_agent.app.settings.settings import load_settings, parse_file
from swink_agent.testing import text
from swink_agent.tui.own_status import OwnStatus

from .test_app import Made, in_app, made, rows_of, until  # noqa: F401

Program = Callable[[str], str]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    folder = tmp_path / "programs"
    folder.mkdir()

    def write(body: str) -> str:
        path = folder / f"status{len(list(folder.iterdir()))}"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return write


class Told:
    """A status line, what it complained about, and how often it changed."""

    def __init__(self, *argv: str, outside: str = "/nowhere", interval: float = 0.0, patience: float = 2.0) -> None:
        self.problems: list[str] = []
        self.changes = 0
        self.own = OwnStatus(
            argv,
            outside=lambda: [outside],
            redact=lambda text: text.replace("hunter2", "[secret]"),
            on_change=self._changed,
            on_problem=self.problems.append,
            interval=interval,
            patience=patience,
        )

    def _changed(self) -> None:
        self.changes += 1

    async def after(self, **facts: Any) -> str:
        self.own.tell(facts)
        async with asyncio.timeout(60):
            return await self.own.settled()


async def test_the_program_gets_json_and_its_first_line_is_shown(program: Program) -> None:
    told = Told(program('read line; echo "got $line"; echo second'))
    assert await told.after(model="a:b", cost=0.5) == 'got {"model":"a:b","cost":0.5}'
    assert (told.changes, told.problems) == (1, [])


async def test_it_runs_again_only_when_a_fact_has_changed(program: Program, tmp_path: Path) -> None:
    told = Told(program(f"echo x >> {tmp_path}/runs; wc -l < {tmp_path}/runs"))
    assert await told.after(model="a", seconds=1) == "1"
    assert await told.after(model="a", seconds=2) == "1"
    assert await told.after(model="b", seconds=2) == "2"


async def test_of_many_changes_within_the_interval_the_last_counts(program: Program, tmp_path: Path) -> None:
    told = Told(program(f"cat >> {tmp_path}/seen; echo ok"), interval=0.3)
    await told.after(tokens=0)
    began = time.monotonic()
    for count in range(1, 50):
        told.own.tell({"tokens": count})
        await asyncio.sleep(0)
    await told.own.settled()
    assert [json.loads(line)["tokens"] for line in (tmp_path / "seen").read_text().splitlines()] == [0, 49]
    assert time.monotonic() - began > 0.1


async def test_colours_are_dropped_and_other_control_characters_written_out(program: Program) -> None:
    told = Told(program("printf '\\033[31mred\\033[0m \\033]0;title\\007 \\033[2J hunter2\\n'"))
    assert await told.after() == "red \\u{1b}]0;title\\u{7} \\u{1b}[2J [secret]"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo it; echo 'no such thing' >&2; exit 3", "it ended with exit code 3: no such thing"),
        ("yes", "it printed more than 64 KB"),
    ],
)
async def test_a_program_that_fails_is_reported_once_and_shows_no_line(program: Program, body: str, why: str) -> None:
    path = program(body)
    told = Told(path)
    assert await told.after(tokens=1) == ""
    assert await told.after(tokens=2) == ""
    assert told.problems == [f"status_line ({path}): {why}"]


async def test_a_program_that_hangs_is_ended_with_all_that_it_started(program: Program, tmp_path: Path) -> None:
    told = Told(program(f"sleep 1000 & echo $! > {tmp_path}/pid; wait"), patience=0.5)
    assert await told.after() == ""
    assert "it took more than 0.5 s" in told.problems[0]
    pid = int((tmp_path / "pid").read_text())
    await come(lambda: not _is_alive(pid))


async def come(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_a_child_that_stays_does_not_hold_the_line_up(program: Program) -> None:
    told = Told(program("sleep 5 & echo line"))
    began = time.monotonic()
    assert await told.after() == "line"
    assert time.monotonic() - began < 1.9


async def test_closing_ends_the_program(program: Program, tmp_path: Path) -> None:
    told = Told(program(f"echo $$ > {tmp_path}/pid; exec sleep 1000"))
    told.own.tell({})
    written = tmp_path / "pid"
    await come(lambda: written.exists() and bool(written.read_text().strip()))
    told.own.close()
    await come(lambda: not _is_alive(int(written.read_text())))
    assert told.problems == []


async def test_a_program_that_a_command_could_have_written_is_not_started(tmp_path: Path, program: Program) -> None:
    path = program("echo mine")
    for argv in ([path], [sys.executable, path]):
        told = Told(*argv, outside=str(tmp_path))
        assert await told.after() == ""
        assert "in a folder that commands may write" in told.problems[0]
    missing = Told("/no/such/program")
    assert await missing.after() == ""
    assert "cannot be started: No such file" in missing.problems[0]


async def test_it_starts_in_a_folder_where_nothing_is(program: Program) -> None:
    assert await Told(program("pwd")).after() == "/"


async def test_the_screen_shows_mode_state_and_the_line(made: Made, program: Program, tmp_path: Path) -> None:  # noqa: F811
    path = program(f"cat > {tmp_path}/facts; echo my own line")
    app = made(text("Hello."), status_line=f"sh {path}")

    async def work(pilot: Pilot[int]) -> None:
        await until(pilot, lambda: rows_of(app)[-1].rstrip() == " Execute · idle · my own line")
        facts = json.loads((tmp_path / "facts").read_text())
        assert facts["folder"] == str(app.talk.opening.folder)
        assert (facts["mode"], facts["model"], facts["todo"]) == ("execute", app.talk.model, {"done": 0, "total": 0})
        assert set(facts) >= {"branch", "session", "state", "approve", "tokens", "cost", "fill", "window", "columns"}
        app.say("a note")
        await until(pilot, lambda: "idle · a note · my own" in rows_of(app)[-1])

    await in_app(app, work)


async def test_the_usual_row_stays_where_the_program_fails(made: Made, program: Program) -> None:  # noqa: F811
    app = made(status_line=f"sh {program('exit 1')}")

    async def work(pilot: Pilot[int]) -> None:
        notices = "it ended with exit code 1; the usual status is shown"
        await until(pilot, lambda: any(notices in block.text for block in app.shown.transcript.blocks))
        assert "claude-sonnet" in rows_of(app)[-1]

    await in_app(app, work)


def test_it_is_a_list_and_only_the_users(tmp_path: Path) -> None:
    assert parse_file("/c", b'status_line = ["a", "b", "b"]\n').values["status_line"] == ("a", "b", "b")
    for wrong in (b'status_line = "a b"', b'status_line = [""]', b"status_line = [3]"):
        with pytest.raises(SettingsError, match=r"line 1: status_line cannot be .* it must be a list"):
            parse_file("/c", wrong)
    project = parse_file("/p/.swink/config.toml", b'status_line = ["a"]\nvim = true\n')
    settings = load_settings(environ={}, path=tmp_path / "none", project=project)
    assert (settings.value("status_line"), settings.value("vim")) == ((), False)
    assert sum("a project may not set" in note for note in settings.notes) == 2
