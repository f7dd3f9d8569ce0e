"""The beginning of a long text, masked only as far as it is needed."""

from __future__ import annotations

import pytest

from swink_agent import Redactor
from swink_agent.core.secrets.redaction import masked_beginning

SECRET = "zanzibar-77-quartz"


@pytest.mark.parametrize("place", [0, 10, 65_530, 65_536, 131_060, 200_000])
def test_a_secret_is_masked_wherever_it_lies(place: int) -> None:
    redactor = Redactor(SECRET, environment={})
    text = "x " * (place // 2) + SECRET + " y" * 50_000
    data, rest = masked_beginning(redactor, text, 10**9)
    assert (data.decode(), rest) == (redactor.redact(text), "")
    for size in (1, place + 5, place + 30):
        data, rest = masked_beginning(redactor, text, size)
        assert size <= len(data)
        assert redactor.redact(text).startswith(data.decode())
        assert data.decode() == redactor.redact(text) or rest


def test_texts_of_ordinary_words_are_not_masked() -> None:
    data, rest = masked_beginning(Redactor(environment={}), "password=" * 2_000_000, 1000)
    assert 1000 <= len(data) < 2_000_000
    assert len(rest) > 17_000_000
