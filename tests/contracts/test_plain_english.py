"""Comments, docstrings, messages and documents are in plain English: certain phrases do not appear.

The list is short on purpose: each pattern finds nothing that is good English.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from .documents import ROOT

SOURCE = ROOT / "src/swink_agent"
PHRASES = {
    "“is no X”: write “is not an X”": (
        r"(?<!there )\b(?:is|are|was|were|be|been) no (?!(?:longer|more|less|fewer|later|earlier|[a-z]+er than)\b)[a-z]"
    ),
    "“is none”: say what it is not": r"(?<!there )\b(?:is|are|was|were) (?-i:none)\b(?! of)",
    "“any more”: write “no longer”": r"\bany ?more\b(?! than)",
    "“that there is”: name it, or say “the only”": r"\bthat there (?:is|are)(?=[.,;:)]|$| (?:is|are)\b)",
    "“Who wants …”: name who it is": (
        r"(?:^|[.;:(] )who (?:asks|calls|does|gives|has|knows|looks|makes|names|needs|reads|says|uses|wants|writes)\b"
        r"(?![^.]*\?)"
    ),
    "“what nobody …”: write a sentence with an actor": r"\bwhat nobody\b",
    "“tells of”, “says of”: reports, describes": r"\b(?:tells?|told|says?|said) of\b",
    "“comes of”, “comes to nothing”: results from, fails": r"\bc[oa]mes? (?:of|to nothing)\b",
    "“in the place of”: instead of": r"\bin the place of\b",
    "“without a word”: silently": r"\bwithout a word\b|\bnot a word (?:of|about)\b",
}
PATTERNS = {advice: re.compile(pattern, re.IGNORECASE) for advice, pattern in PHRASES.items()}


def findings(text: str) -> list[str]:
    """The problems of a text. A sentence may be on two lines."""
    joined = re.sub(r"\s*\n[ \t]*(?:# ?)?", " ", text)
    return [
        f"{advice}: …{match.group()}…" for advice, pattern in PATTERNS.items() for match in pattern.finditer(joined)
    ]


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """The strings and comments of a Python file. Comments on consecutive lines are one text."""
    comment: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT:
            if comment and token.start[0] != last + 1:
                yield first, " ".join(comment)
                comment = []
            first, last = (first if comment else token.start[0]), token.start[0]
            comment.append(token.string.lstrip("# "))
        elif token.type == tokenize.STRING or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            yield token.start[0], token.string.strip("\"'")
    if comment:
        yield first, " ".join(comment)


def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.sweep
def test_the_texts_in_the_source_are_plain_english() -> None:
    wrong = [
        f"{path.relative_to(SOURCE).as_posix()}:{number}: {finding}"
        for path in sources()
        for number, text in texts_of(path)
        for finding in findings(text)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_documents_are_plain_english() -> None:
    wrong = [f"{path.relative_to(ROOT)}: {found}" for path in pages() for found in findings(path.read_text("utf-8"))]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.table
@pytest.mark.parametrize(
    "text",
    [
        "'x' is no command",
        "what is no JSON object keeps its text",
        "these are no\nnumbers",
        "a value that is none",
        "nobody reads it any more",
        "the one that there is is 'sse'",
        "Who wants another one says so.",
        "It is read once. Who asks again gets the same.",
        "What nobody can watch is ended.",
        "the error tells of it",
        "what the provider says of itself",
        "a request that came to nothing",
        "what comes of it",
        "it stands in the place of the value",
        "it ends without a word",
    ],
)
def test_a_phrase_that_is_not_plain_is_found(text: str) -> None:
    assert len(findings(text)) == 1


@pytest.mark.table
@pytest.mark.parametrize(
    "text",
    [
        "There is no file of that name, and there are no others.",
        "The file is no longer open. It is no larger than that, and no more than 10 are kept.",
        "None of them is none of ours; if there is none, it is made.",
        "It does not say that any more than the other does.",
        "It says that there is a limit and that there are no exceptions.",
        "The person who wants it asks. Who wants it?",
        "Says nothing of the kind? It tells the model what happened.",
        "It comes to the same, and goes on until the end.",
        "The answer is no. A limit is None if unknown, and it is not a word or code.",
        "A variable shows that there are credentials.",
    ],
)
def test_good_english_is_left_alone(text: str) -> None:
    assert findings(text) == []
