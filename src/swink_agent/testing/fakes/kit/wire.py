"""Writes frames as providers do: server-sent events, JSON lines, and the binary event stream of AWS.

It shares no code with the adapters, which read them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

_STRING_HEADER = 7


def json_bytes(value: object) -> bytes:
    return msgspec.json.encode(value)


def sse(data: Mapping[str, Any] | str, event: str | None = None) -> bytes:
    """Encodes a server-sent event, with its name if the provider sends one."""
    payload = data.encode() if isinstance(data, str) else json_bytes(data)
    name = b"" if event is None else f"event: {event}\n".encode()
    return name + b"data: " + payload + b"\n\n"


def json_line(data: Mapping[str, Any]) -> bytes:
    return json_bytes(data) + b"\n"


def aws_event(event: str, payload: Mapping[str, Any]) -> bytes:
    """Encodes one message: the prelude with its checksum, the headers, the payload, and the checksum of all of it."""
    headers = b"".join(
        _aws_header(name, value)
        for name, value in ((":event-type", event), (":content-type", "application/json"), (":message-type", "event"))
    )
    body = json_bytes(payload)
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + body
    return message + struct.pack(">I", zlib.crc32(message))


def _aws_header(name: str, value: str) -> bytes:
    data = value.encode()
    return struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", _STRING_HEADER, len(data)) + data
