"""`EvalRunner`: runs a set.

Owns which attempts are made and how many at once, and keeps finished attempts if the run is cancelled, is resumed or
the program dies. An `Executor` makes one attempt.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

from msgspec.structs import replace

from swink_agent.core.cancel import CancellationToken, is_cancelled
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.values.checks import check_methods, check_whole, is_function, is_not

from ..cases.cases import EvalCase, EvalSet, Verdict
from ..errors import told
from ..scoring.evaluator import Evaluator, EvaluatorFn, EvaluatorRegistry
from ..types import Attempt, CaseResult, EvalGrid, EvalRun, EvalTask, Progress, RunInfo, Summary
from .audit_chain import AuditTrail
from .codec import AttemptLine
from .executor import CaseExecutor, Executor, MakeAgentFn
from .run_files import AttemptLog, read_attempts
from .store import EvalStore, case_result, new_run_id

log = logging.getLogger("swink_agent")

ProgressFn: TypeAlias = Callable[[Progress], Any]
"""Called after each attempt, sync or async. If it raises, that is logged and it is not called again.

A display may also have `begin(progress)`, which is called once before the first attempt.
"""

_LONGEST_VARIANT = 120
_HALF_AN_HOUR = 1800.0
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 120.0  # seconds between two tries of an attempt: doubled each time


class EvalRunner:
    """Runs a real agent on each case of a set, and scores what it did.

    `make_agent(case, folder)` returns an agent for an attempt; each attempt has its own folder. `evaluators` replaces
    the built-in ones (`None`: those, but efficiency only if a case names it). `parallel` attempts are made at once,
    `repeat` of each case. With a `store`, an attempt is on disk before the next one starts in its place, and
    trajectories are not kept in memory. `redactor` masks secrets in the attempts of agents without a redactor. An
    `executor` makes the attempts instead of this process, and then `make_agent`, `evaluators`, `folder`, `timeout` and
    `redactor` are not used.

    `verdict` is how several attempts become one verdict (`None`: that of the set, else all must pass); a case may
    have its own. If the provider fails (throttled, overloaded, out of reach), the attempt is repeated at most `retries`
    times, after a wait that doubles (`sleep`); then it is not measured.

    A mapping of names to factories makes a grid: see `run_grid`.
    """

    def __init__(
        self,
        make_agent: MakeAgentFn | Mapping[str, MakeAgentFn] | None = None,
        evaluators: Iterable[Evaluator | EvaluatorFn] | EvaluatorRegistry | None = None,
        parallel: int = 4,
        repeat: int = 1,
        store: EvalStore | None = None,
        executor: Executor | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        timeout: float | None = _HALF_AN_HOUR,
        redactor: Redactor | None = None,
        verdict: Verdict | str | None = None,
        retries: int = 2,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        check_whole("parallel", parallel)
        check_whole("repeat", repeat)
        check_whole("retries", retries, least=0)
        if not is_function(sleep):
            raise is_not("sleep", sleep, "a function")
        if store is not None:
            check_methods("store", store, "an EvalStore, or None", "begin", "resume")
        self._executors: dict[str, Executor] = {}
        """By variant; the executor of a runner with a single agent has an empty name."""
        if executor is not None:
            check_methods("executor", executor, "an Executor, or None", "execute")
            self._executors[""] = executor
        else:
            if make_agent is None:
                raise ValueError("EvalRunner needs a make_agent, or an executor that has one")
            if evaluators is not None and not isinstance(evaluators, EvaluatorRegistry):
                evaluators = EvaluatorRegistry(evaluators)
            place = None if folder is None else Path(folder)
            factories: Mapping[str, MakeAgentFn] = {"": cast("MakeAgentFn", make_agent)}
            if isinstance(make_agent, Mapping):
                factories = cast("Mapping[str, MakeAgentFn]", make_agent)
                _check_variants(factories)
            for name, factory in factories.items():
                if not callable(factory):
                    wanted = "make_agent must be a function of (case, folder) that returns an agent, or several by name"
                    raise TypeError(f"{wanted}, not {factory!r}")
                self._executors[name] = CaseExecutor(
                    factory, evaluators, folder=place, timeout=timeout, redactor=redactor
                )
        self._parallel = parallel
        self._repeat = repeat
        self._store = store
        self._verdict = None if verdict is None else Verdict(verdict)
        self._retries = retries
        self._sleep = sleep

    async def run(
        self,
        eval_set: EvalSet,
        on_progress: ProgressFn | None = None,
        resume: bool = False,
        *,
        cancel: CancellationToken | None = None,
    ) -> EvalRun:
        """Runs the set, or resumes its newest interrupted run (`resume`, which needs a store).

        If `cancel` is cancelled, attempts in progress are stopped and the incomplete run is returned. If the current
        task is cancelled, the finished attempts are in the store. Raises `EvalStoreError` if the store cannot be
        written, `ValueError` for `resume` without a store.
        """
        _check_asked(eval_set, on_progress)
        if list(self._executors) != [""]:
            raise ValueError("a runner of several agents runs a grid: use run_grid")
        return await self._run(eval_set, on_progress, resume, cancel)

    async def run_grid(
        self,
        eval_set: EvalSet,
        on_progress: ProgressFn | None = None,
        resume: bool = False,
        *,
        cancel: CancellationToken | None = None,
    ) -> EvalGrid:
        """Runs the set with each agent of `EvalRunner({"small": make_small, "large": make_large})`, one after another.

        Returns a run for each, with the agent's name as its `variant`.

        `resume` continues the newest incomplete grid of the set. Raises as `run` does.
        """
        _check_asked(eval_set, on_progress)
        if "" in self._executors:
            raise ValueError("a grid needs agents with names: EvalRunner({'a': make_a, 'b': make_b})")
        done: dict[str, RunInfo] = {}
        grid = new_run_id(time.time_ns() // 1_000_000)
        if resume and self._store is not None:
            grid, done = await asyncio.to_thread(self._unfinished, self._store, eval_set, grid)
        runs: list[EvalRun] = []
        for variant in self._executors:
            if cancel is not None and cancel.is_cancelled:
                break
            info = done.get(variant)
            if info is not None and self._store is not None:
                runs.append(await asyncio.to_thread(self._store.load, info))
            else:
                runs.append(await self._run(eval_set, on_progress, resume, cancel, variant, grid))
        return EvalGrid(grid, tuple(runs))

    def _unfinished(self, store: EvalStore, eval_set: EvalSet, new: str) -> tuple[str, dict[str, RunInfo]]:
        """The newest incomplete grid of the set, with its complete runs; else the new id."""
        infos = [info for info in store.list(eval_set.id) if info.grid and not info.origin]
        for grid in dict.fromkeys([info.grid for info in infos]):
            of_grid = [info for info in infos if info.grid == grid]
            if not {info.variant for info in of_grid} <= set(self._executors):
                continue
            # The complete runs of the set as it is now.
            whole = [info for info in of_grid if info.is_complete and info.repeat == self._repeat]
            done = {info.variant: info for info in whole if store.load(info).set_digest == eval_set.digest}
            if len(done) < len(self._executors):
                return grid, done
        return new, {}

    async def _run(
        self,
        eval_set: EvalSet,
        on_progress: ProgressFn | None,
        resume: bool,
        cancel: CancellationToken | None,
        variant: str = "",
        grid: str = "",
    ) -> EvalRun:
        if resume and self._store is None:
            raise ValueError("a run can only be resumed from a store: give EvalRunner a store")
        created = time.time_ns() // 1_000_000
        blank = EvalRun(
            new_run_id(created),
            eval_set.id,
            set_name=eval_set.name,
            set_digest=eval_set.digest,
            created=created,
            cases=len(eval_set.cases),
            repeat=self._repeat,
            is_complete=False,
            verdict=self._verdict or eval_set.verdict or Verdict.ALL,
            variant=variant,
            grid=grid,
        )
        tries = _Tries(self._executors[variant], self._retries, self._sleep)
        run = _Run(eval_set, blank, tries, self._store, on_progress)
        if self._store is not None:
            await asyncio.to_thread(run.open, resume)
        try:
            await self._work(run, cancel)
            return await asyncio.to_thread(run.finish)
        finally:
            await asyncio.shield(run.close())

    async def _work(self, run: _Run, cancel: CancellationToken | None) -> None:
        tasks = run.tasks()
        await run.report(None)

        async def work() -> None:
            for task in tasks:  # all workers share the iterator
                await run.make(task)

        async def watch(workers: list[asyncio.Task[None]]) -> None:
            if cancel is not None:
                await cancel.wait()
                for worker in workers:
                    worker.cancel()

        try:
            async with asyncio.TaskGroup() as group:
                workers = [group.create_task(work()) for _ in range(self._parallel)]
                watcher = group.create_task(watch(workers))
                await asyncio.wait(workers)
                watcher.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # they all failed to write to the same file


def _check_asked(eval_set: object, on_progress: object) -> None:
    if not isinstance(eval_set, EvalSet):
        raise is_not("eval_set", eval_set, "an EvalSet, such as load_set(path) gives")
    if on_progress is not None and not is_function(on_progress):
        raise is_not("on_progress", on_progress, "a function, or None")


def _check_variants(factories: Mapping[str, MakeAgentFn]) -> None:
    if not factories:
        raise ValueError("a grid needs at least one agent")
    for name in factories:
        if not name.strip() or not name.isprintable() or len(name) > _LONGEST_VARIANT:
            raise ValueError(f"{name[:80]!r} cannot name a variant: give 1 to {_LONGEST_VARIANT} printable characters")


class _Tries:
    """An executor that repeats an attempt if the provider failed."""

    def __init__(self, executor: Executor, retries: int, sleep: Callable[[float], Awaitable[object]]) -> None:
        self._executor = executor
        self._retries = retries
        self._sleep = sleep

    async def execute(self, task: EvalTask, /) -> Attempt:
        wait, lost_cost, lost_tokens, tried = _FIRST_WAIT, 0.0, 0, 0
        while True:
            attempt = await self._executor.execute(task)
            tried += 1
            if attempt.is_measured or tried > self._retries:
                break
            lost_cost, lost_tokens = lost_cost + attempt.total_cost, lost_tokens + attempt.total_tokens
            await self._sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        if tried == 1:
            return attempt
        repeated = replace(attempt, tries=tried, lost_cost=lost_cost, lost_tokens=lost_tokens, chain=())
        return AuditTrail.sealed(task.set_id, task.case.id, repeated)

    async def drain(self) -> None:
        drain: Any = getattr(self._executor, "drain", None)
        if drain is not None:
            await drain()


class _Run:
    """A run in progress: its attempts so far, and the file that keeps them."""

    def __init__(
        self, eval_set: EvalSet, run: EvalRun, executor: _Tries, store: EvalStore | None, on_progress: ProgressFn | None
    ) -> None:
        self._set = eval_set
        self._run = run
        self._executor = executor
        self._repeat = run.repeat
        self._store = store
        self._on_progress = on_progress
        self._log: AttemptLog | None = None
        self._cases = {case.id: case for case in eval_set.cases}
        self._attempts: dict[str, dict[int, Attempt]] = {case.id: {} for case in eval_set.cases}
        self._running: list[str] = []
        self._began = time.monotonic()
        self._before = 0.0  # seconds of earlier parts of the run
        self._resumed = 0
        self._syncing: asyncio.Task[int] | None = None
        self._synced = 0
        self._done = self._passed = self._missing = self._made = 0
        self._cost = 0.0

    # -- the store ---------------------------------------------------------------------------------------------

    def open(self, resume: bool) -> None:
        if self._store is None:
            return
        run = self._run
        found = self._store.resume(run.set_id, variant=run.variant, grid=run.grid) if resume else None
        if found is None:
            self._log = self._store.begin(run)
            return
        header, self._log = found
        self._run = replace(run, id=header.id, created=header.created)
        digests = {case.id: case.digest for case in self._set.cases}
        for line in read_attempts(self._log.path):
            self._before = max(self._before, line.elapsed)
            # Changed cases are run again, and so are attempts that were not measured. Deleted cases are dropped.
            is_same = digests.get(line.case_id) == line.case_digest and line.attempt.number <= self._repeat
            if is_same and line.attempt.is_measured:
                self._attempts[line.case_id][line.attempt.number] = line.attempt
                self._resumed += 1
                self._count(line.case_id, line.attempt)

    async def close(self) -> None:
        if self._syncing is not None:
            await asyncio.wait([self._syncing])
        if self._log is not None:
            try:
                await asyncio.to_thread(self._log.close)
            except OSError as error:  # the caller has seen the error of the attempt that was not kept
                log.error("%s: the last attempts could not be written: %s", self._log.path, error)
        await self._executor.drain()

    def finish(self) -> EvalRun:
        """Returns the run as it is now. A complete run is moved to its place in the store."""
        results = tuple([result for case in self._set.cases if (result := self._result(case)).attempts])
        is_complete = self._made == self._repeat * len(self._set.cases)
        run = replace(
            self._run,
            results=results,
            summary=Summary.of(results, self._elapsed()),
            is_complete=is_complete,
            path="" if self._log is None else str(self._log.path),
        )
        run = replace(run, chain=AuditTrail.chain_of_run(run))
        if self._store is None or self._log is None or not is_complete:
            return run
        return self._store.finish(self._log, run)

    # -- attempts ----------------------------------------------------------------------------------------------

    def tasks(self) -> Iterator[EvalTask]:
        for case in self._set.cases:
            for number in range(1, self._repeat + 1):
                if number not in self._attempts[case.id]:
                    yield EvalTask(self._run.id, self._set.id, case, number)

    async def make(self, task: EvalTask) -> None:
        """Makes an attempt. With a store, it is on the disk when this returns."""
        self._running.append(task.case.id)
        try:
            try:
                attempt = await self._executor.execute(task)
            except (Exception, asyncio.CancelledError) as error:
                if is_cancelled():
                    raise
                # If another machine fails, only the attempt fails, not the run.
                failure = f"the attempt could not be made: {type(error).__name__}: {error}"
                attempt = Attempt(task.number, error=failure, case=task.case)
            if not attempt.chain:
                attempt = AuditTrail.sealed(task.set_id, task.case.id, attempt)
            if self._log is not None:
                attempt = await self._keep(self._log, task.case, attempt)
        finally:
            self._running.remove(task.case.id)
        self._attempts[task.case.id][task.number] = attempt
        self._count(task.case.id, attempt)
        await self.report(self._result(task.case))

    async def _keep(self, log: AttemptLog, case: EvalCase, attempt: Attempt) -> Attempt:
        line = AttemptLine(case.id, case.name, case.digest, self._elapsed(), attempt)
        stored, mark = log.append(line)
        while self._synced < mark:
            # One sync serves all waiting attempts. An attempt that comes after its start waits for the next sync.
            if self._syncing is None or self._syncing.done():
                self._syncing = asyncio.create_task(asyncio.to_thread(log.sync))
            syncing = self._syncing
            await asyncio.wait([syncing])
            with told(log.path, "cannot be written"):
                self._synced = max(self._synced, syncing.result())
        return replace(attempt, trajectory=stored)

    def _count(self, case_id: str, attempt: Attempt) -> None:
        self._made += 1
        self._cost += attempt.total_cost
        if len(self._attempts[case_id]) == self._repeat:
            result = self._result(self._cases[case_id])
            self._done += 1
            self._passed += result.passed
            self._missing += not result.is_measured

    def _result(self, case: EvalCase) -> CaseResult:
        made = self._attempts[case.id]
        return case_result(case.id, [made[number] for number in sorted(made)], case.name, self._run.verdict)

    def _elapsed(self) -> float:
        return self._before + time.monotonic() - self._began

    async def report(self, latest: CaseResult | None) -> None:
        if self._on_progress is None:
            return
        progress = Progress(
            done=self._done,
            total=len(self._set.cases),
            passed=self._passed,
            failed=self._done - self._passed - self._missing,
            cost=self._cost,
            seconds=time.monotonic() - self._began,
            attempts_done=self._made,
            attempts_total=self._repeat * len(self._set.cases),
            resumed=self._resumed,
            running=tuple(self._running),
            latest=latest,
            not_measured=self._missing,
            variant=self._run.variant,
        )
        try:
            tell = self._on_progress if latest is not None else getattr(self._on_progress, "begin", None)
            answer = None if tell is None else tell(progress)
            if inspect.isawaitable(answer):
                await answer
        except Exception:
            log.exception("on_progress failed and is not called again")
            self._on_progress = None
