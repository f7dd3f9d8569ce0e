"""The protocol between the agent's process and a worker: a line of settings, then frames of msgpack on a socket.

Defines the messages and their framing. The two ends are in `process` and `main`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from .engine import Completion, Finished, ModelInfo, Overflowed, Piece, Progress

_HEADER = struct.Struct("!I")
_LONGEST = 256 << 20


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """How the worker loads its model: the first line on the socket, as JSON."""

    path: str
    state_dir: str
    context_length: int = 8_192
    batch: int = 128
    threads: int = 0
    gpu_layers: int | None = None
    embedding: bool = False
    idle_seconds: float = 900.0


class Complete(Struct, frozen=True, tag=True):
    """Generate; answered by several chunks."""

    id: int
    request: Completion


class Render(Struct, frozen=True, tag=True):
    """Apply the chat template; answered by the text."""

    id: int
    messages: list[tuple[str, str]]


class Embed(Struct, frozen=True, tag=True):
    """Embed; answered by the vectors."""

    id: int
    texts: list[str]


class Cancel(Struct, frozen=True, tag=True):
    """The parent no longer wants the answer to this request."""

    id: int


class Loaded(Struct, frozen=True, tag=True):
    """The model is in memory. Sent once, without a request."""

    info: ModelInfo


class Answer(Struct, frozen=True, tag=True):
    """The answer to a request, or a chunk of it."""

    id: int
    content: Progress | Piece | Finished | Overflowed | str | list[list[float]]


class Failed(Struct, frozen=True, tag=True):
    """A request failed. Without an id, loading failed and the worker ends."""

    id: int | None
    message: str


Ask: TypeAlias = Complete | Render | Embed
ToWorker: TypeAlias = Complete | Render | Embed | Cancel
FromWorker: TypeAlias = Loaded | Answer | Failed


def frame(message: ToWorker | FromWorker) -> bytes:
    body = msgspec.msgpack.encode(message)
    return _HEADER.pack(len(body)) + body


class FrameReader:
    """Splits received bytes into messages."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[Any]) -> None:
        self._decode = decoder.decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yields the messages that are complete now. Raises `ValueError` for a frame that cannot be a message."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            if length > _LONGEST:
                raise ValueError(f"a message of {length:,} bytes")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield self._decode(body)
