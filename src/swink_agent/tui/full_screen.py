"""Runs the full-screen program, and restores the normal screen when it ends.

Owns signals, the exit code, and the text that is printed at the end, also after a crash, a hang-up or a signal: the
last answer and how to resume.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

from swink_agent.app.talk.options import Farewell, TalkOptions
from swink_agent.rendering.escaping import safe_text

from .app import SwinkApp
from .terminal_output import own_descriptor, write_patiently

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_DEBUG = "SWINK_DEBUG"
_PATIENCE = 2.0
"""Seconds without progress after which the last output is dropped."""

_STARTED = 2.0
"""Seconds after which all modules are loaded. From then on the garbage collector skips the objects that exist by then;
traversing them would pause the program for 60 ms each time."""


def run_full_screen(options: TalkOptions) -> int:
    """Runs the program and returns its exit code."""
    app = SwinkApp(options)
    farewell, code = asyncio.run(_run(app))
    _take_leave(farewell)
    if app.crash is not None:
        _tell_crash(app, app.crash)
        return 1
    return code


async def _run(app: SwinkApp) -> tuple[Farewell, int]:
    code = 0
    asyncio.get_running_loop().call_later(_STARTED, gc.freeze)
    with _signals(app):
        try:
            await app.run_async()
            code = app.return_code or 0
        finally:
            farewell = await app.talk.close()
    return farewell, code


@contextmanager
def _signals(app: SwinkApp) -> Generator[None]:
    """Ends cleanly on SIGTERM and SIGHUP; SIGINT does what Ctrl+C does."""
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.add_signal_handler(number, app.leave, 128 + number)
    loop.add_signal_handler(signal.SIGINT, app.action_interrupt)
    try:
        yield
    finally:
        for number in (*_ENDING, signal.SIGINT):
            loop.remove_signal_handler(number)


def _take_leave(farewell: Farewell) -> None:
    if farewell.text:
        _write(sys.stdout, f"{farewell.text}\n")


def _tell_crash(app: SwinkApp, crash: BaseException) -> None:
    if os.environ.get(_DEBUG):
        import traceback

        text = "".join(traceback.format_exception(crash))
    else:
        text = f"error: the screen failed: {type(crash).__name__}: {crash}\n"
        text += f"(this should not happen; {_DEBUG}=1 shows where)\n"
    _write(sys.stderr, safe_text(app.talk.redact(text)))


def _write(stream: TextIO, text: str) -> None:
    """Writes text in any locale; gives up if the terminal is gone or does not read."""
    try:
        stream.flush()
        fd = own_descriptor(stream.fileno())
    except (OSError, ValueError):
        return
    try:
        write_patiently(fd, text, is_over=lambda seconds: seconds > _PATIENCE)
    finally:
        os.close(fd)
