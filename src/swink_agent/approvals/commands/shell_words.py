"""Parses shell commands strictly: whatever it accepts, bash reads in the same way.

`plain_words` returns the words of a command that consists of nothing else, exactly as bash would pass them on.
`read_script` also accepts such commands joined by `|`, `&&`, `||` and `;`, and redirections that write nothing. Both
refuse everything else. `rules` decides what is allowed; `denied` reads any text roughly, for deny rules.
"""

from __future__ import annotations

import re
import string
from typing import Literal, TypeAlias

from swink_agent.rendering.escaping import safe_display
from swink_agent.rendering.texts.invisible import is_deceptive

_BARE = frozenset(string.ascii_letters + string.digits + "_-./:,+=@%^")
# Without a sign in front: `bash -c +x` treats it as an option of bash.
_PROGRAM = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+-]*|\[", re.ASCII)
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=.*", re.ASCII | re.DOTALL)


def names(text: str) -> frozenset[str]:
    """The names in a text, which are separated by spaces."""
    return frozenset(text.split())


KEYWORDS = names("! [[ ]] { } case coproc do done elif else esac fi for function if in select then time until while")
# Builtins can run code, change how later words are read, or evaluate a quoted argument, such as the subscript in
# `test -v 'a[$(id)]'`. Only builtins that do none of this may be named in a rule.
_HARMLESS_BUILTINS = names("cd echo false kill pwd true type umask wait")
_BUILTINS = names(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo "
    "enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf "
    "pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type typeset ulimit "
    "umask unalias unset wait"
)
_REFUSED_BUILTINS = _BUILTINS - _HARMLESS_BUILTINS

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
# The end of a here-document, in the forms that bash reads in one way only.
_DOCUMENT = re.compile(
    r"(?P<tabs>-?)[ \t]*(?:'(?P<single>[\w.+!-]+)'|\"(?P<double>[\w.+-]+)\"|\\(?P<escaped>\w+)|(?P<bare>[\w.+]+))"
    r"(?=[\s;&|<>()]|$)",
    re.ASCII,
)
_MOST_PIPELINES = 200
_NOWHERE = "/dev/null"
_STAR = "\0"  # no command can contain it

Pipeline: TypeAlias = tuple[tuple[str, ...], ...]
"""Commands that each read the output of the one before: the words of each, the program first."""


class NotPlain(ValueError):
    """The command is not in the accepted form. The text is the reason."""


def plain_words(command: str) -> tuple[str, ...]:
    """The words that bash would run the command with, the program first. Raises `NotPlain`.

    Accepts plain characters, '…', "…" in which bash replaces nothing, and a backslash before one printable ASCII
    character. Refuses operators, substitutions, redirections, assignments, patterns, braces, comments, tabs and line
    ends, also in quotes; keywords; and builtins that evaluate.
    """
    words = tuple(_Reader(command).words())
    _check_program(words[0] if words else None)
    return words


def pattern_words(text: str) -> list[tuple[str, ...]]:
    """The words of a rule, each split into pieces where a bare `*` matches any text. Raises `NotPlain`.

    A star in quotes is an ordinary star.
    """
    words = _PatternReader(text).words()
    if words and _STAR in words[0]:
        raise NotPlain("the program is not named: a * is allowed only in the words after it")
    _check_program(words[0] if words else None)
    return [tuple(word.split(_STAR)) for word in words]


def read_script(command: str) -> tuple[Pipeline, ...]:
    """The pipelines that bash would run, in order. Raises `NotPlain`.

    In addition to `plain_words` it accepts: `|`, `&&`, `||`, `;` and line ends between commands; line ends and tabs in
    quotes; comments; a backslash before a line end; `!` in a command; here-documents in which bash replaces nothing;
    `<`, `>` and `>>` with /dev/null; and `2>&1` and the like.
    """
    return _ScriptReader(command).script()


def is_builtin(program: str) -> bool:
    """Whether bash itself implements the name, so that no file of that name matters."""
    return program in _BUILTINS


def _check_program(program: str | None) -> None:
    if program is None:
        raise NotPlain("it is empty")
    if "=" in program:
        raise NotPlain(f"it begins with the assignment {safe_display(program, 60)}")
    if program in KEYWORDS:
        raise NotPlain(f"{program} is a keyword of the shell")
    if program in _REFUSED_BUILTINS:
        raise NotPlain(f"{program} is a builtin of the shell that can run or change things")
    if not _PROGRAM.fullmatch(program):
        raise NotPlain(f"{safe_display(program, 60) or 'an empty word'} is not the name of a program")


# -- words ---------------------------------------------------------------------------------------------------


class _Reader:
    """One pass over a command."""

    ends = frozenset(" ")  # the characters that end a word

    def __init__(self, command: str) -> None:
        self.command = command
        self.position = 0
        self.parts: list[str] = []
        self.is_bare = False

    def words(self) -> list[str]:
        words: list[str] = []
        while self._skip_spaces():
            words.append(self._word())
        return words

    def _skip_spaces(self) -> bool:
        """Skips spaces. Returns whether something follows."""
        while self._next() == " ":
            self.position += 1
        return self.position < len(self.command)

    def _next(self, ahead: int = 0) -> str:
        return self.command[self.position + ahead : self.position + ahead + 1]

    def _word(self) -> str:
        self.parts = []
        self.is_bare = True
        while (character := self._next()) and character not in self.ends:
            self.position += 1
            if character in _BARE:
                self._add(character)
            elif character in "'\"\\":
                self.is_bare = False
                self._quoted(character)
            elif character == "~" and re.match("[A-Za-z0-9]~", self.command[self.position - 2 : self.position]):
                self._add(character)  # HEAD~1: bash expands ~ only at the start of a word or path
            else:
                self._special(character)
        return "".join(self.parts)

    def _add(self, text: str) -> None:
        self.parts.append(text)

    def _special(self, character: str) -> None:
        """Handles a character that is special to bash."""
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
        return "\\"  # before any other character it is an ordinary backslash

    def _after_backslash(self) -> str:
        before = self.command[self.position - 2 : self.position - 1]
        # In a locale whose characters may end in the byte of a backslash, bash would see no backslash here.
        if not before.isascii():
            raise NotPlain("a backslash follows a character that is not ASCII")
        character = self._next()
        if not character:
            raise NotPlain("it ends in a backslash")
        if not (character.isascii() and character.isprintable()):
            raise self._refusal(character)
        return character

    def _check_quoted(self, character: str) -> None:
        if is_deceptive(character):
            raise self._refusal(character)

    def _refusal(self, character: str) -> NotPlain:
        if character in "\n\r":
            return NotPlain("it has more than one line")
        what = _REFUSED.get(character)
        if what is not None:
            # The whole operator: `&&` is not `&`.
            following = self.command[self.position : self.position + 1] if character in "&|;" else ""
            return NotPlain(f"it has {what} {character}{following if following in ('&', '|', ';') else ''}")
        return NotPlain(f"it has the character {safe_display(character)}, which is not plain")


class _PatternReader(_Reader):
    """One pass over a rule in which a star matches any text."""

    def _special(self, character: str) -> None:
        if character != "*":
            raise self._refusal(character)
        self._add(_STAR)


# -- commands ------------------------------------------------------------------------------------------------


class _ScriptReader(_Reader):
    """One pass over joined commands."""

    ends = frozenset(" ;|&<>\n")

    def __init__(self, command: str) -> None:
        super().__init__(command)
        self.awaited: list[re.Match[str]] = []

    def script(self) -> tuple[Pipeline, ...]:
        pipelines: list[Pipeline] = []
        self._skip_lines()
        while True:
            commands, operator = [self._command()], self._operator()
            while operator == "|":
                self._skip_lines()
                commands.append(self._command())
                operator = self._operator()
            pipelines.append(tuple(commands))
            if len(pipelines) > _MOST_PIPELINES:
                raise NotPlain(f"it has more than {_MOST_PIPELINES} parts")
            has_more = operator != "" and (operator == ";" or self._skip_lines()) and self._skip_lines()
            if not has_more:
                if operator in ("&&", "||"):
                    raise NotPlain("it does not end")
                if self.awaited:
                    raise NotPlain("a here-document does not end")
                return tuple(pipelines)

    def _skip_spaces(self) -> bool:
        while True:
            character = self._next()
            if character == " ":
                self.position += 1
            elif character == "\\" and self._next(1) == "\n":
                self.position += 2
            elif character == "#":
                end = self.command.find("\n", self.position)
                end = len(self.command) if end < 0 else end
                for commented in self.command[self.position : end]:
                    self._check_quoted(commented)
                self.position = end
            else:
                return character != ""

    def _skip_lines(self) -> bool:
        """Skips empty lines. Returns whether something follows."""
        while self._skip_spaces() and self._next() == "\n":
            self.position += 1
            self._read_documents()
        return self.position < len(self.command)

    def _read_documents(self) -> None:
        awaited, self.awaited = self.awaited, []
        for match in awaited:
            name = match["single"] or match["double"] or match["escaped"] or match["bare"]
            indent = "\t*" if match["tabs"] else ""
            end = re.compile(rf"^{indent}{re.escape(name)}(?:\n|\Z)", re.MULTILINE).search(self.command, self.position)
            if end is None:
                raise NotPlain("a here-document does not end")
            for character in self.command[self.position : end.start()]:
                if character not in "\n\t":
                    self._check_quoted(character)
                if match["bare"] and character in "$`\\":
                    raise self._refusal(character)
            # The end of the last line also ends the command.
            self.position = end.end()

    def _command(self) -> tuple[str, ...]:
        words: list[str] = []
        while self._skip_spaces() and not self._is_at_operator():
            if self._next() in "<>&":
                self._redirection("")
                continue
            word = self._word()
            if self._next() in ("<", ">") and self.is_bare and word.isdigit():
                self._redirection(word)  # it is the number of a stream, not a word
            else:
                words.append(word)
        _check_program(words[0] if words else None)
        return tuple(words)

    def _is_at_operator(self) -> bool:
        return self._next() in (";", "|", "\n") or (self._next() == "&" and self._next(1) != ">")

    def _operator(self) -> Literal["", ";", "&&", "||", "|"]:
        character, following = self._next(), self._next(1)
        if not character:
            return ""
        if character == "\n":  # the caller reads it, because here-documents begin after it
            return ";"
        if character == following and character in "&|":
            self.position += 2
            return "&&" if character == "&" else "||"
        if character == "&" or following == "&":  # |& and ;& are other operators
            self.position += 1
            raise self._refusal(character)
        self.position += 1
        return "|" if character == "|" else ";"

    def _redirection(self, stream: str) -> None:
        if self.command.startswith("<<", self.position) and stream in ("", "0"):
            document = _DOCUMENT.match(self.command, self.position + 2)
            if document is not None:
                self.position = document.end()
                self.awaited.append(document)
                return
        match = re.compile(r"&>>?|>>?&?|<").match(self.command, self.position)
        assert match is not None
        sign = match[0]
        self.position = match.end()
        if self._next() in ("<", ">", "&", "|", "("):  # <<, <(, <>, >|, >( and such
            raise self._refusal(sign[-1] if sign[-1] in "<>" else ">")
        self._skip_spaces()
        target = self._word()
        if sign == "<":
            is_harmless = target == _NOWHERE and stream in ("", "0")
        elif sign == ">&" and target in ("1", "2"):
            is_harmless = stream in ("", "1", "2")
        else:
            is_harmless = target == _NOWHERE and stream in ("", "1", "2") and sign != ">>&"
        if not is_harmless:
            raise NotPlain(f"it has the redirection {stream}{sign}")

    def _special(self, character: str) -> None:
        if character == "!" or (character == "#" and (self.parts or not self.is_bare)):
            self._add(character)  # a comment begins only where a word does
        else:
            raise self._refusal(character)

    def _special_in_quotes(self, character: str) -> None:
        if character != "!":
            raise self._refusal(character)
        self._add(character)

    def _check_quoted(self, character: str) -> None:
        # Shells differ in whether a here-document begins after the first line end, or after the one that ends the list.
        if character not in "\n\t" or self.awaited:
            super()._check_quoted(character)

    def _quoted(self, quote: str) -> None:
        if quote == "\\" and self._next() == "\n":
            if "".join(self.parts).isdigit():
                raise NotPlain("a line is joined where a number may become one of a stream")
            self.position += 1  # the next line continues this one
        else:
            super()._quoted(quote)
