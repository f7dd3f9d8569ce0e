"""Finds the names or items that match what is typed, the best first.

Every name is compared: an exact match is never lost among many that merely contain the letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from heapq import nsmallest

from swink_agent.app.talk.front import PickItem

_LONGEST = 60
_AT_ONCE = 2000
"""Names that are compared before `goes_on` is called again."""
_MOST_SCATTERED = 3000
_WORD_START = "/_-. "


def fitting(names: Sequence[str], typed: str, most: int, *, goes_on: Callable[[], bool] = lambda: True) -> list[str]:
    """The names that have the letters in their order, the best first: the name itself, its beginning, a word in it,
    what is typed in one piece elsewhere in the name, then in its folder, and what is scattered; the short before the
    long. Case does not matter. Nothing once `goes_on` says no."""
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
    """Names with the letters in their order, but not in one piece."""
    # Each part ends at the first letter that fits and is not tried again.
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
    """The items with every word, in their own order; else those with the letters in order, the best first."""
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
