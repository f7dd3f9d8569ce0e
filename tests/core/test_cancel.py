"""Cancellation tokens: from any thread, to every waiter, with nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

from swink_agent import CancellationToken

PATIENCE = 30.0


def in_threads(count: int, work: Callable[[int], Any]) -> None:
    """Does the work in several threads that start together, and raises what one of them raised."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(PATIENCE)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


async def waiting(*tokens: CancellationToken) -> list[asyncio.Task[None]]:
    """Tasks that already wait for the tokens."""
    tasks = [asyncio.ensure_future(token.wait()) for token in tokens]
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    return tasks


async def all_return(tasks: list[asyncio.Task[None]]) -> None:
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*tasks)


# -- tokens and children ---------------------------------------------------------------------------------------


def test_a_token_is_cancelled_once_and_for_all() -> None:
    token = CancellationToken()
    assert not token.is_cancelled
    token.cancel()
    assert token.is_cancelled
    token.cancel()
    assert token.is_cancelled


def test_children_are_cancelled_with_their_parent_at_any_depth() -> None:
    token = CancellationToken()
    child = token.child()
    grandchild = child.child()
    token.cancel()
    assert child.is_cancelled
    assert grandchild.is_cancelled


def test_a_parent_and_its_other_children_outlive_a_child() -> None:
    token = CancellationToken()
    first, second = token.child(), token.child()
    grandchild = first.child()
    first.cancel()
    assert (first.is_cancelled, grandchild.is_cancelled) == (True, True)
    assert (second.is_cancelled, token.is_cancelled) == (False, False)


def test_a_child_of_a_cancelled_token_is_cancelled_from_the_start() -> None:
    token = CancellationToken()
    token.cancel()
    assert token.child().is_cancelled
    assert token.child().child().is_cancelled


# -- waiting ---------------------------------------------------------------------------------------------------


async def test_waiting_ends_when_the_token_is_cancelled() -> None:
    token = CancellationToken()
    tasks = await waiting(token, token, token.child(), token.child().child())
    token.cancel()
    await all_return(tasks)
    assert all(task.done() for task in tasks)


async def test_waiting_for_a_token_that_is_cancelled_ends_at_once() -> None:
    token = CancellationToken()
    child = token.child()
    token.cancel()
    for each in (token, child, token.child()):
        async with asyncio.timeout(PATIENCE):
            await each.wait()
        assert each.is_cancelled


async def test_cancelling_a_child_wakes_only_those_who_wait_for_it() -> None:
    token = CancellationToken()
    child, sibling = token.child(), token.child()
    first, second, third = await waiting(child, sibling, token)
    child.cancel()
    await all_return([first])
    assert not second.done()
    assert not third.done()
    token.cancel()
    await all_return([second, third])


async def test_a_token_can_be_cancelled_from_another_thread() -> None:
    token = CancellationToken()
    tasks = await waiting(token, token.child())
    await asyncio.to_thread(token.cancel)
    await all_return(tasks)
    assert token.is_cancelled


async def test_a_child_that_is_cancelled_alone_hears_no_more_from_its_parent() -> None:
    token = CancellationToken()
    child = token.child()
    calls: list[str] = []
    child.add_callback(lambda: calls.append("child"))
    child.cancel()
    token.cancel()
    assert calls == ["child"]


def test_any_number_of_event_loops_can_wait_for_one_token() -> None:
    token = CancellationToken()
    ready = threading.Semaphore(0)

    async def wait_in_this_loop(number: int) -> None:
        task = asyncio.ensure_future((token if number % 2 else token.child()).wait())
        await asyncio.sleep(0)
        ready.release()
        await all_return([task])

    def work(number: int) -> None:
        if number == 0:
            for _ in range(4):
                assert ready.acquire(timeout=PATIENCE)
            token.cancel()
        else:
            asyncio.run(wait_in_this_loop(number))

    in_threads(5, work)


def test_cancelling_after_the_loop_that_waited_is_gone_does_no_harm() -> None:
    token = CancellationToken()
    loop = asyncio.new_event_loop()
    task = loop.create_task(token.wait())
    loop.run_until_complete(asyncio.sleep(0))
    loop.stop()
    loop.run_forever()
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    token.cancel()
    assert token.is_cancelled


def test_a_callback_for_a_closed_loop_does_not_keep_others_from_hearing() -> None:
    token = CancellationToken()
    heard = threading.Event()

    async def leave_waiting() -> Any:
        coroutine = token.wait()
        future = coroutine.send(None)  # it waits now, and nobody will ever run it again
        return coroutine, future

    coroutine, _ = asyncio.run(leave_waiting())
    token.add_callback(heard.set)
    token.cancel()
    assert heard.is_set()
    coroutine.close()


# -- callbacks -------------------------------------------------------------------------------------------------


def test_callbacks_are_called_in_order_once() -> None:
    token = CancellationToken()
    calls: list[int] = []
    for number in range(3):
        token.add_callback(lambda number=number: calls.append(number))
    token.cancel()
    token.cancel()
    assert calls == [0, 1, 2]


def test_a_callback_added_too_late_is_called_at_once() -> None:
    token = CancellationToken()
    token.cancel()
    calls: list[str] = []
    token.add_callback(lambda: calls.append("token"))
    token.child().add_callback(lambda: calls.append("child"))
    assert calls == ["token", "child"]


def test_a_callback_that_was_removed_is_not_called() -> None:
    token = CancellationToken()
    child = token.child()
    calls: list[str] = []
    keep = child.add_callback(lambda: calls.append("kept"))
    remove = child.add_callback(lambda: calls.append("removed"))
    child.remove_callback(remove)
    child.remove_callback(remove)
    token.cancel()
    assert calls == ["kept"]
    child.remove_callback(keep)


def test_a_callback_may_do_anything_with_the_token_that_called_it() -> None:
    token = CancellationToken()
    child = token.child()
    calls: list[str] = []

    def busy() -> None:
        token.cancel()
        child.cancel()
        token.child().add_callback(lambda: calls.append("late child"))
        child.add_callback(lambda: calls.append("late"))
        token.remove_callback(key)
        calls.append("busy")

    key = child.add_callback(busy)
    in_threads(1, lambda _: token.cancel())
    assert calls == ["late child", "late", "busy"]


# -- many threads at once --------------------------------------------------------------------------------------


def test_many_threads_cancelling_at_once_call_each_callback_once() -> None:
    for _ in range(20):
        token = CancellationToken()
        calls: list[int] = []
        for number in range(5):
            token.child().add_callback(lambda calls=calls, number=number: calls.append(number))
        in_threads(6, lambda _, token=token: token.cancel())
        assert sorted(calls) == list(range(5))


def test_no_news_is_lost_between_cancelling_and_listening() -> None:
    for _ in range(20):
        token = CancellationToken()
        children = [token.child() for _ in range(4)]
        calls: list[int] = []

        def work(number: int, token: Any = token, children: Any = children, calls: Any = calls) -> None:
            if number == 0:
                token.cancel()
            else:
                for each in range(10):
                    children[each % 4].add_callback(lambda: calls.append(number))

        in_threads(5, work)
        assert len(calls) == 40


def test_leaving_while_parent_and_child_are_cancelled_ends_without_a_deadlock() -> None:
    for _ in range(20):
        token = CancellationToken()
        child = token.child()

        def work(number: int, token: Any = token, child: Any = child) -> None:
            if number == 0:
                token.cancel()
            elif number == 1:
                child.cancel()
            else:
                for _ in range(20):
                    key = child.add_callback(lambda: None)
                    child.remove_callback(key)

        in_threads(5, work)
        assert child.is_cancelled


# -- nothing left behind ---------------------------------------------------------------------------------------


async def test_children_that_come_and_go_leave_nothing_in_their_parent() -> None:
    token = CancellationToken()
    references: list[weakref.ref[CancellationToken]] = []

    async def come_and_go(how: str) -> None:
        child = token.child()
        references.append(weakref.ref(child))
        if how == "waits":
            (task,) = await waiting(child)
            task.cancel()
            await asyncio.wait([task])
        elif how == "is cancelled":
            tasks = await waiting(child)
            child.cancel()
            await all_return(tasks)
        elif how == "listens":
            child.remove_callback(child.add_callback(lambda: None))

    for how in ("does nothing", "waits", "is cancelled", "listens") * 25:
        await come_and_go(how)
    await asyncio.sleep(0)
    gc.collect()
    assert [reference for reference in references if reference() is not None] == []
    assert not token.is_cancelled


async def test_a_wait_that_is_given_up_is_forgotten() -> None:
    token = CancellationToken()

    class Payload:
        pass

    async def wait_with(payload: Payload) -> None:
        await token.wait()

    payload = Payload()
    reference = weakref.ref(payload)
    task = asyncio.ensure_future(wait_with(payload))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    del task, payload
    gc.collect()
    assert reference() is None


def test_a_cancelled_token_lets_go_of_what_listened_to_it() -> None:
    token = CancellationToken()
    reference = weakref.ref(listening := Listener())
    token.add_callback(listening.hear)
    token.cancel()
    assert listening.heard == 1
    del listening
    gc.collect()
    assert reference() is None


class Listener:
    def __init__(self) -> None:
        self.heard = 0

    def hear(self) -> None:
        self.heard += 1
