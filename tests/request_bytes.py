"""Finds the bytes of a request that differ from the one before, for tests of what providers can cache."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

__all__ = ["changed_bytes"]


def changed_bytes(bodies: Iterable[bytes]) -> list[int]:
    """Of each body but the last, how many bytes the next one does not begin with."""
    return [len(before) - _in_common(before, after) for before, after in pairwise(bodies)]


def _in_common(before: bytes, after: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == after[:middle] else (low, middle - 1)
    return low
