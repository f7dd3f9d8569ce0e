"""What a conversation looks like at four widths and in four themes; the pictures are in `tests/tui/snapshots`."""

from __future__ import annotations

import pytest

from swink_agent.rendering.cells import cell_width
from swink_agent.tui.themes import THEMES
from swink_agent.tui.transcript.line import plain

from ..snapshots.compared import compare, styled_rows, text_rows
from .gallery import gallery_lines

WIDTHS = (60, 80, 120, 200)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_conversation_at_a_width(width: int) -> None:
    lines = gallery_lines(width)
    compare(f"transcript-{width}", text_rows(lines))
    assert max(cell_width(plain(line.spans)) for line in lines) <= width


@pytest.mark.parametrize("theme", THEMES)
def test_the_conversation_in_a_theme(theme: str) -> None:
    compare(f"transcript-80-{theme}", styled_rows(gallery_lines(80), THEMES[theme]))


@pytest.mark.parametrize("width", [20, 31, 45])
def test_a_window_that_is_very_narrow_is_not_overrun(width: int) -> None:
    assert max(cell_width(plain(line.spans)) for line in gallery_lines(width)) <= width
