"""Prints where the time of the tests goes, by folder: of processors, also for programs they start, and by the clock.

python -m bench.tests                     the tests that run by default
python -m bench.tests --sweep             the sweep
python -m bench.tests core tools -s 10    these folders, and the slowest ten tests of each

Each folder runs in a process of its own. `tests/shares.py` has the figures for the processor, by which the workers of
`pytest -n 5` share the tests.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PASSED = {0, 5}
"""Exit codes of pytest: all passed, or there was no test."""


class Cost(NamedTuple):
    processor: float
    clock: float
    words: str
    """What pytest said at the end."""
    slowest: list[str]
    has_failed: bool


def cost(folder: str, *, is_sweep: bool, slowest: int) -> Cost:
    command = [sys.executable, "-m", "pytest", "-n", "0", f"tests/{folder}", f"--durations={slowest}"]
    start = time.monotonic()
    with subprocess.Popen([*command, *(["-m", "sweep"] if is_sweep else [])], stdout=subprocess.PIPE, cwd=ROOT) as run:
        assert run.stdout is not None
        lines = run.stdout.read().decode(errors="replace").splitlines()
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    return Cost(
        usage.ru_utime + usage.ru_stime,
        time.monotonic() - start,
        next((line for line in reversed(lines) if line.strip()), ""),
        [line for line in lines if re.match(r"\d+\.\d+s (call|setup|teardown) ", line)] if slowest else [],
        run.returncode not in PASSED,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tests", usage=__doc__)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("-s", "--slowest", type=int, default=0)
    chosen = parser.parse_args()
    folders = chosen.folders or sorted(
        {path.relative_to(ROOT / "tests").parts[0] for path in ROOT.glob("tests/*/**/test_*.py")}
    )
    costs: dict[str, Cost] = {}
    for folder in folders:
        costs[folder] = found = cost(folder, is_sweep=chosen.sweep, slowest=chosen.slowest)
        print(
            f"{folder:12} processor {found.processor:6.1f} s   clock {found.clock:6.1f} s   {found.words}", flush=True
        )
        for line in found.slowest:
            print(f"    {line}")
    print(f"{'all':12} processor {sum(c.processor for c in costs.values()):6.1f} s   ", end="")
    print(f"clock {sum(c.clock for c in costs.values()):6.1f} s")
    return any(found.has_failed for found in costs.values())


if __name__ == "__main__":
    sys.exit(main())
