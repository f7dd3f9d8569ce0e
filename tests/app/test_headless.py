"""From one prompt to an exit code and the output on stdout."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    Agent,
    CancellationToken,
    CompactionContext,
    Cost,
    Defer,
    DelegateEvent,
    Stop,
    Usage,
    decode_event,
    tool,
)
from swink_agent.app.errors import ExitCode, NoModel
from swink_agent.app.runs.headless import HeadlessRun, Outcome
from swink_agent.app.runs.output import output_for
from swink_agent.core.errors import Aborted
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.memory import JsonlSessionStore
from swink_agent.testing import call, check_events, fail, scripted, stall, text, truncated

SECRET = "canary-of-the-tests-4711"


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


class Always:
    name = "always"

    def pre_turn(self, ctx: Any) -> Stop:
        return Stop("enough is enough")


def agent(*replies: Any, **options: Any) -> Agent:
    stream_fn = scripted(*replies, usage=Usage(10, 5, total=15), cost=Cost(total=0.25))
    return Agent("any:model", stream_fn=stream_fn, tools=[add], **options)


async def outcome_of(made: Agent, **options: Any) -> Outcome:
    return await HeadlessRun(made, **options).run("go")


async def test_an_answer_is_done_and_everything_is_counted() -> None:
    outcome = await outcome_of(
        agent(text("let me see") + call("add", a=1, b=2), text("It is 3.")), clock=iter([1.0, 3.5]).__next__
    )
    assert outcome == Outcome(
        exit_code=ExitCode.DONE,
        model=outcome.model,
        text="It is 3.",
        usage=Usage(20, 10, total=30),
        cost=Cost(total=0.5),
        turns=2,
        tool_calls=1,
        seconds=2.5,
    )
    assert outcome.is_answer


async def test_retries_and_useless_summaries_are_counted_as_on_record(tmp_path: Path) -> None:
    async def ask(messages: Any, overflow: bool) -> None:
        context = CompactionContext.current()
        assert context is not None
        await context.ask("Sum it up.")  # and nothing comes of it

    failed = fail("network", retry_after=0, usage=Usage(1, 1, total=2))
    made = agent("a summary", failed, text("It is 3."), async_transform_context=ask)
    with JsonlSessionStore(tmp_path).create() as session:
        session.attach(made)
        outcome = await outcome_of(made)
    assert (outcome.exit_code, outcome.turns) == (ExitCode.DONE, 1)
    assert outcome.usage.total == 15 + 2 + 15
    assert (outcome.usage, outcome.cost) == (session.info.usage, session.info.cost)


@pytest.mark.parametrize("fits", [True, False])
async def test_usage_of_values_that_did_not_fit_is_counted_as_on_record(tmp_path: Path, fits: bool) -> None:
    wrong, right = call("final_answer", n="three"), call("final_answer", n=3)
    failed = fail("network", retry_after=0, usage=Usage(1, 1, total=2))
    made = agent(wrong, failed, text("It is 3."), *([right] if fits else [wrong, wrong]))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    with JsonlSessionStore(tmp_path).create() as session:
        session.attach(made)
        outcome = await outcome_of(made, schema=schema)
    assert (outcome.exit_code, outcome.value) == ((ExitCode.DONE, {"n": 3}) if fits else (ExitCode.FAILED, None))
    assert outcome.usage.total == 2 + 15 * (3 if fits else 4)
    assert (outcome.usage, outcome.cost) == (session.info.usage, session.info.cost)


@pytest.mark.parametrize(
    ("replies", "code", "error"),
    [
        ([fail("invalid_request", "bad request")], ExitCode.FAILED, "bad request"),
        ([fail("auth", "key refused")], ExitCode.NO_MODEL, "key refused"),
        ([truncated("half an answer")], ExitCode.LIMIT, "the reply was cut off at the model's output limit"),
    ],
)
async def test_other_ends_have_their_own_codes(replies: list[Any], code: ExitCode, error: str) -> None:
    outcome = await outcome_of(agent(*replies))
    assert (outcome.exit_code, outcome.error) == (code, error)


async def test_a_policy_that_stops_is_a_limit() -> None:
    outcome = await outcome_of(agent(text("x"), policies=[Always()]))
    assert outcome.exit_code == ExitCode.LIMIT
    assert outcome.error == "always stopped the run: enough is enough"
    assert not outcome.is_answer


async def test_time_runs_out() -> None:
    outcome = await outcome_of(agent(text("half") + stall()), timeout=1)
    assert outcome.exit_code == ExitCode.LIMIT
    assert outcome.error == "stopped after 1 seconds (--timeout)"
    assert (outcome.text, outcome.is_answer) == ("half", False)


async def test_an_interrupt_from_another_thread_ends_it_cleanly() -> None:
    made = agent(text("half") + stall())
    run = HeadlessRun(made)
    events: list[Any] = []

    def see(event: Any) -> None:
        events.append(event)
        if type(event).__name__ == "MessageUpdate":
            threading.Thread(target=run.interrupt).start()

    made.subscribe(see)
    outcome = await run.run("go")
    assert (outcome.exit_code, outcome.error) == (ExitCode.INTERRUPTED, "interrupted")
    check_events(events)


async def test_an_interrupt_before_the_run_means_no_run() -> None:
    made = agent(text("never"))
    run = HeadlessRun(made)
    run.interrupt()
    assert (await run.run("go")).exit_code == ExitCode.INTERRUPTED
    assert len(made.messages) == 0


async def test_an_interrupt_that_comes_too_late_takes_nothing_away() -> None:
    made = agent(text("done"))
    run = HeadlessRun(made)
    made.subscribe(lambda event: run.interrupt() if type(event).__name__ == "AgentEnd" else None)
    assert (await run.run("go")).exit_code == ExitCode.DONE


async def test_steps_before_the_run_may_fail_or_be_interrupted() -> None:
    def no_model(cancel: CancellationToken) -> None:
        raise NoModel("it cannot be fetched")

    outcome = await outcome_of(agent(text("x")), prepare=no_model)
    assert (outcome.exit_code, outcome.error) == (ExitCode.NO_MODEL, "it cannot be fetched")
    assert outcome.stop_reason == "error", "nothing was asked, so nothing came to its end"

    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    def endless(cancel: CancellationToken) -> None:
        loop.call_soon_threadsafe(started.set)
        waited = threading.Event()
        cancel.add_callback(waited.set)
        waited.wait()
        raise Aborted

    run = HeadlessRun(agent(text("x")), prepare=endless)
    running = asyncio.ensure_future(run.run("go"))
    await started.wait()
    run.interrupt()
    assert (await running).exit_code == ExitCode.INTERRUPTED


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def test_a_schema_gives_a_value() -> None:
    outcome = await outcome_of(agent(call("final_answer", n=3)), schema=SCHEMA)
    assert (outcome.exit_code, outcome.value, outcome.has_value) == (ExitCode.DONE, {"n": 3}, True)
    assert outcome.stopped_by is None


async def test_a_schema_that_is_never_met_fails_and_a_limit_is_a_limit() -> None:
    outcome = await outcome_of(agent(*[text("no")] * 4), schema=SCHEMA)
    assert outcome.exit_code == ExitCode.FAILED
    assert outcome.error is not None
    assert "no valid structured output" in outcome.error
    assert (await outcome_of(agent(policies=[Always()]), schema=SCHEMA)).exit_code == ExitCode.LIMIT
    timed = await outcome_of(agent(stall()), schema=SCHEMA, timeout=0.02)
    assert timed.exit_code == ExitCode.LIMIT


# -- stdout --------------------------------------------------------------------------------------------------


async def test_an_answer_beside_a_call_that_waits_is_not_called_a_stop() -> None:
    made = agent(
        [call("add", a=1, b=2), call("final_answer", n=3)], approval_mode="enabled", approve=lambda request: Defer()
    )
    outcome = await outcome_of(made, schema=SCHEMA)
    assert (outcome.exit_code, outcome.error, outcome.stopped_by) == (ExitCode.WAITING, None, None)
    assert [waiting.name for waiting in outcome.pending] == ["add"]
    assert not outcome.has_value


async def written(made: Agent, format_name: str, **options: Any) -> str:
    pieces: list[str] = []
    run = HeadlessRun(made, **options)
    output = output_for(format_name, pieces.append, Redactor([SECRET]), lambda: run.interrupt("output"))
    with made.subscribe(output.on_event):
        output.finish(await run.run("go"))
    assert output.error is None
    return "".join(pieces)


async def test_text_is_the_last_answer_and_nothing_else() -> None:
    assert await written(agent(text("first") + call("add", a=1, b=2), text("It is 3.")), "text") == "It is 3.\n"
    assert await written(agent(text("It is 3.\n")), "text") == "It is 3.\n"
    assert await written(agent(text("")), "text") == ""
    assert await written(agent(fail("invalid_request")), "text") == ""
    assert await written(agent(text("half") + stall()), "text", timeout=0.02) == ""
    assert await written(agent(truncated("half an answer")), "text") == "half an\n"
    assert json.loads(await written(agent(call("final_answer", n=3)), "text", schema=SCHEMA)) == {"n": 3}


async def test_json_is_one_object_whatever_happened() -> None:
    fields = json.loads(await written(agent(text("It is 3.")), "json"))
    assert fields.pop("seconds") >= 0
    assert fields == {
        "text": "It is 3.",
        "exit_code": 0,
        "error": None,
        "error_kind": None,
        "stop_reason": "stop",
        "stopped_by": None,
        "model": "any:model",
        "served_models": [],
        "usage": {"input": 10, "output": 5, "cache_read": 0, "cache_write": 0, "total": 15, "extra": {}},
        "cost": {"input": 0.0, "output": 0.0, "cache_read": 0.0, "cache_write": 0.0, "total": 0.25, "extra": {}},
        "turns": 1,
        "tool_calls": 0,
        "rejected": [],
        "pending": [],
        "value": None,
        "session": None,
    }
    failed = json.loads(await written(agent(fail("auth", "no")), "json"))
    assert (failed["exit_code"], failed["error"], failed["error_kind"]) == (3, "no", "auth")
    stopped = json.loads(await written(agent(policies=[Always()]), "json"))
    assert stopped["stopped_by"] == {"policy": "always", "reason": "enough is enough"}
    assert json.loads(await written(agent(call("final_answer", n=3)), "json", schema=SCHEMA))["value"] == {"n": 3}


async def test_json_names_the_models_that_answered_each_once() -> None:
    model = scripted(call("add", a=1, b=2), text("3"), served_model="a-smaller-model")
    shown = json.loads(await written(Agent("any:model", stream_fn=model, tools=[add]), "json"))
    assert shown["served_models"] == ["a-smaller-model"]


async def test_delegates_are_counted_and_their_events_are_there() -> None:
    def calling() -> Agent:
        made = agent(call("research", prompt="look"), text("It is 3."))
        made.tools = [agent(call("add", a=1, b=2), text(f"3, {SECRET}")).as_tool("research", "Looks.")]
        return made

    fields = json.loads(await written(calling(), "json"))
    assert (fields["usage"]["total"], fields["cost"]["total"]) == (4 * 15, 4 * 0.25)
    assert (fields["turns"], fields["tool_calls"]) == (2, 1)
    shown = await written(calling(), "stream-json")
    *lines, last = shown.splitlines()
    events = [decode_event(line) for line in lines]
    check_events(events)
    inner = [event.event for event in events if isinstance(event, DelegateEvent)]
    check_events(inner)
    assert json.loads(last)["usage"]["total"] == 4 * 15
    assert SECRET not in shown


async def test_stream_json_is_the_events_that_the_library_reads_back() -> None:
    made = agent(call("add", a=1, b=2), text("It is 3.", deltas=3))
    seen: list[Any] = []
    made.subscribe(seen.append)
    *lines, last = (await written(made, "stream-json")).splitlines()
    events = [decode_event(line) for line in lines]
    result = json.loads(last)
    assert (result["type"], result["text"], result["exit_code"], result["turns"]) == ("result", "It is 3.", 0, 2)
    check_events(events)
    assert events == seen


async def test_secrets_are_in_no_format_whole_or_in_pieces() -> None:
    for format_name in ("text", "json", "stream-json"):
        made = agent(call("add", a=SECRET, b=2), text(f"The key is {SECRET}, I think.", deltas=40))
        output = await written(made, format_name)
        assert SECRET not in output
        joined = "".join(
            event["delta"]["delta"]
            for line in output.splitlines()
            if format_name == "stream-json" and (event := json.loads(line))["type"] == "message_update"
        )
        assert SECRET not in joined
        assert "[redacted:" in output


async def test_a_closed_output_ends_the_run_at_once() -> None:
    def closed(line: str) -> None:
        raise BrokenPipeError

    made = agent(call("add", a=1, b=2), text("never asked for"))
    run = HeadlessRun(made)
    output = output_for("stream-json", closed, Redactor(), lambda: run.interrupt("output"))
    with made.subscribe(output.on_event):
        outcome = await run.run("go")
    output.finish(outcome)
    assert isinstance(output.error, BrokenPipeError)
    assert outcome.exit_code == ExitCode.FAILED
