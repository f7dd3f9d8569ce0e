"""The folder of models on this machine: finds, fetches, verifies and removes files.

Defines the layout of the folder, the marker of a verified file, and the order in which sources are tried. `sources`
downloads.

    models/NAME.gguf               a verified file
    models/NAME.gguf.verified      its size, time and hash when it was verified
    models/.fetching/NAME/         an unfinished download, which a later fetch resumes
    models/.fetching/NAME.lock     locked by the process that fetches it
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted
from swink_agent.core.machine.files import replace_file
from swink_agent.core.values.decoders import json_decoder
from swink_agent.core.values.value import Value

from ..events import LocalModelError, LocalModelEvent, LocalState, OnStateFn, notify
from .presets import PRESETS, Preset, preset_named
from .sources import HubSource, IndexSource, Source, SourceError, bytes_in

_BLOCK = 1 << 20
_SPARE_BYTES = 128 << 20
_LOCK_POLL = 0.2


class StoredModel(Value, frozen=True, gc=False):
    """A file in the store. `name` is that of its preset, or of the file if it has no preset."""

    name: str
    path: Path
    size: int
    is_verified: bool


class _Marker(Value, frozen=True):
    size: int
    mtime_ns: int
    sha256: str


class ModelStore:
    """The models on this machine. Methods block: in an event loop, call them in a thread."""

    def __init__(
        self,
        cache_dir: str | os.PathLike[str] | None = None,
        *,
        presets: Sequence[Preset] = PRESETS,
        sources: Sequence[Source] | None = None,
        free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
    ) -> None:
        if cache_dir is None:
            import platformdirs

            cache_dir = Path(platformdirs.user_cache_dir("swink-agent")) / "models"
        self.folder = Path(cache_dir).expanduser()
        self.presets = tuple(presets)
        self._sources = tuple(sources) if sources is not None else (HubSource(), IndexSource())
        self._free_bytes = free_bytes

    def __repr__(self) -> str:
        return f"ModelStore({str(self.folder)!r})"

    # -- looking ---------------------------------------------------------------------------------------------

    def find(self, model: str) -> Path | None:
        """Returns the verified file of a preset, or the file at a path; `None` if the preset was not fetched yet.

        Raises `LocalModelError` if there is no such preset, or the file cannot be read or is not a model.
        """
        if is_path(model):
            return _gguf_at(model)
        preset = preset_named(model, self.presets)
        path = self.folder / preset.file
        try:
            return path if path.is_file() and self._is_verified(path, preset) else None
        except OSError as error:
            raise _unreadable(path, model, error) from error

    def list(self) -> tuple[StoredModel, ...]:
        """All models in the folder, with or without a preset."""
        names = {preset.file: preset for preset in self.presets}
        models: list[StoredModel] = []
        for path in sorted(self.folder.glob("*.gguf")) if self.folder.is_dir() else ():
            preset = names.get(path.name)
            is_verified = preset is not None and _marker_holds(path, preset.sha256)
            with suppress(FileNotFoundError):  # another process has just removed it
                models.append(StoredModel(preset.name if preset else path.stem, path, path.stat().st_size, is_verified))
        return tuple(models)

    def disk_use(self) -> int:
        return bytes_in(self.folder)

    def remove(self, model: str) -> int:
        """Deletes a model by its name in `list()`, and any unfinished fetch of it; returns the bytes freed."""
        found = [stored for stored in self.list() if stored.name == model]
        file = found[0].path.name if found else preset_named(model, self.presets).file
        staging = self._staging(file)
        with self._lock(file, model, None, None):
            freed = bytes_in(staging)
            for path in (self.folder / file, _marker_path(self.folder / file)):
                if path.is_file():
                    freed += path.stat().st_size
                    path.unlink()
            shutil.rmtree(staging, ignore_errors=True)
        return freed

    # -- fetching --------------------------------------------------------------------------------------------

    def fetch(
        self, model: str, on_progress: OnStateFn | None = None, *, cancel: CancellationToken | None = None
    ) -> Path:
        """Fetches the file if it is missing, and returns the verified file. An interrupted fetch is resumed.

        Raises `LocalModelError` if no source has it, its hash is wrong or the folder cannot be written; `Aborted` when
        cancelled.
        """
        path = self.find(model)
        if path is not None:
            return path
        preset = preset_named(model, self.presets)
        try:
            return self._fetch(preset, _Reporter(preset, on_progress), cancel)
        except OSError as error:
            problem = f"{model} could not be fetched into {self.folder}: {error.strerror or error}"
            cure = "mend that, or choose another folder with cache_dir"
            raise LocalModelError(f"{problem}: {cure}", model=model) from error

    def _fetch(self, preset: Preset, report: _Reporter, cancel: CancellationToken | None) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock(preset.file, preset.name, report, cancel):
            path = self.folder / preset.file
            if path.is_file():  # another process fetched it, or the user put it there
                report(0, preset.size, "verifying the file that is there")
                if self._is_verified(path, preset):
                    return path
                path.unlink()
            return self._from_sources(preset, path, report, cancel)

    def _from_sources(self, preset: Preset, path: Path, report: _Reporter, cancel: CancellationToken | None) -> Path:
        problems: list[str] = []
        for source in self._sources:
            staging = self._staging(preset.file) / source.name
            try:
                if not source.has(preset):
                    continue
                staging.mkdir(parents=True, exist_ok=True)
                self._check_space(preset, staging)
                fetched = source.fetch(preset, staging, report, cancel or CancellationToken())
                self._accept(preset, fetched.path, fetched.sha256 or preset.sha256, path, report)
            except SourceError as error:
                problems.append(f"{source.name}: {error}")
                report(0, preset.size, f"{source.name}: {error}")
                continue
            shutil.rmtree(self._staging(preset.file), ignore_errors=True)
            return path
        tried = "; ".join(problems) or "it has no known source"
        cure = f"Check the connection and try again (what was fetched is kept), or put {preset.file} into {self.folder}"
        raise LocalModelError(f"{preset.name} could not be fetched: {tried}. {cure} yourself", model=preset.name)

    def _accept(self, preset: Preset, fetched: Path, sha256: str, path: Path, report: _Reporter) -> None:
        """Moves a file to its place if its hash is right; else deletes it."""
        size = fetched.stat().st_size
        report(size, preset.size or size, "verifying")
        found = _sha256(fetched)
        if found != sha256:
            fetched.unlink()
            shutil.rmtree(fetched.parent, ignore_errors=True)
            problem = f"the file of {size:,} bytes has the hash {found[:16]}…, not {sha256[:16]}…, and was deleted"
            raise SourceError(problem)
        os.replace(fetched, path)
        _write_marker(path, found)

    def _check_space(self, preset: Preset, staging: Path) -> None:
        needed = max(0, preset.size - bytes_in(staging)) + _SPARE_BYTES
        free = self._free_bytes(staging)
        if free < needed:
            problem = f"{preset.name} needs {needed / 1e9:.1f} GB in {self.folder}, and {free / 1e9:.1f} GB are free"
            cure = "make room, or choose another folder with cache_dir"
            raise LocalModelError(f"{problem}: {cure}", model=preset.name)

    def _is_verified(self, path: Path, preset: Preset) -> bool:
        """Whether the file is that of the preset. A file without a marker is hashed once."""
        if _marker_holds(path, preset.sha256):
            return True
        if not preset.sha256 or (preset.size and path.stat().st_size != preset.size):
            return False
        if _sha256(path) != preset.sha256:
            return False
        _write_marker(path, preset.sha256)
        return True

    def _staging(self, file: str) -> Path:
        return self.folder / ".fetching" / file

    @contextmanager
    def _lock(
        self, file: str, model: str, report: _Reporter | None, cancel: CancellationToken | None
    ) -> Generator[None]:
        """Lets one process at a time fetch a file. The kernel releases the lock when the process ends."""
        place = self.folder / ".fetching"
        place.mkdir(parents=True, exist_ok=True)
        with (place / f"{file}.lock").open("a") as lock:
            told = False
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if report is not None and not told:
                        report(0, 0, f"another process is fetching {model}; waiting for it")
                        told = True
                if cancel is not None and cancel.is_cancelled:
                    raise Aborted(f"the fetch of {model} was cancelled")
                time.sleep(_LOCK_POLL)
            yield


class _Reporter:
    """Passes progress on, at most ten times a second. A listener that raises is logged and dropped."""

    def __init__(self, preset: Preset, listener: OnStateFn | None) -> None:
        self._model = preset.name
        self._listener = listener
        self._last = float("-inf")

    def __call__(self, done: int, total: int, message: str = "") -> None:
        now = time.monotonic()
        if self._listener is None or (not message and now - self._last < 0.1 and done != total):
            return
        self._last = now
        if not notify(self._listener, LocalModelEvent(LocalState.FETCHING, self._model, message, done, total)):
            self._listener = None


def is_path(model: str) -> bool:
    """Whether a model is given as a path rather than by name."""
    return os.sep in model or model.startswith("~") or model.lower().endswith(".gguf")


def _gguf_at(model: str) -> Path:
    path = Path(model).expanduser()
    try:
        with path.open("rb") as file:
            is_model = file.read(4) == b"GGUF"
    except OSError as error:
        raise _unreadable(model, model, error) from error
    if not is_model:
        raise LocalModelError(f"{model} is not a GGUF file: convert the model first, or give another", model=model)
    return path.absolute()


def _unreadable(path: Path | str, model: str, error: OSError) -> LocalModelError:
    return LocalModelError(f"the model file {path} cannot be read: {error.strerror or error}", model=model)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _marker_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified")


def _write_marker(path: Path, sha256: str) -> None:
    status = path.stat()
    data = msgspec.json.encode(_Marker(status.st_size, status.st_mtime_ns, sha256))
    with suppress(OSError):  # the folder cannot be written: the file is hashed again next time
        replace_file(_marker_path(path), data, mode=0o644, sync=False)


def _marker_holds(path: Path, sha256: str) -> bool:
    """Whether the marker fits the file, and the hash if one is given."""
    try:
        marker = json_decoder(_Marker).decode(_marker_path(path).read_bytes())
        status = path.stat()
    except (OSError, msgspec.DecodeError):
        return False
    is_same = (marker.size, marker.mtime_ns) == (status.st_size, status.st_mtime_ns)
    return is_same and (not sha256 or marker.sha256 == sha256)
