"""Which shell commands may run unasked.

Owns the rules and the decision on one command. How a command is read is in `_shell_words`; what the standard rules
know of each program in `_read_only`; asking people in `approvals`. A rule decides what is asked about, it does not
confine what runs: that is the sandbox.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from swink_agent.core.value import Value

from ._read_only import READ_ONLY, ReadOnly
from ._shell_words import NotPlain, is_builtin, names, plain_words, simple_commands
from .display import safe_display

__all__ = ["CommandRules", "Decision"]

CommandVerdict: TypeAlias = Literal["allow", "ask", "deny"]

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

    Immutable, so it can be shared by agents and threads.
    """

    def __init__(self, allow: Iterable[str] = (), deny: Iterable[str] = (), *, search_path: str | None = None) -> None:
        self._allow = tuple(_rule(text, "allow") for text in allow)
        self._deny = tuple(_rule(text, "deny") for text in deny)
        self._search_path = search_path
        self._standard: tuple[tuple[tuple[str, ...], ReadOnly], ...] = ()

    @classmethod
    def standard(
        cls, *, allow: Iterable[str] = (), deny: Iterable[str] = STANDARD_DENY, search_path: str | None = None
    ) -> CommandRules:
        """Commands that only read, with the options that only read, in the current folder; and what you add.

        These ask as well when the program is not where the system keeps programs: when `search_path` (default: `PATH`)
        leads into the folder that the model can write, or is relative.
        """
        rules = cls(allow, deny, search_path=search_path)
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
            words = plain_words(command)
        except NotPlain as problem:
            return Decision("ask", f"the command is not a plain one: {problem}")
        for rule in self._allow:
            if words[: len(rule)] == rule:
                return Decision("allow", f"the rule {_show(rule)} allows it")
        for rule, check in self._standard:
            if words[: len(rule)] == rule:
                problem = check.problem(words[len(rule) :], folder) or self._misplaced(words[0], folder)
                if problem is not None:
                    return Decision("ask", f"{_show(rule)} is asked about: {problem}")
                return Decision("allow", f"{_show(rule)} only reads")
        return Decision("ask", f"no rule allows {_show(words[:2])}")

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


def _rule(text: str, kind: str) -> tuple[str, ...]:
    if isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a rule may come from a settings file
        try:
            return plain_words(text) if kind == "allow" else _deny_words(text)
        except NotPlain as problem:
            why = str(problem)
    else:
        why = f"it is a {type(text).__name__}"
    raise ValueError(
        f"the {kind} rule {text!r} is no plain command: {why}; a rule is a program and words that follow it"
    )


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
