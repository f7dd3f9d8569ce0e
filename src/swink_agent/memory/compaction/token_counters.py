"""Counts tokens with a model's tokenizer, for windows and compactors: `count=tiktoken_counter("gpt-4o")`.

Owns which parts of a message are counted. The tokenizer is tiktoken, an optional extra, imported when a counter is
created.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import msgspec

from swink_agent.core.context.context import document_tokens
from swink_agent.core.machine.extras import require
from swink_agent.core.types import AgentMessage, CustomMessage, Document, Image, Text, Thinking, ToolCall

_FRAME = 4  # tokens that each message takes in addition to its content
_IMAGE = 1_200
_PIECE = 4_096  # characters that are encoded at once: a long run without spaces takes quadratic time
_REMEMBERED = 4_096  # texts whose count is cached: every turn counts the whole conversation again


class Encoding(Protocol):
    """The part of tiktoken's `Encoding` that is used."""

    def encode_ordinary(self, text: str, /) -> list[int]: ...


def tiktoken_counter(model: str = "gpt-4o", *, encoding: Encoding | None = None) -> Callable[[AgentMessage], int]:
    """Returns a `count` for `SlidingWindow` and `SummarizingCompactor` that uses the tokenizer of an OpenAI model.

    `encoding` replaces the encoding of `model`. Raises `RuntimeError` if tiktoken is not installed or cannot load its
    tables, which it downloads once, and `ValueError` for a model that it does not know.
    """
    encode = (encoding or _encoding_of(model)).encode_ordinary

    @lru_cache(maxsize=_REMEMBERED)
    def tokens_of(text: str) -> int:
        return sum(len(encode(text[start : start + _PIECE])) for start in range(0, len(text), _PIECE))

    def count(message: AgentMessage) -> int:
        if isinstance(message, CustomMessage):
            return 0  # models do not receive it
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
                case Document():
                    tokens += document_tokens(block)
                case _:
                    pass
        return tokens

    return count


def _encoding_of(model: str) -> Encoding:
    tiktoken = require("tiktoken", extra="tiktoken")
    try:
        return tiktoken.encoding_for_model(model)
    except KeyError as error:
        raise ValueError(
            f"tiktoken does not know the model {model!r}: name an OpenAI model, or pass an encoding"
        ) from error
    except Exception as error:
        raise RuntimeError(
            f"tiktoken could not load its table for {model}: {error}. It downloads the table once: "
            "allow network access, set TIKTOKEN_CACHE_DIR to a folder with the table, or use estimate_tokens"
        ) from error
