"""The public class for a server of tools: start, tools, restart, end.

Starts and ends the server, and keeps the list of its tools. The process is in `process`, the protocol in `connection`,
the tools are in `tool`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from textwrap import indent
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from swink_agent.core.cancel import is_cancelled
from swink_agent.core.errors import ToolError
from swink_agent.core.machine.extras import MissingExtra, require
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.core.values.checks import check_switch
from swink_agent.core.values.several import several_paths, several_texts
from swink_agent.sandbox import SandboxError

from .errors import McpError
from .listing import Listing, ToolDefinition, read_listing
from .naming import check_env, check_headers, check_server_name, own_version, secrets_in, tool_names
from .process import Command, ServerProcess, ServerSandbox
from .results import progress_text, result_of
from .schemas import LONGEST_DESCRIPTION, shown_text
from .tool import McpTool

if TYPE_CHECKING:
    from .connection import Connection

ServerState = Literal["closed", "starting", "running", "ended", "failed"]

_LONGEST_WAIT = 60.0
_RELIST_EVERY = 1.0
_SETTLING = 5.0
_ENDING = 2.0
_FETCHERS = frozenset(
    {"uvx", "uv", "npx", "npm", "pnpm", "yarn", "bunx", "bun", "pipx", "deno", "docker", "podman", "go"}
)

_SANDBOXES = ("auto", "bubblewrap", "landlock", "sandbox-exec", "off")

log = logging.getLogger("swink_agent.mcp")


class McpServer:
    """A server of tools: `async with McpServer.stdio("uvx", "mcp-server-time", name="time") as server:`.

    Entering starts it and lists its tools, or raises `McpError`; `MissingExtra` if the extra `mcp` is not installed.
    Leaving ends it, from any task. If it ends in between, the next call starts it again, with pauses after failed
    starts. Calls outside the block are error results.
    """

    def __init__(
        self,
        name: str,
        *,
        command: Command | None = None,
        url: str = "",
        headers: Mapping[str, str] | None = None,
        start_timeout: float = 30,
        timeout: float = 120,
        trust_annotations: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Use `McpServer.stdio` or `McpServer.http`."""
        self.name = check_server_name(name)
        for what, seconds in (("start_timeout", start_timeout), ("timeout", timeout)):
            if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not seconds > 0:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError(f"{what} is {seconds!r}; give a positive number of seconds")
        check_switch("trust_annotations", trust_annotations)
        self.trust_annotations = trust_annotations
        self._command = command
        self._url = url
        self._headers = dict(headers or {})
        self._start_timeout = start_timeout
        self._timeout = timeout
        self._clock = clock
        given = {**({} if command is None else command.env), **self._headers}
        self._redactor = Redactor(environment=given)
        # For results, which the run's own redactor masks too: only the secrets that this server was given.
        self._own_secrets = Redactor(environment=given, patterns=False)
        for header, secret in secrets_in(self._headers):
            self._redactor.learn(secret, header)
            self._own_secrets.learn(secret, header)
        self._place = None if command is None else ServerSandbox(command)
        self._process: ServerProcess | None = None
        self._connection: Connection | None = None
        self._status = 0
        self._open_calls = 0
        self._may_be_over = False
        self._starting: asyncio.Task[Connection] | None = None
        self._listing = Listing()
        self._relisting: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._is_stale = False
        self._made: dict[tuple[str, str], McpTool] = {}
        self._is_inside = False
        self._failures = 0
        self._not_before = 0.0
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which it runs, once it was started."""
        self.problem = ""
        """Why it does not run, if it should."""

    @classmethod
    def stdio(
        cls,
        command: str,
        *args: str,
        name: str,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        sandbox: str = "auto",
        network: bool = False,
        write: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        hidden: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        start_timeout: float = 30,
        timeout: float = 120,
        trust_annotations: bool = False,
    ) -> McpServer:
        """A program that is started and speaks over its stdin and stdout.

        It runs in the sandbox with a clean environment and `env`. It may write in `cwd` (a private folder unless
        given) and in the folders of `write`, cannot read `hidden`, and has no network unless `network`. `sandbox` is
        "auto", a back end, or "off". `start_timeout` limits the start and `timeout` a call without progress,
        in seconds. With `trust_annotations`, tools that the server declares read-only run without a question.
        """
        if not isinstance(command, str) or not command:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError("command is the program to start, such as 'uvx'")
        if sandbox not in _SANDBOXES:
            raise ValueError(f"sandbox is {sandbox!r}; it is one of {', '.join(_SANDBOXES)}")
        check_switch("network", network)
        check_env(env or {})
        started = Command(
            program=command,
            args=several_texts(args, "McpServer.stdio(…)"),
            env=dict(env or {}),
            cwd=None if cwd is None else several_paths((cwd,), "McpServer.stdio(cwd=…)")[0],
            sandbox=sandbox,
            network=network,
            write=several_paths(write, "McpServer.stdio(write=…)"),
            hidden=several_paths(hidden, "McpServer.stdio(hidden=…)"),
        )
        return cls(
            name, command=started, start_timeout=start_timeout, timeout=timeout, trust_annotations=trust_annotations
        )

    @classmethod
    def http(
        cls,
        url: str,
        *,
        name: str,
        headers: Mapping[str, str] | None = None,
        start_timeout: float = 30,
        timeout: float = 120,
        trust_annotations: bool = False,
    ) -> McpServer:
        """A server at an address, by streamable HTTP. `headers` are sent with every request: a key, for instance."""
        if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"the url of an MCP server begins with http:// or https://: not {str(url)[:80]!r}")
        urlsplit(url).port  # noqa: B018 - raises ValueError for one that no server can have
        check_headers(headers or {})
        return cls(
            name,
            url=url,
            headers=headers,
            start_timeout=start_timeout,
            timeout=timeout,
            trust_annotations=trust_annotations,
        )

    def __repr__(self) -> str:
        return f"<McpServer {self.name}, {self.state}>"

    @property
    def state(self) -> ServerState:
        """closed (not entered), starting, running, ended (the next call starts it), or failed (to start)."""
        if not self._is_inside:
            return "closed"
        if self._starting is not None:
            return "starting"
        if self._connection is not None and self._connection.is_open:
            return "running"
        return "failed" if self._failures else "ended"

    @property
    def warnings(self) -> tuple[str, ...]:
        """The tools that were left out, and why."""
        return self._listing.warnings

    def tools(self, only: str | Iterable[str] | None = None, prefix: str | None = None) -> list[McpTool]:
        """The tools as they are now, or those with the true names in `only`. `prefix` replaces "mcp__SERVER__".

        A tool that has not changed is the same object each time. Raises `ValueError` for a name that it does not offer.
        """
        listed = self._listing.tools
        chosen = list(listed) if only is None else list(dict.fromkeys(several_texts(only, "tools(only=…)")))
        for true in chosen:
            if true not in listed:
                there = ", ".join(list(listed)[:20]) or "none"
                raise ValueError(f"the MCP server {self.name} offers no usable tool {true!r}; there are: {there}")
        names = tool_names(self.name, listed, prefix)
        return [self._tool(names[true], listed[true]) for true in chosen]

    def definition(self, true_name: str) -> ToolDefinition | None:
        """The present definition of a tool; `None` if the server does not offer it."""
        return self._listing.tools.get(true_name)

    # -- life ----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> McpServer:
        if self._is_inside:
            raise RuntimeError(f"the MCP server {self.name} was entered already")
        self._is_inside = True
        self._failures, self._not_before, self.problem = 0, 0.0, ""
        try:
            await self._start_once()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Starts it as entering does, but stays open if that fails: a later call tries again. Raises `McpError`."""
        self._is_inside = True
        await self._start_once()

    async def close(self) -> None:
        """Ends the server. Idempotent."""
        self._is_inside = False
        for task in (self._starting, self._relisting):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        self._starting = self._relisting = None
        await self._disconnect()
        if self._place is not None:
            await asyncio.to_thread(self._place.close)
        if self._loading is not None:
            await asyncio.wait([self._loading])  # a thread cannot be cancelled

    async def restart(self) -> None:
        """Ends the server and starts it again at once, even after failed starts. Raises `McpError`."""
        await self.close()
        self._failures, self._not_before = 0, 0.0
        await self.open()

    async def settled(self) -> None:
        """If the server announced a change of its list, waits up to 5 seconds until it is read."""
        if self._relisting is not None and not self._relisting.done():
            await asyncio.wait([self._relisting], timeout=_SETTLING)

    async def connected(self) -> None:
        """Starts the server again if it ended. Raises `ToolError` if it cannot run."""
        if not self._is_inside:
            raise ToolError(f"the MCP server {self.name} is not running")
        if (
            self._connection is not None
            and self._connection.is_open
            and not (self._may_be_over and not self._open_calls)
        ):
            return
        left = self._not_before - self._clock()
        if self._starting is None and left > 0:
            raise ToolError(f"{self.problem}\nIt can be tried again in {left:.0f} s.")
        try:
            await self._start_once()
        except (McpError, MissingExtra) as error:
            raise ToolError(str(error)) from error

    # -- calls ---------------------------------------------------------------------------------------------------

    async def call(self, true_name: str, arguments: dict[str, Any], ctx: ToolContext) -> AgentToolResult:
        """The result of one call. Progress becomes updates. A cancelled call does not wait for the server."""
        connection, process = self._connection, self._process
        if connection is None:
            raise ToolError(f"the MCP server {self.name} is not running")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout

        async def told(progress: float, total: float | None, message: str | None) -> None:
            nonlocal deadline
            deadline = loop.time() + self._timeout
            ctx.update(progress_text(progress, total, message, self._own_secrets, ctx.redactor))

        task = connection.start("tools/call", {"name": true_name, "arguments": arguments}, told)
        self._open_calls += 1
        try:
            while not task.done():
                left = deadline - loop.time()
                if left <= 0:
                    raise ToolError(
                        f"{true_name}: the MCP server {self.name} gave no sign of life for {self._timeout:g} s, "
                        "so the call was cancelled"
                    )
                await asyncio.wait([task], timeout=left)
            if task.cancelled():  # by `close`: whoever cancels this call does not cancel its task
                raise ToolError(self._ended("it was closed during the call"))
            # In a thread, because an answer may have 16 MiB.
            given = task.result(), self.name, true_name, ctx.redactor, self._own_secrets
            return await asyncio.to_thread(result_of, *given)
        except (ToolError, asyncio.CancelledError):
            raise
        except Exception as error:
            raise ToolError(await self._reason(error, connection, process, ctx.redactor)) from error
        finally:
            self._open_calls -= 1
            task.cancel()

    async def _reason(
        self, error: Exception, connection: Connection, process: ServerProcess | None, redactor: Redactor | None
    ) -> str:
        """Why a call failed, for the model. Meanwhile another call may have started the server again."""
        if not connection.is_open:
            return self._ended(await self._why(error, connection, process))
        said = "answered with an error" if self._status or process is not None else "did not answer"
        return f"the MCP server {self.name} {said}: {self._of_status(self._told(error, redactor))}"

    def _ended(self, why: str) -> str:
        """The error of a call during which the server ended."""
        again = "\nThe next call starts it anew." if self._is_inside else ""
        return f"the MCP server {self.name} ended: {why}{again}"

    # -- starting ------------------------------------------------------------------------------------------------

    async def _start_once(self) -> Connection:
        """Starts the server once for all waiting callers, even if one of them is cancelled. Raises `McpError`."""
        if self._starting is None:
            self.loop = asyncio.get_running_loop()
            self._starting = self.loop.create_task(self._start())
            self._starting.add_done_callback(self._started)
        try:
            return await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise McpError(self.name, "it was closed while it started") from None

    def _started(self, task: asyncio.Task[Connection]) -> None:
        if self._starting is task:
            self._starting = None
        if not task.cancelled():
            task.exception()  # marks it as retrieved: perhaps no caller is waiting

    async def _start(self) -> Connection:
        await self._disconnect()
        self._status = 0
        try:
            async with asyncio.timeout(self._start_timeout):
                connection = await self._connect()
                capabilities = await connection.greet(own_version())
                self._listing = await self._read_tools(connection, must="tools" in capabilities)
        except asyncio.CancelledError:
            await self._disconnect()
            raise
        except MissingExtra as error:
            await self._failed(str(error))
            raise
        except Exception as error:
            why = await self._why(error, self._connection, self._process) + self._hint()
            await self._failed(str(McpError(self.name, why)))
            raise McpError(self.name, why) from error
        self._failures, self._not_before, self.problem = 0, 0.0, ""
        self._may_be_over = False
        return connection

    async def _connect(self) -> Connection:
        # The package takes seconds to load; the server starts meanwhile.
        if self._loading is None or self._loading.done():
            self._loading = asyncio.get_running_loop().create_task(asyncio.to_thread(_load))
        loading = self._loading
        try:
            if self._command is not None and self._place is not None:
                self._process = await ServerProcess.start(self._command, self._place, self._shown)
        finally:
            await asyncio.wait([loading])
        loading.result()
        from .connection import Connection, stdio_streams
        from .http import http_streams

        if self._process is None:
            transport = http_streams(self._url, self._headers, self._saw_status, self._list_changed)
        else:
            transport = stdio_streams(self._process, self._list_changed)
        self._connection = Connection(transport)
        return self._connection

    def _saw_status(self, status: int) -> None:
        self._status = status
        # A server that was restarted does not know our session. The next call begins another, if no other call is open.
        self._may_be_over = self._may_be_over or status in (0, 400, 404)

    async def _failed(self, problem: str) -> None:
        """Ends everything that was started, and sets the time of the next possible try."""
        await self._disconnect()
        self.problem = problem
        self._failures += 1
        self._not_before = self._clock() + min(2.0 ** (self._failures - 1), _LONGEST_WAIT)

    async def _why(self, error: Exception, connection: Connection | None, process: ServerProcess | None) -> str:
        """The known facts about a failure: a process's exit code and last lines, or the HTTP status."""
        is_late = isinstance(error, TimeoutError)
        why = f"it was not ready after {self._start_timeout:g} s" if is_late else self._told(error)
        if process is None:
            failure = None if connection is None or is_late else connection.failure
            return self._of_status(why if failure is None else self._told(failure))
        if not is_late and (connection is None or not connection.is_open):
            with suppress(TimeoutError):
                async with asyncio.timeout(_ENDING):
                    await process.ended()
        if process.flaw or process.code is not None:
            why = process.flaw or f"it ended with exit code {process.code}"
        return f"{why}\n{indent(process.last_words, '  ')}" if process.last_words else why

    def _of_status(self, why: str) -> str:
        """The reason with the HTTP status of the last answer, if that is not a success."""
        if self._status == 401:
            return "HTTP 401: it wants a login, or another one: give it in headers"
        return f"HTTP {self._status}: {why}" if self._status >= 300 else why

    def _told(self, error: BaseException, redactor: Redactor | None = None) -> str:
        said = getattr(error, "message", None) or str(error)
        if isinstance(error, OSError) and error.strerror:
            said = error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
        kind = "" if isinstance(error, (SandboxError, OSError, ValueError)) and said else f"{type(error).__name__}: "
        if hasattr(error, "code"):
            kind = ""
        return self._shown(f"{kind}{said}" if said else type(error).__name__, redactor)

    def _shown(self, text: str, redactor: Redactor | None = None) -> str:
        """The beginning of a text of the server, without secrets and invisible characters."""
        return shown_text(text, LONGEST_DESCRIPTION, self._redactor, redactor)

    def _hint(self) -> str:
        """A hint for a program that fetches others: the network or the cache that it lacks in the sandbox."""
        command = self._command
        if command is None or command.sandbox == "off" or os.path.basename(command.program) not in _FETCHERS:
            return ""
        lacks: list[str] = []
        if not command.network:
            lacks.append("no network (network = true allows it)")
        if not command.write:
            cache = "~/.npm" if "np" in os.path.basename(command.program) else "~/.cache/uv"
            lacks.append(f'no cache that it may write (write = ["{cache}"] allows it)')
        return f"\nIn the sandbox {command.program} has {' and '.join(lacks)}." if lacks else ""

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        process, self._process = self._process, None
        if connection is not None:
            await connection.close()
        if process is not None:
            await process.close()

    # -- the list ------------------------------------------------------------------------------------------------

    async def _read_tools(self, connection: Connection, *, must: bool) -> Listing:
        def ask(params: dict[str, Any]) -> Awaitable[dict[str, Any]]:
            return connection.start("tools/list", params)

        try:
            return await read_listing(ask)
        except Exception:
            if must or not connection.is_open:
                raise
            return Listing(warnings=("it offers no tools",))

    def _list_changed(self) -> None:
        """Schedules a new reading of the list: one for all announcements meanwhile, and at most one a second."""
        self._is_stale = True
        if self._relisting is None or self._relisting.done():
            self._relisting = asyncio.get_running_loop().create_task(self._relist())

    async def _relist(self) -> None:
        while self._is_stale and (connection := self._connection) is not None and connection.is_open:
            self._is_stale = False
            try:
                async with asyncio.timeout(self._start_timeout):
                    self._listing = await self._read_tools(connection, must=True)
            except Exception as error:
                log.warning("MCP server %s: its changed list of tools cannot be read: %s", self.name, self._told(error))
            if self._is_stale:
                await asyncio.sleep(_RELIST_EVERY)

    def _tool(self, name: str, definition: ToolDefinition) -> McpTool:
        key = (name, definition.digest)
        made = self._made.get(key)
        if made is None:
            if len(self._made) > 1000:  # the server changes its tools all the time
                self._made.clear()
            made = self._made[key] = McpTool(self, name, definition)
        return made


def _load() -> None:
    require("mcp", extra="mcp")
    # The package logs messages of servers, with tracebacks. Without a handler, Python prints them to stderr.
    if not (package := logging.getLogger("mcp")).handlers:
        package.addHandler(logging.NullHandler())
    for name in ("connection", "http"):  # this runs in a thread, so the imports do not block the event loop
        import_module(f"{__package__}.{name}")
