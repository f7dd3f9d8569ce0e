"""Text is escaped for HTML as the standard library does."""

from __future__ import annotations

import html

import pytest

from swink_agent.core.texts.markup import escape_html

pytestmark = pytest.mark.fast


def test_a_text_is_escaped_as_by_the_standard_library() -> None:
    text = "<a href='x' title=\"y\">Tom & Jerry &amp; &quot;</a>"
    assert escape_html(text) == html.escape(text)
    assert html.unescape(escape_html(text)) == text
