"""How a process that is not our child has ended, as the kernel tells it.

bubblewrap says 137 both of a command that signal 9 ended and of one that exited with 137. The kernel keeps what it was
for whoever holds a descriptor of the process (Linux 6.15); elsewhere nobody knows, and nothing is claimed.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct

__all__ = ["can_tell_exits", "exit_code_of"]

_INFO = struct.Struct("Q52xi")  # what is wanted and was given, and the wait status at the end of `struct pidfd_info`
_GET_INFO = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11
_EXIT = 1 << 3


def can_tell_exits() -> bool:
    """Whether this kernel keeps how a process ended after its parent has heard of it."""
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (6, 15)


def exit_code_of(process: int) -> int | None:
    """The exit code of an ended process, by its descriptor, or minus the signal that ended it, if the kernel says."""
    info = bytearray(_INFO.pack(_EXIT, 0))
    try:
        fcntl.ioctl(process, _GET_INFO, info)
    except OSError:
        return None
    given, status = _INFO.unpack(info)
    return os.waitstatus_to_exitcode(status) if given & _EXIT else None
