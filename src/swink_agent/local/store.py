"""The folder where the weights are kept: finding, fetching, verifying and removing them.

Owns the layout of that folder, the marker that says that a file was verified, and the order in which sources are
tried. How bytes come from a source is in `sources`.

    models/NAME.gguf               a file, there only once it was verified
    models/NAME.gguf.verified      its size, time and hash when that was
    models/.fetching/NAME/         what a fetch has so far; a later one goes on with it
    models/.fetching/NAME.lock     held by the process that fetches it
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted
from swink_agent.core.values.value import Value

from .events import LocalModelError, LocalModelEvent, LocalState, OnStateFn
from .presets import PRESETS, Preset, preset_named
from .sources import HubSource, IndexSource, Source, SourceError

__all__ = ["ModelStore", "StoredModel", "default_cache_dir"]

_BLOCK = 1 << 20
_SPARE_BYTES = 128 << 20
_LOCK_POLL = 0.2


class StoredModel(Value, frozen=True, gc=False):
    """A file in the store. `name` is that of its preset, or of the file itself where it has none."""

    name: str
    path: Path
    size: int
    is_verified: bool


class _Marker(Value, frozen=True):
    size: int
    mtime_ns: int
    sha256: str


def default_cache_dir() -> Path:
    """Where weights are kept unless a folder is given."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("swink-agent")) / "models"


class ModelStore:
    """The models on this machine. Methods block; call them in a thread where that matters."""

    def __init__(
        self,
        cache_dir: str | os.PathLike[str] | None = None,
        *,
        presets: Sequence[Preset] = PRESETS,
        sources: Sequence[Source] | None = None,
        free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
    ) -> None:
        self.folder = Path(cache_dir).expanduser() if cache_dir is not None else default_cache_dir()
        self.presets = tuple(presets)
        self._sources = tuple(sources) if sources is not None else (HubSource(), IndexSource())
        self._free_bytes = free_bytes

    def __repr__(self) -> str:
        return f"ModelStore({str(self.folder)!r})"

    # -- looking ---------------------------------------------------------------------------------------------

    def find(self, model: str) -> Path | None:
        """The verified file of a preset, or the file at a path; `None` if the preset was not fetched yet.

        Raises `LocalModelError` for a name that is no preset and a path that is no model.
        """
        if is_path(model):
            return _gguf_at(model)
        preset = preset_named(model, self.presets)
        path = self.folder / preset.file
        return path if path.is_file() and self._is_verified(path, preset) else None

    def list(self) -> tuple[StoredModel, ...]:
        """What is in the folder, whatever it is called."""
        names = {preset.file: preset for preset in self.presets}
        models: list[StoredModel] = []
        for path in sorted(self.folder.glob("*.gguf")) if self.folder.is_dir() else ():
            preset = names.get(path.name)
            is_verified = preset is not None and _marker_holds(path, preset.sha256)
            models.append(StoredModel(preset.name if preset else path.stem, path, path.stat().st_size, is_verified))
        return tuple(models)

    def disk_use(self) -> int:
        """Bytes in the folder, unfinished fetches included."""
        if not self.folder.is_dir():
            return 0
        return sum(path.lstat().st_size for path in self.folder.rglob("*") if path.is_file())

    def remove(self, model: str) -> int:
        """Deletes a preset's file, or one by its name in `list()`, and what a fetch of it left; returns bytes freed."""
        found = [stored for stored in self.list() if stored.name == model]
        file = found[0].path.name if found else preset_named(model, self.presets).file
        freed = 0
        staging = self._staging(file)
        with self._lock(file, model, None, None):
            paths = [self.folder / file, _marker_path(self.folder / file), *staging.rglob("*")]
            for path in paths:
                if path.is_file():
                    freed += path.stat().st_size
                    path.unlink()
            shutil.rmtree(staging, ignore_errors=True)
        return freed

    # -- fetching --------------------------------------------------------------------------------------------

    def fetch(
        self, model: str, on_progress: OnStateFn | None = None, *, cancel: CancellationToken | None = None
    ) -> Path:
        """The verified file, fetched if it is not there. What was fetched before an interruption is not fetched again.

        Raises `LocalModelError` if no source has it, or it is not what it should be; `Aborted` when cancelled.
        """
        path = self.find(model)
        if path is not None:
            return path
        preset = preset_named(model, self.presets)
        self.folder.mkdir(parents=True, exist_ok=True)
        report = _Reporter(preset, on_progress)
        with self._lock(preset.file, model, report, cancel):
            path = self.folder / preset.file
            if path.is_file():  # another process was quicker, or somebody put it there
                report(0, preset.size, "verifying the file that is there")
                if self._is_verified(path, preset):
                    return path
                path.unlink()
            return self._fetch(preset, path, report, cancel)

    def _fetch(self, preset: Preset, path: Path, report: _Reporter, cancel: CancellationToken | None) -> Path:
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
        tried = "; ".join(problems) or "it has no source that is known here"
        raise LocalModelError(
            f"{preset.name} could not be fetched: {tried}. Check the connection and try again (what was fetched is "
            f"kept), or put {preset.file} into {self.folder} yourself",
            model=preset.name,
        )

    def _accept(self, preset: Preset, fetched: Path, sha256: str, path: Path, report: _Reporter) -> None:
        """Moves a file to its place if it is the right one; else removes it."""
        size = fetched.stat().st_size
        report(size, preset.size or size, "verifying")
        found = _sha256(fetched)
        if found != sha256:
            fetched.unlink()
            shutil.rmtree(fetched.parent, ignore_errors=True)
            raise SourceError(
                f"the file of {size:,} bytes has the hash {found[:16]}…, not {sha256[:16]}…, and was deleted"
            )
        os.replace(fetched, path)
        _write_marker(path, found)

    def _check_space(self, preset: Preset, staging: Path) -> None:
        there = sum(path.stat().st_size for path in staging.rglob("*") if path.is_file())
        needed = max(0, preset.size - there) + _SPARE_BYTES
        free = self._free_bytes(staging)
        if free < needed:
            raise LocalModelError(
                f"{preset.name} needs {needed / 1e9:.1f} GB in {self.folder}, and {free / 1e9:.1f} GB are free: make "
                "room, or choose another folder with cache_dir",
                model=preset.name,
            )

    def _is_verified(self, path: Path, preset: Preset) -> bool:
        """Whether the file is what the preset says. One without a marker is hashed once."""
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
        """Held by one process at a time; the kernel lets go of it when that process ends, however it does."""
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
    """Passes progress on, at most a few times a second, and never fails for the listener's sake."""

    def __init__(self, preset: Preset, listener: OnStateFn | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._model = preset.name
        self._listener = listener
        self._clock = clock
        self._last = float("-inf")

    def __call__(self, done: int, total: int, message: str = "") -> None:
        now = self._clock()
        if self._listener is None or (not message and now - self._last < 0.1 and done != total):
            return
        self._last = now
        try:
            self._listener(LocalModelEvent(LocalState.FETCHING, self._model, message, done, total))
        except Exception:  # a progress bar must not cost a gigabyte
            import logging

            logging.getLogger("swink_agent").exception("a listener of a fetch failed")
            self._listener = None


def is_path(model: str) -> bool:
    """Whether a model is given as a file rather than by name."""
    return os.sep in model or model.startswith("~") or model.lower().endswith(".gguf")


def _gguf_at(model: str) -> Path:
    path = Path(model).expanduser()
    try:
        with path.open("rb") as file:
            is_model = file.read(4) == b"GGUF"
    except OSError as error:
        raise LocalModelError(
            f"the model file {model} cannot be read: {error.strerror or error}", model=model
        ) from error
    if not is_model:
        raise LocalModelError(f"{model} is no GGUF file: convert the model first, or give another", model=model)
    return path.absolute()


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
    temporary = _marker_path(path).with_suffix(f".{os.getpid()}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, _marker_path(path))
    except OSError:
        temporary.unlink(missing_ok=True)  # a folder that cannot be written: it is hashed again next time


def _marker_holds(path: Path, sha256: str) -> bool:
    """Whether the marker speaks of this very file, and of the hash, where one is asked for."""
    try:
        marker = msgspec.json.decode(_marker_path(path).read_bytes(), type=_Marker)
        status = path.stat()
    except (OSError, msgspec.DecodeError):
        return False
    is_same = (marker.size, marker.mtime_ns) == (status.st_size, status.st_mtime_ns)
    return is_same and (not sha256 or marker.sha256 == sha256)
