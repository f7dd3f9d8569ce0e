"""Runs one of the user's programs to its end: with a document on stdin, a time limit, and a limit on kept output.

Used for hooks, and for the status line of the terminal UI.
"""

from __future__ import annotations

import os
import secrets
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from swink_agent.core.values.value import Value
from swink_agent.sandbox.kernel.process_tree import kill_descendants, with_variable
from swink_agent.sandbox.starting import check_words, start_program

HOOK_VARIABLE = "SWINK_HOOK"
"""Set for hooks, the status line's program and their child processes. A `swink` with this variable runs no hooks:
otherwise a hook that starts `swink` would start itself again."""
_LOOK = 0.05
"""Seconds between two checks of the clock and the process, while its pipes are silent."""


class ProgramEnd(Value, frozen=True):
    """The exit code of the program, or minus the signal, or `None` after a timeout or `stop`; and its output."""

    code: int | None
    text: str = ""
    errors: str = ""
    """Its stderr, if that is kept apart."""


class OwnProgram:
    """One run of a program. `run` blocks; any thread, and a signal handler, may call `stop`."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        outside: Callable[[], Sequence[str]],
        environ: Mapping[str, str] = os.environ,
        stderr: int = subprocess.STDOUT,
        most_kept: int = 16 * 1024,
    ) -> None:
        """`outside` returns the folders that commands may write to: nothing is started from there.

        `HOOK_VARIABLE` marks the program and its child processes, so that `stop` finds them. `most_kept` bytes of
        output are kept. The rest is read, so that the program does not block, and dropped.
        """
        self._argv = argv
        self._timeout = timeout
        self._outside = outside
        self._environ = environ
        self._stderr = stderr
        self._most_kept = most_kept
        self._mark = secrets.token_hex(16)
        self._is_stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, document: bytes) -> ProgramEnd:
        """Starts the program and waits for its end. Child processes that outlive it are left alone.

        After a timeout, or if `stop` or `give_up` is called, the program and all its child processes are killed.

        Raises `OSError` if it cannot be started, or is in a folder that commands may write to.
        """
        if self._is_stopped.is_set():
            return ProgramEnd(None)
        outside = self._outside()
        check_words(self._argv[1:], outside=outside)
        process = self._process = start_program(
            self._argv,
            outside=outside,
            environ={**self._environ, HOOK_VARIABLE: self._mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            new_session=True,
        )
        printed, errors = bytearray(), bytearray()
        is_over = self._exchange(process, document, printed, errors)
        if not is_over:
            self.stop()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        code = process.wait()
        texts = [kept.decode(errors="replace").strip() for kept in (printed, errors)]
        return ProgramEnd(code if is_over else None, *texts)

    def give_up(self) -> None:
        """Makes `run` kill the program soon, or not start it. Does not wait."""
        self._is_stopped.set()

    def stop(self) -> None:
        """Kills the program and everything that it started."""
        self._is_stopped.set()
        process = self._process
        if process is not None and process.poll() is None:
            kill_descendants(process.pid, partial(with_variable, HOOK_VARIABLE, self._mark))

    def _exchange(
        self, process: subprocess.Popen[bytes], document: bytes, printed: bytearray, errors: bytearray
    ) -> bool:
        """Writes the document and reads the output. Returns whether the program ended in time."""
        end = time.monotonic() + self._timeout
        left = memoryview(document)
        with selectors.DefaultSelector() as pipes:
            for pipe, kept in ((process.stdin, None), (process.stdout, printed), (process.stderr, errors)):
                if pipe is not None:
                    os.set_blocking(pipe.fileno(), False)
                    pipes.register(pipe, selectors.EVENT_WRITE if kept is None else selectors.EVENT_READ, (pipe, kept))
            last_look: float | None = None  # set when it has ended: its children may hold the pipes and still write
            while True:
                if last_look is None and _has_ended(process, 0 if pipes.get_map() else _LOOK):
                    last_look = time.monotonic() + _LOOK
                ready = pipes.select(0 if last_look else _LOOK) if pipes.get_map() else []
                for key, _ in ready:
                    pipe, kept = key.data
                    if kept is not None:
                        is_open = self._read(key.fd, kept)
                    else:
                        left = _write(key.fd, left)
                        is_open = bool(left)
                    if not is_open:
                        pipes.unregister(key.fileobj)
                        pipe.close()
                now = time.monotonic()
                if last_look is not None and (not ready or now >= last_look):
                    return True
                if self._is_stopped.is_set() or now >= end:
                    return False

    def _read(self, pipe: int, kept: bytearray) -> bool:
        """Reads once and keeps the output up to the limit. Returns whether more can come."""
        try:
            data = os.read(pipe, 65_536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        kept += data[: self._most_kept - len(kept)]
        return bool(data)


def _write(pipe: int, left: memoryview) -> memoryview:
    """Writes as much as the pipe takes now. Returns the rest: nothing if the program closed the pipe."""
    try:
        return left[os.write(pipe, left[:65_536]) :]
    except BlockingIOError:
        return left
    except OSError:
        return left[:0]


def _has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
