"""Placeholders for masked values, and putting the values back into the file that they came from.

A masked text knows the original of each placeholder, so that a changed copy of it can be converted back. `redaction`
decides what is masked; the tools write the files.

A placeholder contains a keyed digest of its value: with the same key, the same value always has the same placeholder,
another value has another one, and the placeholder reveals nothing. Placeholders are only replaced by values of the same
text, so no value moves from one file to another.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

MASK = "[redacted:"  # the beginning of every placeholder

_LABEL = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_LABEL = 40
# A whole placeholder; the rest of one that was cut or changed; and the mask of earlier versions.
_WHOLE = re.compile(r"\[redacted:[A-Za-z0-9_.-]{1,40}:[0-9a-f]{8}\]")
_LIKE_ONE = re.compile(
    r"\[redacted(?:[: ][^\[\]\r\n]{0,80})?\]"
    r"|\[redacted:[A-Za-z0-9_.-]{0,40}:?[0-9a-f]{0,8}"
    r"|\b(?i:redacted):[A-Za-z0-9_.-]{1,40}:[0-9A-Fa-f]{4,8}\b\]?"
)
_LIKE_ANY = re.compile("[Rr]edacted|REDACTED")
_SHOWN = 3


class PlaceholderError(ValueError):
    """A placeholder for a value that the text does not hold, or whose replacement would reveal the value."""


class Span(NamedTuple):
    """A placeholder in a masked text, and its original value."""

    start: int
    end: int
    original: str


class PutBack(NamedTuple):
    """A changed view with the original values restored."""

    text: str
    kept: int  # how many masked values are in it
    removed: int  # how many masked values it no longer contains
    places: tuple[tuple[int, int], ...]  # the positions of the originals in the text


def placeholder(original: str, name: str, key: bytes) -> str:
    """Makes the placeholder of a value: a name for people, and a digest that distinguishes it from others."""
    plain = original.replace("\r\n", "\n").encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(plain, digest_size=4, key=key).hexdigest()
    label = _LABEL.sub("-", name).strip("-")[:_LONGEST_LABEL] or "secret"
    return f"{MASK}{label}:{digest}]"


def holds_placeholder(text: str) -> str | None:
    """Returns the first whole placeholder in a text, made by any redactor, or `None`."""
    found = _WHOLE.search(text) if MASK in text else None
    return None if found is None else found.group()


class MaskedText:
    """A text with its secrets masked, and the original values."""

    __slots__ = ("spans", "text")

    def __init__(self, text: str, spans: Sequence[Span] = ()) -> None:
        self.text = text
        self.spans = tuple(spans)

    def __repr__(self) -> str:
        return f"<MaskedText of {len(self.text)} characters, {len(self.spans)} masked>"

    @classmethod
    def joined(cls, parts: Sequence[MaskedText]) -> MaskedText:
        """Joins texts that follow each other."""
        spans: list[Span] = []
        size = 0
        for part in parts:
            spans += [Span(start + size, end + size, original) for start, end, original in part.spans]
            size += len(part.text)
        return cls("".join([part.text for part in parts]), spans)

    def covering(self, found: Sequence[tuple[int, int, str]], key: bytes) -> MaskedText:
        """Masks the found ranges: starts, ends and names, in order. They may include whole placeholders."""
        starts, ends = [span.start for span in self.spans], [span.end for span in self.spans]
        wider: list[tuple[int, int, str]] = []
        for start, stop, name in found:
            first, last = bisect_left(ends, start + 1), bisect_left(starts, stop) - 1
            if first <= last:
                start, stop = min(start, starts[first]), max(stop, ends[last])
            if wider and start < wider[-1][1]:
                before = wider.pop()
                start, stop, name = before[0], max(stop, before[1]), before[2]
            wider.append((start, stop, name))
        pieces: list[str] = []
        spans: list[Span] = []
        end = size = 0

        def keep(until: int) -> None:
            nonlocal end, size
            for index in range(bisect_left(starts, end), bisect_left(starts, until)):
                at = size + starts[index] - end
                spans.append(Span(at, at + ends[index] - starts[index], self.spans[index].original))
            pieces.append(self.text[end:until])
            size += until - end
            end = until

        for start, stop, name in wider:
            keep(start)
            original = self._original(start, stop)
            mask = placeholder(original, name, key)
            spans.append(Span(size, size + len(mask), original))
            pieces.append(mask)
            size, end = size + len(mask), stop
        keep(len(self.text))
        return MaskedText("".join(pieces), spans)

    def _original(self, start: int, stop: int) -> str:
        pieces: list[str] = []
        first = bisect_left(self.spans, start, key=lambda span: span.start)
        for span in takewhile(lambda span: span.end <= stop, islice(self.spans, first, None)):
            pieces += (self.text[start : span.start], span.original)
            start = span.end
        return "".join([*pieces, self.text[start:stop]])

    def places(self) -> Iterator[tuple[int, int, str]]:
        """Yields the start and end of each original in the text before masking, with its placeholder."""
        shift = 0
        for start, end, original in self.spans:
            yield start + shift, start + shift + len(original), self.text[start:end]
            shift += len(original) - (end - start)

    def replaced(self, replacement: str) -> str:
        """Returns the masked text with each placeholder replaced by the given text."""
        pieces: list[str] = []
        end = 0
        for span in self.spans:
            pieces += (self.text[end : span.start], replacement)
            end = span.end
        return "".join([*pieces, self.text[end:]])

    def put_back(self, view: str, what: str = "the text") -> PutBack:
        """Restores the originals in a changed view. Raises `PlaceholderError` for a placeholder of another text.

        Text that only looks like a placeholder may occur as often as in the original text.
        """
        held = self._originals()
        if not held and not _LIKE_ANY.search(view):
            return PutBack(view, 0, 0, ())
        found = list(_LIKE_ONE.finditer(view))
        counts = Counter(match.group() for match in found)
        foreign = [token for token, count in counts.items() if not _can_stay(held.get(token, ()), count)]
        if foreign:
            raise PlaceholderError(_refusal(foreign, held, what))
        return self._replaced(view, found, held, counts)

    def _originals(self) -> dict[str, list[tuple[str, bool]]]:
        """Returns, for each placeholder, its originals in order, and text that only looks like one."""
        held: dict[str, list[tuple[str, bool]]] = {}
        masked = {span.start: span for span in self.spans}
        if not masked and not _LIKE_ANY.search(self.text):
            return held
        for match in _LIKE_ONE.finditer(self.text):
            span = masked.get(match.start())
            value = (match.group(), False) if span is None else (span.original, True)
            held.setdefault(match.group(), []).append(value)
        return held

    def _replaced(
        self, view: str, found: Sequence[re.Match[str]], held: dict[str, list[tuple[str, bool]]], counts: Counter[str]
    ) -> PutBack:
        pieces: list[str] = []
        places: list[tuple[int, int]] = []
        seen: Counter[str] = Counter()
        end = size = 0
        for match in found:
            token = match.group()
            originals = held[token]
            value, is_masked = originals[min(seen[token], len(originals) - 1)]
            seen[token] += 1
            size += match.start() - end
            if is_masked:
                places.append((size, size + len(value)))
            pieces += (view[end : match.start()], value)
            size += len(value)
            end = match.end()
        pieces.append(view[end:])
        gone = sum(
            max(0, sum(is_masked for _, is_masked in originals) - counts[token]) for token, originals in held.items()
        )
        return PutBack("".join(pieces), len(places), gone, tuple(places))


def _can_stay(originals: Sequence[tuple[str, bool]], count: int) -> bool:
    """Whether each of `count` occurrences of a placeholder can be assigned to an original."""
    if not originals:
        return False
    if len(set(originals)) > 1:  # one placeholder for different values: only their order distinguishes them
        return count == len(originals)
    return originals[0][1] or count <= len(originals)


def _refusal(foreign: Sequence[str], held: dict[str, list[tuple[str, bool]]], what: str) -> str:
    shown = ", ".join(foreign[:_SHOWN]) + (f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else "")
    known = [token for token, originals in held.items() if any(is_masked for _, is_masked in originals)]
    here = f" It holds {', '.join(known[:_SHOWN])}{' and more' * (len(known) > _SHOWN)}." if known else ""
    return (
        f"{shown} cannot be turned back into what was masked: {what} holds no such value.{here} Copy "
        "placeholders exactly as read_file shows them in this file, leave them out, or, for text that only looks "
        "like one, use a command"
    )


def covers(places: Sequence[tuple[int, int]], found: Callable[[], Sequence[tuple[int, int]]]) -> bool:
    """Whether each of the places is within a secret that is found."""
    if not places:
        return True
    spans = found()
    starts = [start for start, _ in spans]
    for start, stop in places:
        while start < stop:
            index = bisect_left(starts, start + 1) - 1
            if index < 0 or spans[index][1] <= start:
                return False
            start = spans[index][1]
    return True
