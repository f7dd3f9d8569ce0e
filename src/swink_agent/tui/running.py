"""The full-screen program from its start to the normal screen that it leaves behind.

Owns signals, the one exit code, and what is printed when the screen is given back: the last answer and how to go on,
also after a crash, a hang-up or an end by signal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

from swink_agent.policies.escaping import safe_text

from .app import SwinkApp
from .talk.farewell import Farewell
from .talk.options import TalkOptions

__all__ = ["run_full_screen"]

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_DEBUG = "SWINK_DEBUG"


def run_full_screen(options: TalkOptions) -> int:
    """The program, to its exit code."""
    app = SwinkApp(options)
    farewell, code = asyncio.run(_run(app))
    _take_leave(farewell)
    if app.crash is not None:
        _tell_crash(app.crash)
        return 1
    return code


async def _run(app: SwinkApp) -> tuple[Farewell, int]:
    code = 0
    with _signals(app):
        try:
            await app.run_async()
            code = app.return_code or 0
        finally:
            farewell = await app.talk.close()
    return farewell, code


@contextmanager
def _signals(app: SwinkApp) -> Generator[None]:
    """Ends in good order when the system or the terminal says so; an interrupt from outside stops what runs."""
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
    try:
        if farewell.text:
            sys.stdout.write(f"{farewell.text}\n")
        sys.stdout.flush()
    except OSError:
        pass  # the terminal is gone


def _tell_crash(crash: BaseException) -> None:
    from swink_agent.core.redaction import Redactor

    if os.environ.get(_DEBUG):
        import traceback

        text = "".join(traceback.format_exception(crash))
    else:
        text = f"error: the screen failed: {type(crash).__name__}: {crash}\n"
        text += f"(this should not happen; {_DEBUG}=1 shows where)\n"
    try:
        sys.stderr.write(safe_text(Redactor().redact(text)))
        sys.stderr.flush()
    except OSError:
        pass
