"""Splits texts and queries into words for the search, and makes the snippet that shows a hit.

Words are compared without case and accents. In scripts without spaces between words every character is a word, and so
is every emoji; a sequence of them is found anywhere in a text. An identifier such as `foo_bar.baz` is a sequence of
three words.

All functions are pure and independent of the index file, which is in `index`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

import msgspec

from swink_agent.core import types
from swink_agent.rendering.texts.invisible import is_deceptive, ordinary_places

_MOST_TERMS = 500
_MOST_WORDS = 5000
_SHORTEST_PREFIX = 2
_BEFORE = 60
_AFTER = 140

# Thai to Tibetan, Myanmar, Khmer, kana, Han, Hangul.
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_PICTURES = "\u00a9\u00ae\u2190-\u21ff\u2300-\u23ff\u2460-\u27bf\u2900-\u297f\u2b00-\u2bff\U0001f000-\U0001faff"
_WORD = re.compile(f"[^\\W_{_UNSPACED}]+|[{_UNSPACED}]|[{_PICTURES}]")
_ASCII_WORD = re.compile("[a-z0-9]+")
# General accents, and those of Church Slavonic, Hebrew and Arabic. In other scripts such marks count as letters.
_ACCENTS = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
)
_SINGLE = re.compile(f"[{_UNSPACED}{_PICTURES}]")
_TERM = re.compile(r'"([^"]*)"|(\S+)')


# -- words ---------------------------------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    """Returns the words of a text in order, in the form in which they are compared."""
    if text.isascii():  # much faster, and enough for most texts
        return _ASCII_WORD.findall(text.lower())
    return _WORD.findall(_folded(text))


def _folded(text: str) -> str:
    """Returns the text without case and accents, and without lone surrogates, which SQLite refuses."""
    text = unicodedata.normalize("NFKD", _whole(text).casefold())
    return unicodedata.normalize("NFKC", _ACCENTS.sub("", text)).casefold()


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


# -- queries -------------------------------------------------------------------------------------------------


class Term(NamedTuple):
    """One condition of a query: words next to each other or, if it has no words, exactly these characters."""

    words: tuple[str, ...]
    literal: str
    is_prefix: bool = False
    """Whether the last word may be only the beginning of a word."""


class Query(NamedTuple):
    """A parsed query: one message must match all terms."""

    terms: tuple[Term, ...]

    @property
    def expression(self) -> str:
        """The query in the syntax of FTS5, quoted so that no word acts as an operator; empty without words."""
        terms = [term for term in self.terms if term.words]
        return " AND ".join(f'"{" ".join(term.words)}"{" *" if term.is_prefix else ""}' for term in terms)

    @property
    def literals(self) -> list[str]:
        """The terms without words, such as operators and punctuation, which the text must contain literally."""
        return [term.literal for term in self.terms if not term.words]


def parse_query(query: str) -> Query:
    """Parses what the user typed: words, and phrases in double quotes. The last word may be unfinished."""
    query = query.replace("\0", " ")  # the index replaces it, too
    terms: dict[Term, None] = {}
    found = list(_TERM.finditer(query))[:_MOST_TERMS]
    for position, match in enumerate(found):
        phrase, word = match[1], match[2]
        literal = (phrase if word is None else word).strip()
        words = tuple(words_of(literal)[:_MOST_WORDS])
        if not words and not literal.strip('"'):
            continue
        is_last = position == len(found) - 1 and word is not None and not query[-1:].isspace()
        is_long = bool(words) and len(words[-1]) >= _SHORTEST_PREFIX and _SINGLE.fullmatch(words[-1][-1]) is None
        is_prefix = is_last and is_long and _folded(literal)[-1:].isalnum()
        terms[Term(words, _whole(literal), is_prefix)] = None
    return Query(tuple(terms))


# -- searchable text of a message ------------------------------------------------------------------------------


def text_of(message: types.AgentMessage) -> str:
    """Returns everything in a message that a user may search for: text, thinking, calls with arguments, results."""
    return "\n".join(part for part in _parts(message) if part)


def _parts(message: types.AgentMessage) -> Iterator[str]:
    match message:
        case types.UserMessage() | types.ToolResultMessage():
            yield from _blocks(message.content)
        case types.AssistantMessage():
            yield from _blocks(message.content)
            yield message.error_message or ""
        case types.CustomMessage():
            fields = msgspec.to_builtins(message, enc_hook=str, str_keys=True)
            kind = type(message).__struct_config__.tag_field
            yield from _strings([value for name, value in fields.items() if name != kind], only_texts=True)


def _blocks(blocks: Iterable[object]) -> Iterator[str]:
    for block in blocks:
        match block:
            case types.Text():
                yield block.text
            case types.Thinking():
                yield block.thinking
            case types.ToolCall():
                yield block.name
                yield from _strings(block.arguments)
                yield block.partial_json or ""
            case types.Image(source=source):
                yield _address(source)
            case types.Document(source=source):
                yield block.name
                yield _address(source)
            case types.Extension():
                yield block.type_name
                yield from _strings(block.data)
            case _:
                pass


def _address(source: types.Source) -> str:
    """Returns the address or path of a picture or document; its data is not searchable."""
    if isinstance(source, types.UrlSource) and source.url[:5].lower() != "data:":
        return source.url
    return str(source.path) if isinstance(source, types.FileSource) else ""


def _strings(value: Any, *, only_texts: bool = False) -> Iterator[str]:
    """Yields the names and values in JSON data at any depth; with `only_texts`, only the values that are text."""
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for name, inner in reversed(cast("dict[Any, Any]", item).items()):
                waiting += [inner] if only_texts else [inner, str(name)]
        elif isinstance(item, (list, tuple)):
            waiting.extend(reversed(cast("list[Any]", item)))
        elif isinstance(item, str):
            yield item
        elif item is not None and not isinstance(item, bool) and not only_texts:
            yield str(item)


# -- showing a hit -------------------------------------------------------------------------------------------


def snippet_of(text: str, query: Query) -> str:
    """Returns the text around the first hit as one line without control or invisible characters."""
    place = _place(text, query)
    start = max(0, place - _BEFORE)
    end = min(len(text), place + _AFTER)
    if start:  # does not begin in the middle of a word
        space = re.search(r"\s", text[start:place])
        start += space.end() if space is not None else 0
    return f"{'…' if start else ''}{_plain(_whole(text[start:end]))}{'…' if end < len(text) else ''}"


def _plain(text: str) -> str:
    """Returns the text as one line, with each invisible character replaced by a space."""
    ordinary = ordinary_places(text)
    shown = [" " if is_deceptive(one) and at not in ordinary else one for at, one in enumerate(text)]
    return " ".join("".join(shown).split())


def _place(text: str, query: Query) -> int:
    """Returns where a term occurs, literally or else by its first word; 0 if no place is found."""
    lower = text.lower()
    if len(lower) == len(text):
        for term in query.terms:
            place = lower.find(term.literal.lower())
            if place >= 0:
                return place
    for match in re.finditer(r"\S+", text):
        if any(term.words and term.words[0] in words_of(match[0]) for term in query.terms):
            return match.start()
    return 0
