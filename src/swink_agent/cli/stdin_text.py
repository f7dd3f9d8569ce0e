"""What was piped in.

Owns reading stdin: of a terminal only when that is wanted, to its end, decoded whatever it is, and not more than a
model can use.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable

from swink_agent.app.errors import UsageProblem
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted

__all__ = ["read_stdin"]

MOST_BYTES = 10 * 1024 * 1024
_PATIENCE = 3.0
_GLANCE = 0.05
"""Seconds between looks at whether anybody still wants it: a read that waits could not be broken off."""


def read_stdin(
    warn: Callable[[str], None],
    *,
    cancel: CancellationToken | None = None,
    descriptor: int = 0,
    most_bytes: int = MOST_BYTES,
    patience: float = _PATIENCE,
    at_terminal: Callable[[], None] | None = None,
) -> str:
    """The text on stdin; nothing if it is closed. Raises `UsageProblem` if it is too much.

    Of a terminal nothing is read either, unless `at_terminal` is given: it is called first, to tell whoever is there to
    type. Who forgot that something holds stdin open is told so after a while. Raises `Aborted` soon after a
    cancellation.
    """
    try:
        mode = os.fstat(descriptor).st_mode
        is_terminal = os.isatty(descriptor)
        if stat.S_ISDIR(mode) or (is_terminal and at_terminal is None):
            return ""
        if is_terminal and at_terminal is not None:
            at_terminal()
            patience = float("inf")  # who types takes the time that it takes
        data = _read(descriptor, most_bytes, patience, warn, cancel or CancellationToken())
    except OSError as error:
        raise UsageProblem(f"stdin cannot be read: {error.strerror or error}") from error
    if len(data) > most_bytes:
        raise UsageProblem(
            f"stdin is longer than {most_bytes // (1024 * 1024)} MiB, which no model reads at once: "
            "save it to a file in the folder and ask about that file"
        )
    return decoded(data, warn)


def decoded(data: bytes, warn: Callable[[str], None]) -> str:
    """UTF-8 text; what is none is replaced, and said."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        text = data.decode(errors="replace")
        warn(f"stdin is not UTF-8 text (byte {error.start}): {text.count('�')} places in it were replaced")
        return text


def _read(
    descriptor: int, most_bytes: int, patience: float, warn: Callable[[str], None], cancel: CancellationToken
) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= most_bytes:
        while not select.select([descriptor], [], [], min(_GLANCE, max(patience, 0)))[0]:
            if cancel.is_cancelled:
                raise Aborted("the reading of stdin was cancelled")
            if patience > 0 and (patience := patience - _GLANCE) <= 0:
                patience = float("inf")
                warn("waiting for the end of stdin; </dev/null gives none")
        piece = os.read(descriptor, 1 << 20)
        if not piece:
            break
        patience = float("inf")  # something came: whoever sends it is at work
        pieces.append(piece)
        size += len(piece)
        if cancel.is_cancelled:
            raise Aborted("the reading of stdin was cancelled")
    return b"".join(pieces)
