"""xAI's chat completions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from swink_agent.core.stream import StreamOptions
from swink_agent.core.types import ModelSpec, ThinkingLevel

from . import registry
from .kit.bodies import short_id
from .kit.schemas import SchemaSubset
from .kit.transport import HttpRequest
from .openai import OpenAiStreamFn

_FIXED_EFFORT = re.compile(r"grok-2|grok-3(?!-mini)|grok-4(?![.\d])|grok-code")
"""Models that refuse a setting for their effort."""
_WITH_SCHEMA_AND_TOOLS = re.compile(r"(?:.*/)?grok-(?:[4-9]|\d\d)")
"""Models that take tools next to the JSON Schema of their reply."""


class XAiStreamFn(OpenAiStreamFn):
    """Grok, by chat completions. Its Responses endpoint is reached with `OpenAiResponsesStreamFn` and a `base_url`."""

    description = registry.xai
    kin: ClassVar[frozenset[str]] = frozenset()
    default_url: ClassVar[str] = "https://api.x.ai/v1"
    schemas: ClassVar[SchemaSubset] = SchemaSubset(frozenset({"title"}), formats=frozenset())

    def native_schema(self, model: ModelSpec, schema: dict[str, Any], has_tools: bool) -> bool:
        is_able = not has_tools or _WITH_SCHEMA_AND_TOOLS.match(model.model_id) is not None
        return is_able and super().native_schema(model, schema, has_tools)

    def session_fields(self, options: StreamOptions) -> dict[str, Any]:
        return {}

    def request(self, url: str, fields: Mapping[str, Any], options: StreamOptions) -> HttpRequest:
        """Sends the session as a header: it selects the server that has the conversation in its cache."""
        if options.session_id and options.cache == "auto":
            session = {"x-grok-conv-id": short_id(options.session_id, "session")}
            options = msgspec.structs.replace(options, headers={**session, **options.headers})
        return super().request(url, fields, options)

    def thinking(self, model: ModelSpec) -> dict[str, Any]:
        if model.thinking_level == ThinkingLevel.OFF or _FIXED_EFFORT.match(model.model_id):
            return {}
        is_low = model.thinking_level in (ThinkingLevel.MINIMAL, ThinkingLevel.LOW)
        return {"reasoning_effort": "low" if is_low else "high"}
