"""HTML as Markdown, or as plain text.

The conversion runs in a process of its own (`html_process`), because a hostile page can make any parser slow or large.
The process is ended after a few seconds; the page is then shown as plain text, which one pass over it makes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from html import unescape
from string import ascii_uppercase

from swink_agent.sandbox.starting import run_program

from . import html_process

CONVERTER = "html_to_markdown"
SECONDS = 5.0
_SILENT = ("script", "style", "template", "noscript", "head", "svg", "iframe", "object")
_LOWER = str.maketrans({letter: letter.lower() for letter in ascii_uppercase})
"""`str.lower` changes the length of some texts."""
_BREAKS = ("p", "div", "br", "li", "tr", "table", "section", "article", "h1", "h2", "h3", "h4", "h5", "h6", "pre")


async def as_markdown(html: str, url: str) -> str | None:
    """The page as Markdown with absolute links; `None` if it took too long or failed."""
    command = [sys.executable, "-I", html_process.__file__, url]
    data = html.encode(errors="replace")
    try:
        done = await asyncio.to_thread(run_program, command, timeout=SECONDS, given=data, environ={"PYTHONUTF8": "1"})
    except (OSError, subprocess.TimeoutExpired):  # it also fails where commands could have changed the interpreter
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def plain_text(html: str) -> str:
    """The text of a page, without its tags: one pass, whatever the page is."""
    parts: list[str] = []
    lower = html.translate(_LOWER)
    place = 0
    while True:
        start = html.find("<", place)
        if start < 0:
            parts.append(html[place:])
            break
        parts.append(html[place:start])
        if lower.startswith("<!--", start):
            place = _after(lower, "-->", start + 4)
            continue
        end = html.find(">", start)
        if end < 0:
            break
        name = lower[start + 1 : end].strip("/").partition(" ")[0].strip()
        place = end + 1
        if name in _SILENT and lower[start + 1] != "/":
            place = _after(lower, ">", lower.find(f"</{name}", place))
        elif name in _BREAKS:
            parts.append("\n")
    lines = [" ".join(line.split()) for line in unescape("".join(parts)).splitlines()]
    return "\n".join(line for line in lines if line)


def _after(text: str, wanted: str, place: int) -> int:
    found = text.find(wanted, place) if place >= 0 else -1
    return len(text) if found < 0 else found + len(wanted)
