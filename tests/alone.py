"""Makes a test that needs the whole machine run while no other test does, with any number of workers."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def taken(folder: Path, *, alone: bool) -> Iterator[None]:
    """Holds the room: together with others, or alone.

    Who wants it alone keeps the door shut while waiting. Without one, those who come and go together would never all
    be out.
    """
    with ExitStack() as held:
        door = held.enter_context(_locked(folder / "door", fcntl.LOCK_EX))
        held.enter_context(_locked(folder / "room", fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        if not alone:
            fcntl.flock(door, fcntl.LOCK_UN)
        yield


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[int]:
    with path.open("a") as file:
        fcntl.flock(file, kind)
        try:
            yield file.fileno()
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # closing would leave it to a child that was forked from here
