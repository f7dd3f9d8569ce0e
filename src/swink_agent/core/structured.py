"""Structured output: a run that ends with a value of a given shape.

Owns the synthetic tool that the model must call, and the policy that counts its attempts. It exists for one run and
leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, cast

from .errors import StructuredOutputFailed
from .policy import Inject, PolicyContext, Stop, Verdict
from .schemas.schema import ValueSchema
from .schemas.validation import compile_schema
from .tool import AgentToolResult, Toolbox, ToolContext
from .turn import TurnTools
from .types import AgentResult, UserMessage, extract_text
from .values.value import frozen_json

__all__ = ["StructuredOutput", "answer_tool_name"]


def answer_tool_name(taken_names: Container[str]) -> str:
    """The name of the tool that takes the answer, in an agent whose tools have these names."""
    name = "final_answer"
    while name in taken_names:
        name += "_"
    return name


class StructuredOutput:
    """One request for a value: the tool that takes it and the policy that ends the run, in one object."""

    label = "Answer"
    requires_approval = False
    on_steer = "finish"

    def __init__(self, target: Any, max_retries: int) -> None:
        if max_retries < 0:
            raise ValueError(f"max_retries is {max_retries}; it counts the attempts after the first, so 0 or more")
        self._type = None if isinstance(target, dict) else ValueSchema(target)
        schema = cast("dict[str, Any]", target) if self._type is None else self._type.schema
        self.schema = schema
        """The caller's schema, or that of the caller's type."""
        # A tool's arguments are an object, so any other value is wrapped in one.
        self._is_wrapped = schema.get("type", "object" if "properties" in schema else None) != "object"
        if self._is_wrapped:
            schema = {"type": "object", "properties": {"value": _moved(schema)}, "required": ["value"]}
        try:
            compile_schema(schema)
        except ValueError as error:
            raise ValueError(f"the schema for structured output cannot be used: {error}") from error
        self.name = answer_tool_name(())
        self.description = "Gives the final answer. Call it exactly once, when the answer is known."
        self.parameters_schema = schema
        self.max_retries = max_retries
        self.attempts = 0
        self.last_error = "the model never tried"
        self._values: list[Any] = []
        self.given: Any = None
        """The accepted answer as JSON."""

    def beside(self, toolbox: Toolbox) -> Toolbox:
        """Returns these tools and this one, under a name that none of them has."""
        self.name = answer_tool_name(toolbox)
        return Toolbox((*toolbox.tools, self))

    def choice_beside(self, tools: Toolbox | TurnTools) -> str:
        """Returns the `tool_choice` for requests with these tools and this one."""
        return self.name if isinstance(tools, Toolbox) and not tools else "required"

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        """Accepts the first valid answer."""
        value = given = arguments["value"] if self._is_wrapped else arguments
        if self._type is not None:
            try:
                value = self._type.convert(value)
            except ValueError as error:
                return AgentToolResult.error(f"invalid arguments for {self.name}: {error}")
        if not self._values:
            self.given = frozen_json(given)
        self._values.append(value)
        return AgentToolResult.text("accepted")

    @property
    def has_value(self) -> bool:
        return bool(self._values)

    def post_turn(self, ctx: PolicyContext) -> Verdict:
        """Ends the run when there is an answer, or after too many attempts."""
        if self._values:
            return Stop("the answer was given")
        tries = [result for result in ctx.tool_results if result.tool_name == self.name]
        spoke_instead = ctx.message is not None and not ctx.message.tool_calls
        if not tries and not spoke_instead:
            return None  # it is still working with other tools
        self.attempts += 1
        self.last_error = extract_text(tries[-1].content) if tries else f"it answered in text, without {self.name}"
        if self.attempts > self.max_retries:
            return Stop("too many invalid answers")
        if tries:
            return None  # the validation errors are the result that it sees
        return Inject(UserMessage(f"Answer by calling the tool {self.name}, not in text."))

    def value_of(self, result: AgentResult) -> Any:
        """Returns the value that the run gave. Raises the run's error, or `StructuredOutputFailed`."""
        if self._values:
            return self._values[0]
        stop = result.stopped_by
        if stop is None:
            result.raise_for_error()
        elif self.attempts <= self.max_retries:
            text = f"policy {stop.policy} stopped the run: {stop.reason}"
            raise StructuredOutputFailed(self.attempts, text, stop)
        raise StructuredOutputFailed(self.attempts, self.last_error)


def _moved(schema: Any) -> Any:
    """Returns the schema with its references to itself adapted to the object that wraps it."""
    if isinstance(schema, list):
        return [_moved(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(value) for key, value in cast("dict[str, Any]", schema).items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        moved["$ref"] = "#/properties/value" + reference[1:]
    return moved
