"""`swink worker`, `swink submit` and `swink runs`, as processes on one store."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal

import pytest

from .conftest import Swink, Terminal

APP = '''
from swink_agent import Agent, tool
from swink_agent.durable import Durable
from swink_agent.testing import Call, scripted, text

durable = Durable("sqlite:///store.db")
empty = Durable("sqlite:///store.db")
other = 17

@tool(requires_approval=True)
def refund(order: int) -> str:
    """Pays money back."""
    return f"refunded {order}"

@tool(external=True)
def measure(what: str) -> str:
    """Is measured elsewhere."""
    raise AssertionError

@durable.agent("support")
def support():
    from swink_agent import Defer
    replies = [Call("refund", {"order": 17}, "pay"), Call("measure", {"what": "it"}, "look"), text("All done.")]
    later = lambda _: Defer("over 10")
    return Agent("test:model", tools=[refund, measure], stream_fn=by_history(replies), approve=later)

@durable.agent("recurring")
def recurring():
    from swink_agent import Defer
    replies = [Call("refund", {"order": 17}, "call_1"), Call("refund", {"order": 18}, "call_1"), text("Both are paid.")]
    return Agent("test:model", tools=[refund], stream_fn=by_history(replies), approve=lambda _: Defer())

@durable.agent("broken")
def broken():
    raise RuntimeError("no such database")

def by_history(replies):
    def stream(model, context, options, cancel):
        count = sum(message.role == "assistant" for message in context.messages)
        return scripted(replies[count])(model, context, options, cancel)
    return stream
'''
URL = "sqlite:///store.db"


async def told(process: asyncio.subprocess.Process, words: str) -> str:
    assert process.stderr is not None
    while line := (await asyncio.wait_for(process.stderr.readline(), 40)).decode():
        if words in line:
            return line
    raise AssertionError(f"it never said {words!r}")


@pytest.fixture
def app(swink: Swink) -> Swink:
    (swink.folder / "app.py").write_text(APP)
    return swink


@pytest.mark.sweep
async def test_a_run_is_submitted_waits_is_answered_and_is_done(app: Swink) -> None:
    worker = await app.start("worker", "app:durable", "--slots", "2", "--poll", "0.1")
    try:
        assert "serves broken, recurring, support" in await told(worker, "serves")
        waiting = await app("submit", "app:durable", "support", "Refund 17", "--id", "o-17", "--key", "acme", "--wait")
        assert (waiting.code, waiting.stdout) == (5, "")
        assert 'waits: refund {"order": 17} (over 10)' in waiting.stderr
        assert "swink runs answer o-17 pay --approve | --reject REASON" in waiting.stderr

        (listed,) = json.loads((await app("runs", "list", "--url", URL, "--status", "waiting", "--json")).stdout)
        assert (listed["id"], listed["agent"], listed["key"], listed["status"]) == (
            "o-17",
            "support",
            "acme",
            "waiting",
        )
        assert [call["call_id"] for call in listed["pending"]] == ["pay"]

        changed = await app("runs", "answer", "o-17", "pay", "--with", '{"order": 18}', "--by", "ada", "--url", URL)
        assert (changed.code, changed.stderr) == (0, "")
        again = await app("submit", "app:durable", "support", "Refund 17", "--id", "o-17", "--wait", "--json")
        assert (again.code, json.loads(again.stdout)["pending"][0]["kind"]) == (5, "external")
        refused = await app("runs", "answer", "o-17", "pay", "--approve", "--url", URL)
        assert (refused.code, refused.stderr.count("\n")) == (1, 1)

        assert (await app("runs", "answer", "o-17", "look", "--result", "3 cm", "--url", URL)).code == 0
        done = await app("submit", "app:durable", "support", "Refund 17", "--id", "o-17", "--wait")
        assert (done.code, done.stdout) == (0, "All done.\n")

        lines = (await app("runs", "events", "o-17", "--app", "app:durable")).stdout.splitlines()
        assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))
        later = (await app("runs", "events", "o-17", "--after", "3", "--url", URL)).stdout.splitlines()
        assert later == lines[3:]
        assert any("refunded 18" in line for line in lines)
        assert any("ada" in line for line in lines)
        shown = (await app("runs", "show", "o-17", "--url", URL)).stdout
        assert "status    done" in shown
        assert shown.endswith("\nAll done.\n")

        failed = await app("submit", "app:durable", "broken", "hi", "--id", "b", "--wait")
        assert (failed.code, "no such database" in failed.stderr) == (1, True)
        assert (await app("runs", "retry", "b", "--url", URL)).code == 0
        assert (await app("runs", "retry", "o-17", "--url", URL)).code == 1

        stats = json.loads((await app("runs", "stats", "--url", URL, "--json")).stdout)
        assert stats["done"] == 1
        (one,) = stats["workers"]
        assert (one["slots"], one["agents"], one["pid"]) == (2, ["broken", "recurring", "support"], worker.pid)
    finally:
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(worker.wait(), 40) == 0


@pytest.mark.sweep
async def test_the_shown_command_answers_a_call_whose_id_recurs(app: Swink) -> None:
    worker = await app.start("worker", "app:durable", "--poll", "0.1")
    submit = ["submit", "app:durable", "recurring", "Refund", "--id", "r", "--wait"]
    try:
        await told(worker, "serves")
        waiting = await app(*submit)
        assert waiting.code == 5
        first = shown_command(waiting.stderr)
        assert (await app(*first, "--approve")).code == 0
        again = await app(*submit)
        assert again.code == 5
        second = shown_command((await app("runs", "show", "r", "--app", "app:durable")).stdout)
        assert second != first
        late = await app(*first, "--approve")
        assert (late.code, "no longer waits" in late.stderr) == (1, True)
        vague = await app("runs", "answer", "r", "call_1", "--approve", "--url", URL)
        assert (vague.code, "--at" in vague.stderr) == (1, True)
        assert (await app(*second, "--approve")).code == 0
        done = await app(*submit)
        assert (done.code, done.stdout) == (0, "Both are paid.\n")
        assert (await app(*submit)).stderr == "r is done\n"
    finally:
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(worker.wait(), 40) == 0


def shown_command(text: str) -> list[str]:
    """The command that is shown for a call that waits, without `swink` and the choice of answers."""
    (line,) = [line.strip() for line in text.splitlines() if "swink runs answer" in line]
    return shlex.split(line.replace("--approve | --reject REASON", ""))[1:]


@pytest.mark.sweep
async def test_without_a_worker_runs_are_queued_cancelled_and_pruned(app: Swink) -> None:
    queued = await app("submit", "app.py:durable", "support", "-", "--id", "q", "--priority", "7", stdin=b"From stdin")
    assert (queued.code, queued.stdout) == (0, "q\n")
    late = await app("submit", "app:durable", "support", "From stdin", "--id", "q", "--wait", "--timeout", "0.1")
    assert (late.code, "continues" in late.stderr) == (4, True)
    taken = await app("submit", "app:durable", "support", "Something else", "--id", "q")
    assert (taken.code, taken.stderr.count("\n")) == (1, 1)
    doctor = await app("doctor", environ={"SWINK_DURABLE_URL": URL})
    assert "1 queued run of the agent support, which no worker serves" in doctor.stdout
    assert (await app("runs", "cancel", "q", "not wanted", "--url", URL)).code == 0
    (listed,) = json.loads((await app("runs", "--url", URL, "--json")).stdout)
    assert (listed["status"], listed["error"], listed["priority"]) == ("cancelled", "not wanted", 7)
    assert json.loads((await app("runs", "prune", "--days", "0", "--url", URL, "--json")).stdout) == {"deleted": 1}
    missing = await app("runs", "show", "q", "--url", URL)
    assert (missing.code, missing.stderr) == (1, "error: there is no run 'q' in this store\n")


async def test_pruning_of_runs_asks_at_a_terminal(terminal: Terminal, app: Swink) -> None:
    await app("submit", "app:durable", "support", "Hi", "--id", "q")
    await app("runs", "cancel", "q", "--url", URL)
    for answer, left in (("n", 1), ("y", 0)):
        await terminal.start("runs", "prune", "--days", "0", "--url", URL)
        await terminal.expect("Delete all runs that ended at least 0 days ago? [y/N]:")
        terminal.type(f"{answer}\n")
        await terminal.finish()
        assert len(json.loads((await app("runs", "--url", URL, "--json")).stdout)) == left


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["worker", "app"], "write module:durable"),
        (["worker", "app:missing"], "cannot be loaded"),
        (["worker", "app:other"], "is an int, not a swink_agent.durable.Durable"),
        (["worker", "app:empty"], "has no agents"),
        (["submit", "app:durable", "nobody", "hi"], "there is no agent 'nobody' here"),
        (["submit", "app:durable", "support", "hi", "--priority", "1001"], "priority"),
        (["submit", "app:durable", "support", "hi", "--timeout", "1"], "--timeout needs --wait"),
        (["submit", "app:durable", "support", "hi", "--wait", "--timeout", "-1"], "--timeout cannot be -1"),
        (["runs", "--url", "mysql://a:secret@b/c"], "is not the address of a store"),
        (["runs", "stats", "--url", URL], "store.db: swink worker and swink submit create one"),
        (["runs", "list", "--url", URL, "--app", "app:durable"], "leave one out"),
        (["runs", "answer", "o", "c", "--url", URL], "give one answer"),
        (["runs", "answer", "o", "c", "--with", "[1]", "--url", URL], "a JSON object"),
    ],
)
async def test_wrong_usage_is_one_line_and_makes_no_store(app: Swink, arguments: list[str], said: str) -> None:
    done = await app(*arguments)
    assert (done.code, said in done.stderr, done.stderr.count("\n")) == (2, True, 1), done
    assert "secret" not in done.stderr
    assert not (app.folder / "store.db").exists()
