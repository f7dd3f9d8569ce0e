"""Ranges of whole numbers as bodies of grammar rules.

Owns the reading of a schema's bounds and the splitting of a range into runs of digits. The rest of the translation is
in `grammar`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["bounds", "whole_numbers"]


def bounds(schema: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The smallest and the largest whole number that the schema allows."""
    lows = [math.ceil(schema["minimum"])] if "minimum" in schema else []
    highs = [math.floor(schema["maximum"])] if "maximum" in schema else []
    exclusive_low, exclusive_high = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if isinstance(exclusive_low, (int, float)) and not isinstance(exclusive_low, bool):
        lows.append(math.floor(exclusive_low) + 1)
    if isinstance(exclusive_high, (int, float)) and not isinstance(exclusive_high, bool):
        highs.append(math.ceil(exclusive_high) - 1)
    return max(lows, default=None), min(highs, default=None)


def whole_numbers(low: int, high: int) -> list[str]:
    """Bodies that together match the whole numbers from `low` to `high`, and only those."""
    if low > high:
        raise ValueError(f"the schema asks for a whole number from {low} to {high}: there is none")
    if low < 0:
        negative = [f'"-" {body}' for body in whole_numbers(max(1, -high), -low)]
        return negative + (whole_numbers(0, high) if high >= 0 else [])
    bodies: list[str] = []
    while low <= high:
        # The longest run of numbers that share their first digits and take all values of the rest.
        free = 0
        while low % 10 ** (free + 1) == 0 and low + 10 ** (free + 1) - 1 <= high and low > 0:
            free += 1
        step = 10**free
        digit = (low // step) % 10
        last = min(9, digit + (high - low + 1) // step - 1)
        head = f'"{str(low // step)[:-1]}" ' if low // step >= 10 else ""
        tail = f" [0-9]{{{free}}}" if free else ""
        bodies.append(f"{head}[{digit}-{last}]{tail}")
        low += (last - digit + 1) * step
    return bodies
