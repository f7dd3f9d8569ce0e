"""Formats amounts of money, for every front end and report."""

from __future__ import annotations

import math


def dollars(amount: float) -> str:
    """Returns an amount with two decimals; with four below ten cents, so that the cost of one reply is not zero."""
    if not math.isfinite(amount):
        return "unknown"
    return f"${amount:,.2f}" if abs(amount) >= 0.1 or not amount else f"${amount:.4f}"
