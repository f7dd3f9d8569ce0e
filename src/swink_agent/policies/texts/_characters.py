"""Deceptive characters, which are invisible or look like others: their tables, and the folding of text to the form that
a person reads.
"""

from __future__ import annotations

import re
import unicodedata

_TAG = "[\U000e0000-\U000e007f]"
_FLAG = f"[\U000e0030-\U000e0039\U000e0061-\U000e007a]{{2,6}}\U000e007f(?!{_TAG})"
"""The characters after a black flag that make it the flag of a region."""
_HIDDEN_TAGS = f"(?<![\U0001f3f4\U000e0000-\U000e007f]){_TAG}+|(?<=\U0001f3f4)(?!{_FLAG}){_TAG}+"

TAGS = re.compile(f"{_HIDDEN_TAGS}|[\U000e0100-\U000e01ef]{{2,}}|[\ufe00-\ufe0f]{{3,}}")
"""Tag characters and runs of variation selectors: text that only a model reads."""

BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")  # characters that change the order in which a line is shown

INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufeff\uffa0\ufff9-\ufffb\U000e0100-\U000e01ef]"
    f"|{_HIDDEN_TAGS}"
    "|(?<=[ -~])[\u200c\u200d]|[\u200c\u200d](?=[ -~])|[\u200c\u200d]{2,}|[\ufe00-\ufe0f]{3,}"
)
"""Characters that can be removed unnoticed. Joiners between letters of other scripts, and in emoji, stay."""

_FOREIGN = re.compile("[^\x00-\x7f]+")
_LOOKALIKES = {
    **dict(zip("авекмнорстухіјѕһԁԛԝѵӏ", "abekmhopctyxijshdqwvl", strict=True)),  # Cyrillic
    **dict(zip("αβεζηικμνορτυχωγ", "abeznikmvoptuxwy", strict=True)),  # Greek
    **dict(zip("\u0585\u057d\u0578\u0570\u0251\u0261\u0131", "ounhagi", strict=True)),  # Armenian and Latin
}
"""Lower case only: text is converted to it first, so that upper and lower case of a word give the same."""


class Folded:
    """Text as a person reads it, and the original position of each character."""

    __slots__ = ("_original", "_starts", "text")

    def __init__(self, original: str, text: str) -> None:
        self.text = text
        self._original = original
        self._starts: list[int] | None = None

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The span in the original of a non-empty span in `text`."""
        if self._original.isascii():
            return start, end
        if self._starts is None:  # made only when something was found
            cache: dict[str, str] = {}
            lengths = [len(_folded(letter, cache)) for letter in self._original]
            self._starts = [place for place, length in enumerate(lengths) for _ in range(length)]
        return self._starts[start], self._starts[end - 1] + 1


def fold(text: str) -> Folded:
    """The text in lower case, without accents and invisible characters, with look-alikes as Latin letters.

    For comparison with words that were folded too; not for display.
    """
    if text.isascii():
        return Folded(text, text.lower())
    cache: dict[str, str] = {}
    folded = _FOREIGN.sub(lambda run: "".join([_folded(letter, cache) for letter in run.group()]), text)
    return Folded(text, folded.lower())


def without_invisible(text: str) -> str:
    """The text without invisible characters."""
    return text if text.isascii() else INVISIBLE.sub("", text)


def _folded(character: str, cache: dict[str, str]) -> str:
    if (known := cache.get(character)) is not None:
        return known
    bare = [
        part for part in unicodedata.normalize("NFD", unicodedata.normalize("NFKC", character)) if not _is_dropped(part)
    ]
    piece = unicodedata.normalize("NFC", "".join(bare)).casefold()
    cache[character] = piece = "".join([_LOOKALIKES.get(part, part) for part in piece])
    return piece


def _is_dropped(character: str) -> bool:
    return "\u0300" <= character <= "\u036f" or unicodedata.category(character) == "Cf"
