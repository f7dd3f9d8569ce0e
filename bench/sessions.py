"""Measures the cost of sessions: appending, opening, listing, a turn with one attached, and other agents' turns.

    python -m bench.sessions [--quick] [--check]

Each row is a ratio with a limit that holds on any machine: the time of the disk itself is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Union

import msgspec

from swink_agent import Agent, AssistantMessage, Redactor, Text, ToolCall, ToolResultMessage, UserMessage, tool
from swink_agent.approvals import Approvals
from swink_agent.core import journal
from swink_agent.core.journal import MessageAdded, ToolStarted
from swink_agent.memory import JsonlSessionStore, Session
from swink_agent.memory.storage.files import FileOperations
from swink_agent.policies import recommended
from swink_agent.testing import call, scripted, text
from swink_agent.tools import standard_tools

from .__main__ import print_table
from .ours import ScriptedModel

LIMITS = {"append": 1.3, "open": 3.5, "turn": 2.0, "list": 0.1, "short": 0.4, "bytes": 0.1, "others": 1.3}
SLOW_SYNC = 0.1
"""Seconds: a disk that others must not wait for."""
ENTRIES: Any = Union[tuple(journal.JournalEntry.__args__)]  # type: ignore[attr-defined] # noqa: UP007
WORDS = "The quick brown fox jumps over the lazy dog, and the dog does not mind. "


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def best(function: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.process_time) -> float:
    least = float("inf")
    for _ in range(repeats + 1):
        gc.collect()
        start = clock()
        function()
        least = min(least, clock() - start)
    return least


def fill(session: Session, messages: int) -> None:
    """A history as agents have them: questions, calls, results, answers."""
    log = session.log
    for number in range(messages // 4):
        log.record(MessageAdded(UserMessage(f"{number}: {WORDS}"), "prompt"))
        reply = AssistantMessage([Text(WORDS), ToolCall(f"call_{number}", "add", {"a": number, "b": 1})])
        log.record(MessageAdded(reply, "reply"))
        log.record(ToolStarted(0, f"call_{number}", "add"))
        log.record(MessageAdded(ToolResultMessage(f"call_{number}", WORDS * 5, tool_name="add"), "result", 0))
        log.record(MessageAdded(AssistantMessage(WORDS * 3), "reply"))


def append(folder: Path, repeats: int) -> float:
    """The cost of a message in a session of 10,000, against one in an empty session."""
    store = JsonlSessionStore(folder / "append", sync=False)
    with store.create() as long, store.create() as short:
        fill(long, 10_000)
        # In turns, so that a busy machine is busy for both; the short one stays shorter than 4,000.
        costs = [(best(lambda: fill(long, 400), 0), best(lambda: fill(short, 400), 0)) for _ in range(repeats)]
    return min(one for one, _ in costs) / min(other for _, other in costs)


def open_whole(folder: Path, repeats: int) -> float:
    """Opening 10,000 messages, against reading and decoding their lines with msgspec alone."""
    store = JsonlSessionStore(folder / "open", sync=False)
    with store.create() as session:
        fill(session, 10_000)
    decoder = msgspec.json.Decoder(ENTRIES)

    def decode() -> None:
        lines = session.path.read_bytes().splitlines()[1:]
        kept = [decoder.decode(line) for line in lines]
        assert len(kept) == 12_500

    # In turns, so that a busy machine is busy for both; the least of many, since it only ever adds.
    costs = [(best(lambda: store.load(session.id), 0), best(decode, 0)) for _ in range(10 * repeats)]
    return min(one for one, _ in costs) / min(other for _, other in costs)


def turn(folder: Path, repeats: int) -> float:
    """A turn with a tool call by an agent with everything on, and a session, against one without."""
    ratios = [turn_ratio(folder, repeats, standard_agent) for _ in range(5)]
    bare = [turn_ratio(folder, repeats, bare_agent) for _ in range(5)]
    print(
        f"a turn with a session: {min(ratios):.2f} to {max(ratios):.2f} times one without; of an agent with one tool "
        f"and nothing else, whose turn is the smallest there is: {min(bare):.2f} to {max(bare):.2f}",
        file=sys.stderr,
    )
    return statistics.median(ratios)


def counting_model(turns: int) -> ScriptedModel:
    model = ScriptedModel(turns)
    model.counts = True
    return model


def bare_agent(turns: int, folder: str) -> Agent:
    return Agent("test:model", stream_fn=counting_model(turns), tools=[add], max_turns=None)


def standard_agent(turns: int, folder: str) -> Agent:
    """With what `swink` has: standard tools, recommended policies, approvals, redaction."""
    return Agent(
        "test:model",
        stream_fn=counting_model(turns),
        tools=[add, *standard_tools(folder)],
        policies=recommended(folder, max_turns=turns + 1),
        max_turns=None,
        approve=Approvals(),
        redactor=Redactor(),
    )


async def recorded_turns(turns: int, *, is_recorded: bool) -> None:
    """Turns by an agent with everything on, with a session or without, for `bench.instructions`."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        agent = standard_agent(turns, folder)
        if is_recorded:
            store = JsonlSessionStore(Path(folder, "sessions"), sync=False)
            stack.enter_context(store.create()).attach(agent)
        result = await agent.prompt(WORDS)
    assert len(result.messages) == 2 * turns + 2, result


def turn_ratio(folder: Path, repeats: int, make: Callable[[int, str], Agent]) -> float:
    """What 200 more turns add to 20, with a session and without."""
    store = JsonlSessionStore(folder / "turn", sync=False)

    def run(turns: int, is_recorded: bool) -> float:
        with tempfile.TemporaryDirectory() as workspace, contextlib.ExitStack() as stack:
            agent = make(turns, workspace)
            if is_recorded:
                stack.enter_context(store.create()).attach(agent)
            gc.collect()
            start = time.process_time()
            result = asyncio.run(agent.prompt(WORDS))
            took = time.process_time() - start
        assert len(result.messages) == 2 * turns + 2, result
        return took

    cases = [(turns, is_recorded) for turns in (220, 20) for is_recorded in (True, False)]
    # In turns, so that a busy machine is busy for all of them; the least of many, since it only ever adds.
    least = dict.fromkeys(cases, float("inf"))
    for _ in range(5 * repeats):
        for case in cases:
            least[case] = min(least[case], run(*case))
    return (least[220, True] - least[20, True]) / (least[220, False] - least[20, False])


class Disk(FileOperations):
    """The real files, which count their syncs; `seconds` is how long one takes instead of what the disk takes."""

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self.syncs = 0
        self.waited = 0.0

    def sync(self, descriptor: int) -> None:
        start = time.perf_counter()
        if self._seconds is None:
            super().sync(descriptor)
        else:
            time.sleep(self._seconds)
        self.syncs += 1
        self.waited += time.perf_counter() - start


def say_synced_turn(folder: Path) -> None:
    """Says how often a turn waits for the disk, and how long: the disk's own time, and no promise."""
    disk, turns = Disk(), 50
    agent = Agent(
        "test:model", stream_fn=scripted(*[call("add", a=1, b=2)] * turns, text("done")), tools=[add], max_turns=None
    )
    with JsonlSessionStore(folder / "synced", files=disk).create() as session:
        session.attach(agent)
        start = time.perf_counter()
        asyncio.run(agent.prompt(WORDS))
        took = time.perf_counter() - start
    print(
        f"a turn that waits for this disk: {disk.syncs / turns:.1f} syncs, "
        f"{took / turns * 1000:.1f} ms, of which {disk.waited / turns * 1000:.1f} in the disk",
        file=sys.stderr,
    )


def others(folder: Path, repeats: int) -> float:
    """Of 100 agents in one event loop, those whose disk is quick, while that of ten is slow: against none slow."""

    async def work(store: JsonlSessionStore) -> float:
        replies = [*[call("add", a=1, b=2)] * 4, text("done")]
        agent = Agent("test:model", stream_fn=scripted(*replies), tools=[add], max_turns=None)
        session = store.create()
        session.attach(agent)
        start = time.perf_counter()
        result = await agent.prompt(WORDS)
        took = time.perf_counter() - start
        assert result.error is None, result
        await asyncio.to_thread(session.close)
        return took

    async def all_at_once(slow: float) -> float:
        stores = [JsonlSessionStore(folder / "others", files=Disk(slow if n < 10 else 0.0)) for n in range(100)]
        return statistics.median((await asyncio.gather(*[work(store) for store in stores]))[10:])

    pairs = [(asyncio.run(all_at_once(SLOW_SYNC)), asyncio.run(all_at_once(0.0))) for _ in range(2 * repeats)]
    return min(slow for slow, _ in pairs) / min(quick for _, quick in pairs)


def bytes_read() -> int:
    """How many bytes this process has read so far, by any call."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def many_sessions(folder: Path) -> JsonlSessionStore:
    store = JsonlSessionStore(folder / "list", sync=False)
    if not store.folder.exists():
        for _ in range(1_000):
            with store.create() as session:
                fill(session, 200)
    return store


def listing(folder: Path, repeats: int) -> float:
    """Listing 1,000 sessions of 200 messages again, against reading them whole."""
    store = many_sessions(folder)

    def load_all() -> None:
        for path in store.folder.glob("*.jsonl"):
            store.load(path.stem)

    store.list()
    return best(store.list, repeats) / best(load_all, 0)


def short_list(folder: Path, repeats: int) -> float:
    """The first list of the 20 newest of 1,000 sessions, against the first list of all of them."""
    store = many_sessions(folder)

    def first_list(limit: int | None) -> None:
        (store.folder / "search-index.sqlite3").unlink(missing_ok=True)
        store.list(limit=limit)

    return best(lambda: first_list(20), repeats) / best(lambda: first_list(None), 0)


def listed_bytes(folder: Path, repeats: int) -> float:
    """The bytes that listing them again reads, against all that they have."""
    store = many_sessions(folder)
    store.list()
    before = bytes_read()
    assert len(store.list()) == 1_000
    return (bytes_read() - before) / sum(path.stat().st_size for path in store.folder.glob("*.jsonl"))


MEASURES = {
    "append": append,
    "open": open_whole,
    "turn": turn,
    "list": listing,
    "short": short_list,
    "bytes": listed_bytes,
    "others": others,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", default="", help=f"one of {', '.join(MEASURES)}")
    options = parser.parse_args()
    repeats = 3 if options.quick else 9
    rows: list[list[str]] = []
    is_over = False
    with tempfile.TemporaryDirectory() as name:
        for key, measure in MEASURES.items():
            if options.only not in key:
                continue
            ratio = measure(Path(name), repeats)
            is_over |= ratio > LIMITS[key]
            rows.append([measure.__doc__ or "", f"{ratio:.2f}", f"{LIMITS[key]:.2f}"])
        if options.only in "turn":
            say_synced_turn(Path(name))
    print_table([["work", "ratio", "at most"], *rows])
    return int(options.check and is_over)


if __name__ == "__main__":
    sys.exit(main())
