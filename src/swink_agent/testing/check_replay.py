"""A recorded session as a test: the agent of today must do what is on record.

Owns the assertion. What a replay is, and what counts as a difference, is in `swink_agent.memory`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from swink_agent.core.agent_parts.sync import run_sync
from swink_agent.core.codec import checked_types
from swink_agent.core.types import CustomMessage
from swink_agent.memory.divergence import ReplayReport
from swink_agent.memory.errors import SessionNotFound
from swink_agent.memory.opening import read_contents
from swink_agent.memory.recording import RecordedSession
from swink_agent.memory.replaying import MakeAgentFn, replay
from swink_agent.memory.session import LoadedSession

__all__ = ["assert_replays", "assert_replays_sync"]


async def assert_replays(
    session: RecordedSession | str | os.PathLike[str],
    make_agent: MakeAgentFn,
    *,
    types: Sequence[type[CustomMessage]] = (),
    patience: float = 30.0,
) -> ReplayReport:
    """Replays a session, or the session in a file, and shows the first difference as a diff if there is one.

    `make_agent(stream_fn, wrap_tool)` gives the agent to try; `types` are the custom messages in the file.

    Raises `AssertionError`, and `SessionError` if the file cannot be read.
    """
    __tracebackhide__ = True
    name, recorded = _given(session, types)
    return _checked(name, await replay(recorded, make_agent, patience=patience))


def assert_replays_sync(
    session: RecordedSession | str | os.PathLike[str],
    make_agent: MakeAgentFn,
    *,
    types: Sequence[type[CustomMessage]] = (),
    patience: float = 30.0,
) -> ReplayReport:
    """The same for tests that are not async."""
    __tracebackhide__ = True
    name, recorded = _given(session, types)
    return _checked(name, run_sync(lambda: replay(recorded, make_agent, patience=patience), _nothing))


def _checked(name: str, report: ReplayReport) -> ReplayReport:
    __tracebackhide__ = True
    if report.divergence is not None:
        raise AssertionError(f"{name}: {report}")
    return report


def _given(
    session: RecordedSession | str | os.PathLike[str], types: Sequence[type[CustomMessage]]
) -> tuple[str, RecordedSession]:
    """What is to be replayed, and how it is called."""
    if not isinstance(session, (str, os.PathLike)):
        return "the session", session
    path = Path(session)
    if not path.is_file():
        raise SessionNotFound(f"there is no session {path}: name its file, or give one that is loaded", path=str(path))
    return str(path), LoadedSession(path, read_contents(path, checked_types(types)))


def _nothing() -> None:
    pass
