"""The types of the arguments that an application gives to an agent and to its runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypedDict

from ..encoding.media import DocumentInput, ImageInput
from ..policy import PolicyContext
from ..stream import StreamFn, StreamOptions
from ..tool import AgentTool
from ..types import ModelSpec
from ..values.value import Deps
from .structured import ValidateFn

SystemPrompt: TypeAlias = str | Callable[[], Any] | Callable[[PolicyContext[Deps]], Any]
"""The instructions, or a function that each turn calls once for them, with the turn's `PolicyContext` if it has a
required parameter."""

_OfTurn: TypeAlias = Iterable[AgentTool[Deps]] | Awaitable[Iterable[AgentTool[Deps]]]
Tools: TypeAlias = (
    Iterable[AgentTool[Deps]] | Callable[[], _OfTurn[Deps]] | Callable[[PolicyContext[Deps]], _OfTurn[Deps]]
)
"""Tools, or a function that each turn calls once for them."""


class RunOptions(TypedDict, Generic[Deps], total=False):
    """The options of every method that runs an agent. They apply to that run only."""

    deps: Deps | None
    model: str | ModelSpec | None
    tools: Tools[Deps] | None
    system_prompt: SystemPrompt[Deps] | None
    stream_options: StreamOptions | None


class PromptOptions(RunOptions[Deps], total=False):
    """The options of methods that run a prompt. They add its attachments."""

    images: Sequence[ImageInput]
    documents: Sequence[DocumentInput]


class ValueOptions(PromptOptions[Deps], total=False):
    """The options of methods that return a value. They add the functions that check it."""

    validate: ValidateFn | Sequence[ValidateFn]


class OverrideOptions(RunOptions[Deps], total=False):
    """The options of `agent.override`."""

    stream_fn: StreamFn | None
