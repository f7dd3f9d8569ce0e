"""Escapes untrusted text for the terminal, with a fast path for ordinary text.

Owns only the test for ordinary text; `rendering.escaping` escapes the rest.
"""

from __future__ import annotations

import re
from functools import lru_cache

from swink_agent.rendering.cells import expand_tabs
from swink_agent.rendering.escaping import safe_text

ORDINARY = (
    " -~"  # ASCII
    "\u00a1-\u00ac\u00ae-\u02af"  # Latin
    "\u0410-\u044f\u03b1-\u03c9"  # Cyrillic and Greek letters
    "\u2013\u2014\u2018\u2019\u201c\u201d\u2022\u2026\u20ac"
    "\u2190-\u2193\u2200-\u220f\u2500-\u257f\u2580-\u259f\u25a0-\u25cf\u2705\u2713\u2714\u2717\u274c"
    "\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
)
"""Characters that are never escaped, whatever their neighbours are."""


@lru_cache(1)
def _odd() -> re.Pattern[str]:
    return re.compile(f"[^{ORDINARY}]")  # compiled on first use, because so many ranges take a while


def safe(line: str) -> str:
    """Returns one or more lines escaped as by `safe_text`, with tabs expanded to blanks."""
    if line.isascii():
        if line.isprintable():
            return line
    elif _odd().search(line) is None:
        return line
    if "\n" in line:
        return "\n".join([safe(part) for part in line.split("\n")])
    return expand_tabs(safe_text(line.removesuffix("\r")))


def safe_row(text: str) -> str:
    """Returns text escaped and as one line: every run of white space becomes one blank."""
    return safe(" ".join(text.split()))
