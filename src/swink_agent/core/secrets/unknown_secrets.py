"""Finds secrets by their form or their context, without knowing them.

These are common keys, blocks of private keys, passwords in addresses, headers, and values that a text assigns to the
name of a secret; and, in streamed text, how much of the end may become one. Each search is linear in the text: it looks
for a start, and scans no part of the text for more than one start.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from ..values.value import is_secret_name
from .forms import TWO_IN_LOWER_CASE, Found
from .ordinary import is_literal_secret
from .placeholders import MASK

LONGEST_HELD = 20_000  # characters of the longest block of a private key
LONGEST_KEY = 4096
_LONGEST_NAME = 64
_LONGEST_VALUE = 512
_LEAST_KEY = 12
_KEY_RUN = b"x" * 13
"""Every kind of key but one has at least this many letters, digits, underscores and hyphens in a row."""
_KEY_CHARACTERS = (
    bytes([0x78 if chr(code).isalnum() or chr(code) in "_-" else 0x20 for code in range(128)]) + b" " * 128
)
_LONGEST_START = 20

_KEY_STARTS = (
    *("sk-", "sk_live_", "rk_live_", "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    *("xoxa-", "xoxb-", "xoxp-", "xoxo-", "xoxs-", "xoxr-", "xapp-", "AIza", "hf_", "npm_", "pypi-", "xai-", "gsk_"),
    *("SG.", "eyJ", "whsec_", "ya29.", "AGE-SECRET-KEY-1"),
)
_KEY_MARKS = (
    *[(start, 0) for start in _KEY_STARTS if not start.startswith(("xox", "sk_", "rk_"))],
    ("xox", 0),
    ("k_live_", 1),
)
"""Text by which keys are found, and its offset from the beginning: one search serves several kinds."""
_NAME_ENDS = (
    *("pass", "pwd", "secret", "token", "key", "cred", "dsn", "auth", "bearer", "cookie", "pat", "psk", "string"),
    *("_pw", "_id", "-id", "bindpw"),
)
_BLOCK_START = "-----BEGIN "


class _Shapes:
    """The patterns, compiled on first use: that takes as long as the rest of the import."""

    def __init__(self) -> None:
        keys = (
            # OpenAI, Anthropic, and others with the same form. Lower-case words alone, as in CSS names, do not match.
            r"sk-(?:ant-|proj-|svcacct-|or-v1-)?(?=[a-z_-]{0,24}+[A-Z0-9])[A-Za-z0-9_-]{16,}+",
            r"(?:AKIA|ASIA)[A-Z0-9]{16}",
            r"gh[pousr]_[A-Za-z0-9]{30,}+",
            r"github_pat_[A-Za-z0-9_]{30,}+",
            r"glpat-[A-Za-z0-9_-]{16,}+",
            r"xox[abposr]-[A-Za-z0-9-]{10,}+",
            r"xapp-[A-Za-z0-9-]{20,}+",
            r"AIza[A-Za-z0-9_-]{30,}+",
            r"hf_[A-Za-z0-9]{30,}+",
            r"npm_[A-Za-z0-9]{30,}+",
            r"pypi-[A-Za-z0-9_-]{50,}+",
            r"xai-[A-Za-z0-9]{40,}+",
            r"gsk_[A-Za-z0-9]{40,}+",
            r"(?:sk|rk)_live_[A-Za-z0-9]{16,}+",
            r"whsec_[A-Za-z0-9+/=]{20,}+",
            r"ya29\.[A-Za-z0-9_-]{30,}+",
            r"AGE-SECRET-KEY-1[A-Z0-9]{40,}+",
            r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+",
            # A JSON web token. It may not follow a hyphen: many such starts would scan the same text again.
            r"(?<!-)eyJ[A-Za-z0-9_-]{10,}+\.eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+",
        )
        # A key begins a word. An escape or a colour before it may end with a letter or a digit.
        begins = (
            r"(?:(?<![A-Za-z0-9_])|(?<=\\[abfnrtv])|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2})"
            r"|(?<=[\[;][mK])|(?<=[\[;][0-9]m)|(?<=[\[;][0-9]{2}m)|(?<=[\[;][0-9]{3}m))"
        )
        self.key = re.compile(rf"{begins}(?:{'|'.join(keys)})")
        self.begins = re.compile(begins)
        self.key_start = re.compile("|".join(map(re.escape, _KEY_STARTS)))
        self.begun_starts = frozenset(start[:length] for start in _KEY_STARTS for length in range(1, len(start) + 1))
        self.header = re.compile(
            r"(?i)(?<![A-Za-z0-9_])authorization\\?[\"']?\s*+:\s*+\[?\\?[\"']?(?:bearer|basic|token|apikey)\s++"
            r"([^\s\"',;\\\]]{8,}+)"
        )
        self.unfinished_header = re.compile(
            r"(?i)authorization\\?[\"']?\s*(?::\s*\[?\\?[\"']?(?:[a-z]*(?:\s+[^\s\"',;]*)?)?)?\Z"
        )
        self.block = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
        self.block_end = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
        self.body = re.compile(r"(?>(?:(?:\r?\n|\\n)[ \t]*+[A-Za-z0-9+/=]{1,100}+)*)")
        self.body_line = re.compile(r"[ \t]*[A-Za-z0-9+/=]{16,100}\\?\r?")
        self.password = re.compile(r"://[^\s:/@\"'<>\[]{0,100}+:(?!\[redacted:)([^\s/\"'<>`]{1,200})@")
        self.word_break = re.compile(r"[\s\"'`<>()\[\]{},;|]")
        self.last_run = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z0-9_]++[-.]?\Z")
        # The ends of secrets' names, in lower case: a search for each word and a match after it take half as long as
        # one expression for all of them. A number or label may follow: API_KEY_2, DB_PASSWORD_PROD.
        given = r"(?:[_-][a-z0-9_-]{1,24}+|\d{1,3}+)?\\?[\"'`]?\]?[ \t]{0,8}(?::=|=>|==?|:)(?!=)[ \t]{0,8}"
        words = {"pass": "(?:w(?:or)?d|phrase)?", "cred": "(?:ential)?s?"}
        self.assigned = tuple([(word, re.compile(word + words.get(word, "") + given)) for word in _NAME_ENDS])
        kinds = "password|passwd|passphrase|pass|token|secret|(?:api|access)-key"
        self.options = (
            ("--", re.compile(rf"--(?:[a-z]{{1,10}}-)?(?:{kinds})[ \t]{{1,4}}")),
            (" -u", re.compile(r" -u[ \t]?[\"']?[\w.@-]{1,64}:")),
            (" -p", re.compile(r" -p(?=[^\s-])")),
        )
        self.name = re.compile(r"(?<![A-Za-z0-9_.-])[A-Za-z0-9_.-]*+\Z")
        self.value = re.compile(
            r"\\?\"([^\"\r\n\\]{1,512})|\\?'([^'\r\n\\]{1,512})|`([^`\r\n]{1,512})|([^\s\"'`,;|<>(){}\[\]\\]{1,256})"
        )
        self.unfinished_value = re.compile(
            r"(?:\\?(?:\"[^\"\r\n\\]{0,512}|'[^'\r\n\\]{0,512}|`[^`\r\n]{0,512})|[^\s\"'`,;|<>(){}\[\]\\]{1,512})\\?\Z"
        )


_shapes = lru_cache(maxsize=1)(_Shapes)


def find_shapes(text: str) -> list[Found]:
    """Finds parts with the form of a secret, in any order."""
    found: list[Found] = []
    if "://" in text:
        found += _passwords(text)
    if len(text) < _LEAST_KEY:
        return found
    if may_hold_key(text):
        for mark, back in _KEY_MARKS:
            if mark in text:
                found += _keys(text, mark, back)
    if "PRIVATE KEY" in text:
        found += _blocks(text)
    if "uthorization" in text or "UTHORIZATION" in text:
        for header in _shapes().header.finditer(text):
            if not header.group(1).startswith(MASK):
                found.append((header.start(1), header.end(1), "authorization"))
    return found


def may_hold_key(text: str) -> bool:
    """Whether the text may hold a key: a check that takes a tenth of the time of the search and misses nothing."""
    return _KEY_RUN in text.encode("ascii", "replace").translate(_KEY_CHARACTERS) or "whsec_" in text


def _keys(text: str, mark: str, back: int) -> Iterator[Found]:
    at = text.find(mark)
    while at >= 0:
        key = _shapes().key.match(text, at - back) if at >= back else None
        if key is not None:
            yield key.start(), key.end(), "key"
        at = text.find(mark, at + len(mark) if key is None else key.end())


def _passwords(text: str) -> Iterator[Found]:
    at = text.find("://")
    while at >= 0:
        found = _shapes().password.match(text, at)
        if found is not None:
            yield found.start(1), found.end(1), "password"
        at = text.find("://", at + 3)


def _blocks(text: str) -> Iterator[Found]:
    """Finds blocks of private keys, including one of which only the beginning or the end is in the text."""
    shapes = _shapes()
    ends = [end.span() for end in shapes.block_end.finditer(text)]
    stops = [stop for _, stop in ends]
    covered = 0
    at = text.find(_BLOCK_START)
    while at >= 0:
        start = shapes.block.match(text, at) if at >= covered else None
        if start is not None:
            index = bisect_left(stops, start.end())
            if index < len(ends) and ends[index][0] - start.end() <= LONGEST_HELD:
                covered = ends[index][1]
            elif len(text) - start.end() <= LONGEST_HELD:
                covered = len(text)
            else:
                body = shapes.body.match(text, start.end())
                covered = start.end() if body is None else body.end()
            yield at, covered, "private-key"
        at = text.find(_BLOCK_START, at + 1)
    last = 0
    for start, stop in ends:
        begin = _body_start(text, start, last)
        if begin < start:
            yield begin, stop, "private-key"
        last = stop


def _body_start(text: str, end: int, least: int) -> int:
    """Where the lines that look like the body of a block begin, before its end."""
    begin = end
    while begin > least and text[begin - 1] == "\n":
        line = text.rfind("\n", least, begin - 1) + 1 or least
        if not _shapes().body_line.fullmatch(text, line, begin - 1):
            break
        begin = line
    return begin


def first_whole_line(text: str) -> int | None:
    """Where the first whole line that is not part of a base64 block begins, in a text whose beginning was cut off;
    `None` if no line ends soon enough."""
    at = text.find("\n", 0, LONGEST_KEY) + 1
    if not at:
        return None
    while (end := text.find("\n", at)) >= 0 and _shapes().body_line.fullmatch(text, at, end):
        at = end + 1
    return at


# -- values under the names of secrets -----------------------------------------------------------------------


def find_assigned(text: str, words: Mapping[str, str], spared: Collection[str] = ()) -> list[Found]:
    """Finds values that the text assigns to the name of a secret: known ordinary words, and any that are not ordinary.

    Values of the `spared` names are found with the name `""`.
    """
    found: list[Found] = []
    covered = 0
    for match in _named(text):
        if match.start() < covered:
            continue  # inside a value that is masked
        value = _shapes().value.match(text, match.end())
        if value is None:
            continue
        group = value.lastindex or 0
        content = value.group(group)
        if content.startswith(MASK):
            continue
        is_one = content in words or is_literal_secret(content)
        if not is_one and not spared:
            continue
        name = _name_before(text, match)
        if name.lower() in spared:
            found.append((value.start(group), value.end(group), ""))
        elif is_one and is_secret_name(name):
            label = name if len(name) < _LONGEST_NAME else match.group()  # so long a name may be half of a secret
            found.append((value.start(group), value.end(group), words.get(content) or label))
            covered = value.end(group)
    return found


def _named(text: str) -> list[re.Match[str]]:
    """Finds where a value is assigned to a name with the end of a secret's name, or given as an option of a command."""
    is_assigning, has_options = "=" in text or ":" in text, " -" in text or "--" in text
    if not is_assigning and not has_options:
        return []
    shapes = _shapes()
    lower = text.lower()
    if len(lower) != len(text):
        lower = text.replace(TWO_IN_LOWER_CASE, "I").lower()  # else the positions would shift
    found: list[re.Match[str]] = []
    if is_assigning:
        for word, assigned in shapes.assigned:
            at = lower.find(word)
            while at >= 0:
                match = assigned.match(lower, at)
                if match is not None:
                    found.append(match)
                at = lower.find(word, at + len(word))
        found.sort(key=lambda match: match.start())
    if has_options:
        for mark, option in shapes.options:
            if mark in lower:
                found += option.finditer(lower)
    return found


def _name_before(text: str, found: re.Match[str]) -> str:
    """The whole name whose end was found; for an option of one letter, its meaning."""
    if found.group().startswith((" -u", " -p")):
        return "password"
    stop = found.start()
    while stop < found.end() and (text[stop].isalnum() or text[stop] in "_-"):
        stop += 1
    name = _shapes().name.search(text[max(0, found.start() - _LONGEST_NAME) : stop])
    if name is None or text.endswith(MASK, 0, stop - len(name.group())):
        return ""  # the name in one of our placeholders
    return name.group()


# -- streamed text -------------------------------------------------------------------------------------------


def unfinished_shape(text: str) -> int:
    """How many characters at the end may be an incomplete key, value, or block of a private key."""
    begin = text.rfind(_BLOCK_START)
    if begin >= 0 and len(text) - begin < LONGEST_HELD and not _shapes().block_end.search(text, begin):
        line_end = text.find("\n", begin)
        if line_end < 0 or "PRIVATE KEY" in text[begin:line_end]:
            return len(text) - begin
    ends_a_block = begin >= 0 and text.endswith("PRIVATE KEY-----")
    return max(_unfinished_word(text), _unfinished_value(text), 0 if ends_a_block else _begun(text, _BLOCK_START))


def _begun(text: str, start: str) -> int:
    """How much of `start` the text ends with."""
    if not text or text[-1] not in start:
        return 0
    for length in range(min(len(text), len(start)), 0, -1):
        if text.endswith(start[:length]):
            return length
    return 0


def _unfinished_word(text: str) -> int:
    shapes = _shapes()
    tail = text[-LONGEST_KEY:]
    if "uthoriz" in tail or "UTHORIZ" in tail:
        header = shapes.unfinished_header.search(tail)
        if header is not None:
            return len(tail) - header.start()
    word = _last_word(tail)
    if not word:
        return 0
    if "://" in word and "@" not in word:
        return len(word)
    if shapes.key_start.search(word) is not None:
        return len(word)
    # A key begins a word, so only a word that consists of such a beginning may become one.
    begun = shapes.last_run.search(word[-_LONGEST_START:])
    if begun is None:
        return 0
    run = begun.group()
    if run in shapes.begun_starts:
        return 0 if len(run) == _LONGEST_START and len(word) > _LONGEST_START else len(run)
    end = tail[-2 * _LONGEST_START :]
    if not ("\\" in end or "%" in end or "\x1b" in end):
        return 0
    for length in range(len(run) - 1, 0, -1):
        if run[-length:] in shapes.begun_starts and shapes.begins.match(tail, len(tail) - length):
            return length
    return 0


def _last_word(tail: str) -> str:
    """The end of the text, after the last space, quotation mark or similar character."""
    size = 32
    while True:  # most words are short, and searching backwards costs more the further it goes
        end = 0
        for found in _shapes().word_break.finditer(tail, max(0, len(tail) - size)):
            end = found.end()
        if end or size >= len(tail):
            return tail[end:]
        size *= 8


def _unfinished_value(text: str) -> int:
    """How much of the end is a value that the text assigns to a name, and that may continue."""
    line = text[text.rfind("\n", max(0, len(text) - _LONGEST_VALUE - _LONGEST_NAME)) + 1 :]
    line = line[-_LONGEST_VALUE - _LONGEST_NAME :]
    for found in _named(line):
        if _shapes().unfinished_value.match(line, found.end()):
            return len(line) - found.end()
    return 0
