"""Which shell commands may run unasked.

Owns the rules and the decision on one command. How a command is read is in `_shell_words`; what the standard rules
know of each program in `_read_only`; asking people in `approvals`. A rule decides what is asked about, it does not
confine what runs: that is the sandbox.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, TypeAlias, TypeVar

from swink_agent.core.value import Value

from ._read_only import READ_ONLY, ReadOnly
from ._shell_words import (
    NotPlain,
    is_builtin,
    names,
    pattern_words,
    plain_commands,
    plain_words,
    simple_commands,
)
from .display import safe_display

__all__ = ["COMMAND_TOOLS", "CommandRules", "Decision"]

T = TypeVar("T")
CommandVerdict: TypeAlias = Literal["allow", "ask", "deny"]

COMMAND_TOOLS: Mapping[str, str] = MappingProxyType({"bash": "command"})
"""The tools that run shell commands, and the argument that holds the command."""

STANDARD_DENY = ("sudo", "su", "doas", "pkexec", "shutdown", "reboot", "halt", "poweroff")

# Programs that run the program named in their arguments, or text given in them. Any of their words may be one.
_RUNNERS = names(
    "ash bash builtin busybox chroot command dash doas env eval exec find flock ionice ksh nice nohup parallel pkexec "
    "script setsid sh ssh stdbuf su sudo time timeout unshare watch xargs zsh"
)
_NAME = re.compile(r"[\w./-]*")
_LETTERS = re.compile(r"-[A-Za-z]+", re.ASCII)
# Folders of programs that read a file in the current folder to find out what they are to run.
_REDIRECTING_FOLDERS = frozenset({"shims", ".volta"})
# What changes, for the commands behind it, what their words mean.
_MOVING = frozenset({"cd", "umask"})
_ANYTHING = ("", "")  # a word that is one star
_DEEPEST = 4
_LONGEST = 131_071  # of bytes, for one argument on Linux
_MOST_LOOKED_AT = 200


class Decision(Value, frozen=True):
    """What the rules say of a command, and why, in words for whoever asked."""

    hidden_fields = frozenset({"reason"})  # it may quote the command

    verdict: CommandVerdict
    reason: str = ""


class CommandRules:
    """Rules by the first words of a command: `CommandRules(allow=["git status", "npm test"], deny=["git push"])`.

    A command is allowed if it consists of nothing but words, read exactly as bash reads them, and begins with the words
    of an allow rule; the program must be written as in the rule, so `ls` is neither `./ls` nor `/tmp/ls`. Denying wins
    over allowing, and looks further: into the parts of compound commands, behind paths, options and programs that run
    others, as far as they can be recognised. Everything else is asked about. A rule that is no plain command is a
    `ValueError`.

    `patterns` allow too, and say where a command ends: `npm test` is that and nothing behind it; in `pytest *` the last
    star is whatever follows, in `npm run test:*` it is a part of one word. With `compound`, commands with `;`, `&&`,
    `||` or `|` between them are allowed if each of them is, one at least by a rule of yours.

    Immutable, so it can be shared by agents and threads.
    """

    def __init__(
        self,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        *,
        patterns: Iterable[str] = (),
        compound: bool = False,
        search_path: str | None = None,
    ) -> None:
        self._allow = (
            *[_AllowRule(text) for text in allow],
            *[_AllowRule(text, is_pattern=True) for text in patterns],
        )
        self._deny = tuple(_deny_rule(text) for text in deny)
        self._compound = compound
        self._search_path = search_path
        self._standard: tuple[tuple[tuple[str, ...], ReadOnly], ...] = ()

    @classmethod
    def standard(
        cls,
        *,
        allow: Iterable[str] = (),
        deny: Iterable[str] = STANDARD_DENY,
        patterns: Iterable[str] = (),
        compound: bool = False,
        search_path: str | None = None,
    ) -> CommandRules:
        """Commands that only read, with the options that only read, in the current folder; and what you add.

        These ask as well when the program is not where the system keeps programs: when `search_path` (default: `PATH`)
        leads into the folder that the model can write, or is relative.
        """
        rules = cls(allow, deny, patterns=patterns, compound=compound, search_path=search_path)
        # The longer prefix first: `git branch --list` before `git branch`.
        entries = [(tuple(prefix.split()), check) for prefix, check in READ_ONLY.items()]
        rules._standard = tuple(sorted(entries, key=lambda entry: -len(entry[0])))
        return rules

    def __repr__(self) -> str:
        standard = "standard, " if self._standard else ""
        return f"<CommandRules {standard}{len(self._allow)} to allow, {len(self._deny)} to deny>"

    def decide(self, command: str, *, attended: bool = True, folder: str | None = None) -> Decision:
        """Whether the command may run unasked (`allow`), after asking (`ask`), or not at all (`deny`).

        `attended=False`: there is nobody to ask, so that asking is denying. `folder` is where it would run, and what
        the model can write.
        """
        if not isinstance(command, str):  # pyright: ignore[reportUnnecessaryIsInstance] - arguments come from a model
            decision = Decision("ask", f"the command is a {type(command).__name__} and not a text")
        else:
            decision = self._forbid(command) or self._permit(command, folder)
        if decision.verdict == "ask" and not attended:
            return Decision("deny", f"{decision.reason}, and there is nobody to ask")
        return decision

    # -- allowing --------------------------------------------------------------------------------------------

    def _permit(self, command: str, folder: str | None) -> Decision:
        try:
            return self._permit_one(plain_words(command), folder)
        except NotPlain as problem:
            together = self._permit_each(command, folder) if self._compound else None
            return together or Decision("ask", f"the command is not a plain one: {problem}")

    def _permit_each(self, command: str, folder: str | None) -> Decision | None:
        """What follows for commands joined by operators; `None` if they are something else, or nothing of ours."""
        try:
            commands = plain_commands(command)
        except NotPlain:
            return None
        ours = [self._rule_for(words) is not None for words in commands]
        if not any(ours):
            return None
        # What only reads does so in the folder: elsewhere its relative paths lead who knows where.
        moves = any(words[0] in _MOVING for words in commands)
        for words, is_ours in zip(commands, ours, strict=True):
            decision = self._permit_one(words, folder)
            if moves and not is_ours:
                return Decision("ask", f"no rule allows {_show(words[:2])} in another folder")
            if decision.verdict != "allow":
                return decision
        return Decision("allow", "rules allow each part of it")

    def _permit_one(self, words: tuple[str, ...], folder: str | None) -> Decision:
        rule = self._rule_for(words)
        if rule is not None:
            return Decision("allow", f"the rule {rule} allows it")
        for prefix, check in self._standard:
            if words[: len(prefix)] == prefix:
                problem = check.problem(words[len(prefix) :], folder) or self._misplaced(words[0], folder)
                if problem is not None:
                    return Decision("ask", f"{_show(prefix)} is asked about: {problem}")
                return Decision("allow", f"{_show(prefix)} only reads")
        return Decision("ask", f"no rule allows {_show(words[:2])}")

    def _rule_for(self, words: tuple[str, ...]) -> _AllowRule | None:
        return next((rule for rule in self._allow if rule.covers(words)), None)

    def _misplaced(self, program: str, folder: str | None) -> str | None:
        """Why the program that the name would run is perhaps not the system's own, or `None`."""
        if is_builtin(program):
            return None
        search_path = os.environ.get("PATH", os.defpath) if self._search_path is None else self._search_path
        for place in search_path.split(os.pathsep):
            if not os.path.isabs(place):
                return f"PATH looks in {safe_display(place) or 'the current folder'}, where {program} may be anything"
            found = os.path.join(place, program)
            if os.path.isfile(found) and os.access(found, os.X_OK):
                real = os.path.realpath(found)
                if folder is not None and any(
                    _is_beneath(path, folder) for path in (found, os.path.realpath(place), real)
                ):
                    return f"{program} is {safe_display(found, 200)}, in a folder that the model can write"
                if not _REDIRECTING_FOLDERS.isdisjoint(found.split(os.sep)):
                    return f"{program} is {safe_display(found, 200)}, which lets files of the folder choose what runs"
                return None
        return None

    # -- denying ---------------------------------------------------------------------------------------------

    def _forbid(self, command: str) -> Decision | None:
        if len(command) > _LONGEST:
            size = f"the command has {len(command):,} characters"
            return Decision("deny", f"{size}, and no shell takes more than {_LONGEST:,}: put it in a file")
        for words in _commands_in(command) if self._deny else ():
            for rule in self._deny:
                if _is_denied(rule, words):
                    return Decision("deny", f"the rule {_show(rule)} denies it")
        return None


class _AllowRule:
    """The words that a command begins with, or is, to be allowed; each in pieces with any text between them."""

    __slots__ = ("_is_whole", "_text", "_words")

    def __init__(self, text: str, *, is_pattern: bool = False) -> None:
        words = _parsed(text, "allow", pattern_words if is_pattern else _whole_words)
        is_open = not is_pattern or (words[-1] == _ANYTHING and len(words) > 1)
        self._text = text
        self._words = words[:-1] if is_pattern and is_open else words
        self._is_whole = not is_open

    def __str__(self) -> str:
        return _show(self._text.split())

    def covers(self, words: tuple[str, ...]) -> bool:
        if len(words) < len(self._words) or (self._is_whole and len(words) > len(self._words)):
            return False
        return all(map(_fits, self._words, words))


def _fits(pieces: tuple[str, ...], word: str) -> bool:
    """Whether the word is these pieces with something, or nothing, between them.

    What stands there is never an option where the rule names none, nor a way up and out: `src/*` is no `src/../etc`.
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


def _deny_rule(text: str) -> tuple[str, ...]:
    return _parsed(text, "deny", _deny_words)


def _parsed(text: str, kind: str, parse: Callable[[str], T]) -> T:
    if isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a rule may come from a settings file
        try:
            return parse(text)
        except NotPlain as problem:
            why = str(problem)
    else:
        why = f"it is a {type(text).__name__}"
    raise ValueError(
        f"the {kind} rule {text!r} is no plain command: {why}; a rule is a program and words that follow it"
    )


def _whole_words(text: str) -> list[tuple[str, ...]]:
    return [(word,) for word in plain_words(text)]


def _deny_words(text: str) -> tuple[str, ...]:
    # Also what may not be allowed can be denied: eval, for one. As an argument it is a word like any other.
    return plain_words(f"denied {text}")[1:] or plain_words("")


def _show(words: Sequence[str]) -> str:
    return f"'{safe_display(' '.join(words), 120)}'"


def _is_beneath(path: str, folder: str) -> bool:
    real = os.path.realpath(folder)
    return any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in (folder, real))


def _commands_in(command: str, depth: int = 0) -> list[tuple[str, ...]]:
    """What the command would run as far as that shows, with what its parts give to a shell as text."""
    found: list[tuple[str, ...]] = []
    for words in simple_commands(command):
        found.append(words)
        if depth < _DEEPEST and _name(words[0]) in _RUNNERS:
            for word in words[1:]:
                if not _NAME.fullmatch(word):
                    found.extend(_commands_in(word, depth + 1))
    return found


def _name(program: str) -> str:
    return program.rpartition("/")[2].casefold()


def _is_denied(rule: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Whether the command begins as the rule does, or what it is told to run does."""
    program, following = rule[0], rule[1:]
    is_path = "/" in program
    found = 0
    # What a program that runs others is told to run may stand anywhere behind it.
    for start in range(len(words) if _name(words[0]) in _RUNNERS else 1):
        if words[start] == program if is_path else _name(words[start]) == program.casefold():
            found += 1
            if found > _MOST_LOOKED_AT or _follows(following, words[start + 1 : start + 1 + _MOST_LOOKED_AT]):
                return True
    return False


def _follows(wanted: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Whether the words begin with the wanted ones, whatever options stand between."""
    operands = [word for word in words if not word.startswith("-")]
    # A word behind an option may be its value: `git -C folder push`.
    sure = [word for before, word in pairwise(("", *words)) if not word.startswith("-") and not before.startswith("-")]
    named = [word for word in wanted if not word.startswith("-")]
    if named not in (operands[: len(named)], sure[: len(named)]):
        return False
    return all(_has_option(word, words) for word in wanted if word.startswith("-"))


def _has_option(option: str, words: Sequence[str]) -> bool:
    """Whether the option is there: short ones in any order and grouping, long ones with or without a value."""
    if any(word == option or word.startswith(f"{option}=") for word in words):
        return True
    if not _LETTERS.fullmatch(option):
        return False
    given = {letter for word in words if word.startswith("-") and not word.startswith("--") for letter in word[1:]}
    return set(option[1:]) <= given
