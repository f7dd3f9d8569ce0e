"""Describes the sessions of a store for its lists.

A list reads only the logs that changed since they were read last: the search index keeps the description of each
session with the state of its log. Without a usable index, every log is read.

Owns what a list reads, its filter and its order. `opening.read_contents` reads a log.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from swink_agent.core.types import CustomMessage
from swink_agent.core.values.decoders import json_decoder

from ..errors import SessionDamaged, SessionError, SessionNotFound, reason_of
from ..storage.protocols import LogReader, LogState, Storage
from .info import SessionInfo
from .opening import read_contents
from .session import info_of

if TYPE_CHECKING:
    from ..search.index import SessionIndex

_AHEAD = 5 * 60_000
"""Milliseconds by which the clocks of machines that share sessions may differ."""
_CLOCK = 2_000
"""Milliseconds by which a log's time may be before its last record's, although that is taken before the write."""


class Wanted(NamedTuple):
    """The filter of a list of sessions."""

    cwd: str | None = None
    metadata: Mapping[str, Any] = {}
    """Keys that the metadata must have, with these values."""

    def includes(self, info: SessionInfo) -> bool:
        if self.cwd is not None and self.cwd != info.cwd:
            return False
        return all(key in info.metadata and _is_same(info.metadata[key], value) for key, value in self.metadata.items())


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON. In Python, `1 == True`."""
    return one == other and _sorted_json(one) == _sorted_json(other)


def _sorted_json(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


class SessionDescriptions:
    """The descriptions of a store's sessions, each read from its log or, if the log is unchanged, from the index."""

    def __init__(
        self, reader: LogReader, storage: Storage, types: Sequence[type[CustomMessage]], index: SessionIndex
    ) -> None:
        self._reader = reader
        self._storage = storage
        self._types = types
        self._index = index
        self._kinds = "\n".join(sorted(str(kind.__struct_config__.tag) for kind in types))
        """A store that knows other types of messages describes the same log in other words."""
        self._states = _states(reader)
        self._known = index.infos(self._kinds)
        self._fresh: dict[str, tuple[LogState, SessionInfo | None]] = {}

    def list(self, wanted: Wanted, most: int | None, now: int) -> list[SessionInfo]:
        """The sessions that are wanted, most recently used first; `most` of them at most."""
        found: list[tuple[int, int, str, SessionInfo]] = []
        places: list[int] = []
        """The negated times of last use of the sessions found so far, sorted."""
        for written, session_id in self._reader.by_time(wanted.cwd):
            # The logs come in the order of their last write, and none is used after that.
            if most is not None and len(found) >= most and (not most or places[most - 1] < -written - _CLOCK):
                break
            info = self._info(session_id)
            if info is not None and wanted.includes(info):
                found.append((_used_last(written, info, now), info.updated, info.id, info))
                insort(places, -found[-1][0])
        self._keep()
        found.sort(key=itemgetter(0, 1, 2), reverse=True)
        return [info for _, _, _, info in found[:most]]

    def _info(self, session_id: str) -> SessionInfo | None:
        """The description of a session; `None` for a log that is not a session."""
        state = self._states.get(session_id)
        known = self._known.get(session_id)
        if state is not None and known is not None and known[0] == state:
            try:
                return json_decoder(SessionInfo).decode(known[1]) if known[1] else None
            except (msgspec.MsgspecError, ValueError):
                pass  # the index is damaged: the log is read
        try:
            contents = read_contents(self._reader, self._storage, session_id, self._types)
            info = info_of(session_id, contents.start, contents.fold, contents.reading.problems)
        except SessionNotFound:
            return None  # deleted in the meantime
        except SessionDamaged:
            info = None
        except SessionError as error:
            unread = (f"it cannot be read: {reason_of(error)}",)
            return SessionInfo(id=session_id, problems=unread, damage=unread)
        if state is not None:
            self._fresh[session_id] = (state, info)
        return info

    def _keep(self) -> None:
        gone = self._known.keys() - self._states.keys()
        if self._fresh or gone:
            self._index.keep_infos(self._kinds, self._fresh, gone)


def _states(reader: LogReader) -> dict[str, LogState]:
    try:
        return reader.states()
    except SessionError:
        return {}  # the attempts to read the logs report the errors


def _used_last(written: int, info: SessionInfo, now: int) -> int:
    """When a session was used last, in milliseconds, to sort a list.

    A time in the future comes from a clock that ran ahead. Then the time when the log was written is used; if that is
    in the future too, the session is sorted last.
    """
    if info.updated <= now + _AHEAD:
        return info.updated
    return written if written <= now + _AHEAD else 0
