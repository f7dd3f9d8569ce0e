"""The background tasks of a conversation end with it."""

from __future__ import annotations

import asyncio

from swink_agent.app.talk.tasks import Beside


async def test_nothing_starts_after_the_end() -> None:
    begun: list[str] = []

    async def work(name: str) -> None:
        begun.append(name)
        await asyncio.sleep(60)

    beside = Beside(begun.append)
    beside.begin(work("before"))
    await asyncio.sleep(0)
    await beside.end(10)
    beside.begin(work("after"))
    await asyncio.sleep(0)
    assert (begun, len(beside)) == (["before"], 0)
