"""A reading of shell commands that is never more generous than bash.

Owns the strict reading, in two widths. `plain_words` gives the words of a command that has nothing but words in it,
exactly as bash would pass them on. `read_script` takes simple commands joined by `|`, `&&`, `||` and `;` as well, with
file patterns, and redirections that write nothing. Both refuse everything else. What is permitted is decided in
`rules`; a rough reading of anything at all, for rules that forbid, is in `named_commands`.
"""

from __future__ import annotations

import re
import string
from typing import Literal, TypeAlias

from swink_agent.core.values.value import Value

from ..display import is_deceptive, safe_display

__all__ = [
    "ASSIGNMENT",
    "KEYWORDS",
    "Joint",
    "NotPlain",
    "Pipeline",
    "SimpleCommand",
    "Word",
    "is_builtin",
    "names",
    "pattern_words",
    "plain_words",
    "read_script",
]

_BARE = frozenset(string.ascii_letters + string.digits + "_-./:,+=@%^")
# Not with a sign in front: `bash -c +x` takes it for an option of its own.
_PROGRAM = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+-]*|\[", re.ASCII)
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=.*", re.ASCII | re.DOTALL)


def names(text: str) -> frozenset[str]:
    """The names in a line of them."""
    return frozenset(text.split())


KEYWORDS = names("! [[ ]] { } case coproc do done elif else esac fi for function if in select then time until while")
# What bash does itself with these can run code, change how later words are read, or evaluate a quoted argument: the
# subscript in `test -v 'a[$(id)]'` is one. Only builtins that do nothing of the kind may be named in a rule.
_HARMLESS_BUILTINS = names("cd echo false kill pwd true type umask wait")
# These do in some of their forms: the standard rules alone may speak of them, as they look at the form.
_BUILTINS_WITH_HARMLESS_FORMS = names("[ command printf test")
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
_LITERALLY = {"*": "[*]", "?": "[?]", "[": "[[]"}
_NOWHERE = "/dev/null"
_STAR = "\0"  # no command can hold it

Joint: TypeAlias = Literal["", ";", "&&", "||"]


class NotPlain(ValueError):
    """The command is more than was asked for. The text says what was found in it."""


class Word(Value, frozen=True):
    """One word of a command: what a program is given, or what that is made from."""

    text: str
    pattern: str | None = None
    """For a word with file patterns: it with what was quoted in brackets, as `fnmatch` reads it."""
    varies: bool = False
    """Whether the code of the last command (`$?`) is in it, for which the text has a 0."""


class SimpleCommand(Value, frozen=True):
    """A program and its words, and the files that it is given as input."""

    words: tuple[Word, ...]
    inputs: tuple[Word, ...] = ()

    @property
    def plain(self) -> tuple[str, ...] | None:
        """The words as text, if that is all that they are."""
        if any(word.pattern is not None or word.varies for word in self.words):
            return None
        return tuple(word.text for word in self.words)


class Pipeline(Value, frozen=True):
    """Commands of which each reads what the one before it prints."""

    joint: Joint
    """What stands before it."""
    commands: tuple[SimpleCommand, ...]


def plain_words(command: str) -> tuple[str, ...]:
    """The words that bash would run the command with, the program first. Raises `NotPlain`.

    Accepted are plain characters, '…', "…" without anything that bash would look into, and a backslash before one
    printable ASCII character. So no operator, substitution, redirection, assignment, pattern, brace, comment, tab or
    line end, in quotes either; no keyword, and no builtin that evaluates.
    """
    words = tuple(word.text for word in _Reader(command).words())
    _check_program(words[0] if words else None, _BUILTINS - _HARMLESS_BUILTINS)
    return words


def pattern_words(text: str) -> list[tuple[str, ...]]:
    """The words of a rule, each in the pieces between which a bare `*` may stand for any text. Raises `NotPlain`.

    A star in quotes is a star.
    """
    words = [word.text for word in _PatternReader(text).words()]
    if words and _STAR in words[0]:
        raise NotPlain("the program is not named: a * stands for parts of what follows it")
    _check_program(words[0] if words else None, _BUILTINS - _HARMLESS_BUILTINS)
    return [tuple(word.split(_STAR)) for word in words]


def read_script(command: str) -> tuple[Pipeline, ...]:
    """The pipelines that bash would run, as far as each one's turn comes. Raises `NotPlain`.

    Accepted beyond `plain_words`: `|`, `&&`, `||` and `;` between commands; the patterns `*` and `?`; `$?`; `<` from a
    file; `>` and `>>` into /dev/null; `2>&1` and the like; and `[ … ]`.
    """
    return _ScriptReader(command).script()


def is_builtin(program: str) -> bool:
    """Whether bash runs the name itself, so that no file of that name matters."""
    return program in _BUILTINS


def _check_program(program: str | None, refused: frozenset[str]) -> None:
    if program is None:
        raise NotPlain("it is empty")
    if "=" in program:
        raise NotPlain(f"it begins with the assignment {safe_display(program, 60)}")
    if program in KEYWORDS:
        raise NotPlain(f"{program} is a keyword of the shell")
    if program in refused:
        raise NotPlain(f"{program} is a builtin of the shell that can run or change things")
    if not _PROGRAM.fullmatch(program):
        raise NotPlain(f"{safe_display(program, 60) or 'an empty word'} is no name of a program")


# -- words ---------------------------------------------------------------------------------------------------


class _Reader:
    """One pass over a command."""

    ends = frozenset(" ")
    """What ends a word."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.position = 0
        self.parts: list[str] = []
        self.pattern: list[str] = []
        self.is_pattern = self.varies = self.is_bare = False

    def words(self) -> list[Word]:
        words: list[Word] = []
        while self._skip_spaces():
            words.append(self._word())
        return words

    def _skip_spaces(self) -> bool:
        """Whether something follows."""
        while self._next() == " ":
            self.position += 1
        return self.position < len(self.command)

    def _next(self, ahead: int = 0) -> str:
        return self.command[self.position + ahead : self.position + ahead + 1]

    def _word(self) -> Word:
        self.parts, self.pattern = [], []
        self.is_pattern = self.varies = False
        self.is_bare = True
        while (character := self._next()) and character not in self.ends:
            self.position += 1
            if character in _BARE:
                self._add(character)
            elif character in "'\"\\":
                self.is_bare = False
                self._quoted(character)
            elif character == "~" and self._follows_a_letter():
                self._add(character)  # HEAD~1: a home folder is only looked for where a word or a path begins
            else:
                self._special(character)
        return Word("".join(self.parts), "".join(self.pattern) if self.is_pattern else None, self.varies)

    def _add(self, text: str) -> None:
        self.parts.append(text)
        self.pattern.append(_LITERALLY.get(text, text))

    def _special(self, character: str) -> None:
        """A character that means something to bash."""
        raise self._refusal(character)

    def _special_in_quotes(self, character: str) -> None:
        raise self._refusal(character)

    def _quoted(self, quote: str) -> None:
        if quote == "'":
            self._single_quoted()
        elif quote == '"':
            self._double_quoted()
        else:
            self._add(self._after_backslash())
            self.position += 1

    def _single_quoted(self) -> None:
        end = self.command.find("'", self.position)
        if end < 0:
            raise NotPlain("a quote is not closed")
        for character in self.command[self.position : end]:
            self._check_quoted(character)
            self._add(character)
        self.position = end + 1

    def _double_quoted(self) -> None:
        while character := self._next():
            self.position += 1
            if character == '"':
                return
            if character == "\\":
                self._add(self._escaped_in_quotes())
            elif character in "$`!":
                self._special_in_quotes(character)
            else:
                self._check_quoted(character)
                self._add(character)
        raise NotPlain("a quote is not closed")

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
        character = self._next()
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


class _PatternReader(_Reader):
    """One pass over a rule in which a star stands for any text."""

    def _special(self, character: str) -> None:
        if character != "*":
            raise self._refusal(character)
        self._add(_STAR)


# -- commands ------------------------------------------------------------------------------------------------


class _ScriptReader(_Reader):
    """One pass over commands that are joined."""

    ends = frozenset(" ;|&<>")

    def script(self) -> tuple[Pipeline, ...]:
        pipelines: list[Pipeline] = []
        commands: list[SimpleCommand] = []
        joint: Joint = ""
        while True:
            commands.append(self._command())
            operator = self._operator()
            if operator == "|":
                continue
            pipelines.append(Pipeline(joint, tuple(commands)))
            commands = []
            if operator == "" or (operator == ";" and not self._skip_spaces()):
                return tuple(pipelines)
            joint = operator

    def _command(self) -> SimpleCommand:
        words: list[Word] = []
        inputs: list[Word] = []
        while self._skip_spaces() and not self._is_at_operator():
            if self._next() in "<>&":
                self._redirection("", inputs)
                continue
            word = self._word()
            if self._next() in ("<", ">") and self.is_bare and word.text.isdigit():
                self._redirection(word.text, inputs)  # not a word but a number of a stream
            else:
                words.append(word)
        program = words[0] if words else None
        if program is not None and (program.pattern is not None or program.varies):
            raise NotPlain("the name of its program is put together")
        refused = _BUILTINS - _HARMLESS_BUILTINS - _BUILTINS_WITH_HARMLESS_FORMS
        _check_program(None if program is None else program.text, refused)
        return SimpleCommand(tuple(words), tuple(inputs))

    def _is_at_operator(self) -> bool:
        return self._next() in (";", "|") or (self._next() == "&" and self._next(1) != ">")

    def _operator(self) -> Literal["", ";", "&&", "||", "|"]:
        character, following = self._next(), self._next(1)
        if not character:
            return ""
        if character == following and character in "&|":
            self.position += 2
            return "&&" if character == "&" else "||"
        if character == "&" or following == "&":  # |& and ;& are operators of their own
            self.position += 1
            raise self._refusal(character)
        self.position += 1
        return "|" if character == "|" else ";"

    def _redirection(self, stream: str, inputs: list[Word]) -> None:
        match = re.compile(r"&>>?|>>?&?|<").match(self.command, self.position)
        assert match is not None
        sign = match[0]
        self.position = match.end()
        if self._next() in ("<", ">", "&", "|", "("):  # <<, <(, <>, >|, >( and such
            raise self._refusal(sign[-1] if sign[-1] in "<>" else ">")
        self._skip_spaces()
        target = self._word()
        refusal = NotPlain(f"it has the redirection {stream}{sign}")
        if target.pattern is not None or target.varies or not target.text:
            raise refusal
        if sign == "<":
            if stream not in ("", "0"):
                raise refusal
            inputs.append(target)
        elif sign == ">&" and stream in ("", "1", "2") and target.text in ("1", "2"):
            return
        elif target.text != _NOWHERE or stream not in ("", "1", "2") or sign == ">>&":
            raise refusal

    def _special(self, character: str) -> None:
        if character in "*?":
            self.parts.append(character)
            self.pattern.append(character)
            self.is_pattern = True
        elif character == "$" and self._next() == "?":
            self._special_in_quotes(character)
        elif character in "[]!" and not self.parts and self.is_bare and self._stands_alone():
            self._add(character)
        else:
            raise self._refusal(character)

    def _stands_alone(self) -> bool:
        before = self.command[self.position - 2 : self.position - 1]
        return before in ("", *self.ends) and self._next() in ("", *self.ends)

    def _special_in_quotes(self, character: str) -> None:
        if character != "$" or self._next() != "?":
            raise self._refusal(character)
        self.position += 1
        self.varies = True
        self._add("0")
