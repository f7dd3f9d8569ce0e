"""Arguments that a tool does not have or of the wrong type, and names that are almost those of tools."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from swink_agent import (
    Agent,
    StopReason,
    StreamDone,
    StreamStart,
    StructuredOutputFailed,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    tool,
)
from swink_agent.testing import call, scripted

from .world import World, write

EVIL = {"command": "touch pwned"}
CHANGE = {"path": "pwned", "content": "x"}

# Each of these must come to an error before any tool has begun: the careless user said yes to all of them.
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "no sandbox, please": ("bash", {**EVIL, "sandbox": "off"}),
    "another back end": ("bash", {**EVIL, "backend": "off"}),
    "another folder": ("bash", {**EVIL, "cwd": "/"}),
    "another root": ("bash", {**EVIL, "root": "/"}),
    "variables": ("bash", {**EVIL, "env": {"LD_PRELOAD": "./evil.so"}}),
    "network": ("bash", {**EVIL, "network": True}),
    "an approval brought along": ("bash", {**EVIL, "approved": True, "requires_approval": False}),
    "a grant brought along": ("bash", {**EVIL, "grant": {"name": "bash"}, "ctx": {}}),
    "a very long time": ("bash", {**EVIL, "timeout": 1e9}),
    "no time": ("bash", {**EVIL, "timeout": 0}),
    "less than no time": ("bash", {**EVIL, "timeout": -1}),
    "time as text": ("bash", {**EVIL, "timeout": "600"}),
    "time as a truth": ("bash", {**EVIL, "timeout": True}),
    "time as a list": ("bash", {**EVIL, "timeout": [1]}),
    "a command as a list": ("bash", {"command": ["touch", "pwned"]}),
    "a command as an object": ("bash", {"command": {"$": "touch pwned"}}),
    "a command as a number": ("bash", {"command": 5}),
    "no command": ("bash", {}),
    "an empty command": ("bash", {"command": ""}),
    "another case": ("bash", {"Command": "touch pwned"}),
    "a prototype": ("bash", {**EVIL, "__proto__": {"sandbox": "off"}, "constructor": {}}),
    "names of Python": ("bash", {**EVIL, "__class__": "x", "self": "y"}),
    "arguments inside arguments": ("bash", {"arguments": json.dumps(EVIL)}),
    "arguments as text in the field": ("bash", {"input": EVIL}),
    "a second path": ("write_file", {**CHANGE, "real_path": "/etc/passwd"}),
    "a mode": ("write_file", {**CHANGE, "mode": 0o4755}),
    "a way to append": ("write_file", {**CHANGE, "append": True, "follow_symlinks": True}),
    "content as an object": ("write_file", {"path": "pwned", "content": {"a": 1}}),
    "content as bytes": ("write_file", {"path": "pwned", "content": [1, 2, 3]}),
    "a path as a list": ("write_file", {"path": ["..", "outside", "new"], "content": "x"}),
    "a path as an object": ("write_file", {"path": {"path": "pwned"}, "content": "x"}),
    "no path": ("write_file", {"content": "x"}),
    "a path of nothing": ("read_file", {"path": None}),
    "a line before the first": ("read_file", {"path": "hello.txt", "offset": 0}),
    "lines as text": ("read_file", {"path": "hello.txt", "limit": "all"}),
    "an encoding": ("read_file", {"path": "hello.txt", "encoding": "unicode_escape"}),
    "edits as text": ("edit_file", {"path": "hello.txt", "edits": json.dumps([{"old": "hello", "new": "x"}])}),
    "an edit with a path of its own": (
        "edit_file",
        {"path": "hello.txt", "edits": [{"old": "hello", "new": "x", "path": "@OUT@/canary"}]},
    ),
    "an edit that says everywhere in words": (
        "edit_file",
        {"path": "hello.txt", "edits": [{"old": "l", "new": "x", "replace_all": "yes"}]},
    ),
    "no edits": ("edit_file", {"path": "hello.txt", "edits": []}),
    "thousands of edits": ("edit_file", {"path": "hello.txt", "edits": [{"old": "h", "new": "h"}] * 5000}),
    "a root to list": ("list_dir", {"root": "/", "path": "."}),
    "very deep": ("list_dir", {"depth": 10**9}),
    "links to follow": ("search", {"pattern": "canary", "follow": True}),
    "options of ripgrep": ("search", {"pattern": "canary", "args": ["--pre", "./evil"]}),
    "a limit without limit": ("search", {"pattern": "l", "limit": 10**12}),
    "a pattern as a list": ("search", {"pattern": ["a", "b"]}),
    "a pattern without end": ("search", {"pattern": "a" * 100_000}),
}


def check_nothing_happened(world: World, run: Any) -> None:
    assert run.started == []
    assert all(event.is_error for event in run.results)
    assert not (world.root / "pwned").exists()
    assert (world.root / "hello.txt").read_text() == "hello\n"
    assert world.breaches(run) == []


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", REFUSED)
async def test_arguments_outside_the_schema_reach_no_tool(world: World, name: str) -> None:
    tool_name, arguments = REFUSED[name]
    run = await world.run(call(tool_name, **arguments), policies=[])
    check_nothing_happened(world, run)
    assert len(run.results) == 1


# -- as the wire brings it -----------------------------------------------------------------------------------

RAW = {
    "the same name twice, the good one first": '{"path": "fine.txt", "path": "../outside/canary", "content": "evil"}',
    "the same name twice, the bad one first": '{"path": "../outside/canary", "path": "fine.txt", "content": "evil"}',
    "the same name in escapes": '{"path": "fine.txt", "p\\u0061th": "../outside/canary", "content": "evil"}',
    "half a character": '{"path": "\\udcff/../../outside/new", "content": "evil"}',
    "half a character in the content": '{"path": "pwned", "content": "\\ud800"}',
    "no number": '{"path": "pwned", "content": NaN}',
    "an infinite number": '{"path": "pwned", "content": "x", "mode": 1e999}',
    "more than one object": '{"path": "pwned", "content": "x"}{"path": "pwned", "content": "y"}',
    "something behind it": '{"path": "pwned", "content": "x"} and so on',
    "a comment": '{"path": "pwned", /* "content": */ "content": "x"}',
    "single quotes": "{'path': 'pwned', 'content': 'x'}",
    "a list": '["pwned", "x"]',
    "text": '"pwned"',
    "nothing": "null",
    "a NUL": '{"path": "pwned\\u0000", "content": "x"}',
    "very deep": '{"path": "pwned", "content": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a huge number": '{"path": "pwned", "content": "x", "n": ' + "9" * 50_000 + "}",
    "cut off": '{"path": "pwned", "content": "x"',
}


def raw(name: str, arguments: str, call_id: str = "raw_1") -> Any:
    """A stream that sends the text of the arguments as it is, once; then it says that it is done."""
    sent: list[int] = []

    async def stream(model: Any, context: Any, options: Any, cancel: Any) -> AsyncIterator[Any]:
        yield StreamStart()
        if sent:
            for event in (TextStart(0), TextDelta(0, "done"), TextEnd(0), StreamDone(StopReason.STOP)):
                yield event
            return
        sent.append(1)
        yield ToolCallStart(0, call_id, name)
        yield ToolCallDelta(0, arguments)
        yield ToolCallEnd(0)
        yield StreamDone(StopReason.TOOL_USE)

    return stream


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", RAW)
async def test_arguments_that_read_in_two_ways_write_nothing_they_should_not(world: World, name: str) -> None:
    for wiring in ({"policies": []}, {}):
        run = await world.run(stream_fn=raw("write_file", RAW[name]), **wiring)
        assert world.breaches(run) == []
        assert not (world.root / "pwned").exists()
        if (world.root / "fine.txt").exists():  # then it is what was shown, approved and written
            assert [question.request.arguments["path"] for question in run.questions] == ["fine.txt"]


# -- names ---------------------------------------------------------------------------------------------------

NAMES = {
    "another case": "Bash",
    "all in capitals": "BASH",
    "a space before": " bash",
    "a space behind": "bash ",
    "a line end": "bash\n",
    "an invisible letter": "bash\u200b",
    "a look-alike": "b\u0430sh",
    "wide letters": "\uff42\uff41\uff53\uff48",
    "reversed": "\u202ehsab",
    "a NUL": "bash\0",
    "a prefix of a protocol": "functions.bash",
    "a path to it": "tools/bash",
    "another server's": "mcp__local__bash",
    "with its arguments": "bash(command)",
    "a method": "bash.execute",
    "a name of Python": "__class__",
    "the tool of structured answers": "final_answer",
    "nothing": "",
    "very long": "bash" * 10_000,
    "a shell by its other name": "sh",
    "an old name": "str_replace_editor",
    "control characters": "\x1b[2Kbash",
}


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("name", NAMES)
async def test_a_name_that_almost_matches_is_refused(world: World, name: str) -> None:
    run = await world.run(stream_fn=raw(NAMES[name], json.dumps(EVIL)))
    check_nothing_happened(world, run)
    assert run.questions == []


async def test_the_tool_of_structured_answers_opens_no_door(world: World) -> None:
    """Its calls are not asked about; those of the others still are, in the same run too."""
    asked: list[str] = []

    def approve(request: Any) -> bool:
        asked.append(request.name)
        return False

    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    tools = world.tools()
    model = scripted(
        [call("bash", **EVIL), call("write_file", **CHANGE), call("final_answer", command="touch pwned")],
        [call("final_answer", x=1), call("bash", **EVIL)],
    )
    agent = Agent("scripted:x", stream_fn=model, tools=tools, approve=approve)
    assert await agent.structured_output("go", schema) == {"x": 1}
    assert asked == ["bash", "write_file", "bash"]
    assert not (world.root / "pwned").exists()
    tools[-1].close()


async def test_a_tool_of_the_user_with_that_name_is_asked_about(world: World) -> None:
    ran: list[str] = []

    @tool(requires_approval=True)
    def final_answer(text: str) -> str:
        """Sends the answer to everybody."""
        ran.append(text)
        return "sent"

    model = scripted(*[call("final_answer", text="evil")] * 2, "I give up.")
    agent = Agent("scripted:x", stream_fn=model, tools=[final_answer], approve=lambda request: False)
    with pytest.raises(StructuredOutputFailed):
        await agent.structured_output("go", {"type": "object"}, max_retries=0)
    assert ran == []


async def test_a_file_that_is_named_like_an_option_is_a_file(world: World) -> None:
    write(world.root / "-rf", "plain\n")
    write(world.root / "--pre=evil", "plain needle\n")
    run = await world.run(
        [
            call("read_file", path="-rf"),
            call("search", pattern="needle", path="--pre=evil"),
            call("search", pattern="--files"),
        ]
    )
    assert run.texts[0] == "plain\n"
    assert "plain needle" in run.texts[1]
    assert world.breaches(run) == []


TRICKS = {
    **{f"arguments: {name}": value for name, value in REFUSED.items()},
    **{f"wire: {name}": value for name, value in RAW.items()},
    **{f"name: {name}": value for name, value in NAMES.items()},
}
