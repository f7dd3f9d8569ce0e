"""A text in the editor of the user's choice, in a file that nobody else can read and that is gone afterwards.

Owns which program is run and what its end means. Whoever calls it has given the terminal away, and takes it back; what
else goes on in the event loop goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

__all__ = ["EditorError", "edited", "editor_command"]

_PATIENCE = 1.0
"""Seconds that an editor has to end when it is not waited for any more."""
_LARGEST = 8 * 1024 * 1024


class EditorError(Exception):
    """The editor cannot be run, or what it wrote cannot be used; its text says which and what to do."""


def editor_command(environ: Mapping[str, str]) -> list[str]:
    """The words of the command: `$VISUAL`, else `$EDITOR`, else `vi`. Raises `EditorError` for an open quote."""
    for name in ("VISUAL", "EDITOR"):
        given = environ.get(name, "").strip()
        if given:
            try:
                words = shlex.split(given)
            except ValueError as error:
                raise EditorError(f"${name} is {given!r}, which is no command ({error}): set it to another") from None
            if words:
                return words
    return ["vi"]


async def edited(text: str, environ: Mapping[str, str]) -> str | None:
    """The text as it was left in the editor; nothing if the editor failed, or nothing but spaces is left.

    The editor has the terminal that this program has, and is ended when this is cancelled. Raises `EditorError` where
    it cannot be started.
    """
    command = editor_command(environ)
    with tempfile.TemporaryDirectory(prefix="swink-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "prompt.md"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text)
        try:
            with _without_interrupts():
                code = await _run([*command, str(path)], environ)
        except OSError as error:
            raise EditorError(
                f"the editor {command[0]!r} cannot be run ({error.strerror or error}): "
                "set VISUAL or EDITOR to one that is installed"
            ) from None
        if code != 0:
            return None
        written = _read(path)
    return written if written.strip() else None


async def _run(command: Sequence[str], environ: Mapping[str, str]) -> int:
    process = await asyncio.create_subprocess_exec(*command, env=dict(environ))
    try:
        return await process.wait()
    except asyncio.CancelledError:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _PATIENCE)
        except TimeoutError:
            process.kill()
        raise


def _read(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise EditorError(f"what the editor wrote cannot be read: {error.strerror or error}") from None
    if len(data) > _LARGEST:
        raise EditorError(f"what the editor wrote is larger than {_LARGEST // 1024 // 1024} MB: shorten it")
    return data.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


@contextmanager
def _without_interrupts() -> Generator[None]:
    """Ctrl+C in the editor is the editor's: this program, in the same group, does not end of it.

    With a function, not by ignoring the signal: the editor would inherit that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _nothing) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
