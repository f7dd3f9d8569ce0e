"""Editing a draft: whole characters, tokens as one piece, words and lines, and undo."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.tui.composing.draft import Draft, plain_text

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
ACCENT = "e\u0301"


def test_returned_text_comes_before_the_draft_with_its_pictures() -> None:
    draft = Draft("and this")
    draft.insert_token("image", "[image #: dog.png]", "/dog.png")
    pictures = [("[image #: cat.png]", "/cat.png"), ("[image #: a+b.png]", "/a+b.png")]
    draft.put_before("see [image #7: cat.png] there", pictures)
    text, images = draft.sent()
    assert text == "see [image #2: cat.png][image #3: a+b.png] there\n\nand this[image #1: dog.png]"
    assert images == ("/cat.png", "/a+b.png", "/dog.png")
    assert draft.cursor == len(draft.text)
    alone = Draft()
    alone.put_before("only that")
    assert alone.sent().text == "only that"


def test_a_step_goes_over_a_whole_character_as_people_see_it() -> None:
    draft = Draft(f"a{FAMILY}{ACCENT}漢")
    places = [draft.cursor]
    while draft.cursor:
        draft.move(draft.before(draft.cursor))
        places.append(draft.cursor)
    assert places == [9, 8, 6, 1, 0]
    draft.move(draft.after(1))
    assert draft.cursor == 6
    draft.delete_left()
    assert draft.text == f"a{ACCENT}漢"


def test_a_tab_is_a_character_of_its_own() -> None:
    draft = Draft("a\tb")
    draft.move(2)
    draft.delete_left()
    assert draft.text == "ab"


def test_a_token_is_passed_and_deleted_as_one_piece_and_sent_in_full() -> None:
    draft = Draft("see ")
    draft.insert_token("paste", "[pasted 42 lines #]", "x\n" * 42)
    draft.insert(" and ")
    draft.insert_token("image", "[image #: cat.png]", "/home/me/cat.png")
    text, images = draft.sent()
    assert text == "see " + "x\n" * 42 + " and [image #2: cat.png]"
    assert images == ("/home/me/cat.png",)
    assert [token.label for token in draft.tokens.values()] == ["[pasted 42 lines #1]", "[image #2: cat.png]"]
    draft.delete_left()
    assert draft.sent() == ("see " + "x\n" * 42 + " and ", ())
    draft.move(draft.word_left())
    draft.move(draft.word_left())
    assert draft.cursor == 4  # over the token in one step
    draft.delete_right()
    assert draft.sent().text == "see  and "


def test_a_word_deleted_backwards_stops_at_a_token() -> None:
    draft = Draft()
    draft.insert_token("paste", "[#]", "text")
    draft.insert("word")
    draft.delete_word_left()
    assert draft.sent().text == "text"
    draft.delete_word_left()
    assert draft.is_empty


def test_the_token_nearest_before_the_cursor_is_opened_in_place() -> None:
    draft = Draft()
    draft.insert_token("paste", "[#]", "one")
    draft.insert(" ")
    draft.insert_token("paste", "[#]", "two")
    draft.insert(" end")
    token = draft.open_token()
    assert token is not None
    assert token.content == "two"
    assert "two end" in draft.text
    draft.move(0)
    draft.open_token()
    assert draft.text == "one two end"
    assert draft.open_token() is None


def test_an_opened_token_can_be_folded_again_by_taking_that_back() -> None:
    draft = Draft()
    draft.insert_token("paste", "[#]", "line\n" * 20)
    folded = draft.text
    draft.open_token()
    assert draft.text == "line\n" * 20
    draft.undo()
    assert draft.text == folded
    assert draft.sent().text == "line\n" * 20


def test_nobody_can_type_a_token() -> None:
    draft = Draft()
    draft.insert_token("paste", "[#]", "secret text")
    character = draft.text
    other = Draft()
    other.insert(f"a{character}b")
    assert other.sent().text == "a\ufffdb"


def test_control_characters_of_a_paste_stay_out_and_lines_end_in_one_way() -> None:
    assert plain_text("a\r\nb\rc\x1b[31m\x00\x9b\td") == "a\nb\nc[31m\td"


def test_consecutive_typing_is_undone_word_by_word() -> None:
    draft = Draft()
    for character in "one two":
        draft.insert(character, is_typed=True)
    draft.undo()
    assert draft.text == "one"
    draft.undo()
    assert draft.text == ""
    assert not draft.undo()
    draft.redo()
    draft.redo()
    assert draft.text == "one two"
    draft.undo()
    draft.insert("!", is_typed=True)
    assert not draft.redo()


def test_lines_are_deleted_from_the_cursor_on() -> None:
    draft = Draft("first line\nsecond line\nthird")
    draft.move(17)
    draft.delete_line_end()
    assert draft.text == "first line\nsecond\nthird"
    draft.delete_line_end()
    assert draft.text == "first line\nsecondthird"
    draft.delete_line_start()
    assert draft.text == "first line\nthird"
    draft.delete_line_start()
    assert draft.text == "first linethird"


def test_a_selection_is_replaced_by_what_is_typed() -> None:
    draft = Draft("keep this word")
    draft.move(5)
    draft.move(9, selects=True)
    assert draft.selected == "this"
    draft.insert("that", is_typed=True)
    assert draft.text == "keep that word"
    assert draft.selection is None


@pytest.mark.sweep
def test_many_large_steps_do_not_keep_everything() -> None:
    draft = Draft()
    for number in range(40):
        draft.insert(f"{number}" * 150_000)
    count = 0
    while draft.undo():
        count += 1
    assert 1 <= count < 10


DELETIONS = ["left", "right", "word_left", "word_right", "line_start", "line_end"]
STEPS = st.sampled_from([*[f"delete_{where}" for where in DELETIONS], "undo", "redo", "clear", "open_token"])


@settings(max_examples=150)
@given(
    st.lists(
        st.one_of(
            STEPS,
            st.tuples(st.just("insert"), st.text(max_size=8)),
            st.tuples(st.just("move"), st.integers(-2, 40)),
            st.tuples(st.just("select"), st.integers(-2, 40)),
            st.just(("token", "")),
        ),
        max_size=25,
    )
)
def test_the_cursor_stays_in_the_text_and_tokens_stay_whole(steps: list[object]) -> None:
    draft = Draft()
    for step in steps:
        if isinstance(step, str):
            getattr(draft, step)()
        else:
            name, value = step  # type: ignore[misc]
            if name == "insert":
                draft.insert(value)
            elif name == "token":
                draft.insert_token("paste", "[#]", "TOKEN")
            else:
                draft.move(value, selects=name == "select")
        assert 0 <= draft.cursor <= len(draft.text)
        assert 0 <= draft.before(draft.cursor) <= draft.cursor <= draft.after(draft.cursor) <= len(draft.text)
        assert draft.word_left() <= draft.cursor <= draft.word_right()
        assert all(character in draft.tokens or not 0xFF000 <= ord(character) <= 0xFFFFD for character in draft.text)


def test_deleted_words_and_lines_can_be_restored() -> None:
    draft = Draft("one two three")
    draft.delete_word_left()
    draft.delete_word_left()
    assert draft.text == "one "
    assert draft.yank()
    assert draft.text == "one two three"
    draft.move(3)
    draft.delete_line_end()
    draft.move(0)
    assert draft.yank()
    assert draft.text == " two threeone"
    draft.clear()
    assert draft.yank()
    assert draft.text == " two three"
    assert not Draft("a").yank()


def test_a_picture_that_was_deleted_comes_back_as_one() -> None:
    draft = Draft()
    draft.insert_token("image", "[image #: a.png]", "/a.png")
    draft.delete_line_start()
    assert draft.sent().images == ()
    draft.clear()
    draft.insert_token("image", "[image #: b.png]", "/b.png")
    draft.yank()
    assert draft.sent().images == ("/b.png", "/a.png")
