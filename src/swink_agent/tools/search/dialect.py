"""What a pattern may not have, so that both search engines refuse the same.

Ripgrep reads patterns by Rust's `regex`, our own scanner by Python's `re`. Their syntax is nearly the same.
"""

from __future__ import annotations

import re

_ELSEWHERE = "write the pattern without it, or run grep -P with bash"
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_PYTHON_ONLY = re.compile(r"\(\?[>(#]")
_REFERENCE = re.compile(r"[1-9]|k[<{']")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def why_unsupported(pattern: str) -> str:
    """The feature of the pattern that one of the engines lacks, and what to do instead; empty if there is none."""
    plain = _ESCAPE.sub("", pattern)
    if _LOOK_AROUND.search(plain):
        return f"look-around, such as (?=…) or (?<!…), is not supported: {_ELSEWHERE}"
    if found := _PYTHON_ONLY.search(plain):
        return f"a group that begins with {found[0]} is not supported: {_ELSEWHERE}"
    references = any(_REFERENCE.match(pattern, match.start(1)) for match in _ESCAPE.finditer(pattern))
    if references or "(?P=" in plain:
        return f"a reference to a group, such as \\1, is not supported: {_ELSEWHERE}"
    return ""
