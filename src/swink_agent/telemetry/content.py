"""Messages, calls and results as the JSON that the conventions require in span attributes, masked and cut.

Used only if the application asked for content.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, assert_never

import msgspec

from swink_agent.core import types
from swink_agent.core.secrets.redaction import Redactor

_MOST_BYTES = 64 * 1024
_FINISH_REASONS = {types.StopReason.TOOL_USE: "tool_call", types.StopReason.ABORTED: "error"}


def as_attribute(value: Any, redactor: Redactor) -> str:
    """Returns the value as JSON, or a text unchanged: masked first, then cut to 64 KiB."""
    masked = redactor.redact_value(value)
    text = masked if isinstance(masked, str) else _json(masked)
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= _MOST_BYTES else encoded[:_MOST_BYTES].decode(errors="ignore")


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError):  # half a character, or a number that msgspec does not write
        return json.dumps(value, default=repr)


def system_instructions(prompt: str) -> list[dict[str, Any]]:
    return [{"type": "text", "content": prompt}]


def input_messages(messages: Sequence[types.AgentMessage]) -> list[dict[str, Any]]:
    """Returns the messages of a request. Messages of the application's own types are left out: they were not sent."""
    return [message for message in map(_message, messages) if message is not None]


def output_messages(message: types.AssistantMessage) -> list[dict[str, Any]]:
    reason = _FINISH_REASONS.get(message.stop_reason, str(message.stop_reason))
    return [{"role": "assistant", "parts": [_part(block) for block in message.content], "finish_reason": reason}]


def tool_result(content: Sequence[types.UserBlock]) -> Any:
    """Returns the text of a result; with images or documents, its parts."""
    if all(type(block) is types.Text for block in content):
        return "\n".join(block.text for block in content if type(block) is types.Text)
    return [_part(block) for block in content]


def _message(message: types.AgentMessage) -> dict[str, Any] | None:
    match message:
        case types.UserMessage():
            return {"role": "user", "parts": [_part(block) for block in message.content]}
        case types.AssistantMessage():
            return {"role": "assistant", "parts": [_part(block) for block in message.content]}
        case types.ToolResultMessage():
            response = {"type": "tool_call_response", "id": message.tool_call_id}
            return {"role": "tool", "parts": [{**response, "response": tool_result(message.content)}]}
        case _:
            return None


def _part(block: types.UserBlock | types.AssistantBlock) -> dict[str, Any]:
    match block:
        case types.Text():
            return {"type": "text", "content": block.text}
        case types.Thinking():
            return {"type": "reasoning", "content": block.thinking}
        case types.ToolCall():
            return {"type": "tool_call", "id": block.id, "name": block.name, "arguments": block.arguments}
        case types.Image():
            return {"type": "blob", "modality": "image", "mime_type": block.source.media_type}
        case types.Document():
            return {"type": "blob", "modality": "document", "mime_type": "application/pdf"}
        case types.Extension():
            return {"type": "extension"}
        case _:
            assert_never(block)
