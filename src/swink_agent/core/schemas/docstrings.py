"""Parses docstrings in Google and reST style: the description, and that of each parameter."""

from __future__ import annotations

import re

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Examples?|Notes?|Attributes):\s*$")
_GOOGLE_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\(.*?\))?:\s*(.*)$")
_REST_ENTRY = re.compile(r"^:param\s+(?:[\w\[\], |.]+\s+)?(\w+):\s*(.*)$")


def parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Returns the description, and the description of each parameter by name."""
    description: list[str] = []
    notes: dict[str, str] = {}
    section, current, entry_indent = "", "", 0
    for line in text.splitlines():
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if header := _SECTION.match(line):
            section, current, entry_indent = header[1], "", 0
        elif rest := _REST_ENTRY.match(stripped):
            section, current = "rest", rest[1]
            notes[current] = rest[2]
        elif stripped.startswith(":") and section in ("", "rest"):
            section, current = "rest", ""
        elif not section:
            description.append(line)
        elif section in ("Args", "Arguments", "Parameters", "Attributes") and stripped:
            entry_indent = entry_indent or indent
            if indent == 0:
                section, current = "", ""
                description.append(line)
            elif indent <= entry_indent and (entry := _GOOGLE_ENTRY.match(stripped)):
                current = entry[1]
                notes[current] = entry[2]
            elif current:
                notes[current] = f"{notes[current]} {stripped}".strip()
        elif section == "rest" and current and stripped:
            notes[current] = f"{notes[current]} {stripped}".strip()
        elif indent == 0 and stripped and section != "rest":
            section = ""
            description.append(line)
    return "\n".join(description).strip(), notes
