"""A connection to a server: requests and their answers over a transport, and the transport over stdio.

Uses the package `mcp`, so it is loaded when a server starts. Answers are returned without a check of their shape: the
package would refuse a whole list because of one tool in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import anyio
import mcp_types
import msgspec
from anyio.abc import TaskStatus
from mcp.shared.dispatcher import CallOptions, DispatchContext, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_NAME_HEADER, MCP_PROTOCOL_VERSION_HEADER, encode_header_value
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import ValidationError

from swink_agent.core.values.decoders import json_decoder, whole_json

from .flood import LIST_CHANGED, TOO_MANY, Flood
from .process import ServerProcess

_LARGEST_BATCH = 1024 * 1024
_MOST_IN_A_BATCH = 1000
"""Limits of a line with several messages, which only one old version of the protocol has."""
_CLOSING = 2.0
_NOTED = 0.5

_Streams = tuple[Any, Any]  # messages from a server, and messages to it


class Connection:
    """One connection, which runs in its own task. Any task may use and close it, not only the one that opened it."""

    def __init__(self, transport: AbstractAsyncContextManager[_Streams]) -> None:
        self._transport = transport
        self._ready = asyncio.Event()
        self._closing = asyncio.Event()
        self._dispatcher: JSONRPCDispatcher | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._envelope: dict[str, Any] = {}  # our introduction in each request, if the server wants that
        self.failure: BaseException | None = None
        """Why the transport failed, if it did."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_open(self) -> bool:
        return not self._task.done() and not self._closing.is_set()

    async def greet(self, version: str) -> dict[str, Any]:
        """Introduces us to the server and returns its capabilities. Raises `MCPError` or `ValueError`."""
        await self._ready.wait()
        info = {"name": "swink-agent", "version": version}
        said = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": info}
        try:
            answer = await self.start("initialize", said)
        except MCPError as error:
            if error.code not in (mcp_types.METHOD_NOT_FOUND, mcp_types.UNSUPPORTED_PROTOCOL_VERSION):
                raise
            return await self._greet_newer(info, error)
        spoken = answer.get("protocolVersion")
        if spoken not in HANDSHAKE_PROTOCOL_VERSIONS:
            known = ", ".join(HANDSHAKE_PROTOCOL_VERSIONS)
            raise ValueError(f"it speaks version {str(spoken)[:40]!r} of the protocol; we know {known}")
        if self._dispatcher is not None:
            headers: CallOptions = {"headers": {MCP_PROTOCOL_VERSION_HEADER: str(spoken)}}
            await self._dispatcher.notify("notifications/initialized", None, headers)
        return _capabilities(answer)

    async def _greet_newer(self, info: dict[str, Any], refusal: MCPError) -> dict[str, Any]:
        """Greets a server that knows only the version without a handshake: each request introduces us instead."""
        version = LATEST_MODERN_VERSION
        self._envelope = {
            mcp_types.PROTOCOL_VERSION_META_KEY: version,
            mcp_types.CLIENT_INFO_META_KEY: info,
            mcp_types.CLIENT_CAPABILITIES_META_KEY: {},
        }
        try:
            answer = await self.start("server/discover", {})
        except MCPError as error:
            raise refusal from error
        if version not in (answer.get("supportedVersions") or ()):
            raise refusal
        # This request stays open until the connection ends: the server announces changes of the list with it.
        listening = self.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        listening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return _capabilities(answer)

    def start(
        self, method: str, params: Mapping[str, Any], on_progress: ProgressFnT | None = None
    ) -> asyncio.Task[dict[str, Any]]:
        """Sends a request. Returns a task with the answer, or with an `MCPError`.

        If the task is cancelled, the package informs the server while the task ends, which may take seconds: do not
        wait for it.
        """
        task = asyncio.get_running_loop().create_task(self._request(method, params, on_progress))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def close(self) -> None:
        """Ends the connection and its requests. Idempotent."""
        self._closing.set()
        await asyncio.wait([self._task], timeout=_CLOSING)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_CLOSING)
        for call in tuple(self._calls):
            call.cancel()
        if self._calls:
            await asyncio.wait(tuple(self._calls), timeout=_CLOSING)

    async def _request(self, method: str, params: Mapping[str, Any], on_progress: ProgressFnT | None) -> dict[str, Any]:
        await self._ready.wait()
        if self._dispatcher is None:
            raise MCPError(code=mcp_types.CONNECTION_CLOSED, message="the connection failed")
        options: CallOptions = {}
        if self._envelope:
            params = {**params, "_meta": self._envelope}
            headers = {
                MCP_PROTOCOL_VERSION_HEADER: str(self._envelope[mcp_types.PROTOCOL_VERSION_META_KEY]),
                MCP_METHOD_HEADER: method,
            }
            if isinstance(name := params.get("name"), str):
                headers[MCP_NAME_HEADER] = encode_header_value(name)
            options["headers"] = headers
        if method in ("initialize", "server/discover"):
            options["cancel_on_abandon"] = False
        if on_progress is not None:
            options["on_progress"] = on_progress
        try:
            return await self._dispatcher.send_raw_request(method, params, options)
        except MCPError as error:
            if error.code == mcp_types.CONNECTION_CLOSED:
                # Our task ends a moment later, unless the server itself sent this code.
                await asyncio.wait([self._task], timeout=_NOTED)
            raise

    async def _run(self) -> None:
        try:
            async with self._transport as (read, write), anyio.create_task_group() as group:
                self._dispatcher = JSONRPCDispatcher(read, write)
                await group.start(self._serve)
                self._ready.set()
                await self._closing.wait()
                group.cancel_scope.cancel()
        except Exception as error:
            self.failure = _innermost(error)
        finally:
            self._closing.set()
            self._ready.set()

    async def _serve(self, *, task_status: TaskStatus[None]) -> None:
        assert self._dispatcher is not None
        try:
            await self._dispatcher.run(self._answer, self._notice, task_status=task_status)
        finally:
            self._closing.set()

    async def _answer(
        self, context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        if method == "ping":
            return {}
        raise MCPError(code=mcp_types.METHOD_NOT_FOUND, message=f"not offered: {method[:80]}")

    async def _notice(self, context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None) -> None:
        """Ignores the notification: the transports handle those that matter."""


def _capabilities(answer: Mapping[str, Any]) -> dict[str, Any]:
    capabilities = answer.get("capabilities")
    return cast("dict[str, Any]", capabilities) if isinstance(capabilities, dict) else {}


def _innermost(error: BaseException) -> BaseException:
    if isinstance(error, BaseExceptionGroup):
        return _innermost(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return error


# -- stdio -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def stdio_streams(process: ServerProcess, on_list_changed: Callable[[], None]) -> AsyncGenerator[_Streams]:
    """The messages of a process, one in each line."""
    yield _Incoming(process, on_list_changed), _Outgoing(process)


class _Stream:
    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    async def aclose(self) -> None:
        """Does nothing: the process is closed by its owner."""

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class _Incoming(_Stream):
    """Messages from a server. Drops other lines, and notifications that do not matter here."""

    def __init__(self, process: ServerProcess, on_list_changed: Callable[[], None]) -> None:
        super().__init__(process)
        self._on_list_changed = on_list_changed
        self._flood = Flood()
        self._waiting: deque[mcp_types.JSONRPCMessage] = deque()

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            await asyncio.sleep(0)  # a server that writes without a pause must not block the event loop
            if self._flood.grows():
                self._process.end(TOO_MANY)
                raise StopAsyncIteration
            if self._waiting:
                message = self._waiting.popleft()
                if not self._is_dealt_with(message):
                    return SessionMessage(message)
                continue
            line = await self._process.read_line()
            if line is None:
                raise StopAsyncIteration
            self._waiting.extend(_messages(line))

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def _is_dealt_with(self, message: mcp_types.JSONRPCMessage) -> bool:
        """Whether the message needs nothing more. Requests are answered here, without waiting: a server that sends
        requests and never reads must not fill our memory."""
        if isinstance(message, mcp_types.JSONRPCNotification):
            if message.method == LIST_CHANGED:
                self._on_list_changed()
            return not self._flood.hears(message.method)
        if not isinstance(message, mcp_types.JSONRPCRequest):
            return False
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message.id}
        if message.method == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": mcp_types.METHOD_NOT_FOUND, "message": f"not offered: {message.method[:80]}"}
        self._process.write_if_it_reads(msgspec.json.encode(answer) + b"\n")
        return True


class _Outgoing(_Stream):
    async def send(self, item: SessionMessage, /) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self._process.write(text.encode() + b"\n")


_BATCH = json_decoder(list[msgspec.Raw])


def _messages(line: bytes) -> list[mcp_types.JSONRPCMessage]:
    """The messages in a line; an answer of a wrong shape becomes an error for its request."""
    if not line.strip():
        return []
    if not line.lstrip().startswith(b"["):
        return [] if (message := _message(line)) is None else [message]
    if len(line) > _LARGEST_BATCH:
        return []
    try:
        items = _BATCH.decode(line)
    except (ValueError, RecursionError):
        return []
    found = [] if len(items) > _MOST_IN_A_BATCH else [_message(bytes(item)) for item in items]
    return [message for message in found if message is not None]


def _message(data: bytes) -> mcp_types.JSONRPCMessage | None:
    data = whole_json(data)
    try:
        return mcp_types.jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError:
        pass
    try:
        found: object = msgspec.json.decode(data)  # it accepts deeper nesting
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    fields = cast("dict[str, Any]", found)
    try:
        return mcp_types.jsonrpc_message_adapter.validate_python(fields, by_name=False)
    except ValidationError:
        number = fields.get("id")
        if "method" in fields or not isinstance(number, (int, str)) or isinstance(number, bool):
            return None
        problem = mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message="its answer is not JSON-RPC")
        return mcp_types.JSONRPCError(jsonrpc="2.0", id=number, error=problem)
