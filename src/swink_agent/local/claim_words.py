"""Decides with patterns what an English sentence asks for and what it claims.

Has the vocabulary of `ClaimCheck`. A sentence that is not recognised counts neither as a request nor as a claim, so
texts in other languages, or in other words, are left alone.
"""

from __future__ import annotations

import re


def _any(words: str) -> str:
    return f"(?:{'|'.join(words.split())})"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


_CHANGE = (
    r"(?:add(?!\s+up\b)|"
    + _any(
        "append bump change comment convert copy correct delete edit fix implement insert mend modify move prepend "
        "refactor remove rename repair replace rewrite set swap uncomment update"
    )
    + ")"
)
_MAKE = _any("create make put save write")
_DONE = _any(
    "added appended bumped changed commented converted copied corrected created deleted edited fixed implemented "
    "inserted made mended modified moved prepended put refactored removed renamed repaired replaced rewritten saved "
    "set swapped uncommented updated written"
)
_PAST = f"(?:{_DONE}|wrote|rewrote)"
_HOW = r"(?:(?:now|just|also|then|both|successfully|correctly|safely)\s+){0,2}"

# The blanks are limited: in a run of line ends, each begins a clause, and would be followed to the end of the run.
_CLAUSE = r"(?:^|[.!?;:,\n]\s{0,20}|\band\s+|\bthen\s+)(?:(?:please|now|then|also|and)\s+)*"
_ASK = rf"(?:{_CLAUSE}|\b(?:please|(?:can|could|would|will)\s+you|to|also|now|just)\s+)"
_CHANGE_REQUEST = _pattern(rf"{_ASK}{_CHANGE}\b")
_MAKE_REQUEST = _pattern(rf"{_ASK}{_MAKE}\b")
_SENTENCES = _pattern(
    r"\b(?:this|these|the|my|following)\s+(?:\w+\s+)?(?:sentences?|paragraphs?|text|phrase|poem|e-?mail|letter|message)\b"
)
_STORED = _pattern(r"\b(?:files?|folders?|director(?:y|ies))\b")
_CLAIMS = tuple(
    _pattern(pattern)
    for pattern in (
        rf"\b(?:I|we)(?:\s+have|['\u2019]ve)?\s+{_HOW}{_PAST}\b",
        rf"\b(?:has|have)\s+{_HOW}been\s+{_HOW}{_DONE}\b",
        rf"\b(?:was|were)\s+{_HOW}{_DONE}\b",
        rf"\b(?:is|are)\s+(?:now|successfully)\s+{_HOW}{_DONE}\b",
        rf"^\W*(?:successfully\s+)?{_DONE}\b",
        r"\bnow\s+(?:returns|prints|reads|says|contains|has|is|uses|holds|works)\b",
        r"^\W*(?:ok(?:ay)?\W+)?(?:all\s+)?done\b",
    )
)
_DENIAL = _pattern(
    r"\b(?:not|never|no|none|nothing|cannot|can['\u2019]t|\w+n['\u2019]t|unable|fail(?:s|ed)?|refused|denied|already|"
    r"would|should|could|may|might|must|needs?|if|unless|before|sorry)\b"
)
_BLOCK = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")

_ENDING = _any(
    "bak bat c cc cfg clj conf cpp cs css csv dart db env erl ex go gradle h hpp hs htm html ini ipynb java jpg js "
    "json jsonl jsx kt less lock log lua md mjs pdf php pl png properties ps1 py r rb rs rst sass scala scss sh sql "
    "sqlite svelte svg swift tex tf tmp toml ts tsv tsx txt vue xml yaml yml zig"
)
_FILE = _pattern(
    rf"(?<![\w@:/.-])(?!(?:node|vue|next|react|three|express|d3)\.js\b)(?:[\w.-]+/)*[\w.-]*\w\.{_ENDING}\b(?![\w(])"
    r"|(?<![\w/.-])(?<!\ba\s)(?:Makefile|Dockerfile|README|LICENSE|CHANGELOG)\b"
    r"|(?<![\w:/.-])(?:[\w.-]+/)+[\w.-]*\w"
)
_ORDER = _pattern(
    rf"{_CLAUSE}(?:{_CHANGE}\b|{_MAKE}\s+(?:(?:a|an|the|new|empty|text|file|folder|directory|called|named)\s+)*"
    rf"(?:{_FILE.pattern})|{_MAKE}\b[^.!?\n]*\b(?:to|into)\s+(?:the\s+)?(?:file\s+)?(?:{_FILE.pattern}))"
)
_PLACE = _pattern(
    r"\b(?:this|these|the|any|which|that|each|every|our|my|what)\s+(?:[\w.*]+\s+)?"
    r"(?:files?|folders?|subfolders?|director(?:y|ies))\b"
    r"|\b(?:this|our|my)\s+(?:project|repo|repository|package|code|codebase|workspace|app|application|script|program)\b"
    r"|\bthe\s+(?:codebase|workspace|server|app|application|script|config|configuration|settings|database|log|logs)\b"
)
_QUESTION = _pattern(
    r"\?|^\W*(?:please\s+)?(?:list|show|tell|find|count|sum|search|look|read|summari[sz]e|describe|compare)\b"
)
_COUNTING = _pattern(
    r"\b(?:sum|total|adds?\s+up|average|mean|how\s+many|count|number\s+of|difference|product|multiply|times)\b"
)
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w])")


def orders_change(text: str) -> bool:
    """Whether the text orders a change of a file that it names: "Fix a.py", "…, then write it to b.txt"."""
    return bool(file_names(text)) and _ORDER.search(text) is not None


def asks_for_change(text: str) -> bool:
    """Whether the text asks for a change in any way ("could you add …"), or for a new file."""
    if _SENTENCES.search(text) and not file_names(text):
        return False  # the text to change is in the request
    if _CHANGE_REQUEST.search(text):
        return True
    return _MAKE_REQUEST.search(text) is not None and bool(file_names(text) or _STORED.search(text))


def asks_about_files(text: str) -> bool:
    """Whether the text asks about files: it names one, or this folder, project or program."""
    return _QUESTION.search(text) is not None and bool(file_names(text) or _PLACE.search(text))


def asks_for_number(text: str) -> bool:
    """Whether the text asks for something to be counted or computed."""
    return _COUNTING.search(text) is not None


def change_claims(text: str) -> list[str]:
    """The sentences that claim a change, without those that deny or only suppose one."""
    return [
        sentence
        for sentence in _SENTENCE.split(_BLOCK.sub("\n", text).strip())
        if not declines(sentence) and any(claim.search(sentence) for claim in _CLAIMS)
    ]


def declines(text: str) -> bool:
    """Whether the text has a denial or a condition: that something is not, was not, cannot or might be."""
    return _DENIAL.search(_CODE.sub(" ", _BLOCK.sub(" ", text))) is not None


def file_names(text: str) -> list[str]:
    """Words that look like file names, without their folders."""
    return [found[0].rsplit("/", 1)[-1] for found in _FILE.finditer(text)]


def numbers_in(text: str) -> set[str]:
    """The numbers in digits, without separators and without zeros at the end of a fraction."""
    found = [match[0].replace(",", "") for match in _NUMBER.finditer(text)]
    return {number.rstrip("0").rstrip(".") if "." in number else number for number in found}
