"""Several descriptors that an event loop watches through one."""

from __future__ import annotations

import asyncio
import errno
import os
import select

import pytest

from swink_agent.sandbox.output import OutputPipe, Readers


async def test_each_descriptor_is_read_by_its_own_function_until_it_is_removed() -> None:
    loop = asyncio.get_running_loop()
    readers, pipes = Readers(loop), [os.pipe() for _ in range(3)]
    heard: list[tuple[int, bytes]] = []
    is_heard = asyncio.Event()

    def listen(number: int) -> None:
        heard.append((number, os.read(pipes[number][0], 10)))
        if number == 0:
            readers.remove_reader(pipes[1][0])  # it is ready too, and its turn comes next
        is_heard.set()

    for number in (0, 1):
        readers.add_reader(pipes[number][0], lambda number=number: listen(number))
        os.write(pipes[number][1], b"%d" % number)
    await is_heard.wait()
    assert heard == [(0, b"0")]
    readers.remove_reader(pipes[0][0])
    readers.remove_reader(pipes[0][0])
    is_heard.clear()
    readers.add_reader(pipes[2][0], lambda: listen(2))  # after the last one was removed
    os.write(pipes[2][1], b"2")
    await is_heard.wait()
    assert heard == [(0, b"0"), (2, b"2")]
    readers.remove_reader(pipes[2][0])
    for pipe in pipes:
        for descriptor in pipe:
            os.close(descriptor)


@pytest.mark.parametrize("failing", ["epoll", "register"])
async def test_a_pipe_that_cannot_be_watched_leaves_no_descriptor_open(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = select.epoll

    class Full:
        def __init__(self) -> None:
            if failing == "epoll":
                raise OSError(errno.EMFILE, "Too many open files")
            self._own = made()

        def fileno(self) -> int:
            return self._own.fileno()

        def register(self, descriptor: int, events: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    loop = asyncio.get_running_loop()
    open_before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(select, "epoll", Full)
    with pytest.raises(OSError, match=r"Too many open files|No space left"):
        OutputPipe(loop, Readers(loop))
    assert os.listdir("/proc/self/fd") == open_before
