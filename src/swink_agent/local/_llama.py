"""The model itself, through xllamacpp. Imported in the worker process only.

Owns every use of the native library: settings, completion with a grammar, the chat template, embeddings, and the state
of a prompt's stable beginning, which is kept on disk so that it is read once and not at every start.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .engine import Chunk, Completion, Finished, ModelInfo, Overflowed, Piece, Progress

if TYPE_CHECKING:
    from ._worker import WorkerSettings

__all__ = ["LlamaModel"]

EmitFn = Callable[[Chunk], bool]
"""Passes a chunk on; false means that no more is wanted."""

_MOST_PREFIXES = 6
_SHORTEST_PREFIX = 200  # characters; less is read again in a moment


class LlamaModel:
    """One model in memory. Not safe for threads: one request at a time."""

    def __init__(self, settings: WorkerSettings) -> None:
        os.environ["OMP_WAIT_POLICY"] = "passive"  # threads without work would spin; read when the library loads
        try:
            self._library: Any = import_module("xllamacpp")  # it has no types
        except ImportError as error:
            raise RuntimeError("xllamacpp is not installed: pip install 'swink-agent[local]'") from error
        self._settings = settings
        self._prefixes = _Prefixes(settings)
        self._known = ""  # what the context holds: a prompt that begins alike is read from there
        # The library serves some things over HTTP only. A socket in a private folder is nobody else's to reach, and a
        # name relative to that folder is never too long for one.
        os.chdir(self._prefixes.folder)
        self._socket = f"{os.getpid()}.sock"
        self._server: Any = self._library.Server(self._params())
        properties = self._get("/props")
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
        """Generates, passing on every piece. A grammar that cannot be parsed is a `RuntimeError`."""
        if not self._has_prefix(request, emit):
            return
        self._known = ""
        said: list[str] = []
        failures: list[Exception] = []

        def take(data: dict[str, Any]) -> bool:
            # What is raised here would be swallowed by the library.
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
        if (progress := data.get("prompt_progress")) is not None:
            cached = int(progress.get("cache", 0))
            if not emit(Progress(int(progress["processed"]), int(progress["total"]), cached)):
                return False
        choice = data["choices"][0]
        if choice.get("text"):
            said.append(choice["text"])
            if not emit(Piece(choice["text"])):
                return False
        if choice.get("finish_reason"):
            return emit(_finished(choice["finish_reason"], data))
        return True

    # -- the stable beginning --------------------------------------------------------------------------------

    def _has_prefix(self, request: Completion, emit: EmitFn) -> bool:
        """Sees that the context holds the prompt's stable beginning; false if the request was cancelled meanwhile."""
        prefixes = [request.prompt[:length] for length in request.prefixes if length >= _SHORTEST_PREFIX]
        missing: list[str] = []
        while prefixes and not self._restore(prefixes[-1]):
            missing.append(prefixes.pop())
        return all(self._read(prefix, emit) for prefix in reversed(missing))

    def _restore(self, prefix: str) -> bool:
        """Whether the context holds the text, now that it was looked for on disk."""
        if self._known.startswith(prefix):
            return True
        file = self._prefixes.file(prefix)
        if not file.exists() or not self._slot("restore", file.name):
            return False
        self._known = prefix
        os.utime(file)
        return True

    def _read(self, prefix: str, emit: EmitFn) -> bool:
        """Reads the text and keeps what was made of it; false if the request was cancelled meanwhile."""
        self._known = ""
        is_wanted = [True]

        def take(data: dict[str, Any]) -> bool:
            progress = data.get("prompt_progress")
            if progress is not None:
                cached = int(progress.get("cache", 0))
                is_wanted[0] = is_wanted[0] and emit(
                    Progress(int(progress["processed"]), int(progress["total"]), cached)
                )
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
        """Leaves no socket behind; the memory goes with the process."""
        Path(self._socket).unlink(missing_ok=True)

    def _get(self, path: str) -> dict[str, Any]:
        status, answer = self._request("GET", path)
        if status != 200:
            raise RuntimeError(f"llama.cpp answered {path} with {status}: {answer}")
        return answer

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
        "stop": list(request.stop),
    }
    if request.grammar:
        body["grammar"] = request.grammar
    if request.seed is not None:
        body["seed"] = request.seed
    if request.bias:
        body["logit_bias"] = [[text, weight] for text, weight in request.bias]
    return body


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
    """Cores that this process may use; more threads than that only wait for each other."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 2


class _Prefixes:
    """The folder of kept states, each for one text, one file of weights, one window, one version of the library."""

    def __init__(self, settings: WorkerSettings) -> None:
        from importlib.metadata import version

        self.folder = Path(settings.state_dir).absolute()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in (*self.folder.glob("*.sock"), *self.folder.glob("*.new")):
            if not _is_alive(left.stem):
                left.unlink(missing_ok=True)  # of a worker that was killed
        status = os.stat(settings.path)
        self._key = f"{status.st_size} {status.st_mtime_ns} {settings.context_length} {version('xllamacpp')}"

    def file(self, prefix: str) -> Path:
        digest = hashlib.sha256(f"{self._key}\n{prefix}".encode()).hexdigest()
        return self.folder / f"{digest[:32]}.state"

    def keep(self, unfinished: str, file: Path) -> None:
        """Moves a state to its place and forgets those that were not used for longest."""
        os.replace(self.folder / unfinished, file)
        kept = sorted(self.folder.glob("*.state"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in kept[_MOST_PREFIXES:]:
            path.unlink(missing_ok=True)


def _is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
