"""Which worker of pytest-xdist collects and runs which test files: a part of them each, as collecting all takes long.

The files are cut in the order of their paths, so that one worker, or two, load what a folder needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

SECONDS: dict[str, tuple[int, int]] = {}
"""Processor time that each folder takes by default, and in the sweep, as `python -m bench.tests` prints it. It need not
be exact: a wrong figure makes a run longer, and leaves out no test."""

OF_ANOTHER = (5, 5)

BYTES_LOADED_PER_SECOND = 200_000


class Share:
    """The files of one worker."""

    def __init__(self, owners: dict[Path, int], worker: int) -> None:
        self._owners = owners
        self._worker = worker

    @classmethod
    def of(cls, arguments: Iterable[str], tests: Path, worker: int, workers: int, *, is_sweep: bool) -> Share:
        """The share of a worker of what these arguments of pytest name."""
        named = [Path(argument.partition("::")[0]).resolve() for argument in arguments]
        files = {file for path in named for file in (path.rglob("test_*.py") if path.is_dir() else [path])}
        return cls(owners(sorted(files), tests, workers, is_sweep=is_sweep), worker)

    def has(self, path: Path) -> bool:
        return self._owners.get(path, 0) == self._worker


def owners(files: list[Path], tests: Path, workers: int, *, is_sweep: bool) -> dict[Path, int]:
    """The number of the worker for each file, such that each worker has about as much to do."""
    weights = _weights(tests, is_sweep=is_sweep)
    total = sum(weights.get(file, 1.0) for file in files)
    before, found = 0.0, {}
    for file in files:
        weight = weights.get(file, 1.0)
        found[file] = int((before + weight / 2) / total * workers)
        before += weight
    return found


def _weights(tests: Path, *, is_sweep: bool) -> dict[Path, float]:
    """Seconds for each file: those of its folder, by its size, and for loading it."""
    sizes = {file: file.stat().st_size + 1 for file in tests.rglob("test_*.py")}
    folders: dict[str, int] = {}
    for file, size in sizes.items():
        folders[_folder(file, tests)] = folders.get(_folder(file, tests), 0) + size
    return {
        file: SECONDS.get(_folder(file, tests), OF_ANOTHER)[is_sweep] * size / folders[_folder(file, tests)]
        + size / BYTES_LOADED_PER_SECOND
        for file, size in sizes.items()
    }


def _folder(file: Path, tests: Path) -> str:
    return file.relative_to(tests).parts[0]
