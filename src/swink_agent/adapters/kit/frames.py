"""Divides a body into frames: server-sent events, JSON lines, a JSON array, and the binary AWS event stream.

Bytes go in, in pieces of any size, and frames come out, without I/O. Adapters interpret the frames. A frame over 8 MiB
is refused, so that no body can fill the memory. `FrameParser` is the base of the parsers that read the frames.
"""

from __future__ import annotations

import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from swink_agent.core.encoding.stream_writer import ReplyWriter
from swink_agent.core.types import Usage

T = TypeVar("T")

MOST_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
F = TypeVar("F")
F_co = TypeVar("F_co", covariant=True)


class FrameError(Exception):
    """The bytes are not frames of the expected kind, or a frame is too large."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


class ShapeError(FrameError):
    """A complete frame has unexpected content, which is not a fault of the connection."""


def take_last(frames: Iterable[T], take: Callable[[T], None]) -> None:
    """Reads the frames that were left when the body ended. A frame that was cut off is ignored."""
    for frame in frames:
        try:
            take(frame)
        except ShapeError:
            raise
        except FrameError:
            pass


class LineFrames:
    """Lines, as bytes without their line ends. NDJSON has one document in each line."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the lines that are complete now."""
        if b"\n" not in data:
            self._hold(data)
            return []
        if self._pieces:
            data = b"".join([*self._pieces, data])
            self._pieces.clear()
            self._size = 0
        lines = data.split(b"\n")
        self._hold(lines.pop())
        if len(data) > MOST_BYTES and any(len(line) > MOST_BYTES for line in lines):
            raise FrameError(f"a line of more than {MOST_BYTES} bytes")
        return lines

    def end(self) -> list[bytes]:
        """Returns the last line when the body ends, if it has no line end."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return [rest] if rest else []

    def _hold(self, data: bytes) -> None:
        if data:
            self._pieces.append(data)
            self._size += len(data)
            if self._size > MOST_BYTES:
                raise FrameError(f"a line of more than {MOST_BYTES} bytes")


class SseFrames:
    """Server-sent events.

    Comments, ids and retry times are ignored. Lines may end in LF, CRLF or CR. The last event counts even without its
    blank line.
    """

    __slots__ = ("_carriage", "_data", "_event", "_is_first", "_lines", "_size")

    def __init__(self) -> None:
        self._lines = LineFrames()
        self._data: list[bytes] = []
        self._event = b""
        self._size = 0
        self._carriage = False
        self._is_first = True

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Returns the events that are complete now, each as `(event name, data)`."""
        if self._carriage or b"\r" in data:
            data = self._with_plain_ends(data)
        frames: list[tuple[bytes, bytes]] = []
        for line in self._lines.feed(data):
            if self._is_first:
                self._is_first = False
                line = line.removeprefix(_BOM)
            if not line:
                if self._data or self._event:
                    frames.append(self._take())
            elif line.startswith(b"data:"):
                self._add(line[6:] if line[5:6] == b" " else line[5:])
            elif line.startswith(b"event:"):
                self._event = line[6:].strip()
        return frames

    def end(self) -> list[tuple[bytes, bytes]]:
        """Returns the last event when the body ends."""
        frames = self.feed(b"\n\n")
        self._lines.end()
        return frames

    def _add(self, data: bytes) -> None:
        self._data.append(data)
        self._size += len(data) + 1  # empty lines count too
        if self._size > MOST_BYTES:
            raise FrameError(f"an event of more than {MOST_BYTES} bytes")

    def _take(self) -> tuple[bytes, bytes]:
        frame = (self._event, self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
        self._data.clear()
        self._event = b""
        self._size = 0
        return frame

    def _with_plain_ends(self, data: bytes) -> bytes:
        """Converts every line end to LF; a CR at the end of the data waits for the LF that may follow."""
        if self._carriage:
            data = b"\r" + data
        self._carriage = data.endswith(b"\r")
        if self._carriage:
            data = data[:-1]
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


class JsonArrayFrames:
    """The documents of one JSON array, each as soon as it is complete."""

    __slots__ = ("_depth", "_in_string", "_is_escaped", "_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def feed(self, data: bytes) -> list[bytes]:
        frames: list[bytes] = []
        start = 0
        for position, byte in enumerate(data):
            if self._in_string:
                if self._is_escaped:
                    self._is_escaped = False
                elif byte == 0x5C:
                    self._is_escaped = True
                elif byte == 0x22:
                    self._in_string = False
            elif byte == 0x22:
                self._in_string = True
            elif byte == 0x7B:
                if self._depth == 0:
                    start = position
                self._depth += 1
            elif byte == 0x7D and self._depth:
                self._depth -= 1
                if self._depth == 0:
                    self._hold(data[start : position + 1])
                    frames.append(b"".join(self._pieces))
                    self._pieces.clear()
                    self._size = 0
        if self._depth:
            self._hold(data[start:])
        return frames

    def end(self) -> list[bytes]:
        return []

    def _hold(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > MOST_BYTES:
            raise FrameError(f"a document of more than {MOST_BYTES} bytes")


class AwsMessage(NamedTuple):
    """One message of an AWS event stream: its string headers, and its payload."""

    headers: dict[str, str]
    payload: bytes


class AwsEventFrames:
    """The binary event stream of AWS: lengths, headers, payload, and two checksums, which are checked."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[AwsMessage]:
        self._buffer += data
        messages: list[AwsMessage] = []
        try:
            while (message := self._next()) is not None:
                messages.append(message)
        except FrameError:
            if not messages:
                raise  # complete messages before it are returned first; the next call finds the error again
        return messages

    def _next(self) -> AwsMessage | None:
        if len(self._buffer) < 12:
            return None
        total, headers_length, prelude_checksum = struct.unpack_from(">III", self._buffer)
        if zlib.crc32(self._buffer[:8]) != prelude_checksum:
            raise FrameError("an event-stream message whose prelude checksum is wrong")
        if total > MOST_BYTES or total < 16 + headers_length:
            raise FrameError(f"an event-stream message of {total} bytes, {headers_length} of them headers")
        if len(self._buffer) < total:
            return None
        message = bytes(self._buffer[:total])
        if zlib.crc32(message[:-4]) != struct.unpack(">I", message[-4:])[0]:
            raise FrameError("an event-stream message whose checksum is wrong")
        headers = _aws_headers(message[12 : 12 + headers_length])
        del self._buffer[:total]
        return AwsMessage(headers, message[12 + headers_length : -4])

    def end(self) -> list[AwsMessage]:
        return []


_AWS_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}


def _aws_headers(data: bytes) -> dict[str, str]:
    """Returns the string headers by name and ignores headers of other types."""
    headers: dict[str, str] = {}
    position = 0
    try:
        while position < len(data):
            name_length = data[position]
            name = data[position + 1 : position + 1 + name_length].decode()
            position += 1 + name_length
            kind = data[position]
            position += 1
            if kind in (6, 7):
                (length,) = struct.unpack_from(">H", data, position)
                value = data[position + 2 : position + 2 + length]
                position += 2 + length
                if kind == 7:
                    headers[name] = value.decode()
            else:
                position += _AWS_SIZES[kind]
            if position > len(data):
                raise IndexError("a value longer than its space")
    except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"event-stream headers that cannot be read: {error}") from error
    return headers


class Frames(Protocol[F_co]):
    """Divides a body into frames."""

    def feed(self, data: bytes, /) -> Sequence[F_co]: ...

    def end(self) -> Sequence[F_co]: ...


class FrameParser(ABC, Generic[F]):
    """A parser of a body in frames. A subclass defines `take`, which reads one frame, and `usage_so_far`."""

    def __init__(self, frames: Frames[F]) -> None:
        self.writer = ReplyWriter()
        self._frames = frames

    @abstractmethod
    def take(self, frame: F, /) -> None:
        """Reads one frame. Raises `FrameError` or `ShapeError`."""

    def feed(self, data: bytes) -> bool:
        frames = self._frames.feed(data)
        for frame in frames:
            self.take(frame)
        return bool(frames)

    def end(self) -> None:
        take_last(self._frames.end(), self.take)

    def usage_so_far(self) -> Usage | None:
        return None
