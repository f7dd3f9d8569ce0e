"""Amounts of money read the same everywhere."""

from __future__ import annotations

import pytest

from swink_agent.rendering.amounts import dollars


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0, "$0.00"),
        (0.00034, "$0.0003"),
        (0.0999, "$0.0999"),
        (0.1, "$0.10"),
        (0.75, "$0.75"),
        (1234.5, "$1,234.50"),
        (-0.05, "$-0.0500"),
        (float("nan"), "unknown"),
        (float("inf"), "unknown"),
    ],
)
def test_an_amount_has_two_decimals_and_a_small_one_four(amount: float, shown: str) -> None:
    assert dollars(amount) == shown
