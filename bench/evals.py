"""Measures what an evaluation costs in addition to its agents, and how much memory it holds.

    python -m bench.evals [--quick] [--check]

`cost`: the CPU time of a case, with its folder, three evaluators, hashes and the store, against that of its agent
alone. `memory`: the peak while a set of many cases runs, against a set of a quarter of the size; every trajectory is
100 kB long.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

from swink_agent import Agent, tool
from swink_agent.evals import EvalCase, EvalRunner, EvalSet, EvalStore
from swink_agent.testing import call, scripted, text

from .__main__ import print_table

LIMITS = {"cost": 3.0, "memory": 1.25}
PARALLEL = 16
WORDS = "The quick brown fox jumps over the lazy dog, and the dog does not mind. "


@tool
async def look(page: int) -> str:
    """Looks something up."""
    return f"page {page}: {WORDS}"


def cases(count: int) -> EvalSet:
    """Cases as teams write them: a few calls, a reply, a budget."""
    calls = [{"name": "look", "arguments": {"page": page}} for page in range(6)]
    return EvalSet(
        "bench",
        "Bench",
        [
            EvalCase(
                f"case-{number}",
                "A case",
                ["What do the pages say?"],
                system_prompt="Look the pages up, one after the other.",
                expected_trajectory={"calls": calls},
                expected_response={"contains": "fox"},
                budget={"turns": 10},
            )
            for number in range(count)
        ],
    )


def agent(_case: EvalCase | None = None, _folder: Path | None = None) -> Agent:
    script = [text("I look at the next page. ") + call("look", page=page) for page in range(6)]
    return Agent("test:model", stream_fn=scripted(*script, text(WORDS * 5), deltas=40), tools=[look])


async def agents_alone(count: int) -> None:
    numbers = iter(range(count))

    async def work() -> None:
        for _ in numbers:
            result = await agent().prompt("What do the pages say?")
            assert "fox" in result.text

    await asyncio.gather(*[work() for _ in range(PARALLEL)])


async def evaluated(eval_set: EvalSet, folder: Path) -> None:
    run = await EvalRunner(agent, parallel=PARALLEL, store=EvalStore(folder)).run(eval_set)
    assert run.summary.passed == len(eval_set.cases), run.results[0]


def cost(folder: Path, count: int, repeats: int) -> tuple[float, float, float]:
    eval_set = cases(count)
    alone, whole = float("inf"), float("inf")
    for _ in range(repeats):  # in turns, so that a busy machine is busy for both
        gc.collect()
        start = time.process_time()
        asyncio.run(agents_alone(count))
        alone = min(alone, time.process_time() - start)
        gc.collect()
        start = time.process_time()
        asyncio.run(evaluated(eval_set, folder))
        whole = min(whole, time.process_time() - start)
    return whole / alone, alone / count, whole / count


def talker(_case: EvalCase, _folder: Path) -> Agent:
    return Agent("test:model", stream_fn=scripted(text("word " * 20_000 + "fox")), tools=[])


def memory(folder: Path, count: int) -> tuple[float, float, float]:
    peaks: list[int] = []
    for size in (count // 4, count):
        eval_set = EvalSet(
            "memory",
            "Memory",
            [EvalCase(f"{n}", "", ["talk"], expected_response={"contains": "fox"}) for n in range(size)],
        )
        gc.collect()
        tracemalloc.start()
        asyncio.run(EvalRunner(talker, parallel=PARALLEL, store=EvalStore(folder)).run(eval_set))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return peaks[1] / peaks[0], (peaks[1] - peaks[0]) / (count - count // 4), peaks[1] / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer cases and repetitions")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a ratio is above its limit")
    arguments = parser.parse_args()
    count, repeats = (100, 2) if arguments.quick else (500, 4)
    with tempfile.TemporaryDirectory() as place:
        ratio, alone, whole = cost(Path(place), count, repeats)
        growth, bytes_a_case, peak = memory(Path(place), 400 if arguments.quick else 800)
    rows = [
        ("cost", ratio, f"{alone * 1e3:.2f} ms alone, {whole * 1e3:.2f} ms evaluated"),
        ("memory", growth, f"{peak:.1f} MB at most, {bytes_a_case / 1e3:.1f} kB more for each case"),
    ]
    table = [[name, f"{value:.2f}", f"{LIMITS[name]:.2f}", figures] for name, value, figures in rows]
    print_table([["what", "ratio", "limit", "figures"], *table])
    too_much = [name for name, value, _ in rows if value > LIMITS[name]]
    return 1 if arguments.check and too_much else 0


if __name__ == "__main__":
    sys.exit(main())
