"""Tokens counted as a model counts them, if tiktoken is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from swink_agent import (
    AssistantMessage,
    Base64Image,
    CustomMessage,
    Image,
    SlidingWindow,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from swink_agent.memory import SummarizingCompactor, tiktoken_counter


class Notice(CustomMessage, tag="notice"):
    text: str


class Words:
    """Every word is a token. It notes what it was given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def encode_ordinary(self, text: str) -> list[int]:
        self.given.append(text)
        return [0] * len(text.split())


def test_everything_that_is_sent_counts_and_each_message_has_a_frame() -> None:
    count = tiktoken_counter(encoding=Words())
    assert count(UserMessage("one two three")) == 4 + 3
    assert count(UserMessage([Text("one two"), Image(Base64Image("image/png", "aGk="))])) == 4 + 2 + 1_200
    said = AssistantMessage([Thinking("hm so"), Text("one"), ToolCall("1", "look", {"a": "b c"})])
    assert count(said) == 4 + 2 + 1 + 1 + 2
    assert count(AssistantMessage([ToolCall("1", "look", {}, '{"a": ')])) == 4 + 1 + 1
    assert count(ToolResultMessage("1", "one two")) == 4 + 2
    assert count(Notice("one two")) == 0


def test_a_text_is_encoded_once_and_a_long_one_in_pieces() -> None:
    words = Words()
    count = tiktoken_counter(encoding=words)
    message = UserMessage("x " * 10_000)
    assert count(message) == count(message) == 4 + 10_000
    assert len(words.given) == 5
    assert max(map(len, words.given)) <= 4_096


async def test_windows_and_compactors_take_it() -> None:
    count = tiktoken_counter(encoding=Words())
    talk: Any = [message for _ in range(40) for message in (UserMessage("a b c d e f"), AssistantMessage("g h"))]
    kept = SlidingWindow(100, count=count)(talk, False)
    assert kept is not None
    assert sum(map(count, kept)) <= 50
    assert await SummarizingCompactor(max_tokens=100, count=count)(talk, False) == kept


@pytest.mark.sweep  # like the others that need the package: the extra `dev` has it
def test_tiktokens_own_encodings_fit() -> None:
    import tiktoken

    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256}
    tiny = tiktoken.Encoding(name="tiny", pat_str=r"\w+|\W+", mergeable_ranks=ranks, special_tokens={"<|end|>": 257})
    count = tiktoken_counter(encoding=tiny)
    assert count(UserMessage("abab c")) == 4 + 4
    assert count(UserMessage("<|end|>")) == 4 + 7, "what looks like a special token is text like any other"


def test_without_tiktoken_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(RuntimeError, match=r"pip install 'swink-agent\[tiktoken\]'"):
        tiktoken_counter("gpt-4o")


@pytest.mark.sweep
def test_without_the_network_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    for variable in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with pytest.raises(RuntimeError, match=r"could not load its table for gpt-4o: .*TIKTOKEN_CACHE_DIR"):
        tiktoken_counter("gpt-4o")


@pytest.mark.sweep
def test_a_model_that_it_does_not_know_is_named() -> None:
    with pytest.raises(ValueError, match="'claude-sonnet-4-6'"):
        tiktoken_counter("claude-sonnet-4-6")
