"""Masks secrets in data that is shown, stored or sent: the `Redactor`, for text, JSON data, messages and events.

`masking` knows which fields of which value hold text. `forms` finds known secrets in every encoding, `unknown_secrets`
finds others by their form, `ordinary` decides which values are too ordinary to be secrets, and `placeholders` replaces
them. The run masks tool results and errors (`dispatch`, `reply`); output and sessions are masked when they are written.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from operator import is_
from typing import Any, TypeVar, cast

import msgspec
from msgspec import structs

from ..events import AgentEnd, AgentEvent, DelegateEvent, MessageUpdate, TaskEnded, TaskStarted
from ..stream import AssistantMessageDelta
from ..types import AgentMessage
from ..values.checks import a_kind
from ..values.data import as_json_data
from ..values.several import several_texts
from ..values.value import FrozenDict, FrozenList, is_secret_name
from .forms import Found, SecretForms
from .masking import masked
from .ordinary import is_ordinary
from .placeholders import MASK, MaskedText, PlaceholderError, PutBack, covers, placeholder
from .unknown_secrets import LONGEST_HELD, LONGEST_KEY, find_assigned, find_shapes, first_whole_line, unfinished_shape

_SHORTEST = 6  # characters of the shortest secret: a shorter value would match ordinary words
SHORTEST_TEXT = 6  # characters of the shortest text that can hold a secret
_AT_ONCE = 128 * 1024  # characters that are searched at once: no other thread can run during a search
_CONTEXT = 96  # characters before a chunk that may explain its beginning, such as the name of a secret
_MOST_ROUNDS = 3
_MOST_REMEMBERED = 256 * 1024  # characters of masked texts that a redactor remembers at most
_TEXTS: frozenset[Any] = frozenset({str})
_LISTS: frozenset[Any] = frozenset({list, tuple, FrozenList})
_OBJECTS: frozenset[Any] = frozenset({dict, FrozenDict})
_PER_TEXT = 100  # characters added to the length of each remembered text, for the memory that an entry takes

M = TypeVar("M")
_PIECE, _LEAST_PIECE = 64 * 1024, 4 * 1024  # characters of a beginning that are masked at once


class Redactor:
    """Masks registered secrets, text with the form of a common key, and values that are used as credentials.

    Each value gets a placeholder such as `[redacted:DB_PASSWORD:4f2a91c0]`. With the same `key` (by default a new one
    for each redactor) the same value has the same placeholder, so that a tool can put the original back into its file.
    Registered secrets are also found in the usual encodings. Environment variables with names of secrets are registered
    at once, unless `environment={}`; `patterns=False` masks only registered secrets. Values of the `unmasked` names are
    never masked, and with `enabled=False` nothing is. A single string is one secret or name. Safe from any thread.
    """

    def __init__(
        self,
        secrets: str | Iterable[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        patterns: bool = True,
        key: bytes | None = None,
        unmasked: str | Iterable[str] = (),
        enabled: bool = True,
    ) -> None:
        self.enabled = enabled
        self._lock = threading.Lock()
        self._patterns = patterns
        self._key = os.urandom(32) if key is None else _digested(key)
        self._unmasked = frozenset(name.lower() for name in several_texts(unmasked, "Redactor(unmasked=…)"))
        self._secrets: dict[str, str] = {}
        self._words: dict[str, str] = {}  # ordinary words that are masked only where they are used as a credential
        self._spared: set[str] = set()  # values of unmasked names
        self._forms: SecretForms | None = None
        self._remembered = _MaskedBefore()
        self.learn_environment(os.environ if environment is None else environment)
        for secret in several_texts(secrets, "Redactor(…)"):
            self.register(secret)

    def __repr__(self) -> str:
        return f"<Redactor of {len(self)} secrets{'' if self.enabled else ', switched off'}>"

    def __len__(self) -> int:
        return len(self._secrets) + len(self._words)

    def __bool__(self) -> bool:
        return True  # without a known secret it still masks: `redactor or …` must not replace it

    # -- what it knows -------------------------------------------------------------------------------------------

    def register(self, secret: str, name: str = "") -> bool:
        """Adds a secret, which is masked everywhere; its placeholder contains `name`.

        Returns `False`, without adding it, if it has fewer than six characters or its name is to stay unmasked.
        """
        secret = _text(secret).strip()
        if len(secret) < _SHORTEST:
            return False
        if name.lower() in self._unmasked:
            self._spare(secret)
            return False
        if secret not in self._secrets:
            with self._lock:
                self._secrets = {**self._secrets, secret: name}
                self._forms = None
                self._remembered = _MaskedBefore()
        return True

    def _spare(self, value: str) -> None:
        if value not in self._spared:
            self._spared.add(value)
            self._remembered = _MaskedBefore()

    def learn(self, value: str, name: str) -> bool:
        """Adds a value with the name of a secret. An ordinary word is masked only where it is used as a credential."""
        value = _text(value).strip()
        if not value:
            return False
        if name.lower() in self._unmasked:
            self._spare(value)
            return False
        if not is_ordinary(value):
            return self.register(value, name)
        if len(value) >= 3 and value not in self._words:
            with self._lock:
                self._words = {**self._words, value: name}
                self._remembered = _MaskedBefore()
        return True

    def learn_environment(self, environment: Mapping[str, str]) -> None:
        """Adds the values of variables with names of secrets, and the passwords in addresses in any variable."""
        for name, value in environment.items():
            if len(value) < 3:
                continue
            credentials = _credentials_in(value) if "@" in value or "=" in value else []
            for credential in credentials:
                self.learn(credential, name)
            if not credentials and is_secret_name(name):
                self.learn(value, name)
            elif name.lower() in self._unmasked:
                self._spare(value)

    # -- text --------------------------------------------------------------------------------------------------

    def redact(self, text: str, before: str = "") -> str:
        """Masks every secret in the text. Masking a masked text changes nothing.

        `before` is the text in front of it, if it is a part of a longer one.
        """
        if not self.enabled or (len(text) < SHORTEST_TEXT and not before):
            return text
        if before:
            return self._masked(text, self._find(text, before), before).text
        # The same texts are masked for many readers: a call's arguments are in its message, in five events, in the
        # question about it and in the session. The search is done once, until another secret is known.
        remembered = self._remembered
        masked = remembered.texts.get(text)
        if masked is None:
            masked = self.mask(text).text
            remembered.add(text, masked)
        return masked

    def redact_address(self, address: str) -> str:
        """Masks the address of an image or a document."""
        return self.redact(address)

    def redact_texts(self, texts: Sequence[str]) -> list[str]:
        """Masks texts that follow each other directly, including a secret that begins in one and ends in another."""
        across = self._across(texts)
        shown: list[str] = []
        start = 0
        for text in texts:
            end, at, pieces = start + len(text), start, list[str]()
            for first, last, mask in across:
                if first >= end or last <= start:
                    continue
                if first > at:
                    pieces.append(self.redact(text[at - start : first - start]))
                if first >= start:
                    pieces.append(mask)
                at = min(last, end)
            pieces.append(self.redact(text[at - start :]))
            shown.append("".join(pieces))
            start = end
        return shown

    def _across(self, texts: Sequence[str]) -> list[tuple[int, int, str]]:
        """Finds secrets that span several of the texts: their positions in the joined text, and their placeholders."""
        seams = list(accumulate(map(len, texts[:-1])))
        found = self.mask("".join(texts)).places() if seams else ()
        return [(start, end, mask) for start, end, mask in found if any(start < seam < end for seam in seams)]

    def mask(self, text: str) -> MaskedText:
        """Masks every secret in the text, and keeps the original of each placeholder."""
        if len(text) < SHORTEST_TEXT or not self.enabled:
            return MaskedText(text)
        if len(text) <= _AT_ONCE:
            found = self._find(text, "")
            return self._masked(text, found, "") if found else MaskedText(text)
        parts: list[MaskedText] = []
        at = 0
        while at < len(text):
            cut = self._end_of_part(text, at)
            before = text[max(0, at - _CONTEXT) : at]
            parts.append(self._masked(text[at:cut], self._find(text[at:cut], before), before))
            at = cut
        return MaskedText.joined(parts)

    def _end_of_part(self, text: str, start: int) -> int:
        """Where a long text can be divided next without cutting a secret."""
        size = _AT_ONCE
        while start + size < len(text):
            part = text[start : text.rfind("\n", start, start + size) + 1 or start + size]
            safe = self.safe_length(part, text[max(0, start - _CONTEXT) : start])
            if safe > 0:
                return start + safe
            size *= 2
        return len(text)

    def put_back(self, masked: MaskedText, view: str, what: str = "the text") -> PutBack:
        """Restores the originals in a changed view of a masked text. Raises `PlaceholderError` if that is impossible.

        Also raises it if a value would no longer be recognised as a secret in its new place.
        """
        if not self.enabled:
            return PutBack(view, 0, 0, ())
        whole = masked.put_back(view, what)
        if not covers(whole.places, lambda: self._places(whole.text)):
            raise PlaceholderError(
                "a masked value would be in a place where it is no longer recognised as one, and would be shown: "
                f"leave its placeholder in {what} where it was, with the name or address around it"
            )
        return whole

    def _places(self, text: str) -> list[tuple[int, int]]:
        """The positions of secrets in the unmasked text."""
        return [(start, end) for start, end, _ in self.mask(text).places()]

    def _masked(self, text: str, found: list[Found], before: str) -> MaskedText:
        masked = MaskedText(text).covering(found, self._key)
        for _ in range(_MOST_ROUNDS if found else 0):
            # A masked value may have hidden the beginning of another: a key cannot begin directly after a letter.
            more = self._find(masked.text, before)
            if not more:
                break
            masked = masked.covering(more, self._key)
        return masked

    def _find(self, text: str, before: str) -> list[Found]:
        """Finds the parts to mask in a text that is not too long, in order and without overlaps."""
        found = (self._forms or self._forms_now()).find(text)
        if self._patterns:
            whole = before + text if before else text
            seen, assigned = find_shapes(whole), find_assigned(whole, self._words, self._unmasked)
            if assigned:
                known = (self._forms or self._forms_now()).find(whole) if before else found
                seen += _with_clear_names(whole, assigned, (*known, *seen))
            found += [(start - len(before), end - len(before), name) for start, end, name in seen] if before else seen
        if not found:
            return found
        return self._apart(text, found)

    def _forms_now(self) -> SecretForms:
        with self._lock:
            if self._forms is None:
                self._forms = SecretForms(self._secrets)
            return self._forms

    def _apart(self, text: str, found: list[Found]) -> list[Found]:
        """Sorts the parts that were found, joins overlaps, and drops parts that stay unmasked."""
        if self._unmasked:
            spared = [(start, end) for start, end, name in found if not name]
            found = [
                one
                for one in found
                if one[2]
                and text[max(0, one[0]) : one[1]] not in self._spared
                and not any(start <= one[0] and one[1] <= end for start, end in spared)
            ]
        apart: list[Found] = []
        for start, end, name in sorted(found, key=lambda one: (one[0], -one[1])):
            start = max(start, 0)
            if end <= start:
                continue
            if apart and start < apart[-1][1]:
                first, last, known = apart[-1]
                apart[-1] = (first, max(last, end), known or name)
            else:
                apart.append((start, end, name))
        # A value has the same name in every form.
        return [(start, end, self._name_of(text[start:end]) or name) for start, end, name in apart]

    def _name_of(self, value: str) -> str:
        return self._secrets.get(value) or self._words.get(value) or ""

    def stream(self) -> RedactorStream:
        """Returns a filter for text that comes in chunks."""
        return RedactorStream(self)

    def safe_length(self, text: str, before: str = "") -> int:
        """How much of the text can be masked and shown now; the rest may be the beginning of a secret."""
        if not self.enabled or not text:
            return len(text)
        held = min(unfinished_shape(before + text), len(text)) if self._patterns else 0
        held = max(held, (self._forms or self._forms_now()).unfinished(text))
        if held > LONGEST_HELD:
            return len(text)
        return self._before_what_it_cuts(text, len(text) - held, before) if held else len(text)

    def after_a_cut(self, text: str) -> str:
        """Removes the start of a text whose beginning was cut off: it may be the rest of a secret."""
        if not self.enabled:
            return text
        at = first_whole_line(text)
        if at is not None:
            return text[at:]
        at = LONGEST_KEY  # no key is longer; but another may begin before this and must not be cut either
        for start, end in self._places(text):
            if start < at < end:
                at = end
        return text[at:]

    def _before_what_it_cuts(self, text: str, cut: int, before: str) -> int:
        """Moves the cut to the beginning of a complete secret that it would cut."""
        near = max(0, cut - LONGEST_HELD - _CONTEXT)
        for start, end, _ in reversed(self._find(text[near:], before if not near else text[near - _CONTEXT : near])):
            if near + start < cut < near + end:
                return near + start
        return cut

    # -- values ------------------------------------------------------------------------------------------------

    def redact_value(self, value: M) -> M:
        """Masks data, or a value such as a message. Returns the same object if nothing changes.

        Every string in the data is masked; a string under a secret's name is masked whole. An object that is not JSON
        stays if its JSON holds no secret; else that JSON takes its place, masked. So does the JSON of data that is
        nested too deep.
        """
        try:
            return cast("M", self._redact_any(value))
        except RecursionError:
            return cast("M", self._redact_any(as_json_data(value, cuts_deep=True)))

    def _redact_any(self, value: Any) -> Any:
        kind: Any = cast(
            "Any", type(value)
        )  # of an object of an application, which may fail at anything, no more is asked
        if issubclass(kind, str):
            text = self.redact(value)
            return value if text == value else text
        if value is None or issubclass(kind, (int, float)):
            return value
        if kind in _LISTS:
            items = [self._redact_any(item) for item in value]
            return value if all(map(is_, items, value)) else kind(items)
        if kind in _OBJECTS and _TEXTS.issuperset(map(type, value)):
            fields = {self.redact(key): self._redact_field(key, item) for key, item in value.items()}
            is_same = all(map(is_, fields.values(), value.values())) and fields.keys() == value.keys()
            return value if is_same else kind(fields)
        if issubclass(kind, msgspec.Struct):
            return masked(value, self)
        data = as_json_data(value, cuts_deep=True)
        shown = self._redact_any(data)
        return value if shown is data else shown

    def _redact_field(self, name: str, value: Any) -> Any:
        """Masks the value of a field. A string under a secret's name is masked whole, unless it is masked or empty."""
        if type(value) is not str or not value or not is_secret_name(name):
            return self._redact_any(value)
        if not self.enabled or name.lower() in self._unmasked:
            return self._redact_any(value)
        if value.startswith(MASK) and value.endswith("]") and value.count("[") == 1:
            return value
        return placeholder(value, name if self.redact(name) == name else "", self._key)  # a name may hold a secret

    def redact_message(self, message: AgentMessage) -> AgentMessage:
        """Masks texts, arguments, results and errors of a message; returns the same object if nothing changes."""
        return masked(message, self)

    def redact_event(self, event: AgentEvent) -> AgentEvent:
        """Masks one event. For secrets that are split between updates, use `events`."""
        return masked(event, self)

    def events(self) -> EventRedactor:
        """Returns a filter for the events of a run."""
        return EventRedactor(self)

    def log_filter(self) -> logging.Filter:
        """Returns a filter for logging handlers, which masks the message, its arguments and the traceback."""
        return _LogFilter(self)


class _MaskedBefore:
    """Texts and their masked forms, for one set of known secrets.

    A redactor that learns a secret replaces this object after it has stored the secret. So a thread that still searches
    with the old secrets adds its result to an object that is no longer read.
    """

    __slots__ = ("_size", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._size = 0

    def add(self, text: str, masked: str) -> None:
        if len(text) > _MOST_REMEMBERED // 4:
            return
        self._size += len(text) + _PER_TEXT
        if self._size > _MOST_REMEMBERED:
            self.texts, self._size = {}, len(text) + _PER_TEXT
        self.texts[text] = masked


class RedactorStream:
    """Masks text that comes in chunks: `feed` returns what is safe to show, `finish` the rest."""

    __slots__ = ("_before", "_held", "_redactor")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._before = ""
        """The text before: a key cannot begin directly after a letter, and a name may precede its value."""
        self._held = ""

    def feed(self, chunk: str) -> str:
        text = self._held + chunk
        cut = self._redactor.safe_length(text, self._before)
        self._held = text[cut:]
        return self._show(text[:cut])

    def finish(self) -> str:
        """Returns the text that was held back, masked."""
        held, self._held = self._held, ""
        return self._show(held)

    def _show(self, text: str) -> str:
        if not text:
            return text
        shown = self._redactor.redact(text, self._before)
        self._before = (self._before + text)[-_CONTEXT:]
        return shown


class EventRedactor:
    """Masks the events of a run: `feed` returns the masked events, or nothing while text is held back."""

    __slots__ = ("_delegates", "_delta", "_redactor", "_text")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._text = redactor.stream()
        self._delta: AssistantMessageDelta | None = None
        self._delegates: dict[tuple[str, str], EventRedactor] = {}
        """One for each running delegate: their texts are interleaved."""

    def feed(self, event: AgentEvent) -> list[AgentEvent]:
        if type(event) is MessageUpdate:
            return self._feed_delta(event.delta)
        if type(event) is DelegateEvent:
            return self._feed_delegate(event)
        if type(event) is TaskStarted or type(event) is TaskEnded:
            return [self._redactor.redact_event(event)]  # it may come within a block: the held text stays held
        return [*self._flush(), self._redactor.redact_event(event)]

    def finish(self) -> list[AgentEvent]:
        """Returns the events with text that was held back until the end."""
        held = self._flush()
        for (call_id, name), delegate in self._delegates.items():
            held += [DelegateEvent(call_id, self._redactor.redact(name), event) for event in delegate.finish()]
        return held

    def _feed_delta(self, delta: AssistantMessageDelta) -> list[AgentEvent]:
        before: list[AgentEvent] = []
        last = self._delta
        if last is not None and (type(last), last.index) != (type(delta), delta.index):
            before = self._flush()
        self._delta = delta
        text = self._text.feed(delta.delta)
        return [*before, MessageUpdate(structs.replace(delta, delta=text))] if text else before

    def _feed_delegate(self, event: DelegateEvent) -> list[AgentEvent]:
        key, inner = (event.call_id, event.name), event.event
        redactor = self._delegates.setdefault(key, EventRedactor(self._redactor))
        if type(inner) is AgentEnd:
            del self._delegates[key]
        name = self._redactor.redact(event.name)
        return [DelegateEvent(event.call_id, name, shown) for shown in redactor.feed(inner)]

    def _flush(self) -> list[AgentEvent]:
        """Ends the block. The text before the next one is not its context: a key may begin there."""
        delta, self._delta = self._delta, None
        if delta is None:
            return []
        text, self._text = self._text.finish(), self._redactor.stream()
        return [MessageUpdate(structs.replace(delta, delta=text))] if text else []


class _LogFilter(logging.Filter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:  # the arguments do not fit the message: a wrong call must not raise in the caller's code
            message = record.msg if isinstance(record.msg, str) else "a message that cannot be shown"
            with suppress(Exception):
                message += f" with the arguments {record.args!r}"
        record.msg = self._redactor.redact(message)
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self._redactor.redact(record.exc_text)
        if record.stack_info:
            record.stack_info = self._redactor.redact(record.stack_info)
        return True


def _with_clear_names(text: str, assigned: list[Found], others: Iterable[Found]) -> Iterator[Found]:
    """The values that are assigned to names, without the part of a name that belongs to another secret: the placeholder
    would show it."""
    starts: list[int] = []
    ends: list[int] = []
    for start, end, _ in sorted((*others, *assigned)):
        if ends and start < ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            starts.append(start)
            ends.append(end)
    for start, end, name in assigned:
        at = text.rfind(name, max(0, start - _CONTEXT - len(name)), start)
        before = bisect_left(starts, at + len(name)) - 1
        if name and at >= 0 and before >= 0 and ends[before] > at:
            name = name[ends[before] - at :].strip("-_.") or "secret"
        yield start, end, name


def _text(secret: object) -> str:
    if not isinstance(secret, str):
        raise TypeError(f"a secret must be a string, not {a_kind(secret)}: register several one by one")
    return secret


def _digested(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=32, person=b"swink-redactor").digest()


def _credentials_in(value: str) -> list[str]:
    """Finds the passwords in an address or in the parameters of a data source."""
    found = re.search(r"(?s)^(?:[A-Za-z][\w+.-]*://)?([^\s:/@]*):(?!//)(.+)@[^@]*$", value)
    if found is not None:
        return [found.group(2)]
    found = re.search(r"^https?://([0-9a-zA-Z]{16,})@", value)  # error reporting services have the key as the user
    if found is not None:
        return [found.group(1)]
    named = re.findall(
        r"(?i)(?:^|[\s;?&])(?:password|pwd|accountkey|sharedaccesskey|secret|token)\s*=\s*([^\s;&]+)", value
    )
    return [part.strip("'\"") for part in named]


def masked_beginning(redactor: Redactor, text: str, size: int) -> tuple[bytes, str]:
    """Returns the beginning of the masked text in UTF-8, and the rest, unmasked, which must not be shown.

    The beginning has at least `size` bytes, or is all of the text. No secret is cut between the two.
    """
    masking = redactor.stream()
    data = bytearray()
    place, piece = 0, min(max(size, _LEAST_PIECE), _PIECE)
    while place < len(text) and len(data) < size:
        data += masking.feed(text[place : place + piece]).encode("utf-8", "replace")
        place += piece
    if place >= len(text):
        data += masking.finish().encode("utf-8", "replace")
    return bytes(data), text[place:]
