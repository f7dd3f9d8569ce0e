"""Measures what a streamed delta costs the server of `swink web` with one and with ten readers, and 200 open streams.

python -m bench.web [--quick] [--check]

Each figure is CPU of the server's process; readers are in a process of their own. A delta is paced as a model sends it,
or comes as fast as it can. `first paint` is one request for a session of 5,000 messages, and one for its last screen.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from swink_agent import Agent
from swink_agent.core.stream import StreamDone, StreamStart, TextDelta, TextEnd, TextStart
from swink_agent.core.types import AssistantMessage, StopReason, Text, UserMessage
from swink_agent.memory import JsonlSessionStore

TOKEN = "a-token-of-the-benchmark"
MOST_RATIO = 3.0
MOST_PAINT = 0.2


def streaming(count: int, pause: float) -> Any:
    async def stream(*_: Any) -> Any:
        yield StreamStart()
        yield TextStart(0)
        for number in range(count):
            yield TextDelta(0, "word ")
            if pause or number % 50 == 49:
                await asyncio.sleep(pause)
        yield TextEnd(0)
        yield StreamDone(StopReason.STOP)

    return stream


async def readers(url: str, sessions: list[str], count: int) -> asyncio.subprocess.Process:
    """A process that reads each session so often, and says when all streams are open."""
    made = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.web", "--read", url, str(count), *sessions, stdout=asyncio.subprocess.PIPE
    )
    assert made.stdout is not None
    await made.stdout.readline()
    return made


async def read(url: str, count: int, sessions: list[str]) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as http:

        async def one(session: str, opened: asyncio.Semaphore) -> None:
            async with http.get(f"{url}/api/v1/sessions/{session}/events", timeout=None) as response:
                opened.release()
                async for _ in response.content.iter_any():
                    pass

        opened = asyncio.Semaphore(0)
        tasks = [asyncio.ensure_future(one(session, opened)) for session in sessions for _ in range(count)]
        for _ in tasks:
            await opened.acquire()
        print("open", flush=True)
        await asyncio.wait(tasks)


async def run(url: str, http: aiohttp.ClientSession, session: str, site: Any) -> None:
    async with http.post(f"{url}/api/v1/sessions/{session}/prompt", json={"text": "go"}) as response:
        assert response.status == 202, await response.text()
    await site.rooms.find(session).talk.settled()


async def measured(count: int, pause: float, watching: int, sessions: int = 1) -> tuple[float, float]:
    """Seconds of CPU for each delta, and how many MB the process grew to."""
    from swink_agent.app.agent.opening import Opening, OpeningOptions
    from swink_agent.web.access import Access
    from swink_agent.web.serving import bound, served, standard_site

    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"SWINK_DATA_DIR": f"{folder}/data", "SWINK_CONFIG_DIR": f"{folder}/config"}
        os.environ["ANTHROPIC_API_KEY"] = "a-key-of-the-benchmark"
        opening = Opening(OpeningOptions(flags={"model": "anthropic:claude-sonnet-4-6"}, cwd=folder))
        listening = bound("127.0.0.1", 0)
        port = listening.getsockname()[1]
        site = standard_site(opening, Access(token=TOKEN, port=port), stream_fn=streaming(count, pause))
        url, headers = f"http://127.0.0.1:{port}", {"authorization": f"Bearer {TOKEN}"}
        async with served(site, listening), aiohttp.ClientSession(headers=headers) as http:
            ids = [await site.create("", None, None) for _ in range(sessions)]
            process = await readers(url, ids, watching)
            await asyncio.sleep(0.2)
            start = time.process_time()
            await asyncio.gather(*[run(url, http, session, site) for session in ids])
            await asyncio.sleep(0.1)
            took = time.process_time() - start
        await process.wait()
    return took / (count * sessions), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def painted() -> tuple[float, float]:
    """Seconds of CPU for a session of 5,000 messages: the first time, and again."""
    from swink_agent.web.histories import Histories

    with tempfile.TemporaryDirectory() as folder:
        store = JsonlSessionStore(Path(folder))
        messages: list[Any] = []
        for number in range(2_500):
            messages += [
                UserMessage([Text(f"question {number}")]),
                AssistantMessage([Text("An answer of some words. " * 20)], "anthropic", "claude-sonnet-4-6"),
            ]
        with store.create(folder) as session:
            session.attach(Agent("anthropic:claude-sonnet-4-6", stream_fn=streaming(1, 0), messages=messages))
        await asyncio.sleep(0.1)
        histories = Histories(store)
        took: list[float] = []
        for _ in range(2):
            start = time.process_time()
            loaded = histories.load(session.id)
            assert len(loaded.messages[-50:]) == 50
            took.append(time.process_time() - start)
    return took[0], took[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--read", nargs="+")
    chosen = parser.parse_args()
    if chosen.read:
        url, count, *sessions = chosen.read
        asyncio.run(read(url, int(count), sessions))
        return 0
    count, repeats = (2_000, 2) if chosen.quick else (10_000, 4)
    pairs = [(asyncio.run(measured(count, 0, 1))[0], asyncio.run(measured(count, 0, 10))[0]) for _ in range(repeats)]
    one, ten = min([pair[0] for pair in pairs]), min([pair[1] for pair in pairs])
    ratio = ten / one
    _say(f"a delta to one reader: {one * 1e6:.0f} µs; to ten: {ten * 1e6:.0f} µs, {ratio:.2f} times as much")
    paced = asyncio.run(measured(200, 0.01, 1))[0], asyncio.run(measured(200, 0.01, 10))[0]
    _say(f"paced, 100 a second: {paced[0] * 1e6:.0f} µs and {paced[1] * 1e6:.0f} µs, {paced[1] / paced[0]:.2f} times")
    each, megabytes = asyncio.run(measured(count // 10, 0.005, 10, sessions=20))
    _say(f"20 runs with 200 readers: {each * 1e6:.0f} µs of CPU a delta, {megabytes:.0f} MB in all")
    first, again = asyncio.run(painted())
    _say(f"the last screen of 5,000 messages: {first * 1e3:.0f} ms of CPU, then {again * 1e3:.1f} ms")
    is_good = ratio <= MOST_RATIO and first <= MOST_PAINT
    return 1 if chosen.check and not is_good else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
