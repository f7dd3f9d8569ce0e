"""Collects a stream of events in a list."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def collect(stream: AsyncIterable[T]) -> list[T]:
    """Returns everything that a stream yields: that of a run, or of a stream function."""
    return [item async for item in stream]


def names(events: Iterable[object]) -> list[str]:
    """Returns the names of the events' types, to compare their order."""
    return [type(event).__name__ for event in events]
