"""How a command that only reads is told from one that does more.

Owns `ReadOnly`, one entry of the table in `read_only`: which options, operands and files a program may be given. Where
a word leads is asked of `places`; what a small language does of `small_languages`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Literal, TypeAlias

from swink_agent.core.values.value import Value

from ..display import safe_display
from .places import Place
from .shell_words import Word

__all__ = ["Form", "ReadOnly", "reads"]

Form: TypeAlias = Callable[[tuple[Word, ...]], "str | None"]
"""Why words are not in a form that only reads, or `None`."""

_NUMBER = re.compile(r"-[0-9]+[bcwkMG]?")


class ReadOnly(Value, frozen=True, kw_only=True):
    """What a command that only reads may be given."""

    flags: str = ""
    """One-letter options without a value; they may stand together: `-la`."""
    valued: str = ""
    """One-letter options whose value is the rest of the word, or the next word."""
    options: frozenset[str] = frozenset()
    """Longer options, whole: `--stat`, also as `--stat=…`, and `-name` for programs that have such."""
    numbers: bool = False
    """Whether `-20` is an option or a value here."""
    operands: str | None = ".*"
    """What a word that is no option must be like; `None`: there are none."""
    never: str | None = None
    """What no word may have in it."""
    form: Form | None = None
    """A further look at all the words."""
    harmless: bool = False
    """Whether no word at all makes it do more than print."""
    paths: bool = True
    """Whether words name files: those outside of the folder are asked about."""
    patterns: bool = False
    """Whether not one of its options, known here or not, writes or runs: a file may be called like one, and so a
    pattern may become one."""
    follows: frozenset[str] = frozenset()
    """Options with which it goes where links lead; "" for always, in folders."""
    filters: int | None = None
    """For a program that reads what is piped to it: how many operands it has then."""
    git: Literal["names", "log", "contents"] | None = None
    """For git: what it shows."""

    def problem(self, words: tuple[Word, ...], place: Place) -> str | None:
        """Why the command with these further words is not known to only read, or `None`."""
        return self._form_problem(words) or self._place_problem(words, place)

    def is_filter(self, words: tuple[Word, ...]) -> bool:
        """Whether it reads what is piped to it and no file."""
        if self.filters is None or any(word.pattern is not None for word in words):
            return False
        texts = [word.text for word in words]
        # What searches may be told to look for files by itself.
        searches = self.follows and any(re.match("-[a-zA-Z]*[rRf]|--[rfd]", text) for text in texts)
        return not searches and len(self._operands(texts)) <= self.filters

    def _operands(self, words: list[str]) -> list[str]:
        found: list[str] = []
        is_value = False
        for word in words:
            if is_value:
                is_value = False
            elif word.startswith("-") and word != "-":
                is_value = not word.startswith("--") and word[-1] in self.valued and set(word[1:-1]) <= set(self.flags)
            else:
                found.append(word)
        return found

    # -- what it is given --------------------------------------------------------------------------------------

    def _form_problem(self, words: tuple[Word, ...]) -> str | None:
        if self.harmless:
            return None
        for word in words:
            problem = self._word_problem(word)
            if problem is not None:
                return problem
        return None if self.form is None else self.form(words)

    def _word_problem(self, word: Word) -> str | None:
        text = word.text
        shown = safe_display(text, 60)
        if word.varies:
            return "it is given what the command before it ended with"
        if self.never is not None and re.search(self.never, text):
            return f"with {shown} it may run another program"
        if word.pattern is not None:
            if text.startswith("-") or self.operands != ".*" or (text[0] in "*?" and not self.patterns):
                return f"{shown} may become an option"
        elif text.startswith("-") and text != "-":
            if not self._has_option(text):
                return f"{shown} is not among its options that only read"
        elif self.operands is None or not re.fullmatch(self.operands, text, re.DOTALL):
            return f"with {shown} it may do more than read"
        return None

    def _has_option(self, word: str) -> bool:
        # What follows `--` is looked at all the same: it may have been the value of the option before it.
        if word == "--":
            return True
        name = word.partition("=")[0] if word.startswith("--") else word
        if name in self.options or (self.numbers and _NUMBER.fullmatch(word)):
            return True
        if word.startswith("--"):
            return False
        for letter in word[1:]:
            if letter in self.valued:
                return True
            if letter not in self.flags:
                return False
        return True

    # -- where that leads --------------------------------------------------------------------------------------

    def _place_problem(self, words: tuple[Word, ...], place: Place) -> str | None:
        for word in dict.fromkeys(words):
            problem = None
            if word.pattern is not None:
                problem = place.pattern_problem(word.pattern, word.text)
            elif self.paths and not self.harmless:
                problem = next(filter(None, map(place.problem, self._paths(word.text))), None)
            if problem is not None:
                return problem
        return self._link_problem([word.text for word in words], place) if self.follows else None

    def _paths(self, word: str) -> list[str]:
        """What in a word may be the name of a file."""
        if not word.startswith("-") or word == "-":
            return [word]
        if word.startswith("--"):
            return [word.partition("=")[2]]
        for position, letter in enumerate(word[1:], start=2):
            if letter in self.valued:
                return [word[position:]]
        return []

    def _link_problem(self, words: list[str], place: Place) -> str | None:
        letters = {letter for word in words if re.match("-[A-Za-z]", word) for letter in word[1:]}
        given = {word.partition("=")[0] for word in words if word.startswith("--")} | letters | set(words) | {""}
        if self.follows.isdisjoint(given):
            return None
        folders = [word for word in words if os.path.isdir(os.path.join(place.current, word))]
        if not folders and "" not in self.follows:
            folders = ["."]
        if place.has_way_out(folders):
            return "it follows links, and there may be one out of the folder"
        return None


def reads(
    flags: str = "",
    valued: str = "",
    options: str = "",
    *,
    numbers: bool = False,
    operands: str | None = ".*",
    never: str | None = None,
    form: Form | None = None,
    paths: bool = True,
    patterns: bool = False,
    follows: str | None = None,
    filters: int | None = None,
    git: Literal["names", "log", "contents"] | None = None,
) -> ReadOnly:
    """An entry of the table, with names of options as one text."""
    return ReadOnly(
        flags=flags,
        valued=valued,
        options=frozenset(options.split()),
        numbers=numbers,
        operands=operands,
        never=never,
        form=form,
        paths=paths,
        patterns=patterns,
        follows=frozenset() if follows is None else frozenset(follows.split() or [""]),
        filters=filters,
        git=git,
    )
