"""Wider searches for when a search found nothing, and a sentence for each that finds something.

`search/tool` runs them within a short time. A model that searches names for a word and reads "none" takes that as an
answer about contents: so the text states whether names or contents were searched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .._bounded import show_name
from .engines import Hit, Query
from .glob import NameGlob

MOST_FOUND = 100
_WORD = re.compile(r"[^\W_][\w-]{2,}")
_ESCAPED = re.compile(r"\\[a-zA-Z]")  # classes and anchors, not words


class WiderQuery(NamedTuple):
    """Another query, and the beginning of the sentence about its matches."""

    query: Query
    told: str

    def tell(self, hits: Sequence[Hit]) -> str:
        """One sentence on the matches."""
        files = len({hit.path for hit in hits})
        count = f"{'more than ' * (len(hits) > MOST_FOUND)}{min(files, MOST_FOUND)} file{'s' * (files != 1)}"
        first = show_name(os.fsdecode(hits[0].path))
        return f"{self.told.format(count=count)}, such as {first}"


def wider_queries(query: Query) -> Iterator[WiderQuery]:
    """Queries that may have been meant, the likeliest first."""
    if query.pattern is None:
        word = _longest_word(_last_name(query.glob_text or ""))
        if not word or (query.glob is not None and query.glob.negated):
            return
        names = Query(None, NameGlob(f"*{word}*"), f"*{word}*", False, (), False)
        contents = Query(re.escape(word), None, None, True, (), False)
        yield WiderQuery(contents, f'"{word}" is in the contents of {{count}} (pattern="{word}")')
        yield WiderQuery(names, f'"{word}" is in the name of {{count}} (glob="*{word}*")')
        return
    limits = [
        name
        for name, is_set in (("glob", query.glob), ("path", query.start), ("ignore_case", not query.ignore_case))
        if is_set
    ]
    if limits:
        wide = Query(query.pattern, None, None, True, (), False)
        how = " and ".join([f"{name}=true" if name == "ignore_case" else f"no {name}" for name in limits])
        yield WiderQuery(wide, f"with {how} it is in {{count}}")
    if word := _longest_word(_ESCAPED.sub(" ", query.pattern)):
        names = Query(None, NameGlob(f"*{word}*"), f"*{word}*", False, (), False)
        yield WiderQuery(names, f'contents were searched; "{word}" is in the name of {{count}} (glob="*{word}*")')


def _last_name(glob: str) -> str:
    """The last name of a glob, without its ending."""
    name = glob.rstrip("/").rpartition("/")[2]
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem.strip("*?") else "" if dot else name


def _longest_word(text: str) -> str:
    return max(_WORD.findall(text), key=len, default="")
