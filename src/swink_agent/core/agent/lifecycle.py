"""From a caller's order to the result of its run: an agent has at most one run at a time.

    Claims        the right to run, and the order of runs that wait for an aborted run to end
    Order         what a caller wants of one run, and how the agent makes that run
    Lifecycle     drives orders, in each way to run; knows the run that goes on, the last result, and all usage so far
    run_sync      runs a coroutine to its end for code that is not async

Owns what happens before the first event of a run and after its last. The run itself is in `loop`.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from msgspec import Struct

from ..cancel import CancellationToken, Signal, running_loop
from ..context.compaction import compact_on_demand
from ..errors import Aborted, AlreadyRunning
from ..events import AgentEvent, CompactionReport
from ..output import Channel, EventStream, Subscriptions, ViewFn, unheard
from ..run.announcing import Announcer
from ..run.pending import Answer
from ..run.state import EmitFn, Run
from ..types import AgentMessage, AgentResult, Cost, Usage
from .arguments import Apart, Given
from .structured import StructuredOutput

T = TypeVar("T")
_GRACE = 0.05  # seconds that the tasks which a coroutine leaves behind get to end
_PART = 0.2


def _never() -> bool:
    return False


class Claim:
    """The right to one run of an agent."""

    def __init__(
        self,
        predecessor: Claim | None,
        lock: AbstractContextManager[object],
        cancel: CancellationToken | None = None,
    ) -> None:
        self.token = CancellationToken(cancel, lock)
        self._lock = lock
        self.made_idle: Signal | None = None  # the signal of `idle`, once it has been read
        self.is_over = False  # whether the run is over, for code that holds the lock of the claims
        self.is_left: Callable[[], bool] = _never
        """Whether the reader of the run's events has left: the token is cancelled a moment later."""
        self.predecessor = predecessor  # the aborted or abandoned run that has not ended yet; this one starts after it
        self.loop = running_loop()  # `None` for a stream that was made outside of an event loop, until it is read

    @property
    def idle(self) -> Signal:
        """Set when the run is over. Made on first use: few runs are waited for in this way."""
        with self._lock:
            if self.made_idle is None:
                self.made_idle = Signal()
                if self.is_over:
                    self.made_idle.set()
            return self.made_idle

    @property
    def is_ending(self) -> bool:
        return self.token.is_cancelled or self.is_left()

    @property
    def is_gone(self) -> bool:
        """Whether its run will never report its end: the event loop is closed, or it was aborted before it started."""
        return self.is_ending if self.loop is None else self.loop.is_closed()

    def last_before(self) -> Claim | None:
        """Returns the nearest earlier run that is not over, if there is one."""
        before = self.predecessor
        while before is not None and (before.is_over or before.is_gone):
            before = before.predecessor
        return before

    async def wait_for_predecessors(self) -> None:
        """Waits until the aborted and abandoned runs before this one have ended."""
        while (before := self.last_before()) is not None:
            await before.idle.wait()
        self.predecessor = None


class Claims:
    """The claims of one agent. Every method is safe from any thread."""

    def __init__(self) -> None:
        # Reentrant: the garbage collector may drop a stream, which releases its claim, while the lock is held.
        self.lock = threading.RLock()
        self._latest: Claim | None = None

    @property
    def current(self) -> Claim | None:
        """The claim of the run in progress, or of the one that will follow it."""
        claim = self._latest
        return None if claim is None or claim.is_gone else claim

    def take(self, blocked: asyncio.AbstractEventLoop | None = None, cancel: CancellationToken | None = None) -> Claim:
        """Claims the next run. If another run is ending, the next one starts after it.

        `cancel` cancels the run too. `blocked` is an event loop that the caller blocks until then. Raises
        `AlreadyRunning` during a run, and if a run must end in the blocked loop.
        """
        with self.lock:
            before = self.current
            if before is not None and not before.is_ending:
                raise AlreadyRunning
            other = before if blocked is not None else None
            while other is not None:
                if other.loop is blocked:
                    raise AlreadyRunning("the aborted run still ends in this event loop: await wait_for_idle() first")
                other = other.last_before()
            claim = self._latest = Claim(before, self.lock, cancel)
            return claim

    def begin(self, claim: Claim) -> None:
        """Starts a claimed run in this event loop.

        Raises `Aborted` for a stream that was aborted before it was read, if another run took its place.
        """
        with self.lock:
            if claim.loop is None and self._latest is not claim:
                raise Aborted
            claim.loop = asyncio.get_running_loop()

    def release(self, claim: Claim) -> None:
        """Ends a claim. If its run was cancelled while it waited, the run that it waited for is current again."""
        with self.lock:
            claim.is_over = True
            if self._latest is claim:
                self._latest = claim.last_before()
        if claim.made_idle is not None:
            claim.made_idle.set()

    def abort(self) -> None:
        """Cancels the current run, if there is one."""
        claim = self._latest
        if claim is not None:
            claim.token.cancel()


# -- one run of an agent -------------------------------------------------------------------------------------


class Order(Struct):
    """What a caller wants of one run, and how its agent makes the run."""

    check: Callable[[Order, bool], None]
    """Raises an error if the run is impossible. With `True`, also if there is nothing to continue or to answer."""
    make: Callable[[Order, CancellationToken, EmitFn, Channel | None], Run]
    prompts: tuple[AgentMessage, ...] | None = None
    """`None` continues from the history."""
    request: StructuredOutput | None = None
    """The value that the model must give, if the caller wants one."""
    given: Given | None = None
    """Values for this run only, instead of the agent's own."""
    answers: Mapping[str, Answer] | None = None
    """The answers to calls that wait, if the caller brings any."""
    apart: Apart | None = None
    """What the run begins from instead of the agent's own history and state."""
    cancel: CancellationToken | None = None
    """Ends the run too, if the caller has given one."""
    view: ViewFn | None = None
    """Makes the items that a stream yields instead of events."""


class Lifecycle:
    """The runs of one agent: the one that goes on, and what those before it left."""

    def __init__(self, claims: Claims) -> None:
        self.claims = claims
        self.subscriptions = Subscriptions(claims.lock)
        self.run: Run | None = None
        """The run that goes on."""
        self.last_error: str | None = None
        self.last_result: AgentResult | None = None
        self._spent = Usage(), Cost()  # of all runs that are over
        self._announcer: Announcer | None = None
        """Reports work that outlives a call. Made on first use: most agents have no background commands."""

    @property
    def is_running(self) -> bool:
        return self.claims.current is not None

    @property
    def spent(self) -> tuple[Usage, Cost]:
        """Usage and cost of all runs so far, those of delegates and of the current run included."""
        with self.claims.lock:
            (usage, cost), run = self._spent, self.run
        if run is None:
            return usage, cost
        now = run.accounts.spent
        return usage + now[0], cost + now[1]

    def sync(self, order: Order) -> AgentResult:
        """Runs an order for code that is not async, which may be inside a running event loop, and blocks it."""
        if order.apart is not None:
            token = CancellationToken(order.cancel)
            return run_sync(lambda: self._drive_apart(order, token), token.cancel)
        here = running_loop()
        return run_sync(lambda: self.drive(order, blocked=here), self.claims.abort)

    def stream(self, order: Order) -> EventStream:
        """Returns the run of an order as a stream."""
        if order.apart is not None:
            order.check(order, True)
            token = CancellationToken(order.cancel)
            return EventStream(lambda channel: self._drive_apart(order, token, channel), token)
        claim = self._claim(order)
        stream = EventStream(
            lambda channel: self.drive(order, claim, channel),
            claim.token,
            lambda: self.claims.release(claim),
            self.subscriptions,
        )
        claim.is_left = stream.channel.is_left
        return stream

    async def drive(
        self,
        order: Order,
        claim: Claim | None = None,
        channel: Channel | None = None,
        blocked: asyncio.AbstractEventLoop | None = None,
    ) -> AgentResult:
        """Runs an order, from the claim (unless the caller already has one) to its release.

        Nothing is awaited after `AgentEnd`, so a reader of that event finds the agent idle.
        """
        if order.apart is not None:
            return await self._drive_apart(order, CancellationToken(order.cancel))
        claim = claim or self._claim(order, blocked)
        self.claims.begin(claim)
        try:
            if claim.predecessor is not None:
                await claim.wait_for_predecessors()
                order.check(order, True)
            emit = self.subscriptions.notify if channel is None else _delivery(channel, order.view, lambda: self.run)
            run = self.run = order.make(order, claim.token, emit, channel)
            run.announcing = self._own_announcer
            self.last_error = self.last_result = None
            if self._announcer is not None:
                self._announcer.begin(run.emit, run.supervisor.loop)
            try:
                self.last_result = result = await run.loop(run, order.prompts)
            finally:
                if self._announcer is not None:
                    self._announcer.end()
                self._count(run)
            self.last_error = result.error
            return result
        except (asyncio.CancelledError, GeneratorExit):
            self.last_error = str(Aborted())
            raise
        finally:
            self.claims.release(claim)

    async def _drive_apart(self, order: Order, token: CancellationToken, channel: Channel | None = None) -> AgentResult:
        """Runs an order apart: beside any other run, and out of sight of the agent's subscribers."""
        order.check(order, True)
        run: Run | None = None
        emit = unheard if channel is None else _delivery(channel, order.view, lambda: run)
        run = order.make(order, token, emit, channel)
        announcer = Announcer(unheard)
        run.announcing = lambda: announcer
        announcer.begin(run.emit, run.supervisor.loop)
        try:
            return await run.loop(run, order.prompts)
        finally:
            announcer.end()

    async def compact(self, order: Order, instructions: str | None) -> CompactionReport | None:
        """Runs only the transforms, as a separate run."""
        claim = self.claims.take()
        self.claims.begin(claim)
        try:
            await claim.wait_for_predecessors()
            run = self.run = order.make(order, claim.token, self.subscriptions.notify, None)
            run.announcing = self._own_announcer
            try:
                return await compact_on_demand(run, instructions)
            finally:
                self._count(run)
        finally:
            self.claims.release(claim)

    def _claim(self, order: Order, blocked: asyncio.AbstractEventLoop | None = None) -> Claim:
        """Claims the run of an order. Raises an error if it is impossible, before anything has happened."""
        order.check(order, not self.is_running)
        return self.claims.take(blocked, order.cancel)

    def _count(self, run: Run) -> None:
        """Adds a run that is over to the usage and cost."""
        usage, cost = run.accounts.spent
        with self.claims.lock:
            self.run = None
            self._spent = self._spent[0] + usage, self._spent[1] + cost

    def _own_announcer(self) -> Announcer:
        with self.claims.lock:
            if self._announcer is None:
                self._announcer = Announcer(self.subscriptions.notify)
                if self.run is not None:
                    self._announcer.begin(self.run.emit, self.run.supervisor.loop)
            return self._announcer


def _delivery(channel: Channel, view: ViewFn | None, current_run: Callable[[], Run | None]) -> EmitFn:
    """Returns the function that delivers events to a stream. Subscribers get every event. The stream gets what the view
    makes of it."""
    if view is None:
        return channel.push

    def viewed(event: AgentEvent) -> None:
        channel.subscriptions.notify(event)
        run = current_run()
        view(event, None if run is None else run.assembler, channel.put)

    return viewed


# -- for code that is not async ------------------------------------------------------------------------------


def run_sync(work: Callable[[], Coroutine[Any, Any, T]], abort: Callable[[], None]) -> T:
    """Returns the coroutine's result. Ctrl+C in the waiting thread calls `abort` and waits for the end."""
    outcome: list[T] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()
    interrupted = threading.Event()
    ended = threading.Event()

    async def main() -> T:
        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        if interrupted.is_set():
            abort()
        return await task

    def run() -> None:
        try:
            if not interrupted.is_set():
                outcome.append(context.run(_run, main()))
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, name="swink-sync", daemon=True)
    try:
        thread.start()
        _wait(ended)
        thread.join()
    except BaseException:
        interrupted.set()
        abort()
        _wait(ended)
        raise
    if errors:
        raise errors[0]
    return outcome[0]


def _wait(ended: threading.Event) -> None:
    """Waits for the event, in parts: a signal that comes just before a wait begins does not end that wait."""
    while not ended.wait(_PART):
        pass


def _run(main: Coroutine[Any, Any, T]) -> T:
    """Does what `asyncio.run` does, but does not wait for tasks that ignore their cancellation."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(main)
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                _, stubborn = loop.run_until_complete(asyncio.wait(left, timeout=_GRACE))
                if stubborn:
                    loop.set_exception_handler(_ignore_unfinished_tasks)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _ignore_unfinished_tasks(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handles what asyncio reports about the closed loop. Tasks that are still pending are expected, and ignored."""
    if "task" not in context or "exception" in context:
        loop.default_exception_handler(context)
