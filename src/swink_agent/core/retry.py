"""Whether to ask a model again after a failure, and when.

Owns the strategies, which `reply` uses.
"""

from __future__ import annotations

from collections.abc import Callable
from random import random
from typing import Protocol

from .errors import AgentError, ModelThrottled, NetworkError


class RetryStrategy(Protocol):
    """Decides which errors are retried, and when. Attempts count from 1."""

    def should_retry(self, error: AgentError, attempt: int, /) -> bool:
        """Whether to try again after attempt number `attempt` failed with `error`."""
        ...

    def delay(self, attempt: int, /) -> float:
        """Returns the seconds to wait before the next attempt, if the provider did not ask for a wait.

        A strategy may have `max_retry_after`, the longest wait in seconds that a provider may ask for; by default 300.
        """
        ...


class DefaultRetryStrategy:
    """Retries throttling and network errors, waiting longer each time.

    The wait after attempt n is `base_delay * multiplier ** (n - 1)`, at most `max_delay`. With `jitter`, it is
    multiplied by a random factor from 0.5 to 1.5, so that many clients do not retry at the same time; it is still at
    most `max_delay`. If the provider asks for a wait, that is used instead. If that is longer than `max_retry_after`,
    this model is not asked again for the same reply.
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
            raise ValueError(f"max_attempts is {max_attempts}; the first try counts, so it must be at least 1")
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
            return random()
        return self.random()
