"""Measures what a checkpoint of a folder costs, against a walk that only asks for the status of each file.

python -m bench.checkpoints [--quick]

`cold` is the first checkpoint, which reads every file. `warm` is one of an unchanged folder by the same store, `again`
by a store that was just opened, as in a new process. `one file` is a checkpoint after one file has changed. `git` is
`git add -A` with `git write-tree` in the unchanged folder, with a repository of its own; `warm` is to be at most twice
that. It is left out where git is missing.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from swink_agent.tools import CheckpointStore

SIZES = (1_000, 20_000, 50_000)
_FILES_A_FOLDER = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smallest folder alone")
    options = parser.parse_args()
    print("| files | bare walk, CPU | cold | warm | again | one file | git | store on disk |")
    print("|-------|----------------|------|------|-------|----------|-----|---------------|")
    for size in SIZES[:1] if options.quick else SIZES:
        with tempfile.TemporaryDirectory() as base:
            print(measured(Path(base), size), flush=True)


def measured(base: Path, size: int) -> str:
    """One row: ratios of CPU against the bare walk."""
    root = base / "work"
    for number in range(size):
        path = root / f"folder{number // _FILES_A_FOLDER}" / f"file{number}.py"
        if not number % _FILES_A_FOLDER:
            path.parent.mkdir(parents=True)
        path.write_text(f"# file {number}\n" * 20)
    time.sleep(0.2)  # a file that changed just now is read again
    bare = min(cpu(lambda: walk(root)) for _ in range(3))
    store = CheckpointStore(base / "store")
    cold = cpu(lambda: store.take(root))
    warm = min(cpu(lambda: store.take(root)) for _ in range(3))
    again = min(cpu(lambda: CheckpointStore(base / "store").take(root)) for _ in range(3))

    def change() -> float:
        (root / "folder0/file0.py").write_text(str(time.time_ns()))
        return cpu(lambda: store.take(root, "run", "run"))

    one = min(change() for _ in range(3))
    held = sum(path.stat().st_size for path in store.folder.iterdir()) / 1024 / 1024
    git = "" if (took := git_takes(base, root)) is None else f"{took / bare:.1f}"
    ratios = " | ".join([*(f"{took / bare:.1f}" for took in (cold, warm, again, one)), git])
    return f"| {size:,} | {bare * 1000:.0f} ms | {ratios} | {held:.1f} MiB |"


def cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def git_takes(base: Path, root: Path) -> float | None:
    """CPU seconds of git for its index and tree of the unchanged folder."""
    if (git := shutil.which("git")) is None:
        return None
    environment = {**os.environ, "GIT_DIR": str(base / "git"), "GIT_WORK_TREE": str(root)}

    def take() -> float:
        start = resource.getrusage(resource.RUSAGE_CHILDREN)
        for words in (["add", "-A"], ["write-tree"]):
            subprocess.run([git, *words], env=environment, check=True, stdout=subprocess.DEVNULL)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        return end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime

    subprocess.run([git, "init", "--quiet"], env=environment, check=True)
    take()
    return min(take() for _ in range(3))


def walk(root: Path) -> int:
    """The least that any such thing must do: ask for the status of each entry."""
    count = 0
    for _, folders, files, folder in os.fwalk(root):
        for name in (*folders, *files):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            count += 1
    return count


if __name__ == "__main__":
    main()
