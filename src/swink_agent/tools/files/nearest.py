"""For a text that was not found: finds the most similar lines, and describes how they differ.

The cost of the search is bounded for any texts.
"""

from __future__ import annotations

import difflib
import heapq
import re
import time
from collections import Counter
from collections.abc import Sequence

from swink_agent.core.texts.likeness import likeness
from swink_agent.rendering.texts.invisible import compatibility_form

from .._bounded import bound_text

_MOST_LINES = 100_000
_MOST_COMPARED = 10_000
_MOST_RATIOS = 1000
_LONGEST_LINE = 200
_MOST_CANDIDATES = 8
_LONGEST_WINDOW = 600
_LONGEST_COMPARED = 100_000
_LONGEST_SEARCH = 1.5  # seconds for comparing the most promising lines
_LIKE_ENOUGH = 0.5
_MOST_SHOWN = 4096
_FEW_LINES = 60
_MOST_OF_SHORT = 2000
_FEW_SHOWN = 8
_WORD = re.compile(r"\w+")
_NAME_PART = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{3,}|[^\W\d_a-zA-Z]{2,}|\d{2,}")
_TYPOGRAPHY = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "`": "'", "\u2013": "-", "\u2014": "-"}
)


def describe_nearest(text: str, old: str) -> str:
    """Sentences about the nearest match and how it differs. Both texts have `\\n` as line ends."""
    if "\\n" in old and old.replace("\\n", "\n") in text:
        return "It is there with real line ends where old has a backslash and an n: write old with line ends."
    lines = text.split("\n", _MOST_LINES)[:_MOST_LINES]
    wanted = old.strip("\n").split("\n")
    start = _best_start(lines, wanted)
    if start is None:
        return _likeliest(text, lines, wanted)
    found = lines[start : start + len(wanted)]
    where = f"line {start + 1}" if len(found) == 1 else f"lines {start + 1}-{start + len(found)}"
    shown = bound_text("\n".join(found), _MOST_SHOWN).text
    return f"The nearest is at {where}:\n{shown}\n{_difference(found, wanted, start)}"


def _best_start(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """The first line of the lines most similar to the wanted ones, or `None`."""
    until = time.monotonic() + _LONGEST_SEARCH
    candidates = _by_equal_lines(lines, wanted) or [*_by_like_lines(lines, wanted, until), *_by_words(lines, wanted)]
    target = "\n".join(map(_key, wanted))[:_LONGEST_WINDOW]
    best, best_score = None, _LIKE_ENOUGH
    for start in dict.fromkeys(candidates):
        window = "\n".join(map(_key, lines[start : start + len(wanted)]))[:_LONGEST_WINDOW]
        matcher = difflib.SequenceMatcher(None, window, target, autojunk=len(target) > 500)
        # A piece of a long line is not similar to the whole line, but most of the piece is in it.
        shared = matcher.find_longest_match().size / (len(target) or 1) if len(wanted) == 1 else 0
        score = max(likeness(matcher, len(window), len(target)), shared)
        if score > best_score or (best is None and score >= best_score):
            best, best_score = start, score
        if time.monotonic() > until:
            break
    return best


def _likeliest(text: str, lines: Sequence[str], wanted: Sequence[str]) -> str:
    """The message if nothing is similar: all of a short file, else the lines that share rare words with it."""
    if not text.strip():
        return "The file is empty: to add text, leave old empty."
    if len(lines) <= _FEW_LINES and len(text) <= _MOST_OF_SHORT:
        return f"Nothing in it is much like it. This is all of it; copy old from here:\n{text}"
    found = _by_rare_words(lines, wanted)
    shown = "\n".join(
        [f"{index + 1}: {lines[index][:_LONGEST_LINE]}" for index in found or range(min(_FEW_SHOWN, len(lines)))]
    )
    what = "These lines share words with it" if found else "It begins with these lines"
    return (
        f"Nothing in it is much like it: read the file with read_file and copy old from there. {what}, each behind its "
        f"number:\n{shown}"
    )


def _by_rare_words(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The lines that have words of the wanted ones, or parts of them. A word that is everywhere counts little."""
    asked = {part for line in wanted[:_MOST_COMPARED] for part in _parts(line)}
    sharing = [(index, asked.intersection(_parts(line))) for index, line in enumerate(lines[:_MOST_COMPARED])]
    counts = Counter(part for _, parts in sharing for part in parts)
    ranked = [(sum(1 / counts[part] for part in parts), -index) for index, parts in sharing if parts]
    return sorted(-index for _, index in heapq.nlargest(_FEW_SHOWN, ranked))


def _parts(line: str) -> set[str]:
    """The words of a line, with names split: `serverPort` and `server_port` are `server` and `port`."""
    return {part.casefold() for part in _NAME_PART.findall(line[: 4 * _LONGEST_LINE])}


def _by_equal_lines(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The starts of windows that share lines with the wanted ones, ignoring spaces, case and typography."""
    places: dict[str, int] = {}
    for index, line in enumerate(wanted[:_MOST_LINES]):
        if key := _key(line):
            places.setdefault(key, index)
    votes: Counter[int] = Counter()
    for index, line in enumerate(lines):
        place = places.get(_key(line))
        if place is not None:
            votes[max(index - place, 0)] += 1
    return [start for start, _ in votes.most_common(_MOST_CANDIDATES)]


def _by_like_lines(lines: Sequence[str], wanted: Sequence[str], until: float) -> list[int]:
    """The starts of windows in which one line is very similar to the longest wanted one."""
    at = _longest(wanted)
    wanted_key = _key(wanted[at])[:_LONGEST_LINE]
    matcher = difflib.SequenceMatcher(None, "", wanted_key, autojunk=False)
    found: list[tuple[float, int]] = []
    ratios = 0
    for index, line in enumerate(lines[:_MOST_COMPARED]):
        matcher.set_seq1(key := _key(line)[:_LONGEST_LINE])
        least = found[0][0] if len(found) == _MOST_CANDIDATES else _LIKE_ENOUGH
        if matcher.real_quick_ratio() <= least or matcher.quick_ratio() <= least:
            continue
        ratios += 1
        if ratios > _MOST_RATIOS or time.monotonic() > until:
            break
        if (ratio := likeness(matcher, len(key), len(wanted_key))) > least:
            item = (ratio, max(index - at, 0))
            (heapq.heappushpop if len(found) == _MOST_CANDIDATES else heapq.heappush)(found, item)
    return [start for _, start in sorted(found, reverse=True)]


def _by_words(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The starts of windows in which one line has most words of the longest wanted one."""
    at = _longest(wanted)
    words = set(_WORD.findall(_key(wanted[at])))
    some = lines[:_MOST_COMPARED]
    shared = [(len(words.intersection(_WORD.findall(_key(line)))), -index) for index, line in enumerate(some)]
    return [max(-index - at, 0) for count, index in heapq.nlargest(_MOST_CANDIDATES, shared) if count]


def _longest(wanted: Sequence[str]) -> int:
    return max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))


def _key(line: str) -> str:
    return " ".join(line[: 4 * _LONGEST_LINE].split()).translate(_TYPOGRAPHY).casefold()


def _difference(found: Sequence[str], wanted: Sequence[str], start: int) -> str:
    here, there = "\n".join(found), "\n".join(wanted)
    if "".join(here.split()) == "".join(there.split()):
        if "\t" in here and "\t" not in there:
            return "Only spaces and line ends differ: the file has tabs where old has none."
        return "Only spaces, tabs and line ends differ: copy them exactly."
    if len(here) + len(there) <= _LONGEST_COMPARED and _plain(here) == _plain(there):
        return "Only quotation marks, dashes or the like differ: copy them exactly."
    if here.casefold() == there.casefold():
        return "Only upper and lower case differ."
    for number, (line, other) in enumerate(zip(found, wanted, strict=False), start + 1):
        if line != other:
            return f"Line {number} is {_quoted(line)} where old has {_quoted(other)}."
    return "It ends before old does."


def _plain(text: str) -> str:
    return compatibility_form(text).translate(_TYPOGRAPHY)


def _quoted(line: str) -> str:
    return repr(line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + "…")
