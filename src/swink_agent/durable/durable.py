"""`Durable`: registers agents, submits runs, finds them again, and creates workers.

Owns the methods that an application calls. Creating a `Durable` and registering agents load no engine and open no
store: the first call that needs them does that.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from swink_agent.core.agent.arguments import Prompt
from swink_agent.core.encoding.codec import checked_types, encode_message
from swink_agent.core.machine.extras import require
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentMessage, CustomMessage, as_prompts
from swink_agent.core.values.checks import check_methods, check_number, check_whole, is_not

from .errors import RunNotFound
from .info import STATUSES, FleetStats, RunInfo, RunStatus
from .registry import AgentEntry, AgentFactory, checked_entry, checked_id, checked_key, checked_name, is_run_id
from .run import DurableRun
from .urls import store_address

if TYPE_CHECKING:
    from swink_agent.evals import Evaluator, EvaluatorRegistry
    from swink_agent.evals.runs.executor import MakeAgentFn
    from swink_agent.evals.scoring.evaluator import EvaluatorFn

    from .evaluation import DurableExecutor
    from .store.store import Store
    from .worker import Worker

T = TypeVar("T")
Factory = TypeVar("Factory", bound=AgentFactory)
MakeAgent = TypeVar("MakeAgent", bound="MakeAgentFn")


class Durable:
    """A store of durable runs, and the agents that this program registers. Safe from any thread and event loop."""

    def __init__(
        self,
        url: str | None = None,
        *,
        types: Sequence[type[CustomMessage]] = (),
        keep_days: float | None = 30,
        redactor: Redactor | None = None,
    ) -> None:
        """`url` is `sqlite:///path` or `postgresql://…`. By default it is `SWINK_DURABLE_URL`, else the user's setting
        of that name (durable.url), else an SQLite file in the data folder.

        `types` are the application's message types. Workers delete runs that have been over for `keep_days`; `None`
        keeps them. `redactor` masks prompts, metadata, answers and reasons before they are stored.

        Raises `ValueError` for an address of another kind.
        """
        if keep_days is not None:
            check_number("keep_days", keep_days, "a number of days, or None")
            if not keep_days >= 0:
                raise ValueError(f"keep_days must be a number of days, or None, not {keep_days!r}")
        if redactor is not None:
            check_methods("redactor", redactor, "a Redactor, or None", "redact")
        self._address = store_address(url)
        self._types = checked_types(types)
        self._keep_days = keep_days
        self._redactor = redactor
        self._entries: dict[str, AgentEntry] = {}
        self._evaluations: set[str] = set()
        self._store: Store | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Durable {self._address.shown}, {len(self._entries)} agents>"

    async def __aenter__(self) -> Durable:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections. The next call opens others."""
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            await asyncio.to_thread(store.close)

    @property
    def url(self) -> str:
        """The address of the store, without its password."""
        return self._address.shown

    @property
    def agents(self) -> Mapping[str, AgentEntry]:
        """The registered agents, by name."""
        return MappingProxyType(self._entries)

    @property
    def types(self) -> tuple[type[CustomMessage], ...]:
        """The application's message types."""
        return self._types

    # -- registering -------------------------------------------------------------------------------------------

    def agent(
        self,
        name: str,
        *,
        limit: int | None = None,
        limit_per_key: int | None = None,
        rate: tuple[int, float] | None = None,
        progress: float = 3600,
        max_attempts: int = 10,
        back_off: float = 30,
    ) -> Callable[[Factory], Factory]:
        """Registers a function that makes an agent, plain or async. It is called for each attempt, in a worker.

        All workers together execute at most `limit` runs of the agent at once, and `limit_per_key` runs of each key.
        `rate=(n, seconds)` limits how many runs start in that time. A run that records nothing for `progress` seconds
        is queued again. If the model cannot be reached, the run is tried again after `back_off` seconds, doubling to an
        hour. After `max_attempts` in a row without a new reply the run has failed.

        Raises `ValueError` for a name that is taken or invalid, and for limits that are not positive.
        """
        entry = AgentEntry(
            name=name,
            limit=limit,
            limit_per_key=limit_per_key,
            rate=rate,
            progress=progress,
            max_attempts=max_attempts,
            back_off=back_off,
        )
        checked_entry(entry)
        self._check_free(name)

        def registered(factory: Factory) -> Factory:
            if not callable(factory):
                raise TypeError(f"agent {name!r} needs a function that makes the agent, not {type(factory).__name__}")
            self.register(msgspec.structs.replace(entry, factory=factory))
            return factory

        return registered

    def evaluation(
        self,
        name: str,
        *,
        evaluators: EvaluatorRegistry | Sequence[Evaluator | EvaluatorFn] | None = None,
        at_once: int = 8,
        timeout: float | None = 1800,
    ) -> Callable[[MakeAgent], MakeAgent]:
        """Registers a `make_agent(case, folder)` for evaluations on workers. `executor` submits the attempts.

        A worker makes `at_once` attempts of a chunk at once. `evaluators` and `timeout` are those of an `EvalRunner`.

        Raises `ValueError` as `agent` does, and for `at_once` below 1.
        """
        checked_name(name)
        self._check_free(name)
        check_whole("at_once", at_once)

        def registered(make_agent: MakeAgent) -> MakeAgent:
            from .evaluation import evaluation_entry

            if not callable(make_agent):
                raise TypeError(f"evaluation {name!r} needs a function of (case, folder) that makes an agent")
            self.register(evaluation_entry(name, make_agent, evaluators, at_once, timeout))
            self._evaluations.add(name)
            return make_agent

        return registered

    def executor(self, name: str, chunk: int = 25) -> DurableExecutor:
        """Returns an executor that has workers make the attempts: `EvalRunner(executor=…, parallel=400)`.

        A run in the store has up to `chunk` attempts. The result equals that of a runner in one process, except times.

        Raises `ValueError` for a name that is not an evaluation's, and for `chunk` below 1.
        """
        from .evaluation import DurableExecutor

        if name not in self._evaluations:
            known = ", ".join(sorted(self._evaluations)) or "none"
            raise ValueError(f"there is no evaluation {name!r} here; there are: {known}")
        check_whole("chunk", chunk)
        return DurableExecutor(self, name, chunk)

    def register(self, entry: AgentEntry) -> None:
        """Registers an entry as it is. Raises `ValueError` as `agent` does."""
        checked_entry(entry)
        self._check_free(entry.name)
        self._entries[entry.name] = entry

    def _check_free(self, name: str) -> None:
        if name in self._entries:
            raise ValueError(f"there is an agent {name!r} already: a name can be registered once")

    # -- runs --------------------------------------------------------------------------------------------------

    async def submit(
        self,
        agent: str,
        prompt: Prompt,
        *,
        id: str | None = None,  # noqa: A002 - the specification's name
        key: str = "",
        priority: int = 0,
        metadata: Mapping[str, Any] = {},
        after: str | None = None,
    ) -> DurableRun:
        """Queues a run; it is in the store when this returns. The same `id` with the same agent, prompt and `after` is
        the same run.

        `limit_per_key` counts runs by `key`. Runs of `priority` 0 come first, those of 1000 last. `after` is the id of
        a run that is over: this run begins with its history and state.

        Raises `ValueError` for an invalid id, key, priority or agent, `RunConflict` if the id belongs to another run or
        the run `after` is not over, `RunNotFound` if the run `after` does not exist, and `StoreUnavailable`.
        """
        from swink_agent.memory.sessions.session import checked_json

        from .store.store import NewRun

        checked_name(agent)
        if self._entries and agent not in self._entries:
            known = ", ".join(sorted(self._entries))
            raise ValueError(f"there is no agent {agent!r} here; there are {known}")
        run_id = _new_id() if id is None else checked_id(id)
        if type(priority) is not int or not 0 <= priority <= 1000:
            raise ValueError(f"priority must be a number from 0 (first) to 1000 (last), not {priority!r}")
        if after is not None:
            checked_id(after)
        prompts = as_prompts(prompt)
        if self._redactor is not None:
            prompts = tuple(map(self._redactor.redact_message, prompts))
        if not isinstance(metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise is_not("metadata", metadata, "a dict")
        data = checked_json(dict(metadata), "the metadata of a run")
        new = NewRun(
            id=run_id,
            agent=agent,
            prompt=f"[{','.join(encode_message(message).decode() for message in prompts)}]",
            digest=_digest(prompts),
            key=checked_key(key),
            priority=priority,
            metadata=msgspec.json.encode(self.masked(data)).decode(),
            after=after,
        )
        await self.call(lambda store: store.submit(new))
        return DurableRun(self, run_id)

    def masked(self, data: T) -> T:
        """The data without the secrets that the redactor knows."""
        return data if self._redactor is None else self._redactor.redact_value(data)

    async def run(self, id: str) -> DurableRun:  # noqa: A002
        """The run with this id. Raises `RunNotFound`."""
        if not is_run_id(id):
            raise RunNotFound(id)
        await self.call(lambda store: store.info(id))
        return DurableRun(self, id)

    async def runs(
        self, status: RunStatus | None = None, agent: str | None = None, key: str | None = None, limit: int = 50
    ) -> tuple[RunInfo, ...]:
        """Runs of this status, agent and key, the newest first."""
        if status is not None and status not in STATUSES:
            raise ValueError(f"{status!r} is not a status; these are: {', '.join(STATUSES)}")
        check_whole("limit", limit, least=0)
        return await self.call(lambda store: store.runs(status, agent, key, limit))

    async def stats(self) -> FleetStats:
        """How many runs there are of each status, how long the oldest queued one has waited, and the workers."""
        return await self.call(lambda store: store.stats())

    async def prune(self, days: float) -> int:
        """Deletes the runs that have been over for `days` days; returns how many."""
        check_number("days", days, "a number of days")
        if not days >= 0:
            raise ValueError(f"days must be a number of days, not {days!r}")
        return await self.call(lambda store: store.prune(days))

    # -- workers -----------------------------------------------------------------------------------------------

    def worker(self, *, slots: int = 8, poll: float = 0.5, lease: float = 30, drain: float = 30) -> Worker:
        """A worker for the agents that are registered here, as an async context manager. A process has one at a time.

        It executes up to `slots` runs at once, and looks for new ones every `poll` seconds. Others take over its runs
        at once if its process ends, and after `lease` seconds if its event loop is blocked. When the context is left,
        its runs have `drain` seconds to end their turns.
        """
        store = self.open_store()
        from .worker import Worker

        return Worker(
            store,
            self._entries,
            slots=slots,
            poll=poll,
            lease=lease,
            drain=drain,
            types=self._types,
            keep_days=self._keep_days,
        )

    def open_store(self) -> Store:
        """The store, opened on first use; for the rest of this package. Raises `MissingExtra`."""
        with self._lock:
            if self._store is None:
                require("sqlalchemy", extra="durable")
                from .store.store import Store

                self._store = Store(self._address)
            return self._store

    async def call(self, work: Callable[[Store], T]) -> T:
        """Calls `work` with the store, in a thread; for the rest of this package."""
        store = self.open_store()
        return await asyncio.get_running_loop().run_in_executor(store.threads, lambda: work(store))


def _new_id() -> str:
    created = time.time_ns() // 1_000_000
    moment = datetime.fromtimestamp(created / 1000, UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{created % 1000:03d}-{secrets.token_hex(4)}"


def _digest(prompts: Sequence[AgentMessage]) -> str:
    """A hash of the prompt without its timestamps, which is the same for each submission of one prompt."""
    documents: list[dict[str, Any]] = [msgspec.json.decode(encode_message(message)) for message in prompts]
    for document in documents:
        document.pop("timestamp", None)
    return hashlib.sha256(msgspec.json.encode(cast("Any", documents), order="sorted")).hexdigest()
