"""Keeping secrets out of what is shown, stored and sent on.

Owns the `Redactor`: the secrets it knows, in every form in which they are likely to turn up, the shapes of common
keys, and the masking of text, JSON data, messages and events, whole or in chunks. It does not own where it is
applied: tool results and errors in `dispatch` and `reply`, output and sessions in the rooms that write them.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import structs

from .events import AgentEvent, MessageUpdate
from .stream import AssistantMessageDelta
from .types import AgentMessage
from .value import is_secret_name

__all__ = ["MASK", "EventRedactor", "Redactor", "RedactorStream"]

MASK = "[redacted]"

_SHORTEST = 6
"""Characters below which a value is no secret worth masking: it would be found in ordinary words."""
_LONGEST = 192
"""Characters after which a secret is known by its pieces, so that a chunk never has to wait for a whole file."""
_LONGEST_KEY = 4096
_LONGEST_HELD = 20_000

_KEY_STARTS = (
    *("sk-", "sk_live_", "rk_live_", "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    *("xoxa-", "xoxb-", "xoxp-", "xoxo-", "xoxs-", "xoxr-", "AIza", "hf_", "npm_", "pypi-", "xai-", "SG.", "eyJ"),
)
_PRIVATE_KEY_START = "-----BEGIN "


class _Shapes:
    """The shapes of keys. Compiled on first use: it takes as long as all the rest of the import."""

    def __init__(self) -> None:
        keys = (
            r"sk-(?:ant-|proj-|svcacct-|or-v1-)?[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic, and those that follow them
            r"(?:AKIA|ASIA)[A-Z0-9]{16}",
            r"gh[pousr]_[A-Za-z0-9]{30,}",
            r"github_pat_[A-Za-z0-9_]{30,}",
            r"glpat-[A-Za-z0-9_-]{16,}",
            r"xox[abposr]-[A-Za-z0-9-]{10,}",
            r"AIza[A-Za-z0-9_-]{30,}",
            r"hf_[A-Za-z0-9]{30,}",
            r"npm_[A-Za-z0-9]{30,}",
            r"pypi-[A-Za-z0-9_-]{50,}",
            r"xai-[A-Za-z0-9]{40,}",
            r"(?:sk|rk)_live_[A-Za-z0-9]{16,}",
            r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
            r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",  # a JSON web token
        )
        block_end = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----"
        self.key = re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(keys)})")
        self.header = re.compile(r"(?i)(?<![A-Za-z0-9_])(authorization\s*:\s*(?:bearer|basic|token)\s+)[^\s\"',;]{8,}")
        self.unfinished_header = re.compile(r"(?i)authorization\s*(?::\s*(?:[a-z]*(?:\s+[^\s\"',;]*)?)?)?\Z")
        self.block = re.compile(
            rf"-----BEGIN [A-Z0-9 ]{{0,40}}PRIVATE KEY-----.{{0,20000}}?(?:{block_end}|\Z)", re.DOTALL
        )
        self.block_end = re.compile(block_end)
        self.password = re.compile(r"(?<=://)([^\s:/@\"']{1,100}):([^\s:/@\"']{3,200})(?=@)")
        self.last_word = re.compile(r"[^\s\"'`<>()\[\]{},;|]*\Z")
        self.last_run = re.compile(r"[A-Za-z0-9_]+[-.]?\Z")


_shapes = lru_cache(maxsize=1)(_Shapes)

M = TypeVar("M")


class Redactor:
    """Masks the secrets that were registered, and what has the shape of a common key.

    A registered secret is also found in base64 (at any offset of what was encoded), in hexadecimal, URL-encoded and
    escaped as in JSON. The values of the environment's variables that are named like secrets are registered from
    the start; `environment={}` leaves them out, and `patterns=False` the shapes. Safe from any thread.
    """

    __slots__ = ("_forms", "_lock", "_names", "_patterns", "_prefixes", "_secrets")

    def __init__(
        self,
        secrets: Iterable[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        patterns: bool = True,
    ) -> None:
        self._lock = threading.Lock()
        self._patterns = patterns
        self._secrets: set[str] = set()
        self._names: dict[str, str] = {}
        self._forms: tuple[str, ...] = ()
        self._prefixes: frozenset[str] | None = None
        for name, value in (os.environ if environment is None else environment).items():
            if is_secret_name(name) and not _is_harmless(value):
                self.register(value, name)
        for secret in secrets:
            self.register(secret)

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._secrets)} secrets>"

    def __len__(self) -> int:
        return len(self._secrets)

    def register(self, secret: str, name: str = "") -> bool:
        """Adds a secret; `name` stands in its mask. One of fewer than six characters is not taken: returns `False`."""
        secret = secret.strip()
        if len(secret) < _SHORTEST:
            return False
        if secret in self._secrets:
            return True
        with self._lock:
            if secret not in self._secrets:
                self._secrets.add(secret)
                for piece in _pieces(secret):
                    for form in _forms(piece):
                        self._names.setdefault(form, name)
                # The longest first: a form that is part of another would leave the other's rest.
                self._forms = tuple(sorted(self._names, key=len, reverse=True))
                self._prefixes = None
        return True

    # -- text --------------------------------------------------------------------------------------------------

    def redact(self, text: str, before: str = "") -> str:
        """The text with every secret masked. Masking what is masked changes nothing.

        `before` is the character in front of the text, where that is a part of a longer one.
        """
        for form in self._forms:
            if form in text:
                text = text.replace(form, self._mask(form))
        if not self._patterns:
            return text
        if _PRIVATE_KEY_START in text:
            text = _shapes().block.sub(MASK, text)
        text = _shapes().key.sub(MASK, before + text)[len(before) :]
        if "://" in text:
            text = _shapes().password.sub(rf"\1:{MASK}", text)
        return _shapes().header.sub(rf"\1{MASK}", text) if "uthorization" in text or "UTHORIZATION" in text else text

    def _mask(self, form: str) -> str:
        name = self._names[form]
        return f"[redacted {name}]" if name else MASK

    def stream(self) -> RedactorStream:
        """A filter for text that comes in chunks."""
        return RedactorStream(self)

    def safe_length(self, text: str, before: str = "") -> int:
        """How much of the text can be masked and shown now: what follows may be a secret that goes on."""
        held = min(_unfinished_key(before + text), len(text)) if self._patterns else 0
        if prefixes := self._prefixes_of_forms():
            for length in range(min(len(text), len(self._forms[0])), held, -1):
                if text[-length:] in prefixes:
                    held = length
                    break
        cut = len(text) - held
        if held > _LONGEST_HELD:
            return len(text)
        return self._before_what_it_cuts(text, cut) if held else cut

    def _before_what_it_cuts(self, text: str, cut: int) -> int:
        """The cut, moved to the beginning of a complete secret that it would go through."""
        is_settled = False
        while not is_settled:
            is_settled = True
            for form in self._forms:
                at = text.find(form)
                while 0 <= at < cut:
                    if at + len(form) > cut:
                        cut, is_settled = at, False
                    at = text.find(form, at + len(form))
        return cut

    def _prefixes_of_forms(self) -> frozenset[str]:
        prefixes = self._prefixes
        if prefixes is None:
            with self._lock:
                prefixes = frozenset(form[:length] for form in self._forms for length in range(1, len(form)))
                self._prefixes = prefixes
        return prefixes

    # -- values ------------------------------------------------------------------------------------------------

    def redact_value(self, value: M) -> M:
        """A copy of JSON data, masked in every string; what is under the name of a secret is masked whole."""
        return cast("M", self._redact_any(value))

    def _redact_any(self, value: object) -> object:
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            return {
                self.redact(key) if isinstance(key, str) else key: (
                    MASK if isinstance(item, str) and item and is_secret_name(str(key)) else self._redact_any(item)
                )
                for key, item in cast("Mapping[Any, Any]", value).items()
            }
        if isinstance(value, (list, tuple)):
            items = [self._redact_any(item) for item in cast("list[Any]", value)]
            return tuple(items) if isinstance(value, tuple) else items
        if isinstance(value, msgspec.Struct):
            return self._redact_struct(value)
        return value

    def _redact_struct(self, value: msgspec.Struct) -> msgspec.Struct:
        changed = {
            name: new
            for name in value.__struct_fields__
            if (new := self._redact_any(old := getattr(value, name))) != old
        }
        return structs.replace(value, **changed) if changed else value

    def redact_message(self, message: AgentMessage) -> AgentMessage:
        """The message with its texts, arguments, results and errors masked; the same object if there is nothing to."""
        return cast("AgentMessage", self._redact_struct(message))

    def redact_event(self, event: AgentEvent) -> AgentEvent:
        """The event masked by itself. What is split between updates is found by `events`."""
        return cast("AgentEvent", self._redact_struct(event))

    def events(self) -> EventRedactor:
        """A filter for the events of a run on their way out."""
        return EventRedactor(self)

    def log_filter(self) -> logging.Filter:
        """A filter for logging handlers: it masks the message, its arguments and the traceback."""
        return _LogFilter(self)


class RedactorStream:
    """Text in chunks: each `feed` returns what is safe to show, `finish` the rest."""

    __slots__ = ("_before", "_held", "_redactor")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._before = ""
        """Stands for the character shown last, if a key cannot begin behind it. No key begins with it either."""
        self._held = ""

    def feed(self, chunk: str) -> str:
        text = self._held + chunk
        cut = self._redactor.safe_length(text, self._before)
        self._held = text[cut:]
        return self._show(text[:cut])

    def finish(self) -> str:
        """What was held back, masked."""
        held, self._held = self._held, ""
        return self._show(held)

    def _show(self, text: str) -> str:
        shown = self._redactor.redact(text, self._before)
        if text:
            self._before = "0" if text[-1].isalnum() or text[-1] == "_" else ""
        return shown


class EventRedactor:
    """Events on their way out of the program: `feed` returns what takes an event's place, which may be nothing yet."""

    __slots__ = ("_delta", "_redactor", "_text")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._text = redactor.stream()
        self._delta: AssistantMessageDelta | None = None

    def feed(self, event: AgentEvent) -> list[AgentEvent]:
        if type(event) is MessageUpdate:
            return self._feed_delta(event.delta)
        return [*self._flush(), self._redactor.redact_event(event)]

    def finish(self) -> list[AgentEvent]:
        """What was held back when the events ended."""
        return self._flush()

    def _feed_delta(self, delta: AssistantMessageDelta) -> list[AgentEvent]:
        before: list[AgentEvent] = []
        last = self._delta
        if last is not None and (type(last), last.index) != (type(delta), delta.index):
            before = self._flush()
        self._delta = delta
        text = self._text.feed(delta.delta)
        return [*before, MessageUpdate(structs.replace(delta, delta=text))] if text else before

    def _flush(self) -> list[AgentEvent]:
        delta, self._delta = self._delta, None
        text = "" if delta is None else self._text.finish()
        if delta is None or not text:
            return []
        return [MessageUpdate(structs.replace(delta, delta=text))]


class _LogFilter(logging.Filter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = self._redactor.redact(record.getMessage())
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self._redactor.redact(record.exc_text)
        return True


# -- the forms of a secret -----------------------------------------------------------------------------------


def _pieces(secret: str) -> list[str]:
    """The secret, or the lines and stretches by which a long one is known."""
    if len(secret) <= _LONGEST and "\n" not in secret:
        return [secret]
    lines = [line.strip() for line in secret.splitlines()]
    stretches = [line[at : at + _LONGEST] for line in lines for at in range(0, len(line), _LONGEST)]
    # The lines around a key are the same in every key; only what is long enough to be unlike other text is kept.
    return [piece for piece in stretches if len(piece) >= 16 and not piece.startswith("-----")] or [secret[:_LONGEST]]


def _forms(secret: str) -> set[str]:
    """The ways in which a secret is likely to be written."""
    import base64  # on use: a program without secrets needs neither
    from urllib.parse import quote, quote_plus

    raw = secret.encode("utf-8", "surrogateescape")
    forms = {secret, quote(secret, safe="", errors="replace"), quote(secret, errors="replace")}
    forms |= {quote_plus(secret, errors="replace"), raw.hex(), raw.hex().upper()}
    forms |= {re.sub("%[0-9A-F]{2}", lambda code: code.group().lower(), form) for form in forms if "%" in form}
    try:
        forms.add(msgspec.json.encode(secret).decode()[1:-1])
    except UnicodeEncodeError:
        pass  # a lone surrogate, from an environment that is not UTF-8
    for offset in range(3):
        # What stands before and after the secret changes the characters that straddle its ends: those are left out.
        encoded = base64.b64encode(b"\0" * offset + raw)
        start = (0, 2, 3)[offset]
        end = len(encoded) if (offset + len(raw)) % 3 == 0 else len(encoded.rstrip(b"=")) - 1
        for form in (encoded[start:end], encoded[start:end].translate(bytes.maketrans(b"+/", b"-_"))):
            forms.add(form.decode())
    return {form for form in forms if len(form) >= _SHORTEST}


def _is_harmless(value: str) -> bool:
    """Whether a variable named like a secret holds none: a switch, a number, a path or a socket."""
    return value.lower() in ("true", "false", "none", "disabled", "enabled") or value.isdigit() or value.startswith("/")


def _unfinished_key(text: str) -> int:
    """How many characters at the end may be a key, or a block of a private key, that goes on."""
    begin = text.rfind(_PRIVATE_KEY_START)
    if begin >= 0 and len(text) - begin < 20_000 and not _shapes().block_end.search(text, begin):
        line_end = text.find("\n", begin)
        if line_end < 0 or "PRIVATE KEY" in text[begin:line_end]:
            return len(text) - begin
    ends_a_block = begin >= 0 and text.endswith("PRIVATE KEY-----")
    return max(_unfinished_word(text), 0 if ends_a_block else _begun(text, _PRIVATE_KEY_START))


def _begun(text: str, start: str) -> int:
    """How much of `start` the text ends with."""
    for length in range(min(len(text), len(start)), 0, -1):
        if text.endswith(start[:length]):
            return length
    return 0


def _unfinished_word(text: str) -> int:
    header = _shapes().unfinished_header.search(text, max(0, len(text) - _LONGEST_KEY))
    if header is not None:
        return len(text) - header.start()
    found = _shapes().last_word.search(text, max(0, len(text) - _LONGEST_KEY))
    word = found.group() if found is not None else ""
    if "://" in word and "@" not in word:
        return len(word)
    if any(start in word for start in _KEY_STARTS):
        return len(word)
    # A key stands at the beginning of a word, so only a word that is all beginning may become one.
    begun = _shapes().last_run.search(word)
    run = begun.group() if begun is not None else ""
    return len(run) if run and any(start.startswith(run) for start in _KEY_STARTS) else 0
