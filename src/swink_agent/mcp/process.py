"""A stdio server: its process in a sandbox, the lines that it writes, and its output on stderr.

Knows nothing of the protocol. Lines are bytes; `connection` turns them into messages.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from msgspec import structs

from swink_agent.core.values.value import Value
from swink_agent.sandbox import (
    Sandbox,
    SandboxedProcess,
    SandboxError,
    SandboxProfile,
    find_program,
    open_sandbox,
    open_unconfined,
)
from swink_agent.sandbox.profile import is_beneath
from swink_agent.sandbox.programs import own_folders

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of one message. A server that writes a longer one is ended."""
_CHUNK = 64 * 1024
_TMP = "/tmp"
_GRACE = 2.0  # seconds between the end of its input and the end of its processes
_WAITING_WRITES = 64
_CACHES = {"UV_CACHE_DIR": "~/.cache/uv", "npm_config_cache": "~/.npm"}
"""The caches of package managers. In the sandbox they are temporary folders, unless the server may write these."""
_KEPT_LINES = 12
_LONGEST_KEPT = 400
_PATIENCE = 10.0

log = logging.getLogger("swink_agent.mcp")


class Command(Value, frozen=True, kw_only=True):
    """How a stdio server is started."""

    hidden_fields = frozenset({"env"})

    program: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    """Where it starts and may write; `None` for a private folder."""
    sandbox: str = "auto"
    """A back end, "auto" for the first that works, or "off"."""
    network: bool = False
    write: tuple[str, ...] = ()
    """Further folders that it may write."""
    hidden: tuple[str, ...] = ()
    """Paths that it may not read, in addition to those that no confined program may."""


class ServerSandbox:
    """The sandbox of one server, opened for its first start and kept until `close()`. Both block: use a thread."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._private = ""
        self._sandbox: Sandbox | None = None
        self.folder = ""

    def open(self) -> Sandbox:
        """Returns the sandbox. Raises `SandboxError`, `OSError` or `ValueError` if none can be opened."""
        with self._lock:
            if self._sandbox is None:
                self._sandbox = self._opened()
            return self._sandbox

    def _opened(self) -> Sandbox:
        command = self._command
        if command.cwd is None:
            self._private = self._private or tempfile.mkdtemp(prefix="swink-mcp-")
        folder = os.path.realpath(os.path.expanduser(command.cwd or self._private))
        # A server that may write there may also put links there: they must not widen its access.
        if command.cwd is not None and self.folder not in ("", folder):
            raise ValueError(f"{command.cwd} leads to another folder than before: {folder}")
        write = [folder]
        for given in (os.path.expanduser(given) for given in command.write):
            place = os.path.realpath(os.path.join(folder, given))
            if not os.path.isabs(given) and ".." not in given.split(os.sep) and not is_beneath(place, folder):
                raise ValueError(f"{given} leads out of {folder}, to {place}: name that folder itself")
            write.append(place)
        for place in write:
            os.makedirs(place, exist_ok=True)
        self.folder = folder
        shown = _in_tmp(command, self.folder)
        profile = SandboxProfile(write=tuple(write), read=("/", *shown) if shown else None, network=command.network)
        profile = structs.replace(profile, hidden=(*profile.hidden, *command.hidden))
        if command.sandbox == "off":
            return open_unconfined(profile)
        return open_sandbox(profile, backend=command.sandbox)

    def close(self) -> None:
        """Ends every process of the server. Idempotent."""
        with self._lock:
            sandbox, self._sandbox = self._sandbox, None
            if sandbox is not None:
                sandbox.close()
            if self._private:
                shutil.rmtree(self._private, ignore_errors=True)
                self._private = ""


class ServerProcess:
    """A running server. Use `start`."""

    def __init__(self, process: SandboxedProcess, stdin: int, stderr: int, shown: Callable[[str], str]) -> None:
        self._process = process
        self._stdin = stdin
        self._errors = _Errors(stderr, shown)
        self._to_write: asyncio.Queue[bytes] = asyncio.Queue(_WAITING_WRITES)
        self._buffer = bytearray()
        self._searched = 0
        self._loop = asyncio.get_running_loop()
        self._writer = self._loop.create_task(self._write_all())
        self._watch = self._loop.create_task(self._end_with_it())
        self.code: int | None = None
        """Its exit code, once it has ended."""
        self.flaw = ""
        """Why it was ended here, if it was."""

    @classmethod
    async def start(cls, command: Command, place: ServerSandbox, shown: Callable[[str], str]) -> ServerProcess:
        """Starts the server in its sandbox. Raises `SandboxError`, `OSError` or `ValueError`.

        `shown` masks secrets in its output on stderr.
        """
        sandbox = await asyncio.to_thread(place.open)
        program = _program(command, sandbox.profile, place.folder)
        their_in, stdin = os.pipe()
        stderr, their_err = os.pipe()
        try:
            process = await sandbox.spawn(
                [program, *command.args],
                cwd=place.folder,
                environment={**_caches(sandbox.profile), **command.env},
                stdin=their_in,
                stderr=their_err,
            )
        except BaseException:
            os.close(stdin)
            os.close(stderr)
            raise
        finally:
            os.close(their_in)
            os.close(their_err)
        for descriptor in (stdin, stderr):
            os.set_blocking(descriptor, False)
        return cls(process, stdin, stderr, shown)

    @property
    def last_words(self) -> str:
        """The last lines of stderr, without secrets."""
        return self._errors.text()

    async def read_line(self) -> bytes | None:
        """The next line; `None` at the end. A line that is too long ends the server."""
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                return line
            self._searched = len(self._buffer)
            if self._searched > LONGEST_LINE:
                self.end(f"it wrote a line of more than {LONGEST_LINE // 1024**2} MiB")
                return None
            chunk = await self._process.output.read(_CHUNK)
            if not chunk:
                return None
            self._buffer += chunk

    async def write(self, data: bytes) -> None:
        """Passes a line to the writer, which writes it whole even if the caller is cancelled."""
        await self._to_write.put(data)

    def write_if_it_reads(self, data: bytes) -> None:
        """The same without waiting: drops the line if too many lines wait for the server to read them."""
        with suppress(asyncio.QueueFull):
            self._to_write.put_nowait(data)

    def end(self, flaw: str) -> None:
        """Ends the server at once, and records the reason."""
        self.flaw = flaw
        self._buffer.clear()
        self._process.kill()

    async def close(self) -> None:
        """Closes stdin, and ends the process and all that it started after 2 seconds. Idempotent."""
        self._writer.cancel()
        await asyncio.wait([self._writer])
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1
        with suppress(TimeoutError, SandboxError):  # the watch notes how it failed
            async with asyncio.timeout(_GRACE):
                await asyncio.shield(self._process.wait(look=False))
        self._process.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await asyncio.shield(self._watch)
        if not self._watch.done():
            self._watch.cancel()
        self._errors.close()

    async def ended(self) -> None:
        """Waits until the process has ended, and all of its output can be read."""
        await asyncio.shield(self._watch)

    async def _end_with_it(self) -> None:
        """Records how the process ends, and then ends its remaining processes, which would hold its output open."""
        try:
            self.code = await self._process.wait(look=False)
        except SandboxError as error:  # the sandbox ended before the program began
            self.flaw = str(error)
        self._process.kill()
        for warning in await self._process.look_behind():
            log.warning("%s", warning)
        self._errors.read_the_rest()

    async def _write_all(self) -> None:
        while True:
            left = memoryview(await self._to_write.get())
            while left:
                try:
                    left = left[os.write(self._stdin, left) :]
                except BlockingIOError:
                    await self._until_writable()
                except OSError:
                    return  # it closed its input; its end is noticed elsewhere

    async def _until_writable(self) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()

        def tell() -> None:
            if not ready.done():
                ready.set_result(None)

        self._loop.add_writer(self._stdin, tell)
        try:
            await ready
        finally:
            self._loop.remove_writer(self._stdin)


class _Errors:
    """Reads stderr into the log and keeps its last lines."""

    def __init__(self, descriptor: int, shown: Callable[[str], str]) -> None:
        self._descriptor = descriptor
        self._shown = shown
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    def text(self) -> str:
        return "\n".join([*self._lines, *self._shown_lines([self._rest])])

    def read_the_rest(self) -> None:
        while self._read():
            pass

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> bool:
        """Reads once. Returns whether there was data."""
        if self._descriptor < 0:
            return False
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        if log.isEnabledFor(logging.INFO):
            for line in self._shown_lines(lines):
                log.info("%s", line)
        self._lines.extend(self._shown_lines(lines[-_KEPT_LINES:]))
        self._rest = self._rest[:_CHUNK]  # only the beginning of a line is shown; a later part may be half a secret
        return True

    def _shown_lines(self, lines: list[bytes]) -> list[str]:
        texts = (self._shown(line[:_CHUNK].decode("utf-8", "replace")) for line in lines)
        return [text[:_LONGEST_KEPT] for line in texts if (text := line.rstrip())]


def _program(command: Command, profile: SandboxProfile, folder: str) -> str:
    """The program to start. A bare name is not looked for in folders that the server may write."""
    name = os.path.expanduser(command.program)
    if os.sep in name:
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            raise FileNotFoundError(f"{path} does not exist")
        if not os.path.isfile(path) or not os.access(path, os.X_OK):
            raise PermissionError(f"{path} is not a program that can be started")
        return path
    folders = command.env.get("PATH", "").split(os.pathsep) if "PATH" in command.env else None
    find = partial(find_program, name, folders=folders)
    if (found := find(outside=profile.write)) is not None:
        return found
    if (inside := find()) is not None:
        raise FileNotFoundError(f"{name} is only found as {inside}, where the server may write: give that path in full")
    raise FileNotFoundError(f"{name} is not installed, or is not in PATH")


def _caches(profile: SandboxProfile) -> dict[str, str]:
    """The variables of caches that the server may write."""
    places = {name: os.path.realpath(os.path.expanduser(folder)) for name, folder in _CACHES.items()}
    return {name: place for name, place in places.items() if any(is_beneath(place, root) for root in profile.write)}


def _in_tmp(command: Command, folder: str) -> list[str]:
    """Paths beneath `/tmp` that the command line names, with the files beside them: a sandbox may have its own `/tmp`.

    Also this program's own packages, which a server may need.
    """
    found: dict[str, None] = {place: None for place in own_folders() if place != _TMP and is_beneath(place, _TMP)}
    for word in (command.program, *command.args):
        named = os.path.abspath(os.path.join(folder, os.path.expanduser(word.rpartition("=")[2])))
        if not os.path.exists(named):
            continue
        for path in (named, os.path.realpath(named)):  # a link and its target
            if not is_beneath(path, _TMP) or path == _TMP:
                continue
            beside = path if os.path.isdir(path) else os.path.dirname(path)
            above, packages, _ = f"{beside}/".partition("/node_modules/")
            beside = (above + packages).rstrip("/")  # a package of Node, with those that it uses
            if word == command.program and os.path.basename(beside) in ("bin", ".bin"):
                beside = os.path.dirname(beside)  # an environment with its packages
            found[path if beside == _TMP else beside] = None
    return list(found)
