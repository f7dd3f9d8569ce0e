"""The registered agents of a `Durable`: their names, factories and limits.

Owns the rules for names, ids, keys and limits. Registering loads no engine and opens no store.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias, cast

from msgspec import Struct

from swink_agent.core.agent.agent import Agent
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.values.checks import check_seconds

from .info import storable

AgentFactory: TypeAlias = Callable[[], Agent[Any] | Awaitable[Agent[Any]]]
"""Makes the agent of one attempt, in a worker."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_LONGEST_KEY = 512


class JobRun(Protocol):
    """The argument of a job: a run without an agent."""

    id: str
    text: str
    """The prompt."""
    cancel: CancellationToken
    """Cancelled when the run is, and when its worker abandons it."""

    async def note(self, kind: str, data: Any) -> None:
        """Records an entry, which also counts as progress."""
        ...


JobFn: TypeAlias = Callable[[JobRun], Awaitable[Any]]
"""Does the work of a run without an agent. It returns JSON, which is recorded as a note of the kind `result`."""


class AgentEntry(Struct, frozen=True, kw_only=True):
    """One registered agent."""

    name: str
    factory: AgentFactory | None = None
    job: JobFn | None = None
    """Does the work of runs of this name, instead of an agent from a factory."""
    limit: int | None = None
    limit_per_key: int | None = None
    rate: tuple[int, float] | None = None
    progress: float = 3600
    max_attempts: int = 10
    back_off: float = 30


def checked_name(name: object) -> str:
    """The name of an agent. Raises `ValueError`."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} cannot name an agent: a name has 1 to 64 letters, digits, '-' and '_'")
    return name


def is_run_id(text: object) -> bool:
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def checked_id(run_id: str) -> str:
    """The id of a run. Raises `ValueError`."""
    if not is_run_id(run_id):
        shown = repr(run_id)[:200]
        rule = "an id has 1 to 128 letters, digits, '.', '_', ':' and '-', and begins with a letter or a digit"
        raise ValueError(f"{shown} cannot be the id of a run: {rule}")
    return run_id


def checked_key(key: object) -> str:
    """The key of a run. Raises `ValueError`."""
    if not isinstance(key, str) or len(key) > _LONGEST_KEY or key != storable(key):
        rule = f"a text of at most {_LONGEST_KEY} characters that UTF-8 can encode, without NUL"
        raise ValueError(f"the key of a run must be {rule}")
    return key


def checked_entry(entry: AgentEntry) -> AgentEntry:
    """The entry. Raises `ValueError` for a limit that is not positive."""
    checked_name(entry.name)
    for name in ("limit", "limit_per_key", "max_attempts"):
        value = cast("object", getattr(entry, name))
        is_unset = value is None and name != "max_attempts"
        if not is_unset and (type(value) is not int or value < 1):
            raise ValueError(f"{name} must be a positive whole number, not {value!r}")
    check_seconds("progress", entry.progress)
    check_seconds("back_off", entry.back_off, or_zero=True)
    if entry.rate is not None:
        pair = cast("Any", entry.rate)
        is_pair = type(pair) in (tuple, list) and len(pair) == 2
        if not is_pair or type(pair[0]) is not int or pair[0] < 1:
            raise ValueError(f"rate must be (runs, seconds), both positive, not {entry.rate!r}")
        check_seconds("the seconds of rate", pair[1])
    return entry
