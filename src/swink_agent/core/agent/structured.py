"""Structured output: a run that ends with a value of a given shape.

Owns both ways to ask for one. A model whose provider takes a JSON Schema for the reply answers in text; any other model
must call a synthetic tool. The stream function decides this for each request. A `StructuredOutput` serves one run.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from copy import copy
from typing import Any, Generic, TypeAlias, TypeVar, cast

import msgspec
from msgspec.structs import replace

from ..approval import PendingCall
from ..errors import ErrorKind, PolicyFailed, StructuredOutputFailed, described
from ..policy import Inject, PolicyContext, Stop, Verdict
from ..schemas.schema import ValueSchema
from ..schemas.validation import compile_schema, describe_problems
from ..stream import StreamFailed, StreamFn, StreamOptions
from ..tool import AgentTool, AgentToolResult, Toolbox, ToolContext
from ..types import (
    AgentMessage,
    AgentResult,
    AssistantMessage,
    Cost,
    ModelSpec,
    StopReason,
    Usage,
    UserMessage,
    extract_text,
)
from ..values.checks import check_whole, is_function, is_not
from ..values.data import as_json_data
from ..values.nesting import is_too_deep
from ..values.value import Value

T = TypeVar("T")
_MAX_RETRIES = 3  # as in `structured_run`
ValidateFn: TypeAlias = Callable[[T], None | Awaitable[None]]
"""Checks a value that fits its schema and type. A `ValueError` goes back to the model, which tries again."""


class StructuredResult(Value, Generic[T], frozen=True):
    """A value that a model gave, and the run that led to it."""

    result: AgentResult[T]
    """How the run ended."""
    answer: T | None = None
    """The value; `None` while calls wait."""
    attempts: int = 0
    """How many answers the model gave in this run: 1 if the first one was valid."""

    @property
    def value(self) -> T:
        """The value. Raises `StructuredOutputFailed` while calls wait for an answer: there is no value yet."""
        if self.pending:
            names = ", ".join([call.name for call in self.pending])
            raise StructuredOutputFailed(self.attempts, f"the run waits for an answer about these calls: {names}")
        return cast("T", self.answer)

    @property
    def usage(self) -> Usage:
        """The usage of the run, without its delegates: `result.total_usage` includes them."""
        return self.result.usage

    @property
    def cost(self) -> Cost:
        """The cost of the run, without its delegates: `result.total_cost` includes them."""
        return self.result.cost

    @property
    def messages(self) -> tuple[AgentMessage, ...]:
        """Every message that the run added to the history."""
        return self.result.messages

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls that wait for an answer."""
        return self.result.pending


def answer_tool_name(taken_names: Container[str]) -> str:
    """Returns the name of the tool that takes the answer, in an agent whose tools have these names."""
    name = "final_answer"
    while name in taken_names:
        name += "_"
    return name


def is_object_schema(schema: dict[str, Any]) -> bool:
    """Whether the schema describes an object, so that its values need not be wrapped in one."""
    return schema.get("type", "object" if "properties" in schema else None) == "object"


class StructuredOutput:
    """One request for a value: the tool that takes it, and the last policy of the run, which ends it, in one object."""

    label = "Answer"
    requires_approval = False
    on_steer = "finish"

    def __init__(
        self, target: Any, max_retries: int, validate: ValidateFn[Any] | Sequence[ValidateFn[Any]] = ()
    ) -> None:
        check_whole("max_retries", max_retries, least=0)
        self.target = target
        self._validators = _as_validators(validate)
        self._type = None if isinstance(target, dict) else ValueSchema(target)
        schema = cast("dict[str, Any]", target) if self._type is None else self._type.schema
        self.schema = schema  # the caller's schema, or that of the caller's type
        # A tool's arguments are an object, so any other value is wrapped in one.
        self.is_wrapped = not is_object_schema(schema)
        if self.is_wrapped:
            schema = _wrapped(schema)
        try:
            self._validator = compile_schema(schema)
        except ValueError as error:
            raise ValueError(f"the schema for structured output cannot be used: {error}") from error
        self.name = answer_tool_name(())
        self.description = "Gives the final answer. Call it exactly once, when the answer is known."
        self.parameters_schema = schema
        self.max_retries = max_retries
        self.attempts = 0  # how many answers did not fit
        self.last_error = "the model never tried"
        self._values: list[Any] = []
        self.given: Any = None  # the accepted answer as JSON
        self._failure: Exception | None = None
        """An exception of a validator other than `ValueError`: a mistake of the application, not of the model."""
        self._native: dict[tuple[str, str, int, bool], bool] = {}
        """Whether a model takes the schema itself, by model, stream function and whether there are other tools."""
        self.is_native = False  # whether the last request had the schema, and not the tool
        self._is_refused = False  # whether a provider refused the schema: from then on, the tool takes the answer
        self.given_text: str | None = None
        """The text of the last reply as the model gave it, if masks may have changed the message."""
        self._has_stopped = False  # whether it has ended the run, with a value or without one
        self._heard: AssistantMessage | None = None  # the last reply whose text was taken as an answer

    def again(self) -> StructuredOutput:
        """Returns the same request for another run. This one has had none."""
        other = copy(self)
        other._values, other._native = [], {}
        return other

    # -- the request -------------------------------------------------------------------------------------------

    def beside(self, toolbox: Toolbox) -> Toolbox:
        """Returns these tools together with this one, under a name that none of them has."""
        self.name = answer_tool_name(toolbox)
        return Toolbox((*toolbox.tools, self))

    def asked_of(
        self, model: ModelSpec, stream_fn: StreamFn, options: StreamOptions, tools: tuple[AgentTool, ...]
    ) -> tuple[StreamOptions, tuple[AgentTool, ...]]:
        """Returns the options and tools of a request to this model: with the schema, or with the tool."""
        others = tuple([tool for tool in tools if tool is not self])
        self.is_native = not self._is_refused and self._takes_schema(model, stream_fn, has_tools=bool(others))
        if not self.is_native:
            return replace(options, tool_choice="required" if others else self.name), tools
        choice = options.tool_choice if options.tool_choice in ("auto", "none") else "auto"
        return replace(options, tool_choice=choice, output_schema=self.parameters_schema), others

    def _takes_schema(self, model: ModelSpec, stream_fn: StreamFn, *, has_tools: bool) -> bool:
        ask = getattr(stream_fn, "native_schema", None)
        if ask is None:
            return False
        key = (model.provider, model.model_id, id(stream_fn), has_tools)
        if key not in self._native:
            self._native[key] = bool(ask(model, self.parameters_schema, has_tools))
        return self._native[key]

    def goes_on_with_tool(self, failure: StreamFailed) -> bool:
        """Whether to repeat a request with the tool, because the provider refused the schema."""
        if not self.is_native or failure.kind != ErrorKind.INVALID_REQUEST:
            return False
        message = failure.message.lower()
        self._is_refused = "schema" in message or "format" in message
        return self._is_refused

    # -- the answer --------------------------------------------------------------------------------------------

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Accepts the first valid answer."""
        problem = await self._take(arguments)
        if problem is not None:
            return AgentToolResult.error(f"invalid arguments for {self.name}: {problem}")
        return AgentToolResult.text("accepted")

    async def _take(self, arguments: dict[str, Any]) -> str | None:
        """Takes an answer that fits the schema; returns what else is wrong with it, or `None`."""
        value = given = arguments["value"] if self.is_wrapped else arguments
        if self._type is not None:
            try:
                value = self._type.convert(value)
            except Exception as error:  # a type may check its values in its own code
                return str(error) or type(error).__name__
        try:
            for validate in self._validators:
                answer = validate(value)
                if inspect.isawaitable(answer):
                    await answer
        except ValueError as error:
            return str(error) or type(error).__name__
        except Exception as error:
            self._failure = error
            return "it could not be checked"
        if not self._values:
            self.given = as_json_data(given)
        self._values.append(value)
        return None

    async def hear(self, message: AssistantMessage | None) -> str | None:
        """Takes a reply in text as the answer, if the request had the schema; returns the problem, or `None`.

        Returns an empty string if the reply is not an answer.
        """
        if message is None or message is self._heard or message.is_failed or message.tool_calls:
            return ""
        self._heard = message
        if not self.is_native:
            return f"it answered in text, without {self.name}"
        try:
            data: Any = msgspec.json.decode(message.text if self.given_text is None else self.given_text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            is_cut = message.stop_reason is StopReason.LENGTH
            return "it was cut off at the length limit" if is_cut else f"it is not JSON: {error}"
        if is_too_deep(data):
            return "it is nested too deep"
        if not self._validator.is_valid(data):
            return describe_problems(self._validator, data)
        return await self._take(data)

    @property
    def has_value(self) -> bool:
        return bool(self._values)

    async def post_turn(self, ctx: PolicyContext) -> Verdict:
        """Ends the run when there is an answer, or after too many attempts."""
        tries = [result for result in ctx.tool_results if result.tool_name == self.name]
        problem = None if self._values else extract_text(tries[-1].content) if tries else await self.hear(ctx.message)
        if self._values:
            return self._stop("the answer was given")
        if self._failure is not None:
            return self._stop("the answer could not be checked")
        if not problem:
            return None  # the model still works with other tools, or the reply failed
        self.attempts += 1
        if not tries and ctx.redactor is not None:
            problem = ctx.redactor.redact(problem)  # as in tool results
        self.last_error = problem
        if self.attempts > self.max_retries:
            return self._stop("too many invalid answers")
        if tries:
            return None  # the tool's result already shows the errors to the model
        if self.is_native:
            return Inject(UserMessage(f"The answer does not fit: {problem}. Answer again, with the JSON value alone."))
        return Inject(UserMessage(f"Answer by calling the tool {self.name}, not in text."))

    def _stop(self, reason: str) -> Stop:
        self._has_stopped = True
        return Stop(reason)

    # -- the result --------------------------------------------------------------------------------------------

    def as_told(self, result: AgentResult) -> AgentResult:
        """Returns the result as the caller gets it: that the run ended with the value, or without one after too many
        attempts, is not a policy's stop. Events and records have it as one."""
        result = replace(result, output_fn=self._output)
        stop = result.stopped_by
        if stop is None or not self._has_stopped or stop.policy != self.name:
            return result
        if self._values:
            return replace(result, stopped_by=None)
        failed = self._failed()
        return replace(result, stopped_by=None, exception=failed, error=str(failed), stop_reason=StopReason.ERROR)

    def _output(self) -> Any:
        if self._values:
            return self._values[0]
        raise self._failed()

    def _failed(self) -> StructuredOutputFailed:
        if self._failure is None:
            return StructuredOutputFailed(self.attempts, self.last_error)
        failed = StructuredOutputFailed(self.attempts, f"it could not be checked: {described(self._failure)}")
        failed.__cause__ = self._failure
        return failed

    def result_of(self, result: AgentResult) -> StructuredResult[Any]:
        """Returns the value that the run gave. Raises the run's error, the stop of a policy, or
        `StructuredOutputFailed`."""
        found: StructuredResult[Any] = StructuredResult(result, attempts=self.attempts)
        if found.pending:
            return found
        if isinstance(result.exception, PolicyFailed):
            raise result.exception
        if self._values:
            return replace(found, answer=self._values[0], attempts=self.attempts + 1)
        if self._failure is not None:
            raise self._failure
        result.raise_for_error()
        raise self._failed()


def output_request(output: Any) -> StructuredOutput | None:
    """Returns the request for a value of this type; `None` for text. Raises what `StructuredOutput` raises."""
    return None if output is None or output is str else StructuredOutput(output, _MAX_RETRIES)


def _as_validators(given: ValidateFn[Any] | Sequence[ValidateFn[Any]]) -> tuple[ValidateFn[Any], ...]:
    if not callable(given) and not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise is_not("validate", given, "a function, or a list of them")
    validators = (given,) if callable(given) else tuple(given)
    for validate in validators:
        if not is_function(validate):
            raise is_not("validate", validate, "a function, or a list of them")
    return validators


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of an object with the value in `value`. Definitions move to its root, where providers look."""
    inner = cast("dict[str, Any]", _moved(schema))
    wrapper: dict[str, Any] = {"type": "object", "properties": {"value": inner}, "required": ["value"]}
    for name in ("$defs", "definitions"):
        if name in inner:
            wrapper[name] = inner.pop(name)
    return wrapper


def _moved(schema: Any) -> Any:
    """Returns the schema with its references to itself adapted to the object that wraps it."""
    if isinstance(schema, list):
        return [_moved(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(value) for key, value in cast("dict[str, Any]", schema).items()}
    reference = moved.get("$ref")
    # Definitions stay at the root.
    if isinstance(reference, str) and re.match(r"#($|/(?!\$defs/|definitions/))", reference):
        moved["$ref"] = "#/properties/value" + reference[1:]
    return moved
