"""The dialect of regular expressions that both search engines read: ripgrep's.

Reports features that the dialect lacks, and has the same engine for machines without ripgrep. Ripgrep uses Rust's
`regex`, which takes linear time for any pattern. `jsonschema_rs`, which this package needs anyway, has that engine for
the keyword `pattern`. Imports only the standard library, and that package on use: the scanner runs this file without
our package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .glob import CLASSES

_ELSEWHERE = "write the pattern without it, or run grep -P with bash"
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_REFERENCE = re.compile(r"[1-9]|k[<{']")
_WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}"
_CLASSES = {
    "d": r"\p{Nd}",
    "D": r"\P{Nd}",
    "s": r"\p{White_Space}",
    "S": r"\P{White_Space}",
    "w": f"[{_WORD}]",
    "W": f"[^{_WORD}]",
}
"""What these mean in ripgrep; in a JSON schema they mean only ASCII."""
_POSIX = re.compile(r"\[:([a-z]+):\]")
_POSIX_CLASSES = {name.decode(): members.decode() for name, members in CLASSES.items()} | {"word": "0-9A-Za-z_"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_TOKEN = re.compile(r"\\.|.", re.DOTALL)


def why_unsupported(pattern: str) -> str:
    """The feature of the pattern that neither engine has, and what to do instead; empty if there is none."""
    plain = _ESCAPE.sub("", pattern)
    if _LOOK_AROUND.search(plain):
        return f"look-around, such as (?=…) or (?<!…), is not supported: {_ELSEWHERE}"
    references = any(_REFERENCE.match(pattern, match.start(1)) for match in _ESCAPE.finditer(pattern))
    if references or "(?P=" in plain:
        return f"a reference to a group, such as \\1, is not supported: {_ELSEWHERE}"
    return ""


def compile_pattern(pattern: str, ignore_case: bool) -> Callable[[str], int | None]:
    """A function that returns about where in a line the first match is, or `None`. Raises `ValueError`."""
    import jsonschema_rs

    if why := why_unsupported(pattern):
        raise ValueError(why)
    unicode = _with_unicode_classes(pattern)
    wanted = {"type": "string", "pattern": f"(?i:{unicode})" if ignore_case else f"(?:{unicode})"}
    try:
        if _is_valid_alone(pattern):
            matches = jsonschema_rs.validator_for(wanted, pattern_options=jsonschema_rs.RegexOptions()).is_valid
            return lambda line: _column(matches, line) if matches(line) else None
    except ValueError:
        pass
    raise ValueError(_why_not_valid(pattern))


def _with_unicode_classes(pattern: str) -> str:
    """The pattern with ripgrep's meaning of `\\w` and the like.

    Inside brackets they have no brackets themselves: the engine's front end does not accept `[^[a]]`.
    """
    pattern = _POSIX.sub(lambda match: _POSIX_CLASSES.get(match[1], match[0]), pattern)
    made: list[str] = []
    for token, in_class in _tokens(pattern):
        stands_for = _CLASSES.get(token[1]) if len(token) == 2 and token[0] == "\\" else None
        if stands_for is None:
            made.append(token)
        elif in_class and token == "\\w":
            made.append(_WORD)
        elif in_class and token == "\\W":
            raise ValueError(f"\\W in brackets is not supported without ripgrep: {_ELSEWHERE}")
        else:
            made.append(stands_for)
    return "".join(made)


def _is_valid_alone(pattern: str) -> bool:
    """Whether its brackets are balanced: `a)(b` is not one pattern."""
    depth = 0
    for token, in_class in _tokens(pattern):
        depth += 0 if in_class else (token == "(") - (token == ")")
        if depth < 0:
            return False
    return True


def _tokens(pattern: str) -> Iterator[tuple[str, bool]]:
    """The characters of a pattern, an escaped one with its backslash, and whether each is in brackets."""
    in_class = 0
    for token in _TOKEN.findall(pattern):
        if token == "[":
            in_class += 1
        elif token == "]" and in_class:
            in_class -= 1
        yield token, in_class > 0


def _column(matches: Callable[[str], bool], line: str) -> int:
    """About where the first match ends, found by bisection; 0 for short lines, which are shown whole."""
    low, high = 0, len(line)
    if high <= _SHOWN_WHOLE:
        return 0
    while low < high:
        middle = (low + high) // 2
        if matches(line[:middle]):
            high = middle
        else:
            low = middle + 1
    return max(0, low - 1)


_SHOWN_WHOLE = 300


def _why_not_valid(pattern: str) -> str:
    """Python's reason, as its syntax is nearly the same. The engine gives none."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error)
    return "it is not a regular expression as ripgrep reads it"
