"""Counts instructions of the import, a turn, a delta, an agent among many and a session, to compare versions on a busy
machine.

python -m bench.instructions [--against FOLDER] [--only NAME]

Valgrind counts the instructions of a process, independent of the load of the machine. The counts are repeatable, but
leave out caches, the kernel and the cost of collecting garbage among many objects. So they show whether one version
does more work than another, `FOLDER`, but not how long it takes. Each figure except the import's is the difference
between more work and less.

`recorded` is a turn with a session by an agent with all features on; its bare column is the same turn without a
session.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from .__main__ import print_table

HERE = Path(__file__).parent.parent
WORK = {"turn": (100, 200), "delta": (1_000, 3_000), "agents": (50, 150), "recorded": (100, 200)}
"""How much of each is done: some, and more."""


async def do(side: str, what: str, count: int) -> None:
    from .bare import Bare
    from .ours import SwinkAgent

    if what == "recorded":
        from .sessions import recorded_turns

        await recorded_turns(count, is_recorded=side != "bare")
        return
    contender = Bare() if side == "bare" else SwinkAgent()
    await contender.tool_turns(3)
    await contender.stream_text(5)
    if what == "turn":
        await contender.tool_turns(count)
    elif what == "delta":
        await contender.stream_text(count)
    else:
        await asyncio.gather(*[contender.make_agent()(5) for _ in range(count)])


def instructions(folder: Path, compiled: str, *arguments: str) -> int:
    """What a Python with the source in `folder` executes; modules have been compiled before."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": compiled, "PYTHONPATH": f"{folder / 'src'}:{HERE}"}
    python = [sys.executable, *arguments]
    subprocess.run(python, env=environment, check=True)
    valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={os.devnull}", *python]
    said = subprocess.run(valgrind, env=environment, check=True, stderr=subprocess.PIPE, text=True).stderr
    return max(int(number) for number in re.findall(r"Collected : (\d+)", said))


def figures(side: str, folder: Path, compiled: str, only: str) -> dict[str, float]:
    statement = "import asyncio, msgspec" if side == "bare" else "from swink_agent import Agent, tool"
    found: dict[str, float] = {}
    if only in "import":
        found["import"] = instructions(folder, compiled, "-c", statement)
    for what, (some, more) in WORK.items():
        if only not in what:
            continue
        counts = [
            instructions(folder, compiled, "-m", "bench.instructions", "--do", side, what, str(count))
            for count in (some, more)
        ]
        found[what] = (counts[1] - counts[0]) / (more - some)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions")
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--only", default="", help=f"one of import, {', '.join(WORK)}")
    parser.add_argument("--do", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.do:
        side, what, count = options.do
        asyncio.run(do(side, what, int(count)))
        return
    with tempfile.TemporaryDirectory() as compiled:
        columns = {"bare": figures("bare", HERE, compiled, options.only)}
        columns["ours"] = figures("ours", HERE, compiled, options.only)
        if options.against:
            columns["against"] = figures("ours", options.against.absolute(), compiled, options.only)
    rows = [["instructions", *columns, "ours / bare", *(["ours / against"] if options.against else [])]]
    for what, bare in columns["bare"].items():
        ours = columns["ours"][what]
        ratios = [f"{ours / bare:.2f}"]
        if options.against:
            ratios.append(f"{ours / columns['against'][what]:.3f}")
        rows.append([what, *[f"{column[what]:,.0f}" for column in columns.values()], *ratios])
    print_table(rows)


if __name__ == "__main__":
    main()
