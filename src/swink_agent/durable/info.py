"""Descriptions of runs, workers and the whole fleet.

Owns these values, and which characters a text in a store may have. `store` reads them from the tables.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from swink_agent.core.approval import PendingCall
from swink_agent.core.values.value import Value

RunStatus: TypeAlias = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]
"""Queued and running runs continue by themselves, waiting ones after an answer. The others are over."""

OVER = frozenset({"done", "failed", "cancelled"})
STATUSES = ("queued", "running", "waiting", "done", "failed", "cancelled")


class RunInfo(Value, frozen=True, kw_only=True):
    """One run, as a list shows it. Times are milliseconds since the epoch, by the store's clock."""

    id: str
    agent: str
    status: RunStatus
    key: str = ""
    priority: int = 0
    metadata: dict[str, Any] = {}
    created: int = 0
    updated: int = 0
    attempts: int = 0
    """How often a worker took the run."""
    worker: str = ""
    """The worker that has the run."""
    position: int = 0
    """The number of the last record."""
    pending: tuple[PendingCall, ...] = ()
    """The calls that wait for an answer."""
    error: str = ""
    """Why the run failed or was cancelled, or why its last attempt is repeated."""
    tokens: int = 0
    cost: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.status in OVER


class WorkerInfo(Value, frozen=True, kw_only=True):
    """One worker. `seen` is when it last reported, by the store's clock, in milliseconds."""

    id: str
    host: str
    pid: int
    slots: int
    running: int
    seen: int
    agents: tuple[str, ...] = ()


class FleetStats(Value, frozen=True, kw_only=True):
    """All runs by status, and the workers."""

    queued: int = 0
    running: int = 0
    waiting: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    lag: float = 0.0
    """The age of the oldest queued run, in seconds."""
    workers: tuple[WorkerInfo, ...] = ()
    queued_agents: dict[str, int] = {}
    """How many runs of each agent are queued."""
    version: int = 0
    """The version of the store's tables."""


def storable(words: str) -> str:
    """A text that every store accepts: without NUL, and with question marks for characters that UTF-8 cannot encode."""
    return words.replace("\0", "").encode("utf-8", "replace").decode()
