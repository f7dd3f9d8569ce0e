"""Parsing terminal input: the same keys, however the bytes are split."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.tui.keystrokes import LARGEST_PASTE, Keystrokes, Pasted, Piece, Pressed


def sorted_pieces(*chunks: str) -> list[Piece]:
    """All pieces, with text that stands side by side joined."""
    keystrokes = Keystrokes()
    pieces = [piece for chunk in chunks for piece in keystrokes.feed(chunk)] + keystrokes.settle()
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


@pytest.mark.table
@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ("\x1b\r", "alt+enter"),
        ("\x1b\n", "alt+enter"),
        ("\x1b\x7f", "alt+backspace"),
        ("\x1b[27;2;13~", "shift+enter"),
        ("\x1b[27;5;13~", "ctrl+enter"),
        ("\x1b[27;6;122~", "ctrl+shift+z"),
        ("\x1b[27;3;13~", "alt+enter"),
        ("\x1b[27;2;9~", "shift+tab"),
    ],
)
def test_keys_of_terminals_without_the_kitty_protocol_are_known(sent: str, key: str) -> None:
    assert sorted_pieces(sent) == [Pressed(key)]
    assert sorted_pieces(f"a{sent}b") == ["a", Pressed(key), "b"]
    assert sorted_pieces(*sent) == [Pressed(key)]


def test_an_escape_that_nothing_follows_is_the_key() -> None:
    keystrokes = Keystrokes()
    assert keystrokes.feed("\x1b") == []
    assert keystrokes.is_waiting
    assert keystrokes.settle() == [Pressed("escape", "\x1b")]
    assert not keystrokes.is_waiting
    assert sorted_pieces("\x1b\x1b") == [Pressed("escape", "\x1b"), Pressed("escape", "\x1b")]
    assert sorted_pieces("\x1b\x1b[A") == [Pressed("escape", "\x1b"), "\x1b[A"]


@pytest.mark.table
@pytest.mark.parametrize("behind", ["x", "Z", " ", "1", "/", "!", "\x03", "\t", "é", "[", "hello"])
def test_an_escape_directly_before_a_key_without_alt_is_two_keys(behind: str) -> None:
    assert sorted_pieces(f"\x1b{behind}") == [Pressed("escape", "\x1b"), behind]
    assert sorted_pieces("\x1b", behind) == [Pressed("escape", "\x1b"), behind]


def test_other_sequences_are_passed_on_whole() -> None:
    for sent in ["\x1b[A", "\x1b[13;2u", "\x1b[<0;10;5M", "\x1bOP", "\x1b[1;5C", "\x1bb", "\x1b[48;10;20;30;40t"]:
        assert sorted_pieces(sent) == [sent]


def test_a_paste_is_one_piece_whatever_is_in_it() -> None:
    text = "line\r\x1b\r\x1b[27;2;13~\x1b[A\x1b"
    assert sorted_pieces(f"a\x1b[200~{text}\x1b[201~b") == ["a", Pasted(text), "b"]


def test_a_paste_that_is_too_large_is_refused_and_not_kept() -> None:
    keystrokes = Keystrokes()
    keystrokes.feed("\x1b[200~")
    for _ in range(60):
        assert keystrokes.feed("x" * 100_000) == []
        assert sum(len(part) for part in keystrokes._paste or ()) <= LARGEST_PASTE
    assert keystrokes.feed("\x1b[201~typed") == [Pasted("", 6_000_000), "typed"]
    assert keystrokes.feed("\x1b[200~small\x1b[201~") == [Pasted("small")]


def test_a_paste_whose_end_was_lost_can_be_ended() -> None:
    keystrokes = Keystrokes()
    keystrokes.feed("\x1b[200~half")
    assert keystrokes.is_pasting
    assert keystrokes.give_up() == [Pasted("half")]
    assert not keystrokes.is_pasting
    assert keystrokes.feed("\x03") == ["\x03"]
    assert keystrokes.give_up() == []


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                "\r",
                "\x1b\r",
                "\x1b[A",
                "\x1b[27;2;13~",
                "\x1b[200~one\rtwo\x1b[201~",
                "\x1b[<0;1;2M",
                "é",
                "\x1b[Z",
            ]
        ),
        max_size=12,
    ),
    st.data(),
)
def test_it_does_not_matter_where_input_is_cut(parts: list[str], data: st.DataObject) -> None:
    sent = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))
    chunks = [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert sorted_pieces(*chunks) == sorted_pieces(sent)
