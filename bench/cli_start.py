"""Measures the CPU of `swink --help` against a bare `import click`, the minimum of several repeats each.

python -m bench.cli_start           prints the table
python -m bench.cli_start --check   exit 1 if `swink --help` costs three times as much or more
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

LIMIT = 3.0
BASE = "import click"
COMMANDS = {
    BASE: ["-c", BASE],
    "import swink_agent": ["-c", "import swink_agent"],
    "swink --help": ["-m", "swink_agent", "--help"],
    "swink --version": ["-m", "swink_agent", "--version"],
    "swink config path": ["-m", "swink_agent", "config", "path"],
}


def cpu(arguments: list[str], repeats: int) -> float:
    """Seconds of CPU, the system's included, for one process."""
    best = float("inf")
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--repeats", type=int, default=15)
    chosen = parser.parse_args()
    figures = {name: cpu(arguments, chosen.repeats) for name, arguments in COMMANDS.items()}
    for name, seconds in figures.items():
        print(f"{name:<20} {seconds * 1000:7.1f} ms  {seconds / figures[BASE]:5.2f} x")
    return int(chosen.check and figures["swink --help"] >= LIMIT * figures[BASE])


if __name__ == "__main__":
    sys.exit(main())
