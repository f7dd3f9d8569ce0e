"""A worker: takes queued runs of its agents, and executes them in its event loop.

    takes       whenever a ticket comes, a slot becomes free, or `poll` seconds have passed
    counts up   while its event loop runs; if it stops for `lease` seconds, by the clocks of others, they take over
    looks       for dead workers, and hands on their runs; for its own runs that were cancelled or record nothing
    drains      takes nothing more; each run ends its turn and goes back to the queue

A worker is alive while it holds a lock that ends with its process. The clocks of two machines are never compared.

Owns the slots and the loops. `attempt` runs one run, and `store` decides which runs may be taken.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from swink_agent.core.cancel import call_in
from swink_agent.core.types import CustomMessage
from swink_agent.core.values.checks import check_seconds, check_whole

from .attempt import Attempt
from .engine import Listener
from .errors import DurableError, StoreUnavailable
from .info import WorkerInfo
from .metrics import FleetMetrics, metrics_if_wanted
from .registry import AgentEntry
from .store.connecting import Lock, is_outage
from .store.gate import Claim
from .store.store import Fleet, Store

log = logging.getLogger("swink_agent")
T = TypeVar("T")

_LOOK = 0.5
"""Seconds between two checks of the other workers: a dead worker is taken over within two seconds."""
_PRUNE, _FIRST_PRUNE = 3600.0, 5.0
"""The most seconds between two deletions of old runs, and the seconds before the first."""
_MEASURE = 10.0
_PATIENCE = 30.0
_GRACE = 3.0
"""Seconds after an outage of the store in which no worker is taken for dead."""
_CLOCK_SET_BACK = 5_000
"""If the store's clock is behind by more milliseconds, it was set back. Less may be the time that reading it took."""


class Worker:
    """Executes runs inside `async with`. A process has one worker at a time.

    `drain` may be called from a signal handler of the event loop; `abandon` too, to leave at once.
    """

    def __init__(
        self,
        store: Store,
        entries: Mapping[str, AgentEntry],
        *,
        slots: int = 8,
        poll: float = 0.5,
        lease: float = 30,
        drain: float = 30,
        types: Sequence[type[CustomMessage]] = (),
        keep_days: float | None = None,
    ) -> None:
        check_whole("slots", slots)
        check_seconds("poll", poll)
        check_seconds("lease", lease)
        check_seconds("drain", drain, or_zero=True)
        if not entries:
            raise DurableError("this worker has no agents: register at least one with @durable.agent")
        self.id = ""
        """The worker's id, which others see. It changes if others have taken the worker for dead."""
        self.slots = slots
        self._store = store
        self._entries = dict(entries)
        self._poll, self._lease, self._drain_seconds = poll, lease, drain
        self._types = tuple(types)
        self._keep_days = keep_days
        self._attempts: dict[str, Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._unreleased: dict[str, int] = {}
        """Runs that could not be handed on yet, with their epochs."""
        self._taken: list[Claim] = []
        """The runs that were taken since tickets were last deleted."""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_told = asyncio.Event()
        self._is_abandoned = asyncio.Event()
        self._lock: Lock | None = None
        self._number = 0
        """The number of the lock."""
        self._spares_until = 0.0
        self._leaves_by = float("inf")
        """When the worker abandons its remaining runs, once it was told to stop."""
        self._listener: Listener | None = None
        self._beats: dict[str, tuple[int, float]] = {}
        self._strays: dict[str, int] = {}
        self._offset = 0
        self._metrics: FleetMetrics | None = None

    @property
    def running(self) -> int:
        return len(self._attempts)

    @property
    def _is_draining(self) -> bool:
        return self._is_told.is_set()

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(sorted(self._entries))

    # -- its life ----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Worker:
        loop = asyncio.get_running_loop()
        try:
            await self._join()
            self._listener = await self._call(
                lambda: Listener(self._store.database.engine_url, self.id, lambda run_id: call_in(loop, self._wake.set))
            )
            self._store.on_queued = lambda: call_in(loop, self._wake.set)
        except BaseException:
            await self._leave()
            raise
        self._loops = [asyncio.create_task(self._take_runs()), asyncio.create_task(self._look_around())]
        if (metrics := metrics_if_wanted()) is not None:
            self._metrics = metrics
            self._loops.append(asyncio.create_task(self._measure(metrics)))
        if self._keep_days is not None:
            self._loops.append(asyncio.create_task(self._prune(self._keep_days)))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.drain()
        try:
            await self.wait()
        finally:
            await asyncio.shield(asyncio.ensure_future(self._stop()))

    def drain(self) -> None:
        """Takes nothing more; each run ends its turn and goes back to the queue."""
        if not self._is_draining:
            self._leaves_by = time.monotonic() + self._drain_seconds
        self._is_told.set()
        self._wake.set()

    def abandon(self) -> None:
        """Takes nothing more, and hands on its runs at once."""
        self.drain()
        self._is_abandoned.set()

    async def wait(self) -> None:
        """Waits until the worker is told to stop. Then returns when it has no runs left or `abandon` is called, after
        `drain` seconds at the latest."""
        await self._is_told.wait()
        waits = [asyncio.ensure_future(self._idle.wait()), asyncio.ensure_future(self._is_abandoned.wait())]
        try:
            rest = max(0.0, self._leaves_by - time.monotonic())
            await asyncio.wait(waits, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _stop(self) -> None:
        """Hands on the remaining runs, before the worker leaves the list of workers."""
        self._store.on_queued = None
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        for attempt in list(self._attempts.values()):
            self._hand_on(attempt)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_PATIENCE)
            for task in self._tasks:
                task.cancel()
        await self._release_all()
        with suppress(DurableError):
            await self._forget_tickets()
        await self._leave()

    async def _join(self) -> None:
        """Takes a lock and a place on the list of workers, under a new id."""
        host = socket.gethostname()
        worker_id = f"{host.partition('.')[0][:40] or 'worker'}-{os.getpid()}-{secrets.token_hex(3)}"
        number = random.SystemRandom().randrange(1, 2**31 - 1)
        info = WorkerInfo(
            id=worker_id, host=host, pid=os.getpid(), slots=self.slots, running=0, seen=0, agents=self.agents
        )

        def join() -> tuple[Lock, Fleet]:
            self._store.read(lambda connection: None)  # makes the tables
            lock = self._store.database.hold(worker_id, number)
            try:
                self._store.register(info, self._lease, number)
                return lock, self._store.fleet(worker_id)
            except BaseException:
                lock()
                raise

        self._lock, fleet = await self._call(join)
        self.id, self._number = worker_id, number
        self._set_clock(fleet.now)

    async def _leave(self) -> None:
        try:
            if self.id:
                await self._call(lambda: self._store.take_over(self.id))
        except StoreUnavailable as error:
            log.warning("worker %s could not take itself off the list: %s", self.id, error)
        await self._unlock()
        if self._listener is not None:
            await self._call(self._listener.close)
            self._listener = None

    async def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            await self._call(lock)

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._store.threads, work)

    def _set_clock(self, now: int) -> None:
        """Sets `_clock` by the store's time, which was read a moment ago. The reading with the least delay, which gives
        the largest offset, is the most exact."""
        offset = now - int(time.monotonic() * 1000)
        if offset > self._offset or self._offset - offset > _CLOCK_SET_BACK:
            self._offset = offset

    def _clock(self) -> int:
        """The store's time in milliseconds. Changes of this machine's clock do not affect it."""
        return int(time.monotonic() * 1000) + self._offset

    # -- taking runs -------------------------------------------------------------------------------------------

    async def _take_runs(self) -> None:
        while not self._is_draining:
            self._wake.clear()
            free = self.slots - len(self._attempts)
            if free > 0:
                claims = await self._claimed(free)
                for claim in claims:
                    self._start(claim)
                self._taken += claims
            try:
                async with asyncio.timeout(self._poll * random.uniform(0.9, 1.1)):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _claimed(self, free: int) -> list[Claim]:
        try:
            return await self._call(lambda: self._store.claim(self.id, self._entries, free))
        except DurableError as error:  # `_look_around` warns, and joins again if others took this worker for dead
            log.debug("worker %s cannot take runs: %s", self.id, error)
        except Exception:
            log.exception("worker %s cannot take runs", self.id)
        return []

    def _start(self, claim: Claim) -> None:
        if self._is_draining:
            self._unreleased[claim.id] = claim.epoch
            return
        entry = self._entries[claim.agent]
        attempt = Attempt(
            self._store, claim, entry, types=self._types, clock=self._clock, is_draining=self._is_told.is_set
        )
        self._attempts[claim.id] = attempt
        self._idle.clear()
        task = asyncio.create_task(self._run(attempt), name=f"run {claim.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, attempt: Attempt) -> None:
        claim = attempt.claim
        is_in_order = False
        try:
            is_in_order = await attempt.run()
        finally:
            if not is_in_order:
                self._unreleased[claim.id] = claim.epoch
            if self._attempts.get(claim.id) is attempt:
                del self._attempts[claim.id]
            if not self._attempts:
                self._idle.set()
            self._wake.set()

    async def _forget_tickets(self) -> None:
        """Deletes the tickets of the runs that were taken, all at once. If that fails, they do no harm."""
        claims, self._taken = self._taken, []
        if claims:
            await self._call(lambda: self._store.forget_tickets(claims))

    # -- looking around ----------------------------------------------------------------------------------------

    async def _look_around(self) -> None:
        beat_every = min(2.0, self._lease / 4)
        last_beat, has_warned = float("-inf"), False
        while True:
            now = time.monotonic()
            try:
                if now - last_beat >= beat_every:
                    last_beat = now
                    await self._beat()
                await self._look()
                await self._release_all()
                await self._forget_tickets()
                has_warned = False
            except DurableError as error:
                if not has_warned:
                    log.warning("worker %s cannot use its store, and tries again: %s", self.id, error)
                has_warned = True
                self._spare_others()
            except Exception as error:
                if not is_outage(error):
                    log.exception("worker %s", self.id)
                self._spare_others()
            await asyncio.sleep(min(_LOOK, beat_every))

    async def _beat(self) -> None:
        running = len(self._attempts)
        await self._keep_lock()
        if await self._call(lambda: self._store.beat(self.id, running)):
            return
        log.warning("worker %s was taken for dead: it joins again", self.id)
        for attempt in list(self._attempts.values()):
            self._hand_on(attempt)
        await self._release_all()
        await self._call(lambda: self._store.take_over(self.id))
        await self._unlock()
        await self._join()

    async def _keep_lock(self) -> bool:
        """Takes the worker's lock again if its connection broke. Returns whether the lock was kept."""
        if await self._call(self._store.database.is_held):
            return True
        self._spare_others()
        await self._unlock()
        worker, number = self.id, self._number
        self._lock = await self._call(lambda: self._store.database.hold(worker, number))
        return False

    def _spare_others(self) -> None:
        """Takes no worker for dead for a while: the outage may have affected the others too."""
        self._beats.clear()
        self._spares_until = time.monotonic() + _GRACE

    async def _look(self) -> None:
        looked = time.monotonic()  # taken before the read: this process may be stopped at any moment
        fleet = await self._call(lambda: self._store.fleet(self.id))
        self._set_clock(fleet.now)
        for run_id in fleet.cancelled:
            if (attempt := self._attempts.get(run_id)) is not None:
                attempt.abort()
        self._find_strays(fleet)
        now = asyncio.get_running_loop().time()
        for attempt in list(self._attempts.values()):
            patience = attempt.entry.progress
            if attempt.progressed and now - attempt.progressed > patience:
                log.warning("run %s has recorded nothing for %g s: it is handed on", attempt.claim.id, patience)
                self._hand_on(attempt)
        for worker in await self._dead(fleet, looked):
            count = await self._call(lambda worker=worker: self._store.take_over(worker))
            if self._metrics is not None:
                self._metrics.count_takeover()
            self._beats.pop(worker, None)
            log.warning("worker %s is dead or hangs; runs that are queued again: %d", worker, count)
            self._wake.set()

    def _find_strays(self, fleet: Fleet) -> None:
        """Hands on runs that this worker took without knowing it, because the connection broke after the commit."""
        strays = {run_id: epoch for run_id, epoch in fleet.own.items() if run_id not in self._attempts}
        for run_id, epoch in strays.items():
            if self._strays.get(run_id) == epoch:  # not one that is just being started
                self._unreleased[run_id] = epoch
        self._strays = strays

    async def _dead(self, fleet: Fleet, now: float) -> list[str]:
        """The workers that hold no lock, whose counter stands still by our clock, or that have runs but are not
        listed."""
        others = [member for member in fleet.members if member.id != self.id]
        locks = [(member.id, member.lock) for member in others]
        alive = await self._call(lambda: self._store.database.alive(locks)) if locks else set[str]()
        dead = [owner for owner in fleet.owners if owner != self.id and owner not in {one.id for one in others}]
        known: dict[str, tuple[int, float]] = {}
        for member in others:
            beat, since = self._beats.get(member.id, (member.beat, now))
            if beat != member.beat:
                since = now
            known[member.id] = member.beat, since
            if member.id not in alive or now - since > member.lease:
                dead.append(member.id)
        self._beats = known
        if dead and not await self._keep_lock():
            return []  # the store itself was unavailable
        return dead if now > self._spares_until else []

    # -- handing on --------------------------------------------------------------------------------------------

    def _hand_on(self, attempt: Attempt) -> None:
        """Ends an attempt without another record; its run is queued again as it is on record."""
        claim = attempt.claim
        self._unreleased[claim.id] = claim.epoch
        attempt.leave()
        if self._attempts.get(claim.id) is attempt:
            del self._attempts[claim.id]
        if not self._attempts:
            self._idle.set()

    async def _release_all(self) -> None:
        """Hands on the runs that this worker has given up. If a write fails, it is tried again later."""
        for run_id, epoch in list(self._unreleased.items()):
            try:
                await self._call(lambda run_id=run_id, epoch=epoch: self._store.release(run_id, epoch))
            except StoreUnavailable as error:
                log.warning("run %s cannot be handed on yet: %s", run_id, error)
                return
            if self._unreleased.get(run_id) == epoch:
                del self._unreleased[run_id]

    async def _measure(self, metrics: FleetMetrics) -> None:
        while True:
            try:
                metrics.measure(await self._call(self._store.stats))
            except Exception as error:
                log.debug("the fleet was not measured: %s", error)
            await asyncio.sleep(_MEASURE)

    async def _prune(self, days: float) -> None:
        pause = min(_PRUNE, max(_FIRST_PRUNE, days * 8640))
        await asyncio.sleep(_FIRST_PRUNE)
        while True:
            try:
                await self._call(lambda: self._store.prune(days))
            except Exception as error:
                log.warning("runs that are over could not be deleted: %s", error)
            await asyncio.sleep(random.uniform(0.5, 1.0) * pause)
