"""Measures what one approved `bash` call costs: CPU of this process, copies of its arguments, and thread hops.

python -m bench.approved_call [--quick] [--against FOLDER]

The agent has all features on: standard tools, recommended policies, approvals that a person answers, a redactor and a
subscriber. The command itself is `true`, and the time of the child process is not counted. `--against FOLDER` also runs
the source of another version, `FOLDER/src`, in turns, and shows the ratio, which compares the versions.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from typing import Any

CALLS = 40


class Model:
    """Calls `bash` a number of times, with another comment each time, and then says that it is done."""

    def __init__(self, calls: int) -> None:
        import swink_agent.core.stream as events
        from swink_agent.core.types import StopReason

        self.left = calls
        self.events = events
        self.done = events.StreamDone(StopReason.TOOL_USE)

    async def __call__(self, *_: Any) -> AsyncIterator[Any]:
        events = self.events
        self.left -= 1
        yield events.StreamStart()
        if self.left < 0:
            for event in (events.TextStart(0), events.TextDelta(0, "done"), events.TextEnd(0), events.StreamDone()):
                yield event
            return
        yield events.ToolCallStart(0, f"call_{self.left}", "bash")
        yield events.ToolCallDelta(0, f'{{"command":"true # {self.left}","timeout":20}}')
        yield events.ToolCallEnd(0)
        yield self.done


async def run(calls: int) -> None:
    """Runs an agent that makes this many approved calls."""
    from swink_agent import Agent, Redactor, recommended, standard_tools
    from swink_agent.approvals import Approvals

    asked: list[Any] = []
    seen: list[Any] = []

    async def yes(question: Any) -> str:
        asked.append(question)
        return "once"

    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(
            "bench:model",
            stream_fn=Model(calls),
            tools=standard_tools(folder),
            policies=recommended(folder, max_turns=calls + 1),
            max_turns=None,
            approve=Approvals(yes, mode="ask"),
            redactor=Redactor(),
        )
        agent.subscribe(seen.append)
        result = await agent.prompt("go")
    assert result.error is None, result
    assert len(asked) == calls, f"{len(asked)} of {calls} calls were asked about"
    assert sum(type(event).__name__ == "ToolExecutionEnd" and not event.is_error for event in seen) == calls


def cpu_per_call() -> float:
    """Seconds of this process's own CPU for one call: what 40 more calls add to ten."""

    def go(calls: int) -> float:
        gc.collect()
        start = time.process_time()
        asyncio.run(run(calls))
        return time.process_time() - start

    go(2)
    return (go(10 + CALLS) - go(10)) / CALLS


def hops_per_call() -> float:
    """Thread hops of one call: pieces of work that another thread does for it."""
    hops = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal hops
        if event == "call" and frame.f_code.co_qualname in _HOPS:
            hops += 1

    asyncio.run(run(2))
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        asyncio.run(run(20))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return hops / 20


_HOPS = ("WorkerThreads.begin.<locals>.job", "WorkerThreads.run.<locals>.job", "_WorkItem.run")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.approved_call")
    parser.add_argument("--quick", action="store_true", help="five rounds instead of fifteen")
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(cpu_per_call())
        return
    folders = [Path(__file__).parent.parent, *([options.against] if options.against else [])]
    figures: list[list[float]] = [[] for _ in folders]
    for _ in range(5 if options.quick else 15):
        for folder, seconds in zip(folders, figures, strict=True):
            environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
            argv = [sys.executable, __file__, "--once"]
            seconds.append(float(subprocess.run(argv, env=environment, check=True, stdout=subprocess.PIPE).stdout))
    print(f"CPU of one approved bash call: {min(figures[0]) * 1e6:.0f} µs; at most three hops: {hops_per_call():.1f}")
    if options.against:
        ratios = [ours / theirs for ours, theirs in zip(*figures, strict=True)]
        best, other = min(figures[0]), min(figures[1])
        print(
            f"against {options.against}, {other * 1e6:.0f} µs: {best / other:.2f} by the best, {median(ratios):.2f}"
            " by the median (at most 0.7)"
        )


if __name__ == "__main__":
    main()
