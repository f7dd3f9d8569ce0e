"""Text cut at its limit: whole characters, whole lines if possible, and a note on the missing part."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swink_agent.tools._bounded import OUTPUT_LIMIT, bound_text, show_name, show_size


def test_texts_that_fit_are_given_unchanged() -> None:
    assert bound_text("short\n") == ("short\n", 0)
    assert not bound_text("x" * OUTPUT_LIMIT).is_cut
    assert bound_text("x" * (OUTPUT_LIMIT + 1)).is_cut


def test_both_ends_are_kept_in_whole_lines_with_a_note_between() -> None:
    lines = [f"line {number}" for number in range(1000)]
    text = "\n".join(lines)
    bounded = bound_text(text, 400, hint="see all of it in out.txt")
    shown = bounded.text.split("\n")
    at = next(number for number, line in enumerate(shown) if line.startswith("["))
    assert shown[:at] == lines[:at]
    assert shown[at + 1 :] == lines[at + 1 - len(shown) :]
    missing = 1000 - (len(shown) - 1)
    assert shown[at] == f"[… {bounded.left_out:,} bytes, {missing} lines left out; see all of it in out.txt …]"
    assert 300 < len(bounded.text.encode()) <= 400


def test_only_the_beginning_is_kept_on_demand() -> None:
    bounded = bound_text("a" * 1000, 200, keep="head")
    assert bounded.text.startswith("a" * 150)
    assert bounded.text.endswith("left out …]\n")


def test_invalid_bytes_become_replacement_characters_and_still_fit() -> None:
    bounded = bound_text(b"\xff" * 1000, 300)
    assert len(bounded.text.encode()) <= 300
    assert "\ufffd" in bounded.text


def test_a_limit_too_small_for_a_note_still_holds() -> None:
    assert bound_text("äöü", 3) == ("ä", 4)
    assert bound_text("abc", 0) == ("", 3)


@given(
    text=st.text(st.sampled_from("ab\n😀é\u202e\ud800"), max_size=400),
    limit=st.integers(0, 300),
    keep=st.sampled_from(["ends", "head"]),
    hint=st.sampled_from(["", "use offset", "größer"]),
)
@settings(max_examples=500)
def test_no_character_is_split_and_the_limit_never_exceeded(
    text: str, limit: int, keep: Literal["ends", "head"], hint: str
) -> None:
    clean = text.encode("utf-8", "replace").decode()
    bounded = bound_text(text, limit, keep=keep, hint=hint)
    assert len(bounded.text.encode()) <= limit
    if not bounded.is_cut:
        assert bounded.text == clean
        return
    head, mark, rest = bounded.text.partition("[… ")
    head = head if clean.startswith(head) else head.removesuffix("\n")
    assert clean.startswith(head)
    if mark:
        tail = rest.partition(" …]\n")[2]
        assert clean.endswith(tail)
        kept = len(clean.encode()) - bounded.left_out
        assert kept in (len(head.encode()) + len(tail.encode()), len(head.encode()) + len(tail.encode()) - 1)


@given(data=st.binary(max_size=400), limit=st.integers(0, 200))
def test_any_bytes_fit(data: bytes, limit: int) -> None:
    assert len(bound_text(data, limit).text.encode()) <= limit


@pytest.mark.table
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain-name.txt", "plain-name.txt"),
        ("größe 😀.txt", "größe 😀.txt"),
        ("a\nb", "a\\nb"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("txt.\u202eexe", "txt.\\u202eexe"),
        ("a\u200bb\u2066", "a\\u200bb\\u2066"),
        ("caf\udce9", "caf\\xe9"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("c1\x9b", "c1\\x9b"),
    ],
)
def test_names_that_could_deceive_are_escaped(name: str, shown: str) -> None:
    assert show_name(name) == shown


@pytest.mark.table
@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1.0 KB"), (999_960, "1.0 MB"), (5 * 10**9, "5.0 GB")],
)
def test_sizes_are_shown_for_people(size: int, shown: str) -> None:
    assert show_size(size) == shown
