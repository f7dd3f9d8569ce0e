"""A draft in rows: no row is wider than the window, and every cell maps back to its place."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.rendering.cells import cell_width
from swink_agent.tui.composing.draft import Draft
from swink_agent.tui.composing.layout import Layout


def laid(draft: Draft, width: int) -> Layout:
    layout = Layout()
    layout.update(draft.text, width, draft.tokens)
    return layout


def shown(layout: Layout) -> list[str]:
    return ["".join(piece.text for piece in row.pieces) for row in layout.rows]


def test_lines_are_broken_between_words_with_a_cell_left_for_the_cursor() -> None:
    assert shown(laid(Draft("the quick brown fox"), 11)) == ["the quick ", "brown fox"]
    assert shown(laid(Draft("abcdefghij"), 11)) == ["abcdefghij"]
    assert shown(laid(Draft("abcdefghijk"), 11)) == ["abcdefghij", "k"]


def test_wide_characters_take_two_cells_and_are_never_torn() -> None:
    layout = laid(Draft("漢字漢字漢"), 8)
    assert shown(layout) == ["漢字漢", "字漢"]
    assert layout.cell_of(2) == (4, 0)
    assert layout.cell_of(3) == (0, 1)
    assert [layout.place_at(column, 0) for column in range(5)] == [0, 1, 1, 2, 2]


def test_a_token_is_shown_by_its_label_and_clicked_as_one() -> None:
    draft = Draft("a ")
    draft.insert_token("paste", "[pasted 42 lines #]", "x\n" * 42)
    draft.insert(" b")
    layout = laid(draft, 60)
    assert shown(layout) == ["a [pasted 42 lines #1] b"]
    assert layout.place_at(4, 0) == 2
    assert layout.place_at(20, 0) == 3


def test_hiding_characters_are_shown_by_name_while_emoji_stay() -> None:
    assert shown(laid(Draft("a\u202eb \U0001f468\u200d\U0001f469\u200d\U0001f467"), 80)) == [
        "a\\u{202e}b \U0001f468\u200d\U0001f469\u200d\U0001f467"
    ]


def test_a_line_that_did_not_change_is_not_broken_again() -> None:
    draft = Draft("first line that is long\nsecond")
    layout = laid(draft, 12)
    first = layout.rows[0].pieces
    draft.insert("!")
    layout.update(draft.text, 12, draft.tokens)
    assert layout.rows[0].pieces is first


@settings(max_examples=200)
@given(st.text(alphabet="ab \t\n漢é\u0301\u202e\U0001f468\u200d", max_size=60), st.integers(5, 30), st.integers(0, 60))
def test_every_place_has_a_cell_in_the_window_and_finds_back(text: str, width: int, at: int) -> None:
    draft = Draft(text)
    if at % 3 == 0:
        draft.move(min(at, len(draft.text)))
        draft.insert_token("paste", "[pasted 42 lines #]", "x")
    layout = laid(draft, width)
    assert all(cell_width("".join(piece.text for piece in row.pieces)) < max(width, 5) for row in layout.rows)
    assert layout.rows[0].start == 0
    assert layout.rows[-1].end == len(draft.text)
    place = 0
    while True:
        column, row = layout.cell_of(place)
        assert layout.place_at(column, row) == place
        if place == len(draft.text):
            break
        place = draft.after(place)
