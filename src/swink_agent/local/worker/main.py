"""The worker process: `python -m swink_agent.local.worker.main SOCKET PARENT`.

It serves one model on a Unix socket, with llama.cpp's own HTTP server. The first line of its input has its settings. It
ends with its parent, or when its input ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from swink_agent.core.values.decoders import json_decoder

from .values import WorkerSettings

CANNOT_LOAD = 76
"""The exit code after the reason was written to the standard error output."""
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 1.0

ServeFn = Callable[[WorkerSettings, str], object]
"""Serves a model on a socket in threads of its own, for as long as the returned object lives."""


def _end_with(parent: int) -> None:
    """Ends the process when its parent has ended, also without a signal."""
    while os.getppid() == parent:  # the parent may have died before `_die_with_parent`
        time.sleep(_POLL_SECONDS)
    os._exit(0)


def _die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent dies, on Linux."""
    if sys.platform == "linux":
        import ctypes

        try:
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        except (OSError, AttributeError):
            pass  # another C library: the end of the input and `_end_with` remain


def main(serve: ServeFn | None = None) -> None:
    _die_with_parent()
    address, parent = sys.argv[1:]
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is meant for the agent, which then ends this process
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        os._exit(0)
    settings = json_decoder(WorkerSettings).decode(line)
    if serve is None:
        from .llama import serve
    try:
        _server = serve(settings, address)  # it serves for as long as there is this name
    except Exception as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(CANNOT_LOAD)
    sys.stdin.buffer.read()  # nothing more is sent: this waits until the parent has gone
    # Exits at once: native threads need not finish their work.
    os._exit(0)


if __name__ == "__main__":
    main()
