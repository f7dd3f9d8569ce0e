"""The width of text, and that cutting and wrapping respect it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent.rendering.cells import cell_width, clusters, cut, cut_middle, expand_tabs, laid_out, wrap
from swink_agent.rendering.escaping import safe_line, safe_text


@pytest.mark.table
@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("plain", 5),
        ("日本", 4),
        ("ﾊﾝ", 2),
        ("cafe\u0301", 4),
        ("\u05e9\u05c1\u05b8", 1),
        ("👍", 2),
        ("👍🏽", 4),  # two where the skin is not put on the hand
        ("❤\ufe0f", 2),
        ("👩\u200d💻", 4),
        ("🇫🇷", 4),
        ("│ …", 3),
    ],
)
def test_widths_are_the_widest_that_a_terminal_may_draw(text: str, width: int) -> None:
    assert cell_width(text) == width


def test_combined_characters_are_one_piece() -> None:
    assert [piece for piece, _ in clusters("ae\u0301👩\u200d💻❤\ufe0fz")] == [
        "a",
        "e\u0301",
        "👩\u200d💻",
        "❤\ufe0f",
        "z",
    ]


def test_a_line_is_cut_with_a_sign_that_it_was() -> None:
    assert cut("hello world", 20) == "hello world"
    assert cut("hello world", 6) == "hello…"
    assert cut("日本語", 4) == "日…"
    assert cut_middle("src/very/long/path/name.py", 15) == "src/very/…me.py"
    assert cut("x" * 1_000_000, 3) == "xx…"


def test_a_line_is_wrapped_anywhere_or_between_words() -> None:
    assert wrap("one two three", 6) == ["one tw", "o thre", "e"]
    assert wrap("one two three", 8, at_words=True) == ["one two ", "three"]
    assert wrap("日本語です", 5) == ["日本", "語で", "す"]
    assert wrap("", 10) == [""]


def test_tabs_go_to_the_next_stop() -> None:
    assert expand_tabs("a\tb\t\tc") == "a   b       c"
    assert expand_tabs("日\tx") == "日  x"


def test_foreign_lines_stand_behind_our_marks() -> None:
    assert laid_out("one two\nthree", "error: ", "  ┆ ", 18) == ["error: one two", "  ┆ three"]
    assert laid_out("a b", "warning: ", "  ┆ ", 12) == ["warning:", "  ┆ a b"]
    assert laid_out("x" * 300, "error: ", "  ┆ ", None) == ["error: " + "x" * 300]
    assert laid_out("\n".join("abcdefgh"), "- ", "- ", 20, most=5) == [
        "- a",
        "- b",
        "- c",
        "- … [3 more]",
        "- g",
        "- h",
    ]


@given(st.text(max_size=80), st.integers(4, 40))
def test_no_row_is_wider_than_it_may_be_and_nothing_is_lost(text: str, width: int) -> None:
    line = safe_line(text.replace("\n", " "))
    rows = wrap(line, width)
    assert "".join(rows) == line
    assert all(cell_width(row) <= width or len(list(clusters(row))) == 1 for row in rows)
    assert cell_width(cut(line, width)) <= width
    assert cell_width(cut_middle(line, width)) <= width
    words = wrap(line, width, at_words=True)
    assert "".join(words).replace(" ", "") == line.replace(" ", "")
    assert all(cell_width(row) <= width or len(list(clusters(row))) == 1 for row in words)


@given(st.text(max_size=80), st.integers(12, 60))
def test_every_row_of_foreign_text_begins_with_a_mark(text: str, width: int) -> None:
    rows = laid_out(safe_text(text), "warning: ", "  ┆ ", width)
    assert rows[0].startswith("warning:")
    assert all(row.startswith("  ┆ ") for row in rows[1:])
    assert all(row.isprintable() or "\u200d" in row or "\u200c" in row or not row.isascii() for row in rows)
