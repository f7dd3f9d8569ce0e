"""Mistral's chat completions, and how they differ from OpenAI's.

Ids have exactly nine letters and digits, no user message may follow a tool message directly, tool messages may contain
images, a required call is `any`, a reply cannot be held to a JSON Schema next to tools, and content may come as a list
of parts, which the shared parser reads.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from swink_agent.core.types import AgentContext, Image, ModelSpec, Text, ToolResultMessage, UserMessage

from . import registry
from .openai import OpenAiStreamFn, is_silent

_ID = re.compile(r"[a-zA-Z0-9]{9}")
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_BRIDGE = msgspec.json.encode({"role": "assistant", "content": "I have the results."})


class MistralStreamFn(OpenAiStreamFn):
    """Mistral's models, by chat completions."""

    description = registry.mistral
    kin: ClassVar[frozenset[str]] = frozenset()
    default_url: ClassVar[str] = "https://api.mistral.ai"
    added_path: ClassVar[str] = "/v1"
    max_tokens_field: ClassVar[str] = "max_tokens"
    usage_fields: ClassVar[dict[str, Any]] = {}  # the usage always comes, with the last chunk

    def native_schema(self, model: ModelSpec, schema: dict[str, Any], has_tools: bool) -> bool:
        return not has_tools and super().native_schema(model, schema, has_tools)

    def thinking(self, model: ModelSpec) -> dict[str, Any]:
        return {}  # its reasoning models reason by themselves

    def tool_choice(self, choice: str) -> dict[str, Any]:
        return {"tool_choice": "any"} if choice == "required" else super().tool_choice(choice)

    def messages(self, context: AgentContext) -> list[bytes]:
        encoded = super().messages(AgentContext(context.system_prompt, ()))
        last: type | None = None
        for message in context.messages:
            if type(message) is ToolResultMessage:
                encoded.append(self.encoded.encode(message, self.tool_result))
            elif not is_silent(message):
                if last is ToolResultMessage and type(message) is UserMessage:
                    encoded.append(_BRIDGE)
                encoded.append(self.encoded.encode(message, self.message))
            else:
                continue
            last = type(message)
        return encoded

    def call_id(self, call_id: str) -> str:
        if _ID.fullmatch(call_id):
            return call_id
        number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:8], "big")
        letters: list[str] = []
        for _ in range(9):
            number, position = divmod(number, len(_LETTERS))
            letters.append(_LETTERS[position])
        return "".join(letters)

    def tool_result(self, message: ToolResultMessage) -> dict[str, Any]:
        fields = super().tool_result(message)
        if message.tool_name:
            fields["name"] = message.tool_name
        blocks: Sequence[Any] = message.content
        if any(type(block) is Image for block in blocks):
            opening = [Text("Error:")] if message.is_error else []
            shown = [block for block in blocks if type(block) in (Text, Image)]
            fields["content"] = self.user_content([*opening, *shown])
        return fields
