"""Parses a user's allow rule for commands and decides what it covers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from ..display import safe_display
from .prefixes import does_more
from .shell_words import NotPlain, pattern_words, plain_words

T = TypeVar("T")
_ANYTHING = ("", "")  # a word that is a single star


class AllowRule:
    """The words that an allowed command begins with or consists of; any text may be between the pieces of a word."""

    __slots__ = ("_is_whole", "_text", "_words")

    def __init__(self, text: str, *, is_pattern: bool = False) -> None:
        words = parsed(text, "allow", pattern_words if is_pattern else lambda text: [(w,) for w in plain_words(text)])
        is_open = not is_pattern or (words[-1] == _ANYTHING and len(words) > 1)
        self._text = text
        self._words = words[:-1] if is_pattern and is_open else words
        self._is_whole = not is_open

    def __str__(self) -> str:
        return f"'{safe_display(' '.join(self._text.split()), 120)}'"

    def covers(self, words: tuple[str, ...]) -> bool:
        """Whether the rule allows the command."""
        if len(words) < len(self._words) or (self._is_whole and len(words) > len(self._words)):
            return False
        return all(map(_fits, self._words, words)) and not does_more(words, len(self._words))


def _fits(pieces: tuple[str, ...], word: str) -> bool:
    """Whether the word consists of these pieces with any text between them.

    That text never makes an option of a word that is not one, and never leaves a folder: `src/*` does not match
    `src/../etc`.
    """
    if len(pieces) == 1:
        return word == pieces[0]
    head, tail = pieces[0], pieces[-1]
    if not word.startswith(head) or not word.endswith(tail) or len(word) < len(head) + len(tail):
        return False
    if (not head and word.startswith("-")) or ".." in re.split(r"[/=:,]", word):
        return False
    position, end = len(head), len(word) - len(tail)
    for piece in pieces[1:-1]:
        found = word.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return True


def parsed(text: str, kind: str, parse: Callable[[str], T]) -> T:
    """The parsed rule. Raises `ValueError` with the problem."""
    if isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a rule may come from a settings file
        try:
            return parse(text)
        except NotPlain as problem:
            why = str(problem)
    else:
        why = f"it is a {type(text).__name__}"
    raise ValueError(
        f"the {kind} rule {text!r} is not a plain command: {why}; a rule is a program and words that follow it"
    )
