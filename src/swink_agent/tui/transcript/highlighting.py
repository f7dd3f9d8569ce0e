"""Highlights code line by line; a comment or string that a line leaves open continues on the next.

Owns the state between two lines. The languages are those of exported pages (`rendering.languages`). Each line is read
without the lines after it, so a finished line never changes, and the cost of a line depends only on its own length.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from swink_agent.rendering.languages import family, language

from .line import Span

_LONGEST = 4000
"""Longer lines are probably data and are not highlighted."""


class _OpenConstruct(NamedTuple):
    """A construct that can span lines: its beginning, a pattern up to its end, and "string" or "comment"."""

    begin: str
    end: re.Pattern[str]
    part: str


_CARRIED = (
    _OpenConstruct('"""', re.compile(r'(?>(?:[^"\\]|\\.|"(?!""))*)(?:"""|\\?$)'), "string"),
    _OpenConstruct("'''", re.compile(r"(?>(?:[^'\\]|\\.|'(?!''))*)(?:'''|\\?$)"), "string"),
    _OpenConstruct("`", re.compile(r"(?>(?:[^`\\]|\\.)*)(?:`|\\?$)"), "string"),
    _OpenConstruct("/*", re.compile(r"(?>(?:[^*]|\*(?!/))*)(?:\*/|$)"), "comment"),
    _OpenConstruct("<!--", re.compile(r"(?>(?:[^-]|-(?!->))*)(?:-->|$)"), "comment"),
)
_CLOSERS = {'"""': '"""', "'''": "'''", "`": "`", "/*": "*/", "<!--": "-->"}
_PREFIX = re.compile(r"[rRbBfFuU]{0,2}")


class Highlighter:
    """Highlights one line after another. Roles are `base`, or with a part of the language: `code+code.keyword`."""

    __slots__ = ("_base", "_carried", "_family", "_language")

    def __init__(self, name: str, base: str = "code") -> None:
        self._family = family(name)
        self._language = language(self._family)
        self._base = base
        self._carried: _OpenConstruct | None = None

    def line(self, text: str) -> tuple[Span, ...]:
        """Returns the spans of the next line, which is given without its line end."""
        base = self._base
        if not text:
            return ()
        if self._family == "diff":
            return (Span(text, f"{base}+{_kind_of_diff(text)}"),)
        known = self._language
        if known is None or len(text) > _LONGEST:
            return (Span(text, base),)
        spans: list[Span] = []
        at = self._continue(text, spans)
        if at == len(text):
            return tuple(spans)
        done = at
        for start, end, kind in known.tokens(text, at):
            if start > done:
                spans.append(Span(text[done:start], base))
            spans.append(Span(text[start:end], f"{base}+code.{kind}"))
            done = end
            if end == len(text):
                self._carried = _unfinished(text[start:end], kind)
        if done < len(text):
            spans.append(Span(text[done:], base))
        return tuple(spans)

    def _continue(self, text: str, spans: list[Span]) -> int:
        """Adds the part that belongs to a construct of an earlier line; returns where the rest begins."""
        carried = self._carried
        if carried is None:
            return 0
        found = carried.end.match(text)
        end = len(text) if found is None else found.end()
        spans.append(Span(text[:end], f"{self._base}+code.{carried.part}"))
        if found is not None and found[0].endswith(_CLOSERS[carried.begin]) and not _is_open(carried, text[:end]):
            self._carried = None
        return end


def _is_open(carried: _OpenConstruct, text: str) -> bool:
    """Returns whether the end mark at the end of the text does not count, for example because it is escaped."""
    found = carried.end.match(text)
    closer = _CLOSERS[carried.begin]
    body = text[: -len(closer)]
    return found is None or (carried.part == "string" and (len(body) - len(body.rstrip("\\"))) % 2 == 1)


def _unfinished(token: str, part: str) -> _OpenConstruct | None:
    if part not in ("string", "comment"):
        return None
    prefix = _PREFIX.match(token)
    start = prefix.end() if part == "string" and prefix is not None else 0
    for carried in _CARRIED:
        if carried.part == part and token.startswith(carried.begin, start):
            body = token[start + len(carried.begin) :]
            closer = _CLOSERS[carried.begin]
            return None if body.endswith(closer) and not _is_open(carried, body) else carried
    return None


def _kind_of_diff(line: str) -> str:
    if line.startswith(("+++", "---", "diff ", "index ", "Index: ")):
        return "strong"
    return {"+": "added.sign", "-": "removed.sign", "@": "hunk"}.get(line[:1], "context")


def family_of_path(path: str) -> str:
    """Returns the language name for `Highlighter`: the suffix of a file's name, or the name itself."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    return name.rpartition(".")[2] if "." in name else name
