"""How a TOML text is built, seen without understanding it: how deep it goes, and which lines belong together.

Owns a single pass whose time is in proportion to the text. The standard library's reader calls itself for every level
and takes time in the square of a dotted key's length, so a text that goes too deep is refused before it gets there.
"""

from __future__ import annotations

import re

__all__ = ["LARGEST", "MOST_LEVELS", "open_lines"]

LARGEST = 64 * 1024
"""Characters in a settings file."""
MOST_LEVELS = 16
"""Tables and lists in each other, and parts of a dotted key."""

# Left to right as the reader goes: where this sees a string that the reader does not, the text is no TOML.
_TOKEN = re.compile(
    r'"""(?>(?:[^"\\]|\\.|"(?!""))*)(?:"{3,5}|(?P<unended>\Z|\\\Z))'
    r"|'''(?>(?:[^']|'(?!''))*)(?:'{3,5}|(?P<unended_literal>\Z))"
    r'|"(?>(?:[^"\\\n]|\\.)*)"'
    r"|'[^'\n]*+'"
    r"|\#[^\n]*+"
    r"|(?P<mark>[\[\]{}.,=\n])",
    re.DOTALL,
)


def open_lines(text: str) -> list[bool]:
    """For each line, whether what stands on it goes on in the next. Raises `ValueError` for what goes too deep."""
    if len(text) > LARGEST:
        raise ValueError(f"it is longer than {LARGEST:,} characters")
    open_: list[bool] = []
    depth = parts = 0
    for token in _TOKEN.finditer(text):
        match token["mark"]:
            case None:
                if token["unended"] is not None or token["unended_literal"] is not None:
                    raise ValueError(f"the string on line {len(open_) + 1} never ends")
                open_ += [True] * token[0].count("\n")
                continue
            case "[" | "{":
                depth, parts = depth + 1, 0
            case "]" | "}":
                depth, parts = max(depth - 1, 0), 0
            case ".":
                parts += 1
            case "\n":
                open_.append(depth > 0)
                parts = 0
            case _:
                parts = 0
        if depth > MOST_LEVELS or parts >= MOST_LEVELS:
            raise ValueError(f"line {len(open_) + 1} goes more than {MOST_LEVELS} levels deep")
    return [*open_, False]
