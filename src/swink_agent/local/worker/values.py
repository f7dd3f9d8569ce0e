"""What is asked of a model in a worker process, and what it answers.

`engine` starts the process and asks it. `stream` uses the values.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from swink_agent.core.values.value import Value


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """How a worker loads its model. The program gets them as a line of JSON."""

    path: str
    state_dir: str
    context_length: int = 8_192
    batch: int = 128
    threads: int = 0
    gpu_layers: int | None = None
    embedding: bool = False
    idle_seconds: float = 900.0


class ModelInfo(Value, frozen=True):
    """The properties of a loaded model: its window in tokens, and its chat template."""

    context_length: int
    template: str = ""


class Completion(Value, frozen=True, kw_only=True):
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


class Progress(Value, frozen=True):
    """How many tokens of the prompt have been read; `cached` of them came from the cache."""

    done: int
    total: int
    cached: int = 0


class Piece(Value, frozen=True):
    text: str


class Finished(Value, frozen=True):
    """The text is complete, or was cut at the length limit (`is_cut`)."""

    is_cut: bool
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    prompt_seconds: float = 0.0
    output_seconds: float = 0.0


class Overflowed(Value, frozen=True):
    """The prompt has more tokens than the window. Nothing was generated."""

    prompt_tokens: int
    context_length: int


Chunk: TypeAlias = Progress | Piece | Finished | Overflowed


class EngineError(Exception):
    """A request failed. If `is_gone`, the worker ended, and another try may succeed."""

    def __init__(self, message: str, *, is_gone: bool = False) -> None:
        super().__init__(message)
        self.is_gone = is_gone
