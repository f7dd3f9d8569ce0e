"""Checks the rules of stream functions that are visible from outside: the order of events, and how calls end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, cast

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.stream import MessageAssembler, StreamFn, StreamOptions
from swink_agent.core.types import AgentContext, ModelSpec, UserMessage
from swink_agent.core.values.checks import a_kind


async def check_stream_fn(
    factory: Callable[[], StreamFn],
    *,
    model: ModelSpec | None = None,
    context: AgentContext | None = None,
    options: StreamOptions | None = None,
    time_limit: float = 5.0,
) -> None:
    """Raises `AssertionError` unless the stream functions that `factory` makes keep the rules.

    `factory` is called several times and returns a new function each time, which must answer at least one request, with
    a reply or a failure. The rules: a valid event sequence with one terminal event; no exceptions; a call that is
    closed early or cancelled, by token or by task, ends in time and leaves no task; concurrent calls do not mix.
    """
    call = _Caller(factory, model, context, options, time_limit)
    length = await call.within("a call", call.to_its_end())
    await call.within("two calls at once", asyncio.gather(call.to_its_end(), call.to_its_end()))
    for count in sorted({1, 2, max(1, length // 2), max(1, length - 1)}):
        await call.within(f"a call closed after {count} events", call.closed_after(count))
        await call.within(f"a call cancelled after {count} events", call.cancelled_after(count))
        await call.within(f"a call whose task is cancelled after {count} events", call.task_cancelled_after(count))
    await call.within("a call with a cancelled token", call.cancelled_after(0))


class _Caller:
    def __init__(
        self,
        factory: Callable[[], StreamFn],
        model: ModelSpec | None,
        context: AgentContext | None,
        options: StreamOptions | None,
        timeout: float,
    ) -> None:
        self.factory = factory
        self.model = model or ModelSpec("test", "model")
        self.context = context or AgentContext("Be brief.", [UserMessage("Say hello.")])
        self.options = options or StreamOptions()
        self.timeout = timeout

    async def within(self, what: str, work: Awaitable[Any]) -> Any:
        """Runs one check with a time limit, and looks for tasks that it left behind."""
        before = asyncio.all_tasks()
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait([task], timeout=self.timeout)
        if not done:
            task.cancel()  # not awaited, since a function that does not end may ignore cancellation
            await asyncio.sleep(0)
            raise AssertionError(f"{what}: it did not end within {self.timeout} s")
        try:
            outcome = task.result()
        except asyncio.CancelledError:
            raise AssertionError(f"{what}: it cancelled its caller") from None
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from None
        except Exception as error:
            raise AssertionError(f"{what}: it raised {error!r} instead of ending with StreamFailed") from error
        await asyncio.sleep(0)
        left = {task for task in asyncio.all_tasks() - before if not task.done()}
        if left:
            raise AssertionError(f"{what}: it left tasks behind: {left}")
        return outcome

    def stream(self, cancel: CancellationToken) -> Any:
        stream = cast("Any", self.factory()(self.model, self.context, self.options, cancel))
        if not hasattr(stream, "__anext__") or not hasattr(stream, "aclose"):
            raise AssertionError(f"it returned {a_kind(stream)}, not an async generator or the like")
        return stream

    async def to_its_end(self) -> int:
        assembler = MessageAssembler(self.model)
        count = 0
        async for event in self.stream(CancellationToken()):
            assembler.feed(event)
            count += 1
        assembler.message()
        _check(not assembler.is_broken, assembler.failure.message if assembler.failure else "")
        return count

    async def closed_after(self, count: int) -> None:
        async with aclosing(self.stream(CancellationToken())) as stream:
            await _read(stream, count)

    async def cancelled_after(self, count: int) -> None:
        """Cancels the token: the reply must end with one terminal event, or just stop."""
        cancel = CancellationToken()
        if count == 0:
            cancel.cancel()
        assembler, read = MessageAssembler(self.model), 0
        async with aclosing(self.stream(cancel)) as stream:
            async for event in stream:
                assembler.feed(event)
                read += 1
                if read == count:
                    cancel.cancel()
        _check(not assembler.is_broken, "its events were out of order")

    async def task_cancelled_after(self, count: int) -> None:
        reached = asyncio.Event()

        async def consume() -> None:
            async with aclosing(self.stream(CancellationToken())) as stream:
                await _read(stream, count)
                reached.set()
                await _read(stream, 1)  # here it waits for its provider, if it does
                if not was_cancelled:
                    await asyncio.get_running_loop().create_future()

        was_cancelled = False
        task = asyncio.ensure_future(consume())
        await reached.wait()
        was_cancelled = True
        task.cancel()
        await asyncio.wait([task])
        _check(task.cancelled(), "it swallowed the cancellation")


async def _read(stream: Any, count: int) -> None:
    for _ in range(count):
        try:
            await anext(stream)
        except StopAsyncIteration:
            return


def _check(condition: bool, problem: str) -> None:
    if not condition:
        raise AssertionError(problem)
