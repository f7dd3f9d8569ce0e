"""Times, tokens and costs in a few characters, the same everywhere on the screen."""

from __future__ import annotations


def seconds(count: float) -> str:
    if count < 1:
        return f"{count * 1000:.0f} ms"
    if count < 60:
        return f"{count:.1f} s"
    return f"{count / 60:.0f} min" if count < 3600 else f"{count / 3600:.1f} h"


def tokens(count: int) -> str:
    if count < 1000:
        return f"{count} tokens"
    return f"{count / 1000:.1f}k tokens" if count < 1_000_000 else f"{count / 1_000_000:.1f}M tokens"


def dollars(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 0.1 or amount == 0 else f"${amount:.4f}"
