"""Prints the folders of tests whose whole sweep `.ci/run` runs, as `core,tools`: those of the packages that changed.

Changes are those since the last tag or, without tags, in the last 50 commits, and what is not committed. If all of them
would take too long, some wait: the first in line is another one each day. The sweep of a folder that would take too
long alone runs in .ci/nightly, and a tenth of it each day. Run it from the root of the repository:

    python -m tests.changed [SECONDS]     # of processor time that the sweeps may take
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path

from .shares import SECONDS

ROOT = Path(__file__).parents[1]
BUDGET = 150
COMMITS = 50
ALSO = {
    "chaos": {"core"},
    "crash": {"memory"},
    "properties": {"core"},
    "security": {"approvals", "policies", "sandbox", "tools"},
}
"""Folders of tests that have no package, and the packages that they test."""


def changed_files() -> list[str]:
    tag = _git("describe", "--tags", "--abbrev=0") or ["".join(_git("rev-list", f"--max-count={COMMITS}", "HEAD")[-1:])]
    return [*_git("diff", "--name-only", *tag), *_git("ls-files", "--others", "--exclude-standard")]


def _git(*arguments: str) -> list[str]:
    """The lines that git writes; none where there is no git, no repository, or no such thing in it."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def folders_of(files: Iterable[str], folders: Iterable[str]) -> list[str]:
    """Those of the folders of tests that changed, or whose package did."""
    paths = [file.split("/") for file in files]
    packages = {path[2] for path in paths if path[0] == "src" and len(path) > 3}
    tests = {path[1] for path in paths if path[0] == "tests" and len(path) > 2}
    return sorted(name for name in folders if name in packages | tests or ALSO.get(name, set()) & packages)


def that_fit(folders: Sequence[str], seconds: Mapping[str, float], budget: float, first: int) -> list[str]:
    """As many of the folders as fit, beginning with another one for each `first`."""
    start = first % len(folders) if folders else 0
    taken: list[str] = []
    for name in [*folders[start:], *folders[:start]]:
        if seconds[name] <= budget:
            taken.append(name)
            budget -= seconds[name]
    return sorted(taken)


def main(budget: float) -> None:
    changed = folders_of(changed_files(), SECONDS)
    seconds = {name: sweep for name, (_, sweep) in SECONDS.items()}
    taken = that_fit(changed, seconds, budget, date.today().toordinal())
    if waiting := set(changed) - {*taken}:
        print(
            f"these changed too, and wait for another day or for the nightly run: {', '.join(sorted(waiting))}",
            file=sys.stderr,
        )
    print(",".join(taken))


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else BUDGET)
