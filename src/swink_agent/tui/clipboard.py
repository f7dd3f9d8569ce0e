"""The system's clipboard, used in addition to the terminal's.

Owns which program copies text, and which reads a picture or text. The screen uses the terminal's clipboard (OSC 52),
which also works from another machine. A program copies the text too, for terminals without OSC 52. Programs in folders
that commands may write are never started.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from tempfile import mkstemp
from threading import Thread, Timer
from typing import NamedTuple

from swink_agent.sandbox.starting import run_program, start_program

_PATIENCE = 2.0
_LARGEST = 20 * 1024 * 1024
"""Most bytes of a picture or text that are read."""
_PNG = b"\x89PNG\r\n\x1a\n"
_OSASCRIPT = ("osascript", "-e", "get the clipboard as \u00abclass PNGf\u00bb")
"""Every Mac has `osascript`; `pngpaste` is faster where it is installed."""


class ClipboardError(Exception):
    """The clipboard cannot be read; the message is the reason."""


class Pasted(NamedTuple):
    """The content of the clipboard: the path of a picture, or text."""

    picture: str | None
    text: str = ""


def clipboard_command(environ: Mapping[str, str], platform: str = sys.platform) -> tuple[str, ...] | None:
    """Returns the program that copies its standard input to the clipboard; `None` without a graphical screen."""
    if platform == "darwin":
        return ("/usr/bin/pbcopy",)
    if environ.get("WAYLAND_DISPLAY"):
        return ("wl-copy",)
    if environ.get("DISPLAY"):
        return ("xclip", "-selection", "clipboard")
    return None


def copy_beside(text: str, environ: Mapping[str, str], outside: Sequence[str]) -> Thread | None:
    """Copies text to the system's clipboard in a thread; does nothing where there is no clipboard program.

    `outside`: the folders that commands may write.
    """
    command = clipboard_command(environ)
    if command is None:
        return None
    thread = Thread(target=_copy, args=(command, text, dict(environ), tuple(outside)), daemon=True)
    thread.start()
    return thread


def _copy(command: tuple[str, ...], text: str, environ: Mapping[str, str], outside: Sequence[str]) -> None:
    data = text.encode("utf-8", "replace")
    try:
        run_program(command, given=data, environ=environ, outside=outside, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        pass  # the terminal's clipboard may have the text


def read_clipboard(
    environ: Mapping[str, str], outside: Sequence[str], folder: str, platform: str = sys.platform
) -> Pasted:
    """Returns the picture on the clipboard, saved in `folder`, or its text. Raises `ClipboardError`.

    `outside`: the folders that commands may write.
    """
    pictures, texts, missing = _reading_commands(environ, platform)
    is_there = False
    for command in (*pictures, *texts):
        data = _read(command, environ, outside)
        if data is None:
            continue
        is_there = True
        if command in pictures:
            picture = _unwritten(data) if command == _OSASCRIPT else data
            if picture.startswith(_PNG):
                return Pasted(_saved(picture, folder))
        elif text := data.decode("utf-8", "replace"):
            return Pasted(None, text)
    raise ClipboardError("the clipboard holds neither a picture nor text" if is_there else missing)


def _reading_commands(
    environ: Mapping[str, str], platform: str
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]], str]:
    """Returns the commands that print a PNG, those that print text, and the message if none is installed."""
    if platform == "darwin":
        return [("pngpaste", "-"), _OSASCRIPT], [("pbpaste",)], "the clipboard cannot be read: pbpaste is missing"
    if environ.get("WAYLAND_DISPLAY"):
        missing = "the clipboard cannot be read: install wl-clipboard (wl-paste)"
        return [("wl-paste", "--type", "image/png")], [("wl-paste", "--no-newline", "--type", "text")], missing
    if environ.get("DISPLAY"):
        paste = ("xclip", "-selection", "clipboard", "-o")
        return [(*paste, "-t", "image/png")], [paste], "the clipboard cannot be read: install xclip"
    raise ClipboardError("there is no clipboard here (no DISPLAY, no WAYLAND_DISPLAY): name the picture's file instead")


def _unwritten(data: bytes) -> bytes:
    """Decodes the picture that AppleScript prints in hexadecimal: `\u00abdata PNGf89504E47\u2026\u00bb`."""
    text = data.decode("utf-8", "replace").strip()
    try:
        return bytes.fromhex(text.removeprefix("\u00abdata PNGf").removesuffix("\u00bb"))
    except ValueError:
        return b""


def _read(command: tuple[str, ...], environ: Mapping[str, str], outside: Sequence[str]) -> bytes | None:
    """Returns the program's output, empty if it failed; `None` if it cannot be started.

    Raises `ClipboardError` if the output is too large. The program is killed after two seconds.
    """
    try:
        with start_program(command, environ=environ, outside=outside, stdout=subprocess.PIPE) as process:
            killing = Timer(_PATIENCE, process.kill)
            killing.start()
            try:
                assert process.stdout is not None
                data = process.stdout.read(_LARGEST + 1)
                if len(data) > _LARGEST:
                    process.kill()
                    raise ClipboardError(f"the content of the clipboard exceeds {_LARGEST // 1024 // 1024} MiB")
            finally:
                killing.cancel()
            return data if process.wait() == 0 else b""
    except OSError:
        return None


def _saved(data: bytes, folder: str) -> str:
    try:
        descriptor, path = mkstemp(suffix=".png", prefix="clipboard-", dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        raise ClipboardError(f"the picture cannot be saved: {error.strerror or error}") from error
    return path
