"""Running a set: each case has its own agent and folder, is scored, and does not affect others."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent, CancellationToken, Cost, Redactor, Usage, tool
from swink_agent.core.types import AgentResult
from swink_agent.evals import (
    Attempt,
    AuditTrail,
    EvalCase,
    EvalRunner,
    EvalSet,
    EvalStore,
    EvalStoreError,
    EvalTask,
    Invocation,
    Progress,
    Score,
    decode_attempt,
    encode_task,
)
from swink_agent.evals.runs.run_files import AttemptLog
from swink_agent.testing import ModelRequest, call, fail, scripted, stall


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def case(case_id: str = "a", **fields: Any) -> EvalCase:
    fields.setdefault("user_messages", ["1+2?"])
    fields.setdefault("expected_response", {"exact": "3"})
    return EvalCase(case_id, case_id.upper(), **fields)


def cases(count: int, **fields: Any) -> EvalSet:
    return EvalSet("sums", "Sums", [case(f"c{number}", **fields) for number in range(count)])


def adder(_case: EvalCase, _folder: Path) -> Agent:
    stream = scripted(call("add", a=1, b=2), "3", usage=Usage(total=10), cost=Cost(total=0.5))
    return Agent("test:m", stream_fn=stream, tools=[add], system_prompt="Add.")


def saying(*replies: Any, **more: Any) -> Callable[[EvalCase, Path], Agent]:
    return lambda _case, _folder: Agent("test:m", stream_fn=scripted(*replies), **more)


def content(path: str) -> str:
    return Path(path).read_text()


class Nameless:
    name = None

    def evaluate(self, _case: EvalCase, _invocation: Invocation) -> None: ...


def names_beneath(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


# -- what is run -----------------------------------------------------------------------------------------------------


async def test_a_set_runs_and_its_results_are_in_its_order() -> None:
    run = await EvalRunner(adder, parallel=3).run(cases(7))
    assert [result.case_id for result in run.results] == [f"c{number}" for number in range(7)]
    assert all(result.passed for result in run.results)
    assert run.set_id == "sums"
    summary = run.summary
    assert (summary.total, summary.passed, summary.failed, summary.pass_rate) == (7, 7, 0, 1.0)
    assert (summary.cost, summary.tokens) == (pytest.approx(7.0), 140)
    assert summary.seconds > 0
    (attempt,) = run.results[0].attempts
    assert list(attempt.scores) == ["response"]
    assert (attempt.invocation.response, attempt.turns, attempt.calls) == ("3", 2, 1)
    assert attempt.versions.model == "test:m"
    assert list(attempt.versions.tools) == ["add"]
    assert run.is_complete
    assert AuditTrail.verify(run) == []


async def test_each_attempt_has_a_folder_of_its_own_with_the_files_of_the_case() -> None:
    folders: list[Path] = []

    def make(given: EvalCase, folder: Path) -> Agent:
        assert (folder / "in" / "a.txt").read_text() == "hello\n"
        (folder / "out.txt").write_text(given.id)
        folders.append(folder)
        return Agent("test:m", stream_fn=scripted("ok"))

    eval_set = EvalSet(
        "files",
        "Files",
        [
            EvalCase(
                name, name, ["go"], setup={"in/a.txt": "hello\n"}, expected_files=[{"path": "out.txt", "content": name}]
            )
            for name in ("a/b", "..", "c")
        ],
    )
    run = await EvalRunner(make, repeat=2).run(eval_set)
    assert run.summary.passed == 3, [result.scores for result in run.results]
    assert len(set(folders)) == 6
    assert not any(folder.exists() for folder in folders)


async def test_folders_stay_where_somebody_asks_for_them(tmp_path: Path) -> None:
    await EvalRunner(adder, folder=tmp_path / "work").run(cases(2, setup={"a.txt": "x"}))
    assert sorted(path.parent.name[:4] for path in (tmp_path / "work").rglob("a.txt")) == ["c0.1", "c1.1"]


async def test_each_message_is_sent_when_the_one_before_is_answered() -> None:
    seen: list[list[str]] = []

    def answer(request: ModelRequest) -> str:
        seen.append([type(message).__name__[:4] for message in request.messages])
        return str(len(seen))

    given = case(user_messages=["one", "two", "three"])
    run = await EvalRunner(saying(answer, answer, answer)).run(EvalSet("s", "S", [given]))
    assert seen == [["User"], ["User", "Assi", "User"], ["User", "Assi", "User", "Assi", "User"]]
    assert run.results[0].passed
    assert run.results[0].attempts[0].turns == 3


async def test_an_error_ends_the_conversation_and_fails_the_case_whatever_it_scored() -> None:
    given = case(user_messages=["one", "two"], expected_response={"regex": ""})
    run = await EvalRunner(saying(fail("auth", "bad key"))).run(EvalSet("s", "S", [given]))
    (result,) = run.results
    assert result.scores["response"].passed
    assert (result.passed, result.error) == (False, "bad key")
    assert result.attempts[0].turns == 1


async def test_a_run_that_waits_has_not_passed_and_says_what_waits() -> None:
    @tool(external=True)
    def ship(order: int) -> str:
        """Ships."""
        raise AssertionError

    given = case(user_messages=["one", "two"], expected_response={"regex": ""})
    run = await EvalRunner(saying(call("ship", order=1), "done", tools=[ship])).run(EvalSet("s", "S", [given]))
    (result,) = run.results
    assert not result.passed
    assert result.error is not None
    assert result.error.startswith("the run waits for an answer to ship (")
    assert result.attempts[0].turns == 1


@pytest.mark.parametrize("prompt", ["", "Something else.", lambda: "Something else."])
async def test_the_case_s_instructions_are_the_agent_s(prompt: Any) -> None:
    prompts: list[Any] = []

    def answer(request: ModelRequest) -> str:
        prompts.append(request.context.system_prompt)
        return "3"

    await EvalRunner(saying(answer, system_prompt=prompt)).run(cases(1, system_prompt="Be brief."))
    own = "Standard. Be brief. More."
    for given in (own, lambda: own):
        await EvalRunner(saying(answer, system_prompt=given)).run(cases(1, system_prompt="Be brief."))
    assert prompts == ["Be brief.", own, own]


# -- what fails ------------------------------------------------------------------------------------------------------


async def test_a_factory_that_fails_fails_its_case_alone() -> None:
    async def make(given: EvalCase, folder: Path) -> Agent:
        if given.id == "c1":
            raise RuntimeError("no model")
        return adder(given, folder) if given.id != "c2" else "an agent"  # pyright: ignore[reportReturnType]

    run = await EvalRunner(make).run(cases(4))
    assert [result.passed for result in run.results] == [True, False, False, True]
    assert run.results[1].error == "the agent could not be made: RuntimeError: no model"
    assert "which is not an Agent" in (run.results[2].error or "")
    assert AuditTrail.verify(run) == []


async def test_a_case_that_expects_nothing_fails() -> None:
    run = await EvalRunner(adder).run(cases(1, expected_response=None))
    assert (run.results[0].passed, run.results[0].scores) == (False, {})
    assert "no evaluator applies" in (run.results[0].error or "")


async def test_a_list_of_evaluators_takes_the_place_of_all() -> None:
    def short(_case: EvalCase, invocation: Invocation) -> Score:
        return Score(0.5, 0.5, f"{invocation.folder is not None}")

    def raises(_case: EvalCase, _invocation: Invocation) -> Score:
        raise ZeroDivisionError("oh")

    run = await EvalRunner(adder, [short, raises]).run(cases(2))
    assert list(run.results[0].scores) == ["short", "raises"]
    assert [result.passed for result in run.results] == [False, False]
    assert run.results[0].scores["short"].reason == "True"


async def test_an_attempt_that_takes_too_long_is_ended() -> None:
    def make(given: EvalCase, folder: Path) -> Agent:
        return saying(stall())(given, folder) if given.id == "c0" else adder(given, folder)

    run = await EvalRunner(make, timeout=2).run(cases(2))
    assert [result.passed for result in run.results] == [False, True]
    assert run.results[0].error == "the attempt took longer than 2 s and was stopped"


async def test_a_factory_or_an_evaluator_that_hangs_fails_its_attempt() -> None:
    async def make(given: EvalCase, folder: Path) -> Agent:
        if given.id == "c0":
            await asyncio.Event().wait()
        return adder(given, folder)

    async def ponders(given: EvalCase, _invocation: Invocation) -> Score:
        if given.id == "c1":
            await asyncio.Event().wait()
        return Score(1.0)

    run = await EvalRunner(make, [ponders], timeout=2).run(cases(3))
    assert [result.error for result in run.results] == [
        "the attempt took longer than 2 s and was stopped",
        "scoring the attempt took longer than 2 s and was stopped",
        None,
    ]


async def test_resources_of_an_agent_are_closed_and_it_may_ask_in_its_own_way() -> None:
    closed: list[str] = []

    class Subject:
        def __init__(self, given: EvalCase) -> None:
            self.agent = Agent("test:m", stream_fn=scripted(call("final_answer", sum=3)))
            self.id = given.id

        async def ask(self, message: str) -> Any:
            schema: dict[str, Any] = {"type": "object", "properties": {"sum": {"type": "integer"}}}
            return await self.agent.structured_output(message, schema)

        async def close(self) -> None:
            closed.append(self.id)
            raise OSError("it would not go")

    given = cases(2, expected_response={"schema": {"type": "object", "required": ["sum"]}})
    run = await EvalRunner(lambda given, _folder: Subject(given)).run(given)
    assert run.summary.passed == 2, run.results
    assert sorted(closed) == ["c0", "c1"]


# -- repeats ---------------------------------------------------------------------------------------------------------


async def test_repeats_give_a_mean_a_standard_error_and_pass_at_k() -> None:
    made: Counter[str] = Counter()

    def make(given: EvalCase, _folder: Path) -> Agent:
        made[given.id] += 1
        return Agent("test:m", stream_fn=scripted("3" if made[given.id] != 2 else "4"))

    run = await EvalRunner(make, repeat=4, parallel=1).run(cases(1))
    (result,) = run.results
    assert [attempt.passed for attempt in result.attempts] == [True, False, True, True]
    assert [attempt.number for attempt in result.attempts] == [1, 2, 3, 4]
    assert not result.passed
    assert not result.scores["response"].passed
    assert (result.mean, result.standard_error) == (0.75, pytest.approx(0.25))
    assert [result.pass_at(k) for k in (1, 2, 4)] == [0.75, 1.0, 1.0]
    with pytest.raises(ValueError, match="1 to 4"):
        result.pass_at(5)
    assert (run.summary.total, run.summary.passed) == (1, 0)


# -- progress and cancelling -----------------------------------------------------------------------------------------


async def test_progress_is_reported_from_the_beginning_to_the_end() -> None:
    seen: list[Progress] = []
    given = EvalSet("s", "S", [case("a"), case("b", expected_response={"exact": "4"})])
    await EvalRunner(adder, parallel=1, repeat=2).run(given, seen.append)
    assert [(one.done, one.passed, one.failed, one.attempts_done) for one in seen] == [
        *[(0, 0, 0, 1), (1, 1, 0, 2), (1, 1, 0, 3), (2, 1, 1, 4)]
    ]
    assert [one.total for one in seen] == [2] * 4
    assert seen[-1].cost == pytest.approx(4.0)
    assert seen[-1].latest is not None
    assert seen[-1].latest.case_id == "b"


async def test_a_display_is_told_before_the_first_attempt() -> None:
    class Display:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def begin(self, progress: Progress) -> None:
            self.seen.append(f"begin {progress.done}/{progress.total}")

        def __call__(self, progress: Progress) -> None:
            self.seen.append(f"{progress.done}/{progress.total}")

    display = Display()
    await EvalRunner(adder, parallel=1).run(cases(2), display)
    assert display.seen == ["begin 0/2", "1/2", "2/2"]


async def test_a_display_that_fails_is_not_called_again_and_stops_nothing() -> None:
    calls = 0

    async def fails(_progress: Progress) -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("no terminal")

    assert (await EvalRunner(adder).run(cases(3), fails)).summary.passed == 3
    assert calls == 1


async def test_at_most_so_many_run_at_once() -> None:
    now = most = 0

    def counted(_case: EvalCase, _folder: Path) -> Any:
        class Subject:
            agent = Agent("test:m", stream_fn=scripted("3"))

            async def ask(self, message: str) -> AgentResult:
                nonlocal now, most
                now += 1
                most = max(most, now)
                for _ in range(5):
                    await asyncio.sleep(0)
                now -= 1
                return await self.agent.prompt(message)

        return Subject()

    await EvalRunner(counted, parallel=3).run(cases(12))
    assert most == 3


async def test_a_run_that_is_cancelled_gives_what_was_done(tmp_path: Path) -> None:
    cancel = CancellationToken()

    def make(given: EvalCase, folder: Path) -> Agent:
        return adder(given, folder) if given.id in ("c0", "c1") else saying(stall())(given, folder)

    def watch(progress: Progress) -> None:
        if progress.done == 2:
            cancel.cancel()

    for store in (None, EvalStore(tmp_path)):
        cancel = CancellationToken()
        run = await EvalRunner(make, parallel=2, store=store).run(cases(5), watch, cancel=cancel)
        assert [result.case_id for result in run.results] == ["c0", "c1"]
        assert (run.is_complete, run.cases) == (False, 5)
        assert run.results[0].attempts[0].invocation.response == "3"


# -- the store -------------------------------------------------------------------------------------------------------


async def test_a_finished_case_is_on_disk_before_it_is_reported(tmp_path: Path) -> None:
    store = EvalStore(tmp_path)

    def look(progress: Progress) -> None:
        (info,) = store.list("sums")
        assert not info.is_complete
        assert len(store.load(info).results) == progress.done

    run = await EvalRunner(adder, store=store, parallel=1).run(cases(4), look)
    (info,) = store.list()
    assert (info.id, info.is_complete, info.path) == (run.id, True, run.path)
    assert store.load(run.id).results == run.results
    assert AuditTrail.verify(run) == []
    assert names_beneath(tmp_path) == [f"{run.id}.json"]


async def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    store = EvalStore(tmp_path)
    made: Counter[str] = Counter()
    is_broken = True

    def make(given: EvalCase, folder: Path) -> Agent:
        made[given.id] += 1
        if is_broken and given.id == "c3":
            return saying(stall())(given, folder)
        return adder(given, folder)

    reached = asyncio.Event()
    runner = EvalRunner(make, store=store, parallel=1, repeat=2)
    task = asyncio.create_task(runner.run(cases(5), lambda one: reached.set() if one.done == 3 else None))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (interrupted,) = store.list()
    assert not interrupted.is_complete
    assert len(store.load(interrupted).results) == 3
    is_broken = False
    seen: list[Progress] = []
    changed = EvalSet("sums", "Sums", [*cases(5).cases[:2], case("c2", budget={"turns": 9}), *cases(5).cases[3:]])
    run = await runner.run(changed, seen.append, resume=True)
    assert run.id == interrupted.id
    assert run.is_complete
    assert run.summary.passed == 5
    assert seen[0].resumed == 4
    assert (seen[0].done, seen[0].attempts_done) == (2, 5)
    # What was done is not done again; a case that says something else now is.
    assert {name: made[name] for name in ("c0", "c1", "c2", "c4")} == {"c0": 2, "c1": 2, "c2": 4, "c4": 2}
    assert AuditTrail.verify(store.load(run.id)) == []
    another = await runner.run(changed, resume=True)
    assert another.id != run.id


async def test_resuming_needs_a_store_and_a_run_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="from a store"):
        await EvalRunner(adder).run(cases(1), resume=True)
    store = EvalStore(tmp_path)
    slow = EvalRunner(saying(stall()), store=store)
    task = asyncio.create_task(slow.run(cases(1)))
    while not store.list():  # noqa: ASYNC110 - there is no event for the file
        await asyncio.sleep(0.01)
    other = await EvalRunner(adder, store=store).run(cases(1), resume=True)
    assert other.is_complete
    assert len(store.list()) == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
async def test_a_disk_that_is_full_ends_the_run_with_the_file_s_name(tmp_path: Path) -> None:
    class FullStore(EvalStore):
        def begin(self, *_: Any) -> AttemptLog:
            return AttemptLog(tmp_path / "run.partial", os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC), 0)

    with pytest.raises(EvalStoreError, match=r"run\.partial: cannot be written: No space left"):
        await EvalRunner(adder, store=FullStore(tmp_path)).run(cases(20))


async def test_with_a_store_memory_holds_no_trajectories(tmp_path: Path) -> None:
    run = await EvalRunner(saying("word " * 50_000 + "3"), store=EvalStore(tmp_path)).run(
        cases(8, expected_response={"contains": "3"})
    )
    gc.collect()
    assert not [value for value in gc.get_objects() if isinstance(value, Invocation)]
    assert len(run.results[7].attempts[0].invocation.response) == 250_001


async def test_no_secret_of_the_agent_lands_in_a_result(tmp_path: Path) -> None:
    secret = "hunter2-hunter2-hunter2"

    def make(_case: EvalCase, _folder: Path) -> Agent:
        stream = scripted(call("add", a=1, b=2, note=secret), f"3 {secret}")
        return Agent("test:m", stream_fn=stream, tools=[add], redactor=Redactor([secret], environment={}))

    def gossips(_case: EvalCase, invocation: Invocation) -> Score:
        return Score(1.0, reason=f"it said {invocation.response}")

    given = cases(1, user_messages=[f"use {secret}"], expected_response={"regex": secret}, metadata={"key": secret})
    run = await EvalRunner(make, [gossips], store=EvalStore(tmp_path)).run(given)
    assert run.results[0].passed
    assert "it said" in content(run.path)
    assert secret not in content(run.path)
    assert secret not in repr(run.results[0].attempts[0].invocation.messages)
    assert AuditTrail.verify(run) == []


# -- executors -------------------------------------------------------------------------------------------------------

WORKER = """
import asyncio, sys
from swink_agent import Agent
from swink_agent.evals import CaseExecutor, decode_task, encode_attempt
from swink_agent.testing import scripted

async def main():
    executor = CaseExecutor(lambda case, folder: Agent("test:m", stream_fn=scripted("3")))
    attempt = await executor.execute(decode_task(sys.stdin.buffer.read()))
    await executor.drain()
    sys.stdout.buffer.write(encode_attempt(attempt))

asyncio.run(main())
"""


class Elsewhere:
    """Has each attempt made by another process, which gets bytes and gives bytes."""

    async def execute(self, task: EvalTask) -> Attempt:
        if task.case.id == "c1":
            raise ConnectionError("the machine is gone")
        pipe = asyncio.subprocess.PIPE
        worker = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, stdin=pipe, stdout=pipe)
        out, _ = await worker.communicate(encode_task(task))
        return decode_attempt(out)


async def test_attempts_can_be_made_by_another_process(tmp_path: Path) -> None:
    run = await EvalRunner(executor=Elsewhere(), store=EvalStore(tmp_path)).run(cases(2, setup={"a": "b"}))
    assert [result.passed for result in run.results] == [True, False]
    assert run.results[1].error == "the attempt could not be made: ConnectionError: the machine is gone"
    assert run.results[0].attempts[0].invocation.response == "3"
    assert AuditTrail.verify(run) == []
    assert json.loads(content(run.path))["schema_version"] == 1


def test_a_runner_needs_somebody_to_make_agents() -> None:
    with pytest.raises(ValueError, match="make_agent"):
        EvalRunner()
    with pytest.raises(ValueError, match="at least 1"):
        EvalRunner(adder, parallel=0)


@pytest.mark.table
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"parallel": "4"}, "^parallel must be a whole number, not a str$"),
        ({"parallel": 1.5}, "^parallel must be a whole number, not a float$"),
        ({"parallel": 0}, "^parallel must be at least 1, not 0$"),
        ({"repeat": None}, "^repeat must be a whole number, not a NoneType$"),
        ({"repeat": 0}, "^repeat must be at least 1, not 0$"),
        ({"retries": 0.5}, "^retries must be a whole number, not a float$"),
        ({"timeout": "3"}, "^timeout must be a number of seconds, not a str$"),
        ({"timeout": 0}, "^timeout must be a positive number of seconds, not 0$"),
        ({"store": "results"}, "^store must be an EvalStore, or None, not a str$"),
        ({"executor": 3}, "^executor must be an Executor, or None, not an int$"),
        ({"redactor": ["key"]}, "^redactor must be a Redactor, or None, not a list$"),
        ({"sleep": 3}, "^sleep must be a function, not an int$"),
        ({"evaluators": [Nameless()]}, "^the name of the evaluator Nameless must be a string, not a NoneType$"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(options: dict[str, Any], told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        EvalRunner(adder, **options)


async def test_other_values_than_sets_and_displays_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^eval_set must be an EvalSet, such as load_set"):
        await EvalRunner(adder).run("sums.yaml")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^on_progress must be a function, or None, not an int$"):
        await EvalRunner(adder).run(cases(1), on_progress=3)  # type: ignore[arg-type]


async def test_secrets_are_kept_out_of_what_agents_without_a_redactor_did(tmp_path: Path) -> None:
    secret = "correct-horse-battery-staple"

    def make(case: EvalCase, _folder: Path) -> Agent:
        if case.id == "broken":
            raise RuntimeError(f"401 for {secret}")
        return Agent("test:m", stream_fn=scripted(f"it is {secret}"))

    cases = [EvalCase(name, "A", ["hi"], expected_response={"exact": "no"}) for name in ("told", "broken")]
    redactor = Redactor([secret], environment={})
    runner = EvalRunner(make, store=EvalStore(tmp_path), redactor=redactor)
    run = await runner.run(EvalSet("s", "S", cases))
    with open(run.path) as file:  # noqa: ASYNC230
        assert secret not in file.read()
    assert "[redacted" in (run.result("broken").error or "")
    assert "[redacted" in run.result("told").attempts[0].invocation.response
    assert AuditTrail.verify(run) == []


async def test_a_cancellation_that_nobody_asked_for_costs_its_attempt_and_not_the_run() -> None:
    """A library that leaks one from its own tasks, in a factory, a tool or an evaluator, is a failure like others."""

    async def make(case: EvalCase, _folder: Path) -> Agent:
        if case.id.startswith("factory"):
            raise asyncio.CancelledError("leaked")
        return Agent("test:m", stream_fn=scripted("hi"))

    async def leaks(case: EvalCase, _invocation: Invocation) -> Score | None:
        if case.id.startswith("evaluator"):
            raise asyncio.CancelledError
        return Score(1.0)

    def exits(case: EvalCase, _invocation: Invocation) -> Score | None:
        if case.id == "thread":
            raise asyncio.CancelledError
        return None

    ids = ["factory1", "factory2", "evaluator1", "evaluator2", "thread", "good"]
    runner = EvalRunner(make, [leaks, exits], parallel=2)
    run = await asyncio.wait_for(runner.run(EvalSet("s", "S", [case(name) for name in ids])), 60)
    assert run.is_complete
    assert [(result.case_id, result.passed) for result in run.results] == [(name, name == "good") for name in ids]
    assert run.result("factory1").error == "the agent could not be made: CancelledError: leaked"
    assert run.result("evaluator1").scores["leaks"].reason == "the evaluator failed: CancelledError: "
    assert run.result("thread").scores["exits"].reason == "the evaluator failed: CancelledError: "
    assert run.result("thread").scores["leaks"].passed
