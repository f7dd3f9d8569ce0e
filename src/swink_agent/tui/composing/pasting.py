"""Decides what becomes of pasted text: inserted, folded into a token, or attached as pictures and documents.

Owns when a paste is folded, and which text names such files. Does not read them; the conversation does.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from swink_agent.app.talk.prompts import sendable_file

MOST_LINES = 10
"""A paste of more lines is folded."""
MOST_CHARACTERS = 4000
"""So is one of more characters, which may be a single line."""
_LONGEST_NAMES = 8000
_MOST_IMAGES = 20
_NAMED = re.compile(r"\.(?:png|jpe?g|gif|webp|pdf)[\"']?\s*$", re.IGNORECASE)


def folded_label(text: str) -> str | None:
    """What a paste is shown as, `#` being the place of its number; nothing for one that is shown as it is."""
    lines = text.rstrip("\n").count("\n") + 1
    if lines > MOST_LINES:
        return f"[pasted {lines:,} lines #]"
    if len(text) > MOST_CHARACTERS:
        return f"[pasted {len(text):,} characters #]"
    return None


def image_label(path: str) -> str:
    """What a picture or document is shown as, and named in the text that is sent."""
    name = "".join([part if part.isprintable() and part not in "#[]" else "_" for part in os.path.basename(path)])
    return f"[{'document' if name.lower().endswith('.pdf') else 'image'} #: {name}]"


def may_name_images(text: str) -> bool:
    """Whether the text may be only names of pictures and PDFs, as terminals paste what is dropped on them."""
    return len(text) <= _LONGEST_NAMES and _NAMED.search(text) is not None


def image_files(text: str, folder: Path) -> list[str]:
    """The pictures and PDFs that the text names, if it names nothing else; looks at the disk.

    One name a line, or several on one as a shell would take them (quoted, with backslashes), or `file:` addresses.
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
