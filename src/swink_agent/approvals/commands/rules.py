"""Decides which shell commands may run unasked.

Contains the rules and the decision on one command. `shell_words` parses commands, `denied` finds what they name
openly, for deny rules, `exact` has the commands that only read, and `approvals` asks people. A rule decides what is
asked about; the sandbox confines what runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeAlias, TypeVar

from swink_agent.core.values.checks import a_kind
from swink_agent.core.values.several import several
from swink_agent.core.values.value import Value
from swink_agent.rendering.escaping import safe_display

from .denied import denial
from .exact import EXACT, exact_problem, only_passes_on
from .prefixes import does_more, prefix_covers
from .shell_words import NotPlain, pattern_words, plain_words, read_script

T = TypeVar("T")
CommandVerdict: TypeAlias = Literal["allow", "ask", "deny"]

COMMAND_TOOLS: Mapping[str, str] = MappingProxyType({"bash": "command"})
"""The tools that run shell commands, and the argument with the command."""

STANDARD_DENY = ("sudo", "su", "doas", "pkexec", "shutdown", "reboot", "halt", "poweroff")

_LITERAL = re.compile(r"[\w\s./=,:;|&<>()#%+@-]*", re.ASCII)
"""Text without quotes, escapes, variables and patterns: its words are in it as they are."""
_LONGEST = 131_071  # bytes of one argument on Linux


class Decision(Value, frozen=True):
    """The verdict of the rules on a command, and the reason in words for a person."""

    hidden_fields = frozenset({"reason"})  # it may quote the command

    verdict: CommandVerdict
    reason: str = ""
    reads_only: bool = False
    """Whether it is allowed because it is one of the commands that only read, and not by a rule or trust."""


class CommandRules:
    """Rules by the first words of a command: `CommandRules(allow=["git status", "npm test"], deny=["git push"])`.

    A command is allowed if it can be read exactly as bash reads it and each of its parts is allowed: a part consists of
    plain words and begins with those of an allow rule. The program must be written as in the rule: `ls` is neither
    `./ls` nor `/tmp/ls`. Deny rules win, and see more: the parts of compound commands, and programs after
    redirections, paths, options and programs that run others, as far as these are recognised. Every other command is
    asked about. A rule that is not a plain command raises `ValueError`. A single string is one rule.

    `patterns` allow too, and also fix where a command ends: `npm test` is exactly that; in `pytest *` the last star
    matches any arguments, in `npm run test:*` a part of one word. If commands are joined with `;`, `&&`, `||` or `|`,
    your rules may allow one of them, and its output may be piped to `tail`, `grep` and the like, without a file; with
    `compound` your rules may allow any of them.

    Immutable: agents and threads may share it.
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
        self._allow = (*begun, *whole)
        self._deny = tuple(_parsed(text, "deny", _deny_words) for text in several(deny, "CommandRules(deny=…)"))
        self._is_compound = compound
        self._search_path = search_path
        self._has_standard = False

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
        """A short list of exact commands that only read (`pwd`, `ls`, `git status` …), and what you add.

        Where a sandbox confines commands, it is of little use: `Approvals` lets every command run there that can only
        read. Where none does, every other command is asked about, and so is `git` if the repository may make it start
        a program, and a program that may not be the system's: if `search_path` (default: `PATH`) is relative or leads
        into the folder that the model can write.
        """
        rules = cls(allow, deny, patterns=patterns, compound=compound, search_path=search_path)
        rules._has_standard = True
        return rules

    def __repr__(self) -> str:
        standard = "standard, " if self._has_standard else ""
        return f"<CommandRules {standard}{len(self._allow)} to allow, {len(self._deny)} to deny>"

    def decide(
        self, command: str, *, attended: bool = True, folder: str | None = None, trusted: Iterable[tuple[str, ...]] = ()
    ) -> Decision:
        """Whether the command may run unasked (`allow`), after asking (`ask`), or never (`deny`).

        `attended=False`: there is no person to ask, so `ask` becomes `deny`. `folder`: where the command would run and
        the model can write; the current folder by default. `trusted`: first words of commands that a person trusts.
        """
        if not isinstance(command, str):  # pyright: ignore[reportUnnecessaryIsInstance] - arguments come from a model
            decision = Decision("ask", f"the command is {a_kind(command)}, not a text")
        else:
            decision = self._forbid(command) or self._permit(command, tuple(trusted), folder)
        if decision.verdict == "ask" and not attended:
            return Decision("deny", f"{decision.reason}, and no one can answer a question here")
        return decision

    # -- allowing --------------------------------------------------------------------------------------------

    def _permit(self, command: str, trusted: tuple[tuple[str, ...], ...], folder: str | None) -> Decision:
        try:
            script = read_script(command)
        except NotPlain as problem:
            return Decision("ask", f"the command is not a plain one: {problem}")
        rules: list[str] = []
        harmless: list[Decision] = []
        for pipeline in script:
            for number, words in enumerate(pipeline):
                rule = self._rule_for(words, trusted)
                if rule is not None:
                    if rules and not self._is_compound:
                        why = "but not after another command that a rule allows"
                        return Decision("ask", f"{rule} is allowed by a rule, {why}")
                    rules.append(rule)
                elif not (number and rules and only_passes_on(words)):
                    exact = self._exact(words, folder)
                    if exact.verdict != "allow" or (rules and not self._is_compound):
                        return exact if exact.verdict == "ask" else Decision("ask", _unruled(words))
                    harmless.append(exact)
        if not rules:
            is_exact = len(script) == len(script[0]) == 1
            return harmless[0] if is_exact else Decision("ask", _unruled(script[0][0]))
        is_one = len(set(rules)) == 1 and not harmless
        return Decision("allow", f"the rule {rules[0]} allows it" if is_one else "rules allow each part of it")

    def _exact(self, words: tuple[str, ...], folder: str | None) -> Decision:
        """The decision by the standard list."""
        if not self._has_standard or words not in EXACT:
            return Decision("ask", _unruled(words))
        problem = exact_problem(words, folder, self._search_path)
        if problem is None:
            return Decision("allow", f"{_show(words)} only reads", reads_only=True)
        return Decision("ask", f"{_show(words)} is asked about: {problem}")

    def _rule_for(self, words: tuple[str, ...], trusted: tuple[tuple[str, ...], ...]) -> str | None:
        """The rule or the trusted prefix that allows the words, if there is one."""
        by_trust = next((prefix for prefix in trusted if prefix_covers(prefix, words)), None)
        if by_trust is not None:
            return _show(by_trust)
        return next((str(rule) for rule in self._allow if rule.covers(words)), None)

    # -- denying ---------------------------------------------------------------------------------------------

    def _forbid(self, command: str) -> Decision | None:
        if len(command) > _LONGEST:
            size = f"the command has {len(command):,} characters"
            return Decision("deny", f"{size}, and no shell takes more than {_LONGEST:,}: put it in a file")
        if _LITERAL.fullmatch(command):
            text = command.casefold()
            if not any(rule[0].casefold() in text for rule in self._deny):
                return None  # most commands: without quotes and variables, no such name can be put together
        rule = denial(command, self._deny)
        return None if rule is None else Decision("deny", f"the rule {_show(rule)} denies it")


_ANYTHING = ("", "")  # a word that is a single star


class AllowRule:
    """The words that an allowed command begins with or consists of; any text may be between the pieces of a word."""

    __slots__ = ("_is_whole", "_text", "_words")

    def __init__(self, text: str, *, is_pattern: bool = False) -> None:
        words = _parsed(text, "allow", pattern_words if is_pattern else lambda text: [(w,) for w in plain_words(text)])
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


def _parsed(text: str, kind: str, parse: Callable[[str], T]) -> T:
    """The parsed rule. Raises `ValueError` with the problem."""
    if isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a rule may come from a settings file
        try:
            return parse(text)
        except NotPlain as problem:
            why = str(problem)
    else:
        why = f"it is {a_kind(text)}"
    raise ValueError(
        f"the {kind} rule {text!r} is not a plain command: {why}; a rule is a program and words that follow it"
    )


def _deny_words(text: str) -> tuple[str, ...]:
    # A program that cannot be allowed, such as eval, can be denied. As an argument it is an ordinary word.
    return plain_words(f"denied {text}")[1:] or plain_words("")


def _show(words: Sequence[str]) -> str:
    """The words in quotes, for use in a reason."""
    return f"'{safe_display(' '.join(words), 120)}'"


def _unruled(words: Sequence[str]) -> str:
    return f"no rule allows {_show(words[:2])}"
