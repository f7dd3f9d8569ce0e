"""What gives way when a conversation is longer than the model's window.

Owns the rule: the oldest turns go, the system prompt, the last request and the newest turn stay, and a call goes with
its results. The cut moves in steps, so that from turn to turn the prompt begins alike and the cache holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from .prompt import Turn

__all__ = ["fitted"]

_STEPS_OF_WINDOW = 4


def fitted(conversation: Sequence[Turn], most: int) -> list[Turn] | None:
    """The turns to keep within so many characters; `None` if even those that must stay are longer."""
    if sum(turn.length for turn in conversation) <= most:
        return list(conversation)
    step = max(1, most // _STEPS_OF_WINDOW)
    last = len(conversation) - 1
    must_stay = [turn.is_request or position == last for position, turn in enumerate(conversation)]
    goal = step
    while True:
        dropped, kept = 0, list[Turn]()
        for turn, stays in zip(conversation, must_stay, strict=True):
            if not stays and dropped < goal:
                dropped += turn.length
            else:
                kept.append(turn)
        if sum(turn.length for turn in kept) <= most:
            return kept
        if len(kept) == sum(must_stay):
            return None
        goal += step
