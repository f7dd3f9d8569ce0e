"""What was piped in.

Owns reading stdin: only when it is no terminal, to its end, decoded whatever it is, and not more than a model can use.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable

from swink_agent.app.errors import UsageProblem

__all__ = ["read_stdin"]

MOST_BYTES = 10 * 1024 * 1024
_PATIENCE = 3.0


def read_stdin(
    warn: Callable[[str], None], *, descriptor: int = 0, most_bytes: int = MOST_BYTES, patience: float = _PATIENCE
) -> str:
    """The text on stdin; nothing if it is a terminal or closed. Raises `UsageProblem` if it is too much.

    Who forgot that something holds stdin open is told so after a while.
    """
    try:
        mode = os.fstat(descriptor).st_mode
        if os.isatty(descriptor) or stat.S_ISDIR(mode):
            return ""
        data = _read(descriptor, most_bytes, patience, warn)
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


def _read(descriptor: int, most_bytes: int, patience: float, warn: Callable[[str], None]) -> bytes:
    if not select.select([descriptor], [], [], patience)[0]:
        warn("waiting for the end of stdin; </dev/null gives none")
    pieces: list[bytes] = []
    size = 0
    while size <= most_bytes and (piece := os.read(descriptor, 1 << 20)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)
