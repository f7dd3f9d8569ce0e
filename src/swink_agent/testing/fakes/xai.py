"""A strict fake of xAI's chat completions, with their differences from OpenAI's."""

from __future__ import annotations

import re
from typing import Any

from swink_agent.core.types import Usage

from .kit.chat import ChatChunks, ChatRules, chat_api
from .kit.checks import SCHEMA_KEYWORDS, Shape, check_json_schema, check_keywords, string
from .kit.replies import new_id

_KEYWORDS = SCHEMA_KEYWORDS | {"minimum", "maximum"}
_EFFORTS = ("none", "low", "medium", "high")
_WITHOUT_EFFORT = re.compile(r"grok-(?:2|3(?!-mini)|4(?:-|$)|code|build|4\.20-(?!multi-agent)|.*non-reasoning)")


class _XaiRules(ChatRules):
    # xAI does not document that it refuses unknown fields, so they pass; reasoning may be sent back.
    body = Shape(ChatRules.body.fields, required=ChatRules.body.required, unknown=None)
    roles = {
        **{name: Shape(shape.fields, required=shape.required, unknown=None) for name, shape in ChatRules.roles.items()},
        "assistant": Shape({**ChatRules.roles["assistant"].fields, "reasoning_content": str}, unknown=None),
    }
    call_id = re.compile(r".+", re.DOTALL)
    call_id_form = "must be a string"
    takes_empty_content = False
    needs_tools = ()

    def check_options(self, body: dict[str, Any], found: list[str]) -> None:
        super().check_options(body, found)
        effort, model = body.get("reasoning_effort"), string(body.get("model"))
        if effort is None:
            return
        if effort not in _EFFORTS:
            found.append(f"reasoning_effort: {effort!r} is not one of {', '.join(_EFFORTS)}")
        if _WITHOUT_EFFORT.match(model):
            found.append(f"reasoning_effort: the model {model} does not support it")

    def check_output_schema(self, described: dict[str, Any], where: str, found: list[str]) -> None:
        """Checks the keywords alone: properties may be optional."""
        check_json_schema(described.get("schema"), f"{where}.schema", found)
        check_keywords(described.get("schema"), f"{where}.schema", _KEYWORDS, found)


class _XaiChunks(ChatChunks):
    def make_id(self) -> str:
        return new_id("call_", 8)

    def first_delta(self) -> dict[str, Any]:
        return {"role": "assistant"}

    def usage(self, usage: Usage) -> dict[str, Any]:
        """Counts reasoning separately from the completion, but in the total."""
        reasoning = usage.extra.get("reasoning", 0)
        counts = super().usage(usage)
        return {**counts, "completion_tokens": usage.output - reasoning}


problems = _XaiRules().problems
"""Lists what xAI would reject in the body of a request, in the order of its checks."""


def _error(status: int, message: str) -> dict[str, Any]:
    code = "Client specified an invalid argument" if status < 500 else "The service is currently unavailable"
    return {"code": code, "error": message}


API = chat_api(_XaiRules(), _XaiChunks(), _error, content_type="text/event-stream", refusal_status=400)
