"""The compatibility form of a text, whatever its length."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swink_agent.rendering.texts.invisible import compatibility_form


@pytest.mark.slow
@given(st.text(max_size=60))
def test_of_a_short_text_it_is_the_standard_one(text: str) -> None:
    assert compatibility_form(text) == unicodedata.normalize("NFKC", text)


@pytest.mark.parametrize("text", ["plain ", "e\u0301a\u0323\u0301 ", "\uff46\uff55\uff4c\uff4c ", "한국어 ", "ﬁne "])
def test_of_a_long_text_too(text: str) -> None:
    assert compatibility_form(text * 500) == unicodedata.normalize("NFKC", text * 500)
