"""Deceptive characters, and the text that a person reads."""

# ruff: noqa: RUF001 - letters of other scripts are what this is about

from __future__ import annotations

import pytest

from swink_agent.policies.texts._characters import fold, without_invisible


@pytest.mark.table
@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Plain TEXT", "plain text"),
        ("\u0421\u0430fe", "cafe"),  # Cyrillic letters
        ("\uff49\uff47\uff4e\uff4f\uff52\uff45", "ignore"),  # full width
        ("\U0001d422\U0001d420\U0001d427", "ign"),  # mathematical bold
        ("naïve Straße", "naive strasse"),
        ("i\u200bg\u00adn\u2060o\ufeffre", "ignore"),
        ("\u041f\u0420\u0418\u0412\u0415\u0422", fold("\u043f\u0440\u0438\u0432\u0435\u0442").text),
        ("한국어 日本語", "한국어 日本語"),
    ],
)
def test_text_is_folded_to_what_it_reads_like(text: str, folded: str) -> None:
    assert fold(text).text == folded


@pytest.mark.parametrize("text", ["xx bad yy", "xx b\u200bad yy", "ﬁ ﬁ bad", "ß bad é", "\u200b\u200bbad"])
def test_a_place_in_the_folded_text_leads_back_to_the_original(text: str) -> None:
    folded = fold(text)
    start = folded.text.index("bad")
    first, last = folded.span(start, start + 3)
    assert text[first:last].replace("\u200b", "") == "bad"


@pytest.mark.table
@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\u200bb", "ab"),
        ("a\u202eb\u202c", "ab"),
        ("x\U000e0069\U000e0067", "x"),
        ("\ufeffstart", "start"),
        ("نمی\u200cخواهم", "نمی\u200cخواهم"),  # Persian needs its joiners
        ("\U0001f468\u200d\U0001f469", "\U0001f468\u200d\U0001f469"),  # so does a family
        (
            "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
            "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        ),  # and the flag of England its tags
        ("plain", "plain"),
    ],
)
def test_invisible_characters_are_removed_and_needed_ones_stay(text: str, left: str) -> None:
    assert without_invisible(text) == left
