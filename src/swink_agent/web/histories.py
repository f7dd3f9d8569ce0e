"""Reads sessions for many readers. The last ones are cached until their files change.

Reading takes no lock, so a session that another program uses can be shown too.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict

from swink_agent.memory import LoadedSession, SessionAmbiguous, SessionNotFound, SessionStore

_MOST_KEPT = 8
_MOMENT = 50_000_000
"""The assumed resolution of file times, in nanoseconds."""


class Histories:
    """Loaded sessions. Use it in threads."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._kept: OrderedDict[str, tuple[tuple[int, ...], LoadedSession]] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, session_id: str) -> LoadedSession:
        """Returns the session as it is now. Raises `SessionError`.

        The id must be complete: access is decided by the given id, and a prefix could match another session.
        """
        with self._lock:
            known = self._kept.get(session_id)
        if known is not None and _stamp(known[1]) == known[0]:
            return known[1]
        began = time.time_ns()
        try:
            loaded = self._store.load(session_id)
        except SessionAmbiguous as error:
            raise SessionNotFound(f"there is no session {session_id!r}", path=error.path) from None
        if loaded.id != session_id:
            raise SessionNotFound(f"there is no session {session_id!r}", path=str(loaded.path))
        stamp = _stamp(loaded)
        if stamp is not None and stamp[0] < began - _MOMENT:  # else it may have changed while it was read
            with self._lock:
                self._kept[session_id] = (stamp, loaded)
                self._kept.move_to_end(session_id)
                while len(self._kept) > _MOST_KEPT:
                    self._kept.popitem(last=False)
        return loaded


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
