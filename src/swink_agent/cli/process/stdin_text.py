"""Reads stdin to its end, as text and up to a limit. A terminal is read only on request."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable

from swink_agent.app.errors import UsageProblem
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.errors import Aborted

MOST_BYTES = 10 * 1024 * 1024
_PATIENCE = 3.0
_GLANCE = 0.05
"""Seconds between checks for a cancellation: a blocking read could not be interrupted."""


def read_stdin(
    warn: Callable[[str], None],
    *,
    cancel: CancellationToken | None = None,
    descriptor: int = 0,
    most_bytes: int = MOST_BYTES,
    patience: float = _PATIENCE,
    at_terminal: Callable[[], None] | None = None,
) -> str:
    """Returns the text on stdin, or nothing if it is closed. Raises `UsageProblem` if it is too long.

    A terminal is read only if `at_terminal` is given, which is called first to tell the user to type. If stdin stays
    open without data, a warning says so after `patience` seconds. Raises `Aborted` soon after a cancellation.
    """
    try:
        mode = os.fstat(descriptor).st_mode
        is_terminal = os.isatty(descriptor)
        if stat.S_ISDIR(mode) or (is_terminal and at_terminal is None):
            return ""
        if is_terminal and at_terminal is not None:
            at_terminal()
            patience = float("inf")  # a person who types may take any time
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
    """Decodes UTF-8. Other bytes are replaced, with a warning."""
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
        patience = float("inf")  # data arrived: the sender is working
        pieces.append(piece)
        size += len(piece)
        if cancel.is_cancelled:
            raise Aborted("the reading of stdin was cancelled")
    return b"".join(pieces)
