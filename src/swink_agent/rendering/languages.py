"""Defines the languages that the highlighter knows: their comments, strings and keywords.

Owns one pattern for each family of languages. A pattern never scans text twice: an unclosed string or comment ends with
the line or the text. It is not a grammar, so a word may be highlighted as a keyword where it is not one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple


class Language(NamedTuple):
    """The rules of a family: each named group of `pattern` is a kind of token; a `word` is a keyword if in `words`."""

    pattern: re.Pattern[str]
    words: frozenset[str]
    ignores_case: bool

    def tokens(self, text: str, start: int = 0) -> Iterator[tuple[int, int, str]]:
        """Yields the start, the end and the kind of each token that is highlighted: a keyword, a function, or a group
        of the pattern."""
        for found in self.pattern.finditer(text, start):
            kind, word, end = found.lastgroup or "string", found[0], found.end()
            if kind == "word":
                is_keyword = (word.lower() if self.ignores_case else word) in self.words
                kind = "keyword" if is_keyword else "function" if text[end : end + 1] == "(" else ""
            if kind and word:
                yield found.start(), end, kind


_BLOCK = r"/\*(?>(?:[^*]|\*(?!/))*)(?:\*/)?"
_SLASHES = rf"//[^\n]*|{_BLOCK}"
_HASH = r"(?<![^\s;(])#[^\n]*"
_DOUBLE = r'"(?>(?:[^"\\\n]|\\.)*)"?'
_SINGLE = r"'(?>(?:[^'\\\n]|\\.)*)'?"
_CHARACTER = r"'(?:[^'\\\n]|\\[^\n]{1,8}?)'"
_TICKED = r"`(?>(?:[^`\\]|\\[\s\S])*)`?"
_TRIPLE = r'"""(?>(?:[^"\\]|\\[\s\S]|"(?!""))*)(?:""")?|' + r"'''(?>(?:[^'\\]|\\[\s\S]|'(?!''))*)(?:''')?"
_PREFIX = r"(?:[rRbBfFuU]{1,2}(?=[\"']))?"
_NUMBER = r"(?<![\w.])(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)(?:[a-zA-Z%]{1,4}(?!\w))?"
_WORD = r"[A-Za-z_$][\w$]*"
_AT = r"(?P<meta>@[\w.]+)"
_DIRECTIVE = r"(?P<meta>(?m:^)[ \t]*#[ \t]*\w+)"
_VARIABLE = r"(?P<name>\$(?:\w+|\{[^}\n]{0,200}\}?|[@*#?!$-]))"
_JSON_KEY = r'(?P<name>"(?>(?:[^"\\\n]|\\.)*)"(?=[ \t]*:))'
_YAML_KEY = r"(?P<name>(?m:^)[ \t]*(?:-[ \t]+)?[\w.\"'/-]{1,80}?(?=[ \t]*:(?:\s|$)))"
_TOML_KEY = r"(?P<name>(?m:^)[ \t]*[\w.\"'-]{1,80}?(?=[ \t]*=))|(?P<meta>(?m:^)[ \t]*\[[^\n]*)"
_TAG = r"(?P<keyword></?[A-Za-z][\w:.-]*|/?>)|(?P<name>[A-Za-z_:@][\w:.-]{0,60}+(?==))"
_RULES = r"(?P<meta>@[\w-]+)|(?P<name>[a-z-]{1,40}+(?=[ \t]{0,4}:[^:;}\n]{0,200}[;}]))|(?P<number>#[\da-fA-F]{3,8}\b)"

_COMMON = (
    "abstract as async await break case catch class const continue default defer delete do else enum export extends "
    "extern final finally fn for foreach from func function go goto if impl implements import in instanceof interface "
    "internal is let loop match mod module move mut namespace new operator override package private protected pub "
    "public readonly ref register return sealed select signed sizeof static struct switch template throw throws trait "
    "try type typedef typename typeof union unsafe unsigned use using val var virtual volatile when where while with "
    "yield int long short char bool boolean float double string byte auto chan map range fallthrough dyn crate usize "
    "u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 str guard protocol extension init deinit object companion fun data"
)
_PYTHON = (
    "and as assert async await break case class continue def del elif else except finally for from global if import in "
    "is lambda match nonlocal not or pass raise return try type while with yield"
)
_SHELL = (
    "if then else elif fi for while until do done case esac in function select time return exit export local readonly "
    "declare unset set shift source alias trap eval exec cd echo printf test read sudo"
)
_SQL = (
    "add all alter and any as asc begin between by case cast check column commit constraint create cross database "
    "default delete desc distinct drop else end except exists explain foreign from full group having if in index inner "
    "insert intersect into is join key left like limit not null offset on or order outer primary references returning "
    "right rollback select set table then transaction trigger union unique update using values view when where with"
)
_RUBY_LUA = (
    "alias and begin break case class def do else elsif elseif end ensure extend for function goto if in include local "
    "module next not or raise redo repeat require rescue retry return then undef unless until when while yield "
    "attr_reader attr_accessor"
)
_ALIASES = {
    "python": "py python3 pyi pycon ipython starlark",
    "c": "c h cc cpp c++ hpp cxx java kotlin kt scala swift go golang rust rs cs csharp dart zig objc proto",
    "script": "js javascript jsx mjs cjs ts typescript tsx php groovy",
    "shell": "sh bash zsh fish console shell shell-session ksh dockerfile makefile make docker",
    "json": "json jsonc json5 jsonl ndjson",
    "yaml": "yaml yml",
    "toml": "toml ini cfg conf properties env dotenv",
    "sql": "sql sqlite postgresql postgres mysql plpgsql",
    "markup": "html xml xhtml svg vue svelte htm xsl plist",
    "css": "css scss less",
    "ruby": "rb ruby lua elixir ex exs crystal perl pl r julia jl",
    "diff": "diff patch udiff",
}
_NAMES = {alias: family for family, aliases in _ALIASES.items() for alias in (family, *aliases.split())}

FAMILIES = {
    "python": (_HASH, rf"{_PREFIX}(?:{_TRIPLE}|{_DOUBLE}|{_SINGLE})", _AT),
    "c": (_SLASHES, f"{_DOUBLE}|{_CHARACTER}", f"{_AT}|{_DIRECTIVE.replace('meta', 'name')}"),
    "script": (_SLASHES, f"{_DOUBLE}|{_SINGLE}|{_TICKED}", _AT),
    "shell": (_HASH, f"{_DOUBLE}|{_SINGLE}", _VARIABLE),
    "json": (_SLASHES, "", f"{_JSON_KEY}|(?P<string>{_DOUBLE})"),
    "yaml": (_HASH, "", f"{_YAML_KEY}|(?P<string>{_DOUBLE}|{_SINGLE})"),
    "toml": (_HASH, "", f"{_TOML_KEY}|(?P<string>{_TRIPLE}|{_DOUBLE}|{_SINGLE})"),
    "sql": (rf"--[^\n]*|{_BLOCK}", f"{_SINGLE}|{_DOUBLE}", ""),
    "markup": (r"<!--(?>(?:[^-]|-(?!->))*)(?:-->)?", r"(?<==)\"[^\"]*+\"?|(?<==)'[^']*+'?", _TAG),
    "css": (_BLOCK, f"{_DOUBLE}|{_SINGLE}", _RULES),
    "ruby": (rf"{_HASH}|--[^\n]*", f"{_DOUBLE}|{_SINGLE}", r"(?P<name>(?<!\w):\w+|@{1,2}\w+)"),
}
_WORDS = {"python": _PYTHON, "c": _COMMON, "script": _COMMON, "shell": _SHELL, "sql": _SQL, "ruby": _RUBY_LUA}
_CONSTANTS = "true false null nil None True False undefined NaN self this super"


def family(name: str) -> str:
    """Returns the family of a language by its name after a fence or by a file extension; empty if it is unknown."""
    return _NAMES.get(name[:24].strip("{}. ").lower(), "")


@lru_cache(maxsize=32)
def language(family_name: str) -> Language | None:
    """Returns the rules of a language family, or `None` for an unknown one."""
    if family_name not in FAMILIES:
        return None
    comment, string, extra = FAMILIES[family_name]
    parts = [f"(?P<comment>{comment})", f"(?P<string>{string})" if string else "", extra]
    # In a family without keywords only constants are highlighted as words: most of its text is prose.
    parts += [f"(?P<digits>{_NUMBER})", f"(?P<word>{_WORD})"]
    words = frozenset(f"{_WORDS.get(family_name, '')} {_CONSTANTS}".split())
    return Language(re.compile("|".join([part for part in parts if part])), words, family_name == "sql")
