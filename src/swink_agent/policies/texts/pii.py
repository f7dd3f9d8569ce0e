"""`PiiRedactor`: masks personal data in all text that enters a run.

It defines the kinds of data, and how each is distinguished from numbers that only look like it. The `Redactor` masks
secrets with known values; this policy uses it for the formats of keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.values.checks import check_switch, check_text
from swink_agent.core.values.several import several_texts

DEFAULT_KINDS = ("email", "phone", "credit_card", "iban", "ssn", "api_key")
PII_KINDS = (*DEFAULT_KINDS, "ip_address")
"""All kinds. IP addresses are replaced only on request."""

_MOST_PASSES = 4

ReplaceFn: TypeAlias = Callable[[re.Match[str], str], str]
"""Returns the match with the data replaced, or unchanged if it only looked like data of this kind."""


class PiiRedactor:
    """Replaces personal data in all text that enters a run, before anything else sees it: in tool results, replies and
    thinking, errors and reasons, and with `prompts=True` in prompts too. What is shown, recorded or sent to telemetry
    never has it, neither in the run nor in its delegates.

    `kinds` are some of `PII_KINDS`: e-mail addresses, telephone numbers (international, or as written in North
    America), payment cards (with a valid checksum), IBANs (with a valid length and checksum), US social security
    numbers, keys of well-known services, IP addresses. In `replacement`, `{kind}` is replaced by the kind.
    `redact(text)` does the same with any text; applying it twice changes nothing.

    It does not change arguments of calls, structured values, system prompts and given messages. It sees one line at a
    time. The model cannot edit the parts of a file that were redacted when it read them. It has no state, so agents can
    share it.
    """

    name = "pii_redactor"
    __slots__ = ("_keys", "_replacements", "kinds", "masks_prompts")

    def __init__(
        self, kinds: str | Collection[str] = DEFAULT_KINDS, replacement: str = "[{kind}]", *, prompts: bool = False
    ) -> None:
        kinds = several_texts(kinds, "PiiRedactor(kinds=…)")
        check_text("PiiRedactor: replacement", replacement)
        check_switch("PiiRedactor: prompts", prompts)
        for kind in kinds:
            if kind not in PII_KINDS:
                raise ValueError(f"PiiRedactor: {kind!r} is not a kind; the kinds are {', '.join(PII_KINDS)}")
        self.kinds = tuple([kind for kind in PII_KINDS if kind in kinds])
        self._replacements: Mapping[str, str] = {kind: replacement.replace("{kind}", kind) for kind in self.kinds}
        self.masks_prompts = prompts
        self._keys = Redactor(environment={}) if "api_key" in kinds else None

    def __repr__(self) -> str:
        return f"PiiRedactor({', '.join(self.kinds)})"

    def redact(self, text: str) -> str:
        """The text with all data of `kinds` replaced."""
        for _ in range(_MOST_PASSES):
            redacted = self._redact_once(text)
            if redacted == text:
                break
            text = redacted  # text next to a match may match, now that it is separate
        return text

    def _redact_once(self, text: str) -> str:
        if self._keys is not None:
            text = self._keys.mask(text).replaced(self._replacements["api_key"])
        # Cards before telephone numbers: the longer number is rarer.
        for kind, hint, pattern, replace in _FINDERS:
            if kind in self._replacements and hint.search(text):
                text = _replaced(text, pattern, replace, self._replacements[kind])
        return text

    def mask(self, text: str) -> str:
        return self.redact(text)


def _replaced(text: str, pattern: re.Pattern[str], replace: ReplaceFn, replacement: str) -> str:
    return pattern.sub(lambda match: replace(match, replacement), text)


# -- the kinds -----------------------------------------------------------------------------------------------------
# Each pattern begins where its first character cannot be inside a longer run of such characters, and takes whole runs.
# So the time is linear in the length of any text.

_EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+'-])(?!git@)[A-Za-z0-9_%+'-]++(?>(?:\.[A-Za-z0-9_%+'-]++)*)@"
    r"(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9-])"
)
_CARD = re.compile(r"(?<![\w.])\d++(?>(?:[ -]\d++)*)")
_DIGITS = re.compile(r"\d+")
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){11,30}")
_SSN = re.compile(r"(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])")
_PHONE = re.compile(
    r"(?<![\w+.:/-])(?:\+[1-9](?:[ .()-]{0,2}\d){7,14}|(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[.-])\d{3}[.-]\d{4})"
    r"(?![\w-]|\.\d)"
)
_IP = re.compile(
    r"(?<![\w.:-])(?:\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:-]))"
)

_LENGTHS = {
    entry[:2]: int(entry[2:])
    for entry in (
        *("AD24", "AE23", "AL28", "AT20", "AZ28", "BA20", "BE16", "BG22", "BH22", "BI27", "BR29", "BY28", "CH21"),
        *("CR22", "CY28", "CZ24", "DE22", "DJ27", "DK18", "DO28", "EE20", "EG29", "ES24", "FI18", "FK18", "FO18"),
        *("FR27", "GB22", "GE22", "GI23", "GL18", "GR27", "GT28", "HR21", "HU28", "IE22", "IL23", "IQ23", "IS26"),
        *("IT27", "JO30", "KW30", "KZ20", "LB28", "LC32", "LI21", "LT20", "LU20", "LV21", "LY25", "MC27", "MD24"),
        *("ME22", "MK19", "MN20", "MR27", "MT31", "MU30", "NI28", "NL18", "NO15", "OM23", "PK24", "PL28", "PS29"),
        *("PT25", "QA29", "RO24", "RS22", "RU33", "SA24", "SC31", "SD18", "SE24", "SI19", "SK24", "SM27", "SO23"),
        *("ST25", "SV28", "TL23", "TN24", "TR26", "UA29", "VA22", "VG24", "XK20", "YE30"),
    )
}
"""The length of an IBAN, by country."""

_CARD_LENGTHS = {2: (16,), 3: (14, 15), 4: (13, 16, 19), 5: (16,), 6: (16, 17, 18, 19)}
"""The possible numbers of digits of a card, by its first digit."""

_CARD_GROUPS = frozenset({(4, 4, 4, 4), (4, 4, 4, 4, 3), (4, 6, 5), (4, 6, 4)})


def _whole(match: re.Match[str], replacement: str) -> str:
    return replacement


def _cards(match: re.Match[str], replacement: str) -> str:
    """Replaces cards in groups of digits, which may also contain other numbers."""
    found = match.group()
    if len(found) < 13:
        return found
    groups = [group.span() for group in _DIGITS.finditer(found)]
    following = match.string[match.end() : match.end() + 2]
    if following[:1].isalnum() or (following[:1] == "." and following[1:].isdigit()):
        groups.pop()  # the last group is part of something else
    pieces: list[str] = []
    end = first = 0
    while first < len(groups):
        last = _card_at(found, groups, first)
        if last:
            pieces += [found[end : groups[first][0]], replacement]
            end = groups[last - 1][1]
        first = last or first + 1
    return "".join([*pieces, found[end:]])


def _card_at(text: str, groups: list[tuple[int, int]], first: int) -> int:
    """The index after the last group of the card that begins with the group `first`; 0 if no card does."""
    size = groups[first][1] - groups[first][0]
    if size == 4:
        counts = (5, 4, 3)
    elif 13 <= size <= 19:
        counts = (1,)
    else:
        counts = ()
    if first == 0 and len(groups) <= 19:
        counts = (len(groups), *counts)  # all digits, in any grouping
    for count in counts:
        span = groups[first : first + count]
        sizes = tuple([stop - start for start, stop in span])
        if len(span) == count and (count == 1 or sizes in _CARD_GROUPS or (first == 0 and count == len(groups))):
            digits = [int(text[place]) for start, stop in span for place in range(start, min(stop, start + 20))]
            if _is_card(digits):
                return first + count
    return 0


def _is_card(digits: list[int]) -> bool:
    if len(digits) not in _CARD_LENGTHS.get(digits[0], ()) or len(set(digits)) == 1:
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _iban(match: re.Match[str], replacement: str) -> str:
    found = match.group()
    wanted = _LENGTHS.get(found[:2], 0)
    places = [place for place, character in enumerate(found) if character.isalnum()]
    if not wanted or len(places) < wanted:
        return found
    end = places[wanted - 1] + 1
    if end < len(found) and found[end].isalnum():
        return found
    characters = [character for character in found[:end] if character.isalnum()]
    number = "".join([str(int(character, 36)) for character in characters[4:] + characters[:4]])
    return replacement + found[end:] if int(number) % 97 == 1 else found


def _phone(match: re.Match[str], replacement: str) -> str:
    # Eight digits in a row after a plus sign are rarely a telephone number.
    found = match.group()
    return replacement if len(found) >= 10 or not found[1:].isdigit() else found


def _ip_address(match: re.Match[str], replacement: str) -> str:
    from ipaddress import ip_address  # on use: rarely needed

    found = match.group()
    try:
        ip_address(found)
    except ValueError:
        return found
    return replacement if len(found) > 2 else found


_FINDERS: tuple[tuple[str, re.Pattern[str], re.Pattern[str], ReplaceFn], ...] = (
    ("email", re.compile("@"), _EMAIL, _whole),
    ("iban", re.compile(r"[A-Z]{2}\d{2}"), _IBAN, _iban),
    ("credit_card", re.compile(r"\d[ -]?\d"), _CARD, _cards),
    ("ssn", re.compile(r"\d-\d"), _SSN, _whole),
    ("phone", re.compile(r"\d[ .)-]{1,2}\d|\+\d"), _PHONE, _phone),
    ("ip_address", re.compile(r"[\da-fA-F:][.:]"), _IP, _ip_address),
)
