"""`swink -p` as a process, asking a fake provider on loopback."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, SupportsIndex

import pytest

from swink_agent import DelegateEvent, RunRecord, decode_event
from swink_agent.testing import FakeFailure, FakeProvider, FakeReply, check_events

from ..ending import ends_cleanly, says, shows, writes

READ = FakeReply(calls=[("read_file", {"path": "a.txt"})])
WRITE = FakeReply(calls=[("write_file", {"path": "new.txt", "content": "hi"})])
NO_CHILDREN = ("--tools", "read_file,write_file,list_dir")


async def test_the_answer_goes_to_stdout_and_nothing_else(swink: Any) -> None:
    (swink.folder / "a.txt").write_text("hello\n")
    async with FakeProvider("anthropic", [READ, "It says hello."]) as provider:
        swink.use(provider)
        done = await swink("-p", "What is in a.txt?", *NO_CHILDREN)
    assert (done.code, done.stdout, done.stderr) == (0, "It says hello.\n", "")
    assert provider.rejections == []
    system, messages = provider.bodies[0]["system"][0]["text"], provider.bodies[1]["messages"]
    assert system.startswith("You are Swink")
    assert system.endswith("\na.txt")
    assert "hello" in json.dumps(messages[-1])
    assert [tool["name"] for tool in provider.bodies[0]["tools"]] == ["read_file", "write_file", "list_dir"]


async def test_stdin_is_added_and_its_invalid_bytes_are_replaced(swink: Any) -> None:
    async with FakeProvider("anthropic", ["ok", "ok"]) as provider:
        swink.use(provider)
        done = await swink("-p", "Sum this up.", "--tools", "none", stdin=b"\xef\xbb\xbfcaf\xc3\xa9 \xff\xfe\n")
        assert (done.code, done.stdout) == (0, "ok\n")
        assert done.stderr == "warning: stdin is not UTF-8 text (byte 6): 2 places in it were replaced\n"
        assert (await swink("-p", "-", "--tools", "none", stdin=b"All of it.\n")).code == 0
    prompts = [body["messages"][0]["content"][0]["text"] for body in provider.bodies]
    assert prompts == ["Sum this up.\n\n<stdin>\ncafé \ufffd\ufffd\n</stdin>", "All of it.\n"]
    assert "tools" not in provider.bodies[0]


async def test_a_prompt_without_p_is_answered_on_stdout_outside_a_terminal(
    swink: Any, terminal: Any, tmp_path: Path
) -> None:
    async with FakeProvider("anthropic", ["forty-two"] * 5) as provider:
        swink.use(provider)
        piped = await swink("what", "is this?", stdin=b"six by nine")
        assert (piped.code, piped.stdout, piped.complaints) == (0, "forty-two\n", "")
        with_object = await swink("what is this?", "--output", "json", "--max-turns", "3")
        assert json.loads(with_object.stdout)["text"] == "forty-two"
        only_stdin = await swink("-", stdin=b"the question")
        assert (only_stdin.code, only_stdin.stdout) == (0, "forty-two\n")
        # A terminal is there to type at, and the answer goes to a file.
        with (tmp_path / "out.txt").open("wb") as file:
            await terminal.start("what is this?", stdout=file.fileno())
            assert await terminal.finish() == 0
        assert (tmp_path / "out.txt").read_text() == "forty-two\n"
        # stdout is a terminal, and stdin is not: the answer is shown there.
        reading, writing = os.pipe()
        os.write(writing, b"piped in")
        os.close(writing)
        await terminal.start("what is this?", stdin=reading)
        os.close(reading)
        assert await terminal.finish() == 0
        assert "forty-two" in terminal.shown
    prompts = [body["messages"][0]["content"][0]["text"] for body in provider.bodies]
    assert prompts == [
        "what is this?\n\n<stdin>\nsix by nine\n</stdin>",
        "what is this?",
        "the question",
        "what is this?",
        "what is this?\n\n<stdin>\npiped in\n</stdin>",
    ]


async def test_temperature_length_and_alias_reach_the_provider_by_flag_and_by_setting(swink: Any) -> None:
    config = swink.home / "config"
    config.mkdir()
    (config / "config.toml").write_text(
        'model = "mine"\nmax_tokens = 300\naliases.mine = "short"\naliases.short = "anthropic:claude-sonnet-4-5"\n'
    )
    async with FakeProvider("anthropic", ["ok"] * 3) as provider:
        swink.use(provider)
        assert (await swink("-p", "x", "--temperature", "0.5")).code == 0
        assert (await swink("-p", "x", "--max-tokens", "9999999", "-m", "short")).code == 0
        cheap = await swink("-p", "x", "--max-cost", "1", environ={"SWINK_TEMPERATURE": "0"})
        assert (cheap.code, provider.rejections) == (0, [])
    figures = [(body["model"], body.get("temperature"), body["max_tokens"]) for body in provider.bodies]
    assert figures == [
        ("claude-sonnet-4-5", 0.5, 300),
        ("claude-sonnet-4-5", None, 64_000),
        ("claude-sonnet-4-5", 0.0, 300),
    ]


async def test_no_key_is_exit_3_with_what_to_do_also_in_json(swink: Any) -> None:
    done = await swink("-p", "x", "--model", "xai:grok-4.3", "--output", "json")
    assert done.code == 3
    assert "set XAI_API_KEY" in done.stderr
    assert "refused" not in done.stderr
    assert json.loads(done.stdout)["exit_code"] == 3
    assert json.loads(done.stdout)["error"] in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_key_that_is_refused_is_exit_3_and_a_failure_is_exit_1(swink: Any) -> None:
    async with FakeProvider("anthropic", [FakeFailure(400, "no such thing")]) as provider:
        swink.use(provider)
        refused = await swink("-p", "x", *NO_CHILDREN, environ={"ANTHROPIC_API_KEY": "wrong-key-of-the-tests"})
        failed = await swink("-p", "x", *NO_CHILDREN)
    assert (refused.code, refused.stdout) == (3, "")
    assert "invalid x-api-key" in refused.stderr
    assert "wrong-key" not in refused.stderr
    told = "anthropic refused the request: its key came from environment ANTHROPIC_API_KEY; `swink keys set anthropic`"
    assert f"note: {told} stores another" in refused.stderr
    assert (failed.code, failed.stdout) == (1, "")
    assert failed.complaints == "error: HTTP 400: no such thing\n"


async def test_the_formats_of_stdout(swink: Any, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}')
    value = FakeReply(calls=[("final_answer", {"n": 3})])
    async with FakeProvider("anthropic", ["One.", READ, "Two.", value]) as provider:
        swink.use(provider)
        as_json = await swink("-p", "x", "--output", "json", *NO_CHILDREN)
        as_stream = await swink("-p", "x", *NO_CHILDREN, environ={"SWINK_OUTPUT": "stream-json"})
        as_value = await swink("-p", "x", "--schema", str(schema), *NO_CHILDREN)
    fields = json.loads(as_json.stdout)
    assert (fields["text"], fields["model"], fields["turns"]) == ("One.", "anthropic:claude-sonnet-4-6", 1)
    assert fields["usage"]["input"] == 12
    assert fields["cost"]["total"] > 0
    *lines, last = as_stream.stdout.splitlines()
    events = [decode_event(line) for line in lines]
    check_events(events)
    result = json.loads(last)
    assert {name: result[name] for name in ("type", "text", "exit_code", "turns", "tool_calls", "value")} == {
        "type": "result",
        "text": "Two.",
        "exit_code": 0,
        "turns": 2,
        "tool_calls": 1,
        "value": None,
    }
    assert result["usage"]["input"] == 24
    assert result["cost"]["total"] > 0
    assert len([event for event in events if type(event).__name__ == "TurnEnd"]) == 2
    assert json.loads(as_value.stdout) == {"n": 3}
    assert [as_json.code, as_stream.code, as_value.code] == [0, 0, 0]


async def test_limits_are_exit_4(swink: Any) -> None:
    async with FakeProvider("anthropic", [READ, READ, "x", FakeReply(text="half", ends="hangs")]) as provider:
        swink.use(provider)
        turns = await swink("-p", "x", "--max-turns", "1", *NO_CHILDREN)
        provider.replies[:] = [FakeReply(text="half", ends="hangs")]
        timed = await swink("-p", "x", "--timeout", "0.3", *NO_CHILDREN)
        asked = len(provider.requests)
        cost = await swink("-p", "x", "--max-cost", "0.000001", *NO_CHILDREN)
    assert (turns.code, turns.stdout) == (4, "")
    assert (timed.code, timed.stdout) == (4, "")
    assert timed.complaints == "error: stopped after 0.3 seconds (--timeout)\n"
    assert (cost.code, cost.stdout) == (4, "")
    assert "budget stopped the run" in cost.stderr
    assert len(provider.requests) == asked, "nothing was asked for that money"


async def test_nothing_is_approved_by_silence_and_the_way_is_told_once(swink: Any) -> None:
    async with FakeProvider("anthropic", [WRITE, WRITE, "I could not."]) as provider:
        swink.use(provider)
        silent = await swink("-p", "x", *NO_CHILDREN)
        assert not (swink.folder / "new.txt").exists()
        provider.replies[:] = [WRITE, "Done."]
        allowed = await swink("-p", "x", "--approve", "all", *NO_CHILDREN)
    assert (silent.code, silent.stdout) == (0, "I could not.\n")
    assert silent.stderr.count("To allow such calls: ") == 1
    assert (allowed.code, allowed.stdout, allowed.stderr) == (0, "Done.\n", "")
    assert (swink.folder / "new.txt").read_text() == "hi"


async def test_no_one_is_told_to_choose_the_mode_that_is_on(swink: Any) -> None:
    (swink.folder / "file").touch()
    nowhere = str(swink.folder / "file" / "data")  # no checkpoint can be kept there, so a person would be asked
    async with FakeProvider("anthropic", [WRITE, "I could not."]) as provider:
        swink.use(provider)
        done = await swink("-p", "x", "--approve", "auto", *NO_CHILDREN, environ={"SWINK_DATA_DIR": nowhere})
    assert done.stdout == "I could not.\n"
    assert "To allow such calls: --approve all, or --allow 'bash: pytest *'" in done.stderr
    assert "--approve auto" not in done.stderr


@pytest.mark.sweep
async def test_quiet_says_nothing_and_verbose_says_more(swink: Any) -> None:
    (swink.folder / "a.txt").write_text("hello\n")
    thinking = FakeReply(text="It says hello.", thinking="let me think")
    async with FakeProvider("anthropic", [WRITE, "No.", READ, thinking]) as provider:
        swink.use(provider)
        quiet = await swink("-p", "x", "-q", *NO_CHILDREN, stdin=b"\xff")
        verbose = await swink("-p", "x", "-v", "--thinking", "low", *NO_CHILDREN)
    assert (quiet.code, quiet.stderr) == (0, "")
    assert (verbose.code, verbose.stdout) == (0, "It says hello.\n")
    assert "✓ read_file a.txt" in verbose.stderr
    assert "  │ " in verbose.stderr
    assert "  ~ let me think" in verbose.stderr
    assert "2 turns, 1 call, 24 tokens in, 14 out, $0.0003" in verbose.stderr


async def test_a_projects_settings_and_notes_count_after_trust(swink: Any) -> None:
    (swink.folder / ".swink").mkdir()
    (swink.folder / ".swink" / "config.toml").write_text('tools = ["list_dir"]\n')
    (swink.folder / "AGENTS.md").write_text("Always say please.\n")
    async with FakeProvider("anthropic", ["a", "b"]) as provider:
        swink.use(provider)
        before = await swink("-p", "x", *NO_CHILDREN)
        trust = await swink("config", "trust")
        after = await swink("-p", "x")
    assert "is not trusted, so its .swink/config.toml and AGENTS.md are not used" in before.stderr
    assert trust.code == 0
    assert (after.code, after.stderr) == (0, "")
    assert len(provider.bodies[0]["tools"]) == 3
    assert "say please" not in json.dumps(provider.bodies[0])
    assert [tool["name"] for tool in provider.bodies[1]["tools"]] == ["list_dir"]
    assert "Always say please." in provider.bodies[1]["system"][0]["text"]


@pytest.mark.sweep
async def test_changes_in_a_trusted_project_are_reported_before_the_run(swink: Any) -> None:
    (swink.folder / ".swink").mkdir()
    (swink.folder / ".swink" / "config.toml").write_text('tools = ["list_dir"]\n')
    (swink.folder / "AGENTS.md").write_text("Always say please.\n")
    async with FakeProvider("anthropic", ["a", "b"]) as provider:
        swink.use(provider)
        assert (await swink("config", "trust")).code == 0
        (swink.folder / "AGENTS.md").write_text("Always say please.\n" + "error: all is well\n" * 30)
        changed = await swink("-p", "x", *NO_CHILDREN)
        (swink.folder / ".swink" / "config.toml").write_text('tools = ["list_dir", "bash"]\n')
        both = await swink("-p", "x", *NO_CHILDREN)
    rows = changed.stderr.splitlines()
    assert "AGENTS.md has changed since you trusted it and is not used" in " ".join(changed.stderr.split())
    assert any("+ error: all is well" in row for row in rows)
    assert not any(row.startswith("error:") for row in rows)
    assert "18 lines more" in changed.stderr
    assert '- tools = ["list_dir"]' in both.stderr
    assert '+ tools = ["list_dir", "bash"]' in both.stderr
    assert "say please" not in json.dumps(provider.bodies)


# -- every end has its object --------------------------------------------------------------------------------

FIELDS = {
    *("text", "exit_code", "error", "error_kind", "stop_reason", "stopped_by", "model", "usage", "cost", "turns"),
    *("tool_calls", "rejected", "pending", "seconds", "value", "session", "served_models"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("format_name", ["json", "stream-json"])
async def test_every_way_to_end_prints_every_field(swink: Any, tmp_path: Path, format_name: str) -> None:
    (tmp_path / "bad.json").write_text("{")
    (swink.home / "config").mkdir()
    failed = FakeFailure(400, "no such thing")
    ways: list[tuple[int, list[Any], tuple[str, ...]]] = [
        (0, ["Fine."], ()),
        (0, [WRITE, "I could not."], ()),
        (1, [failed], ()),
        (1, [FakeReply(text="half", ends="vanishes")] * 4, ()),
        (2, [], ("--frobnicate",)),
        (2, [], ("--max-turns", "many")),
        (2, [], ("--approve", "sure")),
        (2, [], ("--model", "antropic:x")),
        (2, [], ("--schema", str(tmp_path / "bad.json"))),
        (2, [], ("--schema", '{"type": "nonsense"}')),
        (2, [], ("--allow", "hammer: nails")),
        (2, [], ("--add-dir", "not-there")),
        (2, [], ("--image", str(tmp_path / "bad.json"))),
        (2, [], ("--tools", "hammer")),
        (3, [], ("--model", "xai:grok-4.3")),
        (4, [READ], ("--max-turns", "1")),
        (4, [FakeReply(text="half", ends="hangs")], ("--timeout", "0.3")),
        (4, ["x"], ("--max-cost", "0.000001")),
    ]
    for code, replies, flags in ways:
        async with FakeProvider("anthropic", replies) as provider:
            swink.use(provider)
            done = await swink("-p", "x", "--output", format_name, "--tools", "read_file,write_file", *flags)
        assert done.code == code, (flags, done)
        last = done.stdout if format_name == "json" else done.stdout.splitlines()[-1]
        fields = json.loads(last)
        assert set(fields) - {"type"} == FIELDS, flags
        assert fields["exit_code"] == code
        assert (fields["error"] is None) == (code == 0)
        assert "Traceback" not in done.stderr
        if fields["error"] is not None:
            assert not re.search(r"Error\b|Exception|<class|object at 0x|\{'", fields["error"]), fields["error"]
        if replies and code != 1 and "--timeout" not in flags:  # which may come before the request does
            assert fields["turns"] == len(provider.requests)


async def test_calls_that_were_not_approved_are_listed(swink: Any) -> None:
    push = FakeReply(calls=[("bash", {"command": "git push"})])
    async with FakeProvider("anthropic", [WRITE, push, "I could not."]) as provider:
        swink.use(provider)
        done = await swink("-p", "x", "--output", "json", "--deny", "bash: git push")
    rejected = json.loads(done.stdout)["rejected"]
    assert [(call["tool"], call["arguments"]) for call in rejected] == [
        ("write_file", {"path": "new.txt", "content": "hi"}),
        ("bash", {"command": "git push"}),
    ]
    assert "no one can answer" in rejected[0]["reason"]
    assert "denies it" in rejected[1]["reason"]


@pytest.mark.sweep
async def test_unreadable_settings_and_a_missing_prompt_have_their_json_object_too(swink: Any) -> None:
    (swink.home / "config").mkdir()
    (swink.home / "config" / "config.toml").write_text("model = \n")
    for flags in (("-p", "x", "--output", "json"), ("--output=json",), ("-p", "x", "--output", "json", "-x")):
        done = await swink(*flags)
        assert done.code == 2
        assert set(json.loads(done.stdout)) == FIELDS
    done = await swink("-p", "x", "-x", environ={"SWINK_OUTPUT": "json"})
    assert json.loads(done.stdout)["exit_code"] == 2
    done = await swink("config", "--output", "json")
    assert (done.code, done.stdout) == (2, "") or json.loads(done.stdout)["exit_code"] == 2


@pytest.mark.sweep
async def test_the_time_counts_from_the_start_and_waiting_for_stdin_too(swink: Any) -> None:
    async with FakeProvider("anthropic", []) as provider:
        swink.use(provider)
        process = await swink.start(
            "-p", "x", "--timeout", "0.5", "--output", "json", *NO_CHILDREN, stdin=asyncio.subprocess.PIPE
        )
        stdout = await asyncio.wait_for(process.stdout.read(), 40)
        assert await process.wait() == 4
        process.stdin.close()
    fields = json.loads(stdout)
    assert (fields["exit_code"], fields["error"]) == (4, "stopped after 0.5 seconds (--timeout)")
    assert 0.5 <= fields["seconds"] < 20
    assert provider.requests == []


# -- what may run --------------------------------------------------------------------------------------------


async def test_rules_of_flags_and_settings_let_calls_run_where_nobody_can_be_asked(swink: Any) -> None:
    swink.confine()
    (swink.home / "config").mkdir()
    (swink.home / "config" / "config.toml").write_text('allow = ["bash: touch *"]\ndeny = ["bash: touch b"]\n')
    calls = [
        ("bash", {"command": "touch a && touch c"}),
        ("bash", {"command": "touch b"}),
        ("bash", {"command": "touch d; mkdir e", "write": True}),
        ("write_file", {"path": "src/x.txt", "content": "x"}),
        ("write_file", {"path": "y.txt", "content": "x"}),
    ]
    async with FakeProvider("anthropic", [FakeReply(calls=calls), "Done."]) as provider:
        swink.use(provider)
        done = await swink("-p", "x", "--allow", "write_file: src/**", "--output", "json")
    assert done.code == 0, done
    there = sorted(path.name for path in swink.folder.iterdir())
    assert there == ["a", "c", "src"]
    assert len(json.loads(done.stdout)["rejected"]) == 3


async def test_a_tool_that_is_denied_is_not_offered(swink: Any) -> None:
    async with FakeProvider("anthropic", ["Done."]) as provider:
        swink.use(provider)
        await swink("-p", "x", "--deny", "bash", "--deny", "search")
    names = [tool["name"] for tool in provider.bodies[0]["tools"]]
    assert names == ["read_file", "write_file", "edit_file", "list_dir", "task", "todo"]


async def test_a_task_is_in_the_stream_and_in_the_totals_of_the_session(swink: Any) -> None:
    (swink.folder / "a.txt").write_text("hello\n")
    task = FakeReply(calls=[("task", {"prompt": "Read a.txt."})])
    async with FakeProvider("anthropic", [task, READ, "It says hello.", "Done."]) as provider:
        swink.use(provider)
        done = await swink("-p", "x", "--tools", "read_file,write_file,task", "--output", "stream-json")
        *lines, last = done.stdout.splitlines()
        (session,) = json.loads((await swink("sessions", "list", "--json")).stdout)
    assert [tool["name"] for tool in provider.bodies[1]["tools"]] == ["read_file"]
    events = [decode_event(line) for line in lines]
    inner = [event.event for event in events if isinstance(event, DelegateEvent)]
    check_events(events)
    record = RunRecord.of(inner)
    assert ([call.name for call in record.calls], record.text) == (["read_file"], "It says hello.")
    fields = json.loads(last)
    whole = record.usage + RunRecord.of(events).usage
    assert fields["usage"]["total"] == whole.total == 2 * record.usage.total > 0
    assert session["messages"] == 4


async def test_folders_can_be_added_for_files_and_commands(swink: Any, tmp_path: Path) -> None:
    swink.confine()
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("in the other folder\n")
    calls = [
        ("read_file", {"path": f"{other}/a.txt"}),
        ("write_file", {"path": f"{other}/b.txt", "content": "x"}),
        ("bash", {"command": f"cp {other}/a.txt {other}/c.txt"}),
        ("bash", {"command": f"touch {tmp_path}/outside"}),
    ]
    async with FakeProvider("anthropic", [FakeReply(calls=calls), "Done."]) as provider:
        swink.use(provider)
        done = await swink("-p", "x", "--approve", "all", "--add-dir", "../other")
    assert done.code == 0, done
    assert "in the other folder" in json.dumps(provider.bodies[1]["messages"][-1])
    assert str(other) in provider.bodies[0]["system"][0]["text"]
    assert sorted(path.name for path in other.iterdir()) == ["a.txt", "b.txt", "c.txt"]
    assert not (tmp_path / "outside").exists()


def linked_worktree(main: Path, linked: Path) -> None:
    main.mkdir()
    (main / "a.txt").write_text("x")
    linked.rmdir()
    for command in ("init -q", "add a.txt", "commit -qm one", f"worktree add -q {linked}"):
        named = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid", *command.split()]
        subprocess.run(named, cwd=main, check=True, capture_output=True)


async def test_a_linked_worktree_can_be_committed_to_and_nothing_that_git_runs_is_written(
    swink: Any, tmp_path: Path
) -> None:
    swink.confine()
    main = tmp_path / "main"
    linked_worktree(main, swink.folder)
    commit = (
        "echo hi > b && git add b && git -c user.name=a -c user.email=a@b.invalid commit -qm two && git log --oneline"
    )
    hook = f"echo evil > {main}/.git/hooks/pre-commit; echo evil >> {main}/.git/config"
    calls = [("bash", {"command": commit}), ("bash", {"command": hook})]
    calls.append(("write_file", {"path": f"{main}/.git/hooks/pre-push", "content": "evil"}))
    async with FakeProvider("anthropic", [FakeReply(calls=calls), "Done."]) as provider:
        swink.use(provider)
        done = await swink("-p", "x", "--approve", "all", "--add-dir", str(main / ".git"))
    assert done.code == 0, done
    assert " two" in json.dumps(provider.bodies[1]["messages"][-1]["content"][0])
    assert not {"pre-commit", "pre-push"} & {path.name for path in (main / ".git" / "hooks").iterdir()}
    assert "evil" not in (main / ".git" / "config").read_text()


async def test_instructions_can_be_added_and_the_schema_written_out(swink: Any) -> None:
    schema = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
    async with FakeProvider("anthropic", [FakeReply(calls=[("final_answer", {"n": 3})])]) as provider:
        swink.use(provider)
        done = await swink("-p", "x", "--append-system", "Always say please.", "--schema", schema, *NO_CHILDREN)
    assert json.loads(done.stdout) == {"n": 3}
    system = provider.bodies[0]["system"][0]["text"]
    assert system.startswith("You are Swink")
    assert "\nAlways say please.\n\nDate: " in system


@pytest.mark.sweep
async def test_pictures_go_with_the_prompt(swink: Any) -> None:
    png = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
    (swink.folder / "a.png").write_bytes(png)
    async with FakeProvider("anthropic", ["A picture."]) as provider:
        swink.use(provider)
        done = await swink("-p", "What is this?", "--image", "a.png", "--image", "a.png", *NO_CHILDREN)
        assert (done.code, done.stdout) == (0, "A picture.\n")
        blind = await swink("-p", "x", "--image", "a.png", "-m", "local")
    content = provider.bodies[0]["messages"][0]["content"]
    assert [block["type"] for block in content] == ["text", "image", "image"]
    assert content[1]["source"]["media_type"] == "image/png"
    assert blind.code in (2, 3)  # without the extra there is no local model at all


PDF = b"%PDF-1.4\n"


async def test_files_go_with_the_prompt(swink: Any) -> None:
    (swink.folder / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    (swink.folder / "report.pdf").write_bytes(PDF)
    async with FakeProvider("anthropic", ["A report."]) as provider:
        swink.use(provider)
        done = await swink("-p", "What is this?", "--file", "report.pdf", "--file", "a.png", *NO_CHILDREN)
    assert (done.code, done.stdout) == (0, "A report.\n")
    question, report, picture = provider.bodies[0]["messages"][0]["content"]
    assert (question["text"], picture["type"]) == ("What is this?", "image")
    assert (report["type"], report["title"]) == ("document", "report.pdf")
    assert report["source"]["data"] == base64.b64encode(PDF).decode()


# -- long runs -----------------------------------------------------------------------------------------------


def sizes(provider: FakeProvider) -> list[int]:
    return [len(request.body) for request in provider.requests]


def is_for_summary(body: dict[str, Any]) -> bool:
    return "boundary lines" in json.dumps(body["system"])


class Replies(list[Any]):
    """The replies of a script, with a summary whenever one is asked for."""

    def __init__(self, provider: FakeProvider, replies: list[Any]) -> None:
        super().__init__(replies)
        self.provider = provider

    def pop(self, index: SupportsIndex = -1) -> Any:
        return "So far, so good." if is_for_summary(self.provider.bodies[-1]) else super().pop(index)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "model", ["claude-sonnet-4-6", pytest.param("a-model-that-nobody-knows", marks=pytest.mark.sweep)]
)
async def test_fifteen_long_outputs_do_not_make_requests_of_megabytes(swink: Any, model: str) -> None:
    for number in range(15):
        (swink.folder / f"{number}.txt").write_text(f"start of {number}\n" + "some words of text\n" * 6_000)
    reads = [FakeReply(calls=[("read_file", {"path": f"{number}.txt"})]) for number in range(15)]
    at_once = FakeReply(calls=[("read_file", {"path": f"{number}.txt"}) for number in range(15)])
    async with FakeProvider("anthropic") as provider:
        provider.replies = Replies(provider, [*reads, "One by one.", at_once, "At once."])
        swink.use(provider)
        chosen = ("-m", f"anthropic:{model}", *NO_CHILDREN)
        one_by_one = await swink("-p", "Read them all.", *chosen)
        assert (one_by_one.code, one_by_one.stdout) == (0, "One by one.\n")
        turns = [body for body in provider.bodies if not is_for_summary(body)]
        assert len(turns) == 16
        longest, in_all = max(sizes(provider)), sum(sizes(provider))
        together = await swink("-p", "Read them all.", *chosen)
    assert (together.code, together.stdout) == (0, "At once.\n")
    assert provider.rejections == []
    known = model.startswith("claude")
    assert longest < (400_000 if known else 120_000)
    assert in_all < 16 * 300_000
    assert sizes(provider)[-1] < (400_000 if known else 120_000)
    for body in turns:
        assert body["messages"][0]["content"][-1]["text"] == "Read them all.", "behind the summary, if there is one"
    assert "So far, so good." in json.dumps(turns[-1]["messages"][0])
    summaries = sum(map(is_for_summary, provider.bodies))
    assert 1 <= summaries <= (4 if known else 15), "where more than one result fits, each makes room for a few"
    assert "start of 14" in json.dumps(turns[-1]["messages"][-1]), "the newest result is there"
    assert json.dumps(provider.bodies[-1]["messages"][-1]).count("start of ") == 15, "a part of each"


async def test_a_window_of_the_settings_holds_for_any_model(swink: Any) -> None:
    (swink.folder / "a.txt").write_text("some words of text\n" * 6_000)
    async with FakeProvider("anthropic", [READ, "Done."]) as provider:
        swink.use(provider)
        done = await swink("-p", "x", *NO_CHILDREN, environ={"SWINK_CONTEXT_WINDOW": "8000"})
    assert (done.code, done.stdout) == (0, "Done.\n")
    assert sizes(provider)[-1] < 8000 * 3


async def test_a_provider_that_says_the_context_is_too_long_gets_a_shorter_one(swink: Any) -> None:
    (swink.folder / "a.txt").write_text("some words of text\n" * 3_000)
    too_long = FakeFailure(400, "prompt is too long: 210000 tokens > 200000 maximum")
    async with FakeProvider("anthropic", [READ, too_long, "Done."]) as provider:
        swink.use(provider)
        done = await swink("-p", "x", "--output", "json", *NO_CHILDREN)
    assert done.code == 0, done
    assert json.loads(done.stdout)["text"] == "Done."
    first, before, after = sizes(provider)
    assert after < before
    assert after > first


async def test_why_a_call_was_rejected_is_said_once_with_verbose_too(swink: Any) -> None:
    async with FakeProvider(
        "anthropic", [FakeReply(calls=[("write_file", {"path": "a", "content": "b"})]), "x"]
    ) as provider:
        swink.use(provider)
        done = await swink("-p", "x", "-v", "--approve", "none", *NO_CHILDREN)
    assert done.code == 0
    assert done.stderr.count("tool call rejected") == 1, done.stderr


# -- streams -------------------------------------------------------------------------------------------------


@pytest.mark.sweep
async def test_a_reader_that_leaves_ends_it_without_a_traceback(swink: Any) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    async with FakeProvider("anthropic", ["x", READ, "x"]) as provider:
        swink.use(provider)
        gone = await swink("-p", "x", *NO_CHILDREN, stdout=write_end)
        streamed = await swink("-p", "x", "--output", "stream-json", *NO_CHILDREN, stdout=write_end)
    os.close(write_end)
    assert (gone.code, gone.stderr) == (1, "")
    assert (streamed.code, streamed.stderr) == (1, "")
    assert len(provider.replies) >= 1, "the run ended early"


async def test_a_reader_that_leaves_in_the_middle_of_the_answer_is_exit_code_1(swink: Any) -> None:
    async with FakeProvider("anthropic", ["a line of the answer\n" * 100_000]) as provider:
        swink.use(provider)
        read_end, write_end = os.pipe()
        process = await swink.start("-p", "x", *NO_CHILDREN, stdout=write_end)
        os.close(write_end)
        assert (await asyncio.to_thread(os.read, read_end, 100)).startswith(b"a line of the answer\n")
        os.close(read_end)
        _, stderr = await asyncio.wait_for(process.communicate(), 50)
    assert (process.returncode, stderr) == (1, b"")


@pytest.mark.sweep
async def test_a_full_disk_and_a_closed_stdout_are_told(swink: Any) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    async with FakeProvider("anthropic", ["x"]) as provider:
        swink.use(provider)
        done = await swink("-p", "x", *NO_CHILDREN, stdout=full)
        help_done = await swink("--help", stdout=full)
        os.close(full)
        script = 'exec "$@" >&-'
        closed = await asyncio.create_subprocess_exec(
            *["sh", "-c", script, "sh", *swink.command("-p", "x")],
            cwd=swink.folder,
            env=swink.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        _, said = await closed.communicate()
    assert (done.code, done.stderr) == (1, "error: the answer could not be written: No space left on device\n")
    assert (help_done.code, help_done.stderr) == (1, "error: the output cannot be written: No space left on device\n")
    assert (closed.returncode, said) == (1, b"error: the output cannot be written: stdout is closed\n")
    assert len(provider.requests) == 1, "nothing was asked when there was nowhere to put the answer"


# -- signals -------------------------------------------------------------------------------------------------


HOLD = "exec 9> lock; flock 9; echo > started; sleep 600"
REPLIES: dict[str, FakeReply] = {
    "the model writes": FakeReply(text="half an answer", ends="hangs"),
    "a command runs": FakeReply(calls=[("bash", {"command": HOLD})]),
}
INT, TERM = signal.SIGINT, signal.SIGTERM


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    ("moment", "number", "times", "output"),
    [
        ("the model writes", INT, 1, "stream-json"),
        ("the model writes", TERM, 1, "stream-json"),
        ("a command runs", INT, 1, "stream-json"),
        ("a command runs", INT, 2, "stream-json"),
        ("stdin is read", INT, 1, "json"),
        *[
            pytest.param(*row, marks=pytest.mark.sweep)
            for row in (
                ("the model writes", TERM, 1, "json"),
                *[("the model writes", INT, times, output) for times in (2, 3) for output in ("json", "stream-json")],
                ("a command runs", TERM, 1, "stream-json"),
                ("a command runs", TERM, 2, "json"),
                ("stdin is read", TERM, 1, "stream-json"),
            )
        ],
    ],
)
async def test_a_signal_ends_a_prompt_and_its_outcome_is_written_once(
    swink: Any, moment: str, number: signal.Signals, times: int, output: str
) -> None:
    if moment == "a command runs":
        swink.confine()
    replies = [REPLIES[moment]] if moment in REPLIES else []
    async with FakeProvider("anthropic", replies) as provider:
        swink.use(provider)
        alone = (moment, number, times) == ("the model writes", INT, 1)
        flags = ("--output", output, "--approve", "all")
        process = await swink.start("-p", "x", *flags, stdin=asyncio.subprocess.PIPE, anew=alone)

        async def at() -> bytes:
            if moment == "stdin is read":
                return await says(process, b"waiting for the end of stdin")
            process.stdin.close()
            if moment == "a command runs":
                return await writes(swink.folder / "started")
            while not provider.requests:  # noqa: ASYNC110 - a request has no event
                await asyncio.sleep(0.01)
            return await shows(process, b"message_update") if output == "stream-json" else b""

        stdout, stderr = await ends_cleanly(process, number, at(), times=times)
    *lines, last = [stdout] if output == "json" else stdout.splitlines()
    fields = json.loads(last)
    assert (fields["exit_code"], fields["error"]) == (130, "interrupted")
    if moment in REPLIES:
        assert (fields["stop_reason"], fields["session"] is not None) == ("aborted", True)
    if moment in REPLIES and times == 1:
        said = b"stopping; once more to stop at once\nerror: interrupted\nnote: to continue later: swink -p "
        assert stderr.startswith(said)
        if output == "stream-json":
            check_events([decode_event(line) for line in lines])
    if moment == "a command runs":
        with (swink.folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # whoever held it is gone; the test's own time limit says if not


@pytest.mark.sweep
async def test_two_signals_stop_it_at_once_even_when_nobody_reads(swink: Any) -> None:
    long_answer = FakeReply(text="word " * 100_000)
    async with FakeProvider("anthropic", [long_answer]) as provider:
        swink.use(provider)
        read_end, write_end = os.pipe()  # it fills, and the program blocks in its write
        process = await swink.start("-p", "x", "--output", "stream-json", *NO_CHILDREN, stdout=write_end)
        os.close(write_end)
        written = asyncio.Event()
        asyncio.get_running_loop().add_reader(read_end, written.set)
        await written.wait()
        asyncio.get_running_loop().remove_reader(read_end)
        process.send_signal(signal.SIGINT)
        assert await process.stderr.readline() == b"stopping; once more to stop at once\n"
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 40) == 130
        os.close(read_end)


@pytest.mark.sweep
async def test_two_interrupts_before_the_run_have_their_object_too(swink: Any) -> None:
    # Settings that never end keep the program from its run: it has begun to load, and nothing can be stopped yet.
    (swink.home / "config").mkdir()
    os.mkfifo(swink.home / "config" / "config.toml")
    process = await swink.start("-p", "x", "--output", "json", *NO_CHILDREN)
    writer = await asyncio.to_thread(os.open, swink.home / "config" / "config.toml", os.O_WRONLY)  # it is read now
    for _ in range(2):
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
        await asyncio.sleep(0.005)
    stdout, _ = await asyncio.wait_for(process.communicate(), 40)
    os.close(writer)
    assert process.returncode == 130
    assert json.loads(stdout)["error"] == "interrupted"


@pytest.mark.sweep
async def test_an_interrupt_that_the_caller_ignores_stays_ignored(swink: Any) -> None:
    async with FakeProvider("anthropic", ["x"]) as provider:
        swink.use(provider)
        script = 'trap "" INT; exec "$@"'
        process = await asyncio.create_subprocess_exec(
            *["sh", "-c", script, "sh", *swink.command("-p", "-", *NO_CHILDREN)],
            cwd=swink.folder,
            env=swink.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stderr is not None
        assert b"waiting for the end of stdin" in await process.stderr.readline()  # it is in its run
        process.send_signal(signal.SIGINT)
        stdout, _ = await process.communicate(b"go")
    assert (process.returncode, stdout) == (0, b"x\n")


@pytest.mark.sweep
async def test_streams_that_the_caller_closed_do_no_harm(swink: Any) -> None:
    async with FakeProvider("anthropic", ["x"]) as provider:
        swink.use(provider)
        process = await asyncio.create_subprocess_exec(
            *["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *swink.command("-p", "x", "--output", "json", *NO_CHILDREN)],
            cwd=swink.folder,
            env=swink.environ,
            stdout=subprocess.PIPE,
        )
        stdout, _ = await process.communicate()
    assert process.returncode == 0
    assert json.loads(stdout)["text"] == "x"


@pytest.mark.sweep
async def test_secrets_are_masked_unless_a_flag_says_otherwise(swink: Any) -> None:
    (swink.folder / "a.txt").write_text("it is canary-4711-swordfish, and AKIAIOSFODNN7EXAMPLE\n")
    environ = {"DB_PASSWORD": "canary-4711-swordfish"}
    seen: dict[str, str] = {}
    for flags in ((), ("--unmask", "DB_PASSWORD"), ("--no-masking",)):
        async with FakeProvider("anthropic", [READ, "ok"]) as provider:
            swink.use(provider)
            assert (await swink("-p", "What is in a.txt?", *NO_CHILDREN, *flags, environ=environ)).code == 0
        seen[" ".join(flags)] = json.dumps(provider.bodies[1]["messages"][-1])
    assert [("canary" in text, "AKIA" in text) for text in seen.values()] == [
        (False, False),
        (True, False),
        (True, True),
    ]


async def test_a_model_searches_the_web_if_it_is_told_to_and_can(swink: Any) -> None:
    config = swink.home / "config"
    config.mkdir()
    (config / "config.toml").write_text("web_search = true\n")
    async with FakeProvider("anthropic", ["found", "not searched"]) as provider:
        swink.use(provider)
        assert (await swink("-p", "go", "--no-session")).stdout == "found\n"
        off = await swink("-p", "go", "--no-session", "--no-web-search")
        assert off.stdout == "not searched\n"
    searches = [[tool.get("type") for tool in body["tools"]].count("web_search_20250305") for body in provider.bodies]
    assert searches == [1, 0]
    async with FakeProvider("openai", ["done"]) as other:
        swink.environ |= {"OPENAI_BASE_URL": other.url, "OPENAI_API_KEY": other.key}
        done = await swink("-p", "go", "--no-session", "-m", "openai:gpt-5")
    assert (done.code, done.stdout) == (0, "done\n"), done
    assert done.stderr.count("web_search is not used: openai:gpt-5 cannot search the web") == 1
    (swink.folder / ".swink").mkdir()
    (swink.folder / ".swink" / "config.toml").write_text("web_search = true\n")
    (config / "config.toml").write_text("")
    trusted = await swink("config", "trust", "--yes")
    assert "web_search is looser there than in your own settings" in trusted.stderr
    assert (await swink("config", "get", "web_search")).stdout == "false\n"
