"""The protocol of an engine, which holds a model in memory, and the values that it takes and returns.

The library's engine is the worker process in `process`; tests have others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, TypeAlias

from swink_agent.core.values.value import Value


class ModelInfo(Value, frozen=True, tag=True):
    """The properties of a loaded model: its window in tokens, and its chat template."""

    context_length: int
    template: str = ""


class Completion(Value, frozen=True, tag=True, kw_only=True):
    """A text to continue.

    `prefixes` are the lengths, in rising order, of beginnings that are the same from run to run. The model's state
    after each is worth keeping on disk; the shorter one fits more prompts.
    """

    prompt: str
    prefixes: tuple[int, ...] = ()
    grammar: str = ""
    max_tokens: int = -1
    temperature: float = 0.0
    seed: int | None = None


class Progress(Value, frozen=True, tag=True):
    """How many tokens of the prompt have been read; `cached` of them came from the cache."""

    done: int
    total: int
    cached: int = 0


class Piece(Value, frozen=True, tag=True):
    text: str


class Finished(Value, frozen=True, tag=True):
    """The text is complete, or was cut at the length limit (`is_cut`)."""

    is_cut: bool
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    prompt_seconds: float = 0.0
    output_seconds: float = 0.0


class Overflowed(Value, frozen=True, tag=True):
    """The prompt has more tokens than the window. Nothing was generated."""

    prompt_tokens: int
    context_length: int


Chunk: TypeAlias = Progress | Piece | Finished | Overflowed


class EngineError(Exception):
    """A request failed. If `is_gone`, the engine ended, and another try may succeed."""

    def __init__(self, message: str, *, is_gone: bool = False) -> None:
        super().__init__(message)
        self.is_gone = is_gone


class Engine(Protocol):
    """A model that is loaded on first use. Methods may be called in any event loop."""

    async def load(self) -> ModelInfo:
        """Loads the model, if it is not loaded. Raises `EngineError`."""
        ...

    def complete(self, request: Completion) -> AsyncIterator[Chunk]:
        """Yields pieces, then `Finished` or `Overflowed`. Closing the iterator stops the work. Raises `EngineError`."""
        ...

    async def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """Applies the model's chat template, up to the assistant's reply. Raises `EngineError`."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Returns one vector per text. Raises `EngineError`."""
        ...
