"""Patterns for names of files, as git and shells write them: `*`, `?`, `[a-z]`, `**`, and braces for the search tool.

Translates them to regular expressions that take linear time for any pattern: each `*` is matched once and never
retried. Works on bytes, as git does, so that every name can be matched. Imports only the standard library: the
scanner's child process loads this file.
"""

from __future__ import annotations

import re
from itertools import pairwise

_STAR = "star"
_DEEP_STAR = "deep star"
_DEEP_FOLDERS = "deep folders"

_MOST_BRACES = 64
_LONGEST_IN_ALL = 8192  # bytes of all alternatives together
CLASSES = {
    b"alnum": rb"0-9A-Za-z",
    b"alpha": rb"A-Za-z",
    b"blank": rb"\t\x20",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"!-~",
    b"lower": rb"a-z",
    b"print": rb"\x20-~",
    b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb"\t\n\x0b\x0c\r\x20",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9A-Fa-f",
}


class NameGlob:
    """A glob over paths relative to a folder: without a slash it matches the last name, else the whole path.

    `*.{ts,tsx}` is two patterns in one, `src/` is everything beneath `src`, and `!` at the front negates. Raises
    `ValueError` for a pattern with too many alternatives, an unclosed `[`, or an empty one.
    """

    def __init__(self, pattern: str) -> None:
        self.negated = pattern.startswith("!")
        bare = pattern.removeprefix("!").removeprefix("./")
        if not bare.strip("/"):
            raise ValueError(f"the glob {pattern!r} names nothing; give one such as *.py or src/**/*.ts")
        self.alternatives = expand_braces(bare.encode("utf-8", "surrogateescape"))
        if sum(map(len, self.alternatives)) > _LONGEST_IN_ALL:
            raise ValueError("the glob is too long; give a simpler one")
        self._names: list[re.Pattern[bytes]] = []
        self._paths: list[re.Pattern[bytes]] = []
        for alternative in self.alternatives:
            if alternative.endswith(b"/"):
                alternative += b"**"
            is_path = b"/" in alternative
            compiled = translate(alternative.removeprefix(b"/"), is_path=is_path, is_text=True)
            if compiled is None:
                raise ValueError(f"the glob {pattern!r} is not valid: a [ has no ], or a \\ is at the end")
            (self._paths if is_path else self._names).append(compiled)

    def matches(self, path: bytes) -> bool:
        name = path.rpartition(b"/")[2]
        found = any(item.match(name) for item in self._names) or any(item.match(path) for item in self._paths)
        return found is not self.negated


def expand_braces(pattern: bytes) -> list[bytes]:
    """The patterns that `{a,b}` stands for. Braces without a comma, or without an end, are literal."""
    finished: list[bytes] = []
    waiting = [pattern]
    while waiting:
        if len(waiting) + len(finished) > _MOST_BRACES:
            raise ValueError(f"the glob has more than {_MOST_BRACES} alternatives in braces; give a simpler one")
        item = waiting.pop()
        group = _first_braces(item)
        if group is None:
            finished.append(item)
        else:
            start, end, parts = group
            waiting.extend([item[:start] + part + item[end:] for part in parts])
    return list(dict.fromkeys(reversed(finished)))


def last_segment(pattern: bytes) -> bytes:
    """The part of a glob for the last name, or `*` if any name may match."""
    segment = pattern.rpartition(b"/")[2]
    return segment if segment and b"**" not in segment else b"*"


def _first_braces(pattern: bytes) -> tuple[int, int, list[bytes]] | None:
    start = -1
    depth = 0
    cuts: list[int] = []
    position = 0
    while position < len(pattern):
        char = pattern[position : position + 1]
        if char == b"\\":
            position += 1
        elif char == b"{":
            if depth == 0:
                start, cuts = position, []
            depth += 1
        elif char == b"," and depth == 1:
            cuts.append(position)
        elif char == b"}" and depth:
            depth -= 1
            if depth == 0 and cuts:
                edges = [start, *cuts, position]
                return start, position + 1, [pattern[a + 1 : b] for a, b in pairwise(edges)]
        position += 1
    return None


# -- one pattern ---------------------------------------------------------------------------------------------


def translate(pattern: bytes, *, is_path: bool, is_text: bool = False) -> re.Pattern[bytes] | None:
    """A regular expression that matches what git's matcher does, or `None` for a pattern that matches nothing.

    With `is_path`, `*` stops at a slash and `**` between slashes does not; else the text is a single name. `?` is one
    byte, as in git, or with `is_text` one character.
    """
    tokens = _tokens(pattern, is_path, rb"(?>[\xc0-\xff][\x80-\xbf]*|[^/])" if is_text else b"[^/]")
    if tokens is None:
        return None
    runs: list[list[str | bytes]] = [[]]
    for token in tokens:
        if token in (_DEEP_STAR, _DEEP_FOLDERS):
            runs.append([])
        runs[-1].append(token)
    # A later `**` matches whatever an earlier part leaves, so the first place where a part fits is as good as any
    # other: only the last part is ever retried.
    pieces = [_run(run, is_last=position == len(runs) - 1) for position, run in enumerate(runs)]
    return re.compile(b"".join(pieces) + rb"\Z", re.DOTALL)


def _run(tokens: list[str | bytes], *, is_last: bool) -> bytes:
    """The expression for the tokens from one `**` up to the next."""
    lead = b""
    if tokens and tokens[0] == _DEEP_FOLDERS:
        lead, tokens = b"(?:.*?/)??", tokens[1:]
    elif tokens and tokens[0] == _DEEP_STAR:
        lead, tokens = b".*?", tokens[1:]
        if not tokens and is_last:
            return b".*"
    chunks: list[list[bytes]] = [[]]
    for token in tokens:
        if token == _STAR:
            chunks.append([])
        else:
            assert isinstance(token, bytes)
            chunks[-1].append(token)
    body = b"".join(chunks[0])
    for position, chunk in enumerate(chunks[1:], 1):
        fixed = b"".join(chunk)
        if is_last and position == len(chunks) - 1:
            body += rb"[^/]*" + fixed
        else:
            body += rb"(?>[^/]*?" + fixed + b")"
    return lead + body if is_last else b"(?>" + lead + body + b")"


def _tokens(pattern: bytes, is_path: bool, any_one: bytes) -> list[str | bytes] | None:
    """The pattern in pieces: stars, and expressions that each match exactly one byte or character."""
    tokens: list[str | bytes] = []
    position = 0
    while position < len(pattern):
        char = pattern[position : position + 1]
        if char == b"*":
            end = position
            while pattern[end : end + 1] == b"*":
                end += 1
            kind, position = _star(pattern, position, end) if is_path else (_STAR, end)
            if not (kind == _STAR and tokens and tokens[-1] == _STAR):
                tokens.append(kind)
        elif char == b"?":
            tokens.append(any_one)
            position += 1
        elif char == b"[":
            found = _character_class(pattern, position)
            if found is None:
                return None
            token, position = found
            tokens.append(token)
        elif char == b"\\":
            if position + 1 == len(pattern):
                return None
            tokens.append(re.escape(pattern[position + 1 : position + 2]))
            position += 2
        else:
            tokens.append(re.escape(char))
            position += 1
    return tokens


def _star(pattern: bytes, start: int, end: int) -> tuple[str, int]:
    """The meaning of the stars from `start` to `end`, and the position where the pattern continues."""
    stands_alone = start == 0 or pattern[start - 1 : start] == b"/"
    if end - start == 1 or not stands_alone:
        return _STAR, end
    if end == len(pattern) or pattern.startswith(b"\\/", end):
        return _DEEP_STAR, end
    if pattern.startswith(b"/", end):
        return _DEEP_FOLDERS, end + 1
    return _STAR, end


def _character_class(pattern: bytes, start: int) -> tuple[bytes, int] | None:
    """The class that begins at `start` and the position after it, or `None` if it never ends or is not a class."""
    position = start + 1
    is_negated = pattern[position : position + 1] in (b"!", b"^")
    found = _class_members(pattern, position + is_negated)
    if found is None:
        return None
    members, position = found
    if is_negated:
        return b"[^/" + members + b"]", position
    return (b"(?!/)[" + members + b"]" if members else b"(?!)"), position


def _class_members(pattern: bytes, position: int) -> tuple[bytes, int] | None:
    """The content of a class for a regular expression, and the position after its end. Follows git step by step."""
    members = b""
    previous: int | None = None
    start = position
    while position < len(pattern):
        char, following = pattern[position], pattern[position + 1 : position + 2]
        if char == ord("]") and position > start:
            return members, position + 1
        if char == ord("\\"):
            if not following:
                return None
            previous, position = following[0], position + 2
            members += _escape(previous)
        elif char == ord("-") and previous is not None and following not in (b"", b"]"):
            position += 1 + (following == b"\\")
            if position >= len(pattern):
                return None
            if previous <= pattern[position]:
                members += _escape(previous) + b"-" + _escape(pattern[position])
            previous, position = None, position + 1
        elif char == ord("[") and following == b":" and (end := pattern.find(b"]", position + 2)) != position + 2:
            if end < 0:
                return None
            if pattern[end - 1] == ord(":"):
                named = CLASSES.get(pattern[position + 2 : end - 1])
                if named is None:
                    return None
                members, previous, position = members + named, None, end + 1
            else:
                members, previous, position = members + _escape(char), char, position + 1
        else:
            members, previous, position = members + _escape(char), char, position + 1
    return None


def _escape(byte: int) -> bytes:
    return b"\\x%02x" % byte
