"""Embeds untrusted Markdown in our Markdown documents without letting it change the rest of the document.

Owns these changes to a message: its headings get lower levels than ours, its HTML becomes text, and its fences are
closed. A message that Markdown parsers could read differently (an unclosed fence, unpaired backticks) is put unchanged
into a fence. The caller has passed the text through `visible`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_BELOW = 3
_FENCE = re.compile(r"( *)(`{3,}|~{3,})([^`]*)")
_NESTED_FENCE = re.compile(r"[ \t]*(?:>|[-*+][ \t]|\d{1,9}[.)][ \t])[ \t>*+-]*(?:`{3}|~{3})")
_HEADING = re.compile(r"((?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))){0,8}[ \t]*)(#{1,6})(?=[ \t]|$)")
_UNDERLINE = re.compile(r"[ \t>]*(?:=+|-+)[ \t]*")
_DEFINITION = re.compile(r"([ \t>]*)\[(?=[^\]]{1,999}\]:)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_TARGET = re.compile(
    r"\]\((?!\s*(?:https?://|mailto:|#|(?:[^\s:&\\<)\[\]]|&(?![#\w]{1,40};))+(?:[\s)]|$)|\)))", re.IGNORECASE
)
"""The end of a link's text, unless the target is plainly a web page, a mail address or a relative path."""
_TICKS = re.compile(r"`+")
_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>#|~&!$"})


def tamed(shown: str) -> str:
    """Returns the text as Markdown that cannot imitate the document around it."""
    made = _tamed(shown.strip("\n").split("\n"))
    return fenced(shown, "markdown") if made is None else "\n".join(made)


def escaped(line: str) -> str:
    """Escapes all Markdown in one line of foreign text."""
    return line.translate(_SPECIAL)


def fenced(shown: str, name: str = "") -> str:
    """Returns the text in a fence that is long enough that nothing in the text can close it."""
    longest = max([len(run) for run in _TICKS.findall(shown)], default=0)
    mark = "`" * max(3, longest + 1)
    return f"{mark}{name}\n{shown.removesuffix(chr(10))}\n{mark}"


def code_span(shown: str) -> str:
    """Returns the text as a one-line code span that nothing in the text can close."""
    line = " ".join(shown.split())
    longest = max([len(run) for run in _TICKS.findall(line)], default=0)
    mark = "`" * (longest + 1)
    space = " " if longest or not line else ""
    return f"{mark}{space}{line or 'nothing'}{space}{mark}"


def _tamed(lines: list[str]) -> list[str] | None:
    """Returns the changed lines, or `None` if another Markdown parser might see other fences than this one."""
    made: list[str] = []
    closing: re.Pattern[str] | None = None
    indent = 0
    for line in lines:
        lead = len(line) - len(line.lstrip(" "))
        if closing is not None:
            if lead < indent and lead < len(line):
                return None  # parsers differ on whether the list around the fence ends here, and the fence with it
            if closing.fullmatch(line):
                if lead != indent or line[lead] == "\t":
                    return None  # whether this closes the fence depends on the block around it
                closing = None
            made.append(line)
        elif (fence := _FENCE.fullmatch(line)) is not None:
            indent = len(fence[1])
            closing = re.compile(rf"[ \t]*{re.escape(fence[2][0])}{{{len(fence[2])},}}[ \t]*")
            made.append(line)
        elif _NESTED_FENCE.match(line) or line.lstrip().startswith("~~~") or not _ticks_are_paired(line):
            return None
        else:
            if made and made[-1].strip() and _UNDERLINE.fullmatch(line):
                made.append("")  # else this line would turn the one above into a heading
            made.append(_tame_line(line))
    return made if closing is None else None


def _tame_line(line: str) -> str:
    if (heading := _HEADING.match(line)) is not None:
        line = f"{heading[1]}{'#' * min(len(heading[2]) + _BELOW, 6)}{line[heading.end() :]}"
    elif (definition := _DEFINITION.match(line)) is not None:  # a link definition would apply to the whole document
        line = f"{definition[1]}\\{line[definition.end() - 1 :]}"
    elif "]:" in line:  # a definition that began on the line before, or in a list
        line = _outside_code(line, lambda part: part.replace("]:", "]\\:"))
    if "<" not in line and "](" not in line:
        return line
    return _outside_code(line, lambda part: _TAG.sub("&lt;", _TARGET.sub(r"]\\(", part)))


def _outside_code(line: str, change: Callable[[str], str]) -> str:
    parts: list[str] = []
    at = 0
    for start, end in _code_spans(line):
        parts += [change(line[at:start]), line[start:end]]
        at = end
    return "".join([*parts, change(line[at:])])


def _ticks_are_paired(line: str) -> bool:
    """Whether every run of backticks in the line begins or ends a code span in this line, or is inside one."""
    if "`" not in line:
        return True
    if "\\`" in line:
        return False
    at = 0
    for start, end in _code_spans(line):
        if "`" in line[at:start]:
            return False
        at = end
    return "`" not in line[at:]


def _code_spans(line: str) -> list[tuple[int, int]]:
    """Returns the start and end of each code span in the line."""
    runs = [(run.start(), run.end()) for run in _TICKS.finditer(line)]
    last: dict[int, int] = {end - start: number for number, (start, end) in enumerate(runs)}
    spans: list[tuple[int, int]] = []
    number = 0
    while number < len(runs):
        start, end = runs[number]
        if last[end - start] == number:
            number += 1
            continue
        partner = number + 1
        while runs[partner][1] - runs[partner][0] != end - start:
            partner += 1
        spans.append((start, runs[partner][1]))
        number = partner + 1
    return spans
