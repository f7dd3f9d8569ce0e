"""The output of commands as text: bounded, cleaned, and never cut inside a character."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent.tools._terminal import LiveText, Output, clean

PLAIN = st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.just("\n"), max_size=300)


@pytest.mark.table
@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[38;5;12mblue\x1b[K\x1b[2J", "blue"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;https://x.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPdevice\x1b\\text", "text"),
        ("\x1b]never closed\nnext", "\nnext"),
        ("\x1b(Bcharset\x1b=", "charset"),
        ("\x9b31mcsi", "csi"),
        ("10%\r20%\r30%\n", "30%\n"),
        ("dos\r\nlines\r\n", "dos\nlines\n"),
        ("left\r\r\n", "left\n"),
        ("N\x08Na\x08am\x08me\x08e", "Name"),
        ("bell\x07 null\x00 delete\x7f c1\x85", "bell null delete c1"),
        ("\x1b", ""),
        ("", ""),
    ],
)
def test_long_output_is_shown_in_part(printed: str, shown: str) -> None:
    assert clean(printed) == shown


@given(st.text(max_size=200))
def test_nothing_that_a_terminal_would_obey_is_left(printed: str) -> None:
    shown = clean(printed)
    assert not [char for char in shown if (char < " " and char not in "\n\t") or "\x7f" <= char <= "\x9f"]


@given(PLAIN)
def test_plain_text_is_left_alone(printed: str) -> None:
    assert clean(printed) == printed


@pytest.mark.sweep
def test_cleaning_takes_time_in_proportion_to_the_text() -> None:
    for unit in ("\x1b[", "\x1b]x", "\x1bP", "a\x08", "\r", "\x9b1"):
        assert len(clean(unit * 300_000)) <= len(unit) * 300_000


@given(PLAIN, st.data())
def test_updates_together_are_the_output(printed: str, data: st.DataObject) -> None:
    live = LiveText()
    shown = ""
    rest = printed.encode()
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        live.add(rest[:size])
        rest = rest[size:]
        shown += live.take()
    assert shown + live.take(is_last=True) == printed


@given(
    st.lists(st.sampled_from(["\x1b[31m", "red", "\x1b]0;t\x07", "€", "\r\n", "\n", "\x1b[0m", " "]), max_size=30),
    st.data(),
)
def test_sequences_are_never_seen_in_half(pieces: list[str], data: st.DataObject) -> None:
    printed = "".join(pieces)
    live = LiveText()
    shown = ""
    rest = printed.encode()
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        live.add(rest[:size])
        rest = rest[size:]
        shown += live.take()
    assert shown + live.take(is_last=True) == clean(printed)


def test_a_line_that_is_overwritten_later_begins_anew() -> None:
    live = LiveText()
    shown: list[str] = []
    for chunk in ("10%", "\r20%", "\r", "30%", "\r\n", "end\n"):
        live.add(chunk.encode())
        shown.append(live.take())
    assert shown == ["10%", "\n20%", "", "\n30%", "\n", "end\n"] or shown == [
        "10%",
        "\n20%",
        "",
        "\n30%",
        "",
        "\nend\n",
    ]


def test_of_very_much_between_two_updates_the_end_is_given() -> None:
    live = LiveText()
    for number in range(100_000):
        live.add(f"line {number} é\n".encode())
    shown = live.take()
    assert shown.startswith("[…]line ")
    assert shown.endswith("line 99999 é\n")
    assert len(shown.encode()) < 20 * 1024
    assert "\ufffd" not in shown
    live.add(b"more")
    assert live.take() == "more"


@pytest.mark.table
@pytest.mark.parametrize("size", [0, 1, 1000, 100 * 1024, 500 * 1024, 3_000_000])
@pytest.mark.parametrize("line", ["short\n", "é" * 40 + "\n", "x" * 100_000, "€" * 100_000])
def test_output_is_bounded_and_keeps_both_ends(size: int, line: str) -> None:
    output = Output()
    printed = ("<" + line * (size // len(line.encode()) + 1))[: max(size, 1)] + ">"
    data = printed.encode()
    for start in range(0, len(data), 7919):
        output.add(data[start : start + 7919])
    shown = output.text()
    assert output.total == len(data)
    assert len(shown.text.encode()) <= 100 * 1024
    assert shown.text.startswith("<")
    assert shown.text.endswith(">")
    assert "\ufffd" not in shown.text
    assert shown.is_cut is (len(data) > 100 * 1024)
    if not shown.is_cut:
        assert shown.text == printed
    else:
        assert "left out; to see them, send the output to a file" in shown.text
