"""Makes untrusted text safe to show on a terminal: it cannot hide characters, move the cursor or forge other output.

Owns the escaping of characters, for one line (`safe_display`), a line of a file (`safe_line`) and whole texts
(`safe_text`), and the warnings about letters that look like others. Ordinary writing is unchanged: emoji, accents, any
script. `cells` measures the result; `approvals.display` shows tool calls with it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from swink_agent.rendering.texts.invisible import compatibility_form, is_deceptive, ordinary_places

from .cells import expand_tabs

LIMIT = 2000
_MOST_SPACES = 8
_MOST_SPACES_OF_A_FILE = 60
_MOST_MARKS, MOST_MARKS_OF_A_SCRIPT = 2, 4

_NEWLINE, _TAB = "⏎", "⇥"
_WRITTEN = {"\n": _NEWLINE, "\t": _TAB, _NEWLINE: "\\u{23ce}", _TAB: "\\u{21e5}"}
_WIDE_SCRIPTS = frozenset({"cjk", "hiragana", "katakana", "hangul"})
_WORD = re.compile(r"[^\W_]+")

# Letters of other scripts that most fonts draw as the ASCII letter beside them.
# fmt: off
_DRAWN_AS = {
    "a": "\u0430\u03b1", "c": "\u0441\u03f2", "d": "\u0501", "e": "\u0435\u212e",
    "g": "\u0581", "h": "\u04bb\u0570", "i": "\u0456\u03b9", "j": "\u0458\u03f3",
    "k": "\u03ba\u043a", "l": "\u04cf", "m": "\u043c", "n": "\u0578\u03b7", "o": "\u043e\u03bf\u0585",
    "p": "\u0440\u03c1", "q": "\u051b\u0566", "s": "\u0455", "t": "\u0442\u03c4", "u": "\u057d\u03c5",
    "v": "\u0475\u03bd", "w": "\u051d\u0461\u03c9", "x": "\u0445\u03c7", "y": "\u0443\u04af\u03b3",
    "A": "\u0410\u0391", "B": "\u0412\u0392", "C": "\u0421\u03f9", "E": "\u0415\u0395",
    "H": "\u041d\u0397", "I": "\u0406\u0399\u04c0", "J": "\u0408", "K": "\u041a\u039a",
    "M": "\u041c\u039c", "N": "\u039d", "O": "\u041e\u039f", "P": "\u0420\u03a1", "S": "\u0405",
    "T": "\u0422\u03a4", "X": "\u0425\u03a7", "Y": "\u0423\u03a5\u04ae", "Z": "\u0396",
}
# fmt: on
# The scripts of everyday writing, as Unicode recommends them for names (annex 31), by the first words of their letters'
# names. Letters that are as wide as two others, such as Chinese ones, look like no letter of ours.
_EVERYDAY_SCRIPTS = frozenset(
    {
        *("arabic", "armenian", "bengali", "cyrillic", "devanagari", "ethiopic", "georgian", "greek", "gujarati"),
        *("gurmukhi", "hangul", "hebrew", "kannada", "khmer", "lao", "malayalam", "myanmar"),
        *("oriya", "sinhala", "tamil", "telugu", "thaana", "thai", "tibetan"),
    }
)
_TABLED_SCRIPTS = frozenset({"armenian", "cyrillic", "greek", "hangul"})
"""Of these, the table above has the letters that look like others. People do write Greek letters beside Latin ones."""
_APOSTROPHES = "\u02bb\u02bc"
_LAST_OF_CYRILLIC = "\u052f"
"""The blocks of Cyrillic behind it have letters of old books."""
_LAST_OF_EUROPE, _LAST_OF_ALPHABETS = "\u017f", "\u024f"
_LOOKALIKE = {character: letter for letter, characters in _DRAWN_AS.items() for character in characters}


def safe_display(text: str, limit: int | None = LIMIT) -> str:
    """Returns the text as one line with every invisible character escaped.

    Control, bidirectional, zero-width, tag and other invisible characters, unusual spaces, and piled-up accents are
    written as `\\u{202e}`, except where ordinary writing uses them (in an emoji, in a Persian word). Line ends become
    `⏎`, tabs `⇥`, and long runs of spaces `[40 spaces]`. If the text has more than `limit` characters, a note with the
    number of missing characters replaces the middle; the end is always shown. With `None` the whole text is shown.
    """
    return _shortened(text, limit, lambda part: _escape(part, _MOST_SPACES))


def safe_line(text: str, limit: int | None = None) -> str:
    """Escapes a line of a file or of a command as `safe_display` does, but keeps its indentation."""
    kept = _NEWLINE + _TAB
    return _shortened(text, limit, lambda part: _escape(expand_tabs(part), _MOST_SPACES_OF_A_FILE, kept))


def safe_text(text: str) -> str:
    """Escapes a text of several lines, such as an answer. Line ends, tabs and spaces stay.

    The only control characters in the result are `\\n` and `\\t`, so a terminal has no command to execute.
    """
    if text.isascii() and text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join([_escape(line, None, kept="\t") for line in lines])


def display_warnings(text: str) -> tuple[str, ...]:
    """Returns warnings about characters in the text that could mislead its reader, one sentence each."""
    if text.isascii() and text.isprintable():
        return ()
    warnings: list[str] = []
    ordinary = ordinary_places(text)
    plain = text.replace("\r\n", "\n\n")  # same length; CRLF line ends need no warning
    odd = {character for place, character in enumerate(plain) if is_deceptive(character) and place not in ordinary}
    hidden = sorted(odd - {"\n", "\t"})
    if hidden:
        named = ", ".join(f"{escaped(character)} {_name(character)}" for character in hidden[:3])
        more = f" and {len(hidden) - 3} more" if len(hidden) > 3 else ""
        warnings.append(f"it holds characters that do not show: {named}{more}")
    words = list(dict.fromkeys([word for word in _WORD.findall(text) if not word.isascii()]))
    letters = _Letters(words)
    for word in words:
        reading = letters.reading(word)
        if reading is not None:
            warnings.append(f"{safe_display(word, 60)} is not what it looks like: {reading}")
            if len(warnings) == 4:
                break
    return tuple(warnings)


def _shortened(text: str, limit: int | None, show: Callable[[str], str]) -> str:
    """Shows the text, or its two ends and the number of characters between. The head gets three fifths of the limit."""
    if limit is None or len(text) <= limit:
        return show(text)
    tail = max(limit * 2 // 5, 1)
    head = max(limit - tail, 1)
    left_out = len(text) - head - tail
    if left_out <= 0:
        return show(text)
    return f"{show(text[:head])} … [{left_out:,} of {len(text):,} characters not shown] … {show(text[-tail:])}"


def _escape(text: str, most_spaces: int | None, kept: str = "") -> str:
    """Escapes invisible characters, except those in `kept`.

    `most_spaces` is the longest run of spaces that is shown unchanged; with `None`, spaces of every kind are.
    """
    if text.isascii() and text.isprintable() and (most_spaces is None or " " * (most_spaces + 1) not in text):
        return text
    ordinary = ordinary_places(text)
    shown: list[str] = []
    marks, spaces = MOST_MARKS_OF_A_SCRIPT, 0  # an accent without a letter would be drawn over the text before it
    for place, character in enumerate(f"{text}\0"):
        if character == " ":
            spaces += 1
            continue
        if spaces:
            is_short = most_spaces is None or spaces <= most_spaces
            shown.append(" " * spaces if is_short else f" [{spaces} spaces] ")
            marks, spaces = MOST_MARKS_OF_A_SCRIPT, 0
        if place in ordinary or character in kept:
            shown.append(character)
            continue
        category = unicodedata.category(character)
        is_mark = category in ("Mn", "Me", "Mc")
        marks = marks + 1 if is_mark else 0
        if most_spaces is None and category == "Zs":
            shown.append(character)
        elif is_mark and marks > most_marks(character):
            shown.append(escaped(character))
        elif most_spaces is not None and character in _WRITTEN:
            shown.append(_WRITTEN[character])
        elif is_deceptive(character):
            shown.append(escaped(character))
        else:
            shown.append(character)
    return "".join(shown[:-1])  # without the end mark


def most_marks(character: str) -> int:
    """Returns how many such marks one letter may have: two general accents, or four marks of a script like Hebrew."""
    is_for_all = "\u0300" <= character <= "\u036f" or "\u1ab0" <= character <= "\u20ff"
    return _MOST_MARKS if is_for_all else MOST_MARKS_OF_A_SCRIPT


def escaped(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


def _name(character: str) -> str:
    if character == "\r":
        return "carriage return"
    if character == "\x1b":
        return "escape"
    if 0xE0000 <= ord(character) <= 0xE007F:
        return "invisible tag"
    return unicodedata.name(character, "control character" if ord(character) < 0xA0 else "unassigned").lower()


class _Letters:
    """The letters in the words of one text, each looked up once."""

    def __init__(self, words: Sequence[str]) -> None:
        every = set("".join(words))
        self._script = {letter: script for letter in every if (script := _script(letter))}
        self._rare = frozenset([letter for letter in every if not _is_everyday(letter)])
        # A text that is written in another script also has words in it that do not look like Latin words.
        pure = [word for word in words if len(self._scripts(word)) < 2]
        self._at_home = {self._script.get(letter, "") for word in pure for letter in word if letter not in _LOOKALIKE}

    def _scripts(self, word: str) -> set[str]:
        return {self._script[letter] for letter in word if letter in self._script}

    def reading(self, word: str) -> str | None:
        """Returns why a word is misleading, or `None`. Words in a script of the text around are not misleading."""
        # A raised or circled number is not mistaken for another, and users of wide scripts type wide digits.
        bare = "".join([character for character in word if unicodedata.category(character) != "No"])
        if bare.isdecimal() and not self._at_home.isdisjoint(_WIDE_SCRIPTS):
            return None
        compatible = compatibility_form(bare)
        if compatible != bare and compatible.isascii():
            return f"it reads as {safe_display(compatible, 60)} but is written in other characters"
        if rare := next((letter for letter in word if letter in self._rare), None):
            return f"{rare} is {_name(rare)}, which is rarely used"
        scripts = self._scripts(word)
        named = " and ".join(sorted(scripts))
        strange = scripts & _EVERYDAY_SCRIPTS - _TABLED_SCRIPTS - self._at_home
        if "latin" in scripts and (strange or (len(scripts) > 1 and any(letter in _LOOKALIKE for letter in word))):
            return f"it mixes {named} letters"
        if (
            self._at_home.isdisjoint(scripts)
            and "latin" not in scripts
            and all(character.isascii() or character in _LOOKALIKE for character in word)
        ):
            plain = "".join(_LOOKALIKE.get(character, character) for character in word)
            return f"it reads as {safe_display(plain, 60)} but is written in {named} letters"
        return None


def _is_everyday(letter: str) -> bool:
    """Whether people write with this letter. All else may look like an ASCII letter: nobody knows it by sight."""
    if letter.isascii() or not letter.isalpha() or letter in _APOSTROPHES:
        return True
    plain = compatibility_form(letter)
    if plain != letter:
        return all(map(_is_everyday, plain))
    if unicodedata.east_asian_width(letter) == "W":
        return True
    script = _script(letter)
    if script == "cyrillic" and letter > _LAST_OF_CYRILLIC:
        return False
    return _is_of_alphabet(letter) if script == "latin" else script in _EVERYDAY_SCRIPTS


def _is_of_alphabet(letter: str) -> bool:
    """Whether a Latin letter is of an alphabet, and not of a phonetic notation, which has small capitals and clicks.

    Letters of alphabets have an upper and a lower case, and at least one of them is in the first blocks of Unicode.
    """
    if letter <= _LAST_OF_EUROPE or unicodedata.normalize("NFD", letter)[0].isascii():
        return True
    cases = {letter.upper(), letter.lower()}
    is_old = any(len(case) == 1 and case <= _LAST_OF_ALPHABETS for case in cases)
    return len(cases) == 2 and is_old and "SMALL CAPITAL" not in unicodedata.name(letter, "")


def _script(character: str) -> str:
    if not character.isalpha():
        return ""
    return unicodedata.name(character, "unknown").split()[0].lower()
