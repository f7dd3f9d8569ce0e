"""Decides whether a command only reads.

`ReadOnly` is one entry of the table in `read_only`: the options, operands and files that a program may be given.
`places` decides where a word leads, `small_languages` what a program in sed, awk or jq does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from swink_agent.core.values.value import Value
from swink_agent.rendering.escaping import safe_display

from .places import Place
from .shell_words import Word

Form: TypeAlias = Callable[[tuple[Word, ...]], "str | None"]
"""Returns why the words are not in a form that only reads, or `None`."""

_NUMBER = re.compile(r"-[0-9]+[bcwkMG]?")


class ReadOnly(Value, frozen=True, kw_only=True):
    """The arguments with which a command only reads."""

    flags: str = ""
    """One-letter options without a value. They may be written together: `-la`."""
    valued: str = ""
    """One-letter options whose value is the rest of the word, or the next word."""
    options: frozenset[str] = frozenset()
    """Longer options, in full: `--stat`, also as `--stat=…`, and `-name` for programs that have such options."""
    numbers: bool = False
    """Whether `-20` is an option or a value."""
    operands: str | None = ".*"
    """What words that are not options must look like. `None`: such words are not allowed."""
    never: str | None = None
    """What no word may contain."""
    form: Form | None = None
    """A further check of all words."""
    harmless: bool = False
    """Whether it only prints, with any words."""
    paths: bool = True
    """Whether words name files. Files outside of the folder are asked about."""
    patterns: bool = False
    """Whether none of its options, known here or not, writes or runs anything: a pattern may expand to a file name
    that looks like an option."""
    follows: frozenset[str] = frozenset()
    """Options that make it follow links. An empty text: it always does, in folders."""
    filters: int | None = None
    """For a program that reads piped input: how many operands it has then."""
    starts: tuple[str, ...] = ()
    """Programs that it may start, by name, to do a part of its work."""
    endings: tuple[str, ...] = ()
    """Suffixes that it tries if a file of the given name does not exist."""
    git: Literal["names", "remotes", "log", "contents"] | None = None
    """For git: what it shows. Addresses of remotes may contain passwords."""

    def problem(self, words: tuple[Word, ...], place: Place) -> str | None:
        """Why the command with these arguments may do more than read, or `None`."""
        if not self.harmless:
            problem = next(filter(None, map(self._word_problem, words)), None)
            problem = problem or (None if self.form is None else self.form(words))
            if problem is not None:
                return problem
        return self._place_problem(words, place)

    def is_filter(self, words: tuple[Word, ...]) -> bool:
        """Whether it reads piped input and no file."""
        if self.filters is None or any(word.pattern is not None for word in words):
            return False
        texts = [word.text for word in words]
        # With some options, a search looks for files itself.
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

    def _word_problem(self, word: Word) -> str | None:
        text = word.text
        shown = safe_display(text, 60)
        if word.varies:
            return f"the value of {shown} is known only when it runs"
        if self.never is not None and re.search(self.never, text):
            return f"with {shown} it may run another program"
        if word.pattern is not None:
            if self._is_option_with_pattern(word):
                return None
            if text.startswith("-") or self.operands != ".*" or (text[0] in "*?" and not self.patterns):
                return f"{shown} may become an option"
        elif text.startswith("-") and text != "-":
            if not self._has_option(text):
                return f"{shown} is not among its options that only read"
        elif self.operands is None or not re.fullmatch(self.operands, text, re.DOTALL):
            return f"with {shown} it may do more than read"
        return None

    def _is_option_with_pattern(self, word: Word) -> bool:
        """Whether the pattern is in the value of a long option, as in `--include=*.py`: few files have such a name."""
        name, equals, _ = word.text.partition("=")
        return bool(equals) and name.startswith("--") and name in self.options and not re.search(r"[*?]", name)

    def _has_option(self, word: str) -> bool:
        # Words after `--` are checked too: `--` may be the value of the option before it.
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
            if word.pattern is not None and self._is_option_with_pattern(word):
                if place.becomes_something(word.pattern):
                    problem = f"there is a file that {safe_display(word.text, 60)} may become"
                else:
                    problem = next(filter(None, map(place.problem, self._paths(word.text))), None)
            elif word.pattern is not None:
                tries = (
                    place.pattern_problem(word.pattern + end, word.text + end, splits=word.splits)
                    for end in ("", *self.endings)
                )
                problem = next(filter(None, tries), None)
            elif self.paths and not self.harmless:
                paths = (path + end for path in self._paths(word.text) for end in ("", *self.endings))
                problem = next(filter(None, map(place.problem, paths)), None)
            if problem is not None:
                return problem
        return self._link_problem([word.text for word in words], place) if self.follows else None

    def _paths(self, word: str) -> list[str]:
        """The parts of a word that may be names of files."""
        if not word.startswith("-") or word == "-":
            return [word]
        if word.startswith("--"):
            return [word.partition("=")[2]]
        for position, letter in enumerate(word[1:], start=2):
            if letter in self.valued:
                return [word[position:]]
        return []

    def _link_problem(self, words: list[str], place: Place) -> str | None:
        # Everything after one dash: a letter may follow digits, dots and the values of other options.
        letters = {letter for word in words if re.match("-[^-]", word) for letter in word[1:]}
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
    follows: str | None = None,
    starts: str = "",
    endings: str = "",
    **more: Any,
) -> ReadOnly:
    """An entry of the table, with the names of options, programs and endings as one text each."""
    return ReadOnly(
        flags=flags,
        valued=valued,
        options=frozenset(options.split()),
        follows=frozenset() if follows is None else frozenset(follows.split() or [""]),
        starts=tuple(starts.split()),
        endings=tuple(endings.split()),
        **more,
    )
