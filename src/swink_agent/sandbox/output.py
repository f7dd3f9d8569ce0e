"""The output of a child as a stream, and its exit as a future.

Reads the one pipe that carries stdout and stderr, and waits for the exit. Unlike asyncio's own subprocesses, the exit
does not wait for the pipe, which a background child may hold open for ever.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import subprocess
import termios
import threading
from array import array
from collections.abc import Callable
from contextlib import suppress

_CHUNK = 64 * 1024


class Readers:
    """Calls functions when descriptors can be read, like `add_reader` of an event loop. Only on Linux.

    The event loop watches one descriptor for all of them: each of its own registrations takes ten times as long.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: dict[int, Callable[[], object]] = {}
        self._poll: select.epoll | None = None

    def add_reader(self, descriptor: int, call: Callable[[], object]) -> None:
        poll = self._poll or select.epoll()
        poll.register(descriptor, select.EPOLLIN)
        self._calls[descriptor] = call
        if self._poll is None:
            self._poll = poll
            self._loop.add_reader(poll.fileno(), self._ready)

    def remove_reader(self, descriptor: int) -> None:
        """Stops watching a descriptor, which must still be open. One that is not watched is ignored."""
        if self._poll is None or self._calls.pop(descriptor, None) is None:
            return
        if self._calls:
            self._poll.unregister(descriptor)
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._poll.fileno())
        self._poll.close()
        self._poll = None

    def _ready(self) -> None:
        ready = [] if self._poll is None else self._poll.poll(0)
        for descriptor, call in [(descriptor, self._calls[descriptor]) for descriptor, _ in ready]:
            if self._calls.get(descriptor) is call:  # else an earlier call has ended it
                call()


class OutputPipe(asyncio.ReadTransport):
    """A pipe: `write_end` is for the child, `reader` for us.

    A slow reader blocks the child, until `drain()`. Use it only in the thread of its event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, readers: Readers | None = None) -> None:
        """`readers` watch the pipe; by default the event loop does."""
        super().__init__()
        self._loop = loop or asyncio.get_running_loop()
        self._readers = readers or self._loop
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._paused = False
        self._draining = False
        self.reader = asyncio.StreamReader(limit=_CHUNK * 2, loop=self._loop)
        self.reader.set_transport(self)
        try:
            self._readers.add_reader(self._read_end, self._read)
        except OSError:  # too many files are open
            self.close()
            raise

    def close_write_end(self) -> None:
        """Closes our copy, once the child has its own: otherwise the pipe would never end."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def drain(self) -> None:
        """Reads what is in the pipe now and closes it. Call it when everything that should write has ended.

        It does not wait for other holders of the pipe, such as a fork of this process. Any thread may call it.
        """
        self._draining = True
        if self._loop.is_closed():
            self.close()
        elif is_running_here(self._loop):
            self._read_the_rest()
        else:
            with suppress(RuntimeError):  # the loop is closing
                self._loop.call_soon_threadsafe(self._read_the_rest)

    # -- what StreamReader needs from a transport ----------------------------------------------------------------

    def is_reading(self) -> bool:
        return not self._paused and not self.is_closing()

    def pause_reading(self) -> None:
        if not self._draining and self.is_reading():
            self._paused = True
            self._readers.remove_reader(self._read_end)

    def resume_reading(self) -> None:
        if self._paused and not self.is_closing():
            self._paused = False
            self._readers.add_reader(self._read_end, self._read)

    def is_closing(self) -> bool:
        return self._read_end < 0

    def close(self) -> None:
        """Closes both ends; the reader sees the end of the stream."""
        self.close_write_end()
        if self._read_end < 0:
            return
        if not self._paused and not self._loop.is_closed():
            self._readers.remove_reader(self._read_end)
        os.close(self._read_end)
        self._read_end = -1
        if not self._loop.is_closed():
            self.reader.feed_eof()

    def _read_the_rest(self) -> None:
        if self.is_closing():
            return
        count = array("i", [0])
        try:
            fcntl.ioctl(self._read_end, termios.FIONREAD, count)
            left = count[0]
            while left > 0 and (data := os.read(self._read_end, min(left, _CHUNK))):
                self.reader.feed_data(data)
                left -= len(data)
        except OSError:
            pass
        self.close()

    def _read(self) -> None:
        try:
            data = os.read(self._read_end, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self.reader.feed_data(data)
        else:
            self.close()


def watch_exit(
    process: subprocess.Popen[bytes], exited: asyncio.Future[int], ended: Callable[[], None] | None = None
) -> None:
    """Calls `ended` and resolves `exited` with the return code once the process has ended, in the loop.

    Uses a process descriptor if the system has them, else a thread. The process is reaped in either case.
    """
    loop = exited.get_loop()

    def resolve(code: int) -> None:
        if ended is not None:
            ended()
        if not exited.done():
            exited.set_result(code)

    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):

        def wait() -> None:
            code = process.wait()
            with suppress(RuntimeError):  # the loop is closed, so nothing waits for the code
                loop.call_soon_threadsafe(resolve, code)

        threading.Thread(target=wait, name="swink-exit", daemon=True).start()
        return

    def readable() -> None:
        code = process.poll()
        if code is not None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            resolve(code)

    loop.add_reader(descriptor, readable)


def is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this thread is running the loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
