"""Highlights code and diffs in HTML.

Owns the style class of each kind of token. The tokenizer is written here instead of taken from a library: it knows a
dozen families of languages well enough for reading, its time is always proportional to the length of the text, which
the regular expressions of general highlighters do not guarantee, and it adds no dependency. Long texts stay plain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from .characters import visible
from .languages import family, language

LONGEST = 200_000
_KINDS = ("comment", "string", "number", "meta", "keyword", "function")
_CLASSES = {**{kind: kind[0] for kind in _KINDS}, "digits": "n", "name": "a"}
_DIFF = re.compile(r"(?:diff --git |Index: |--- \S[^\n]*\n\+\+\+ \S|@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@)")
_SIGNS = {"+": "ins", "-": "del", "@": "hunk"}


def code_html(shown: str, name: str = "") -> str:
    """Returns a scrollable code block. The caller has passed the text through `visible`."""
    kind = family(name) or ("diff" if looks_like_diff(shown) else "")
    body = highlighted(shown, kind)
    label = f' data-language="{escape(name[:24])}"' if name else ""
    return f'<pre{label} tabindex="0"><code>{body}</code></pre>\n'


def highlighted(shown: str, kind: str) -> str:
    """Returns the text as HTML, with its tokens marked by the rules of the language family `kind`."""
    if kind == "diff" and len(shown) <= LONGEST:
        return _lines((_kind_of_line(line), line) for line in shown.split("\n"))
    return "".join(
        [
            f'<span class="{style}">{escape(text)}</span>' if style else escape(text)
            for style, text in parts(shown, kind)
        ]
    )


def parts(shown: str, kind: str) -> Iterator[tuple[str, str]]:
    """Yields the text in pieces with a style: `k`eyword, `s`tring, `n`umber, `c`omment, `f`unction, n`a`me, `m`eta.

    Joined, the pieces are exactly the text. The style of all other text is empty.
    """
    known = language(kind) if len(shown) <= LONGEST else None
    at = 0
    for start, end, token in () if known is None else known.tokens(shown):
        if at < start:
            yield "", shown[at:start]
        yield _CLASSES[token], shown[start:end]
        at = end
    if at < len(shown):
        yield "", shown[at:]


def looks_like_diff(shown: str) -> bool:
    return _DIFF.match(shown.lstrip()[:2000]) is not None


def diff_html(old: str, new: str) -> str:
    """Returns the difference between the two texts as a diff in HTML."""
    from swink_agent.rendering.texts.diffs import diff_lines

    signs = {"added": ("ins", "+"), "removed": ("del", "-"), "context": ("", " "), "hunk": ("hunk", "")}
    lines = diff_lines(visible(old), visible(new))
    body = _lines((signs[kind][0], signs[kind][1] + line) for kind, line in lines)
    return f'<pre class="diff" tabindex="0"><code>{body}</code></pre>\n'


def language_of_path(path: str) -> str:
    """Returns the language family of a file by its extension."""
    name = path.replace("\\", "/").rpartition("/")[2]
    return family(name.rpartition(".")[2]) if name else ""


def _kind_of_line(line: str) -> str:
    if line.startswith(("+++", "---", "diff ", "index ", "Index: ")):
        return "file"
    return _SIGNS.get(line[:1], "")


def _lines(lines: Iterable[tuple[str, str]]) -> str:
    """Writes each coloured line as a separate block, so that its colour reaches from edge to edge."""
    return "".join(
        [f'<span class="line {kind}">{escape(line)}\n</span>' if kind else f"{escape(line)}\n" for kind, line in lines]
    )
