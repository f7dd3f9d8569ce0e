"""Finds the names or items that match the typed text, the best first.

Every name is compared, so that an exact match is not lost among many names that merely contain the letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from heapq import nsmallest

from swink_agent.app.talk.front import PickItem

_LONGEST = 60
_AT_ONCE = 2000
"""The number of names that are compared before `goes_on` is called again."""
_MOST_SCATTERED = 3000
_WORD_START = "/_-. "


def fitting(names: Sequence[str], typed: str, most: int, *, goes_on: Callable[[], bool] = lambda: True) -> list[str]:
    """Returns at most `most` names that contain the typed letters in order, the best first; case does not matter.

    Best is the name itself, then its beginning, the beginning of a word in it, elsewhere in it, in its folder, and last
    come scattered letters; among equals, fewer folders and then shorter paths come first. Returns nothing once
    `goes_on` returns `False`.
    """
    typed = typed[:_LONGEST].casefold()
    if not typed:
        return list(names[:most])
    whole: list[tuple[tuple[int, int, int], int]] = []
    for start in range(0, len(names), _AT_ONCE):
        if not goes_on():
            return []
        part = [name.casefold() for name in names[start : start + _AT_ONCE]]
        found = [(_rank(name, typed), number) for number, name in enumerate(part, start) if typed in name]
        whole = nsmallest(most, whole + found) if len(whole) + len(found) > 4 * most else whole + found
    best = [names[number] for _, number in sorted(whole)[:most]]
    return best if len(best) == most else [*best, *_scattered(names, typed, most - len(best), goes_on)]


def _rank(name: str, typed: str) -> tuple[int, int, int]:
    path = name.removesuffix("/")
    last = path.rpartition("/")[2]
    if typed in (last, path, name):
        kind = 0
    elif last.startswith(typed) or ("/" in typed and path.startswith(typed)):
        kind = 1
    elif typed in last:
        kind = 2 if _begins_word(last, typed) else 3
    else:
        kind = 4 if name.startswith(typed) or _begins_word(name, typed) else 5
    return kind, name.count("/"), len(name)


def _begins_word(name: str, typed: str) -> bool:
    return any(f"{sign}{typed}" in name for sign in _WORD_START)


def _scattered(names: Sequence[str], typed: str, most: int, goes_on: Callable[[], bool]) -> list[str]:
    """Returns names that contain the letters in order, but not in one piece."""
    # Atomic groups: each part ends at the first letter that fits, without backtracking.
    pattern = re.compile("".join([f"(?>[^{re.escape(letter)}]*{re.escape(letter)})" for letter in typed]), re.DOTALL)
    found: list[tuple[tuple[int, int, int], int]] = []
    for start in range(0, len(names), _AT_ONCE):
        if not goes_on():
            return []
        for number, name in enumerate(names[start : start + _AT_ONCE], start):
            folded = name.casefold()
            if typed not in folded and pattern.match(folded) is not None:
                last = folded.removesuffix("/").rpartition("/")[2]
                kind = 0 if pattern.match(last) is not None else 1
                found.append(((kind, folded.count("/"), len(folded)), number))
        if len(found) >= _MOST_SCATTERED:
            break
    return [names[number] for _, number in nsmallest(most, found)]


def matching(items: Sequence[PickItem], typed: str) -> list[PickItem]:
    """Returns the items that contain every word, in the given order; if there are none, those that contain the letters
    in order, the best first."""
    words = typed.casefold().split()
    if not words:
        return list(items)
    texts = [f"{item.label} {item.detail}".replace("\n", " ").casefold() for item in items]
    found = [item for item, text in zip(items, texts, strict=True) if all(word in text for word in words)]
    if found:
        return found
    by_label: dict[str, PickItem] = {}
    for item in items:
        by_label.setdefault(item.label.replace("\n", " "), item)
    return [by_label[label] for label in fitting(list(by_label), typed, 200)]
