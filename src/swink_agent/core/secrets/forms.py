"""Finds known secrets in a text, in every form in which tools print them.

The forms are: unchanged; escaped by languages, shells and in addresses; in base64 at any offset, also wrapped; and in
hexadecimal with any separator. A fast search decides whether a text is worth the slow one.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from shlex import quote as shell_quoted
from typing import TypeAlias
from urllib.parse import quote

from ..texts.markup import escape_html

Found: TypeAlias = tuple[int, int, str]
"""The start, end and name of a secret in a text."""

_SHORTEST = 6
_LONGEST = 192  # a longer secret is searched for in pieces, so that a stream never has to hold back a whole file
_LEAST_PIECE = 16
_WRAPPED_TAIL = 1200
_LONGEST_ESCAPE = 8  # characters: the escape of one character is rarely longer

_URL_SAFE, _URL_UNSAFE = bytes.maketrans(b"-_", b"+/"), bytes.maketrans(b"+/", b"-_")
_BLANKS = b" \t\r\n\f\v"
_HEX_SEPARATORS = _BLANKS + b":,-.;_'\"\\{}[]()|%x"
_HEX_BETWEEN = _HEX_SEPARATORS.decode()
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_LOWER = bytes(range(256)).lower()
TWO_IN_LOWER_CASE = "\u0130"
"""The only character that becomes two in lower case, which would shift the positions after it."""


class _Patterns:
    """Compiled on first use."""

    def __init__(self) -> None:
        self.base64_odd = re.compile(r"[ \t]*(?:\r?\n|\\r|\\n)(?:[\s]|\\r|\\n)*|\\(?=/)|(?i:%2[bf])")
        self.base64_tail = re.compile(
            r"(?<![A-Za-z0-9+/=_%\\-])[A-Za-z0-9+/=_%\\-]++(?>(?:[ \t]*+(?:\r?\n|\\n)\s*+[A-Za-z0-9+/=_%\\-]++)*)\s*\Z"
        )
        self.hex_odd = re.compile(r"(?:0[xX]|\\x|\\u00|\\[rn]|[\s:,\-.;_'\"\\{}\[\]()|%])+")
        self.hex_tail = re.compile(
            r"(?<![0-9A-Za-z])(?:0[xX]|\\[xu])?[0-9A-Fa-f]++"
            r"(?>(?:(?>(?:0[xX]|\\[xu]|[\s:,\-.;_'\"\\{}\[\]()|%])+)[0-9A-Fa-f]++)*)\W*\Z"
        )
        # One of the groups holds the escaped character; quotes, backslashes and non-ASCII characters are dropped.
        self.escape = re.compile(
            r"%(?:25){0,4}([0-9A-Fa-f]{2})|\\++(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|([0-3][0-7]{2}))?"
            r"|&(?:#([0-9]{1,4})|#[xX]([0-9A-Fa-f]{1,4})|([a-z]{2,4}));|['\"\x80-\U0010ffff]++"
        )
        self.escape_half = re.compile(
            r"(?:%(?:25){0,4}2?[0-9A-Fa-f]?|(?<!\\)\\++(?:u[0-9A-Fa-f]{0,3}|x[0-9A-Fa-f]?|[0-3][0-7]?)?|&#?[0-9A-Za-z]{0,5})\Z"
        )
        # The end of a text that may be half of a separator between two characters.
        self.hex_half = re.compile(r"(?:0[xX]?|\\[xu]?0{0,2})\Z")
        self.base64_half = re.compile(r"(?:\r|\\[rn]?|%2?)\Z")


_patterns = lru_cache(maxsize=1)(_Patterns)


class SecretForms:
    """All forms of a set of secrets. It is immutable: for another secret, make a new one."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        literal: dict[str, str] = {}
        self._base64: dict[bytes, str] = {}
        self._hex: dict[bytes, str] = {}
        self._escaped: dict[bytes, str] = {}
        anchors: set[str] = set()
        for secret, name in secrets.items():
            for piece in _pieces(secret):
                raw = _bytes_of(piece)
                self._hex.setdefault(raw.hex().encode(), name)
                for encoded in _base64_forms(raw):
                    self._base64.setdefault(encoded, name)
                bare = "" if _is_plain(piece) else _Unescaped(piece).flat
                if len(bare) >= max(_SHORTEST, len(piece) * 2 // 3):
                    self._escaped.setdefault(bare.encode(), name)
                    anchors.add(max(re.split("[^0-9A-Za-z]", piece), key=len))
                    literal.setdefault(piece, name)
                else:
                    literal.update([(form, name) for form in _literal_forms(piece) if form not in literal])
        # Letters and digits are never escaped: a text without the longest run of them does not contain the secret.
        self._anchors = tuple(anchors)
        self._flat_escaped = _Beginnings(form.decode() for form in self._escaped)
        self._literal = tuple(literal.items())
        self._flat_base64 = _Beginnings(form.decode() for form in self._base64)
        self._flat_hex = _Beginnings(form.decode() for form in self._hex)
        url_safe = [form.translate(_URL_UNSAFE).decode() for form in self._base64]
        upper = [form.decode().upper() for form in self._hex]
        self._beginnings = _Beginnings([*literal, *self._flat_base64.forms, *self._flat_hex.forms, *url_safe, *upper])

    def __repr__(self) -> str:
        return f"<SecretForms of {len(self._hex)} pieces>"

    def find(self, text: str) -> list[Found]:
        """Finds all forms of all secrets, in any order; they may overlap."""
        found: list[Found] = []
        for form, name in self._literal:
            if form in text:
                at = text.find(form)
                while at >= 0:
                    found.append((at, at + len(form), name))
                    at = text.find(form, at + len(form))
        if not self._literal:
            return found
        if any(anchor in text for anchor in self._anchors) and _may_escape(text):
            found += _Unescaped(text).find(self._escaped)
        data = text.encode("utf-8", "surrogatepass")
        flat = _flat_base64(data)
        if any(form in flat for form in self._base64):
            found += _Flattened(text, is_hex=False).find(self._base64)
        flat = _flat_hex(data)
        if any(form in flat for form in self._hex):
            found += _Flattened(text, is_hex=True).find(self._hex)
        return found

    # -- streamed text -------------------------------------------------------------------------------------------

    def unfinished(self, text: str) -> int:
        """How many characters at the end may be the beginning of a form that continues in the next chunk."""
        if not self._literal:
            return 0
        held = self._beginnings.longest_at_end(text)
        if self._escaped:
            held = max(held, self._unfinished_escaped(text[-_LONGEST_ESCAPE * self._flat_escaped.longest :]))
        end = text[-_WRAPPED_TAIL:]
        if "\n" in end or "\r" in end or "\\" in end or "%" in end:
            held = max(held, self._unfinished_flat(end, is_hex=False))
        if end.rstrip(_HEX_BETWEEN)[-1:] in _HEX_DIGITS:
            held = max(held, self._unfinished_flat(end, is_hex=True))
        return held

    def _unfinished_escaped(self, end: str) -> int:
        half = _patterns().escape_half.search(end)
        stop = len(end) if half is None else half.start()
        longest = _Unescaped(end[:stop]).unfinished(self._flat_escaped)
        return longest + len(end) - stop

    def _unfinished_flat(self, end: str, *, is_hex: bool) -> int:
        half = (_patterns().hex_half if is_hex else _patterns().base64_half).search(end)
        held = 0
        for stop in {len(end), len(end) if half is None else half.start()}:
            tail = (_patterns().hex_tail if is_hex else _patterns().base64_tail).search(end[:stop])
            if tail is not None:
                flat = _Flattened(tail.group(), is_hex=is_hex)
                longest = flat.unfinished(self._flat_hex if is_hex else self._flat_base64)
                held = max(held, longest + len(end) - stop if longest else 0)
        return held


class _Beginnings:
    """The forms by their first letters, to find beginnings of them at the end of a text."""

    __slots__ = ("_by_first", "_first", "forms", "longest")

    def __init__(self, forms: Iterable[str]) -> None:
        self.forms = tuple(dict.fromkeys(forms))
        self.longest = max(map(len, self.forms), default=0)
        self._by_first: dict[str, list[str]] = {}
        for form in self.forms:
            self._by_first.setdefault(form[0], []).append(form)
        self._first = re.compile(f"[{re.escape(''.join(self._by_first))}]") if self.forms else None

    def longest_at_end(self, text: str) -> int:
        """How many characters at the end of the text are the beginning of a form, but not a whole one."""
        if self._first is None:
            return 0
        tail = text[1 - self.longest :]
        for start in self._first.finditer(tail):
            rest = tail[start.start() :]
            for form in self._by_first[rest[0]]:
                if form.startswith(rest) and len(form) > len(rest):
                    return len(rest)
        return 0


class _Flattened:
    """A text without the separators of an encoding, and the original positions of its characters."""

    def __init__(self, text: str, *, is_hex: bool) -> None:
        odd = _patterns().hex_odd if is_hex else _patterns().base64_odd
        flat = self._flattened(text, odd, lambda gap: "" if is_hex else _of_address(gap))
        if is_hex:
            self.flat = flat.replace(TWO_IN_LOWER_CASE, "I").lower()
        else:
            self.flat = flat.replace("-", "+").replace("_", "/")

    def _flattened(self, text: str, odd: re.Pattern[str], meant: Callable[[re.Match[str]], str]) -> str:
        """Replaces each match of `odd` by its meaning, and notes the original positions."""
        pieces: list[str] = []
        self._starts: list[int] = []
        self._places: list[tuple[int, int]] = []
        self._size = end = 0
        for found in odd.finditer(text):
            self._add(pieces, text[end : found.start()], end)
            self._add(pieces, meant(found), found.start(), len(found.group()))
            end = found.end()
        self._add(pieces, text[end:], end)
        self._length = len(text)
        return "".join(pieces)

    def _add(self, pieces: list[str], piece: str, start: int, width: int = 0) -> None:
        if piece:
            pieces.append(piece)
            self._starts.append(self._size)
            self._places.append((start, width))
            self._size += len(piece)

    def _start(self, at: int) -> int:
        index = bisect_right(self._starts, at) - 1
        return self._places[index][0] + at - self._starts[index]

    def _end(self, at: int) -> int:
        index = bisect_right(self._starts, at - 1) - 1
        start, width = self._places[index]
        return start + (width or at - self._starts[index])

    def find(self, forms: Mapping[bytes, str]) -> Iterator[Found]:
        for encoded, name in forms.items():
            form = encoded.decode()
            at = self.flat.find(form)
            while at >= 0:
                yield self._start(at), self._end(at + len(form)), name
                at = self.flat.find(form, at + len(form))

    def unfinished(self, beginnings: _Beginnings) -> int:
        longest = beginnings.longest_at_end(self.flat)
        return self._length - self._start(self._size - longest) if longest else 0


class _Unescaped(_Flattened):
    """A text without escapes: those of shells, JSON and other languages, HTML, XML and addresses.

    Quotes, backslashes and non-ASCII characters have too many spellings and are dropped; a space becomes a plus. The
    same is done to the secret, so that it is found in any escaping, even if it is escaped twice.
    """

    def __init__(self, text: str) -> None:
        self.flat = self._flattened(text, _patterns().escape, _meant).replace(" ", "+")


def _of_address(gap: re.Match[str]) -> str:
    """Returns the base64 character if the gap is its percent-encoding, else an empty string."""
    return {"b": "+", "f": "/"}[gap.group()[-1].lower()] if gap.group()[0] == "%" else ""


def _meant(escape: re.Match[str]) -> str:
    """Returns the character that an escape means; an empty string for characters that are dropped."""
    kind = escape.lastindex
    if kind is None:
        return ""
    digits = escape.group(kind)
    if kind == 7:
        return {"amp": "&", "lt": "<", "gt": ">"}.get(digits, "")
    code = int(digits, 8 if kind == 4 else 10 if kind == 5 else 16)
    return chr(code) if code < 0x80 and code not in (0x22, 0x27, 0x5C) else ""


def _may_escape(text: str) -> bool:
    return (
        "%" in text
        or "\\" in text
        or "&" in text
        or "+" in text
        or "''" in text
        or '""' in text
        or "'\"" in text  # `'"'"'` is a quote within quotes of a shell
    )


# -- making forms --------------------------------------------------------------------------------------------


def _pieces(secret: str) -> list[str]:
    """Returns the secret, or the lines and pieces by which a long one is found."""
    if len(secret) <= _LONGEST and "\n" not in secret:
        return [secret]
    stretches: list[str] = []
    for line in map(str.strip, secret.splitlines()):
        stretches += [line[at : at + _LONGEST] for at in range(0, len(line) - _LONGEST, _LONGEST)]
        stretches.append(line[-_LONGEST:])  # overlaps the one before, so that no short rest remains
    # The first and last lines of a key are the same in every key; only pieces that are long enough are kept.
    kept = [piece for piece in stretches if len(piece) >= _LEAST_PIECE and not piece.startswith("-----")]
    return list(dict.fromkeys(kept)) or [secret[:_LONGEST]]


def _is_plain(secret: str) -> bool:
    """Whether it has no character that tools escape."""
    return secret.isascii() and secret.replace("_", "").replace("-", "").isalnum()


def _bytes_of(text: str) -> bytes:
    """The bytes of a text. Half a character may stand for a byte that is not UTF-8, and becomes that byte again."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _literal_forms(secret: str) -> set[str]:
    """Returns the secret unchanged, and escaped for JSON, HTML, addresses and shells."""
    if _is_plain(secret):
        return {secret}
    html = escape_html(secret)
    half = html.replace("&#x27;", "'")  # some escape no single quotes, and some no quotes at all
    forms = {secret, repr(secret)[1:-1], html, half, half.replace("&quot;", '"')}
    forms |= {html.replace("&#x27;", "&#39;").replace("&quot;", "&#34;"), secret.replace("'", "'\\''")}
    forms |= {shell_quoted(secret).strip("'"), re.sub(r"([^\w@%+=:,./-])", r"\\\1", secret)}
    forms.add(re.sub(r'([\\"$`])', r"\\\1", secret))
    for safe in ("", "/", "!~*'()", ";/?:@&=+$,#!~*'()", "/:", "$&+,/:;=@", "*"):
        quoted = quote(_bytes_of(secret), safe=safe)
        forms |= {quoted, quoted.replace("%20", "+"), quoted.replace("~", "%7E")}
    forms |= {re.sub("%[0-9A-F]{2}", lambda code: code.group().lower(), form) for form in forms if "%" in form}
    for kept in (True, False):
        plain = json.dumps(secret, ensure_ascii=kept)[1:-1]
        go = re.sub("[<>&\u2028\u2029]", _unicode_escape, plain)
        gson = re.sub("[<>&='\u2028\u2029]", _unicode_escape, plain)
        dotnet = re.sub(r"\\\"|[<>&'+`]", lambda found: _unicode_escape(found, is_upper=True), plain)
        for form in (plain, go, gson, dotnet, plain.replace("/", "\\/"), go.replace("/", "\\/")):
            upper = re.sub(r"\\u[0-9a-f]{4}", lambda found: f"\\u{found.group()[2:].upper()}", form)
            forms |= {form, json.dumps(form, ensure_ascii=False)[1:-1], upper}
    return {form for form in forms if len(form) >= _SHORTEST}


def _unicode_escape(found: re.Match[str], *, is_upper: bool = False) -> str:
    code = ord(found.group()[-1])
    return f"\\u{code:04X}" if is_upper else f"\\u{code:04x}"


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    for offset in range(3):
        # The base64 characters at both ends depend on the text around the secret and are left out.
        encoded = base64.b64encode(b"\0" * offset + raw)
        start = (0, 2, 3)[offset]
        end = len(encoded) if (offset + len(raw)) % 3 == 0 else len(encoded.rstrip(b"=")) - 1
        if end - start >= _SHORTEST:
            yield encoded[start:end]


def _flat_base64(data: bytes) -> bytes:
    """Removes the separators between base64 characters and uses the usual alphabet. May give false matches."""
    if b"\\" in data:
        data = data.replace(b"\\r", b"").replace(b"\\n", b"").replace(b"\\", b"")
    if b"%2" in data:
        data = data.replace(b"%2B", b"+").replace(b"%2b", b"+").replace(b"%2F", b"/").replace(b"%2f", b"/")
    return data.translate(_URL_SAFE, _BLANKS)


def _flat_hex(data: bytes) -> bytes:
    for prefix in (b"0x", b"0X", b"\\u00", b"\\r", b"\\n"):
        if prefix in data:
            data = data.replace(prefix, b"")
    return data.translate(_LOWER, _HEX_SEPARATORS)
