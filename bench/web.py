"""Measures the CPU that the server of `swink web` needs for a delta with one and ten readers, and for pages.

python -m bench.web [--quick] [--check]

Each figure is the CPU time of the server's process; readers are in a separate process. A page is opened as a browser
opens it: the document, its static files, the models, and its stream. Deltas come at full speed, or paced as a model
sends them. The first paint is the page of a session of 5,000 messages with its list, from a server that has not read it
yet.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import resource
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from swink_agent import Agent
from swink_agent.core.stream import StreamDone, StreamStart, TextDelta, TextEnd, TextStart
from swink_agent.core.types import AssistantMessage, StopReason, Text, UserMessage

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


async def readers(url: str, sessions: list[str], count: int, kind: str) -> asyncio.subprocess.Process:
    """A process that reads each session so often, as a program or as a page, and says when all streams are open."""
    made = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.web", "--read", url, kind, str(count), *sessions),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert made.stdout is not None
    await made.stdout.readline()
    return made


async def read(url: str, kind: str, count: int, sessions: list[str]) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as http:
        opened = asyncio.Semaphore(0)

        async def stream(path: str) -> None:
            async with http.get(f"{url}{path}", timeout=None) as response:
                assert response.status == 200, response.status
                opened.release()
                async for _ in response.content.iter_any():
                    pass

        async def one(session: str) -> None:
            if kind == "program":
                await stream(f"/api/v1/sessions/{session}/events")
            else:
                await stream(await page(http, url, session))

        if kind == "paint":
            for _ in range(count):
                await asyncio.to_thread(sys.stdin.readline)
                await page(http, url, sessions[0])
                print("shown", flush=True)
            return
        tasks = [asyncio.ensure_future(one(session)) for session in sessions for _ in range(count)]
        for _ in tasks:
            await opened.acquire()
        print("open", flush=True)
        await asyncio.wait(tasks)


async def page(http: aiohttp.ClientSession, url: str, session: str) -> str:
    """Loads a page with all that a browser loads for it; returns the path of its stream."""

    async def text(path: str) -> str:
        async with http.get(f"{url}{path}") as response:
            assert response.status == 200, (path, response.status)
            return await response.text()

    shown = await text(f"/sessions/{session}")
    for path in ("static/page.css", "static/stream.js", "static/page.js", "api/v1/models"):
        await text(f"/{path}")
    listed, at = re.findall(r'data-position="(\d+)"', shown)
    return f"/parts/events?sessions={session}:{at},*:{listed}"


async def run(url: str, http: aiohttp.ClientSession, session: str, site: Any) -> None:
    async with http.post(f"{url}/api/v1/sessions/{session}/prompt", json={"text": "go"}) as response:
        assert response.status == 202, await response.text()
    await site.rooms.find(session).talk.settled()


@asynccontextmanager
async def serving(stream_fn: Any) -> AsyncGenerator[tuple[Any, str, aiohttp.ClientSession]]:
    """A server of its own in this process: its site, its address, and a client with the token."""
    from swink_agent.app.agent.opening import Opening, OpeningOptions
    from swink_agent.web.access import Access
    from swink_agent.web.serving import bound, served, standard_site

    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"SWINK_DATA_DIR": f"{folder}/data", "SWINK_CONFIG_DIR": f"{folder}/config"}
        os.environ["ANTHROPIC_API_KEY"] = "a-key-of-the-benchmark"
        opening = Opening(OpeningOptions(flags={"model": "anthropic:claude-sonnet-4-6"}, cwd=folder))
        listening = bound("127.0.0.1", 0)
        port = listening.getsockname()[1]
        site = standard_site(opening, Access(token=TOKEN, port=port), stream_fn=stream_fn)
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with served(site, listening), aiohttp.ClientSession(headers=headers) as http:
            yield site, f"http://127.0.0.1:{port}", http


class Cost(NamedTuple):
    """Seconds of CPU to open a page or stream, and for each delta; megabytes of the process at the end."""

    opening: float
    delta: float
    megabytes: float


async def measured(count: int, pause: float, watching: int, kind: str, sessions: int = 1) -> Cost:
    async with serving(streaming(count, pause)) as (site, url, http):
        ids = [await site.create("", None, None) for _ in range(sessions)]
        start = time.process_time()
        process = await readers(url, ids, watching, kind)
        opening = (time.process_time() - start) / (watching * sessions)
        await asyncio.sleep(0.2)
        start = time.process_time()
        await asyncio.gather(*[run(url, http, session, site) for session in ids])
        await asyncio.sleep(0.1)
        took = time.process_time() - start
        megabytes = resident()
    await process.wait()
    return Cost(opening, took / (count * sessions), megabytes)


def resident() -> float:
    """Megabytes of this process now; the most that there were, where the system does not say it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * resource.getpagesize() / 1024 / 1024


async def painted(others: int) -> tuple[float, float]:
    """Seconds of CPU for the page of a session of 5,000 messages among others: the first time, and again."""
    async with serving(streaming(1, 0)) as (site, url, _):
        messages: list[Any] = []
        for number in range(2_500):
            messages += [
                UserMessage([Text(f"question {number}")]),
                AssistantMessage([Text("An **answer** of `some` words. " * 20)], "anthropic", "claude-sonnet-4-6"),
            ]
        for number in range(others):
            with site.store.create(site.folder, title=f"Session {number}"):
                pass
        with site.store.create(site.folder, title="Long") as session:
            session.attach(Agent("anthropic:claude-sonnet-4-6", stream_fn=streaming(1, 0), messages=messages))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.web", "--read", url, "paint", "2", session.id),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        took: list[float] = []
        for _ in range(2):
            await asyncio.sleep(0.5)
            start = time.process_time()
            process.stdin.write(b"\n")
            await process.stdout.readline()
            took.append(time.process_time() - start)
        await process.wait()
    return took[0], took[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--read", nargs="+")
    chosen = parser.parse_args()
    if chosen.read:
        url, kind, count, *sessions = chosen.read
        asyncio.run(read(url, kind, int(count), sessions))
        return 0
    count, repeats = (2_000, 2) if chosen.quick else (10_000, 4)
    ratios: list[float] = []
    for kind in ("program", "page"):
        one = min([asyncio.run(measured(count, 0, 1, kind)).delta for _ in range(repeats)])
        ten = min([asyncio.run(measured(count, 0, 10, kind)).delta for _ in range(repeats)])
        ratios.append(ten / one)
        _say(f"a delta to one {kind}: {one * 1e6:.0f} µs; to ten: {ten * 1e6:.0f} µs, {ratios[-1]:.2f} times as much")
    paced = [asyncio.run(measured(200, 0.01, each, "page")).delta for each in (1, 10)]
    _say(f"paced, 100 a second: {paced[0] * 1e6:.0f} µs and {paced[1] * 1e6:.0f} µs, {paced[1] / paced[0]:.2f} times")
    many = asyncio.run(measured(count // 10, 0.005, 10, "page", sessions=20))
    _say(
        f"20 runs with 200 open pages: {many.opening * 1e3:.1f} ms of CPU to open a page, {many.delta * 1e6:.0f} µs a "
        f"delta, {many.megabytes:.0f} MB in all"
    )
    first, again = asyncio.run(painted(200))
    _say(f"first paint of 5,000 messages, beside 200 sessions: {first * 1e3:.0f} ms of CPU; again {again * 1e3:.0f} ms")
    is_good = max(ratios) <= MOST_RATIO and first <= MOST_PAINT
    return 1 if chosen.check and not is_good else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
