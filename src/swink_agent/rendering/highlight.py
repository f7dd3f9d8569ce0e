"""Code and diffs as HTML with a little colour.

Owns what a part of a text is called in the page's style. A tokenizer of our own and no library's: a dozen families of
languages are told apart well enough to read, in time proportional to the length whatever the text is, which the
regular expressions of a general highlighter do not promise, and nothing has to be installed. Long texts stay plain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from .characters import visible
from .languages import family, language

__all__ = ["code_html", "diff_html", "highlighted", "language_of_path", "looks_like_diff", "parts"]

LONGEST = 200_000
_CLASSES = {"comment": "c", "string": "s", "digits": "n", "number": "n", "name": "a", "meta": "m", "keyword": "k"}
_DIFF = re.compile(r"(?:diff --git |Index: |--- \S[^\n]*\n\+\+\+ \S|@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@)")
_SIGNS = {"+": "ins", "-": "del", "@": "hunk"}


def code_html(shown: str, name: str = "") -> str:
    """A block of code that scrolls by itself; the text has been through `visible`."""
    kind = family(name) or ("diff" if looks_like_diff(shown) else "")
    body = highlighted(shown, kind)
    label = f' data-language="{escape(name[:24])}"' if name else ""
    return f'<pre{label} tabindex="0"><code>{body}</code></pre>\n'


def highlighted(shown: str, kind: str) -> str:
    """The text as HTML, its parts marked as the family of languages has them."""
    if kind == "diff" and len(shown) <= LONGEST:
        return _lines((_kind_of_line(line), line) for line in shown.split("\n"))
    return "".join(
        [
            f'<span class="{style}">{escape(text)}</span>' if style else escape(text)
            for style, text in parts(shown, kind)
        ]
    )


def parts(shown: str, kind: str) -> Iterator[tuple[str, str]]:
    """The text in pieces, each with its style: `k`eyword, `s`tring, `n`umber, `c`omment, `f`unction, n`a`me, `m`eta.

    Together they are the text, letter for letter; the style of what is nothing of these is empty.
    """
    known = language(kind) if len(shown) <= LONGEST else None
    at = 0
    if known is not None:
        for found in known.pattern.finditer(shown):
            part, text, end = found.lastgroup, found[0], found.end()
            if part == "word":
                is_word = (text.lower() if known.ignores_case else text) in known.words
                style = "k" if is_word else "f" if shown[end : end + 1] == "(" else ""
            else:
                style = _CLASSES[part or "string"]
            if style and text:
                if at < found.start():
                    yield "", shown[at : found.start()]
                yield style, text
                at = end
    if at < len(shown):
        yield "", shown[at:]


def looks_like_diff(shown: str) -> bool:
    return _DIFF.match(shown.lstrip()[:2000]) is not None


def diff_html(old: str, new: str) -> str:
    """What a change did, line by line."""
    from swink_agent.core.texts.diffs import diff_lines

    signs = {"added": ("ins", "+"), "removed": ("del", "-"), "context": ("", " "), "hunk": ("hunk", "")}
    lines = diff_lines(visible(old), visible(new))
    body = _lines((signs[kind][0], signs[kind][1] + line) for kind, line in lines)
    return f'<pre class="diff" tabindex="0"><code>{body}</code></pre>\n'


def language_of_path(path: str) -> str:
    """The family of languages of a file, by the ending of its name."""
    name = path.replace("\\", "/").rpartition("/")[2]
    return family(name.rpartition(".")[2]) if name else ""


def _kind_of_line(line: str) -> str:
    if line.startswith(("+++", "---", "diff ", "index ", "Index: ")):
        return "file"
    return _SIGNS.get(line[:1], "")


def _lines(lines: Iterable[tuple[str, str]]) -> str:
    """Lines that are blocks of their own, so that a colour goes from edge to edge."""
    return "".join(
        [f'<span class="line {kind}">{escape(line)}\n</span>' if kind else f"{escape(line)}\n" for kind, line in lines]
    )
