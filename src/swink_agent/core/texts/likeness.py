"""Measures how similar two texts are, in bounded time, and finds the most similar names.

It uses the comparison of the standard library and stops it where it would take cubic time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, TypeAlias

Block: TypeAlias = tuple[int, int, int]
"""The position of equal items in the first and in the second sequence, and their number."""

MOST_NAMES = 10_000  # the most names that are compared
_MOST_COMPARED = 50
_MOST_BLOCKS = 24
_HEAD, _TAIL = 40, 24  # the parts of a long name that are compared


def close_names(name: str, names: Iterable[str], n: int = 1, cutoff: float = 0.6) -> list[str]:
    """Returns the most similar names, the best first, as `difflib.get_close_matches` does; case does not matter.

    Takes bounded time: only the first ten thousand names count, only the fifty that share most letters are compared,
    and only the two ends of a long name.
    """
    wanted = _ends(name.casefold())
    matcher = SequenceMatcher(None, "", wanted, autojunk=False)
    likely: list[tuple[float, str]] = []
    for candidate in islice(names, MOST_NAMES):
        matcher.set_seq1(_ends(candidate.casefold()))
        if matcher.real_quick_ratio() >= cutoff and (quick := matcher.quick_ratio()) >= cutoff:
            likely.append((quick, candidate))
    scored: list[tuple[float, str]] = []
    for _, candidate in heapq.nlargest(_MOST_COMPARED, likely):
        matcher.set_seq1(ends := _ends(candidate.casefold()))
        if (score := likeness(matcher, len(ends), len(wanted))) >= cutoff:
            scored.append((score, candidate))
    return [candidate for _, candidate in heapq.nlargest(n, scored)]


def which_name(name: str, names: Iterable[str]) -> str:
    """Returns a hint for an unknown name: the name that was probably meant, else all names."""
    known = list(names)
    near = close_names(name, known)
    if near:
        return f"did you mean {near[0]}?"
    return f"there are: {', '.join(known)}" if known else "there are none"


def likeness(matcher: SequenceMatcher[str], a: int, b: int, most: int = _MOST_BLOCKS) -> float:
    """Returns the similarity from 0 to 1, as `SequenceMatcher.ratio()`; less if more than `most` pieces are shared.

    `a` and `b` are the lengths of the matcher's two texts.
    """
    shared = sum(size for _, _, size in matching_blocks(matcher, a, b, most))
    return 2.0 * shared / (a + b) if a + b else 1.0


def matching_blocks(matcher: SequenceMatcher[Any], a: int, b: int, most: int) -> list[Block]:
    """Returns at most `most` blocks that two sequences of these lengths share, in order. Searches large gaps first."""
    blocks: list[Block] = []
    gaps = [_gap(0, a, 0, b)]
    while gaps and len(blocks) < most:
        _, a1, a2, b1, b2 = heapq.heappop(gaps)
        found = matcher.find_longest_match(a1, a2, b1, b2)
        if not found.size:
            continue
        blocks.append((found.a, found.b, found.size))
        if a1 < found.a and b1 < found.b:
            heapq.heappush(gaps, _gap(a1, found.a, b1, found.b))
        if found.a + found.size < a2 and found.b + found.size < b2:
            heapq.heappush(gaps, _gap(found.a + found.size, a2, found.b + found.size, b2))
    return joined_blocks(sorted(blocks))


def _gap(a1: int, a2: int, b1: int, b2: int) -> tuple[int, int, int, int, int]:
    return (-min(a2 - a1, b2 - b1), a1, a2, b1, b2)


def joined_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Joins blocks that follow each other without a gap."""
    joined: list[Block] = []
    for a, b, size in blocks:
        if joined and (joined[-1][0] + joined[-1][2], joined[-1][1] + joined[-1][2]) == (a, b):
            joined[-1] = (joined[-1][0], joined[-1][1], joined[-1][2] + size)
        else:
            joined.append((a, b, size))
    return joined


def _ends(name: str) -> str:
    return name if len(name) <= _HEAD + _TAIL else name[:_HEAD] + name[-_TAIL:]
