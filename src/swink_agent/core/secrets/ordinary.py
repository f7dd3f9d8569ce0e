"""Which values are ordinary words, though they stand under the name of a secret.

Owns the judgement alone. `DB_PASSWORD=postgres` makes no secret of the word "postgres": masked wherever it stands, it
would take a program's own vocabulary away. Such a value is masked only where it stands as a credential. There is no
dictionary here: what a value is made of tells enough, and a mistake on either side is small.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["is_literal_secret", "is_ordinary"]

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


class _Ways:
    """The ways of being ordinary. Compiled on first use."""

    def __init__(self) -> None:
        words = "|".join(sorted(_VOCABULARY.split(), key=len, reverse=True))
        # Words of the vocabulary, run together or not, with a number or a mark at the end: `my-secret`, `password123!`.
        # Possessive: which words a run is made of does not matter, and looking for another reading would take for ever.
        self.phrase = re.compile(rf"(?i)(?:(?:{words})[-_ .:/]?){{1,8}}+\d{{0,4}}[!?.*#]{{0,3}}")
        self.one_word = re.compile(r"([A-Z]?[a-z]+|[A-Z]+)\d{0,3}[!?.]{0,2}")
        self.value = re.compile(
            r"""(?xi)
              (?!.*\d{11})[-+]?[\d\s.,:_/+-]+ [a-z%]{0,3}                            # a number, a date, an amount
            | v?\d+(?:\.\d+)+(?:[-+.][a-z]{1,8}[\d.]*)?                              # a version
            | (?:~|\.{1,2})?(?:/[\w.,@ ~%-]{0,30})+                                 # a path
            | [a-z]:\\[^\s]*
            | (?:file|env|vault|op|secret|ref|arn)[:][^\s@]*                         # where a secret is to be had
            | [a-z][a-z0-9+.-]*://[^\s@]*                                            # an address without credentials
            | (?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,10}(?::\d{1,5})?         # a host
            | localhost(?::\d{1,5})? | \d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?
            | [a-z]{2,3}_[a-z]{2}(?:[.@][a-z0-9-]+)*                                 # a locale
            | [^\s@]{1,64}@(?:[a-z0-9-]+\.)+[a-z]{2,10}                              # a mail address
            | \$\{?\w+\}?|\$\(.*|%\w+%|\{\{.*\}\}|<[^<>]*>|\*+|x+|\.+|-+             # something that stands for another
            """
        )
        self.consonants = re.compile(r"(?i)[bcdfghjklmnpqrstvwxz]{5,}")
        self.vowels = re.compile(r"(?i)[aeiouy]")
        self.code = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)*")
        self.digits = re.compile(r"\d\D*\d")
        self.literal = re.compile(r"[A-Za-z0-9+/=_.~:@!#%^*?$&-]+")


_ways = lru_cache(maxsize=1)(_Ways)


def is_ordinary(value: str) -> bool:
    """Whether the value is a short one, a word or a few, a number, a path, an address or the like."""
    if len(value) < _SHORTEST:
        return True
    if len(value) > 256 or "\n" in value:
        return False
    ways = _ways()
    if ways.value.fullmatch(value) or ways.phrase.fullmatch(value):
        return True
    word = ways.one_word.fullmatch(value)
    return word is not None and _is_like_a_word(word.group(1))


def _is_like_a_word(letters: str) -> bool:
    """Whether somebody could say it. Letters drawn by lot soon have too many consonants in a row, or too few vowels."""
    if len(letters) > _LONGEST_WORD or _ways().consonants.search(letters):
        return False
    vowels = len(_ways().vowels.findall(letters))
    return len(letters) <= 8 or len(letters) / 5 <= vowels <= len(letters) * 2 / 3


def is_literal_secret(value: str) -> bool:
    """Whether what a text assigns to the name of a secret is one, written out, and no word or piece of code."""
    ways = _ways()
    # What is cheap to see comes first: most of what is assigned in a program is no literal, or has no digit in it.
    if not 12 <= len(value) <= 512 or ways.digits.search(value) is None or ways.literal.fullmatch(value) is None:
        return False
    if value.startswith(("$", "%", "-", "#")) or len(set(value)) < 7:
        return False
    digits = sum(map(str.isdigit, value))
    least = 3 if "." in value else 5  # of a name with dots in it, such as base64.b64encode, more has to be digits
    if digits == len(value) or (digits * least < len(value) and ways.code.fullmatch(value)):
        return False
    return not is_ordinary(value)
