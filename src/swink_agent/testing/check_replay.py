"""Replays a recorded session as a test: the agent must do what the session recorded.

`swink_agent.memory` does the replay and decides what counts as a difference.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from swink_agent.core.agent.lifecycle import run_sync
from swink_agent.core.encoding.codec import checked_types
from swink_agent.core.types import CustomMessage
from swink_agent.memory.errors import SessionNotFound
from swink_agent.memory.replaying.divergence import ReplayReport
from swink_agent.memory.replaying.stage import MakeAgentFn, RecordedSession, replay
from swink_agent.memory.sessions.opening import contents_of
from swink_agent.memory.sessions.session import LoadedSession
from swink_agent.memory.storage.folder import read_file
from swink_agent.memory.storage.protocols import LogName


async def assert_replays(
    session: RecordedSession | str | os.PathLike[str],
    make_agent: MakeAgentFn,
    *,
    types: Sequence[type[CustomMessage]] = (),
    patience: float = 30.0,
) -> ReplayReport:
    """Replays a session, or the session in a file. Raises `AssertionError` with a diff of the first difference.

    `make_agent(stream_fn, wrap_tool)` returns the agent to test; `types` are the custom messages in the file.

    Raises `SessionError` if the file cannot be read.
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
    """Does the same as `assert_replays`, in tests that are not async."""
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
    """Returns the name and the session to replay."""
    if not isinstance(session, (str, os.PathLike)):
        return "the session", session
    path = Path(session)
    if not path.is_file():
        raise SessionNotFound(f"there is no session {path}: give its file, or a loaded session", path=str(path))
    name = LogName(path.stem, path)
    return str(path), LoadedSession(name, contents_of(name, read_file(path), checked_types(types)))


def _nothing() -> None:
    pass
