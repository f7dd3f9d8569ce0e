"""Which of many names fit a few letters, and in which order.

Owns the comparison: letters in their order, anywhere in a name; fast for many thousands of names and bounded for any.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["fitting"]

_MOST_RANKED = 3000
_LONGEST = 60


def fitting(names: Sequence[str], typed: str, most: int) -> list[str]:
    """The names that have the letters in their order, the best first: what is typed in one piece before what is
    scattered, the name itself before its folder, the short before the long. Case does not matter."""
    typed = typed[:_LONGEST].casefold()
    if not typed:
        return list(names[:most])
    # One pattern over all names at once; each part ends at the first letter that fits and is not tried again.
    parts = [f"(?>[^\n{re.escape(letter)}]*{re.escape(letter)})" for letter in typed if letter != "\n"]
    pattern = re.compile(f"^{''.join(parts)}", re.MULTILINE)
    joined = "\n".join(names).casefold()
    if joined.count("\n") != len(names) - 1:  # a name with a line end in it: none that is listed
        return []
    found: list[tuple[tuple[int, int, int], int]] = []
    line, end = 0, 0
    for match in pattern.finditer(joined):
        line += joined.count("\n", end, match.start())
        end = match.start()
        found.append((_rank(names[line].casefold(), typed), line))
        if len(found) >= _MOST_RANKED:
            break
    return [names[number] for _, number in sorted(found)[:most]]


def _rank(name: str, typed: str) -> tuple[int, int, int]:
    path = name.rstrip("/")
    last = path.rpartition("/")[2]
    if typed in (last, path, name):
        kind = 0
    elif last.startswith(typed) or path.startswith(typed):
        kind = 1
    elif typed in last:
        kind = 2
    elif typed in name:
        kind = 3
    else:
        kind = 4 if _is_in_order(last, typed) else 5
    return kind, name.count("/"), len(name)


def _is_in_order(name: str, typed: str) -> bool:
    at = -1
    for letter in typed:
        at = name.find(letter, at + 1)
        if at < 0:
            return False
    return True
