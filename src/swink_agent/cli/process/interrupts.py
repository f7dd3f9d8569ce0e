"""Signals: the first stops the run cleanly, the second ends the process at once.

The handlers are the process's, not the event loop's, so that they work while the loop is blocked in a write.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")

INTERRUPTED = 130
_CLEANUP_SECONDS = 0.5
_LAST_WORDS_SECONDS = 0.5


@contextmanager
def interruptible(
    stop: Callable[[], None],
    clean_up: Callable[[], None],
    *,
    last_words: Callable[[], None] = lambda: None,
    is_told: bool = False,
) -> Generator[None]:
    """Calls `stop` at the first signal; with `is_told`, also writes a message to stderr. At the second signal, calls
    `clean_up` and `last_words` and ends the process.

    These two get half a second each, in a thread: they may block, and may need locks that the interrupted code holds
    and is about to release. Further signals have no effect. After the first signal the handlers stay installed when
    the block is left: a second signal still ends the process at once, and no signal changes its exit status.

    A signal that was ignored when the program started stays ignored, as for a background job.
    """
    count = 0

    def handle(number: int, frame: Any) -> None:
        nonlocal count
        count += 1
        if count == 1:
            stop()
            if is_told:
                text = b"stopping; once more to stop at once\n"
                with suppress(OSError):  # a stderr without a reader is not a failure
                    os.write(2, b"\r\x1b[K" + text if os.isatty(2) else text)
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
            # Python restores the default handlers while it exits, and one more signal would then kill it.
            for number in before:
                atexit.register(signal.signal, number, signal.SIG_IGN)
        else:
            for number, handler in before.items():
                signal.signal(number, handler)


def ended_by_signal() -> asyncio.Event:
    """An event of the running event loop that SIGINT and SIGTERM set."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    return ended


async def wakeable(work: Awaitable[T]) -> T:
    """Awaits the work so that a signal wakes the event loop.

    Otherwise a signal that arrives just before the loop sleeps, or in another thread, is handled only when the loop
    wakes up for another reason, which may be never.
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
