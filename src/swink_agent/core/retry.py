"""Whether to ask a model again after a failure, and when.

Owns the strategies, which `reply` uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .errors import AgentError, ModelThrottled, NetworkError


class RetryStrategy(Protocol):
    """Decides alone: an error that it wants retried is retried, any other is not. Attempts count from 1."""

    def should_retry(self, error: AgentError, attempt: int, /) -> bool:
        """Whether to try again after attempt number `attempt` failed with `error`."""
        ...

    def delay(self, attempt: int, /) -> float:
        """Seconds to wait before the next attempt, unless the provider named a time itself.

        A strategy may have `max_retry_after`, the most seconds that such a time may be; 300 if it does not say.
        """
        ...


class DefaultRetryStrategy:
    """Retries throttling and network errors, waiting longer each time.

    The wait after attempt n is `base_delay * multiplier ** (n - 1)`, at most `max_delay`, times a random factor
    from 0.5 to 1.5 so that many clients do not come back together; the cap holds after the factor too. A wait that the
    provider itself asks for is kept instead, but one longer than `max_retry_after` is not waited for: the model counts
    as exhausted.
    """

    __slots__ = ("base_delay", "jitter", "max_attempts", "max_delay", "max_retry_after", "multiplier", "random")

    def __init__(
        self,
        max_attempts: int = 3,
        base_delay: float = 1.0,
        max_delay: float = 60.0,
        multiplier: float = 2.0,
        jitter: bool = True,
        random: Callable[[], float] | None = None,
        max_retry_after: float = 300.0,
    ) -> None:
        if max_attempts < 1:
            raise ValueError(f"max_attempts is {max_attempts}; the first try counts, so it is at least 1")
        if base_delay < 0 or max_delay < 0 or max_retry_after < 0:
            raise ValueError("base_delay, max_delay and max_retry_after are seconds, so they cannot be negative")
        self.max_attempts = max_attempts
        self.base_delay = base_delay
        self.max_delay = max_delay
        self.max_retry_after = max_retry_after
        self.multiplier = multiplier
        self.jitter = jitter
        self.random = random

    def __repr__(self) -> str:
        return f"DefaultRetryStrategy(max_attempts={self.max_attempts}, max_delay={self.max_delay})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DefaultRetryStrategy):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def should_retry(self, error: AgentError, attempt: int, /) -> bool:
        return attempt < self.max_attempts and isinstance(error, (ModelThrottled, NetworkError))

    def delay(self, attempt: int, /) -> float:
        # The exponent is bounded so that a strategy with thousands of attempts cannot overflow a float.
        seconds = min(self.base_delay * self.multiplier ** min(attempt - 1, 64), self.max_delay)
        if self.jitter:
            seconds *= 0.5 + self._random()
        return min(seconds, self.max_delay)

    def _random(self) -> float:
        if self.random is None:
            from random import random  # not at import: it is only needed once something failed

            return random()
        return self.random()
