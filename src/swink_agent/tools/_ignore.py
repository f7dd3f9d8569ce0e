"""Which files git leaves alone: the rules of `.gitignore` and `.git/info/exclude`.

Owns the reading of rules and the decision on one name. Walking and opening are in `_tree`. Whether a file is tracked
is not asked: a tracked file that a rule names counts as ignored. Imports the standard library alone: the scanner's
child process loads this file.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ._glob import translate

__all__ = ["IgnoreLevel", "IgnoreRules"]

_MOST_RULES = 5_000
_SPECIAL = re.compile(rb"[*?\[\\]")
_MatchFn = Callable[[bytes], object]


class _Rule:
    """One line of rules."""

    __slots__ = ("is_negated", "matches", "needs_folder", "needs_path")

    def __init__(self, is_negated: bool, needs_folder: bool, needs_path: bool, matches: _MatchFn) -> None:
        self.is_negated = is_negated
        self.needs_folder = needs_folder
        self.needs_path = needs_path
        self.matches = matches


class IgnoreRules:
    """The rules of one file, the last first."""

    __slots__ = ("_rules",)

    def __init__(self, data: bytes) -> None:
        lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")[: 4 * _MOST_RULES]
        rules = [rule for line in lines if (rule := _parse(line.removesuffix(b"\r"))) is not None]
        self._rules = rules[:_MOST_RULES][::-1]

    def decide(self, path: bytes, is_folder: bool) -> bool | None:
        """Whether the path, relative to the folder of the rules, is ignored; `None` if no rule is about it."""
        name = path.rpartition(b"/")[2]
        for rule in self._rules:
            if (is_folder or not rule.needs_folder) and rule.matches(path if rule.needs_path else name):
                return not rule.is_negated
        return None


class IgnoreLevel:
    """The rules that hold in one folder: its own, then those above up to the root of its repository.

    `above` is the level of the folder that holds this one, and `folder` this one's name in it. A folder with a `.git`
    of its own is a repository: rules from above end there.
    """

    __slots__ = ("_above", "_exclude", "_folder", "_rules")

    def __init__(
        self,
        folder: bytes = b"",
        above: IgnoreLevel | None = None,
        *,
        rules: bytes | None = None,
        exclude: bytes | None = None,
        is_repository: bool = False,
    ) -> None:
        self._folder = folder
        self._above = None if is_repository else above
        self._rules = IgnoreRules(rules) if rules else None
        self._exclude = IgnoreRules(exclude) if exclude else None

    def is_ignored(self, name: bytes, is_folder: bool) -> bool:
        """Whether an entry of this folder is ignored. Its folder is taken to be none that is ignored itself."""
        level, path = self, name
        while True:
            verdict = level._rules.decide(path, is_folder) if level._rules else None
            if verdict is not None:
                return verdict
            if level._above is None:
                break
            path = level._folder + b"/" + path
            level = level._above
        return bool(level._exclude and level._exclude.decide(path, is_folder))


def _parse(line: bytes) -> _Rule | None:
    if line.startswith(b"#"):
        return None
    pattern = _without_trailing_spaces(line)
    is_negated = pattern.startswith(b"!")
    pattern = pattern[is_negated:]
    needs_folder = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    if not pattern:
        return None
    needs_path = b"/" in pattern
    matches = _path_match(pattern.removeprefix(b"/")) if needs_path else _name_match(pattern)
    return None if matches is None else _Rule(is_negated, needs_folder, needs_path, matches)


def _name_match(pattern: bytes) -> _MatchFn | None:
    if not _SPECIAL.search(pattern):
        return pattern.__eq__
    if pattern.startswith(b"*") and not _SPECIAL.search(pattern, 1):
        suffix = pattern[1:]
        return lambda name: name.endswith(suffix)
    compiled = translate(pattern, is_path=False)
    return None if compiled is None else compiled.match


def _path_match(pattern: bytes) -> _MatchFn | None:
    """As git does it: the part before the first special character is compared, the rest is a pattern of its own."""
    special = _SPECIAL.search(pattern)
    if special is None:
        return pattern.__eq__
    length = special.start()
    prefix = pattern[:length]
    compiled = translate(pattern[length:], is_path=True)
    if compiled is None:
        return None
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
