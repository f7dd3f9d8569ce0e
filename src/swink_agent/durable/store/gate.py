"""The gate: which queued runs a worker may take, and taking them.

One transaction at a time passes. It counts the running runs, leaves out agents, keys and rates that are at their
limits, picks by priority and age, and takes each run by raising its epoch.

Owns the limits and the claim. `store` has all other statements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import sqlalchemy as sa
from msgspec import Struct

from ..registry import AgentEntry
from .connecting import Database
from .writing import RunLost

_LONGEST_WAIT = 3_600_000
"""The most milliseconds for which a run is held back. If it seems to be longer, a clock was set back."""


class Claim(Struct, frozen=True, kw_only=True):
    """A run that a worker has taken."""

    id: str
    agent: str
    epoch: int
    fruitless: int
    """Attempts in a row without a new reply, this one included."""
    failures: int
    position: int
    prompt: str | None
    after: str | None
    answers: str
    ticket: int


class Gate:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._now = database.now

    @property
    def due(self) -> str:
        """The condition for a run that may be taken now."""
        return f"status = 'queued' AND (due <= {self._now} OR due > {self._now} + {_LONGEST_WAIT})"

    def claim(
        self, connection: sa.Connection, worker: str, entries: Mapping[str, AgentEntry], free: int
    ) -> list[Claim]:
        """Takes up to `free` runs. Raises `RunLost` if the worker is no longer on the list of workers."""
        self._database.gate(connection)
        lock = self._database.for_update
        listed = connection.execute(sql(f"SELECT 1 FROM swink_workers WHERE id = :id {lock}"), {"id": worker})
        if listed.first() is None:
            raise RunLost(f"worker {worker} is no longer on the list of workers")
        chosen = self.chosen(connection, entries, free)
        if chosen and lock:
            chosen = self._locked(connection, chosen)
        return [self._take(connection, seq, worker) for seq in chosen]

    def _locked(self, connection: sa.Connection, chosen: Sequence[int]) -> list[int]:
        """Locks the chosen runs that are still queued and not locked by another process, and returns them.

        The search itself locks nothing, so it needs only the index.
        """
        statement = sql(
            "SELECT seq FROM swink_runs WHERE seq IN :chosen AND status = 'queued' ORDER BY priority, seq "
            f"{self._database.for_update} SKIP LOCKED"
        )
        return list(connection.execute(expanding(statement, "chosen"), {"chosen": list(chosen)}).scalars())

    def chosen(self, connection: sa.Connection, entries: Mapping[str, AgentEntry], free: int) -> list[int]:
        """Up to `free` queued runs, by priority and age, within the limits of the fleet. Only reads, so other processes
        can write meanwhile: most polls find no run."""
        room = _Room(entries, self._running(connection, entries), self._started(connection, entries))
        chosen: list[int] = []
        while len(chosen) < free:
            open_agents = room.open_agents()
            if not open_agents:
                break
            rows = self._candidates(connection, open_agents, room.full_keys(), chosen, free - len(chosen))
            taken = [row[0] for row in rows if room.take(row[1], row[2])]
            chosen += taken
            if not taken:
                break
        return chosen

    def _running(self, connection: sa.Connection, entries: Mapping[str, AgentEntry]) -> Counter[tuple[str, str]]:
        """The running runs of agents with limits, by agent and key."""
        limited = [name for name, entry in entries.items() if entry.limit or entry.limit_per_key]
        if not limited:
            return Counter()
        statement = sql(
            "SELECT agent, key, count(*) FROM swink_runs WHERE status = 'running' AND agent IN :agents "
            "GROUP BY agent, key"
        )
        rows = connection.execute(expanding(statement, "agents"), {"agents": limited})
        return Counter({(row[0], row[1]): int(row[2]) for row in rows})

    def _started(self, connection: sa.Connection, entries: Mapping[str, AgentEntry]) -> Counter[str]:
        """The runs of agents with a rate that were started within its time."""
        started: Counter[str] = Counter()
        for name, entry in entries.items():
            if entry.rate is not None:
                statement = sql(
                    f"SELECT count(*) FROM swink_runs WHERE agent = :agent AND started > {self._now} - :window "
                    f"AND started <= {self._now}"
                )
                values = {"agent": name, "window": int(entry.rate[1] * 1000)}
                started[name] = int(connection.execute(statement, values).scalar_one())
        return started

    def _candidates(
        self,
        connection: sa.Connection,
        agents: Sequence[str],
        full: Mapping[str, Sequence[str]],
        chosen: Sequence[int],
        limit: int,
    ) -> list[tuple[int, str, str]]:
        """The next runs of these agents. Each agent has its own subquery, so that the index gives the runs in order and
        runs of other agents are not read."""
        values: dict[str, Any] = {"chosen": [*chosen, -1], "limit": limit}
        names, parts = ["chosen"], list[str]()
        for index, agent in enumerate(agents):
            values[f"agent{index}"] = agent
            where = ""
            if agent in full:
                where = f"AND key NOT IN :keys{index}"
                values[f"keys{index}"] = list(full[agent])
                names.append(f"keys{index}")
            parts.append(
                f"SELECT * FROM (SELECT seq, agent, key, priority FROM {self._database.queued} WHERE {self.due} "
                f"AND agent = :agent{index} AND seq NOT IN :chosen {where} ORDER BY priority, seq LIMIT :limit) AS q"
            )
        statement = sql(f"{' UNION ALL '.join(parts)} ORDER BY priority, seq LIMIT :limit")
        return [(row[0], row[1], row[2]) for row in connection.execute(expanding(statement, *names), values)]

    def _take(self, connection: sa.Connection, seq: int, worker: str) -> Claim:
        statement = sql(
            "UPDATE swink_runs SET status = 'running', epoch = epoch + 1, worker = :worker, attempts = attempts + 1, "
            f"fruitless = fruitless + 1, started = {self._now}, updated = {self._now} WHERE seq = :seq RETURNING id, "
            'agent, epoch, fruitless, failures, position, prompt, answers, ticket, after_id AS "after"'
        )
        row = connection.execute(statement, {"seq": seq, "worker": worker}).mappings().one()
        return Claim(**cast("dict[str, Any]", dict(row)))


class _Room:
    """The runs that the limits of the fleet still allow."""

    def __init__(
        self, entries: Mapping[str, AgentEntry], running: Counter[tuple[str, str]], started: Counter[str]
    ) -> None:
        self._entries = entries
        self._by_key = running
        self._by_agent: Counter[str] = Counter()
        for (agent, _), count in running.items():
            self._by_agent[agent] += count
        self._started = started

    def open_agents(self) -> list[str]:
        return [name for name in self._entries if self._is_open(name)]

    def _is_open(self, agent: str) -> bool:
        entry = self._entries[agent]
        if entry.limit is not None and self._by_agent[agent] >= entry.limit:
            return False
        return entry.rate is None or self._started[agent] < entry.rate[0]

    def full_keys(self) -> dict[str, list[str]]:
        full: dict[str, list[str]] = {}
        for (agent, key), count in self._by_key.items():
            most = self._entries[agent].limit_per_key
            if most is not None and count >= most:
                full.setdefault(agent, []).append(key)
        return full

    def take(self, agent: str, key: str) -> bool:
        """Counts a run, if there is room for it."""
        most = self._entries[agent].limit_per_key
        if not self._is_open(agent) or (most is not None and self._by_key[agent, key] >= most):
            return False
        self._by_agent[agent] += 1
        self._by_key[agent, key] += 1
        self._started[agent] += 1
        return True


@lru_cache(512)
def sql(statement: str) -> sa.TextClause:
    """Parses a statement once: parsing it takes as long as executing it."""
    return sa.text(statement)


def expanding(statement: sa.TextClause, *names: str) -> sa.TextClause:
    expanding: list[sa.BindParameter[Any]] = [sa.bindparam(name, expanding=True) for name in names]
    return statement.bindparams(*expanding)
