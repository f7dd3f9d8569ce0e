"""What of the hidden paths is there now, asked before every command.

Owns a memory of the answer. There are more than a hundred paths, in a few dozen folders: nothing comes or goes in a
folder without a change of its inode's time, which nobody can set, so only the folders are looked at as long as they
stay the same.
"""

from __future__ import annotations

import os
import time

from ..profile import SandboxProfile

__all__ = ["HiddenNow"]

_COARSE = 50_000_000
"""Nanoseconds that the time of a folder may lie behind the clock: what is younger may change unseen."""

_States = tuple["tuple[int, int, int] | None", ...]


class HiddenNow:
    """`look()` says what is there, and what is not and must not come while a command runs."""

    def __init__(self, profile: SandboxProfile) -> None:
        self._profile = profile
        self._folders = tuple(dict.fromkeys(os.path.dirname(path) for path in profile.hidden))
        self._known: tuple[_States, tuple[str, ...], tuple[str, ...]] | None = None

    def look(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        states = tuple(map(_state, self._folders))
        known = self._known
        if known is not None and known[0] == states:
            return known[1], known[2]
        there = self._profile.hidden_paths()
        absent = tuple(path for path in self._profile.hidden_elsewhere(there) if not os.path.lexists(path))
        is_lasting = all(state is None or state[2] < time.time_ns() - _COARSE for state in states)
        # Where a link leads is in no folder that we look at.
        has_links = any(map(os.path.islink, self._profile.hidden))
        self._known = (states, there, absent) if is_lasting and not has_links else None
        return there, absent


def _state(folder: str) -> tuple[int, int, int] | None:
    try:
        state = os.stat(folder)
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_ctime_ns
