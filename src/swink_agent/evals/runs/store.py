"""`EvalStore`: keeps runs in a folder.

    folder/<set>/<run>.json       a complete run
    folder/<set>/<run>.partial    a run in progress, or interrupted

Owns the names of the files, and puts runs together. `run_files` has the format of a file.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from msgspec.structs import replace

from ..cases.cases import Verdict
from ..errors import EvalStoreError, told
from ..types import Attempt, CaseResult, EvalGrid, EvalRun, RunInfo, StoredTrajectory, Summary
from .audit_chain import AuditTrail
from .codec import AttemptLine, encode_line
from .run_files import AttemptLog, RunHeader, read_attempts, read_header, write_run

WHOLE, PARTIAL = ".json", ".partial"
_MOST_NAMED = 5  # how many ids an error names, newest first, if several begin as given
_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


def new_run_id(created: int) -> str:
    """A unique id that sorts by time."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(created / 1000))
    return f"{stamp}-{created % 1000:03d}-{secrets.token_hex(3)}"


class EvalStore:
    """Runs in a folder, with one subfolder per set. A run is complete, or marked as partial."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def __repr__(self) -> str:
        return f"EvalStore({str(self.folder)!r})"

    def save(self, run: EvalRun) -> Path:
        """Saves a run with its trajectories. Raises `EvalStoreError`."""
        path = self._path(run.set_id, run.id, WHOLE if run.is_complete else PARTIAL)
        if run.path and path.exists() and os.path.samefile(run.path, path):
            return path
        lines = (_line(result, one, run.summary.seconds) for result in run.results for one in result.attempts)
        with told(path, "cannot be written"):
            write_run(path, _header_of(run), lines)
        return path

    def load(self, run: str | os.PathLike[str] | RunInfo) -> EvalRun:
        """Loads a run by its file, its id or the beginning of its id. Trajectories are read on demand.

        Raises `EvalStoreError` if it does not exist or cannot be read.
        """
        path = self._find(run)
        header = read_header(path)
        results = _results(read_attempts(path), header.verdict)
        seconds = 0.0 if header.summary is None else header.summary.seconds
        fields = _shared_fields(header, EvalRun)
        fields |= {"results": results, "summary": Summary.of(results, seconds), "path": str(path)}
        return EvalRun(**fields)

    def load_grid(self, grid: str) -> EvalGrid:
        """Loads a grid by its id or the beginning of its id. Raises `EvalStoreError` if it does not exist."""
        infos = [info for info in self.list() if grid and info.grid.startswith(grid)]
        ids = sorted({info.grid for info in infos}, reverse=True)
        if not ids:
            raise EvalStoreError(f"there is no grid {grid!r}", path=str(self.folder))
        if len(ids) > 1 and grid not in ids:
            raise EvalStoreError(_several("grids", grid, ids), path=str(self.folder))
        chosen = grid if grid in ids else ids[0]
        runs = [self.load(info) for info in infos if info.grid == chosen]
        return EvalGrid(chosen, tuple(sorted(runs, key=lambda run: (run.created, run.id))))

    def list(self, set_id: str | None = None) -> list[RunInfo]:
        """The runs of one set or of all, newest first. Files that cannot be read are skipped."""
        folders = self._folders() if set_id is None else [self.folder / _folder_name(set_id)]
        found: list[tuple[tuple[int, int, str], RunInfo]] = []
        for path in _files(folders):
            if path.suffix == PARTIAL and path.with_suffix(WHOLE).exists():
                continue  # the program ended after it wrote the complete file and before it removed this one
            try:
                header = read_header(path)
                written = path.stat().st_mtime_ns
            except (EvalStoreError, OSError):
                continue
            info = RunInfo(**_shared_fields(header, RunInfo), path=str(path))
            # A run that was made by hand may have no time: then the time of its file decides.
            found.append(((header.created, written, header.id), info))
        return [info for _, info in sorted(found, key=lambda one: one[0], reverse=True)]

    # -- for the runner ----------------------------------------------------------------------------------------

    def begin(self, run: EvalRun) -> AttemptLog:
        """Creates the file of a new run without results. Raises `EvalStoreError`."""
        path = self._path(run.set_id, run.id, PARTIAL)
        with told(path, "cannot be written"):
            return AttemptLog.create(path, replace(_header_of(run), is_complete=False, summary=None, chain=""))

    def resume(self, set_id: str, *, variant: str = "", grid: str = "") -> tuple[RunHeader, AttemptLog] | None:
        """Opens the newest interrupted run of a set that no other process writes to. Raises `EvalStoreError`.

        A run of a grid is resumed only by its grid.
        """
        for info in self.list(set_id):
            if info.is_complete or (info.variant, info.grid) != (variant, grid):
                continue
            path = Path(info.path)
            with told(path, "cannot be opened"):
                log = AttemptLog.reopen(path)
            if log is not None:
                return read_header(path), log
        return None

    def finish(self, log: AttemptLog, run: EvalRun) -> EvalRun:
        """Turns the file of a run in progress into that of a complete run. Raises `EvalStoreError`."""
        path = log.path.with_suffix(WHOLE)
        attempts = [attempt for result in run.results for attempt in result.attempts]
        with told(path, "cannot be written"):
            log.close()
            with log.path.open("rb") as source:
                lines = (_copied(source, attempt) for attempt in attempts)
                places = iter(write_run(path, _header_of(run), lines))
            log.path.unlink()
        results = [
            replace(result, attempts=tuple([replace(one, trajectory=next(places)) for one in result.attempts]))
            for result in run.results
        ]
        return replace(run, results=tuple(results), path=str(path))

    # -- files -------------------------------------------------------------------------------------------------

    def _path(self, set_id: str, run_id: str, suffix: str) -> Path:
        if not _SAFE.fullmatch(run_id):
            raise EvalStoreError(f"{run_id!r} cannot be the id of a run: it must be a valid name of a file")
        return self.folder / _folder_name(set_id) / (run_id + suffix)

    def _folders(self) -> Iterable[Path]:
        try:
            return [Path(entry.path) for entry in os.scandir(self.folder) if entry.is_dir()]
        except OSError:
            return []

    def _find(self, run: str | os.PathLike[str] | RunInfo) -> Path:
        if isinstance(run, RunInfo):
            return Path(run.path)
        path = Path(run)
        if path.is_file():
            return path
        wanted = os.fspath(run)
        found = [path for path in _files(self._folders()) if path.stem == wanted] or [
            path for path in _files(self._folders()) if wanted and path.stem.startswith(wanted)
        ]
        if not found:
            raise EvalStoreError(
                f"there is no result {wanted!r}: it is not a file, and not the id of a run here", path=str(self.folder)
            )
        ids = sorted({path.stem for path in found}, reverse=True)
        if len(ids) > 1:
            raise EvalStoreError(_several("results", wanted, ids), path=str(self.folder))
        return max(found, key=lambda path: path.suffix == WHOLE)


def _several(what: str, wanted: str, ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    return f"several {what} have ids that begin with {wanted!r}: {', '.join(ids[:_MOST_NAMED])}{more}"


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for suffix in (WHOLE, PARTIAL):
            yield from folder.glob(f"[!.]*{suffix}")


def _folder_name(set_id: str) -> str:
    """The name of the set's folder: its id, if that is a valid name."""
    if _SAFE.fullmatch(set_id):
        return set_id
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", set_id).strip("-")[:40]
    return f"{slug or 'set'}-{hashlib.sha256(set_id.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _header_of(run: EvalRun) -> RunHeader:
    fields = _shared_fields(run, RunHeader)
    fields |= {"cases": run.cases or len(run.results), "chain": run.chain or AuditTrail.chain_of_run(run)}
    return RunHeader(**fields)


def _shared_fields(source: EvalRun | RunHeader, kind: type[EvalRun | RunHeader | RunInfo]) -> dict[str, Any]:
    """The fields that both have: a header, a run and its entry in a list describe the same run."""
    return {name: getattr(source, name) for name in source.__struct_fields__ if name in kind.__struct_fields__}


def _line(result: CaseResult, attempt: Attempt, elapsed: float) -> bytes:
    digest = "" if attempt.case is None else attempt.case.digest
    return encode_line(AttemptLine(result.case_id, result.name, digest, elapsed, attempt))


def _copied(source: BinaryIO, attempt: Attempt) -> bytes:
    """The line of an attempt, copied from the file of the run in progress."""
    place = attempt.trajectory
    assert isinstance(place, StoredTrajectory)
    source.seek(place.offset)
    return source.read(place.length)


def _results(lines: Iterable[AttemptLine], verdict: Verdict) -> tuple[CaseResult, ...]:
    names: dict[str, str] = {}
    attempts: dict[str, list[Attempt]] = {}
    for line in lines:
        names.setdefault(line.case_id, line.name)
        made = attempts.setdefault(line.case_id, [])
        # A resumed run repeats attempts that were not measured; the repetition comes later in the file.
        made[:] = [one for one in made if one.is_measured or one.number != line.attempt.number]
        made.append(line.attempt)
    for made in attempts.values():
        made.sort(key=lambda attempt: attempt.number)
    return tuple([case_result(case_id, made, names[case_id], verdict) for case_id, made in attempts.items()])


def case_result(case_id: str, attempts: Sequence[Attempt], name: str, verdict: Verdict) -> CaseResult:
    """The attempts at a case, with the verdict of the case, else that of the run."""
    case = attempts[0].case if attempts else None
    own = None if case is None else case.verdict
    return CaseResult(case_id, tuple(attempts), name, own or verdict)
