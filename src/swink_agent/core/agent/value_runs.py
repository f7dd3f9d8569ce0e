"""The methods that run an agent and return a value of a given shape. `structured` asks the model for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar, Unpack, overload

from ..output import ValueStream, view_of_value
from ..values.value import Deps
from .arguments import Prompt, prompts_of
from .options import PromptOptions, ValueOptions
from .running import Order, Running
from .structured import StructuredOutput, StructuredResult

T = TypeVar("T")
PromptOrAnswers: TypeAlias = Prompt | Mapping[str, Any]
Schema: TypeAlias = dict[str, Any]


class ValueRuns(Running[Deps]):
    """The part of `Agent` for structured values."""

    __slots__ = ()

    @overload
    async def structured_run(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> StructuredResult[T]: ...
    @overload
    async def structured_run(
        self, prompt: PromptOrAnswers, target: Schema, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> StructuredResult[Schema]: ...
    @overload
    async def structured_run(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> StructuredResult[Any]: ...
    async def structured_run(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> StructuredResult[Any]:
        """Returns a value that the model gives, with usage, cost and messages: JSON for a JSON Schema (a dict), an
        instance for a type.

        If the model's provider accepts a JSON Schema, it gets the schema; otherwise a tool takes the value. An answer
        that does not fit goes back to the model with its errors. `validate` checks a value that fits: one function or
        several, plain or async; the `ValueError` that one raises goes back to the model too.

        Raises `StructuredOutputFailed` if the first answer and `max_retries` further ones do not fit, or if a policy
        stops the run before that. Otherwise raises the error of the run, or an exception of `validate` that is not a
        `ValueError`.
        """
        request = self._request(target, max_retries, given)
        return request.result_of(await self._drive(self._value_order(given, prompt, request)))

    @overload
    def structured_run_sync(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> StructuredResult[T]: ...
    @overload
    def structured_run_sync(
        self, prompt: PromptOrAnswers, target: Schema, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> StructuredResult[Schema]: ...
    @overload
    def structured_run_sync(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> StructuredResult[Any]: ...
    def structured_run_sync(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> StructuredResult[Any]:
        """The same for code that is not async."""
        request = self._request(target, max_retries, given)
        return request.result_of(self._sync(self._value_order(given, prompt, request)))

    @overload
    def structured_stream(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> ValueStream[T]: ...
    @overload
    def structured_stream(
        self, prompt: PromptOrAnswers, target: Schema, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> ValueStream[Schema]: ...
    @overload
    def structured_stream(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> ValueStream[Any]: ...
    def structured_stream(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> ValueStream[Any]:
        """Returns the same run as a stream of the value as it grows; `result()` gives what `structured_run` returns."""
        request = self._request(target, max_retries, given)
        order = self._value_order(given, prompt, request)
        order.view = view_of_value(request)
        return ValueStream(self._stream(order), request)

    @overload
    async def structured_output(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> T: ...
    @overload
    async def structured_output(
        self, prompt: PromptOrAnswers, target: Schema, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> Schema: ...
    @overload
    async def structured_output(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> Any: ...
    async def structured_output(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> Any:
        """Returns only the value of a `structured_run`."""
        return (await self.structured_run(prompt, target, max_retries, **given)).value

    @overload
    def structured_output_sync(
        self, prompt: PromptOrAnswers, target: type[T], max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> T: ...
    @overload
    def structured_output_sync(
        self, prompt: PromptOrAnswers, target: Schema, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> Schema: ...
    @overload
    def structured_output_sync(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> Any: ...
    def structured_output_sync(
        self, prompt: PromptOrAnswers, target: Any, max_retries: int = 3, **given: Unpack[ValueOptions[Deps]]
    ) -> Any:
        """The same for code that is not async."""
        return self.structured_run_sync(prompt, target, max_retries, **given).value

    def _request(self, target: Any, max_retries: int, given: ValueOptions[Deps]) -> StructuredOutput:
        return StructuredOutput(target, max_retries, given.pop("validate", ()))

    def _value_order(self, given: PromptOptions[Deps], prompt: PromptOrAnswers, request: StructuredOutput) -> Order:
        if isinstance(prompt, Mapping):
            return self._order(given, None, request, prompt)
        return self._order(given, prompts_of(prompt, given), request)
