"""Decides whether pasted text is inserted, folded into a token, or attached as pictures and documents.

Owns when a paste is folded, and which text counts as names of files. The conversation reads the files.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from swink_agent.app.talk.prompts import sendable_file

MOST_LINES = 10
"""A paste with more lines is folded."""
MOST_CHARACTERS = 4000
"""A paste with more characters is folded too, even if it is a single line."""
_LONGEST_NAMES = 8000
_MOST_IMAGES = 20
_NAMED = re.compile(r"\.(?:png|jpe?g|gif|webp|pdf)[\"']?\s*$", re.IGNORECASE)


def folded_label(text: str) -> str | None:
    """Returns the label of a folded paste, with `#` for its number; `None` if the paste is not folded."""
    lines = text.rstrip("\n").count("\n") + 1
    if lines > MOST_LINES:
        return f"[pasted {lines:,} lines #]"
    if len(text) > MOST_CHARACTERS:
        return f"[pasted {len(text):,} characters #]"
    return None


def image_label(path: str) -> str:
    """Returns the label of a picture or document, with `#` for its number. The sent text has it too."""
    name = "".join([part if part.isprintable() and part not in "#[]" else "_" for part in os.path.basename(path)])
    return f"[{'document' if name.lower().endswith('.pdf') else 'image'} #: {name}]"


def may_name_images(text: str) -> bool:
    """Whether the text may consist of names of pictures and PDFs, as terminals paste them when files are dropped."""
    return len(text) <= _LONGEST_NAMES and _NAMED.search(text) is not None


def image_files(text: str, folder: Path) -> list[str]:
    """Returns the pictures and PDFs that the text names; none if it names anything else. Accesses the disk.

    The text has one name per line, or several in one line as in a shell (quoted, with backslashes), or `file:`
    addresses.
    """
    for names in _readings(text.strip()):
        if not 0 < len(names) <= _MOST_IMAGES:
            continue
        paths = [sendable_file(name, folder) for name in names]
        if all(path is not None for path in paths):
            return [str(path) for path in paths if path is not None]
    return []


def _readings(text: str) -> Sequence[list[str]]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    try:
        words = shlex.split(text)
    except ValueError:  # an apostrophe in a name
        words = []
    return ([text], lines, words)
