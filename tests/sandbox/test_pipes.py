"""Several descriptors that an event loop watches through one."""

from __future__ import annotations

import asyncio
import os

from swink_agent.sandbox._pipes import Readers


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
