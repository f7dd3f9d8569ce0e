"""Ctrl+C, and its relatives: once to stop cleanly, twice to wait for nothing more.

Owns the process's signal handlers while a run goes on. Plain handlers, not the event loop's: they also come through
when the loop is blocked in a write that nobody reads.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["interruptible", "wakeable"]

T = TypeVar("T")

INTERRUPTED = 130
_CLEANUP_SECONDS = 0.5
_LAST_WORDS_SECONDS = 0.5


def _nothing() -> None:
    pass


@contextmanager
def interruptible(
    stop: Callable[[], None],
    clean_up: Callable[[], None],
    *,
    last_words: Callable[[], None] = _nothing,
    say: Callable[[str], None] | None = None,
) -> Generator[None]:
    """Calls `stop` at the first signal; at the second, `clean_up` and `last_words`, and ends the process.

    Each of the two has half a second, in a thread of its own: it may block, and needs locks that the interrupted code
    may hold, which goes on meanwhile. Further signals change nothing. After the first one the process is on its way
    out: the second still ends it at once when the block was left, and none spoils its exit status.

    A signal that the caller of the program had ignored stays ignored, as for a job in the background.
    """
    count = 0

    def handle(number: int, frame: Any) -> None:
        nonlocal count
        count += 1
        if count == 1:
            if say is not None:
                say("stopping; once more to stop at once")
            stop()
            return
        if count == 2:
            threading.Thread(target=end, daemon=True).start()

    def end() -> None:
        for work, seconds in ((clean_up, _CLEANUP_SECONDS), (last_words, _LAST_WORDS_SECONDS)):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            thread.join(seconds)
        os._exit(INTERRUPTED)

    before: dict[signal.Signals, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        if count:
            # Python gives the handlers back to the system while it ends, and one signal more would be what it died of.
            atexit.register(_ignore, tuple(before))
        else:
            for number, handler in before.items():
                signal.signal(number, handler)


def _ignore(numbers: Iterable[signal.Signals]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


async def wakeable(work: Awaitable[T]) -> T:
    """Waits for the work in such a way that a signal wakes the event loop.

    A signal that comes just before the loop goes to sleep, or to another thread, has its handler called only when the
    loop wakes up by itself, which may be never.
    """
    waking, woken = socket.socketpair()
    loop = asyncio.get_running_loop()
    for end in (waking, woken):
        end.setblocking(False)
    before = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    loop.add_reader(woken, woken.recv, 4096)
    try:
        return await work
    finally:
        loop.remove_reader(woken)
        signal.set_wakeup_fd(before)
        waking.close()
        woken.close()
