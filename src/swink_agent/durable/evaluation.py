"""Evaluation on workers: each chunk of attempts is a run.

    executor    collects tasks into chunks, queues each chunk as a run, and reads its attempts when the run is over
    job         makes the attempts of such a run in a worker, with a `CaseExecutor`, several at once

If the worker of a chunk dies, the whole chunk is made again. An attempt is identified by its place in the chunk: the
last one on record counts.

Owns the chunks. `swink_agent.evals` makes and scores one attempt, `worker` runs the jobs.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec

from swink_agent.evals.runs.codec import decode_attempt, decode_task, encode_attempt, encode_task
from swink_agent.evals.runs.executor import CaseExecutor, MakeAgentFn
from swink_agent.evals.scoring.evaluator import Evaluator, EvaluatorFn, EvaluatorRegistry
from swink_agent.evals.types import Attempt, EvalTask
from swink_agent.memory import NoteAdded

from .errors import DurableError
from .registry import AgentEntry, JobRun
from .run import DurableRun

ATTEMPTS = "attempts"
_GATHERING = 0.02
"""Seconds for which a chunk that is not full waits for more tasks."""
_LARGEST_NOTE = 8 * 1024 * 1024
"""Bytes of attempts in one record, unless a single attempt is larger."""
_SIGN_OF_LIFE = 60.0
_WEEK = 7 * 86_400.0


def evaluation_entry(
    name: str,
    make_agent: MakeAgentFn,
    evaluators: EvaluatorRegistry | Sequence[Evaluator | EvaluatorFn] | None,
    at_once: int,
    timeout: float | None,
) -> AgentEntry:
    """The entry with which workers make the chunks of this evaluation."""
    registry = evaluators if isinstance(evaluators, EvaluatorRegistry | None) else EvaluatorRegistry(evaluators)

    async def job(run: JobRun) -> Any:
        executor = CaseExecutor(make_agent, registry, timeout=timeout)
        tasks = [decode_task(line) for line in msgspec.json.decode(run.text, type=list[str])]
        waiting = list(reversed(range(len(tasks))))
        made: list[tuple[int, str]] = []
        alive = time.monotonic()

        async def work() -> None:
            nonlocal alive
            while waiting:
                place = waiting.pop()
                attempt = await executor.execute(tasks[place])
                made.append((place, encode_attempt(attempt).decode()))
                if sum(len(line) for _, line in made) > _LARGEST_NOTE or time.monotonic() - alive > _SIGN_OF_LIFE:
                    told, alive = list(made), time.monotonic()
                    made.clear()
                    await run.note(ATTEMPTS, told)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(at_once, len(tasks))):
                    group.create_task(work())
        finally:
            await executor.drain()
        return made

    # A chunk records at least once a minute, unless a single attempt takes longer.
    progress = _WEEK if timeout is None else max(3600.0, 3 * timeout)
    return AgentEntry(name=name, job=job, progress=progress)


class Submits(Protocol):
    """What an executor needs of the `Durable` that it belongs to."""

    async def submit(self, agent: str, prompt: str, /, *, metadata: Mapping[str, Any]) -> DurableRun: ...


class DurableExecutor:
    """Makes attempts on workers, in chunks; for `EvalRunner(executor=…)`."""

    def __init__(self, durable: Submits, name: str, chunk: int) -> None:
        self._durable = durable
        self._name = name
        self._chunk = chunk
        self._gathered: list[tuple[EvalTask, asyncio.Future[Attempt]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._chunks: set[asyncio.Task[None]] = set()

    async def execute(self, task: EvalTask, /) -> Attempt:
        """The attempt, made by a worker. Raises `DurableError` if its chunk failed."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Attempt] = loop.create_future()
        self._gathered.append((task, answer))
        if len(self._gathered) >= self._chunk:
            self._send()
        elif self._timer is None:
            self._timer = loop.call_later(_GATHERING, self._send)
        return await answer

    async def drain(self) -> None:
        """Waits until all chunks are over, also those for which no caller waits."""
        if self._chunks:
            await asyncio.wait(set(self._chunks))

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wanted = [(task, answer) for task, answer in self._gathered if not answer.done()]
        self._gathered.clear()
        if wanted:
            chunk = asyncio.ensure_future(self._made(wanted))
            self._chunks.add(chunk)
            chunk.add_done_callback(self._chunks.discard)

    async def _made(self, wanted: Sequence[tuple[EvalTask, asyncio.Future[Attempt]]]) -> None:
        """Submits a chunk, and gives its attempts to the callers. Cancels it if no caller is waiting."""
        answers = [answer for _, answer in wanted]
        try:
            text = msgspec.json.encode([encode_task(task).decode() for task, _ in wanted]).decode()
            metadata = {"set": wanted[0][0].set_id, "attempts": len(wanted)}
            run = await self._durable.submit(self._name, text, metadata=metadata)
            reading = asyncio.ensure_future(self._read(run, len(wanted)))
            gone = asyncio.ensure_future(_all_cancelled(answers))
            await asyncio.wait({reading, gone}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if not reading.done():
                reading.cancel()
                await run.cancel("the evaluation was stopped")
                return
            for answer, attempt in zip(answers, reading.result(), strict=True):
                if not answer.done():
                    answer.set_result(attempt)
        except Exception as error:
            for answer in answers:
                if not answer.done():
                    answer.set_exception(error)

    async def _read(self, run: DurableRun, count: int) -> list[Attempt]:
        result = await run.result()
        if result.error is not None:
            raise DurableError(f"the chunk {run.id} was not made: {result.error}")
        found: dict[int, str] = {}
        async for record in run.events(follow=False):
            if isinstance(record.entry, NoteAdded) and record.entry.kind in (ATTEMPTS, "result"):
                found.update(dict(cast("list[tuple[int, str]]", record.entry.data)))
        if len(found) < count:
            raise DurableError(f"the chunk {run.id} has {len(found)} of {count} attempts on record")
        return [decode_attempt(found[place]) for place in range(count)]


async def _all_cancelled(answers: Sequence[asyncio.Future[Attempt]]) -> None:
    await asyncio.wait(answers)
    if not all(answer.cancelled() for answer in answers):
        await asyncio.sleep(math.inf)
