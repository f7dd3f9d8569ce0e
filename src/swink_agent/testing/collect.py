"""Reading a stream of events into a list."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import TypeVar

__all__ = ["collect", "names"]

T = TypeVar("T")


async def collect(stream: AsyncIterable[T]) -> list[T]:
    """All that a stream yields: of a run, or of a stream function."""
    return [item async for item in stream]


def names(events: Iterable[object]) -> list[str]:
    """The types of events by name, which is what most tests of an order want to compare."""
    return [type(event).__name__ for event in events]
