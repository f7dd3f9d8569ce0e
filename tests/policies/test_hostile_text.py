"""Text that is made to be slow: each policy needs time in proportion to the length of a text."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from swink_agent.policies import PII_KINDS, ContentFilter, PiiRedactor, PromptGuard

READERS: dict[str, Callable[[str], object]] = {
    "prompt_guard": PromptGuard().scan,
    "pii": PiiRedactor(PII_KINDS).redact,
    "content_filter": ContentFilter(
        ["bluebird", "operation night watch", "秘密"], patterns=["secret-[0-9]{3}"], action="redact"
    ).redact,
}

PIECES = {
    "letters": "a",
    "spaces": " ",
    "digits": "1",
    "digits apart": "1 ",
    "digits with dashes": "4-",
    "plus and digits": " +11111111111111111111x",
    "at": "@",
    "mail without end": "a.",
    "mail after mail": "a@a.",
    "domains": "x@" + "a." * 8,
    "ibans": "DE89 ",
    "colons": "f:",
    "ignore": "ignore ",
    "ignore all": "ignore all the ",
    "ignore the previous": "ignore all of the previous ",
    "ignoriere": "ignoriere alle ",
    "send": "send the ",
    "send secrets": "send the passwords of ",
    "assistant": "ai assistant ",
    "attention": "attention ",
    "brackets": "![",
    "pictures": "![x](https://e?",
    "tags": "<system-",
    "markers": "<|im_start",
    "base64": "QUJDRA",
    "base64 pieces": "aWdub3JlIGFsbCBwcmV2aW91cyBydWxlcyBhbmQ= ",
    "base64 lines": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5\n",
    "entities": "&#105;",
    "key starts": "sk-",
    "hidden": "\u200b",
    "hidden between": "a\u200b",
    "tag characters": "\U000e0041",
    "accents": "e\u0301",
    "full width": "\uff41",
    "chinese": "忽略之前",
    "phrases": "operation night ",
    "private": "-----BEGIN ",
}


@pytest.mark.sweep
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("piece", PIECES)
def test_a_long_text_takes_no_longer_than_its_length_explains(reader: str, piece: str) -> None:
    """Four times the text takes about four times as long; quadratic time would be sixteen."""
    read = READERS[reader]
    large = (PIECES[piece] * 120_000)[:120_000]
    small = large[: len(large) // 4]
    read(small[:1000])
    took_small = min(_seconds(read, small) for _ in range(2))
    took_large = _seconds(read, large)
    assert took_large < 0.25 or took_large < 9 * took_small + 0.1, (took_small, took_large)
    assert took_large < 5.0


def _seconds(read: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    read(text)
    return time.process_time() - start
