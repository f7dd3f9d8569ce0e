"""Reads sessions for many readers, masked. The last ones are cached until their files change.

Reading takes no lock, so a session that another program uses can be shown too. A session may have been recorded without
masking, or before a secret was known, so it is masked again here.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from typing import NamedTuple

from msgspec import structs

from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.types import AgentMessage
from swink_agent.memory import LoadedSession, SessionAmbiguous, SessionInfo, SessionNotFound, SessionStore

_MOST_KEPT = 8
_MOMENT = 50_000_000
"""The assumed resolution of file times, in nanoseconds."""


class History(NamedTuple):
    """A session as readers see it."""

    id: str
    info: SessionInfo
    messages: tuple[AgentMessage, ...]
    context: tuple[AgentMessage, ...] | None
    """What the model is sent, if it is not the messages."""
    labels: tuple[tuple[str, int], ...]
    """Each with its position among the messages."""


class Histories:
    """Sessions, masked by a redactor. Use it in threads."""

    def __init__(self, store: SessionStore, redactor: Redactor) -> None:
        self._store = store
        self._redactor = redactor
        self._kept: OrderedDict[str, tuple[tuple[int, ...], LoadedSession, History]] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, session_id: str) -> History:
        """Returns the session as it is now. Raises `SessionError`.

        The id must be complete: access is decided by the given id, and a prefix could match another session.
        """
        with self._lock:
            known = self._kept.get(session_id)
        if known is not None and _stamp(known[1]) == known[0]:
            return known[2]
        began = time.time_ns()
        try:
            loaded = self._store.load(session_id)
        except SessionAmbiguous as error:
            raise SessionNotFound(f"there is no session {session_id!r}", path=error.path) from None
        if loaded.id != session_id:
            raise SessionNotFound(f"there is no session {session_id!r}", path=str(loaded.path))
        stamp, history = _stamp(loaded), self._masked(loaded)
        if stamp is not None and stamp[0] < began - _MOMENT:  # else it may have changed while it was read
            with self._lock:
                self._kept[session_id] = (stamp, loaded, history)
                self._kept.move_to_end(session_id)
                while len(self._kept) > _MOST_KEPT:
                    self._kept.popitem(last=False)
        return history

    def _masked(self, loaded: LoadedSession) -> History:
        redactor = self._redactor
        masked = redactor.redact_message
        context = loaded.context
        return History(
            loaded.id,
            masked_info(loaded.info, redactor),
            tuple([masked(message) for message in loaded.messages]),
            None if context is None else tuple([masked(message) for message in context]),
            tuple([(redactor.redact(label.text), label.position) for label in loaded.labels]),
        )


def masked_info(info: SessionInfo, redactor: Redactor) -> SessionInfo:
    """The description of a session with its title masked."""
    return structs.replace(info, title=redactor.redact(info.title))


def _stamp(loaded: LoadedSession) -> tuple[int, ...] | None:
    """Returns the modification time and size of a session's file; `None` if it is not a file.

    A database changes only later: SQLite writes to the log beside it first.
    """
    try:
        found = os.stat(loaded.path)
    except (OSError, TypeError, ValueError):
        return None
    try:
        log = os.stat(f"{loaded.path}-wal")
    except OSError:
        return found.st_mtime_ns, found.st_size
    return max(found.st_mtime_ns, log.st_mtime_ns), found.st_size, log.st_size
