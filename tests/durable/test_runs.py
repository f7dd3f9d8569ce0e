"""Durable runs as an application uses them, with a worker in the same process."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from swink_agent import (
    Agent,
    AgentToolResult,
    Approve,
    ApproveWith,
    AssistantMessage,
    CustomMessage,
    Defer,
    Reject,
    Stop,
    StopReason,
    ToolContext,
    UserMessage,
    tool,
)
from swink_agent.core.errors import Aborted, AgentError, ContentFiltered, PolicyStopped
from swink_agent.core.journal import MessageAdded, RunStarted
from swink_agent.core.machine.extras import MissingExtra
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import extract_text
from swink_agent.durable import (
    Durable,
    DurableError,
    DurableRun,
    NotPending,
    RunConflict,
    RunNotFound,
    RunOver,
    StoreUnavailable,
)
from swink_agent.memory import NoteAdded, export_markdown, replay
from swink_agent.testing import ModelRequest, call, fail, scripted, text

from .postgres import PostgresServer


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@tool(requires_approval=True)
def refund(order: str) -> str:
    """Pays back."""
    return f"refunded {order}"


def adding() -> Agent:
    return Agent("test:model", stream_fn=scripted(call("add", a=2, b=3), text("5")), tools=[add])


def asking(*replies: Any, tools: Any = (refund,)) -> Callable[[], Agent]:
    """Makes a factory of agents that go on with the script where the history ends, and defer every question."""

    def reply(request: ModelRequest) -> Any:
        return replies[sum(isinstance(message, AssistantMessage) for message in request.messages)]

    def make() -> Agent:
        return Agent(
            "test:model", stream_fn=scripted(*[reply] * 20), tools=[*tools], approve=lambda _: Defer("ask ada")
        )

    return make


@asynccontextmanager
async def serving(url: str, *, worker: dict[str, Any] | None = None, **factories: Any) -> AsyncIterator[Durable]:
    """A store with these agents, and a worker."""
    async with Durable(url) as durable:
        for name, factory in factories.items():
            durable.agent(name)(factory)
        async with durable.worker(**{"poll": 0.05, **(worker or {})}):
            yield durable


# -- making and submitting -----------------------------------------------------------------------------------


def test_making_one_and_registering_loads_no_engine_and_touches_no_store(tmp_path: Path) -> None:
    import subprocess

    program = (
        "import sys\n"
        "from swink_agent.durable import Durable\n"
        f"durable = Durable('sqlite:///{tmp_path}/none.db')\n"
        "durable.agent('a')(lambda: None)\n"
        "print([name for name in ('dbos', 'sqlalchemy', 'psycopg') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert list(tmp_path.iterdir()) == []


def test_addresses_of_other_kinds_are_refused_and_no_password_is_shown() -> None:
    for wrong in ("mysql://u:topsecret@h/d", "topsecret", "sqlite:///", "sqlite://:memory:"):
        with pytest.raises(ValueError, match="address of a store") as caught:
            Durable(wrong)
        assert "topsecret" not in str(caught.value)
    with pytest.raises(TypeError, match="url must be the address of a store"):
        Durable(Path("runs.sqlite"))  # pyright: ignore[reportArgumentType]
    durable = Durable("postgresql://ada:topsecret@127.0.0.1:1/runs?sslmode=disable")
    assert "topsecret" not in repr(durable) + durable.url
    assert "ada@127.0.0.1:1" in durable.url


@pytest.mark.parametrize(
    "password", ["top/secret", "1/secret", "top#secret", "top?secret", "top@a/secret", "t@o/p?secret"]
)
def test_a_password_that_is_not_escaped_is_not_shown_either(password: str) -> None:
    durable = Durable(f"postgresql://ada:{password}@db.example/runs")
    for part in ("top", "secret", password.partition("/")[0]):
        assert part not in durable.url.removeprefix("postgresql:")


async def test_a_missing_store_is_unavailable_and_its_password_stays_hidden() -> None:
    async with Durable("postgresql://ada:topsecret@127.0.0.1:1/runs") as durable:
        with pytest.raises(StoreUnavailable) as caught:
            await durable.submit("any", "hello")
    assert "topsecret" not in str(caught.value)


def test_the_address_comes_from_the_environment_the_settings_or_the_data_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(tmp_path))
    monkeypatch.delenv("SWINK_DURABLE_URL", raising=False)
    assert Durable().url.startswith(f"sqlite:///{tmp_path}/data/")
    (tmp_path / "config.toml").write_text('[durable]\nurl = "sqlite:///from/settings.db"\n')
    assert Durable().url.endswith("from/settings.db")
    monkeypatch.setenv("SWINK_DURABLE_URL", "postgresql://host/runs")
    assert Durable().url == "postgresql://host/runs"


def test_an_agent_has_a_name_once_and_sensible_limits() -> None:
    durable = Durable("sqlite:///x.db")
    durable.agent("support")(adding)
    for name in ("support", "", "a b", "ä", "x" * 65):
        with pytest.raises(ValueError, match=r"name|already"):
            durable.agent(name)
    for wrong in ({"limit": 0}, {"limit_per_key": -1}, {"rate": (0, 1.0)}, {"progress": 0}, {"max_attempts": 0}):
        with pytest.raises(ValueError, match="positive"):
            durable.agent("other", **wrong)
    for pair in (3, (1, 1, 1), "ab", (1.5, 1)):
        with pytest.raises(ValueError, match=r"^rate must be \(runs, seconds\), both positive"):
            durable.agent("other", rate=pair)  # type: ignore[arg-type]
    for options in ({"progress": None}, {"back_off": "1"}):
        with pytest.raises(TypeError, match="must be a number of seconds"):
            durable.agent("other", **options)  # type: ignore[arg-type]


def test_a_store_or_worker_with_wrong_options_is_not_made(sqlite_url: str) -> None:
    for options, told in (
        ({"keep_days": "3"}, r"^keep_days must be a number of days, or None, not a str$"),
        ({"redactor": ["key"]}, r"^redactor must be a Redactor, or None, not a list$"),
        ({"types": 3}, r"^types must be a list of classes, not an int$"),
    ):
        with pytest.raises(TypeError, match=told):
            Durable("sqlite:///x.db", **options)  # type: ignore[arg-type]
    durable = Durable(sqlite_url)
    durable.agent("support")(adding)
    for options, told in (
        ({"slots": 1.5}, r"^slots must be a whole number, not a float$"),
        ({"lease": "30"}, r"^lease must be a number of seconds, not a str$"),
    ):
        with pytest.raises(TypeError, match=told):
            durable.worker(**options)  # type: ignore[arg-type]


async def test_invalid_submissions_are_refused_before_anything_happens(sqlite_url: str) -> None:
    async with Durable(sqlite_url) as durable:
        durable.agent("support")(adding)
        with pytest.raises(ValueError, match="no agent"):
            await durable.submit("other", "hello")
        for wrong in (
            {"id": "-x"},
            {"id": "a b"},
            {"priority": 1001},
            {"priority": -1},
            {"key": "\0"},
            {"key": "\ud800"},
            {"id": "x" * 129},
        ):
            with pytest.raises(ValueError, match=r"id of a run|priority|key"):
                await durable.submit("support", "hello", **wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"content|empty"):
            await durable.submit("support", " ")
        with pytest.raises(TypeError):
            await durable.submit("support", "hello", metadata={"x": object()})
        with pytest.raises(TypeError, match=r"^metadata must be a dict, not a NoneType$"):
            await durable.submit("support", "hello", metadata=None)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^days must be a number of days, not a str$"):
            await durable.prune("3")  # type: ignore[arg-type]
        assert await durable.runs() == ()


async def test_a_result_is_waited_for_while_the_store_cannot_be_reached(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, losses = DurableRun.load, [StoreUnavailable("gone"), StoreUnavailable("still gone")]

    async def failing(run: DurableRun) -> Any:
        if losses:
            raise losses.pop()
        return await load(run)

    monkeypatch.setattr(DurableRun, "load", failing)
    async with serving(sqlite_url, calc=adding) as durable:
        result = await (await durable.submit("calc", "2 + 3?")).result(60)
    assert (result.text, losses) == ("5", [])


async def test_the_same_id_is_the_same_run_and_another_prompt_a_conflict(kind: str, url: str) -> None:
    async with Durable(url) as durable:
        one = await durable.submit("support", "Refund order 17", id="order-17", key="acme", metadata={"a": [1]})
        again = await durable.submit("support", "Refund order 17", id="order-17")
        assert one.id == again.id
        assert [info.id for info in await durable.runs()] == ["order-17"]
        info = await one.info()
        assert (info.status, info.agent, info.key, info.metadata, info.attempts) == (
            "queued",
            "support",
            "acme",
            {"a": [1]},
            0,
        )
        for other in (("other", "Refund order 17", None), ("support", "Refund order 18", None)):
            with pytest.raises(RunConflict):
                await durable.submit(other[0], other[1], id="order-17")
        with pytest.raises(RunConflict, match="queued"):
            await durable.submit("support", "more", after="order-17")
        with pytest.raises(RunNotFound):
            await durable.submit("support", "more", after="nothing")
        for unknown in ("nothing", "no id at all", ""):
            with pytest.raises(RunNotFound):
                await durable.run(unknown)
        with pytest.raises(ValueError, match="status"):
            await durable.runs(status="asleep")  # type: ignore[arg-type]


@pytest.mark.sweep
async def test_lists_are_newest_first_and_can_be_narrowed(sqlite_url: str) -> None:
    async with Durable(sqlite_url) as durable:
        for number in range(4):
            await durable.submit("ab"[number % 2], "hello", id=f"r{number}", key=f"k{number // 2}")
        assert [info.id for info in await durable.runs()] == ["r3", "r2", "r1", "r0"]
        assert [info.id for info in await durable.runs(agent="a")] == ["r2", "r0"]
        assert [info.id for info in await durable.runs(key="k1", status="queued", limit=1)] == ["r3"]
        assert await durable.runs(status="done") == ()


# -- running -------------------------------------------------------------------------------------------------


async def test_a_run_is_done_and_its_records_are_those_of_a_session(kind: str, url: str) -> None:
    async with serving(url, calc=adding) as durable:
        run = await durable.submit("calc", "2+3?", id="one")
        result = await run.result(timeout=60)
        assert (result.text, result.stop_reason, result.error) == ("5", StopReason.STOP, None)
        assert [type(message).__name__ for message in result.messages] == [
            "UserMessage",
            "AssistantMessage",
            "ToolResultMessage",
            "AssistantMessage",
        ]
        info = await run.info()
        assert (info.status, info.attempts, info.worker) == ("done", 1, "")
        records = [record async for record in run.events()]
        assert [record.number for record in records] == list(range(1, info.position + 1))
        assert [record.at for record in records] == sorted(record.at for record in records)
        later = [record async for record in run.events(after=3)]
        assert later == records[3:]
        assert [record async for record in run.events(after=info.position)] == []
        with pytest.raises(ValueError, match="after must be at least 0, not -1"):
            await anext(run.events(after=-1))
        session = await run.load()
        assert session.messages == result.messages
        assert session.records() == tuple(records)
        assert [record.is_over for record in session.runs()] == [True]
        assert "2+3?" in export_markdown(session.info, session.messages)
        report = await replay(
            session, lambda stream_fn, wrap: Agent("test:model", stream_fn=stream_fn, tools=[wrap(add)])
        )
        assert report.divergence is None
        with pytest.raises(RunOver):
            await run.retry()
        assert await run.cancel() is False
        stats = await durable.stats()
        assert (stats.done, stats.queued, stats.lag, len(stats.workers)) == (1, 0, 0.0, 1)
        assert stats.workers[0].agents == ("calc",)
    async with Durable(url) as durable:
        assert (await durable.stats()).workers == ()


async def test_a_follower_comes_to_the_end_of_a_run_whose_last_record_is_damaged(sqlite_url: str) -> None:
    async with serving(sqlite_url, calc=adding) as durable:
        run = await durable.submit("calc", "2+3?")
        await run.result(timeout=60)
        whole = [record.number async for record in run.events()]
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as database, database:
            database.execute("UPDATE swink_records SET line = ? WHERE number = ?", (b"damaged", whole[-1]))
        async with asyncio.timeout(60):
            assert [record.number async for record in run.events()] == whole[:-1]


@pytest.mark.sweep
async def test_a_follower_sees_records_as_they_come_and_through_a_wait(sqlite_url: str) -> None:
    async with serving(sqlite_url, refunds=asking(call("refund", order="17"), text("paid"))) as durable:
        run = await durable.submit("refunds", "go")
        seen: list[int] = []

        async def follow() -> None:
            async for record in run.events():
                seen.append(record.number)

        follower = asyncio.create_task(follow())
        result = await run.result(timeout=60)
        assert [pending.name for pending in result.pending] == ["refund"]
        await run.answer(result.pending[0], True)
        await asyncio.wait_for(follower, 60)
        assert seen == list(range(1, (await run.info()).position + 1))


@pytest.mark.sweep
async def test_runs_of_agents_that_no_worker_has_stay_queued(sqlite_url: str) -> None:
    async with Durable(sqlite_url) as submitter, serving(sqlite_url, calc=adding) as durable:
        other = await submitter.submit("unknown", "hello")
        mine = await durable.submit("calc", "2+3?")
        await mine.result(timeout=60)
        assert (await other.info()).status == "queued"
        stats = await durable.stats()
        assert stats.queued_agents == {"unknown": 1}
        assert stats.lag > 0


@pytest.mark.sweep
async def test_a_factory_that_raises_fails_the_run_until_it_is_retried(
    kind: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = True

    async def make() -> Agent:
        if broken:
            raise RuntimeError("no database today")
        return adding()

    async with serving(url, calc=make) as durable:
        run = await durable.submit("calc", "2+3?")
        result = await run.result(timeout=60)
        assert (result.error, result.stop_reason) == ("no database today", StopReason.ERROR)
        assert (await run.info()).status == "failed"
        (said,) = [record.getMessage() for record in caplog.records if run.id in record.getMessage()]
        assert "no database today (RuntimeError, " in said
        assert "test_runs.py:" in said
        broken = False
        await run.retry()
        assert (await run.result(timeout=60)).text == "5"


async def test_a_factory_that_gives_no_agent_fails_the_run_at_once(sqlite_url: str) -> None:
    async with serving(sqlite_url, nothing=lambda: None) as durable:
        run = await durable.submit("nothing", "2+3?")
        result = await run.result(timeout=60)
        assert result.error == "the factory of agent 'nothing' gave a NoneType, not an Agent"
        assert (await run.info()).attempts == 1


@pytest.mark.sweep
async def test_errors_and_stops_of_policies_fail_a_run(sqlite_url: str) -> None:
    class Stopper:
        def post_turn(self, ctx: Any) -> Stop:
            return Stop("enough")

    agents = {
        "filtered": lambda: Agent("test:model", stream_fn=scripted(fail("content_filtered", "no"))),
        "stopped": lambda: Agent(
            "test:model", stream_fn=scripted(call("add", a=1, b=1)), tools=[add], policies=[Stopper()]
        ),
        "other": lambda: "not an agent",
    }
    async with serving(sqlite_url, **agents) as durable:
        runs = {name: await durable.submit(name, "go") for name in agents}
        results = {name: await run.result(timeout=60) for name, run in runs.items()}
        errors = {name: result.error for name, result in results.items()}
        for name, kind in {"filtered": ContentFiltered, "stopped": PolicyStopped, "other": AgentError}.items():
            with pytest.raises(kind):
                results[name].raise_for_error()
        assert "no" in str(errors["filtered"])
        assert "enough" in str(errors["stopped"])
        assert "not an Agent" in str(errors["other"])
        assert {(await run.info()).status for run in runs.values()} == {"failed"}


async def test_an_unreachable_model_is_asked_later_and_at_last_the_run_fails(kind: str, url: str) -> None:
    fails = {"good": 2, "bad": 1000}

    def make(name: str) -> Callable[[], Agent]:
        def reply(request: ModelRequest) -> Any:
            fails[name] -= 1
            return fail("network", "line cut") if fails[name] >= 0 else text("through")

        return lambda: Agent("test:model", stream_fn=scripted(*[reply] * 9), retry_strategy=Never())

    async with Durable(url) as durable:
        durable.agent("good", back_off=0.05)(make("good"))
        durable.agent("bad", back_off=0.01, max_attempts=3)(make("bad"))
        durable.agent("later", back_off=3000)(make("bad"))
        async with durable.worker(poll=0.05, slots=1):
            later = await durable.submit("later", "go")
            good, bad = await durable.submit("good", "go"), await durable.submit("bad", "go")
            assert (await good.result(timeout=60)).text == "through"
            assert (await good.info()).attempts == 3
            assert "line cut" in str((await bad.result(timeout=60)).error)
            assert (await bad.info()).attempts == 3
            info = await later.info()
            assert (info.status, info.worker) == ("queued", "")
            assert "line cut" in info.error


class Never:
    def should_retry(self, error: AgentError, attempt: int) -> bool:
        return False

    def delay(self, attempt: int) -> float:
        return 0.0


async def test_conversations_go_on_after_a_run_that_is_over(kind: str, url: str) -> None:
    requests: list[ModelRequest] = []

    @tool
    def remember(ctx: ToolContext, name: str) -> str:
        """Remembers a name."""
        ctx.state["name"] = name
        return "noted"

    @tool
    def recall(ctx: ToolContext) -> str:
        """Recalls the name."""
        return str(ctx.state.get("name"))

    def reply(request: ModelRequest) -> Any:
        requests.append(request)
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            return call("remember", name="ada") if "I am" in extract_text(last.content) else call("recall")
        return text(extract_text(last.content))

    def make() -> Agent:
        return Agent("test:model", stream_fn=scripted(*[reply] * 9), tools=[remember, recall])

    async with serving(url, talk=make) as durable:
        first = await durable.submit("talk", "I am Ada", id="first")
        await first.result(timeout=60)
        second = await durable.submit("talk", "Who am I?", id="second", after="first")
        result = await second.result(timeout=60)
        assert result.text == "ada"
        assert len(result.messages) == 4
        assert len(requests[-1].messages) == 7
        assert len((await second.load()).messages) == 8
        with pytest.raises(RunConflict):
            await durable.submit("talk", "Who am I?", id="second")
        assert (await durable.submit("talk", "Who am I?", id="second", after="first")).id == "second"


@pytest.mark.sweep
async def test_custom_messages_are_prompts_too(sqlite_url: str) -> None:
    async with Durable(sqlite_url, types=[Memo]) as durable:
        durable.agent("calc")(lambda: Agent("test:model", stream_fn=scripted(text("ok"))))
        async with durable.worker(poll=0.05):
            run = await durable.submit("calc", [Memo("kept"), UserMessage("hello")])
            result = await run.result(timeout=60)
    assert isinstance(result.messages[0], Memo)


class Memo(CustomMessage, tag="memo"):
    words: str


# -- waiting -------------------------------------------------------------------------------------------------


async def test_a_run_waits_and_each_answer_is_acted_on_at_once(kind: str, url: str) -> None:
    both = [call("refund", order="17"), call("refund", order="18")]
    async with serving(url, worker={"slots": 1}, refunds=asking(both, text("all paid")), calc=adding) as durable:
        run = await durable.submit("refunds", "go", id="r")
        result = await run.result(timeout=60)
        assert result.stop_reason == StopReason.TOOL_USE
        first, second = result.pending
        assert first.position is not None
        assert (first.reason, first.arguments) == ("ask ada", {"order": "17"})
        info = await run.info()
        assert (info.status, info.worker, info.pending) == ("waiting", "", result.pending)
        other = await durable.submit("calc", "2+3?")  # a waiting run holds no slot
        assert (await other.result(timeout=60)).text == "5"
        with pytest.raises(TypeError):
            await run.answer(first, "yes")  # type: ignore[arg-type]
        assert await run.answer(first, Approve(), by="ada") is True
        assert await run.answer(first, Reject("no")) is False
        result = await run.result(timeout=60)
        assert [pending.call_id for pending in result.pending] == [second.call_id]
        assert await run.answer(first.call_id, Approve()) is False
        assert await run.answer(second.call_id, ApproveWith({"order": "19"}), by="bob") is True
        result = await run.result(timeout=60)
        assert result.text == "all paid"
        texts = [extract_text(message.content) for message in result.messages]  # type: ignore[union-attr]
        assert texts[2].startswith("refunded 17")
        assert texts[3].startswith("refunded 19")
        notes = [record.entry.data async for record in run.events() if isinstance(record.entry, NoteAdded)]
        assert [(note["by"], note["call_id"], note["kind"]) for note in notes] == [
            ("ada", first.call_id, "approve"),
            ("bob", second.call_id, "approve_with"),
        ]
        assert all(note["at"] > 0 for note in notes)
        for call_id in (first, second, "nothing"):
            with pytest.raises(NotPending):
                await run.answer(call_id, Approve())


async def test_answers_are_bound_to_the_question_and_not_to_its_id(sqlite_url: str) -> None:
    # Each attempt has a new script, whose calls have the same ids again.
    script = [call("refund", order="17"), call("refund", order="99"), text("over")]
    async with serving(sqlite_url, refunds=asking(*script)) as durable:
        run = await durable.submit("refunds", "go")
        (first,) = (await run.result(timeout=60)).pending
        with pytest.raises(NotPending):
            await run.answer("other", Approve())
        assert await run.answer(first.call_id, Approve()) is True
        (second,) = (await run.result(timeout=60)).pending
        assert (second.arguments, second.call_id) == ({"order": "99"}, first.call_id)
        with pytest.raises(NotPending):
            await run.answer(first, Approve())  # a page that was left open
        with pytest.raises(NotPending, match="several"):
            await run.answer(first.call_id, Approve())
        assert await run.answer(second, False) is True
        assert (await run.result(timeout=60)).text == "over"


async def test_an_answer_that_cannot_be_kept_is_refused_and_harms_no_run(sqlite_url: str) -> None:
    async with serving(sqlite_url, refunds=asking(call("refund", order="17"), text("over"))) as durable:
        run = await durable.submit("refunds", "go")
        (pending,) = (await run.result(timeout=60)).pending
        with pytest.raises(TypeError, match=r"^by must be a string, not an int$"):
            await run.answer(pending, Approve(), by=5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^call must be a PendingCall, or the id of a call, not an int$"):
            await run.answer(5, Approve())  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^reason must be a string, not an int$"):
            await run.cancel(5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^after must be a whole number, not a str$"):
            await anext(run.events(after="1"))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^timeout must be a number of seconds, or None, not a str$"):
            await run.result(timeout="1")  # type: ignore[arg-type]
        assert await run.answer(pending, Approve(), by="ada")
        assert (await run.result(timeout=60)).text == "over"


@pytest.mark.sweep
async def test_external_calls_take_results(sqlite_url: str) -> None:
    @tool(external=True)
    def ship(order: str) -> str:
        """Ships."""
        raise AssertionError

    async with serving(sqlite_url, ships=asking(call("ship", order="7"), text("sent"), tools=[ship])) as durable:
        run = await durable.submit("ships", "go")
        (pending,) = (await run.result(timeout=60)).pending
        assert pending.kind == "external"
        with pytest.raises(TypeError):
            await run.answer(pending, Approve())
        assert await run.answer(pending, AgentToolResult.text("shipped by sea"))
        result = await run.result(timeout=60)
        assert result.text == "sent"
        assert "shipped by sea" in extract_text(result.messages[2].content)  # type: ignore[union-attr]


@pytest.mark.sweep
async def test_of_many_answers_at_once_the_first_counts(kind: str, url: str) -> None:
    both = [call("refund", order="17"), call("refund", order="18")]
    async with serving(url, refunds=asking(both, text("paid"))) as durable:
        run = await durable.submit("refunds", "go")
        pending, other = (await run.result(timeout=60)).pending
        counted = await asyncio.gather(*[run.answer(pending, Approve(), by=str(n)) for n in range(8)])
        assert sorted(counted) == [False] * 7 + [True]
        assert await run.answer(other, Approve())
        while (result := await run.result(timeout=60)).pending:
            pass
        assert result.text == "paid"


# -- cancelling ----------------------------------------------------------------------------------------------


async def test_a_cancel_is_final(kind: str, url: str) -> None:
    started = asyncio.Event()

    @tool
    async def slow() -> str:
        """Takes long."""
        started.set()
        await asyncio.sleep(60)
        return "never"

    asked: list[ModelRequest] = []

    def reply(request: ModelRequest) -> Any:
        asked.append(request)
        return call("slow")

    def make() -> Agent:
        return Agent("test:model", stream_fn=scripted(*[reply] * 9), tools=[slow])

    async with serving(url, slow=make, refunds=asking(call("refund", order="1"), text("x"))) as durable:
        running, waiting = await durable.submit("slow", "go"), await durable.submit("refunds", "go")
        (pending,) = (await waiting.result(timeout=60)).pending
        assert await waiting.cancel("changed my mind") is True
        assert (await waiting.info()).status == "cancelled"
        with pytest.raises(NotPending):
            await waiting.answer(pending, True)
        await asyncio.wait_for(started.wait(), 60)
        assert await running.cancel("first") is True
        assert await running.cancel("second") is True
        result = await running.result(timeout=10)
        assert (result.error, result.stop_reason) == ("first", StopReason.ABORTED)
        assert (await running.info()).status == "cancelled"
        calls = [
            call for message in result.messages if isinstance(message, AssistantMessage) for call in message.tool_calls
        ]
        assert len(calls) == len(
            [message for message in result.messages if type(message).__name__ == "ToolResultMessage"]
        )
        assert len(asked) == 1
        with pytest.raises(RunOver):
            await running.retry()
    async with Durable(url) as durable:
        odd = await durable.submit("slow", "later")
        assert await odd.cancel("no\0t \ud800 now") is True
        assert (await odd.info()).error == "not ? now"
        queued = await durable.submit("slow", "later")
        assert await queued.cancel() is True
        assert (await queued.info()).status == "cancelled"
        assert (await queued.result(timeout=5)).error == "the run was cancelled"


async def test_nothing_begins_after_a_cancel_even_if_its_worker_has_not_noticed(sqlite_url: str) -> None:
    asked: list[ModelRequest] = []

    def reply(request: ModelRequest) -> Any:
        asked.append(request)
        return call("add", a=1, b=1)

    async with Durable(sqlite_url) as durable:

        async def cancel_first(messages: Any, overflow: bool) -> None:
            if asked:
                await asyncio.sleep(0.4)  # the result of the call is written, so nothing is left to write
                await (await durable.run("one")).cancel("now")

        durable.agent("calc")(
            lambda: Agent(
                "test:model", stream_fn=scripted(*[reply] * 9), tools=[add], async_transform_context=cancel_first
            )
        )
        async with durable.worker(poll=0.05):
            run = await durable.submit("calc", "go", id="one")
            assert (await run.result(timeout=60)).error == "now"
    assert len(asked) == 1


# -- limits --------------------------------------------------------------------------------------------------


async def test_limits_hold_for_agents_and_keys(kind: str, url: str) -> None:
    now: dict[str, int] = {"all": 0, "a": 0, "b": 0, "most": 0, "most a": 0}

    def make() -> Agent:
        def reply(request: ModelRequest) -> Any:
            last = request.messages[-1]
            return call("work", key=extract_text(last.content)) if isinstance(last, UserMessage) else text("ok")

        return Agent("test:model", stream_fn=scripted(*[reply] * 3), tools=[busy])

    @tool(name="work")
    async def busy(key: str) -> str:
        """Works."""
        letter = key.split()[-1]
        now["all"] += 1
        now[letter] += 1
        now["most"], now["most a"] = max(now["most"], now["all"]), max(now["most a"], now["a"])
        await asyncio.sleep(0.1)
        now["all"] -= 1
        now[letter] -= 1
        return "ok"

    async with Durable(url) as durable:
        durable.agent("work", limit=3, limit_per_key=2)(make)
        runs = [
            await durable.submit("work", f"{number} {letter}", key=letter) for number, letter in enumerate("aaaaabbb")
        ]
        async with durable.worker(slots=8, poll=0.02):
            for run in runs:
                await run.result(timeout=30)
    assert (now["most"], now["most a"]) == (3, 2)


@pytest.mark.sweep
async def test_runs_start_by_priority_and_then_by_age(kind: str, url: str) -> None:
    order: list[str] = []

    def reply(request: ModelRequest) -> Any:
        order.append(extract_text(request.messages[0].content))
        return text("ok")

    async with Durable(url) as durable:
        durable.agent("work")(lambda: Agent("test:model", stream_fn=scripted(reply)))
        runs = [await durable.submit("work", f"{name}", priority=name) for name in (1000, 5, 0, 7)]
        runs.append(await durable.submit("work", "5 later", priority=5))
        async with durable.worker(slots=1, poll=0.02):
            for run in runs:
                await run.result(timeout=30)
    assert order == ["0", "5", "5 later", "7", "1000"]


@pytest.mark.sweep
async def test_starts_are_limited_by_the_rate(sqlite_url: str) -> None:
    async with Durable(sqlite_url) as durable:
        durable.agent("calc", rate=(2, 600.0))(adding)
        runs = [await durable.submit("calc", "2+3?") for _ in range(4)]
        async with durable.worker(poll=0.02):
            await runs[0].result(timeout=60)
            await runs[1].result(timeout=60)
            await asyncio.sleep(0.3)
            assert [(await run.info()).status for run in runs] == ["done", "done", "queued", "queued"]


# -- factories that misbehave --------------------------------------------------------------------------------


async def test_a_cancel_ends_a_factory_that_does_not_return(sqlite_url: str) -> None:
    has_begun = asyncio.Event()

    async def waiting() -> Agent:
        has_begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(sqlite_url, waiting=waiting) as durable:
        run = await durable.submit("waiting", "x")
        await asyncio.wait_for(has_begun.wait(), 60)
        assert await run.cancel("nobody needs it")
        result = await run.result(timeout=10)
        assert result.error == "nobody needs it"
        with pytest.raises(Aborted, match="nobody needs it"):
            result.raise_for_error()


async def test_a_factory_that_exits_fails_its_run_and_not_the_worker(sqlite_url: str) -> None:
    async with serving(sqlite_url, exiting=lambda: sys.exit("no key"), calc=adding) as durable:
        run = await durable.submit("exiting", "x")
        assert "no key" in str((await run.result(timeout=60)).error)
        assert (await (await durable.submit("calc", "2+3?")).result(timeout=60)).text == "5"


# -- masking -------------------------------------------------------------------------------------------------


async def test_errors_and_questions_are_masked_too(sqlite_url: str) -> None:
    secret = "sk-ant-api03-" + "Ab1" * 20

    def raising() -> Agent:
        raise RuntimeError(f"the key {secret} is not valid")

    class Stopping:
        def pre_turn(self, _: object, /) -> Stop:
            return Stop(f"not with {secret}")

    def stopped() -> Agent:
        return Agent("test:model", stream_fn=scripted("x"), policies=[Stopping()])

    agents = {"raising": raising, "stopped": stopped, "refunds": asking(call("refund", order=secret), text("x"))}
    async with serving(sqlite_url, **agents) as durable:
        runs = [await durable.submit(name, "go") for name in agents]
        results = [await run.result(timeout=60) for run in runs]
        assert [result.error is not None for result in results] == [True, True, False]
        assert "is not valid" in str(results[0].error)
        assert "not with" in str(results[1].error)
        (pending,) = results[2].pending
        assert secret not in everything_in(durable)
        assert await runs[2].answer(pending, Reject("no"), by=f"ada {secret}")
        await runs[2].result(timeout=60)
        assert secret not in everything_in(durable, "swink_records")
        assert secret not in repr([await run.info() for run in runs])


async def test_secrets_are_masked_and_the_prompt_is_kept_until_its_record_is_written(
    kind: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-ant-REDACTED-000000000000000"
    redactor = Redactor([secret])
    async with Durable(url, redactor=redactor) as durable:
        durable.agent("refunds")(asking(call("refund", order="1"), text("x")))
        run = await durable.submit("refunds", f"use {secret}", metadata={"token": secret, "plain": "word"})
        assert secret not in everything_in(durable)
        async with durable.worker(poll=0.05):
            (pending,) = (await run.result(timeout=60)).pending
            await run.answer(pending, Reject(f"not with {secret}"), by=f"ada {secret}")
            await run.result(timeout=60)
            other = await durable.submit("refunds", "go")
            await other.cancel(f"because {secret}")
        assert secret not in everything_in(durable)
    plain = "a prompt as it was given"
    async with Durable(url) as durable:
        durable.agent("calc")(adding)
        run = await durable.submit("calc", plain)
        assert plain in everything_in(durable, "swink_runs")
        async with durable.worker(poll=0.05):
            await run.result(timeout=60)
        assert plain not in everything_in(durable, "swink_runs")
        assert plain in everything_in(durable, "swink_records")


def everything_in(durable: Durable, *tables: str) -> str:
    import sqlalchemy as sa

    store = durable.open_store()

    def read(connection: sa.Connection) -> str:
        rows = [
            row
            for table in tables or ("swink_runs", "swink_records", "workflow_input")
            if table.startswith("swink") or store.database.has_table(connection, table)
            for row in connection.execute(sa.text(f"SELECT * FROM {table}"))
        ]
        return repr([[bytes(value) if isinstance(value, memoryview) else value for value in row] for row in rows])

    return store.read(read)


async def test_nothing_is_pickled(sqlite_url: str) -> None:
    async with Durable(sqlite_url) as durable:
        await durable.submit("calc", "2+3?", id="one")
        assert '"one"' in everything_in(durable, "workflow_input")


# -- retention -----------------------------------------------------------------------------------------------


async def test_finished_runs_are_deleted_with_their_records_and_tickets(kind: str, url: str) -> None:
    async with serving(url, calc=adding) as durable:
        over = await durable.submit("calc", "2+3?", id="over")
        await over.result(timeout=60)
        assert await durable.prune(1) == 0
        assert await durable.prune(0) == 1
        with pytest.raises(RunNotFound):
            await over.info()
        with pytest.raises(ValueError, match="days"):
            await durable.prune(-1)
        before = await durable.submit("calc", "2+3?", id="before")
        await before.result(timeout=60)
    async with Durable(url) as durable:
        follower = await durable.submit("calc", "and 3+4?", after="before")
        assert await durable.prune(0) == 0  # its history is still needed
        await follower.cancel()
        assert await durable.prune(0) == 2
        queued = await durable.submit("calc", "2+3?")
        assert await durable.prune(0) == 0
        assert (await queued.info()).status == "queued"
        assert everything_in(durable, "swink_records") == "[]"
        assert "over" not in everything_in(
            durable, *(["workflow_status"] if kind == "sqlite" else ["dbos.workflow_status"])
        )


async def test_the_store_is_refused_if_a_later_release_made_it(kind: str, url: str) -> None:
    import sqlalchemy as sa

    async with Durable(url) as durable:
        durable.open_store().write(
            lambda connection: connection.execute(sa.text("UPDATE swink_schema SET version = 99"))
        )
    async with Durable(url) as durable:
        with pytest.raises(DurableError, match="later release"):
            await durable.runs()
    if kind == "sqlite":
        path = Path(url.removeprefix("sqlite:///"))
        before = await asyncio.to_thread(path.read_bytes)
        async with Durable(url) as durable:
            with pytest.raises(DurableError):
                await durable.submit("calc", "2+3?")
        assert await asyncio.to_thread(path.read_bytes) == before


async def test_a_file_that_is_not_a_database_stays_as_it_is_and_a_new_one_is_private(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes, which are not a database at all")
    async with Durable(f"sqlite:///{path}") as durable:
        with pytest.raises(DurableError, match="not a database"):
            await durable.runs()
        with pytest.raises(DurableError, match="left as it is"):
            await durable.submit("calc", "2+3?")
    assert os.listdir(tmp_path) == ["notes.txt"]
    assert path.read_text().startswith("my notes")
    path.write_text("1")  # SQLite takes this for an empty database
    async with Durable(f"sqlite:///{path}") as durable:
        with pytest.raises(DurableError, match="not a database"):
            await durable.submit("calc", "2+3?")
    assert path.read_text() == "1"
    path.unlink()
    async with Durable(f"sqlite:///{tmp_path}/folder/new.db") as durable:
        await durable.submit("calc", "2+3?")
        modes = {one.name: one.stat().st_mode & 0o777 for one in (tmp_path / "folder").iterdir() if one.is_file()}
    assert set(modes.values()) == {0o600}
    assert "new.db" in modes
    empty = tmp_path / "empty.db"
    empty.touch(0o644)
    async with Durable(f"sqlite:///{empty}") as durable:
        await durable.submit("calc", "2+3?")
    assert empty.stat().st_mode & 0o777 == 0o600


async def test_a_damaged_database_and_a_path_that_leads_nowhere_are_errors_of_the_store(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"SQLite format 3\0" + b"not pages" * 1000)
    async with Durable(f"sqlite:///{damaged}") as durable:
        with pytest.raises(DurableError, match=r"damaged\.db.*not a database") as caught:
            await durable.submit("calc", "2+3?")
        assert "SELECT" not in str(caught.value)
    assert damaged.read_bytes().endswith(b"not pages")
    async with Durable(f"sqlite:///{damaged}/below.db") as durable:
        with pytest.raises(StoreUnavailable, match="Not a directory"):
            await durable.submit("calc", "2+3?")


async def test_two_durables_of_one_process_lose_no_run_while_others_look(sqlite_url: str) -> None:
    """If this process closed the file, SQLite's locks on it would end, and others would delete what it wrote."""
    look = (
        "import sqlite3, sys\n"
        "for row in sqlite3.connect(sys.argv[1]).execute('SELECT id FROM swink_runs'):\n    print(*row)\n"
    )
    command = [sys.executable, "-I", "-c", look, sqlite_url.removeprefix("sqlite:///")]

    async def seen_by_another_process() -> set[str]:
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True, timeout=60)
        return set(done.stdout.split())

    async with Durable(sqlite_url) as first, Durable(sqlite_url) as second:
        await first.submit("calc", "2+3?", id="one")
        assert [run.id for run in await second.runs()] == ["one"]
        assert await seen_by_another_process() == {"one"}
        await first.submit("calc", "2+3?", id="two")
        assert await seen_by_another_process() == {"one", "two"}


@pytest.mark.parametrize("name", ["q%3Fx.db", "q%253Fx #1.db", "ä&=+.db"], ids=["mark", "percent", "others"])
async def test_a_store_may_have_any_name_and_its_url_leads_back_to_it(tmp_path: Path, name: str) -> None:
    async with serving(f"sqlite:///{tmp_path}/{name}", calc=adding) as durable:
        run = await durable.submit("calc", "2+3?")
        assert (await run.result(timeout=60)).text == "5"
        async with Durable(durable.url) as again:
            assert [found.id for found in await again.runs()] == [run.id]
    assert set(os.listdir(tmp_path)) == {unquote(name), f"{unquote(name)}.locks"}


@pytest.mark.sweep
async def test_a_database_in_which_nothing_may_be_made_is_an_error_of_the_store(
    postgres_server: PostgresServer, capfd: pytest.CaptureFixture[str]
) -> None:
    import sqlalchemy as sa

    address = sa.make_url(postgres_server.database("notours"))
    engine = sa.create_engine(address.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text("CREATE ROLE guest LOGIN"))
    engine.dispose()
    async with Durable(address.set(username="guest").render_as_string(hide_password=False)) as durable:
        with pytest.raises(DurableError, match="permission denied"):
            await durable.submit("calc", "2+3?")
    assert capfd.readouterr().out == ""


@pytest.mark.sweep
async def test_many_clients_at_once_make_the_tables_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    fresh = f"sqlite:///{tmp_path}/fresh.db"
    if kind == "postgres":
        fresh = request.getfixturevalue("postgres_server").database(f"fresh{id(tmp_path)}")
    clients = [Durable(fresh) for _ in range(6)]
    await asyncio.gather(*[client.submit("calc", "2+3?", id=f"r{n}") for n, client in enumerate(clients)])
    assert len(await clients[0].runs()) == 6
    for client in clients:
        await client.close()


async def test_a_store_that_python_3_12_made_works_with_an_old_sqlite(sqlite_url: str) -> None:
    """There the engine's tables take the time in a way that SQLite knows since 3.42."""
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE type = 'table'",
            ("(strftime('%s','now') * 1000)", "(unixepoch('subsec') * 1000)"),
        )
        connection.commit()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE instr(sql, 'subsec')").fetchone()
        assert tables > 3
    async with serving(sqlite_url, calc=adding) as durable:
        assert (await (await durable.submit("calc", "2+3?")).result(timeout=60)).text == "5"


async def test_a_second_worker_in_a_process_is_refused(sqlite_url: str) -> None:
    async with serving(sqlite_url, calc=adding) as durable:
        with pytest.raises(DurableError, match="one at a time"):
            async with durable.worker():
                raise AssertionError
        assert len((await durable.stats()).workers) == 1
    with pytest.raises(DurableError, match="no agents"):
        Durable(sqlite_url).worker()
    for bad in ({"slots": 0}, {"poll": 0}, {"lease": 0}, {"drain": -1}, {"drain": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(bad)).rstrip("s")):
            durable.worker(**bad)


@pytest.mark.sweep
async def test_results_are_on_record_soon_after_their_calls_end(sqlite_url: str) -> None:
    release = asyncio.Event()

    @tool
    async def quick() -> str:
        """Quick."""
        return "quick"

    @tool
    async def slow() -> str:
        """Slow."""
        await release.wait()
        return "slow"

    def make() -> Agent:
        return Agent("test:model", stream_fn=scripted([call("quick"), call("slow")], text("ok")), tools=[quick, slow])

    async with serving(sqlite_url, two=make) as durable:
        run = await durable.submit("two", "go")
        async with asyncio.timeout(60):
            async for record in run.events():
                if isinstance(record.entry, MessageAdded) and record.entry.source == "result":
                    break
        assert not release.is_set()
        release.set()
        assert (await run.result(timeout=60)).text == "ok"


@pytest.mark.sweep
async def test_a_record_that_is_too_large_ends_the_run(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from swink_agent.durable.store import writing

    monkeypatch.setattr(writing, "MOST_BYTES", 20_000)
    async with serving(sqlite_url, big=lambda: Agent("test:model", stream_fn=scripted(text("x" * 30_000)))) as durable:
        run = await durable.submit("big", "go")
        result = await run.result(timeout=60)
        assert "30" in str(result.error)
        assert (await run.info()).status == "failed"


@pytest.mark.sweep
async def test_each_attempt_is_a_run_on_record_and_a_tool_that_is_gone_is_unknown(sqlite_url: str) -> None:
    async with serving(sqlite_url, refunds=asking(call("refund", order="1"), text("over"))) as durable:
        run = await durable.submit("refunds", "go")
        await run.result(timeout=60)
    async with serving(sqlite_url, refunds=asking(call("refund", order="1"), text("over"), tools=[])) as durable:
        run = await durable.run(run.id)
        await run.answer((await run.info()).pending[0], Approve())
        result = await run.result(timeout=60)
        assert result.text == "over"
        assert "unknown tool" in extract_text(result.messages[2].content)  # type: ignore[union-attr]
        kinds = [record.entry.kind for record in (await run.load()).records() if isinstance(record.entry, RunStarted)]
        assert kinds == ["prompt", "resume"]


@pytest.mark.sweep
async def test_a_new_release_goes_on_with_old_runs_by_its_own_model_and_tools(kind: str, url: str) -> None:
    asked: list[str] = []

    def release(model: str, *replies: Any) -> Callable[[], Agent]:
        def reply(request: ModelRequest) -> Any:
            asked.append(request.model.model_id)
            return replies[sum(isinstance(message, AssistantMessage) for message in request.messages)]

        return lambda: Agent(
            f"test:{model}",
            stream_fn=scripted(*[reply] * 5),
            tools=[refund],
            approve=lambda _: Defer(),
            system_prompt=model,
        )

    async with serving(url, refunds=release("old", call("refund", order="1"))) as durable:
        run = await durable.submit("refunds", "go", id="r")
        await run.result(timeout=60)
    async with serving(url, refunds=release("new", None, text("over"))) as durable:
        run = await durable.run("r")
        await run.answer((await run.info()).pending[0], True)
        assert (await run.result(timeout=60)).text == "over"
    assert asked == ["old", "new"]


@pytest.mark.sweep
async def test_a_retry_goes_on_where_the_run_stopped(sqlite_url: str) -> None:
    asked: list[int] = []
    is_broken = True

    def reply(request: ModelRequest) -> Any:
        replies = sum(isinstance(message, AssistantMessage) for message in request.messages)
        asked.append(replies)
        if replies == 0:
            return call("add", a=1, b=1)
        return fail("auth", "key expired") if is_broken else text("two")

    def make() -> Agent:
        return Agent("test:model", stream_fn=scripted(*[reply] * 5), tools=[add])

    async with serving(sqlite_url, calc=make) as durable:
        run = await durable.submit("calc", "go")
        assert "key expired" in str((await run.result(timeout=60)).error)
        is_broken = False
        await run.retry()
        result = await run.result(timeout=60)
    assert (result.text, result.error) == ("two", None)
    assert asked[0] == 0
    assert 0 not in asked[1:]


@pytest.mark.sweep
async def test_a_call_that_waits_in_a_delegate_is_answered_too(kind: str, url: str) -> None:
    def inner(request: ModelRequest) -> Any:
        done = any(isinstance(message, AssistantMessage) for message in request.messages)
        return text("inner done") if done else call("refund", order="5")

    def outer(request: ModelRequest) -> Any:
        done = any(isinstance(message, AssistantMessage) for message in request.messages)
        return text("outer done") if done else call("clerk", prompt="refund 5")

    def make() -> Agent:
        clerk = Agent("test:inner", stream_fn=scripted(*[inner] * 5), tools=[refund], approve=lambda _: Defer())
        return Agent("test:outer", stream_fn=scripted(*[outer] * 5), tools=[clerk.as_tool("clerk", "Refunds.")])

    async with serving(url, boss=make) as durable:
        run = await durable.submit("boss", "go")
        (pending,) = (await run.result(timeout=60)).pending
        assert pending.delegates == ("clerk",)
        assert await run.answer(pending, Approve(), by="ada")
        assert (await run.result(timeout=60)).text == "outer done"


@pytest.mark.sweep
async def test_a_compacted_context_survives_a_wait(sqlite_url: str) -> None:
    lengths: list[int] = []

    def reply(request: ModelRequest) -> Any:
        lengths.append(len(request.messages))
        replies = sum(isinstance(message, AssistantMessage) for message in request.messages)
        return call("refund", order="1") if not replies else text("over")

    def shorten(messages: list[Any], overflow: bool) -> list[Any] | None:
        return messages[3:] if len(messages) == 5 and isinstance(messages[0], UserMessage) else None

    def make() -> Agent:
        return Agent(
            "test:model",
            stream_fn=scripted(*[reply] * 5),
            tools=[refund],
            approve=lambda _: Defer(),
            transform_context=shorten,
        )

    async with serving(sqlite_url, refunds=make) as durable:
        history = [UserMessage(str(number)) for number in range(5)]
        run = await durable.submit("refunds", history)
        (pending,) = (await run.result(timeout=60)).pending
        await run.answer(pending, True)
        result = await run.result(timeout=60)
    assert result.text == "over"
    assert len(result.messages) == 8
    assert lengths == [2, 4]


@pytest.mark.parametrize("use", [lambda durable: durable.open_store(), lambda durable: durable.worker()])
def test_without_the_extra_the_error_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Durable], Any]
) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(MissingExtra, match=r"pip install 'swink-agent\[durable\]'"):
        use(Durable(f"sqlite:///{tmp_path}/store.db"))
