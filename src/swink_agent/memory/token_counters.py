"""Counting tokens as a model does, for windows and compactors: `count=tiktoken_counter("gpt-4o")`.

Owns what of a message is counted. The tokens are tiktoken's, an extra, loaded when a counter is made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

import msgspec

from swink_agent.core.types import AgentMessage, CustomMessage, Image, Text, Thinking, ToolCall

__all__ = ["tiktoken_counter"]

_FRAME = 4
"""Tokens around each message."""
_IMAGE = 1_200
_PIECE = 4_096
"""Characters that are encoded at once: a long run without a space takes time that grows with its square."""
_REMEMBERED = 4_096
"""Texts whose count is kept: every turn counts the whole conversation again."""


class Encoding(Protocol):
    """What is used of tiktoken's `Encoding`."""

    def encode_ordinary(self, text: str, /) -> list[int]: ...


def tiktoken_counter(model: str = "gpt-4o", *, encoding: Encoding | None = None) -> Callable[[AgentMessage], int]:
    """A `count` for `SlidingWindow` and `SummarizingCompactor` with the tokens of an OpenAI model.

    `encoding` is one that you have already. Raises `RuntimeError` if tiktoken is not installed or cannot load its
    tables, which it fetches from the network once, and `ValueError` for a model that it does not know.
    """
    encode = (encoding or _encoding_of(model)).encode_ordinary

    @lru_cache(maxsize=_REMEMBERED)
    def tokens_of(text: str) -> int:
        return sum(len(encode(text[start : start + _PIECE])) for start in range(0, len(text), _PIECE))

    def count(message: AgentMessage) -> int:
        if isinstance(message, CustomMessage):
            return 0  # it does not reach a model
        tokens = _FRAME
        for block in message.content:
            match block:
                case Text():
                    tokens += tokens_of(block.text)
                case Thinking():
                    tokens += tokens_of(block.thinking)
                case ToolCall():
                    arguments = block.partial_json or msgspec.json.encode(block.arguments).decode()
                    tokens += tokens_of(block.name) + tokens_of(arguments)
                case Image():
                    tokens += _IMAGE
                case _:
                    pass
        return tokens

    return count


def _encoding_of(model: str) -> Encoding:
    try:
        tiktoken: Any = import_module("tiktoken")
    except ImportError as error:
        raise RuntimeError("tiktoken is not installed: pip install 'swink-agent[tiktoken]'") from error
    try:
        return tiktoken.encoding_for_model(model)
    except KeyError as error:
        raise ValueError(f"tiktoken knows no model {model!r}: name one of OpenAI's, or give an encoding") from error
    except Exception as error:
        raise RuntimeError(
            f"tiktoken could not load its table for {model}: {error}. It fetches that once from the network: "
            "let it, set TIKTOKEN_CACHE_DIR to a folder that has it, or count with estimate_tokens"
        ) from error
