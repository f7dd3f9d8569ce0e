"""Similar texts are found as the standard library finds them, with a limit on the effort."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent.core.texts.likeness import close_names, likeness, matching_blocks, which_name

NAMES = ["settings", "setting", "sandbox", "search", "session", "stream", "system", "anthropic", "openai", "ollama"]


@pytest.mark.table
@pytest.mark.parametrize("name", ["setings", "sarch", "antropic", "olama", "nothing", "", "s", "sessions"])
def test_close_names_are_those_of_the_standard_library(name: str) -> None:
    for n in (1, 3):
        assert close_names(name, NAMES, n=n) == difflib.get_close_matches(name, NAMES, n=n)


def test_the_hint_for_a_wrong_name_is_the_near_one_or_all() -> None:
    assert which_name("sarch", NAMES[:4]) == "did you mean search?"
    assert which_name("zzz", NAMES[:2]) == "there are: settings, setting"
    assert which_name("zzz", ()) == "there are none"


def test_of_a_long_name_the_ends_count() -> None:
    digest = "0123456789abcdef" * 10
    assert close_names(f"report-{digest}-final.txt", [f"report-{digest}-finals.txt", "other"]) == [
        f"report-{digest}-finals.txt"
    ]


@pytest.mark.slow
@given(st.text("abcd", max_size=40), st.text("abcd", max_size=40))
def test_blocks_and_likeness_equal_the_standard_librarys(a: str, b: str) -> None:
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    expected = [tuple(block) for block in matcher.get_matching_blocks() if block.size]
    assert matching_blocks(matcher, len(a), len(b), 1000) == expected
    assert likeness(matcher, len(a), len(b), 1000) == pytest.approx(matcher.ratio())
    assert likeness(matcher, len(a), len(b), 2) <= matcher.ratio() + 1e-9


def test_capitals_do_not_hide_a_name() -> None:
    assert close_names("OPENAI", ["anthropic", "openai"]) == ["openai"]
    assert close_names("pythonpath", ["PATH", "PYTHONPATH"]) == ["PYTHONPATH"]
