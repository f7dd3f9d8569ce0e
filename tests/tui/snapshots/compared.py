"""Pictures of the UI as text files next to this one, to be read in a review and compared in a test.

`SWINK_SNAPSHOTS=write` writes them instead.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from swink_agent.tui.themes import Style, Theme
from swink_agent.tui.transcript.line import Line, plain

HERE = Path(__file__).parent


def compare(name: str, rows: Sequence[str]) -> None:
    """Holds rows against the file of that name."""
    path = HERE / f"{name}.txt"
    text = "\n".join([row.rstrip() for row in rows]) + "\n"
    if os.environ.get("SWINK_SNAPSHOTS") == "write":
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    assert text.splitlines() == expected.splitlines(), f"{path.name} differs; SWINK_SNAPSHOTS=write writes it anew"


def text_rows(lines: Sequence[Line]) -> list[str]:
    """Lines as they are read."""
    return [plain(line.spans) for line in lines]


def styled_rows(lines: Sequence[Line], theme: Theme) -> list[str]:
    """Lines with the style of each run before it, as `{#rrggbb on #rrggbb bold}words`."""
    rows: list[str] = []
    for line in lines:
        row, before = "", Style()
        for span in line.spans:
            style = theme.style_of(span.role)
            if style != before:
                row += f"{{{_written(style)}}}"
                before = style
            row += span.text
        rows.append(row)
    return rows


def _written(style: Style) -> str:
    words = [style.foreground or ""]
    if style.background:
        words.append(f"on {style.background}")
    words += [name for name, is_on in zip(Style._fields[2:], style[2:], strict=True) if is_on]
    return " ".join([word for word in words if word])
