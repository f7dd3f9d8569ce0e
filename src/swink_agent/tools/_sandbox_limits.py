"""Finds out from a command's output which limit of the sandbox it met.

Reads error messages. A message alone proves nothing, so it counts only together with a fact: that the sandbox has no
network, or that this user could have written the file that the command could not. A command that fails silently, or
with other words, is not recognised.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from swink_agent.sandbox import SandboxProfile
from swink_agent.sandbox.profile import is_beneath

__all__ = ["NO_NETWORK", "READ_ONLY_OUTSIDE", "limits_met"]

NO_NETWORK = "no network"
READ_ONLY_OUTSIDE = "read-only outside the folder"

_LAST_LINES = 40
_LONGEST_LINE = 2000
_UNREACHABLE = re.compile(
    r"could not resolve (?:host|proxy)|name or service not known|nodename nor servname|name resolution"
    r"|network is (?:unreachable|down)|no route to host|\bENETUNREACH\b|\bEAI_AGAIN\b|\bENOTFOUND\b|no such host"
    r"|unable to resolve host|failed to lookup address|dns error|connect: (?:permission denied|operation not permitted)"
    r"|socket: (?:permission denied|operation not permitted)|connect to \S+ .*(?:permission denied|not permitted)"
    r"|dial (?:tcp|udp)\b.*(?:denied|not permitted|unreachable)"
    r"|failed to connect to (?!localhost\b|127\.|\[?::1\b)\S+ port \d",  # curl, if the host is an address
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"read-only file ?system|permission denied|operation not permitted|\bEROFS\b|\bEACCES\b", re.IGNORECASE
)
_BETWEEN = re.compile(r"\W*(?:failed|error)?\W*(?:errno \d+)?\W*", re.IGNORECASE)
_QUOTES = "'\"`\u2018\u2019"
_PATH = re.compile(
    rf"[{_QUOTES}]((?:~|\.\.)?/[^{_QUOTES}\n]+)[{_QUOTES}]|(?<![\w./~:-])((?:~|(?:\.\./)*\.\.)?/[^\s{_QUOTES}:,;()]+)"
)


def limits_met(output: str, profile: SandboxProfile, folder: str) -> list[str]:
    """The limits that a failed command in `folder` reported, in words; none if its output names none."""
    lines = [line[:_LONGEST_LINE] for line in output.splitlines()[-_LAST_LINES:]]
    met: list[str] = []
    if not profile.network and any(map(_UNREACHABLE.search, lines)):
        met.append(NO_NETWORK)
    denied = (path for line in lines if _DENIED.search(line) for path in _paths_in(line, folder))
    if any(_is_walled_off(path, profile) for path in denied):
        met.append(READ_ONLY_OUTSIDE)
    return met


def _paths_in(line: str, folder: str) -> Iterable[str]:
    """The path of each refusal in a line: the next one after it, or the one directly before it.

    Not just any path: a shell begins its messages with its own.
    """
    found = list(_PATH.finditer(line))
    for denied in _DENIED.finditer(line):
        after = [match for match in found if match.start() >= denied.end()][:1]
        before = [match for match in found if match.end() <= denied.start()][-1:]
        before = [match for match in before if _BETWEEN.fullmatch(line, match.end(), denied.start())]
        for match in after or before:
            path = os.path.expanduser(match[1] or match[2])
            yield os.path.normpath(os.path.join(folder, path.rstrip(".")))


def _is_walled_off(path: str, profile: SandboxProfile) -> bool:
    """Whether this user could write it and a command may not, because it is outside the command's folders."""
    real = os.path.realpath(path)
    if any(is_beneath(real, root) for root in profile.write):
        return False
    if any(is_beneath(place, hidden) for hidden in profile.hidden for place in (path, real)):
        return False  # another limit
    if os.path.isdir(real) or not os.path.lexists(real):
        place = real
        while not os.path.isdir(place):
            place = os.path.dirname(place)
        return os.access(place, os.W_OK | os.X_OK)
    return os.path.isfile(real) and os.access(real, os.W_OK)
