"""Scripted models: their replies are written in a file, case by case, so that a set runs without a key.

Owns the format of a script, and the stream function that plays replies. Recorded sessions are played by the same
function.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from swink_agent.core import types
from swink_agent.core.cancel import CancellationToken
from swink_agent.core.encoding.stream_writer import events_of
from swink_agent.core.errors import ErrorKind
from swink_agent.core.stream import AssistantMessageEvent, StreamFailed, StreamOptions
from swink_agent.core.values.decoders import converted
from swink_agent.core.values.value import Value

from ..errors import EvalSetError
from .documents import parse, read_text

ANY_CASE = "*"  # the entry of a script for cases without an entry


class ScriptedCall(Value, frozen=True, forbid_unknown_fields=True):
    """A call that the model makes."""

    name: Annotated[str, Meta(min_length=1)]
    arguments: dict[str, Any] = {}


class ScriptedReply(Value, frozen=True, forbid_unknown_fields=True):
    """One reply of the model: thinking, text and calls, or an error instead."""

    text: str = ""
    thinking: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    error: str = ""
    input: Annotated[int, Meta(ge=0)] = 0
    """Tokens of input that the provider reports."""
    output: Annotated[int, Meta(ge=0)] = 0
    cost: Annotated[float, Meta(ge=0)] = 0.0

    def message(self, number: int) -> types.AssistantMessage:
        """The reply as a message; `number` makes the ids of its calls unique."""
        content: list[types.AssistantBlock] = [types.Thinking(self.thinking)] if self.thinking else []
        content += [types.Text(self.text)] if self.text else []
        for index, call in enumerate(self.calls, 1):
            content.append(types.ToolCall(f"call_{number}_{index}", call.name, call.arguments))
        reason = (
            types.StopReason.ERROR if self.error else types.StopReason.TOOL_USE if self.calls else types.StopReason.STOP
        )
        return types.AssistantMessage(
            content,
            usage=types.Usage(self.input, self.output, total=self.input + self.output),
            cost=types.Cost(total=self.cost),
            stop_reason=reason,
            error_message=self.error or None,
            error_kind=ErrorKind.INVALID_REQUEST if self.error else None,
        )


class Script(Value, frozen=True, forbid_unknown_fields=True):
    """The replies of a model, by the id of the case; `*` is for all other cases."""

    replies: dict[str, tuple[str | ScriptedReply, ...]] = {}
    judge: str | None = None
    """The answer of a judge to each question, as JSON: `{"score": 1, "reasoning": "…"}`. In a file, the object itself
    is accepted too."""

    def replies_for(self, case_id: str) -> tuple[types.AssistantMessage, ...] | None:
        """The replies for a case, or `None` if the script has none."""
        written = self.replies.get(case_id, self.replies.get(ANY_CASE))
        if written is None:
            return None
        replies = [ScriptedReply(reply) if isinstance(reply, str) else reply for reply in written]
        return tuple([reply.message(number) for number, reply in enumerate(replies, 1)])


def load_script(path: str | os.PathLike[str]) -> Script:
    """Loads a script from a YAML or JSON file. Raises `EvalSetError`, with the line at fault if there is one."""
    document = parse(read_text(path), path, is_json=Path(path).suffix.lower() == ".json")
    data: Any = document.data
    fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    replies: object = fields.get("replies")
    for case_id, written in cast("dict[str, Any]", replies).items() if isinstance(replies, dict) else ():
        try:
            converted(written, tuple[str | ScriptedReply, ...])
        except msgspec.ValidationError as error:
            line = document.line(("replies", case_id))
            raise EvalSetError(f"the replies of {case_id!r}: {error}", path=path, line=line) from error
    judge: Any = fields.get("judge")
    if judge is not None and not isinstance(judge, (str, dict)):
        told = f"judge: Expected `str` or `object`, got `{type(judge).__name__}`"
        raise EvalSetError(told, path=path, line=document.line(("judge",)))
    if isinstance(judge, dict):
        data = {**fields, "judge": msgspec.json.encode(judge).decode()}
    try:
        if "replies" not in fields and judge is None:
            raise msgspec.ValidationError("it has neither replies nor a judge")
        return converted(data, Script)
    except msgspec.ValidationError as error:
        unknown = next((name for name in fields if name not in Script.__struct_fields__), None)
        line = document.line(() if unknown is None else (unknown,))
        raise EvalSetError(f"is not a script: {error}", path=path, line=line) from error


class ScriptedModel:
    """A stream function that gives the replies in order, one for each request, and fails after the last one.

    With `is_endless` it repeats the last one.
    """

    def __init__(
        self, replies: Sequence[types.AssistantMessage], source: str = "the script", *, is_endless: bool = False
    ) -> None:
        self._replies = tuple(replies)
        self._source = source
        self._is_endless = is_endless
        self._given = 0

    def __repr__(self) -> str:
        return f"<scripted model, {self._given} of {len(self._replies)} replies given>"

    async def __call__(
        self, model: types.ModelSpec, context: types.AgentContext, options: StreamOptions, cancel: CancellationToken, /
    ) -> AsyncIterator[AssistantMessageEvent]:
        position = self._given
        self._given += 1
        if self._is_endless:
            position = min(position, len(self._replies) - 1)
        if position >= len(self._replies):
            count = len(self._replies)
            told = f"{self._source} has {count} {'reply' if count == 1 else 'replies'}, this is request {position + 1}"
            yield StreamFailed(told, ErrorKind.INVALID_REQUEST)
            return
        for event in events_of(self._replies[position]):
            yield event
