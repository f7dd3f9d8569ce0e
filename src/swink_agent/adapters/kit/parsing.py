"""The base of parsers: bytes in, frames to `take`, stream events out by a `ReplyWriter`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from swink_agent.core.stream_writer import ReplyWriter
from swink_agent.core.types import Usage

from .frames import take_last

F = TypeVar("F")
F_co = TypeVar("F_co", covariant=True)


class Frames(Protocol[F_co]):
    """What divides a body into frames."""

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
