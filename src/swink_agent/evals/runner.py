"""`EvalRunner`: runs a set.

Owns which attempts are made, how many at once, and that what is done is kept: when the run is cancelled, when it goes
on, when the program dies. One attempt is the business of an `Executor`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from msgspec.structs import replace

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.secrets.redaction import Redactor

from .audit import AuditTrail
from .cases import EvalCase, EvalSet
from .codec import AttemptLine
from .errors import EvalStoreError
from .evaluator import Evaluator, EvaluatorFn, EvaluatorRegistry, is_ending
from .executor import CaseExecutor, Executor, MakeAgentFn
from .run_files import AttemptLog, read_attempts
from .store import EvalStore, new_run_id
from .types import Attempt, CaseResult, EvalRun, EvalTask, Progress, Summary

__all__ = ["EvalRunner", "ProgressFn"]

log = logging.getLogger("swink_agent")

ProgressFn: TypeAlias = Callable[[Progress], Any]
"""Called after each attempt, sync or async; one that raises is logged and not called again.

A display may also have `begin(progress)`, called once before the first attempt.
"""

_HALF_AN_HOUR = 1800.0


class EvalRunner:
    """Runs a real agent on each case of a set, and scores what it did.

    `make_agent(case, folder)` gives an agent for an attempt, and each attempt has a folder of its own. `evaluators` is
    a list that takes the place of all built-in ones (`None`: those, but efficiency only where a case names it).
    `parallel` attempts are made at once, `repeat` of each case. With a `store`, an attempt is on disk before its place
    is free for the next, and memory holds no trajectories. `redactor` masks the secrets in what agents without one of
    their own did. An `executor` makes the attempts in the place of this process; then `make_agent`, `evaluators`,
    `folder`, `timeout` and `redactor` are its own affair.
    """

    def __init__(
        self,
        make_agent: MakeAgentFn | None = None,
        evaluators: Iterable[Evaluator | EvaluatorFn] | EvaluatorRegistry | None = None,
        parallel: int = 4,
        repeat: int = 1,
        store: EvalStore | None = None,
        executor: Executor | None = None,
        *,
        folder: str | os.PathLike[str] | None = None,
        timeout: float | None = _HALF_AN_HOUR,
        redactor: Redactor | None = None,
    ) -> None:
        if parallel < 1 or repeat < 1:
            raise ValueError(f"parallel is {parallel} and repeat {repeat}; both are at least 1")
        if executor is None:
            if make_agent is None:
                raise ValueError("EvalRunner needs a make_agent, or an executor that has one")
            if evaluators is not None and not isinstance(evaluators, EvaluatorRegistry):
                evaluators = EvaluatorRegistry(evaluators)
            place = None if folder is None else Path(folder)
            executor = CaseExecutor(make_agent, evaluators, folder=place, timeout=timeout, redactor=redactor)
        self._executor = executor
        self._parallel = parallel
        self._repeat = repeat
        self._store = store

    async def run(
        self,
        eval_set: EvalSet,
        on_progress: ProgressFn | None = None,
        resume: bool = False,
        *,
        cancel: CancellationToken | None = None,
    ) -> EvalRun:
        """Runs the set, or goes on with the newest run of it that was interrupted (`resume`, which needs a store).

        When `cancel` is cancelled, attempts under way are ended and the run so far is returned, not complete. When the
        task that this runs in is cancelled, what was done is in the store. Raises `EvalStoreError` if it cannot be
        kept, `ValueError` for a resume without a store.
        """
        if resume and self._store is None:
            raise ValueError("a run can only be resumed with a store that it was kept in")
        run = _Run(eval_set, self._executor, self._repeat, self._store, on_progress)
        if self._store is not None:
            await asyncio.to_thread(run.open, resume)
        try:
            await self._work(run, cancel)
            return await asyncio.to_thread(run.finish)
        finally:
            await asyncio.shield(self._leave(run))

    async def _leave(self, run: _Run) -> None:
        await run.close()
        drain: Any = getattr(self._executor, "drain", None)
        if drain is not None:
            await drain()

    async def _work(self, run: _Run, cancel: CancellationToken | None) -> None:
        tasks = run.tasks()
        await run.report(None)

        async def work() -> None:
            for task in tasks:  # one iterator for all: each takes what comes next
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
            raise failures.exceptions[0] from None  # all of them could not write to one file


class _Run:
    """A run that goes on: its attempts so far, and where they are kept."""

    def __init__(
        self,
        eval_set: EvalSet,
        executor: Executor,
        repeat: int,
        store: EvalStore | None,
        on_progress: ProgressFn | None,
    ) -> None:
        self._set = eval_set
        self._executor = executor
        self._repeat = repeat
        self._store = store
        self._on_progress = on_progress
        self._log: AttemptLog | None = None
        self._created = time.time_ns() // 1_000_000
        self._id = new_run_id(self._created)
        self._attempts: dict[str, dict[int, Attempt]] = {case.id: {} for case in eval_set.cases}
        self._running: list[str] = []
        self._began = time.monotonic()
        self._before = 0.0
        """Seconds that earlier parts of the run took."""
        self._resumed = 0
        self._trip: asyncio.Task[int] | None = None
        self._synced = 0
        self._done = self._passed = self._made = 0
        self._cost = 0.0

    # -- the store ---------------------------------------------------------------------------------------------

    def open(self, resume: bool) -> None:
        if self._store is None:
            return
        found = self._store.resume(self._set.id) if resume else None
        if found is None:
            self._log = self._store.begin(self._set, self._id, self._created, self._repeat)
            return
        header, self._log = found
        self._id, self._created = header.id, header.created
        digests = {case.id: case.digest for case in self._set.cases}
        for line in read_attempts(self._log.path):
            self._before = max(self._before, line.elapsed)
            # A case that says something else now is made anew, and one that is gone is left out.
            if digests.get(line.case_id) == line.case_digest and line.attempt.number <= self._repeat:
                self._attempts[line.case_id][line.attempt.number] = line.attempt
                self._resumed += 1
                self._count(line.case_id, line.attempt)

    async def close(self) -> None:
        if self._trip is not None:
            await asyncio.wait([self._trip])
        if self._log is not None:
            try:
                await asyncio.to_thread(self._log.close)
            except OSError as error:  # who could do something about it was told when an attempt was not kept
                log.error("%s: what was left could not be written: %s", self._log.path, error)

    def finish(self) -> EvalRun:
        """The run as it is now; with a store, and if it is complete, in its place there."""
        results = tuple([result for case in self._set.cases if (result := self._result(case)).attempts])
        is_complete = self._made == self._repeat * len(self._set.cases)
        summary = Summary.of(results, self._elapsed())
        run = EvalRun(
            id=self._id,
            set_id=self._set.id,
            results=results,
            summary=summary,
            set_name=self._set.name,
            set_digest=self._set.digest,
            created=self._created,
            cases=len(self._set.cases),
            repeat=self._repeat,
            is_complete=is_complete,
            chain=AuditTrail.chain_of(results, summary.seconds),
            path="" if self._log is None else str(self._log.path),
        )
        if self._store is None or self._log is None or not is_complete:
            return run
        return self._store.finish(self._log, run)

    # -- attempts ----------------------------------------------------------------------------------------------

    def tasks(self) -> Iterator[EvalTask]:
        """What is left to do, made as it is asked for."""
        for case in self._set.cases:
            for number in range(1, self._repeat + 1):
                if number not in self._attempts[case.id]:
                    yield EvalTask(self._id, self._set.id, case, number)

    async def make(self, task: EvalTask) -> None:
        """Makes an attempt; with a store, it is on the disk when this returns."""
        self._running.append(task.case.id)
        try:
            try:
                attempt = await self._executor.execute(task)
            except (Exception, asyncio.CancelledError) as error:
                if is_ending():
                    raise
                # A machine that is gone costs its attempt, not the run.
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
            # One trip at a time, for all who wait; who came after it had begun waits for the next.
            if self._trip is None or self._trip.done():
                self._trip = asyncio.create_task(asyncio.to_thread(log.sync))
            trip = self._trip
            await asyncio.wait([trip])
            try:
                self._synced = max(self._synced, trip.result())
            except OSError as error:
                raise EvalStoreError(f"cannot be written: {error.strerror}", path=str(log.path)) from error
        return replace(attempt, trajectory=stored)

    def _count(self, case_id: str, attempt: Attempt) -> None:
        self._made += 1
        self._cost += attempt.total_cost
        made = self._attempts[case_id]
        if len(made) == self._repeat:
            self._done += 1
            self._passed += all(one.passed for one in made.values())

    def _result(self, case: EvalCase) -> CaseResult:
        made = self._attempts[case.id]
        return CaseResult(case.id, tuple([made[number] for number in sorted(made)]), case.name)

    def _elapsed(self) -> float:
        return self._before + time.monotonic() - self._began

    async def report(self, latest: CaseResult | None) -> None:
        if self._on_progress is None:
            return
        progress = Progress(
            done=self._done,
            total=len(self._set.cases),
            passed=self._passed,
            failed=self._done - self._passed,
            cost=self._cost,
            seconds=time.monotonic() - self._began,
            attempts_done=self._made,
            attempts_total=self._repeat * len(self._set.cases),
            resumed=self._resumed,
            running=tuple(self._running),
            latest=latest,
        )
        try:
            tell = self._on_progress if latest is not None else getattr(self._on_progress, "begin", None)
            answer = None if tell is None else tell(progress)
            if inspect.isawaitable(answer):
                await answer
        except Exception:
            log.exception("on_progress failed and is not called again")
            self._on_progress = None
