"""Who has the one run of an agent that there can be.

Owns the right to run, from the moment it is taken to the end of the run, and the order of those who wait for it.
Who may take it is for `agent` to say.
"""

from __future__ import annotations

from ..cancel import CancellationToken, Signal, running_loop

__all__ = ["Claim"]


class Claim:
    """The right to the one run that there can be, from the moment it is taken to the end of the run."""

    __slots__ = ("idle", "is_over", "loop", "predecessor", "token")

    def __init__(self, predecessor: Claim | None) -> None:
        self.token = CancellationToken()
        self.idle = Signal()
        """Set when the run is over."""
        self.is_over = False
        """The same, for those who hold the agent's lock."""
        self.predecessor = predecessor
        """The run, aborted or left, that is still coming to its end; this one begins after it."""
        self.loop = running_loop()
        """`None` for a stream that was made without one, until somebody begins to read it."""

    @property
    def is_ending(self) -> bool:
        return self.token.is_cancelled

    @property
    def is_gone(self) -> bool:
        """Whether there is no end to wait for: its event loop is closed, or it was aborted before anybody began it."""
        return self.is_ending if self.loop is None else self.loop.is_closed()

    def last_before(self) -> Claim | None:
        """The nearest run before this one that is not over. One that never began leaves the one before it behind."""
        before = self.predecessor
        while before is not None and (before.is_over or before.is_gone):
            before = before.predecessor
        return before
