"""The context of the model: one completion after another, each with as little of its prompt read anew as possible.

The states after the stable beginnings of prompts are kept on disk, so that a new process need not read the same text
again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import threading
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from swink_agent.core.cancel import resolve

from .server import LlamaServer
from .values import Chunk, Completion, EngineError, Finished, Piece, Progress, WorkerSettings

_MOST_PREFIXES = 6
_SHORTEST_PREFIX = 200  # characters; less is quickly read again
SOCKETS = ".socket"
_UNFINISHED = ".new"


class Context:
    """The one context of a server. Completions take turns, in any event loop."""

    def __init__(self, server: LlamaServer, settings: WorkerSettings) -> None:
        self._server = server
        self._states = _States(settings)
        self._turns = _OneAtATime()
        self._known = ""  # the text in the context: a prompt with this beginning need not be read again

    async def complete(self, request: Completion) -> AsyncGenerator[Chunk, None]:
        """Yields what the server does, and before that how far it has read a beginning that is to be kept."""
        async with self._turns.next():
            async with aclosing(self._read_prefixes(request)) as read:
                async for progress in read:
                    yield progress
            said: list[str] = []
            self._known = ""
            try:
                async with aclosing(self._server.complete(request)) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, Piece):
                            said.append(chunk.text)
                        yield chunk
            finally:
                if said:  # else it may have read only a part of the prompt
                    self._known = request.prompt + "".join(said)

    async def _read_prefixes(self, request: Completion) -> AsyncGenerator[Progress, None]:
        """Makes the context hold the prompt's stable beginning, from disk if possible."""
        prefixes = [request.prompt[:length] for length in request.prefixes if length >= _SHORTEST_PREFIX]
        missing: list[str] = []
        while prefixes and not await self._restore(prefixes[-1]):
            missing.append(prefixes.pop())
        for prefix in reversed(missing):
            async with aclosing(self._read(prefix)) as read:
                async for progress in read:
                    yield progress

    async def _restore(self, prefix: str) -> bool:
        """Loads the state after the text from disk, if needed; returns whether the context holds the text."""
        if self._known.startswith(prefix):
            return True
        file = self._states.file(prefix)
        if not file.exists():
            return False
        try:
            await self._server.restore_state(file.name)
        except EngineError:  # the file is broken, or of another version
            return False
        self._known = prefix
        with suppress(FileNotFoundError):  # another worker has just deleted it
            os.utime(file)
        return True

    async def _read(self, prefix: str) -> AsyncGenerator[Progress, None]:
        """Reads the text and keeps the state after it."""
        self._known = ""
        end: Chunk | None = None
        async with aclosing(self._server.complete(Completion(prompt=prefix, max_tokens=0))) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Progress):
                    yield chunk
                end = chunk
        if not isinstance(end, Finished):
            return  # too long: the completion of the whole prompt says so too
        unfinished = f"{os.getpid()}.{id(self)}{_UNFINISHED}"
        with suppress(EngineError):  # a full disk: only the next start takes longer
            await self._server.save_state(unfinished)
            self._states.keep(unfinished, self._states.file(prefix))
        self._known = prefix


class _States:
    """The folder of states. Each is for one text, file of weights, window and version of the library."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._folder = Path(settings.state_dir)
        file = library = ""  # what is missing, the worker reports
        with suppress(FileNotFoundError):
            status = os.stat(settings.path)
            file = f"{status.st_size} {status.st_mtime_ns}"
        with suppress(PackageNotFoundError):
            library = version("xllamacpp")
        self._key = f"{file} {settings.context_length} {library}"

    def file(self, prefix: str) -> Path:
        digest = hashlib.sha256(f"{self._key}\n{prefix}".encode()).hexdigest()
        return self._folder / f"{digest[:32]}.state"

    def keep(self, unfinished: str, file: Path) -> None:
        """Moves a state to its place and deletes those that were not used for the longest time."""
        os.replace(self._folder / unfinished, file)
        kept: list[tuple[float, Path]] = []
        for path in self._folder.glob("*.state"):
            with suppress(FileNotFoundError):  # another worker has just deleted it
                kept.append((path.stat().st_mtime, path))
        for _, path in sorted(kept, reverse=True)[_MOST_PREFIXES:]:
            path.unlink(missing_ok=True)


def clean(folder: Path) -> None:
    """Removes what programs that were killed have left: unfinished states, and the folders of sockets."""
    for left in (*folder.glob(f"*{SOCKETS}"), *folder.glob(f"*{_UNFINISHED}")):
        if not _is_alive(left.name.partition(".")[0]):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def _is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


class _OneAtATime:
    """Admits one task after another, of any event loop, in the order in which they came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def next(self) -> AsyncGenerator[None]:
        """Waits until all who came before have left."""
        loop = asyncio.get_running_loop()
        mine = (loop, loop.create_future())
        with self._lock:
            self._queue.append(mine)
            is_first = self._queue[0] is mine
        try:
            if not is_first:
                await mine[1]
            yield
        finally:
            with self._lock:
                is_first = bool(self._queue) and self._queue[0] is mine
                if mine in self._queue:
                    self._queue.remove(mine)
                if is_first:
                    self._admit()

    def _admit(self) -> None:
        while self._queue:
            loop, future = self._queue[0]
            try:
                loop.call_soon_threadsafe(resolve, future)
            except RuntimeError:  # that loop ended without letting its tasks end
                self._queue.popleft()
            else:
                return
