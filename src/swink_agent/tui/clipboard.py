"""The system's own clipboard, beside the one that the terminal keeps.

Owns which program is asked. The terminal is asked by the screen (OSC 52), which also works from another machine; where
that is switched off, or not understood, the program does it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from threading import Thread

__all__ = ["clipboard_command", "copy_beside"]

_PATIENCE = 2.0


def clipboard_command(environ: Mapping[str, str], platform: str = sys.platform) -> tuple[str, ...] | None:
    """The program that takes text for the clipboard on its standard input, as far as there is a screen to have one."""
    if platform == "darwin":
        return ("/usr/bin/pbcopy",)
    if environ.get("WAYLAND_DISPLAY"):
        return ("wl-copy",)
    if environ.get("DISPLAY"):
        return ("xclip", "-selection", "clipboard")
    return None


def copy_beside(text: str, environ: Mapping[str, str]) -> None:
    """Hands text to the system's clipboard, in a thread, and does without where there is none."""
    command = clipboard_command(environ)
    if command is not None:
        Thread(target=_copy, args=(command, text, dict(environ)), daemon=True).start()


def _copy(command: tuple[str, ...], text: str, environ: Mapping[str, str]) -> None:
    try:
        subprocess.run(
            command,
            input=text.encode("utf-8", "replace"),
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass  # the terminal has it, or nobody does
