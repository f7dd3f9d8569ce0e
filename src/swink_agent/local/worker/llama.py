"""Uses the model through xllamacpp. Imported only in the worker process.

Only this module uses the native library: for settings, completion with a grammar, the chat template, embeddings, and
the states after the stable beginnings of prompts. These are kept on disk, so that a new process need not read the same
text again.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from swink_agent.core.machine.extras import require

from .engine import Chunk, Completion, Finished, ModelInfo, Overflowed, Piece, Progress

if TYPE_CHECKING:
    from .wire import WorkerSettings

EmitFn = Callable[[Chunk], bool]
"""Passes a chunk on; returns false if the request was cancelled."""

_MOST_PREFIXES = 6
_SHORTEST_PREFIX = 200  # characters; less is quickly read again


class LlamaModel:
    """One model in memory. Not safe for threads: one request at a time."""

    def __init__(self, settings: WorkerSettings) -> None:
        os.environ["OMP_WAIT_POLICY"] = "passive"  # else idle threads spin; the library reads this when it loads
        self._library: Any = require("xllamacpp", extra="local")  # it has no types
        self._settings = settings
        self._prefixes = _Prefixes(settings)
        self._known = ""  # the text in the context: a prompt with this beginning need not be read again
        # The library offers some functions over HTTP only. No other user can reach a socket in a private folder, and a
        # name relative to that folder is never too long for a socket.
        os.chdir(self._prefixes.folder)
        self._socket = f"{os.getpid()}.sock"
        self._server: Any = self._library.Server(self._params())
        status, properties = self._request("GET", "/props")
        if status != 200:
            raise RuntimeError(f"llama.cpp answered /props with {status}: {properties}")
        self.info = ModelInfo(
            int(properties.get("default_generation_settings", {}).get("n_ctx") or settings.context_length),
            str(properties.get("chat_template") or ""),
        )

    def _params(self) -> Any:
        settings = self._settings
        params = self._library.CommonParams()
        params.model.path = settings.path
        params.n_ctx = settings.context_length
        params.n_batch = params.n_ubatch = settings.batch
        params.n_parallel = 1
        if settings.gpu_layers is not None:
            params.n_gpu_layers = settings.gpu_layers
        threads = settings.threads or _cores()
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.cpuparams.poll = params.cpuparams_batch.poll = 0
        params.hostnames = [self._socket]
        params.n_threads_http = 2
        params.cache_ram_mib = 0
        params.warmup = False
        params.ui = False
        params.offline = True
        params.endpoint_props = True
        params.endpoint_slots = True
        params.slot_save_path = f"{self._prefixes.folder}/"
        if settings.embedding:
            params.embedding = True
            params.n_ubatch = params.n_batch = settings.context_length  # a text is embedded in one go
            pooling = self._library.llama_pooling_type
            params.pooling_type = pooling.LLAMA_POOLING_TYPE_MEAN
        return params

    # -- completion ------------------------------------------------------------------------------------------

    def complete(self, request: Completion, emit: EmitFn) -> None:
        """Generates and passes on every piece. Raises `RuntimeError` for a grammar that cannot be parsed."""
        if not self._has_prefix(request, emit):
            return
        self._known = ""
        said: list[str] = []
        failures: list[Exception] = []

        def take(data: dict[str, Any]) -> bool:
            # The library swallows exceptions.
            try:
                return not self._pass_on(data, said, emit)
            except Exception as error:
                failures.append(error)
                return True

        self._server.handle_completions(_body(request), take)
        if failures:
            raise failures[0]
        self._known = request.prompt + "".join(said)

    def _pass_on(self, data: dict[str, Any], said: list[str], emit: EmitFn) -> bool:
        if "error" in data:
            error = data["error"]
            if error.get("type") == "exceed_context_size_error":
                return emit(Overflowed(int(error["n_prompt_tokens"]), int(error["n_ctx"])))
            raise RuntimeError(str(error.get("message") or error))
        if not _pass_progress(data, emit):
            return False
        choice = data["choices"][0]
        if choice.get("text"):
            said.append(choice["text"])
            if not emit(Piece(choice["text"])):
                return False
        if choice.get("finish_reason"):
            return emit(_finished(choice["finish_reason"], data))
        return True

    # -- stable beginnings -----------------------------------------------------------------------------------

    def _has_prefix(self, request: Completion, emit: EmitFn) -> bool:
        """Makes the context hold the prompt's stable beginning; returns false if the request was cancelled."""
        prefixes = [request.prompt[:length] for length in request.prefixes if length >= _SHORTEST_PREFIX]
        missing: list[str] = []
        while prefixes and not self._restore(prefixes[-1]):
            missing.append(prefixes.pop())
        return all(self._read(prefix, emit) for prefix in reversed(missing))

    def _restore(self, prefix: str) -> bool:
        """Loads the state after the text from disk, if needed; returns whether the context holds the text."""
        if self._known.startswith(prefix):
            return True
        file = self._prefixes.file(prefix)
        if not file.exists() or not self._slot("restore", file.name):
            return False
        self._known = prefix
        os.utime(file)
        return True

    def _read(self, prefix: str, emit: EmitFn) -> bool:
        """Reads the text and keeps the state after it; returns false if the request was cancelled."""
        self._known = ""
        is_wanted = [True]

        def take(data: dict[str, Any]) -> bool:
            is_wanted[0] = is_wanted[0] and _pass_progress(data, emit)
            return not is_wanted[0]

        body = {"prompt": prefix, "n_predict": 0, "stream": True, "cache_prompt": True, "return_progress": True}
        self._server.handle_completions(body, take)
        if is_wanted[0]:
            unfinished = f"{os.getpid()}.new"
            if self._slot("save", unfinished):
                self._prefixes.keep(unfinished, self._prefixes.file(prefix))
            self._known = prefix
        return is_wanted[0]

    def _slot(self, action: str, name: str) -> bool:
        status, _ = self._request("POST", f"/slots/0?action={action}", {"filename": name})
        return status == 200

    # -- the rest --------------------------------------------------------------------------------------------

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        body = {"messages": [{"role": role, "content": text} for role, text in messages]}
        status, answer = self._request("POST", "/apply-template", body)
        if status != 200:
            raise RuntimeError(f"the model's chat template failed: {answer}")
        return str(answer["prompt"])

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        answer: dict[str, Any] = self._server.handle_embeddings({"input": list(texts)})
        if "error" in answer:
            raise RuntimeError(str(answer["error"]))
        rows = sorted(cast("list[dict[str, Any]]", answer["data"]), key=lambda row: row["index"])
        return [[float(number) for number in row["embedding"]] for row in rows]

    def close(self) -> None:
        """Removes the socket. The memory is freed when the process ends."""
        Path(self._socket).unlink(missing_ok=True)

    def _request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = _UnixConnection(self._socket)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"content-type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            return response.status, json.loads(content) if content else {}
        finally:
            connection.close()


def _body(request: Completion) -> dict[str, Any]:
    body: dict[str, Any] = {
        "prompt": request.prompt,
        "n_predict": request.max_tokens,
        "stream": True,
        "cache_prompt": True,
        "return_progress": True,
        "temperature": request.temperature,
        "top_p": 0.95,
        "top_k": 40,
    }
    if request.grammar:
        body["grammar"] = request.grammar
    if request.seed is not None:
        body["seed"] = request.seed
    return body


def _pass_progress(data: dict[str, Any], emit: EmitFn) -> bool:
    """Passes on how far the prompt has been read, if the library reports it; returns whether to continue."""
    progress = data.get("prompt_progress")
    if progress is None:
        return True
    return emit(Progress(int(progress["processed"]), int(progress["total"]), int(progress.get("cache", 0))))


def _finished(reason: str, data: dict[str, Any]) -> Finished:
    usage: dict[str, Any] = data.get("usage") or {}
    timings: dict[str, Any] = data.get("timings") or {}
    details: dict[str, Any] = usage.get("prompt_tokens_details") or {}
    prompt = int(usage.get("prompt_tokens") or 0)
    cached = int(details.get("cached_tokens") or 0)
    return Finished(
        reason == "length",
        prompt,
        min(cached, prompt),
        int(usage.get("completion_tokens") or 0),
        float(timings.get("prompt_ms") or 0.0) / 1e3,
        float(timings.get("predicted_ms") or 0.0) / 1e3,
    )


def _cores() -> int:
    """The number of cores that this process may use; more threads would only wait for each other."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 2


class _Prefixes:
    """The folder of states. Each is for one text, file of weights, window and version of the library."""

    def __init__(self, settings: WorkerSettings) -> None:
        from importlib.metadata import version

        self.folder = Path(settings.state_dir).absolute()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in (*self.folder.glob("*.sock"), *self.folder.glob("*.new")):
            if not _is_alive(left.stem):
                left.unlink(missing_ok=True)  # left by a worker that was killed
        status = os.stat(settings.path)
        self._key = f"{status.st_size} {status.st_mtime_ns} {settings.context_length} {version('xllamacpp')}"

    def file(self, prefix: str) -> Path:
        digest = hashlib.sha256(f"{self._key}\n{prefix}".encode()).hexdigest()
        return self.folder / f"{digest[:32]}.state"

    def keep(self, unfinished: str, file: Path) -> None:
        """Moves a state to its place and deletes those that were not used for the longest time."""
        os.replace(self.folder / unfinished, file)
        kept: list[tuple[float, Path]] = []
        for path in self.folder.glob("*.state"):
            with suppress(FileNotFoundError):  # another worker has just deleted it
                kept.append((path.stat().st_mtime, path))
        for _, path in sorted(kept, reverse=True)[_MOST_PREFIXES:]:
            path.unlink(missing_ok=True)


def _is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
