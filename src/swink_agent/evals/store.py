"""Results that are kept: `EvalStore`.

    folder/<set>/<run>.json       a run that is over
    folder/<set>/<run>.partial    one that goes on, or was interrupted

Owns which files there are, and what is in a run. What is in a file is for `run_files`.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from .audit import AuditTrail
from .cases import EvalSet
from .codec import AttemptLine, encode_line
from .errors import EvalStoreError
from .run_files import AttemptLog, RunHeader, read_attempts, read_header, write_run
from .types import Attempt, CaseResult, EvalRun, RunInfo, StoredTrajectory, Summary

__all__ = ["EvalStore", "new_run_id"]

WHOLE, PARTIAL = ".json", ".partial"
_MOST_TOLD = 5
"""So many ids are named, the newest first, where the beginning of one fits several."""
_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


def new_run_id(created: int) -> str:
    """A name that sorts by time, and that no other run has."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(created / 1000))
    return f"{stamp}-{created % 1000:03d}-{secrets.token_hex(3)}"


class EvalStore:
    """Runs in a folder, one folder beneath it for each set. A run is there whole, or marked as interrupted."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def __repr__(self) -> str:
        return f"EvalStore({str(self.folder)!r})"

    def save(self, run: EvalRun) -> Path:
        """Keeps a run, with everything that its agents did. Raises `EvalStoreError`."""
        path = self._path(run.set_id, run.id, WHOLE if run.is_complete else PARTIAL)
        if run.path and path.exists() and os.path.samefile(run.path, path):
            return path
        lines = (
            encode_line(_line(result, attempt, run.summary.seconds))
            for result in run.results
            for attempt in result.attempts
        )
        try:
            write_run(path, _header_of(run), lines)
        except OSError as error:
            raise EvalStoreError(f"cannot be written: {error.strerror}", path=str(path)) from error
        return path

    def load(self, run: str | os.PathLike[str] | RunInfo) -> EvalRun:
        """A run, by its file, its id or the beginning of one. What its agents did is read when it is looked at.

        Raises `EvalStoreError` if there is none, or it cannot be read.
        """
        path = self._find(run)
        header = read_header(path)
        results = _results(read_attempts(path))
        seconds = 0.0 if header.summary is None else header.summary.seconds
        return EvalRun(
            id=header.id,
            set_id=header.set_id,
            results=results,
            summary=Summary.of(results, seconds),
            set_name=header.set_name,
            set_digest=header.set_digest,
            created=header.created,
            cases=header.cases,
            repeat=header.repeat,
            is_complete=header.is_complete,
            chain=header.chain,
            path=str(path),
        )

    def list(self, set_id: str | None = None) -> list[RunInfo]:
        """The runs, newest first, of one set or of all; a file that cannot be read is passed over."""
        folders = self._folders() if set_id is None else [self.folder / _folder_name(set_id)]
        found: list[tuple[tuple[int, int, str], RunInfo]] = []
        for path in _files(folders):
            if path.suffix == PARTIAL and path.with_suffix(WHOLE).exists():
                continue  # the program ended between making the one and removing the other
            try:
                header = read_header(path)
                written = path.stat().st_mtime_ns
            except (EvalStoreError, OSError):
                continue
            info = RunInfo(
                id=header.id,
                set_id=header.set_id,
                set_name=header.set_name,
                created=header.created,
                summary=header.summary,
                cases=header.cases,
                repeat=header.repeat,
                is_complete=header.is_complete,
                path=str(path),
            )
            # Runs that somebody put together say nothing of when: among them the files do.
            found.append(((header.created, written, header.id), info))
        return [info for _, info in sorted(found, key=lambda one: one[0], reverse=True)]

    # -- for the runner ----------------------------------------------------------------------------------------

    def begin(self, eval_set: EvalSet, run_id: str, created: int, repeat: int) -> AttemptLog:
        """The file of a new run. Raises `EvalStoreError`."""
        path = self._path(eval_set.id, run_id, PARTIAL)
        header = RunHeader(
            id=run_id,
            set_id=eval_set.id,
            set_name=eval_set.name,
            set_digest=eval_set.digest,
            created=created,
            cases=len(eval_set.cases),
            repeat=repeat,
        )
        try:
            return AttemptLog.create(path, header)
        except OSError as error:
            raise EvalStoreError(f"cannot be written: {error.strerror}", path=str(path)) from error

    def resume(self, set_id: str) -> tuple[RunHeader, AttemptLog] | None:
        """The newest run of a set that was interrupted and that nobody goes on with. Raises `EvalStoreError`."""
        for info in self.list(set_id):
            if info.is_complete:
                continue
            path = Path(info.path)
            try:
                log = AttemptLog.reopen(path)
            except OSError as error:
                raise EvalStoreError(f"cannot be opened: {error.strerror}", path=info.path) from error
            if log is not None:
                return read_header(path), log
        return None

    def finish(self, log: AttemptLog, run: EvalRun) -> EvalRun:
        """Makes a whole run of the file of one that went on. Raises `EvalStoreError`."""
        path = log.path.with_suffix(WHOLE)
        attempts = [attempt for result in run.results for attempt in result.attempts]
        try:
            log.close()
            with log.path.open("rb") as source:
                lines = (_copied(source, attempt) for attempt in attempts)
                places = iter(write_run(path, _header_of(run), lines))
            log.path.unlink()
        except OSError as error:
            raise EvalStoreError(f"cannot be written: {error.strerror}", path=str(path)) from error
        results = [
            replace(result, attempts=tuple([replace(one, trajectory=next(places)) for one in result.attempts]))
            for result in run.results
        ]
        return replace(run, results=tuple(results), path=str(path))

    # -- files -------------------------------------------------------------------------------------------------

    def _path(self, set_id: str, run_id: str, suffix: str) -> Path:
        if not _SAFE.fullmatch(run_id):
            raise EvalStoreError(f"{run_id!r} cannot be the id of a run: it is to be the name of a file")
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
            raise EvalStoreError(f"there is no result {wanted!r}", path=str(self.folder))
        ids = sorted({path.stem for path in found}, reverse=True)
        if len(ids) > 1:
            told = ", ".join(ids[:_MOST_TOLD]) + (f" and {len(ids) - _MOST_TOLD} more" if len(ids) > _MOST_TOLD else "")
            raise EvalStoreError(f"several results have ids that begin with {wanted!r}: {told}", path=str(self.folder))
        return max(found, key=lambda path: path.suffix == WHOLE)


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for suffix in (WHOLE, PARTIAL):
            yield from folder.glob(f"[!.]*{suffix}")


def _folder_name(set_id: str) -> str:
    """A folder for the set, under its own name if that can be one."""
    if _SAFE.fullmatch(set_id):
        return set_id
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", set_id).strip("-")[:40]
    return f"{slug or 'set'}-{hashlib.sha256(set_id.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _header_of(run: EvalRun) -> RunHeader:
    return RunHeader(
        id=run.id,
        set_id=run.set_id,
        set_name=run.set_name,
        set_digest=run.set_digest,
        created=run.created,
        cases=run.cases or len(run.results),
        repeat=run.repeat,
        is_complete=run.is_complete,
        summary=run.summary,
        chain=run.chain or AuditTrail.chain_of(run.results, run.summary.seconds),
    )


def _line(result: CaseResult, attempt: Attempt, elapsed: float) -> AttemptLine:
    digest = "" if attempt.case is None else attempt.case.digest
    return AttemptLine(result.case_id, result.name, digest, elapsed, attempt)


def _copied(source: BinaryIO, attempt: Attempt) -> bytes:
    """The line of an attempt, as it stands in the file of the run that went on."""
    place = attempt.trajectory
    if not isinstance(place, StoredTrajectory):
        raise TypeError(f"attempt {attempt.number} was not stored")
    source.seek(place.offset)
    return source.read(place.length)


def _results(lines: Iterable[AttemptLine]) -> tuple[CaseResult, ...]:
    """The attempts, put together by their cases, in the order in which these first occur."""
    names: dict[str, str] = {}
    attempts: dict[str, list[Attempt]] = {}
    for line in lines:
        names.setdefault(line.case_id, line.name)
        attempts.setdefault(line.case_id, []).append(line.attempt)
    return tuple(
        [
            CaseResult(case_id, tuple(sorted(made, key=lambda attempt: attempt.number)), names[case_id])
            for case_id, made in attempts.items()
        ]
    )
