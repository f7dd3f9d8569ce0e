"""A reading of shell commands that is never more generous than bash.

Owns two readings. `plain_words` is strict: it gives the words of a command that has nothing but words in it, exactly as
bash would pass them on, and refuses everything else. `simple_commands` is rough: it finds what a compound command would
probably run, for rules that forbid. What is permitted is decided in `command_rules`.
"""

from __future__ import annotations

import re
import string

from .display import is_deceptive, safe_display

__all__ = ["NotPlain", "is_builtin", "names", "pattern_words", "plain_commands", "plain_words", "simple_commands"]

_BARE = frozenset(string.ascii_letters + string.digits + "_-./:,+=@%^")
# Not with a sign in front: `bash -c +x` takes it for an option of its own.
_STAR = "\0"  # no command can hold it
_PROGRAM = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+-]*", re.ASCII)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=.*", re.ASCII | re.DOTALL)


def names(text: str) -> frozenset[str]:
    """The names in a line of them."""
    return frozenset(text.split())


KEYWORDS = names("! [[ ]] { } case coproc do done elif else esac fi for function if in select then time until while")
# What bash does itself with these can run code, change how later words are read, or evaluate a quoted argument: the
# subscript in `test -v 'a[$(id)]'` is one. Only builtins that do nothing of the kind may be named in a rule.
_HARMLESS_BUILTINS = names("cd echo false kill pwd true type umask wait")
_BUILTINS = names(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo "
    "enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf "
    "pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type typeset ulimit "
    "umask unalias unset wait"
)

_REFUSED = {
    **dict.fromkeys(";&|()", "the operator"),
    **dict.fromkeys("<>", "the redirection"),
    **dict.fromkeys("$`", "a substitution,"),
    **dict.fromkeys("*?[]", "the file pattern"),
    **dict.fromkeys("{}", "the brace"),
    "~": "a home folder,",
    "!": "a history mark,",
    "#": "a comment,",
}


class NotPlain(ValueError):
    """The command is more than a list of words. The text says what was found in it."""


# -- the strict reading --------------------------------------------------------------------------------------


def plain_words(command: str) -> tuple[str, ...]:
    """The words that bash would run the command with, the program first. Raises `NotPlain`.

    Accepted are plain characters, '…', "…" without anything that bash would look into, and a backslash before one
    printable ASCII character. So no operator, substitution, redirection, assignment, pattern, brace, comment, tab or
    line end, in quotes either; no keyword, and no builtin that evaluates.
    """
    return _checked(_Reader(command).words())


def plain_commands(command: str) -> list[tuple[str, ...]]:
    """The plain commands that bash would run one after another, or into each other. Raises `NotPlain`.

    As `plain_words`, and `;`, `&&`, `||` and `|` may stand between them.
    """
    reader = _Reader(command, operators=("&&", "||", ";", "|"))
    commands = [_checked(reader.words())]
    while reader.skip_operator():
        commands.append(_checked(reader.words()))
    return commands


def pattern_words(text: str) -> list[tuple[str, ...]]:
    """The words of a rule, each in the pieces between which a bare `*` may stand for any text. Raises `NotPlain`.

    A star in quotes is a star.
    """
    return [tuple(word.split(_STAR)) for word in _checked(_Reader(text, stars=True).words(), stars=True)]


def _checked(words: list[str], *, stars: bool = False) -> tuple[str, ...]:
    """The words, if they are a command with a program that may be named."""
    if not words:
        raise NotPlain("it is empty")
    program = words[0]
    if stars and _STAR in program:
        raise NotPlain("the program is not named: a * stands for parts of what follows it")
    if "=" in program:
        raise NotPlain(f"it begins with the assignment {safe_display(program, 60)}")
    if program in KEYWORDS:
        raise NotPlain(f"{program} is a keyword of the shell")
    if program in _BUILTINS - _HARMLESS_BUILTINS:
        raise NotPlain(f"{program} is a builtin of the shell that can run or change things")
    if not _PROGRAM.fullmatch(program):
        raise NotPlain(f"{safe_display(program, 60) or 'an empty word'} is no name of a program")
    return tuple(words)


def is_builtin(program: str) -> bool:
    """Whether bash runs the name itself, so that no file of that name matters."""
    return program in _BUILTINS


class _Reader:
    """One pass over a command. `operators` are those at which `words` stops; `stars` lets a bare `*` pass."""

    def __init__(self, command: str, *, operators: tuple[str, ...] = (), stars: bool = False) -> None:
        self.command = command
        self.position = 0
        self.operators = operators
        self.stars = stars

    def words(self) -> list[str]:
        words: list[str] = []
        command, end = self.command, len(self.command)
        while True:
            while self.position < end and command[self.position] == " ":
                self.position += 1
            if self.position == end or self._operator():
                return words
            words.append(self._word())

    def skip_operator(self) -> bool:
        """Steps over the operator that is next; says whether there was one."""
        operator = self._operator()
        self.position += len(operator)
        return bool(operator)

    def _operator(self) -> str:
        """The operator at this very place. One that is part of a longer one that is not known is none: `|&`, `;;`."""
        if self.command[self.position : self.position + 1] not in (";", "&", "|"):
            return ""
        for operator in self.operators:
            if self.command.startswith(operator, self.position):
                following = self.command[self.position + len(operator) : self.position + len(operator) + 1]
                return "" if following and following in ";&|" else operator
        return ""

    def _word(self) -> str:
        parts: list[str] = []
        while (
            self.position < len(self.command)
            and (character := self.command[self.position]) != " "
            and not self._operator()
        ):
            self.position += 1
            if character in _BARE:
                parts.append(character)
            elif character == "'":
                parts.append(self._single_quoted())
            elif character == '"':
                parts.append(self._double_quoted())
            elif character == "\\":
                parts.append(self._escaped())
            elif character == "~" and self._follows_a_letter():
                parts.append(character)  # HEAD~1: a home folder is only looked for where a word or a path begins
            elif character == "*" and self.stars:
                parts.append(_STAR)
            else:
                raise self._refusal(character)
        return "".join(parts)

    def _single_quoted(self) -> str:
        end = self.command.find("'", self.position)
        if end < 0:
            raise NotPlain("a quote is not closed")
        text = self.command[self.position : end]
        for character in text:
            self._check_quoted(character)
        self.position = end + 1
        return text

    def _double_quoted(self) -> str:
        parts: list[str] = []
        while self.position < len(self.command):
            character = self.command[self.position]
            self.position += 1
            if character == '"':
                return "".join(parts)
            if character == "\\":
                parts.append(self._escaped_in_quotes())
            elif character in "$`!":
                raise self._refusal(character)
            else:
                self._check_quoted(character)
                parts.append(character)
        raise NotPlain("a quote is not closed")

    def _escaped(self) -> str:
        character = self._after_backslash()
        self.position += 1
        return character

    def _escaped_in_quotes(self) -> str:
        character = self._after_backslash()
        if character in '\\"$`':
            self.position += 1
            return character
        return "\\"  # before anything else it stands for itself

    def _after_backslash(self) -> str:
        before = self.command[self.position - 2 : self.position - 1]
        # In a locale whose characters may end in the byte of a backslash, bash would see none here.
        if not before.isascii():
            raise NotPlain("a backslash follows a character that is not ASCII")
        character = self.command[self.position : self.position + 1]
        if not character:
            raise NotPlain("it ends in a backslash")
        if not (character.isascii() and character.isprintable()):
            raise self._refusal(character)
        return character

    def _follows_a_letter(self) -> bool:
        before = self.command[self.position - 2 : self.position - 1]
        return before.isascii() and before.isalnum()

    def _check_quoted(self, character: str) -> None:
        if is_deceptive(character):
            raise self._refusal(character)

    def _refusal(self, character: str) -> NotPlain:
        if character in "\n\r":
            return NotPlain("it has more than one line")
        what = _REFUSED.get(character)
        if what is not None:
            # Whole: `&&` is another thing than `&`.
            following = self.command[self.position : self.position + 1] if character in "&|;" else ""
            return NotPlain(f"it has {what} {character}{following if following in ('&', '|', ';') else ''}")
        return NotPlain(f"it has the character {safe_display(character)}, which is not plain")


# -- the rough reading ---------------------------------------------------------------------------------------


def simple_commands(command: str) -> list[tuple[str, ...]]:
    """What the parts of a compound command would probably run: quotes taken off, assignments and keywords left out.

    Good enough to recognise a program that is named openly, also behind an operator or in a substitution. It is no
    proof of what does not run: a name can be put together in ways that only bash can follow.
    """
    return [words for part in _Splitter().split(command) if (words := _without_prefixes(part))]


class _Splitter:
    """One pass over a command that may be anything."""

    def __init__(self) -> None:
        self.parts: list[list[str]] = [[]]
        self.word: list[str] | None = None
        self.modes = ["bare"]
        """How the text is quoted here, and around it: bare, double, or tick."""

    def split(self, command: str) -> list[list[str]]:
        characters = iter(command.replace("\\\n", ""))
        for character in characters:
            if character == "\\":
                self._add(next(characters, ""))
            elif character == '"':
                self._quote()
                self._enter("double")
            elif character == "'" and self.modes[-1] != "double":
                self._quote()
                while (character := next(characters, "'")) != "'":
                    self._add(character)
            elif character == "`" or (character == "(" and self._starts_a_command()):
                self._end_word(substitution=True)
                self._end_command()
                self._enter("tick" if character == "`" else "bare")
            elif self.modes[-1] == "double":
                self._add(character)
            elif character in ";&|()\n\r":
                self._end_word()
                self._end_command()
                if character == ")" and len(self.modes) > 1:
                    self.modes.pop()
            elif character in " \t<>":
                self._end_word()
            else:
                self._add(character)
        self._end_word()
        return [part for part in self.parts if part]

    def _starts_a_command(self) -> bool:
        return self.modes[-1] != "double" or (self.word or [""])[-1] == "$"

    def _enter(self, mode: str) -> None:
        if mode != "bare" and self.modes[-1] == mode:
            self.modes.pop()
        else:
            self.modes.append(mode)

    def _quote(self) -> None:
        if self.word and self.word[-1] == "$":  # $'…' and $"…"
            self.word.pop()
        self._add("")

    def _add(self, character: str) -> None:
        if self.word is None:
            self.word = []
        self.word.append(character)

    def _end_word(self, *, substitution: bool = False) -> None:
        text = "".join(self.word or ())
        if substitution:
            text = text.removesuffix("$")
        if text:
            self.parts[-1].append(text)
        self.word = None

    def _end_command(self) -> None:
        self.parts.append([])


def _without_prefixes(words: list[str]) -> tuple[str, ...]:
    for position, word in enumerate(words):
        if word not in KEYWORDS and not _ASSIGNMENT.fullmatch(word):
            return tuple(words[position:])
    return ()
