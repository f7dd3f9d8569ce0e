"""The messages of an editor: one line of JSON each, over stdin and stdout.

Handles only the lines. The package `acp` does not check messages, so malformed ones are answered here and never reach
it.
"""

from __future__ import annotations

import asyncio
import json
from math import isfinite
from typing import Any, cast

from swink_agent.core.values.decoders import whole_json

LONGEST_LINE = 50 * 1024 * 1024  # bytes of one message, including its images
_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
_UNKNOWN_TO_THE_PACKAGE = frozenset({"session/delete"})
"""Methods of the protocol that the package `acp` does not pass on."""


class LineTransport:
    """Reads and writes messages. A line that is not a message is answered with an error; the connection stays open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        # In a separate task: a cancelled sender must not end the wait of the others.
        await asyncio.shield(asyncio.ensure_future(self._writer.drain()))

    async def receive(self) -> dict[str, Any] | None:
        """The next message; `None` at the end."""
        while True:
            try:
                line = await self._line()
                if line is None:
                    return None
                if line.strip():
                    return _message(line)
            except _Malformed as problem:
                error = {"code": problem.code, "message": str(problem)}
                await self.send({"jsonrpc": "2.0", "id": problem.id, "error": error})

    async def close(self) -> None:
        """Does nothing: stdin and stdout end with the process."""

    async def _line(self) -> bytes | None:
        """The next line; `None` at the end. Raises `_Malformed` after a line that is too long."""
        is_long = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as more:
                await self._reader.readexactly(more.consumed)
                is_long = True
                continue
            except asyncio.IncompleteReadError as rest:
                return rest.partial or None
            if is_long:
                raise _Malformed(_INVALID_REQUEST, f"a message has at most {LONGEST_LINE // 1024**2} MiB")
            return line


class _Malformed(Exception):
    def __init__(self, code: int, message: str, answered: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.id = answered


def _message(line: bytes) -> dict[str, Any]:
    try:
        found: object = json.loads(whole_json(line), parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        raise _Malformed(_PARSE_ERROR, "the line is not JSON") from None
    if not isinstance(found, dict):
        raise _Malformed(_INVALID_REQUEST, "a message is a JSON object")
    message = cast("dict[str, Any]", found)
    number, method = message.get("id"), message.get("method")
    if not isinstance(number, (str, int, float, type(None))):
        raise _Malformed(_INVALID_REQUEST, "the id of a message is a number or a text")
    if not isinstance(method, (str, type(None))):
        raise _Malformed(_INVALID_REQUEST, "the method of a message is a text", number)
    if method is None and "id" not in message:
        raise _Malformed(_INVALID_REQUEST, "a message must have a method, or the id of the request that it answers")
    if method in _UNKNOWN_TO_THE_PACKAGE:
        message["method"] = f"_{method}"  # as a method of an extension it reaches the agent
    if "error" in message and not isinstance(message["error"], dict):
        message["error"] = {"message": "the editor's error is not an object"}
    return message


def _finite(text: str) -> float:
    """The number. Raises `ValueError` for one that cannot be written back as JSON."""
    if not isfinite(number := float(text)):
        raise ValueError(text)
    return number
