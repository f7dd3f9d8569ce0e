"""Decides whether every part of a command may run unasked.

Walks through a parsed command in the order in which bash would run its parts: which folder each may run in, which rule
applies, and what must be asked about. Also parses a user's allow rule. The rules themselves are in `rules`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from swink_agent.core.values.checks import a_kind
from swink_agent.core.values.value import Value
from swink_agent.rendering.escaping import safe_display
from swink_agent.sandbox.kernel.mounts import is_in

from .git_settings import git_problem
from .places import Place
from .prefixes import does_more, prefix_covers
from .read_only import READ_ONLY
from .reading import ReadOnly
from .shell_words import NotPlain, Pipeline, SimpleCommand, Word, is_builtin, pattern_words, plain_words
from .xargs import consumer

T = TypeVar("T")
_ANYTHING = ("", "")  # a word that is a single star
# Folders of programs that read a file in the current folder to decide what they run.
_REDIRECTING_FOLDERS = frozenset({"shims", ".volta"})
_MOST_WORDS = 2_000
_MOST_PLACES = 8
_STANDARD = {tuple(prefix.split()): check for prefix, check in READ_ONLY.items()}
_LONGEST_PREFIX = max(map(len, _STANDARD))
# Options of `git log` that do not show the content of files.
_LOG_OF_NAMES = re.compile(
    r"-[0-9]+|-n[0-9]*|--(oneline|stat|graph|all|decorate|no-decorate|format|pretty|since|until|after|before|author|date"
    r"|grep|name-only|name-status|numstat|shortstat|merges|no-merges|first-parent|reverse|abbrev-commit|max-count|skip"
    r"|follow|color|no-color|branches|tags|topo-order|date-order)(=.*)?|--",
    re.DOTALL,
)


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
        why = f"it is {a_kind(text)}"
    raise ValueError(
        f"the {kind} rule {text!r} is not a plain command: {why}; a rule is a program and words that follow it"
    )


class Allowed(Value, frozen=True):
    """The rules for commands that run unasked: the user's, and the standard ones if they are on."""

    rules: tuple[AllowRule, ...]
    has_standard: bool = False
    compound: bool = False
    """Whether the user's rules may allow several commands in a row."""
    search_path: str | None = None

    def rule_for(self, words: tuple[str, ...]) -> AllowRule | None:
        """The user's rule that allows the words, if there is one."""
        return next((rule for rule in self.rules if rule.covers(words)), None)

    def standard_for(self, words: tuple[Word, ...]) -> tuple[tuple[str, ...], ReadOnly] | None:
        """The standard rule for the command, if there is one."""
        texts = tuple(word.text for word in words[:_LONGEST_PREFIX]) if self.has_standard else ()
        # The longer prefix first: `git branch --list` before `git branch`.
        for length in range(len(texts), 0, -1):
            if (check := _STANDARD.get(texts[:length])) is not None:
                return texts[:length], check
        return None

    def misplaced(self, program: str, folder: str | None) -> str | None:
        """Why the program that this name would run may not be the system's own, or `None`."""
        if is_builtin(program):
            return None
        search_path = os.environ.get("PATH", os.defpath) if self.search_path is None else self.search_path
        written = () if folder is None else (folder, os.path.realpath(folder))
        for place in search_path.split(os.pathsep):
            if not os.path.isabs(place):
                return f"PATH looks in {safe_display(place) or 'the current folder'}, where {program} may be anything"
            found = os.path.join(place, program)
            is_there = os.path.isfile(found) and os.access(found, os.X_OK)
            real = os.path.realpath(found)
            # A link into the folder may have no target yet.
            if (is_there and any(is_in(path, written) for path in (found, os.path.realpath(place), real))) or (
                is_in(real, written) and os.path.islink(found)
            ):
                return f"{program} is {safe_display(found, 200)}, in a folder that the model can write"
            if is_there:
                if not _REDIRECTING_FOLDERS.isdisjoint(found.split(os.sep)):
                    return f"{program} is {safe_display(found, 200)}, which lets files of the folder choose what runs"
                return None
        return None


class Judgement:
    """The decision on one command, part by part, in the order in which bash would run them."""

    def __init__(
        self, allowed: Allowed, script: tuple[Pipeline, ...], trusted: tuple[tuple[str, ...], ...], folder: str | None
    ) -> None:
        self.allowed = allowed
        self.trusted = trusted
        self.script = script
        self.folder = folder
        place = Place(_current_folder() if folder is None else folder)
        self.places = {place}
        """The folders that bash may be in by now: a `cd` may not have run, or may have failed."""
        self.here = {place}
        """The folders that the next command may run in: fewer if it runs only after all before it succeeded."""
        self.has_run_own = False
        self.may_go_anywhere = self.is_lost = False
        """Whether the user's rules allowed a `cd`, and whether one led to a folder that is not checked."""
        self.reasons: list[str] = []
        self.before: tuple[SimpleCommand, ...] = ()
        """The commands that are piped into the current one."""

    def problem(self) -> str | None:
        """Why the command is asked about, or `None`."""
        if sum(len(command.words) for pipeline in self.script for command in pipeline.commands) > _MOST_WORDS:
            return f"the command has more than {_MOST_WORDS:,} words"
        for position, pipeline in enumerate(self.script):
            if pipeline.joint != "&&" or self._has_alternatives(position):
                self.here = self.places
            for number, command in enumerate(pipeline.commands):
                self.before = pipeline.commands[:number]
                problem = self._problem(command, is_piped=number > 0, is_alone=len(pipeline.commands) == 1)
                if problem is not None:
                    return problem
        return None

    @property
    def reason(self) -> str:
        """Why the command is allowed, once `problem` has returned `None`."""
        return self.reasons[0] if len(set(self.reasons)) == 1 else "rules allow each part of it"

    def has_own(self) -> bool:
        """Whether the user's rules or trust cover a part of it."""
        commands = (command for pipeline in self.script for command in pipeline.commands)
        return any(
            not command.reads_file and not command.repeated and self._own(command.plain) is not None
            for command in commands
        )

    def _has_alternatives(self, position: int) -> bool:
        """Whether the same list of commands has a `||`, so that not all commands before must have succeeded."""
        start = position
        while start > 0 and self.script[start].joint != ";":
            start -= 1
        return any(pipeline.joint == "||" for pipeline in self.script[start : position + 1])

    def _problem(self, command: SimpleCommand, *, is_piped: bool, is_alone: bool) -> str | None:
        for place in self.here:
            for word in command.inputs:
                problem = place.problem(word.text)
                if problem is not None:
                    return f"the command is asked about: {problem}"
        rule = None if command.reads_file or command.repeated else self._own(command.plain)
        if command.words[0].text == "cd":
            if command.repeated:
                return "the command changes its folder in a loop"
            problem = self._go(command, is_alone=is_alone)
            if rule is not None:  # the user allows it to any folder
                self.may_go_anywhere = True
                self.is_lost = self.is_lost or problem is not None
            return problem if rule is None else None
        if rule is None:
            return self._standard_problem(command, is_piped=is_piped)
        if len(self.places) > 1 and not self.may_go_anywhere:
            return f"{rule} is allowed by a rule, but not after cd"
        if self.has_run_own and not self.allowed.compound:
            return f"{rule} is allowed by a rule, but not after another command that a rule allows"
        self.has_run_own = True
        self.reasons.append(f"the rule {rule} allows it")
        return None

    def _own(self, words: tuple[str, ...] | None) -> str | None:
        """The rule or the trusted prefix that allows the words, if there is one."""
        if words is None:
            return None
        by_trust = next((prefix for prefix in self.trusted if prefix_covers(prefix, words)), None)
        rule = show(by_trust) if by_trust is not None else self.allowed.rule_for(words)
        return None if rule is None else str(rule)

    def _go(self, command: SimpleCommand, *, is_alone: bool) -> str | None:
        words = command.plain
        if not self.allowed.has_standard or words is None or len(words) != 2 or not is_alone:
            return f"no rule allows {show([word.text for word in command.words[:2]])}"
        there = _reached(self.here, words[1])
        if there is None:
            return f"'cd' is asked about: {safe_display(words[1], 60)} is not a folder in the folder, or is a link"
        self.here = there
        self.places = self.places | there
        self.reasons.append("'cd' only reads")
        return None if len(self.places) <= _MOST_PLACES else "the command changes its folder too often"

    def _standard_problem(self, command: SimpleCommand, *, is_piped: bool) -> str | None:
        words, places = command.words, self.here
        if any("\n" in word.text or "\t" in word.text for word in words):  # the table knows words of one line
            return f"{show([words[0].text])} is asked about: a word of it has a tab or several lines"
        if words[0].text == "git":
            words, places = _without_git_options(words, places)
        programs: tuple[str, ...] = ()
        if words[0].text == "xargs" and self.allowed.has_standard:
            words = consumer(words, self.before, places) or words
            programs = ("xargs",) if words[0].text != "xargs" else ()
        found = self.allowed.standard_for(words)
        if found is None or (programs and not found[1].patterns):
            return f"no rule allows {show([word.text for word in command.words[:2]])}"
        rule, check = found
        rest = words[len(rule) :]
        programs = (*programs, words[0].text, *check.starts)
        problem = next(filter(None, (self.allowed.misplaced(name, self.folder) for name in programs)), None)
        # A command that the user's rule allowed may have made links and files: after it, only piped text may be read.
        if self.is_lost:
            problem = "it would read in another folder"
        elif (
            self.has_run_own
            and not self.allowed.compound
            and not (is_piped and check.is_filter(rest))
            and not check.harmless
        ):
            problem = "it reads files after a command that may have changed them"
        for place in places:
            problem = problem or check.problem(rest, place) or self._git_problem(check, rest, place)
        self.reasons.append(f"{show(rule)} only reads")
        return None if problem is None else f"{show(rule)} is asked about: {problem}"

    def _git_problem(self, check: ReadOnly, words: tuple[Word, ...], place: Place) -> str | None:
        if check.git is None:
            return None
        shows_names = check.git in ("names", "remotes") or (
            check.git == "log"
            and all(_LOG_OF_NAMES.fullmatch(word.text) for word in words if word.text.startswith("-"))
        )
        return git_problem(
            place,
            os.environ,
            contents=not shows_names,
            remotes=check.git == "remotes",
            misplaced=lambda program: self.allowed.misplaced(program, self.folder),
        )


def _current_folder() -> str:
    """The folder of commands that were given none: this process's own.

    Returns `os.devnull`, which contains no files, if that is the root folder or the home folder, or was deleted.
    """
    try:
        current = os.getcwd()
    except OSError:
        return os.devnull
    return os.devnull if current in ("/", os.path.expanduser("~")) else current


def _without_git_options(words: tuple[Word, ...], places: set[Place]) -> tuple[tuple[Word, ...], set[Place]]:
    """The git command without the options for its folder and for no pager, and the folders that it runs in."""
    program, rest = words[0], words[1:]
    while rest:
        if rest[0].text in ("--no-pager", "-P", "--no-optional-locks"):
            rest = rest[1:]
        elif rest[0].text == "-C" and len(rest) > 1 and rest[1].pattern is None and not rest[1].varies:
            there = _reached(places, rest[1].text)
            if there is None:
                break
            rest, places = rest[2:], there
        else:
            break
    return (program, *rest), places


def _reached(places: set[Place], name: str) -> set[Place] | None:
    """Where `cd` leads from each of the folders, or `None` if it fails in one of them."""
    there = [place.folder(name) for place in places]
    return None if None in there else {place for place in there if place is not None}


def show(words: Sequence[str]) -> str:
    """The words in quotes, for use in a reason."""
    return f"'{safe_display(' '.join(words), 120)}'"
