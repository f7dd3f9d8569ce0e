"""Sessions with calls that wait: `--answer`, exit code 5, and how they are named and listed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from swink_agent import Agent, Defer, ToolResultMessage, tool
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import FakeProvider, FakeReply, call, reply, scripted
from swink_agent.tools import standard_tools

MODEL = "anthropic:claude-sonnet-4-6"
FILES = ("--tools", "read_file,write_file,edit_file")


def store_of(swink: Any) -> JsonlSessionStore:
    return JsonlSessionStore(swink.home / ".local/share/swink-agent/sessions")


@tool(external=True)
def ship(order: int) -> str:
    """Ships an order."""
    raise AssertionError


@tool(requires_approval=True)
def refund(order: int) -> str:
    """Refunds an order."""
    raise AssertionError


def write(name: str) -> Any:
    return call("write_file", path=name, content=f"{name}\n")


def application(swink: Any, *calls: Any) -> tuple[str, list[str]]:
    """Runs an application that lets every call wait; returns the session and the ids of the calls."""
    files = [one for one in standard_tools(swink.folder, "off") if one.name == "write_file"]
    agent = Agent(
        MODEL,
        tools=[*files, ship, refund],
        stream_fn=scripted(reply(*calls)),
        approve=lambda _: Defer("the office decides"),
    )
    with store_of(swink).create(swink.folder) as session:
        session.attach(agent)
        result = agent.prompt_sync("Do it.")
    return session.id, [one.call_id for one in result.pending]


def outcomes(swink: Any, session: str) -> list[str]:
    messages = store_of(swink).load(session).messages
    return [message.outcome.value for message in messages if isinstance(message, ToolResultMessage)]


def results(body: dict[str, Any]) -> list[str]:
    """The results of calls in a request to the fake Anthropic."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


# -- answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [("-p",), ()], ids=["with -p", "without"])
async def test_answers_go_on_with_the_session(swink: Any, prompt: tuple[str, ...]) -> None:
    session, (first, second) = application(swink, write("a.txt"), write("b.txt"))
    async with FakeProvider("anthropic", ["Wrote one of them."]) as provider:
        swink.use(provider)
        given = ("--answer", f"{first}=yes", "--answer", f"{second}=no: not that one")
        done = await swink(*prompt, "--resume", session, *given, *FILES, stdin=b"")
    assert (done.code, done.stdout, done.stderr) == (0, "Wrote one of them.\n", "")
    assert (swink.folder / "a.txt").read_text() == "a.txt\n"
    assert not (swink.folder / "b.txt").exists()
    assert len(provider.bodies) == 1
    assert "not that one" in results(provider.bodies[0])[1]
    assert outcomes(swink, session) == ["ran", "rejected"]


async def test_some_answers_at_a_time_are_fine_and_the_rest_waits_on(swink: Any) -> None:
    session, (first, second) = application(swink, write("a.txt"), write("b.txt"))
    async with FakeProvider("anthropic", ["Both are written."]) as provider:
        swink.use(provider)
        some = await swink("-p", "--resume", session, "--answer", f"{second}=yes", *FILES, "--output", "json")
        assert provider.bodies == [], "the model is asked when nothing waits"
        assert outcomes(swink, session) == ["pending", "ran"]
        rest = await swink("-p", "--continue", "--answer", f"{first}=YES", *FILES, "--output", "json")
    assert (some.code, rest.code) == (5, 0), (some, rest)
    told, answer = json.loads(some.stdout), json.loads(rest.stdout)
    [waiting] = told.pop("pending")
    assert waiting == {
        "call_id": first,
        "name": "write_file",
        "arguments": {"path": "a.txt", "content": "a.txt\n"},
        "kind": "approval",
        "reason": "the office decides",
        "scope": waiting["scope"],
        "delegates": [],
    }
    assert (told["exit_code"], told["error"], told["stop_reason"], told["turns"]) == (5, None, "tool_use", 0)
    assert (answer["exit_code"], answer["text"], answer["pending"], answer["turns"]) == (0, "Both are written.", [], 1)
    assert [(swink.folder / name).exists() for name in ("a.txt", "b.txt")] == [True, True]


async def test_waiting_calls_are_named_without_asking_a_model(swink: Any) -> None:
    session, (first, outside, foreign) = application(
        swink, write("a.txt"), call("ship", order=7), call("refund", order=8)
    )
    async with FakeProvider("anthropic", []) as provider:
        swink.use(provider)
        done = await swink("-p", "--resume", session, *FILES)
        quiet = await swink("-p", "-q", "--resume", session, *FILES)
        lines = (await swink("-p", "--resume", session, *FILES, "--output", "stream-json")).stdout.splitlines()
    assert (done.code, done.stdout, quiet.code, quiet.stderr) == (5, "", 5, "")
    assert done.stderr.splitlines() == [
        f"waiting: {first}: write_file a.txt (waits for an approval: the office decides)",
        f"waiting: {outside}: ship order=7 (waits for its result from outside)",
        f"waiting: {foreign}: refund order=8 (waits for an approval: the office decides)",
        "note: the application that made a call that runs outside must give its result (`agent.resume`). Here you can "
        "only reject it: --answer 'CALL=no: reason'",
        "note: there is no tool ship here: its application continues the session",
        "note: there is no tool refund here: its application continues the session",
        f"note: to approve the calls that wait: swink -p --resume {session} --answer {first}=yes",
    ]
    assert [call["call_id"] for call in json.loads(lines[-1])["pending"]] == [first, outside, foreign]
    assert provider.bodies == []


async def test_an_external_call_can_be_rejected_here_but_not_approved(swink: Any) -> None:
    session, (outside,) = application(swink, call("ship", order=7))
    async with FakeProvider("anthropic", ["Then not."]) as provider:
        swink.use(provider)
        yes = await swink("--resume", session, "--answer", f"{outside}=yes")
        no = await swink("--resume", session, "--answer", f"{outside}=no")
    assert yes.code == 2
    assert yes.stderr == (
        f"error: the call '{outside}' of ship runs outside, so it cannot be approved: its application gives the result "
        "with `resume`; here it can be rejected (--answer)\n"
    )
    assert (no.code, no.stdout) == (0, "Then not.\n")
    assert outcomes(swink, session) == ["rejected"]


async def test_a_call_of_a_tool_that_is_not_here_is_told_before_it_fails(swink: Any) -> None:
    session, (foreign,) = application(swink, call("refund", order=8))
    async with FakeProvider("anthropic", ["It could not be done."]) as provider:
        swink.use(provider)
        done = await swink("--resume", session, "--answer", f"{foreign}=yes")
    assert done.code == 0
    assert done.stderr == f"warning: the call '{foreign}' cannot run here: there is no tool 'refund'\n"
    assert outcomes(swink, session) == ["unknown_tool"]


@pytest.mark.parametrize("flags", [("--deny", "write_file: a.txt"), ("--approve", "none")], ids=["deny", "none"])
async def test_calls_that_may_not_run_can_be_rejected_but_not_approved(swink: Any, flags: tuple[str, ...]) -> None:
    session, (first, second) = application(swink, write("a.txt"), write("b.txt"))
    async with FakeProvider("anthropic", ["Neither."]) as provider:
        swink.use(provider)
        given = ("--answer", f"{first}=yes", "--answer", f"{second}=no")
        yes = await swink("--resume", session, *given, *FILES, *flags)
        assert (yes.code, yes.stderr.count("\n"), provider.bodies) == (2, 1, [])
        assert yes.stderr.startswith(f"error: the call '{first}' cannot be approved here: ")
        assert outcomes(swink, session) == ["pending", "pending"]
        given = ("--answer", f"{first}=no", "--answer", f"{second}=no")
        no = await swink("--resume", session, *given, *FILES, *flags, "--output", "json")
    assert (no.code, no.stderr) == (0, "")
    assert [one["arguments"]["path"] for one in json.loads(no.stdout)["rejected"]] == ["a.txt", "b.txt"]


async def test_answers_lead_to_a_value_of_a_schema(swink: Any) -> None:
    session, (first, second) = application(swink, write("a.txt"), write("b.txt"))
    schema = '{"type": "object", "properties": {"files": {"type": "integer"}}, "required": ["files"]}'
    async with FakeProvider("anthropic", [FakeReply(calls=[("final_answer", {"files": 2})])]) as provider:
        swink.use(provider)
        flags = (*FILES, "--schema", schema, "--output", "json")
        waits = await swink("-p", "--resume", session, "--answer", f"{first}=yes", *flags)
        done = await swink("-p", "--resume", session, "--answer", f"{second}=yes", *flags)
    assert (waits.code, json.loads(waits.stdout)["value"]) == (5, None), waits
    assert (done.code, json.loads(done.stdout)["value"]) == (0, {"files": 2}), done


async def test_a_prompt_gives_up_what_waits_and_says_so(swink: Any) -> None:
    session, _ = application(swink, write("a.txt"), write("b.txt"))
    async with FakeProvider("anthropic", ["As you like."]) as provider:
        swink.use(provider)
        done = await swink("-p", "Never mind.", "--resume", session, *FILES)
    assert (done.code, done.stdout) == (0, "As you like.\n")
    assert done.stderr == (
        "warning: 2 calls that wait are rejected, because there is a prompt and no answer (--answer)\n"
    )
    assert outcomes(swink, session) == ["rejected", "rejected"]


# -- wrong answers -------------------------------------------------------------------------------------------


def test_wrong_answers_are_reported_in_one_line_before_anything_happens(
    swink: Any, refused: Callable[..., str]
) -> None:
    session, (first, outside) = application(swink, write("a.txt"), call("ship", order=7))
    path = store_of(swink).load(session).path
    before = path.read_bytes()
    resumed = ("--resume", session)
    wrong = {
        (*resumed, "--answer", first): f"'{first}' is not an answer: an answer is CALL=yes",
        (*resumed, "--answer", f"{first}=maybe"): f"'{first}=maybe' is not an answer",
        (*resumed, "--answer", "=yes"): "'=yes' is not an answer",
        (*resumed, "--answer", ""): "'' is not an answer",
        (*resumed, "--answer", "call_99=yes"): f"the call 'call_99' does not wait for an answer: {first}, {outside} do",
        (*resumed, "--answer", f"{first}=yes", "--answer", "x=no"): "the call 'x' does not wait",
        (*resumed, "--answer", f"{first}=yes", "--answer", f"{first}=no"): f"the call '{first}' has two answers",
        (*resumed, "--answer", f"{outside}=yes"): "it cannot be approved",
        (*resumed, "-p", "and this", "--answer", f"{first}=yes"): "a prompt rejects the calls that wait",
        (*resumed, "--file", "x.pdf", "--answer", f"{first}=yes"): "--file goes with a prompt",
        (*resumed, "--image", "x.png", "--answer", f"{first}=yes"): "--image goes with a prompt",
        ("--answer", f"{first}=yes"): "--answer needs a session: give --resume ID",
        ("-p", "--resume", "nothing", "--answer", f"{first}=yes"): "there is no session 'nothing'",
        ("sessions", "list", "--answer", f"{first}=yes"): "swink sessions list has no option '--answer'",
    }
    for arguments, said in wrong.items():
        assert said in refused(*arguments, ANTHROPIC_API_KEY="a-key-of-the-tests")
    assert path.read_bytes() == before
    assert not (swink.folder / "a.txt").exists()


async def test_without_a_waiting_call_an_answer_is_refused(swink: Any) -> None:
    session, (outside,) = application(swink, call("ship", order=7))
    async with FakeProvider("anthropic", ["No."]) as provider:
        swink.use(provider)
        await swink("--resume", session, "--answer", f"{outside}=no")
        again = await swink("--resume", session, "--answer", f"{outside}=no")
    assert again.code == 2
    assert again.stderr == (
        f"error: the call '{outside}' does not wait for an answer: none of this session does (--answer)\n"
    )


# -- sessions ------------------------------------------------------------------------------------------------


async def test_lists_and_pages_of_sessions_say_what_waits(swink: Any) -> None:
    before = await swink("sessions", "list")
    assert "WAITING" not in before.stdout
    session, (first, outside) = application(swink, write("a.txt"), call("ship", order=7))
    listed = await swink("sessions", "list")
    head, row = listed.stdout.splitlines()
    assert head.split() == ["ID", "AGE", "MESSAGES", "COST", "MODEL", "WAITING", "TITLE"]
    assert row.split()[-3:] == ["2", "Do", "it."]
    assert json.loads((await swink("sessions", "list", "--json")).stdout)[0]["pending"] == 2
    shown = (await swink("sessions", "show", session)).stdout.splitlines()
    at = shown.index("waiting      2 calls for an answer")
    assert shown[at + 1 : at + 4] == [
        f"             {first}: write_file a.txt (waits for an approval: the office decides)",
        f"             {outside}: ship order=7 (waits for its result from outside)",
        f"answer with  swink -p --resume {session} --answer {first}=yes",
    ]
    assert any(line.endswith("result of ship, pending") for line in shown)


async def test_a_shell_completes_the_calls_that_wait(swink: Any) -> None:
    session, (first, outside) = application(swink, write("a.txt"), call("ship", order=7))

    async def offered(typed: str) -> list[str]:
        line = f"swink --resume {session} {typed}"
        environ = {"_SWINK_COMPLETE": "bash_complete", "COMP_LINE": line, "COMP_WORDBREAKS": " =:"}
        return [row.partition(",")[2] for row in (await swink(environ=environ)).stdout.split()]

    assert await offered("--answer ") == [f"{first}=yes", f"{first}=no", f"{outside}=no"]
    assert await offered(f"--answer {first}=") == ["yes", "no"], "bash has completed what is before"
    assert await offered(f"--answer={first}=y") == ["yes"]
    session = "nothing"
    assert await offered("--answer ") == []


# -- at a terminal -------------------------------------------------------------------------------------------


async def test_at_a_terminal_the_ui_goes_on_with_the_answers_and_asks_the_rest(terminal: Any, swink: Any) -> None:
    session, (first, _, _) = application(swink, write("a.txt"), write("b.txt"), write("c.txt"))
    async with FakeProvider("anthropic", ["Two of three."]) as provider:
        swink.use(provider)
        await terminal.start("--inline", "--resume", session, "--answer", f"{first}=yes", *FILES)
        await terminal.expect("Call 1 of 2")
        await terminal.expect("b.txt")
        await terminal.expect("Run it? ")
        terminal.type("y\n")
        await terminal.expect("Call 2 of 2")
        await terminal.expect("Run it? ")
        terminal.type("no not that\n")
        await terminal.expect("Two of three.")
        terminal.type("/quit\n")
        assert await terminal.finish() == 0
    assert outcomes(swink, session) == ["ran", "ran", "rejected"]


@pytest.mark.sweep
async def test_the_module_itself_ends_with_exit_code_5(swink: Any) -> None:
    """In a process that shares nothing with others."""
    session, _ = application(swink, write("a.txt"))
    async with FakeProvider("anthropic", []) as provider:
        swink.use(provider)
        process = await swink.start("-p", "--resume", session)
        _, stderr = await asyncio.wait_for(process.communicate(), 50)
    assert process.returncode == 5
    assert b"waiting: " in stderr


async def test_a_call_that_waits_in_a_delegate_is_answered_by_its_whole_id(swink: Any) -> None:
    """The standard agent has the tool `task`, too: its delegate goes on where that of the application stopped."""
    files = [one for one in standard_tools(swink.folder, "off") if one.name == "write_file"]
    clerk = Agent(MODEL, tools=files, stream_fn=scripted(reply(write("a.txt"))))
    agent = Agent(
        MODEL,
        tools=[clerk.as_tool("task", "Does a task.")],
        stream_fn=scripted(reply(call("task", prompt="Write it."))),
        approve=lambda _: Defer(),
    )
    with store_of(swink).create(swink.folder) as session:
        session.attach(agent)
        [waiting] = (await agent.prompt("Do it.")).pending
    assert waiting.delegates == ("task",)
    async with FakeProvider("anthropic", ["The clerk is done.", "All is done."]) as provider:
        swink.use(provider)
        named = await swink("-p", "--resume", session.id)
        done = await swink("-p", "--resume", session.id, "--answer", f"{waiting.call_id}=no: not now")
    assert named.code == 5
    assert named.stderr.startswith(f"waiting: {waiting.call_id}: task > write_file a.txt (waits for an approval)\n")
    assert (done.code, done.stdout, done.stderr) == (0, "All is done.\n", "")
    assert "not now" in results(provider.bodies[0])[0], "the delegate reads the answer"
