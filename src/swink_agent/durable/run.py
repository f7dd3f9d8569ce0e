"""`DurableRun`: one run, which any process can inspect, follow, answer, cancel and read.

Owns the methods that an application calls on a run. It holds no connection: each call asks the store.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from swink_agent.core.approval import PendingCall
from swink_agent.core.errors import AgentError, ErrorKind, PolicyStopped, error_of_kind
from swink_agent.core.journal import MessageAdded, RunEnded
from swink_agent.core.run.pending import Answer
from swink_agent.core.types import AgentResult, AssistantMessage, CustomMessage, StopReason
from swink_agent.core.values.checks import check_number, check_text, check_whole, is_not

from .errors import StoreUnavailable
from .info import RunInfo, storable

if TYPE_CHECKING:
    from swink_agent.memory import LoadedSession, SessionRecord

    from .store.store import Store

T = TypeVar("T")
_POLL = 0.05
"""Seconds between the first polls of a run that is followed."""
_SLOWEST = 1.0
_AT_ONCE = 500


class Calls(Protocol):
    """What a run needs of the `Durable` that it belongs to."""

    @property
    def url(self) -> str: ...
    @property
    def types(self) -> Sequence[type[CustomMessage]]: ...
    async def call(self, work: Callable[[Store], T]) -> T: ...
    def masked(self, data: T) -> T: ...


class DurableRun:
    """A run in a store."""

    __slots__ = ("_durable", "id")

    def __init__(self, durable: Calls, run_id: str) -> None:
        self._durable = durable
        self.id = run_id

    def __repr__(self) -> str:
        return f"<DurableRun {self.id}>"

    async def info(self) -> RunInfo:
        """The current description of the run. Raises `RunNotFound`."""
        return await self._durable.call(lambda store: store.info(self.id))

    async def load(self) -> LoadedSession:
        """The run as a loaded session: `messages`, `records()`, `runs()`; for `replay` and exports."""
        from swink_agent.memory import SessionStarted, session_from_lines

        info = await self.info()
        lines = await self._durable.call(lambda store: store.lines(self.id))
        data = b"".join([line + b"\n" for line in lines])
        start = SessionStarted(id=self.id, created=info.created, metadata=info.metadata)
        return await asyncio.to_thread(
            lambda: session_from_lines(self.id, data, start, self._durable.types, place=Path(self._durable.url))
        )

    async def result(self, timeout: float | None = None) -> AgentResult:  # noqa: ASYNC109 - the specification's name
        """Waits until the run is over or needs answers. Returns all its messages, and the waiting calls in `pending`.

        `error` is the reason if it failed or was cancelled. While the store cannot be reached, this keeps waiting.
        Raises `TimeoutError` after `timeout` seconds.
        """
        if timeout is not None:
            check_number("timeout", timeout, "a number of seconds, or None")
        async with asyncio.timeout(timeout):
            info, loaded = await self._settled()
        end, given = None, set[int | None]()
        for record in loaded.records():
            if type(record.entry) is RunEnded:
                end = record.entry
            elif type(record.entry) is MessageAdded and record.entry.source == "given":
                given.add(record.number)
        numbered = zip(loaded.messages, loaded.fold.numbers, strict=True)
        messages = tuple([message for message, number in numbered if number not in given])
        last = next((message for message in reversed(messages) if type(message) is AssistantMessage), None)
        failed = end if info.status == "failed" else None
        stopped_by = None if failed is None else failed.stopped_by
        error_kind = None if failed is None else failed.error_kind
        if info.status == "cancelled":
            error_kind = ErrorKind.ABORTED
        exception: AgentError | None = None  # as after a run in this process
        if stopped_by is not None:
            exception = PolicyStopped(stopped_by.policy, stopped_by.reason)
        elif error_kind is not None:
            exception = error_of_kind(error_kind, info.error, model="" if last is None else last.model_id)
        return AgentResult(
            messages=messages,
            stop_reason=_stop_reason(info, end, last),
            usage=loaded.fold.usage,
            cost=loaded.fold.cost,
            error=info.error if info.status in ("failed", "cancelled") else None,
            exception=exception,
            stopped_by=stopped_by,
            error_kind=error_kind,
            value=None if end is None else end.value,
            has_value=end is not None and end.has_value,
            pending=info.pending,
        )

    async def _settled(self) -> tuple[RunInfo, LoadedSession]:
        pause = _POLL
        while True:
            try:
                info = await self.info()
                if info.is_over or info.status == "waiting":
                    return info, await self.load()
            except StoreUnavailable:
                pause = _SLOWEST
            await asyncio.sleep(pause)
            pause = min(pause * 1.2, _SLOWEST)

    async def events(self, after: int = 0, follow: bool = True) -> AsyncGenerator[SessionRecord]:
        """The records after a position, without gaps or repetitions, until the run is over.

        While the store cannot be reached, this waits. With `follow=False`, it gives only the records that exist now,
        and raises `StoreUnavailable` if the store cannot be reached. Raises `ValueError` for a negative position, and
        `RunNotFound`.
        """
        check_whole("after", after, least=0)
        from swink_agent.memory.log.reading import read_records

        position, pause = after, _POLL
        while True:
            try:
                lines, info = await self._durable.call(lambda store, at=position: store.news(self.id, at, _AT_ONCE))
            except StoreUnavailable:
                if not follow:
                    raise
                await asyncio.sleep(_SLOWEST)
                continue
            data = b"".join([line + b"\n" for _, line in lines])
            for record in read_records(data, self._durable.types, is_whole=False).records if data else ():
                yield record
            if lines:
                position = lines[-1][0]  # not that of the last record, which may be damaged
            if position >= info.position and (info.is_over or not follow):
                return
            if lines:
                pause = _POLL
                continue
            await asyncio.sleep(pause)
            pause = min(pause * 1.2, _SLOWEST)

    async def answer(self, call: PendingCall | str, answer: Answer, *, by: str = "") -> bool:
        """Answers a call that waits: one of `pending`, or the id of a call if it occurred once in the run.

        Returns whether the answer counts; `False` if another came first. The run continues with it at once, and records
        it with `by`. The application must check who may answer.

        Raises `NotPending` for a call that does not wait, for an earlier question of the same id and for a run that is
        over, and `TypeError` for an answer that does not fit the call.
        """
        if not isinstance(call, (PendingCall, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise is_not("call", call, "a PendingCall, or the id of a call")
        check_text("by", by)  # it is stored, and a store with other data cannot be read
        token = secrets.token_hex(8)
        masked: Any = self._durable.masked(answer) if not isinstance(answer, bool) else answer
        by = self._durable.masked(by)
        return await self._durable.call(lambda store: store.answer(self.id, call, masked, by=by, token=token))

    async def cancel(self, reason: str = "") -> bool:
        """Cancels the run permanently; returns `False` if it was done or had failed.

        A queued or waiting run is cancelled at once. A running one ends within seconds: its calls are answered, and no
        further request or tool begins.
        """
        check_text("reason", reason)
        words = storable(self._durable.masked(reason))
        return await self._durable.call(lambda store: store.cancel(self.id, words))

    async def retry(self) -> None:
        """Queues a failed run again, which continues where it stopped. Raises `RunOver` for any other."""
        await self._durable.call(lambda store: store.retry(self.id))


def _stop_reason(info: RunInfo, end: RunEnded | None, last: AssistantMessage | None) -> StopReason:
    match info.status:
        case "cancelled":
            return StopReason.ABORTED
        case "waiting":
            return StopReason.TOOL_USE
        case "failed":
            return end.stop_reason if end is not None and end.stopped_by is not None else StopReason.ERROR
        case _:
            return StopReason.STOP if last is None else last.stop_reason
