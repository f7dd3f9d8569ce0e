"""Measures what the sandbox costs, in milliseconds and as a ratio to the unconfined command: `python -m bench.sandbox`.

    true            the shortest command there is, started and waited for
    2000 files      a script that makes two thousand files and removes them
    opening         the sandbox itself, with its trial

"hosts" is the same back end with a profile that names hosts, so commands use a proxy. Each figure is the best and the
median of many repeats, taken in turns, because the load of the machine varies.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable

from swink_agent.sandbox import Sandbox, SandboxProfile, SandboxUnavailable, open_sandbox, open_unconfined
from swink_agent.sandbox.open import backend_names

LIMIT = 0.010
FILES = "for i in $(seq 2000); do : > f$i; done; rm -f f*"

Run = Callable[[str], Awaitable[None]]


def bare(folder: str) -> Run:
    """What asyncio does for a child process, and nothing else."""

    async def run(script: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *command(script), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        await process.communicate()

    return run


def confined(sandbox: Sandbox) -> Run:
    async def run(script: str) -> None:
        process = await sandbox.spawn(command(script), cwd=sandbox.profile.write[0])
        await process.wait()
        process.kill()
        await process.output.read()

    return run


def make_repository(folder: str) -> None:
    """What is protected in a repository costs the most."""
    subprocess.run(["git", "init", "-q", folder], check=True)


def command(script: str) -> list[str]:
    return ["/bin/bash", "-c", script] if script else ["/bin/true"]


async def measure(runs: dict[str, Run], script: str, repeats: int) -> dict[str, list[float]]:
    """In turns, so that what else the machine does hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            await run(script)
            times[name].append(time.perf_counter() - start)
    return times


def report(title: str, times: dict[str, list[float]]) -> bool:
    print(f"\n{title:<20}{'best':>10}{'median':>10}{'added':>10}{'ratio':>8}")
    base = times["bare"]
    within = True
    for name, taken in times.items():
        added = min(taken) - min(base)
        within = within and (name == "off" or "hosts" in name or added < LIMIT or title != "true")
        print(
            f"  {name:<18}{min(taken) * 1e3:>7.2f} ms{statistics.median(taken) * 1e3:>7.2f} ms"
            f"{added * 1e3:>7.2f} ms{min(taken) / min(base):>8.1f}"
        )
    return within


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument(
        "--check", action="store_true", help=f"exit 1 if a back end adds {LIMIT * 1e3:.0f} ms to `true`"
    )
    options = parser.parse_args()
    repeats = 30 if options.quick else 200
    with tempfile.TemporaryDirectory(prefix="swink-bench-", dir="/var/tmp") as folder:
        profile = SandboxProfile(write=(folder,))
        make_repository(folder)
        runs: dict[str, Run] = {"bare": bare(folder)}
        opening: dict[str, float] = {}
        opened: list[Sandbox] = []
        with_hosts = SandboxProfile(write=(folder,), hosts=("example.org",))
        for name in (*backend_names(), *(f"{name}, hosts" for name in backend_names()), "off"):
            start = time.perf_counter()
            backend, _, hosts = name.partition(", ")
            try:
                sandbox = (
                    open_unconfined(profile)
                    if name == "off"
                    else open_sandbox(with_hosts if hosts else profile, backend=backend)
                )
            except SandboxUnavailable as error:
                print(f"{name}: {error}")
                continue
            opening[name] = time.perf_counter() - start
            opened.append(sandbox)
            runs[name] = confined(sandbox)
        try:
            within = report("true", await measure(runs, "", repeats))
            report("2000 files", await measure(runs, FILES, max(3, repeats // 20)))
        finally:
            for sandbox in opened:
                sandbox.close()
        print("\nopening         " + ", ".join(f"{name} {taken * 1e3:.0f} ms" for name, taken in opening.items()))
    return 0 if within or not options.check else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
