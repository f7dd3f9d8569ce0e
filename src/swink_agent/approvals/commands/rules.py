"""Which shell commands may run unasked.

Owns the rules and the decision on one command. How a command is read is in `shell_words` and, for what is forbidden,
`named_commands`; how its parts are judged in `judgement`; what the standard rules know of each program in
`read_only`; where words lead in `places`; asking people in `approvals`. A rule decides what is asked about, it does
not confine what runs: that is the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from swink_agent.core.values.several import several
from swink_agent.core.values.value import Value

from .allow_rules import AllowRule, parsed
from .judgement import Allowed, Judgement, show
from .named_commands import is_runner, named_commands, program_name
from .shell_words import NotPlain, plain_words, read_script

__all__ = ["COMMAND_TOOLS", "CommandRules", "Decision"]

CommandVerdict: TypeAlias = Literal["allow", "ask", "deny"]

COMMAND_TOOLS: Mapping[str, str] = MappingProxyType({"bash": "command"})
"""The tools that run shell commands, and the argument that holds the command."""

STANDARD_DENY = ("sudo", "su", "doas", "pkexec", "shutdown", "reboot", "halt", "poweroff")

_LETTERS = re.compile(r"-[A-Za-z]+", re.ASCII)
_LONGEST = 131_071  # of bytes, for one argument on Linux
_MOST_LOOKED_AT = 200


class Decision(Value, frozen=True):
    """What the rules say of a command, and why, in words for whoever asked."""

    hidden_fields = frozenset({"reason"})  # it may quote the command

    verdict: CommandVerdict
    reason: str = ""


class CommandRules:
    """Rules by the first words of a command: `CommandRules(allow=["git status", "npm test"], deny=["git push"])`.

    A command is allowed if it is read exactly as bash reads it and each of its parts is allowed: it consists of nothing
    but words and begins with those of an allow rule; the program must be written as in the rule, so `ls` is neither
    `./ls` nor `/tmp/ls`. Denying wins over allowing, and looks further: into the parts of compound commands, behind
    redirections, paths, options and programs that run others, as far as they can be recognised. Everything else is
    asked about. A rule that is no plain command is a `ValueError`. One string, in place of a list, is one rule.

    `patterns` allow too, and say where a command ends: `npm test` is that and nothing behind it; in `pytest *` the last
    star is whatever follows, in `npm run test:*` it is a part of one word. Of commands with `;`, `&&`, `||` or `|`
    between them one may be allowed by a rule of yours, if the others only read, and those behind it only what it
    printed; with `compound` any of them may.

    Immutable, so it can be shared by agents and threads.
    """

    def __init__(
        self,
        allow: str | Iterable[str] = (),
        deny: str | Iterable[str] = (),
        *,
        patterns: str | Iterable[str] = (),
        compound: bool = False,
        search_path: str | None = None,
    ) -> None:
        begun = [AllowRule(text) for text in several(allow, "CommandRules(allow=…)")]
        whole = [AllowRule(text, is_pattern=True) for text in several(patterns, "CommandRules(patterns=…)")]
        rules = (*begun, *whole)
        self._allowed = Allowed(rules, compound=compound, search_path=search_path)
        self._deny = tuple(parsed(text, "deny", _deny_words) for text in several(deny, "CommandRules(deny=…)"))

    @classmethod
    def standard(
        cls,
        *,
        allow: str | Iterable[str] = (),
        deny: str | Iterable[str] = STANDARD_DENY,
        patterns: str | Iterable[str] = (),
        compound: bool = False,
        search_path: str | None = None,
    ) -> CommandRules:
        """Commands that only read, with the options that only read, in the current folder; and what you add.

        They may be joined by `|`, `&&`, `||` and `;`, begin with `cd` into a folder beneath, have file patterns, and
        throw output away (`2>/dev/null`). What words, patterns and links lead to is looked at on the disk, and so are
        the settings of the repository before git runs. These ask as well when the program is not where the system
        keeps programs: when `search_path` (default: `PATH`) leads into the folder that the model can write, or is
        relative.
        """
        rules = cls(allow, deny, patterns=patterns, compound=compound, search_path=search_path)
        rules._allowed = msgspec.structs.replace(rules._allowed, has_standard=True)
        return rules

    def __repr__(self) -> str:
        standard = "standard, " if self._allowed.has_standard else ""
        return f"<CommandRules {standard}{len(self._allowed.rules)} to allow, {len(self._deny)} to deny>"

    def decide(
        self,
        command: str,
        *,
        attended: bool = True,
        folder: str | None = None,
        trusted: Iterable[tuple[str, ...]] = (),
    ) -> Decision:
        """Whether the command may run unasked (`allow`), after asking (`ask`), or not at all (`deny`).

        `attended=False`: there is nobody to ask, so that asking is denying. `folder` is where it would run, and what
        the model can write; by default the current one of this process. `trusted` are first words of commands that
        somebody trusts for now.
        """
        if not isinstance(command, str):  # pyright: ignore[reportUnnecessaryIsInstance] - arguments come from a model
            decision = Decision("ask", f"the command is a {type(command).__name__} and not a text")
        else:
            decision = self._forbid(command) or self._permit(command, tuple(trusted), folder)
        if decision.verdict == "ask" and not attended:
            return Decision("deny", f"{decision.reason}, and there is nobody to ask")
        return decision

    # -- allowing --------------------------------------------------------------------------------------------

    def _permit(self, command: str, trusted: tuple[tuple[str, ...], ...], folder: str | None) -> Decision:
        try:
            script = read_script(command)
        except NotPlain as problem:
            return Decision("ask", f"the command is not a plain one: {problem}")
        judgement = Judgement(self._allowed, script, trusted, folder)
        problem = judgement.problem()
        return Decision("allow", judgement.reason) if problem is None else Decision("ask", problem)

    # -- denying ---------------------------------------------------------------------------------------------

    def _forbid(self, command: str) -> Decision | None:
        if len(command) > _LONGEST:
            size = f"the command has {len(command):,} characters"
            return Decision("deny", f"{size}, and no shell takes more than {_LONGEST:,}: put it in a file")
        for words in named_commands(command) if self._deny else ():
            for rule in self._deny:
                if _is_denied(rule, words):
                    return Decision("deny", f"the rule {show(rule)} denies it")
        return None


def _deny_words(text: str) -> tuple[str, ...]:
    # Also what may not be allowed can be denied: eval, for one. As an argument it is a word like any other.
    return plain_words(f"denied {text}")[1:] or plain_words("")


def _is_denied(rule: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Whether the command begins as the rule does, or what it is told to run does."""
    following = rule[1:]
    found = 0
    # What a program that runs others is told to run may stand anywhere behind it.
    for start in range(len(words) if is_runner(words) else 1):
        if _is_named(rule[0], words[start], is_first=start == 0):
            found += 1
            if found > _MOST_LOOKED_AT or _follows(following, words[start + 1 : start + 1 + _MOST_LOOKED_AT]):
                return True
    return False


def _is_named(program: str, word: str, *, is_first: bool) -> bool:
    if "/" in program:
        return word == program
    name = program_name(word)
    if name == program.casefold():
        return True
    # /bin/r? becomes the program too; among further words a pattern is rather one to look for.
    is_pattern = (is_first or word.startswith("/")) and len(name) < 40 and any(mark in name for mark in "*?[")
    return is_pattern and fnmatchcase(program.casefold(), name)


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
