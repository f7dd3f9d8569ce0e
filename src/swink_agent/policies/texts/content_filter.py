"""`ContentFilter`: removes words and patterns from results and replies, or stops the run.

The matching ignores case, accents, look-alike letters and invisible characters, as a reader does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from swink_agent.core.policy import Inject, PolicyContext
from swink_agent.core.types import AssistantMessage
from swink_agent.core.values.checks import check_switch, check_text
from swink_agent.core.values.several import several, several_texts

from .._stops_later import StopsLater as _StopsLater
from ._characters import Folded, fold
from ._strings import as_regex, rewrite_turn

_TOKEN = re.compile(r"\w+")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Scripts without spaces between words: there, a word is found anywhere."""


class ContentFilter(_StopsLater):
    """Removes words and patterns from replies and tool results, or stops the run if one is found.

    `words` are words or phrases, found as whole words (`whole_words=False`: anywhere), without regard to case, accents,
    width, look-alike letters and invisible characters. `patterns` are regular expressions, searched without regard to
    case in the text itself and in its readable form. `action="stop"` withholds a text with a match from the history and
    the model, and ends the run; `"redact"` replaces each match with `replacement` and continues. `replies` and
    `results` choose which texts are searched.

    It does not change calls, reasoning that a provider signed, or the live events that people and subscribers see. Give
    it with `policies=[…]`: it needs several slots. Runs can share the object.
    """

    name = "content_filter"

    def __init__(
        self,
        words: str | Iterable[str] = (),
        *,
        patterns: str | Iterable[str | re.Pattern[str]] = (),
        action: Literal["stop", "redact"] = "stop",
        replacement: str = "[removed]",
        whole_words: bool = True,
        replies: bool = True,
        results: bool = True,
    ) -> None:
        if action not in ("stop", "redact"):
            raise ValueError(f"ContentFilter: action is {action!r}; it must be 'stop' or 'redact'")
        check_text("ContentFilter: replacement", replacement)
        for name, switch in (("whole_words", whole_words), ("replies", replies), ("results", results)):
            check_switch(f"ContentFilter: {name}", switch)
        super().__init__()
        self.action = action
        self.replacement = replacement
        self.replies = replies
        self.results = results
        given = several(patterns, "ContentFilter(patterns=…)")
        self._patterns = tuple([as_regex(item, f"ContentFilter: {item!r}", re.IGNORECASE) for item in given])
        folded = [fold(word).text.strip() for word in several_texts(words, "ContentFilter(words=…)")]
        if not all(folded):
            raise ValueError("ContentFilter: a word is empty; it would match everywhere")
        if not folded and not self._patterns:
            raise ValueError("ContentFilter() searches for nothing; give words, patterns, or both")
        spaced = [word for word in folded if whole_words and _is_of_tokens(word)]
        self._words = frozenset([word for word in spaced if _TOKEN.fullmatch(word)])
        self._phrases: dict[str, list[tuple[str, ...]]] = {}
        for word in spaced:
            if word not in self._words:
                tokens = tuple(_TOKEN.findall(word))
                self._phrases.setdefault(tokens[0], []).append(tokens)
        others = sorted(set(folded) - set(spaced), key=len, reverse=True)
        self._others = re.compile("|".join([_escaped(word, whole_words) for word in others])) if others else None

    def __repr__(self) -> str:
        phrases = sum(map(len, self._phrases.values()))
        return f"<ContentFilter of {len(self._words) + phrases} words and {len(self._patterns)} patterns>"

    def finds(self, text: str) -> bool:
        """Whether a word or pattern is in the text."""
        return next(self._spans(text), None) is not None

    def redact(self, text: str) -> str:
        """The text with each match replaced."""
        spans = sorted(self._spans(text))
        if not spans:
            return text
        pieces: list[str] = []
        end = 0
        for start, stop in spans:
            if start >= end:
                pieces += [text[end:start], self.replacement]
            end = max(end, stop)
        return "".join([*pieces, text[end:]])

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        folded = fold(text)
        for start, end in self._folded_spans(folded):
            yield folded.span(start, end)
        for pattern in self._patterns:
            yield from (match.span() for match in pattern.finditer(text) if match.group())
            if not text.isascii():
                yield from (folded.span(*match.span()) for match in pattern.finditer(folded.text) if match.group())

    def _folded_spans(self, folded: Folded) -> Iterator[tuple[int, int]]:
        if self._others is not None:
            yield from (match.span() for match in self._others.finditer(folded.text))
        if not self._words and not self._phrases:
            return
        for match in _TOKEN.finditer(folded.text):
            token = match.group()
            if token in self._words:
                yield match.span()
            for phrase in self._phrases.get(token, ()):
                end = _end_of(phrase, folded.text, match.end())
                if end is not None:
                    yield match.start(), end

    def post_turn(self, ctx: PolicyContext) -> Inject | None:
        rewrite = self.redact if self.action == "redact" else self._withhold
        changed = rewrite_turn(ctx, rewrite, results=self.results, replies=self.replies)
        if not changed:
            return None
        if self.action == "stop":
            where = "the model's reply" if isinstance(changed[0], AssistantMessage) else "a tool's result"
            self._stop_later(ctx, f"{where} contains forbidden text; it was withheld")
        return Inject(changed)

    def _withhold(self, text: str) -> str:
        return "[kept back by the policy content_filter]" if self.finds(text) else text


def _is_of_tokens(word: str) -> bool:
    """Whether a word is searched by its tokens: it begins and ends with one, in a script with spaces."""
    return bool(_TOKEN.match(word[0]) and _TOKEN.match(word[-1])) and _UNSPACED.search(word) is None


def _escaped(word: str, whole_words: bool) -> str:
    """The word as a pattern. If it begins or ends with a letter, no other letter may be next to it."""
    if not whole_words or _UNSPACED.search(word):
        return re.escape(word)
    before = r"(?<!\w)" if _TOKEN.match(word[0]) else ""
    after = r"(?!\w)" if _TOKEN.match(word[-1]) else ""
    return before + re.escape(word) + after


def _end_of(phrase: Sequence[str], text: str, place: int) -> int | None:
    """The end of a phrase whose first token ended at `place`; a few other characters may be between its tokens."""
    for token in phrase[1:]:
        following = _TOKEN.search(text, place, place + len(token) + 8)
        if following is None or not text.startswith(token, following.start()):
            return None
        place = following.start() + len(token)
        if place < len(text) and _TOKEN.match(text, place):
            return None
    return place
