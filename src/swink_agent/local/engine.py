"""What a stream function needs of a model in memory, whoever holds it.

Owns the values that go to an engine and come back, and the protocol. The one engine of the library is the worker
process in `worker`; tests bring their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, TypeAlias

from swink_agent.core.values.value import Value

__all__ = ["Chunk", "Completion", "Engine", "EngineError", "Finished", "ModelInfo", "Overflowed", "Piece", "Progress"]


class ModelInfo(Value, frozen=True, tag=True):
    """What the weights say of themselves once they are loaded."""

    context_length: int
    template: str = ""


class Completion(Value, frozen=True, tag=True, kw_only=True):
    """One text to go on with.

    `prefixes` are numbers of characters at its start, in rising order, that are the same from run to run: what was made
    of them is worth keeping on disk. The shorter is the one that is sooner the same.
    """

    prompt: str
    prefixes: tuple[int, ...] = ()
    grammar: str = ""
    max_tokens: int = -1
    temperature: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    bias: tuple[tuple[str, float], ...] = ()


class Progress(Value, frozen=True, tag=True):
    """How far the prompt has been read, in tokens; `cached` of them were known already."""

    done: int
    total: int
    cached: int = 0


class Piece(Value, frozen=True, tag=True):
    """Some text, as generated."""

    text: str


class Finished(Value, frozen=True, tag=True):
    """The text is complete, or as long as it may get."""

    is_cut: bool
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    prompt_seconds: float = 0.0
    output_seconds: float = 0.0


class Overflowed(Value, frozen=True, tag=True):
    """The prompt has more tokens than the window; nothing was generated."""

    prompt_tokens: int
    context_length: int


Chunk: TypeAlias = Progress | Piece | Finished | Overflowed


class EngineError(Exception):
    """The engine failed at a request. `is_gone` says that it ended itself and that another try may go well."""

    def __init__(self, message: str, *, is_gone: bool = False) -> None:
        super().__init__(message)
        self.is_gone = is_gone


class Engine(Protocol):
    """A model that is loaded on first use. Every method may be called in any event loop."""

    async def load(self) -> ModelInfo:
        """Loads the model, if it is not loaded. Raises `EngineError`."""
        ...

    def complete(self, request: Completion) -> AsyncIterator[Chunk]:
        """The pieces, then `Finished` or `Overflowed`. Closing the iterator stops the work. Raises `EngineError`."""
        ...

    async def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """Roles and texts in the model's own chat template, up to where the assistant speaks. Raises `EngineError`."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text. Raises `EngineError`."""
        ...
