"""Edits a text in the user's own editor, in a private file that is deleted afterwards.

Owns which program runs and what its exit means. The caller lends the terminal and takes it back; the event loop keeps
running meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from swink_agent.sandbox.starting import check_words, start_program

_PATIENCE = 1.0
"""Seconds that an editor has to exit once the caller no longer waits for it."""
_LARGEST = 8 * 1024 * 1024


class EditorError(Exception):
    """The editor cannot be run, or its result cannot be used; the message has the reason and the remedy."""


def editor_command(environ: Mapping[str, str]) -> list[str]:
    """Returns the command's words: `$VISUAL`, else `$EDITOR`, else `vi`. Raises `EditorError` for an open quote."""
    for name in ("VISUAL", "EDITOR"):
        given = environ.get(name, "").strip()
        if given:
            try:
                words = shlex.split(given)
            except ValueError as error:
                raise EditorError(f"${name} is {given!r}, which is not a command ({error}): change it") from None
            if words:
                return words
    return ["vi"]


async def edited(text: str, environ: Mapping[str, str], outside: Sequence[str] | None = None) -> str | None:
    """Returns the text as the user left it; `None` if the editor failed or left only spaces.

    The editor uses this program's terminal, works in a separate folder, and is ended if the caller is cancelled.
    `outside`: the folders that commands may write, by default the working folder. Raises `EditorError` if the editor
    cannot be started, or if it or a file on its command line is in one of those folders: a command could have replaced
    it.
    """
    command = editor_command(environ)
    with tempfile.TemporaryDirectory(prefix="swink-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "prompt.md"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text)
        try:
            check_words(command[1:], outside=outside)
            with _without_interrupts():
                code = await _run([*command, str(path)], environ, outside, folder)
        except OSError as error:
            raise EditorError(
                f"the editor {shlex.join(command)!r} cannot be run ({error.strerror or error}): "
                "set VISUAL or EDITOR to one that is installed outside the folders that commands may write"
            ) from None
        if code != 0:
            return None
        written = _read(path)
    return written if written.strip() else None


async def _run(command: Sequence[str], environ: Mapping[str, str], outside: Sequence[str] | None, folder: str) -> int:
    process = start_program(command, environ=environ, outside=outside, cwd=folder, stdin=None, stdout=None, stderr=None)
    try:
        return await asyncio.to_thread(process.wait)
    except asyncio.CancelledError:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, _PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


def _read(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise EditorError(f"the edited text cannot be read: {error.strerror or error}") from None
    if len(data) > _LARGEST:
        raise EditorError(f"the edited text is larger than {_LARGEST // 1024 // 1024} MB: shorten it")
    return data.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")


@contextmanager
def _without_interrupts() -> Generator[None]:
    """Leaves Ctrl+C to the editor: this program, in the same process group, must not end.

    Installs handlers instead of ignoring the signals, because the editor would inherit ignored signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda number, frame: None) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
