"""Operations of the store stay fast with many runs: each statement finds its rows by an index."""

from __future__ import annotations

from typing import Any

from sqlalchemy import event

from swink_agent.durable import Durable
from swink_agent.durable.info import WorkerInfo
from swink_agent.durable.registry import AgentEntry
from swink_agent.durable.store.store import Store
from swink_agent.durable.urls import store_address

from .test_runs import adding


async def test_every_statement_finds_its_runs_by_an_index(sqlite_url: str) -> None:
    plans: dict[str, list[str]] = {}

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, is_many: bool) -> None:
        if "swink_" in statement and not is_many and statement not in plans:
            rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            plans[statement] = [str(row[3]) for row in rows]

    durable = Durable(sqlite_url)
    event.listen(durable.open_store().database.engine, "before_cursor_execute", explain)
    async with durable:
        durable.agent("calc", limit=8, limit_per_key=2, rate=(100, 60))(adding)
        async with durable.worker(poll=0.05):
            run = await durable.submit("calc", "2+3?", key="acme")
            await run.result(timeout=60)
        for wanted in ({}, {"status": "done"}, {"key": "acme"}, {"status": "done", "agent": "calc", "key": "acme"}):
            await durable.runs(**wanted)  # type: ignore[arg-type]
        await durable.stats()
        await durable.prune(0)
    by_run = [plan for statement, plan in plans.items() if "swink_runs" in statement or "swink_records" in statement]
    assert len(by_run) > 12
    whole = [rows for rows in by_run if any(row in ("SCAN swink_runs", "SCAN swink_records") for row in rows)]
    # The newest runs of all are the end of the table, read backwards.
    assert whole == [["SCAN swink_runs"]]
    searches = [plan for statement, plan in plans.items() if "AS q" in statement]
    assert searches
    for rows in searches:
        assert any("COVERING INDEX swink_runs_queued (agent=?" in row for row in rows)
    keyed = [plan for statement, plan in plans.items() if "key = " in statement]
    assert keyed
    assert all("USING INDEX swink_runs_key (key=?" in rows[0] for rows in keyed)


async def test_runs_that_nobody_can_take_keep_nobody_from_writing(sqlite_url: str) -> None:
    """Those of a full key, and those of agents that nobody has: a look at them is not a transaction that writes."""
    begun: list[str] = []
    store = Store(store_address(sqlite_url))
    store.stats()
    event.listen(
        store.database.engine,
        "before_cursor_execute",
        lambda connection, cursor, statement, *rest: begun.append(statement),
    )
    entries = {"calc": AgentEntry(name="calc", factory=adding, limit_per_key=1)}
    store.register(WorkerInfo(id="w", host="h", pid=1, slots=8, running=0, seen=0, agents=("calc",)), 30, 1)
    async with Durable(sqlite_url) as durable:
        for number in range(3):
            await durable.submit("calc", "2+3?", id=f"full-{number}", key="acme")
        await durable.submit("other", "2+3?", id="other")
        assert [claim.id for claim in store.claim("w", entries, 8)] == ["full-0"]
        begun.clear()
        assert store.claim("w", entries, 8) == []
        assert not any(statement.startswith(("BEGIN IMMEDIATE", "UPDATE")) for statement in begun)
        await durable.submit("calc", "2+3?", id="free", key="beta")
        assert [claim.id for claim in store.claim("w", entries, 8)] == ["free"]
    store.close()
