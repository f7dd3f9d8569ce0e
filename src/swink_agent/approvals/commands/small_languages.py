"""Decides whether programs in the languages of sed, awk, jq, test and printf only read.

Parses the everyday part of each language, which can neither write a file, read one that the command line does not name,
nor run anything. Programs with anything else are asked about.
"""

from __future__ import annotations

import re

from .shell_words import names

_LONGEST = 1_000


# -- sed -----------------------------------------------------------------------------------------------------

# A bracket expression that every program reads alike: without its delimiter, a backslash, or a bracket except that of
# a closed POSIX class. The quantifiers are possessive: in `[]a]` the first `]` is a character.
_BRACKET = r"\[(?![:=.])\^?+\]?+(?>(?:\[:[a-z]+:\]|\[=[A-Za-z0-9]=\]|\[\.[A-Za-z0-9]\.\]|[^\[\]{0}\\\n])*)\]"
# A regular expression up to its delimiter.
_SED_EXPRESSION = r"(?>(?:[^{0}\\\[\n]|\\[^\n]|" + _BRACKET + ")*)"
_SED_SLASHED = _SED_EXPRESSION.format("/")
_SED_ADDRESS = rf"(?:\d+(?:~\d+)?|\$|/{_SED_SLASHED}/I?)"
_SED_SUBSTITUTIONS = "|".join(
    rf"s{mark}{_SED_EXPRESSION.format(mark)}{mark}(?:[^{mark}\\\n]|\\[^\n])*{mark}[gpiI0-9]*"
    for mark in ("/", r"\|", "#", ",", "@", ":")
)
_SED_COMMAND = re.compile(
    rf"\s*(?:{_SED_ADDRESS}(?:\s*,\s*(?:\+?\d+|{_SED_ADDRESS}))?\s*!?)?\s*(?:[pd=q]|{_SED_SUBSTITUTIONS})\s*"
)


def is_reading_sed(script: str) -> bool:
    """Whether the script only picks and changes what is printed: `p`, `d`, `=`, `q` and `s` with their addresses."""
    position = 0
    while len(script) <= _LONGEST and (match := _SED_COMMAND.match(script, position)) is not None:
        rest, position = script[match.end() :], match.end() + 1
        if rest in ("", ";"):
            return True
        if rest[0] != ";":
            return False
    return False


# -- awk -----------------------------------------------------------------------------------------------------

_AWK_TOKEN = re.compile(
    r'\s+|"(?:[^"\\\n]|\\[^\n])*"|[A-Za-z_]\w*|\d+(?:\.\d+)?|&&|\|\||[<>=!]=|[-+*/%]=|\+\+|--|[-{}();,$\[\]?:!~<>=+*/%]',
    re.ASCII,
)
_AWK_EXPRESSION = re.compile(r"/(?>(?:[^/\\\[\n]|\\[^\n]|" + _BRACKET.format("/") + ")+)/")
_AWK_FUNCTIONS = names("length substr split toupper tolower index match sub gsub sprintf int")
_AWK_STATEMENTS = names("print printf if for while return else in next exit delete do break continue")
_AWK_VARIABLES = names("BEGIN END NR NF FNR FS OFS RS ORS FILENAME RSTART RLENGTH")
_AWK_NEVER = names("system close fflush getline function func nextfile include load namespace switch eval")
# After these every awk reads a slash as the start of an expression, or as a division. Elsewhere they differ.
_AWK_BEFORE_EXPRESSION = frozenset(["", "{", "}", ";", "(", ",", "!", "~", "&&", "||", "print", "printf"])
_AWK_BEFORE_DIVISION = re.compile(r'[\w"\]]')


def is_reading_awk(program: str) -> bool:
    """Whether the program only computes and prints: it neither reads, writes or names a file nor runs anything.

    It must have one line: after a line end, a slash that would divide begins an expression.
    """
    return len(program) <= _LONGEST and "\n" not in program and _AwkReader(program).is_reading()


class _AwkReader:
    """One pass over a program for awk."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.position = 0
        self.before = ""
        self.braces = 0
        self.parentheses: list[str] = []  # the token before each open bracket

    def is_reading(self) -> bool:
        while self.position < len(self.program):
            token = self._token()
            if token is None or not (token.isspace() or self._takes(token)):
                return False
        return self.braces == 0 and not self.parentheses

    def _token(self) -> str | None:
        kind = _AWK_TOKEN
        if self.program[self.position] == "/":
            if self.before in _AWK_BEFORE_EXPRESSION:
                kind = _AWK_EXPRESSION
            elif self.before in _AWK_STATEMENTS | {"length"} or not _AWK_BEFORE_DIVISION.match(self.before[-1]):
                return None
        match = kind.match(self.program, self.position)
        if match is None:
            return None
        self.position = match.end()
        return match[0]

    def _takes(self, token: str) -> bool:
        if (token[0].isalpha() or token[0] == "_") and not self._takes_name(token):
            return False
        self.braces += (token == "{") - (token == "}")
        if token == "(":
            self.parentheses.append(self.before)
        elif token == ")" and self.parentheses:
            self.parentheses.pop()
        # After a print, `>` would name a file; in a pattern or a condition it compares.
        compares = self.braces == 0 or self.parentheses[-1:] in (["if"], ["while"])
        self.before = token
        return token != ">" or compares

    def _takes_name(self, name: str) -> bool:
        if name in _AWK_NEVER:
            return False
        if name in _AWK_FUNCTIONS or name in _AWK_STATEMENTS or name in _AWK_VARIABLES:
            return True
        # A call of another function, or a name that is special in some awk.
        return not self.program[self.position :].lstrip(" \t").startswith("(") and not (
            name.isupper() and len(name) > 1
        )


# -- jq ------------------------------------------------------------------------------------------------------

# These load code or data from other files, or show the environment. jq has no second spelling for identifiers.
_JQ_NEVER = re.compile(r"(?<![A-Za-z0-9_])(import|include|modulemeta|get_search_list|env|ENV|\$__prog_args)(?!\w)")


def is_reading_jq(program: str) -> bool:
    """Whether the program reads only its input."""
    return _JQ_NEVER.search(program) is None


# -- builtins of the shell -----------------------------------------------------------------------------------

_UNARY = re.compile(r"-[abcdefgGhkLnNOprsSuwxz]")
_BINARY = frozenset(["=", "==", "!=", "-nt", "-ot", "-ef"])
_COMPARING = frozenset(["-eq", "-ne", "-lt", "-le", "-gt", "-ge"])


def is_reading_test(words: tuple[str, ...]) -> bool:
    """Whether `test` has one condition that evaluates nothing. (`-v` evaluates an index.)"""
    if words[:1] == ("!",):
        words = words[1:]
    if len(words) == 2:
        return _UNARY.fullmatch(words[0]) is not None
    if len(words) != 3 or words[0] in ("!", "("):
        return False
    if words[1] in _COMPARING:
        return all(re.fullmatch(r"-?\d+", word, re.ASCII) for word in (words[0], words[2]))
    return words[1] in _BINARY


def is_reading_printf(words: tuple[str, ...]) -> bool:
    """Whether it only prints: `-v` and `%n` set variables and may evaluate an index."""
    return (
        bool(words)
        and re.fullmatch(r"[^-%\\](?s:.)*|%(?s:.)*|\\(?s:.)*", words[0]) is not None
        and (re.search(r"%(?![-+ #0]*[0-9]*(?:\.[0-9]+)?[sdiuxXcfgeb%q])", words[0].replace("%%", "")) is None)
    )
