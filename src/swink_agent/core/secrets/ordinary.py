"""Decides which values are ordinary words, although they have the name of a secret.

`DB_PASSWORD=postgres` must not mask the word "postgres" everywhere, or ordinary texts become unreadable. Such a value
is masked only where it is used as a credential. There is no dictionary: the parts of a value decide, and a wrong
decision does little harm either way.
"""

from __future__ import annotations

import re
from functools import lru_cache

_SHORTEST = 6
_LONGEST_WORD = 16
_VOCABULARY = (
    "a abc access account acme admin administrator all allow an and any api app application auth aws backend bar "
    "baz bearer bot bucket build cache cat change changed changeit changeme ci client cluster config cookie "
    "credential credentials data database db debug default demo dev develop developer development disable disabled "
    "dog dummy empty enable enabled env environment example fake false file foo for frontend generate generated git "
    "global guest hello here host http https id ignore in inherit insecure internal is it jwt key latest letmein "
    "live local localhost login main manager master me memcached minio mongo mongodb mssql my mysql name needed no "
    "none not null off ollama on openai oracle or pass passphrase passwd password placeholder please postgres "
    "postgresql private prod production project public pwd qa qux qwerty rabbit rabbitmq redacted redis release "
    "remote replace required root sample secret secrets server service session set sqlite staging string super sys "
    "system temp temporary test tester testing tests the this to todo token true unset unused update user username "
    "value welcome with word world www xxx yes you your"
)

_ROOTS = (
    "app Applications bin boot builds code config data dev etc export home keys lib Library media mnt nix opt private "
    "proc repo root run secrets snap srv sys System tmp Users usr var vault Volumes work workspace workspaces"
)
"""Folders that paths begin with: everything below them is a path."""


class _Ways:
    """Patterns of ordinary values, compiled on first use."""

    def __init__(self) -> None:
        words = "|".join(sorted(_VOCABULARY.split(), key=len, reverse=True))
        # Words of the vocabulary, joined or not, with a number or a mark at the end: `my-secret`, `password123!`.
        # Possessive, because it does not matter which words match, and backtracking would take exponential time.
        self.phrase = re.compile(rf"(?i)(?:(?:{words})[-_ .:/]?){{1,8}}+\d{{0,4}}[!?.*#]{{0,3}}")
        self.one_word = re.compile(r"([A-Z]?[a-z]+|[A-Z]+)\d{0,3}[!?.]{0,2}")
        self.value = re.compile(
            r"""(?xi)
              (?!.*\d{11})[-+]?[\d\s.,:_/+-]+ [a-z%]{0,3}                            # a number, a date, an amount
            | v?\d+(?:\.\d+)+(?:[-+.][a-z]{1,8}[\d.]*)?                              # a version
            | [a-z]:\\[^\s]*
            | (?:file|env|vault|op|secret|ref|arn)[:][^\s@]*                         # a reference to a secret
            | [a-z][a-z0-9+.-]*://[^\s@]*                                            # an address without credentials
            | localhost(?::\d{1,5})? | \d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?
            | [a-z]{2,3}_[a-z]{2}(?:[.@][a-z0-9-]+)*                                 # a locale
            | \$\(.*|\{\{.*\}\}|<[^<>]*>|\*+|x+|\.+|-+                               # a placeholder
            """
        )
        # Ordinary only if people would choose its parts: a random password may begin like any of these.
        self.of_names = re.compile(
            r"""(?xi)
              (?:~|\.{1,2})?(?:/[\w.,@ ~%-]{0,30})+                                 # a path
            | (?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,10}(?::\d{1,5})?         # a host
            | [^\s@]{1,64}@(?:[a-z0-9-]+\.)+[a-z]{2,10}                              # a mail address
            | \$\{?\w+\}?|%\w+%                                                    # a variable
            """
        )
        self.rooted = re.compile(rf"(?:~\w*)?/(?:{_ROOTS.replace(' ', '|')})/")
        self.not_in_names = re.compile("[^A-Za-z0-9]+")
        self.digit = re.compile("[0-9]")
        self.digit_runs = re.compile("[0-9]+")
        self.name_parts = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
        self.consonants = re.compile(r"(?i)[bcdfghjklmnpqrstvwxz]{5,}")
        self.vowels = re.compile(r"(?i)[aeiouy]")
        self.code = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)*")
        self.call = re.compile(r"\w[(\[].*[)\]]|[{<(\[]\w*\W?[)>}\]]|\$[({]")
        self.digits = re.compile(r"\d\D*\d")
        self.literal = re.compile(r"[A-Za-z0-9+/=_.~:@!#%^*?$&-]+")
        self.bracketed = re.compile(r"[A-Za-z0-9+/=_.~:@!#%^*?$&(){}\[\]<>|,;-]+")


_ways = lru_cache(maxsize=1)(_Ways)


def is_ordinary(value: str) -> bool:
    """Whether the value is short, a few words, a number, a path, an address or the like."""
    if len(value) < _SHORTEST:
        return True
    if len(value) > 256 or "\n" in value:
        return False
    ways = _ways()
    if ways.value.fullmatch(value) or ways.phrase.fullmatch(value):
        return True
    if ways.of_names.fullmatch(value):
        return ways.rooted.match(value) is not None or not _is_drawn(value)
    word = ways.one_word.fullmatch(value)
    return word is not None and _is_like_a_word(word.group(1))


def _is_like_a_word(letters: str) -> bool:
    """Whether it is pronounceable. Random letters soon have too many consonants in a row, or too few vowels."""
    if len(letters) > _LONGEST_WORD or _ways().consonants.search(letters):
        return False
    vowels = len(_ways().vowels.findall(letters))
    return len(letters) <= 8 or len(letters) / 5 <= vowels <= len(letters) * 2 / 3


def _is_drawn(value: str, longest_run: float = 2.5) -> bool:
    """Whether a part of the value looks random, and not like a name that a person chose.

    In random text, capitals, small letters and digits alternate after a few characters (`longest_run` on average), or
    many consonants follow each other.
    """
    ways = _ways()
    for part in set(ways.not_in_names.split(value)):  # each once: a hostile text repeats them
        if len(part) < 6:
            continue
        runs = ways.name_parts.findall(part)
        is_mixed = len(runs) >= 3 and len(part) <= longest_run * len(runs)
        if is_mixed and (len(part) >= 8 or part.islower() is part.isupper()):  # not `v1beta1`, which is short
            return True
        if len(part) >= 8 and ways.digit.search(part) and ways.consonants.search(part):
            return True
        if len(part) >= 12 and len(ways.digit_runs.findall(part)) >= 3:
            return True
        if len(part) >= 10 and max(map(len, ways.consonants.findall(part)), default=0) >= 6:
            return True
    return False


def is_literal_secret(value: str) -> bool:
    """Whether a value that a text assigns to the name of a secret is a literal secret, not a word or code."""
    ways = _ways()
    # Cheap checks come first: most values in programs are short, or are not literals.
    if not 12 <= len(value) <= 512 or len(set(value)) < 7:
        return False
    # Values with a leading mark or with brackets are mostly code, options or references, unless they look random.
    if ways.literal.fullmatch(value) is None or value.startswith(("$", "%", "-", "#")):
        return ways.bracketed.fullmatch(value) is not None and ways.call.search(value) is None and _is_drawn(value)
    if ways.digits.search(value) is None:
        return len(value) >= 16 and _is_drawn(value, 2.0)
    digits = sum(map(str.isdigit, value))
    least = 3 if "." in value else 5  # a dotted name such as base64.b64encode needs a higher share of digits
    if digits == len(value) or (digits * least < len(value) and ways.code.fullmatch(value)):
        return digits < len(value) and _is_drawn(value, 2.2)
    return not is_ordinary(value)
