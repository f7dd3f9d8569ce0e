"""What the agent's process and a worker say to each other: frames of msgpack over a socket.

Owns the messages and their framing. The two ends are in `worker` and `_worker`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from .engine import Completion, Finished, ModelInfo, Overflowed, Piece, Progress

__all__ = [
    "Ask",
    "Cancel",
    "Complete",
    "Embed",
    "Failed",
    "FrameReader",
    "FromWorker",
    "Loaded",
    "Render",
    "Rendered",
    "Said",
    "ToWorker",
    "Vectors",
    "frame",
]

_HEADER = struct.Struct("!I")
_LONGEST = 256 << 20


class Complete(Struct, frozen=True, tag=True):
    """Generate; answered by `Said`s."""

    id: int
    request: Completion


class Render(Struct, frozen=True, tag=True):
    """Apply the chat template; answered by `Rendered`."""

    id: int
    messages: list[tuple[str, str]]


class Embed(Struct, frozen=True, tag=True):
    """Embed; answered by `Vectors`."""

    id: int
    texts: list[str]


class Cancel(Struct, frozen=True, tag=True):
    """The answer to this request is no longer wanted."""

    id: int


class Loaded(Struct, frozen=True, tag=True):
    """The model is in memory. Said once, unasked."""

    info: ModelInfo


class Said(Struct, frozen=True, tag=True):
    """A chunk of a completion."""

    id: int
    chunk: Progress | Piece | Finished | Overflowed


class Rendered(Struct, frozen=True, tag=True):
    id: int
    text: str


class Vectors(Struct, frozen=True, tag=True):
    id: int
    vectors: list[list[float]]


class Failed(Struct, frozen=True, tag=True):
    """A request failed; with no id, loading did, and the worker ends."""

    id: int | None
    message: str


Ask: TypeAlias = Complete | Render | Embed
ToWorker: TypeAlias = Complete | Render | Embed | Cancel
FromWorker: TypeAlias = Loaded | Said | Rendered | Vectors | Failed

T = TypeVar("T", covariant=True)


def frame(message: ToWorker | FromWorker) -> bytes:
    """The message as it goes over the socket."""
    body = msgspec.msgpack.encode(message)
    return _HEADER.pack(len(body)) + body


class _Decoder(Protocol[T]):
    def decode(self, buf: bytes, /) -> T: ...


class FrameReader:
    """Cuts what arrives into messages. Raises `ValueError` for what cannot be one."""

    def __init__(self, decoder: _Decoder[T]) -> None:
        self._decode = decoder.decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[object]:
        """The messages that are complete now."""
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
