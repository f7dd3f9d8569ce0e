"""Prints the table: CPU time, the minimum of several repeats, as a ratio against the bare loop in the same run.

python -m bench                 everything that is installed
python -m bench --quick         fewer repeats
python -m bench --check         exit 1 if one of ours is over its limit

Contenders are measured in turns: first one repeat of each, then another of each, and so on. Other work on the machine
then disturbs some repeats of every contender, and never all repeats of one.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

from .bare import Bare
from .ours import SwinkAgent
from .peers import installed_peers

Contender = Any
Go = Callable[[], float]
"""One go of some work: what it took."""
LEAST = 0.5
"""Seconds for which a row is measured at least, unless each side has had `MOST` goes by then: the shorter the work,
the more goes it takes to meet a quiet moment."""
MOST = 40


class Measure(NamedTuple):
    """What is to be measured of one contender, and the figure that follows from the best go of each."""

    goes: list[Go]
    figure: Callable[..., float]
    is_steady: bool = False
    """Whether one go tells it all."""


def cpu(work: Callable[[], Awaitable[Any]], clock: Callable[[], float] = time.process_time) -> Go:
    """Seconds for one go."""

    async def measured() -> float:
        gc.collect()
        start = clock()
        await work()
        return clock() - start

    return lambda: asyncio.run(measured())


def measured_by_turns(measures: Sequence[Measure], repeats: int) -> list[float | Exception]:
    """The figure of each, or what went wrong: from the minimum of each go, after one to warm up."""
    best = [[float("inf") for _ in measure.goes] for measure in measures]
    failures: dict[int, Exception] = {}

    def once() -> None:
        for number, measure in enumerate(measures):
            if number not in failures:
                try:
                    best[number] = [min(before, go()) for before, go in zip(best[number], measure.goes, strict=True)]
                except (RecursionError, AssertionError) as error:
                    failures[number] = error

    once()
    if not any(measure.is_steady for measure in measures):
        best = [[float("inf") for _ in measure.goes] for measure in measures]
        rounds, start = 0, time.perf_counter()
        while rounds < repeats or (rounds < MOST and time.perf_counter() - start < LEAST):
            once()
            rounds += 1
    return [failures.get(number) or measure.figure(*best[number]) for number, measure in enumerate(measures)]


def turn(contender: Contender) -> Measure:
    """Seconds of CPU for one turn with one validated tool call, in a run of 100."""
    return Measure([cpu(lambda: contender.tool_turns(100))], lambda run: run / 100)


def delta(contender: Contender, deltas: int = 20_000) -> Measure:
    """Seconds of CPU for one streamed text delta, read through the event stream."""

    async def work() -> None:
        seen = await contender.stream_text(deltas)
        assert seen == deltas, f"{contender.name} delivered {seen} of {deltas} deltas"

    return Measure([cpu(work)], lambda run: run / deltas)


def delta_growth(contender: Contender) -> Measure:
    """The cost of a delta in a stream of 80,000, against one in a stream of 1,000."""
    long, short = delta(contender, 80_000), delta(contender, 1_000)
    return Measure(
        [*long.goes, *short.goes * 3],  # of the short one more: a few milliseconds are easily disturbed
        lambda run, *shorts: long.figure(run) / short.figure(min(shorts)),
    )


def parallel(contender: Contender) -> Measure:
    """Seconds of wall time for 100 tools of 10 ms in one turn."""
    return Measure([cpu(lambda: contender.parallel_tools(100, 0.01), time.perf_counter)], float)


def many_agents(contender: Contender) -> Measure:
    """Seconds of CPU for 1,000 agents at once, each with five tool turns."""

    async def work() -> None:
        await asyncio.gather(*[contender.make_agent()(5) for _ in range(1_000)])

    return Measure([cpu(work)], float)


def memory(contender: Contender) -> Measure:
    """Bytes per agent, at the peak of that."""

    async def work() -> int:
        await contender.make_agent()(5)
        gc.collect()
        tracemalloc.start()
        agents = [contender.make_agent() for _ in range(1_000)]
        await asyncio.gather(*[run(5) for run in agents])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    return Measure([lambda: asyncio.run(work())], lambda peak: peak / 1_000, is_steady=True)


def history_growth(contender: Contender) -> Measure:
    """The cost of a turn after 2,000 messages, against one after 100: what ten more turns add to one."""

    def turns(history: int, count: int) -> Go:
        return cpu(lambda: contender.history_turns(history, count))

    return Measure(
        [turns(2_000, 11), turns(2_000, 1), turns(100, 11), turns(100, 1)],
        lambda long_11, long_1, short_11, short_1: (long_11 - long_1) / (short_11 - short_1),
    )


def guarded(contender: Contender) -> Measure:
    """The cost of a turn with everything on, against one of the plain agent: what 100 more turns add to 20."""
    if not hasattr(contender, "guarded_turns"):
        return Measure([], lambda: 1.0)
    goes = [cpu(lambda: contender.guarded_turns(120)), cpu(lambda: contender.guarded_turns(20))]
    goes += [cpu(lambda: contender.tool_turns(120)), cpu(lambda: contender.tool_turns(20))]
    return Measure(goes, lambda on_120, on_20, plain_120, plain_20: (on_120 - on_20) / (plain_120 - plain_20))


def import_once(contender: Contender, compiled: str) -> tuple[float, int]:
    """CPU seconds and modules that the import adds to a bare interpreter, once everything has been compiled.

    The bytecode of all is in a separate folder: where an environment writes none, the figure would be that of the
    compiler.
    """
    code = (
        "import sys, time\nbefore = set(sys.modules)\nstart = time.process_time()\n"
        f"{contender.import_statement}\n"
        "print(time.process_time() - start, len(set(sys.modules) - before))"
    )
    surroundings = {**os.environ, "PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
    child = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=surroundings)
    seconds, count = child.stdout.split()
    return float(seconds), int(count)


def imports(contenders: Sequence[Contender], repeats: int) -> list[float]:
    """Seconds of CPU for the import of each, the first one's being the yardstick.

    They take turns, and each sample is held against the yardstick's of the same round: what slows a busy machine down
    slows both. The median of these ratios counts, so that no single sample decides, be it too slow or too fast.
    """
    with tempfile.TemporaryDirectory() as compiled:
        for contender in contenders:
            import_once(contender, compiled)  # which compiles
        rounds = [[import_once(contender, compiled)[0] for contender in contenders] for _ in range(repeats * 3)]
    yardstick = median([samples[0] for samples in rounds])
    ratios = zip(*[[own / samples[0] for own in samples] for samples in rounds], strict=True)
    return [yardstick * median(column) for column in ratios]


def modules(contender: Contender) -> Measure:
    def go() -> float:
        with tempfile.TemporaryDirectory() as compiled:
            return float(import_once(contender, compiled)[1])

    return Measure([go], float, is_steady=True)


ABSOLUTE = "against the bare loop"
IN_TURN = "against the bare loop, all of them measured together"
OWN = "against itself"
TABLE: list[tuple[str, str, Callable[..., Any], float, float, str]] = [
    # work, kind of ratio, measure, limit for ours, unit, format of the bare loop's own figure
    (
        "one turn with one validated tool call",
        ABSOLUTE,
        turn,
        20 if sys.version_info < (3, 12) else 16,
        1e6,
        "{:.1f} µs",
    ),
    ("one streamed text delta", ABSOLUTE, delta, 4.5, 1e6, "{:.2f} µs"),
    ("cost per delta at 80,000, against 1,000", OWN, delta_growth, 1.2, 1, "{:.2f}"),
    ("100 tools of 10 ms in one turn, wall", ABSOLUTE, parallel, 1.3, 1e3, "{:.1f} ms"),
    ("1,000 agents at once, 5 turns with a tool each", ABSOLUTE, many_agents, 20, 1e3, "{:.0f} ms"),
    ("memory per agent there, KB", OWN, memory, 30_000, 1e-3, "{:.1f} KB"),
    ("one turn at 2,000 messages, against 100", OWN, history_growth, 1.2, 1, "{:.2f}"),
    ("one turn with everything on, against the plain agent", OWN, guarded, 2.5, 1, "{:.2f}"),
    ("import, CPU", IN_TURN, imports, 1.8, 1e3, "{:.1f} ms"),
    ("import, modules", ABSOLUTE, modules, 2, 1, "{:.0f}"),
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="five repeats instead of nine")
    parser.add_argument("--check", action="store_true", help="exit 1 if one of ours is over its limit")
    parser.add_argument("--only", default="", help="only the rows whose name holds this text")
    options = parser.parse_args()
    repeats = 5 if options.quick else 9
    contenders = [Bare(), SwinkAgent(), *[peer() for peer in installed_peers()]]

    head = ["work", "bare loop", "ours", "at most", *[peer.name for peer in contenders[2:]]]
    rows: list[list[str]] = []
    missed: list[str] = []
    for name, kind, measure, limit, scale, shape in TABLE:
        if options.only not in name:
            continue
        figures: list[float | None] = []
        outcomes: Sequence[float | Exception]
        if kind is IN_TURN:
            outcomes = measure(contenders, repeats)
        else:
            outcomes = measured_by_turns([measure(contender) for contender in contenders], repeats)
        for contender, outcome in zip(contenders, outcomes, strict=True):
            if isinstance(outcome, Exception):
                print(f"{contender.name}: {name}: {outcome!r}", file=sys.stderr)
            figures.append(None if isinstance(outcome, Exception) else outcome)
        yardstick = 1.0 if kind is OWN else figures[0]
        assert yardstick is not None
        shown = [_ratio(figure, yardstick, scale if measure is memory else 1) for figure in figures[1:]]
        limit_shown = f"{limit * (scale if measure is memory else 1):g}"
        rows.append([name, shape.format((figures[0] or 0) * scale), shown[0], limit_shown, *shown[1:]])
        if figures[1] is None or figures[1] / yardstick > limit:
            missed.append(name)
    print_table([head, *rows])
    for name in missed:
        print(f"over its limit: {name}", file=sys.stderr)
    return 1 if options.check and missed else 0


def _ratio(figure: float | None, yardstick: float, scale: float) -> str:
    return "fails" if figure is None else f"{figure / yardstick * scale:.3g}"


def print_table(rows: list[list[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


if __name__ == "__main__":
    raise SystemExit(main())
