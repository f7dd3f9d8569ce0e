"""The ways to run an agent that end with a value of a given shape. `structured` has what such a run asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Container, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, overload

from ..run.event_stream import EventStream
from ..types import AgentResult
from ..values import hints
from .arguments import Prompt

__all__ = ["PromptOrAnswers", "ValueRuns"]

T = TypeVar("T")
PromptOrAnswers: TypeAlias = Prompt | Mapping[str, Any]
Validators: TypeAlias = "hints.ValidateFn | Sequence[hints.ValidateFn]"
Schema: TypeAlias = dict[str, Any]


class ValueRuns:
    """The part of `Agent` for structured values."""

    __slots__ = ()

    @overload
    async def structured_run(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, *, validate: Validators = ()
    ) -> hints.StructuredResult[T]: ...
    @overload
    async def structured_run(
        self, prompt: PromptOrAnswers, target: Schema, max_retries: int = 3, *, validate: Validators = ()
    ) -> hints.StructuredResult[Schema]: ...
    @overload
    async def structured_run(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, *, validate: Validators = ()
    ) -> hints.StructuredResult[Any]: ...
    async def structured_run(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, *, validate: Validators = ()
    ) -> hints.StructuredResult[Any]:
        """Returns a value that the model gives, with usage, cost and messages: JSON for a JSON Schema (a dict), an
        instance for a type.

        The model's provider is given the JSON Schema where it takes one, else a tool takes the value. An answer that
        does not fit goes back with its errors. `validate` checks a value that fits: one function or several, plain or
        async; the `ValueError` that one raises goes back to the model too.

        Raises `StructuredOutputFailed` after `max_retries` more attempts than one, else the error of the run.
        """
        request = self._request(target, max_retries, validate)
        return request.result_of(await self._drive(self._order(prompt, request)))

    @overload
    def structured_run_sync(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, *, validate: Validators = ()
    ) -> hints.StructuredResult[T]: ...
    @overload
    def structured_run_sync(
        self, prompt: PromptOrAnswers, target: Schema, max_retries: int = 3, *, validate: Validators = ()
    ) -> hints.StructuredResult[Schema]: ...
    @overload
    def structured_run_sync(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, *, validate: Validators = ()
    ) -> hints.StructuredResult[Any]: ...
    def structured_run_sync(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, *, validate: Validators = ()
    ) -> hints.StructuredResult[Any]:
        """The same for code that is not async."""
        request = self._request(target, max_retries, validate)
        return request.result_of(self._sync(self._order(prompt, request)))

    @overload
    def structured_stream(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, *, validate: Validators = ()
    ) -> hints.ValueStream[T]: ...
    @overload
    def structured_stream(
        self, prompt: PromptOrAnswers, target: Schema, max_retries: int = 3, *, validate: Validators = ()
    ) -> hints.ValueStream[Schema]: ...
    @overload
    def structured_stream(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, *, validate: Validators = ()
    ) -> hints.ValueStream[Any]: ...
    def structured_stream(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, *, validate: Validators = ()
    ) -> hints.ValueStream[Any]:
        """Returns the same run as a stream of the value as it grows; `result()` gives what `structured_run` returns."""
        from ..run.views import ValueStream, view_of_value

        request = self._request(target, max_retries, validate)
        return ValueStream(self._stream(self._order(prompt, request, view_of_value(request))), request)

    @overload
    async def structured_output(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, *, validate: Validators = ()
    ) -> T: ...
    @overload
    async def structured_output(
        self, prompt: PromptOrAnswers, target: Schema, max_retries: int = 3, *, validate: Validators = ()
    ) -> Schema: ...
    @overload
    async def structured_output(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, *, validate: Validators = ()
    ) -> Any: ...
    async def structured_output(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, *, validate: Validators = ()
    ) -> Any:
        """Returns the value alone of a `structured_run`."""
        return (await self.structured_run(prompt, target, max_retries, validate=validate)).value

    @overload
    def structured_output_sync(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, *, validate: Validators = ()
    ) -> T: ...
    @overload
    def structured_output_sync(
        self, prompt: PromptOrAnswers, target: Schema, max_retries: int = 3, *, validate: Validators = ()
    ) -> Schema: ...
    @overload
    def structured_output_sync(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, *, validate: Validators = ()
    ) -> Any: ...
    def structured_output_sync(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, *, validate: Validators = ()
    ) -> Any:
        """The same for code that is not async."""
        return self.structured_run_sync(prompt, target, max_retries, validate=validate).value

    # -- what the agent does -------------------------------------------------------------------------------------

    def _request(self, target: Any, max_retries: int, validate: Validators) -> hints.StructuredOutput:
        from ..structured import StructuredOutput  # on use, as everything that reads type hints

        return StructuredOutput(target, max_retries, self._taken_names(), validate)

    def _taken_names(self) -> Container[str]:
        raise NotImplementedError

    def _order(self, prompt: PromptOrAnswers, request: hints.StructuredOutput, view: hints.ViewFn | None = None) -> Any:
        raise NotImplementedError

    def _drive(self, order: Any) -> Awaitable[AgentResult]:
        raise NotImplementedError

    def _sync(self, order: Any) -> AgentResult:
        raise NotImplementedError

    def _stream(self, order: Any) -> EventStream:
        raise NotImplementedError
