"""Which worker of pytest-xdist collects and runs which test files: a part of them each, as collecting all takes long.

The files are cut in the order of their paths, so that one worker, or two, load what a folder needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

SECONDS = {
    "acp": (7, 24),
    "adapters": (21, 50),
    "app": (18, 14),
    "approvals": (5, 25),
    "chaos": (2, 30),
    "cli": (80, 130),
    "contracts": (31, 70),
    "core": (30, 25),
    "crash": (5, 80),
    "durable": (8, 62),
    "evals": (10, 12),
    "local": (8, 3),
    "mcp": (18, 35),
    "memory": (33, 90),
    "policies": (3, 12),
    "properties": (3, 28),
    "rendering": (2, 15),
    "sandbox": (56, 300),
    "security": (22, 280),
    "skills": (2, 0),
    "telemetry": (3, 0),
    "testing": (5, 5),
    "tools": (46, 80),
    "tui": (70, 60),
    "web": (22, 150),
}
"""Processor time that the tests of each folder take by default, and in the sweep, as `python -m bench.tests` prints it.
It need not be exact: a wrong figure makes a run longer, and leaves out no test."""

BYTES_LOADED_PER_SECOND = 200_000


class Share:
    """The files of one worker."""

    def __init__(self, owners: dict[Path, int], worker: int) -> None:
        self._owners = owners
        self._worker = worker

    @classmethod
    def of(
        cls, arguments: Iterable[str], tests: Path, worker: int, workers: int, *, seconds: Mapping[str, float]
    ) -> Share:
        """The share of a worker of what these arguments of pytest name. `seconds` are those of each folder."""
        named = [Path(argument.partition("::")[0]).resolve() for argument in arguments]
        files = {file for path in named for file in (path.rglob("test_*.py") if path.is_dir() else [path])}
        return cls(owners(sorted(files), _weights(tests, seconds), workers), worker)

    def has(self, path: Path) -> bool:
        return self._owners.get(path, 0) == self._worker


def owners(files: Sequence[Path], weights: Mapping[Path, float], workers: int) -> dict[Path, int]:
    """The number of the worker for each file, such that each worker has about as much to do."""
    total = sum(weights.get(file, 1.0) for file in files)
    before, found = 0.0, {}
    for file in files:
        weight = weights.get(file, 1.0)
        found[file] = int((before + weight / 2) / total * workers)
        before += weight
    return found


def _weights(tests: Path, seconds: Mapping[str, float]) -> dict[Path, float]:
    """Seconds for each file: those of its folder, by its size, and for loading it."""
    sizes = {file: file.stat().st_size + 1 for file in tests.rglob("test_*.py")}
    folders: dict[str, int] = {}
    for file, size in sizes.items():
        folders[_folder(file, tests)] = folders.get(_folder(file, tests), 0) + size
    return {
        file: seconds.get(name := _folder(file, tests), 5.0) * size / folders[name] + size / BYTES_LOADED_PER_SECOND
        for file, size in sizes.items()
    }


def _folder(file: Path, tests: Path) -> str:
    return file.relative_to(tests).parts[0]
