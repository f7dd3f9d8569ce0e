"""Opens an address in the user's browser, with a program that no command could have written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

from swink_agent.sandbox.starting import start_program, trusted_program

_PROGRAMS: dict[str, tuple[tuple[str, ...], ...]] = {"darwin": (("open",),)}
_FAILING = 2.0
_USUAL = (("xdg-open",), ("wslview",), ("gio", "open"), ("sensible-browser",))


def browser_program(environ: Mapping[str, str], outside: Sequence[str], platform: str = sys.platform) -> list[str]:
    """The program that opens an address, with its first arguments. Empty if none is found."""
    for words in _PROGRAMS.get(platform, _USUAL):
        try:
            return [trusted_program(words[0], outside=outside, environ=environ), *words[1:]]
        except OSError:
            continue
    return []


def open_in_browser(url: str, environ: Mapping[str, str], outside: Sequence[str]) -> bool:
    """Opens an address; returns whether a program did so. `outside` are folders that commands may write.

    A program that ends with an error within two seconds found no browser. Call it in a thread.
    """
    words = browser_program(environ, outside)
    if not words:
        return False
    try:
        program = start_program([*words, url], environ=environ, outside=outside, new_session=True)
    except OSError:
        return False
    try:
        return program.wait(_FAILING) == 0
    except subprocess.TimeoutExpired:
        return True  # the browser itself, which stays
