"""Opens an address in the user's browser, with a program that no command could have written.

Command lines can be read by everybody on the machine. So an address with a secret goes into a page in a folder of ours,
which other users cannot read and commands do not see, and the browser gets the name of that page.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path

from swink_agent.core.machine.files import replace_file
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


@contextmanager
def leading_page(url: str, folder: Path, name: str) -> Generator[Path]:
    """Writes a page that leads to an address, for the user alone, and deletes it at the end. Raises `OSError`.

    `folder` is one that commands do not see, such as `data_folder()`. The page of a process that was killed stays
    until the next page of that name.
    """
    own = folder / "browser"
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    own.chmod(0o700)
    page, to = own / f"{name}.html", escape(url)
    text = (
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>Swink Agent</title>'
        f'<meta http-equiv="refresh" content="0; url={to}"><a href="{to}">Continue</a>\n'
    )
    replace_file(page, text.encode(), mode=0o600, sync=False)
    try:
        yield page
    finally:
        page.unlink(missing_ok=True)


def open_in_browser(url: str, environ: Mapping[str, str], outside: Sequence[str]) -> bool:
    """Opens an address without secrets; returns whether a program did so. `outside`: folders that commands may write.

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
