"""Durable runs and evaluations over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from swink_agent import Agent, AssistantMessage, Defer, ToolResultMessage, extract_text, tool
from swink_agent.evals import EvalRunner, EvalStore, load_set
from swink_agent.testing import ModelRequest, call, scripted, text
from swink_agent.web import app

from .conftest import Streamed, running
from .test_embedding import ask, by_header, mounted, store_at

SET = """
id: greetings
name: Greetings
cases:
  - {id: hello, name: Hello, user_messages: [hi], expected_response: {contains: Hello}}
  - {id: bye, name: Bye, user_messages: [bye], expected_response: {contains: Goodbye}}
"""


async def evaluated(folder: Path, *replies: str) -> str:
    """A run of the set, in the place where `swink web` looks; its id."""
    (folder / "set.yaml").write_text(SET)
    store = EvalStore(folder.parent / "data" / "evals")
    answers = dict(zip(("hello", "bye"), replies, strict=True))

    def make_agent(case: Any, _: Path) -> Agent:
        return Agent(model="anthropic:claude-sonnet-4-6", stream_fn=scripted(text(answers[case.id])))

    run = await EvalRunner(make_agent, store=store).run(load_set(folder / "set.yaml"))
    return run.id


async def test_evaluations_are_listed_read_reported_and_compared(folder: Path) -> None:
    before = await evaluated(folder, "Hello!", "What?")
    after = await evaluated(folder, "Hello!", "Goodbye!")
    async with running(folder, text("x")) as client:
        _, found = await client.ask("GET", "evals")
        assert [run["id"] for run in found["runs"]] == [after, before]
        assert {run["path"] for run in found["runs"]} == {""}, "where files are is nobody's business"
        status, run = await client.ask("GET", f"evals/{before}")
        assert (status, run["id"], run["set_id"], run["summary"]["passed"]) == (200, before, "greetings", 1)
        assert {result["case_id"]: result["passed"] for result in run["results"]} == {"hello": True, "bye": False}
        _, case = await client.ask("GET", f"evals/{before}/cases/bye")
        assert [message["role"] for message in case["attempts"][0]["messages"]] == ["user", "assistant"]
        assert (await client.ask("GET", f"evals/{before}/cases/none"))[0] == 404
        _, report = await client.ask("GET", f"evals/{before}/report?format=markdown")
        assert b"greetings" in report.lower()
        assert (await client.ask("GET", f"evals/{before}/report?format=pdf"))[0] == 422
        _, compared = await client.ask("GET", f"evals/compare?before={before}&after={after}")
        assert (compared["better"], compared["worse"]) == (["bye"], [])


async def test_calls_that_wait_in_durable_runs_are_answered(tmp_path: Path) -> None:
    pytest.importorskip("dbos")
    from swink_agent.durable import Durable

    @tool(external=True)
    def ship(order: str) -> str:
        """Ships."""
        raise AssertionError

    @tool(requires_approval=True)
    def pay(order: str) -> str:
        """Pays."""
        return f"paid {order}"

    script = [call("ship", order="17"), call("ship", order="18"), call("pay", order="17"), text("Done.")]

    def reply(request: ModelRequest) -> Any:  # in each attempt, the script's calls have the same ids again
        return script[sum(isinstance(message, AssistantMessage) for message in request.messages)]

    durable = Durable(f"sqlite:///{tmp_path / 'runs.db'}")

    @durable.agent("shop")
    def shop() -> Agent:
        stream = scripted(*[reply] * len(script))
        return Agent("anthropic:claude-sonnet-4-6", stream_fn=stream, tools=[ship, pay], approve=lambda _: Defer())

    inner = app(lambda _: shop(), authorize=by_header, store=store_at(tmp_path), durable=durable, page=False)
    async with durable, mounted(inner) as base, aiohttp.ClientSession() as http, durable.worker(poll=0.05):
        run = await durable.submit("shop", "go", id="run-1")
        answers = f"{base}/api/v1/runs/run-1/answers"
        for given in ({"choice": "result", "result": "by sea"}, {"choice": "result", "result": {"by": "air"}}, {}):
            (waiting,) = (await run.result(timeout=20)).pending
            answer = {"call": waiting.call_id, "position": waiting.position, "choice": "approve", **given}
            assert await ask(http, "POST", answers, json=answer) == (200, {"counted": True})
        result = await run.result(timeout=20)
        assert (result.text, result.error) == ("Done.", None)
        told = [extract_text(message.content) for message in result.messages if isinstance(message, ToolResultMessage)]
        assert told == ["by sea", '{"by":"air"}', "paid 17"]


async def test_durable_runs_are_submitted_followed_and_cancelled(tmp_path: Path) -> None:
    pytest.importorskip("dbos")
    from swink_agent.durable import Durable

    durable = Durable(f"sqlite:///{tmp_path / 'runs.db'}")

    @durable.agent("greeter")
    def greeter() -> Agent:
        return Agent(model="anthropic:claude-sonnet-4-6", stream_fn=scripted(text("Hello.")))

    inner = app(lambda _: greeter(), authorize=by_header, store=store_at(tmp_path), durable=durable, page=False)
    async with durable, mounted(inner) as base, aiohttp.ClientSession() as http:
        runs = f"{base}/api/v1/runs"
        wanted = {"agent": "greeter", "prompt": "hi", "id": "run-1", "key": "acme"}
        assert (await ask(http, "POST", runs, "bob", json=wanted))[0] == 403, "bob may read, not operate"
        status, run = await ask(http, "POST", runs, json=wanted)
        assert (status, run["id"], run["status"], run["key"]) == (201, "run-1", "queued", "acme")
        status, problem = await ask(http, "POST", runs, json={**wanted, "prompt": "other"})
        assert (status, problem["code"]) == (409, "conflict")
        assert (await ask(http, "POST", runs, json={**wanted, "agent": "nobody"}))[0] == 422
        _, found = await ask(http, "GET", f"{runs}?status=queued")
        assert [one["id"] for one in found["runs"]] == ["run-1"]
        assert (await ask(http, "GET", f"{runs}/none"))[0] == 404
        status, problem = await ask(http, "POST", f"{runs}/run-1/retry")
        assert (status, problem["code"]) == (409, "over")
        answer = {"call": "call_1", "choice": "approve"}
        assert (await ask(http, "POST", f"{runs}/run-1/answers", json=answer))[0] == 409
        async with http.get(f"{runs}/run-1/events", headers={"x-user": "ada"}) as response:
            assert (await ask(http, "POST", f"{runs}/run-1/cancel", json={"reason": "enough"}))[1] == {"counted": True}
            events = await Streamed(response).until("end")
        assert events[-1][:2] == ("end", "end")
        numbers = [int(number) for number, _, _ in events[:-1]]
        assert numbers == list(range(1, len(numbers) + 1))
        back = {"x-user": "ada", "last-event-id": "end"}
        async with http.get(f"{runs}/run-1/events", headers=back) as response:
            assert response.status == 204
        _, run = await ask(http, "GET", f"{runs}/run-1")
        assert run["status"] == "cancelled"
