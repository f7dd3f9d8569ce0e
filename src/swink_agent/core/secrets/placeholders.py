"""What stands in the place of a masked value, and how the value comes back into the file that holds it.

Owns the form of a placeholder and the masked view of a text: which originals are behind it, and the text that a view
becomes which somebody has changed. What is a secret is for `redaction` to say; what is written where, for the tools.

A placeholder is bound to its value by a keyed digest: the same value has the same one for as long as the key is the
same, another value has another, and whoever sees it learns nothing of the value. A view is turned back only with what
the very same text holds, so no value ever moves from one file to another.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

__all__ = ["MASK", "MaskedText", "PlaceholderError", "PutBack", "Span", "holds_placeholder", "placeholder"]

MASK = "[redacted:"
"""How every placeholder begins."""

_LABEL = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_LABEL = 40
# Ours, whole; what is left of one that was cut or changed; and the mask that earlier versions showed.
_WHOLE = re.compile(r"\[redacted:[A-Za-z0-9_.-]{1,40}:[0-9a-f]{8}\]")
_LIKE_ONE = re.compile(
    r"\[redacted(?:[: ][^\[\]\r\n]{0,80})?\]"
    r"|\[redacted:[A-Za-z0-9_.-]{0,40}:?[0-9a-f]{0,8}"
    r"|\b(?i:redacted):[A-Za-z0-9_.-]{1,40}:[0-9A-Fa-f]{4,8}\b\]?"
)
_LIKE_ANY = re.compile("[Rr]edacted|REDACTED")
_SHOWN = 3


class PlaceholderError(ValueError):
    """A placeholder that stands for nothing that the text holds, or that would uncover what it stands for."""


class Span(NamedTuple):
    """A placeholder in a masked text, and what it stands for."""

    start: int
    end: int
    original: str


class PutBack(NamedTuple):
    """A changed view with its originals in place again."""

    text: str
    kept: int
    """How many masked values are in it."""
    removed: int
    """How many of those that were there are not in it any more."""
    places: tuple[tuple[int, int], ...]
    """Where the originals stand in the text."""


def placeholder(original: str, name: str, key: bytes) -> str:
    """What stands for a value: a name for people, and a digest that tells it from others."""
    import hashlib  # on use: most texts hold nothing to mask

    plain = original.replace("\r\n", "\n").encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(plain, digest_size=4, key=key).hexdigest()
    label = _LABEL.sub("-", name).strip("-")[:_LONGEST_LABEL] or "secret"
    return f"{MASK}{label}:{digest}]"


def holds_placeholder(text: str) -> str | None:
    """The first placeholder in a text, or `None`: whole ones alone, whoever made them."""
    found = _WHOLE.search(text) if MASK in text else None
    return None if found is None else found.group()


class MaskedText:
    """A text as a model may see it, and what it takes to turn it back."""

    __slots__ = ("spans", "text")

    def __init__(self, text: str, spans: Sequence[Span] = ()) -> None:
        self.text = text
        self.spans = tuple(spans)

    def __repr__(self) -> str:
        return f"<MaskedText of {len(self.text)} characters, {len(self.spans)} masked>"

    @classmethod
    def of(cls, text: str, found: Sequence[tuple[int, int, str]], key: bytes) -> MaskedText:
        """The text with what was found in it masked: starts, ends and names, in order and apart."""
        pieces: list[str] = []
        spans: list[Span] = []
        end = size = 0
        for start, stop, name in found:
            mask = placeholder(text[start:stop], name, key)
            size += start - end
            spans.append(Span(size, size + len(mask), text[start:stop]))
            pieces += (text[end:start], mask)
            size += len(mask)
            end = stop
        pieces.append(text[end:])
        return cls("".join(pieces), spans)

    @classmethod
    def joined(cls, parts: Sequence[MaskedText]) -> MaskedText:
        """One text of several that follow each other."""
        spans: list[Span] = []
        size = 0
        for part in parts:
            spans += [Span(start + size, end + size, original) for start, end, original in part.spans]
            size += len(part.text)
        return cls("".join([part.text for part in parts]), spans)

    def covering(self, found: Sequence[tuple[int, int, str]], key: bytes) -> MaskedText:
        """The same with more masked: what was found in the masked text, whole placeholders in it included."""
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

    def replaced(self, replacement: str) -> str:
        """The masked text with something else in the place of each placeholder."""
        pieces: list[str] = []
        end = 0
        for span in self.spans:
            pieces += (self.text[end : span.start], replacement)
            end = span.end
        return "".join([*pieces, self.text[end:]])

    # -- the way back ------------------------------------------------------------------------------------------

    def put_back(self, view: str, what: str = "the text") -> PutBack:
        """The text that a changed view stands for. Raises `PlaceholderError` for a placeholder that is not of this one.

        What only looks like a placeholder may stay where the text itself has it, as often as it does.
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
        """By placeholder, all that the text has in its place, in order: originals, and text that looks alike."""
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
        self,
        view: str,
        found: Sequence[re.Match[str]],
        held: dict[str, list[tuple[str, bool]]],
        counts: Counter[str],
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
    """Whether each of so many occurrences of a placeholder can be told what it stands for."""
    if not originals:
        return False
    if len(set(originals)) > 1:  # one and the same for different things: only their order tells them apart
        return count == len(originals)
    return originals[0][1] or count <= len(originals)


def _refusal(foreign: Sequence[str], held: dict[str, list[tuple[str, bool]]], what: str) -> str:
    shown = ", ".join(foreign[:_SHOWN]) + (f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else "")
    known = [token for token, originals in held.items() if any(is_masked for _, is_masked in originals)]
    here = f" It holds {', '.join(known[:_SHOWN])}{' and more' * (len(known) > _SHOWN)}." if known else ""
    return (
        f"{shown} cannot be turned back into what was masked: {what} holds no such value.{here} Copy "
        "placeholders exactly as read_file shows them in this very file, leave them out, or, for text that only looks "
        "like one, use a command"
    )


def covers(places: Sequence[tuple[int, int]], found: Callable[[], Sequence[tuple[int, int]]]) -> bool:
    """Whether each of the places lies within what is found to be a secret there."""
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
