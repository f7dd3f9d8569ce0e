"""Writing to a terminal that may not read: as long as somebody wants to wait, and no longer.

Owns the descriptor that never blocks and the waiting. Who writes what, and in which thread, is for the callers.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

__all__ = ["own_descriptor", "write_patiently"]

_PIECE = 4096


def own_descriptor(fd: int) -> int:
    """The same terminal by a descriptor of our own that never blocks: to set that on `fd` would set it for the shell
    too. A copy of `fd` where there is no such thing; close it either way."""
    try:
        own = os.open(os.ttyname(fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return os.dup(fd)
    if os.fstat(own).st_rdev != os.fstat(fd).st_rdev:
        os.close(own)
        return os.dup(fd)
    return own


def write_patiently(fd: int, text: str, *, is_over: Callable[[float], bool]) -> bool:
    """Writes all of it, or gives up when `is_over` says so of the seconds without progress; says whether it was all."""
    rest = memoryview(text.encode("utf-8", "replace"))
    since = time.monotonic()
    while rest:
        try:
            if not select.select([], [fd], [], 0.05)[1]:
                if is_over(time.monotonic() - since):
                    return False
                continue
            rest = rest[os.write(fd, rest[:_PIECE]) :]
            since = time.monotonic()
        except BlockingIOError:
            continue
        except (OSError, ValueError):
            return False
    return True
