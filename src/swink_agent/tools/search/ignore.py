"""Which files git ignores: the rules of `.gitignore` and `.git/info/exclude`.

Reads rules and decides on one name. Walking and opening are in `tree`. Whether a file is tracked is not checked: a
tracked file that a rule names counts as ignored. Imports only the standard library: the scanner's child process loads
this file.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from .glob import translate

_MOST_RULES = 5_000
_LONGEST_RULE = 1024
_MOST_PATTERNS = 64 * 1024
"""Bytes of patterns that are not plain names, in one file. Rules before those are ignored, as the last ones win."""
_SPECIAL = re.compile(rb"[*?\[\\]")
_MatchFn = Callable[[bytes], object]


class _Rule:
    """One line of rules."""

    __slots__ = ("is_negated", "is_pattern", "matches", "needs_folder", "needs_path")

    def __init__(self, is_negated: bool, needs_folder: bool, pattern: bytes) -> None:
        self.is_negated = is_negated
        self.needs_folder = needs_folder
        self.needs_path = b"/" in pattern
        plain = _plain_match(pattern, self.needs_path)
        self.is_pattern = plain is None
        self.matches: _MatchFn = plain or self._compile(pattern)

    def _compile(self, pattern: bytes) -> _MatchFn:
        """A matcher that is compiled on first use: compiling takes far longer than matching."""

        def first(path: bytes) -> object:
            make = _path_match if self.needs_path else _name_match
            self.matches = make(pattern.removeprefix(b"/") if self.needs_path else pattern)
            return self.matches(path)

        return first


class IgnoreRules:
    """The rules of one file, the last first."""

    __slots__ = ("_rules",)

    def __init__(self, data: bytes) -> None:
        lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")[: 4 * _MOST_RULES]
        self._rules: list[_Rule] = []
        room = _MOST_PATTERNS
        for line in reversed(lines):
            rule = _parse(line.removesuffix(b"\r"))
            if rule is None:
                continue
            room -= len(line) if rule.is_pattern else 0
            if room < 0 or len(self._rules) >= _MOST_RULES:
                break
            self._rules.append(rule)

    def decide(self, path: bytes, is_folder: bool, until: float | None = None) -> bool | None:
        """Whether the path, relative to the folder of the rules, is ignored; `None` if no rule matches it.

        Raises `TimeoutError` once the clock (`time.monotonic`) is past `until`.
        """
        name = path.rpartition(b"/")[2]
        for rule in self._rules:
            if rule.is_pattern and until is not None and time.monotonic() > until:
                raise TimeoutError("the rules of what git ignores take too long")
            if (is_folder or not rule.needs_folder) and rule.matches(path if rule.needs_path else name):
                return not rule.is_negated
        return None


class IgnoreLevel:
    """The rules that apply in one folder: its own, then those above up to the root of its repository.

    `above` is the level of the parent folder, and `folder` this one's name in it. A folder with a `.git` is a
    repository: rules from above end there. `until`, given to the outermost level, is the time (`time.monotonic`) after
    which `is_ignored` raises `TimeoutError`.
    """

    __slots__ = ("_above", "_exclude", "_folder", "_rules", "_until")

    def __init__(
        self,
        folder: bytes = b"",
        above: IgnoreLevel | None = None,
        *,
        rules: bytes | None = None,
        exclude: bytes | None = None,
        is_repository: bool = False,
        until: float | None = None,
    ) -> None:
        self._until = until if above is None else above._until
        self._folder = folder
        self._above = None if is_repository else above
        self._rules = IgnoreRules(rules) if rules else None
        self._exclude = IgnoreRules(exclude) if exclude else None

    def is_ignored(self, name: bytes, is_folder: bool) -> bool:
        """Whether an entry of this folder is ignored. The folder itself is assumed not to be."""
        level, path = self, name
        while True:
            verdict = level._rules.decide(path, is_folder, self._until) if level._rules else None
            if verdict is not None:
                return verdict
            if level._above is None:
                break
            path = level._folder + b"/" + path
            level = level._above
        return bool(level._exclude and level._exclude.decide(path, is_folder, self._until))


def _parse(line: bytes) -> _Rule | None:
    if line.startswith(b"#") or len(line) > _LONGEST_RULE:
        return None
    pattern = _without_trailing_spaces(line)
    is_negated = pattern.startswith(b"!")
    pattern = pattern[is_negated:]
    needs_folder = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    if not pattern:
        return None
    return _Rule(is_negated, needs_folder, pattern)


def _plain_match(pattern: bytes, needs_path: bool) -> _MatchFn | None:
    """A matcher for rules that need no pattern: a plain name or path, and names with a fixed beginning or end."""
    if not _SPECIAL.search(pattern):
        return (pattern.removeprefix(b"/") if needs_path else pattern).__eq__
    if needs_path:
        return None
    if pattern.startswith(b"*") and not _SPECIAL.search(pattern, 1):
        suffix = pattern[1:]
        return lambda name: name.endswith(suffix)
    if pattern.endswith(b"*") and not _SPECIAL.search(pattern[:-1]):
        prefix = pattern[:-1]
        return lambda name: name.startswith(prefix)
    return None


def _nothing(_: bytes) -> bool:
    return False


def _name_match(pattern: bytes) -> _MatchFn:
    compiled = translate(pattern, is_path=False)
    return _nothing if compiled is None else compiled.match


def _path_match(pattern: bytes) -> _MatchFn:
    """As git does: the part before the first special character is compared, the rest is a separate pattern."""
    special = _SPECIAL.search(pattern)
    length = special.start() if special else 0
    prefix = pattern[:length]
    compiled = translate(pattern[length:], is_path=True)
    if compiled is None:
        return _nothing
    return lambda path: path.startswith(prefix) and compiled.match(path, length)


def _without_trailing_spaces(line: bytes) -> bytes:
    """The line without the spaces at its end; one after a backslash stays."""
    first_space: int | None = None
    position = 0
    while position < len(line):
        char = line[position]
        if char == ord(" "):
            first_space = position if first_space is None else first_space
        else:
            first_space = None
            position += char == ord("\\")
            if position >= len(line):
                return line
        position += 1
    return line if first_space is None else line[:first_space]
