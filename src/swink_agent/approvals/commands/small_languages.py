"""Which programs in the languages of sed, awk, jq, test and printf only read.

Owns a reading of the part of each language that is in everyday use and can neither write a file, read one that is not
named on the command line, nor run anything. What is beyond that part is not read, and so is asked about.
"""

from __future__ import annotations

import re

from .shell_words import names

__all__ = ["is_reading_awk", "is_reading_jq", "is_reading_printf", "is_reading_sed", "is_reading_test"]

_LONGEST = 1_000


# -- sed -----------------------------------------------------------------------------------------------------

# A regular expression up to its delimiter, read alike by every sed: no delimiter in brackets.
_SED_EXPRESSION = r"(?:[^{0}\\\[\n]|\\[^\n]|\[\^?\]?[^\]{0}\\\n]*\])*"
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
    if len(script) > _LONGEST:
        return False
    position = 0
    while True:
        match = _SED_COMMAND.match(script, position)
        if match is None:
            return False
        position = match.end()
        if position == len(script):
            return True
        if script[position] != ";":
            return False
        position += 1
        if position == len(script):
            return True


# -- awk -----------------------------------------------------------------------------------------------------

_AWK_TOKEN = re.compile(
    r'\s+|"(?:[^"\\\n]|\\[^\n])*"|[A-Za-z_]\w*|\d+(?:\.\d+)?|&&|\|\||[<>=!]=|[-+*/%]=|\+\+|--|[-{}();,$\[\]?:!~<>=+*/%]',
    re.ASCII,
)
_AWK_EXPRESSION = re.compile(r"/(?:[^/\\\[\n]|\\[^\n]|\[\^?\]?[^\]/\\\n]*\])+/")
_AWK_FUNCTIONS = names("length substr split toupper tolower index match sub gsub sprintf int")
_AWK_STATEMENTS = names("print printf if for while return else in next exit delete do break continue")
_AWK_VARIABLES = names("BEGIN END NR NF FNR FS OFS RS ORS FILENAME RSTART RLENGTH")
_AWK_NEVER = names("system close fflush getline function func nextfile include load namespace switch eval")
# Where every awk takes a slash for the start of an expression, and where for a division. Elsewhere they differ.
_AWK_BEFORE_EXPRESSION = frozenset(["", "{", "}", ";", "(", ",", "!", "~", "&&", "||", "print", "printf"])
_AWK_BEFORE_DIVISION = re.compile(r'[\w"\]]')


def is_reading_awk(program: str) -> bool:
    """Whether the program only computes and prints: nothing that writes or reads a file, runs, or names one."""
    return len(program) <= _LONGEST and _AwkReader(program).is_reading()


class _AwkReader:
    """One pass over a program for awk."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.position = 0
        self.before = ""
        self.braces = 0
        self.parentheses: list[str] = []
        """What stood before each one that is open."""

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
        # Behind a print it would be a file; in a pattern or a condition it compares.
        compares = self.braces == 0 or self.parentheses[-1:] in (["if"], ["while"])
        self.before = token
        return token != ">" or compares

    def _takes_name(self, name: str) -> bool:
        if name in _AWK_NEVER:
            return False
        if name in _AWK_FUNCTIONS or name in _AWK_STATEMENTS or name in _AWK_VARIABLES:
            return True
        # A call of something else, or a name that some awk may give a meaning.
        return self.program[self.position : self.position + 1] != "(" and not (name.isupper() and len(name) > 1)


# -- jq ------------------------------------------------------------------------------------------------------

# What loads code or data of other files, or shows the environment: an identifier cannot be written in another way.
_JQ_NEVER = re.compile(r"(?<![A-Za-z0-9_])(import|include|modulemeta|get_search_list|env|ENV|\$__prog_args)(?!\w)")


def is_reading_jq(program: str) -> bool:
    """Whether the program reads nothing but its input."""
    return _JQ_NEVER.search(program) is None


# -- builtins of the shell -----------------------------------------------------------------------------------

_UNARY = re.compile(r"-[abcdefgGhkLnNOprsSuwxz]")
_BINARY = frozenset(["=", "==", "!=", "-nt", "-ot", "-ef"])
_COMPARING = frozenset(["-eq", "-ne", "-lt", "-le", "-gt", "-ge"])


def is_reading_test(words: tuple[str, ...]) -> bool:
    """Whether `test` is asked one thing that it needs to evaluate nothing for. (`-v` evaluates an index.)"""
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
    """Whether it only prints: `-v` and `%n` set variables, and may evaluate an index."""
    return (
        bool(words)
        and re.fullmatch(r"[^-%\\](?s:.)*|%(?s:.)*|\\(?s:.)*", words[0]) is not None
        and (re.search(r"%(?![-+ #0]*[0-9]*(?:\.[0-9]+)?[sdiuxXcfgeb%q])", words[0].replace("%%", "")) is None)
    )
