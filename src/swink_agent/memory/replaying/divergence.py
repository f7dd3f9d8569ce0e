"""Compares messages of a replay with the recorded ones, and reports the first difference.

Owns the comparison and the report. Time, model, usage and cost of a message are not compared: an agent does not decide
them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import structs

from swink_agent.core import types
from swink_agent.core.secrets.redaction import Redactor
from swink_agent.core.values.data import as_json
from swink_agent.core.values.value import Value, show

_MOST_LINES = 40
_LONGEST_LINE = 200

_SAME_IN_ANY_WORDS = frozenset({types.ToolOutcome.UNKNOWN_TOOL, types.ToolOutcome.CANCELLED})
"""Outcomes whose text is not compared: it lists the other tools, or repeats why the run was interrupted."""

_DIGEST = re.compile(rb"(\[redacted:[A-Za-z0-9_.-]{1,40}):[0-9a-f]{8}\]")
"""A placeholder. Its last part depends on the redactor's key."""

Compared: TypeAlias = types.AgentMessage | types.ToolCall


class Divergence(Value, frozen=True, kw_only=True):
    """The first place where a replay differs from the recording."""

    position: int
    """The index of the message in the history, from 0."""
    expected: Compared | None = None
    """The recorded message, or the recorded call of a tool; `None` if the recording has nothing there."""
    actual: Compared | None = None
    """The message or call of the replay; `None` if the replay has nothing there."""
    reason: str = ""
    """A description of the difference."""
    run: int = 0
    """The index of the run in the session, from 0."""

    def __str__(self) -> str:
        # For people, who count from 1, as `swink sessions show` does.
        where = f"message {self.position + 1}, in run {self.run + 1}: {self.reason}"
        return "\n".join([where, *self.difference])

    @property
    def difference(self) -> list[str]:
        """The lines of a diff from the recording to the replay; empty if neither has anything there."""
        if self.expected is None and self.actual is None:
            return []
        lines = list(_lines(self.expected)), list(_lines(self.actual))
        diff = list(difflib.unified_diff(*lines, "recorded", "replayed", lineterm="", n=3))
        if not diff:  # they look the same
            diff = ["--- recorded", f"-{show(self.expected)}", "+++ replayed", f"+{show(self.actual)}"]
        if len(diff) > _MOST_LINES:
            diff = [*diff[:_MOST_LINES], f"… and {len(diff) - _MOST_LINES} lines more"]
        return diff


class ReplayReport(Value, frozen=True, kw_only=True):
    """The outcome of a replay."""

    divergence: Divergence | None = None
    """The first difference, or `None`."""
    messages: int = 0
    """How many messages of the recording were reproduced, prompts and queued messages included."""
    total: int = 0
    """How many messages the recording has, where its history is longest."""
    runs: int = 0
    """How many runs were replayed or begun."""

    def __str__(self) -> str:
        if self.divergence is None:
            runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
            return f"the same {self.messages} message{'s' * (self.messages != 1)} in {runs}"
        return f"the replay differs after {self.messages} of {self.total} messages\n{self.divergence}"


class Comparison:
    """Compares what an agent does with a recording.

    A recording holds masked JSON, so two values are equal if their masked JSON is. Placeholders are equal even if
    different keys made them.
    """

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = Redactor() if redactor is None else redactor

    def is_same(self, expected: types.AgentMessage, actual: types.AgentMessage, answer_tool: str | None = None) -> bool:
        """Whether two messages are the same in content, stop reason, outcome and errors. Errors of `answer_tool`, the
        tool that takes the structured output, are always the same."""
        if type(expected) is not type(actual):
            return False
        if isinstance(expected, types.UserMessage) and isinstance(actual, types.UserMessage):
            return self.is_equal(expected.content, actual.content)
        if isinstance(expected, types.AssistantMessage) and isinstance(actual, types.AssistantMessage):
            return (
                self.is_equal(_streamed(expected), _streamed(actual))
                and expected.stop_reason == actual.stop_reason
                and expected.error_kind == actual.error_kind
                and self.is_equal(expected.error_message or "", actual.error_message or "")
            )
        if isinstance(expected, types.ToolResultMessage) and isinstance(actual, types.ToolResultMessage):
            return self._is_same_result(expected, actual, answer_tool)
        return self.is_equal(_timeless(expected), _timeless(actual))

    def is_equal(self, expected: Any, actual: Any) -> bool:
        """Whether two values are the same once they are recorded."""
        return expected == actual or self._on_record(expected) == self._on_record(actual)

    def _on_record(self, value: Any) -> Any:
        data = as_json(self._redactor.redact_value(value))
        return msgspec.json.decode(_DIGEST.sub(rb"\1]", data))

    def _is_same_result(
        self, expected: types.ToolResultMessage, actual: types.ToolResultMessage, answer_tool: str | None
    ) -> bool:
        if (expected.tool_call_id, expected.is_error) != (actual.tool_call_id, actual.is_error):
            return False
        if not self.is_equal(expected.tool_name, actual.tool_name):
            return False
        if expected.is_error and expected.tool_name == answer_tool:
            return True  # the replay has another schema, which reports other errors
        if expected.outcome in _SAME_IN_ANY_WORDS:
            return actual.outcome is expected.outcome
        # A call that never ran, because a disk was full or a strategy failed, gets a stand-in's result in the replay.
        has_same_outcome = expected.outcome == actual.outcome or expected.outcome is types.ToolOutcome.NEVER_RAN
        return has_same_outcome and self.is_equal(expected.content, actual.content)


def _streamed(message: types.AssistantMessage) -> list[Any]:
    return [block for block in message.content if not isinstance(block, types.Extension)]


def _timeless(message: Any) -> Any:
    return structs.replace(message, timestamp=0) if "timestamp" in message.__struct_fields__ else message


# -- for people ----------------------------------------------------------------------------------------------


def _lines(compared: Compared | None) -> Iterator[str]:
    """A message as lines that show what is compared."""
    for text in _texts(compared):
        for line in text.splitlines() or [""]:
            yield line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"


def _texts(compared: Compared | None) -> Iterator[str]:
    match compared:
        case None:
            yield "(nothing)"
        case types.ToolCall():
            yield _called(compared)
        case types.UserMessage():
            yield "user:"
            yield from map(_shown, compared.content)
        case types.AssistantMessage():
            yield f"assistant ({compared.stop_reason.value}):"
            yield from map(_shown, compared.content)
            if compared.error_message:
                yield f"error: {compared.error_message}"
        case types.ToolResultMessage():
            yield f"result of {compared.tool_name or compared.tool_call_id} ({compared.outcome.value}):"
            yield from map(_shown, compared.content)
        case types.CustomMessage():
            yield show(compared)


def _shown(block: object) -> str:
    match block:
        case types.Text():
            return block.text
        case types.Thinking():
            return f"thinking: {block.thinking}"
        case types.ToolCall():
            return _called(block)
        case _:
            return show(block)


def _called(call: types.ToolCall) -> str:
    if call.partial_json is not None:
        return f"call {call.name} {call.partial_json}"
    arguments = msgspec.json.decode(as_json(call.arguments))  # as it would be on record
    return f"call {call.name} {msgspec.json.encode(arguments, order='sorted').decode()}"
