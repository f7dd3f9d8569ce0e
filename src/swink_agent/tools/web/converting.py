"""The body of an answer as text, by its encoding, and HTML as Markdown or as plain text.

The conversion runs in a separate process (`html_process`), because a hostile page can make any parser slow or large.
It is killed after a few seconds; the page is then shown as plain text, which takes one pass. Only encodings that pages
use are read. Python has others that take quadratic time, or that hide text (UTF-7).
"""

from __future__ import annotations

import asyncio
import codecs
import re
import subprocess
import sys
from html import unescape
from string import ascii_uppercase

from swink_agent.sandbox.starting import run_program

from . import html_process

CONVERTER = "html_to_markdown"
SECONDS = 5.0
_SILENT = frozenset({"script", "style", "template", "noscript", "svg", "iframe", "object"})
_LOWER = str.maketrans({letter: letter.lower() for letter in ascii_uppercase})
"""ASCII only: `str.lower` changes the length of some texts."""
_BREAKS = frozenset(
    {*("p", "div", "br", "li", "tr", "table", "section", "article", "title"), *(f"h{n}" for n in range(1, 7)), "pre"}
)
_EMPTY = frozenset({"br", "hr", "img", "input", "link", "meta", "area", "base", "col", "embed", "source", "wbr"})
"""Elements that have no end tag."""
_TAG = re.compile(r"<(?:(/?)([a-z][^\s/>]*)|[!?/])")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_HIDDEN = re.compile(r"[\s/]hidden(?![^\s/=])")
_PAGE_ENCODINGS = re.compile(
    r"utf-8(-sig)?|utf-16(-le|-be)?|iso8859-\d+|cp(125\d|866|874|932|949|950)|koi8-[ru]|mac-(roman|cyrillic)"
    r"|shift_jis|euc_(jp|kr)|iso2022_jp|tis-620|gbk|gb2312|gb18030|big5|big5hkscs"
)
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_IN_PAGE = re.compile(rb"<meta\b[^>]{0,300}?\bcharset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_SEARCHED = 1024  # bytes of a page in which its encoding is looked for, as in browsers


async def as_markdown(html: str, url: str) -> tuple[str, bool] | None:
    """The page as Markdown with absolute links, and whether that is all; `None` if it took too long or failed."""
    command = [sys.executable, "-I", html_process.__file__, url]
    data = html.encode(errors="replace")
    try:
        done = await asyncio.to_thread(run_program, command, timeout=SECONDS, given=data, environ={"PYTHONUTF8": "1"})
    except (OSError, subprocess.TimeoutExpired):  # it also fails where commands could have changed the interpreter
        return None
    if done.returncode != 0 or not done.stdout.strip():  # it leaves out deeply nested elements, silently
        return None
    most = html_process.MOST_MARKDOWN
    return done.stdout[:most].decode(errors="ignore"), len(done.stdout) <= most


def plain_text(html: str) -> str:
    """The text of a page, without its tags and its hidden elements. Takes one pass for any page."""
    parts: list[str] = []
    lower = html.translate(_LOWER)
    ends = _TagEnds(html)
    hidden, depth = "", 0  # the name of the hidden element that this is in, and how many of that name are open
    place = 0
    while found := _TAG.search(lower, place):
        start = found.start()
        if not hidden:
            parts.append(html[place:start])
        if lower.startswith("<!--", start):
            place = _after(lower, "-->", start + 4)
        else:
            closing, name = found[1], found[2]
            if (end := ends.after(found.end())) < 0:
                break
            place = end + 1
            if name in _SILENT and not closing:
                place = _after(lower, ">", lower.find(f"</{name}", place))
            elif hidden:
                depth += (name == hidden) * (-1 if closing else 1)
                hidden = hidden if depth else ""
            elif name and not closing and name not in _EMPTY and _HIDDEN.search(_QUOTED.sub("", lower[start:end])):
                hidden, depth = name, 1
            elif name in _BREAKS:
                parts.append("\n")
    else:
        parts.append("" if hidden else html[place:])
    lines = [" ".join(line.split()) for line in unescape("".join(parts)).splitlines()]
    return "\n".join(line for line in lines if line)


class _TagEnds:
    """Where tags end: at the first `>` outside quotes. Each quote that is never closed is looked for once."""

    def __init__(self, html: str) -> None:
        self._html = html
        self._quotes = "\"'"
        self._stops = re.compile(r"[>\"']")

    def after(self, place: int) -> int:
        """The place of the `>`, or -1."""
        while found := self._stops.search(self._html, place):
            if found[0] == ">":
                return found.start()
            closed = self._html.find(found[0], found.end())
            if closed < 0:
                self._quotes = self._quotes.replace(found[0], "")
                self._stops = re.compile(f"[>{self._quotes}]")
            place = found.end() if closed < 0 else closed + 1
        return -1


def _after(text: str, wanted: str, place: int) -> int:
    found = text.find(wanted, place) if place >= 0 else -1
    return len(text) if found < 0 else found + len(wanted)


def decoded(body: bytes, charset: str | None, *, is_html: bool) -> str:
    """The text, decoded by its byte order mark, else the header's charset, an HTML page's declaration, or UTF-8."""
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return body.decode(encoding, errors="replace")
    known = _page_encoding(charset or "")
    if known is None and is_html and (found := _IN_PAGE.search(body, 0, _SEARCHED)):
        known = _page_encoding(found[1].decode("ascii", "replace"))
        if known is not None and known.startswith("utf-16"):
            known = None  # the page could be read as far as this: it is not UTF-16
    return body.decode(known or "utf-8", errors="replace")


def _page_encoding(name: str) -> str | None:
    """Python's name of an encoding of pages; `None` for any other name."""
    try:
        known = codecs.lookup(name.strip("\"' ")).name
    except (LookupError, ValueError):
        return None
    if known in ("iso8859-1", "ascii"):
        return "cp1252"  # what pages mean by it
    return known if _PAGE_ENCODINGS.fullmatch(known) else None
