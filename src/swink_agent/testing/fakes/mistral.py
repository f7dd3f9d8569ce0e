"""A strict fake of Mistral's chat completions, by the rules of Mistral's published validator, `mistral-common`.

It refuses unknown fields, requires ids of nine letters and digits, and checks the order of roles. When the model
thinks, the content is a list of parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .kit.chat import ChatChunks, ChatRules, chat_api
from .kit.checks import TOOL_NAME, Shape, check_names, mapping, objects, string
from .kit.replies import Block, FakeReply, new_id, pieces, sse

_FIELDS = (
    "model messages stream stream_options tools tool_choice parallel_tool_calls temperature top_p max_tokens"
    " response_format frequency_penalty presence_penalty n stop metadata prediction reasoning_effort prompt_cache_key"
)
_CONTENT = (str, list)
_FOLLOWERS = {
    "system": ("system", "user", "assistant"),
    "user": ("user", "assistant", "system"),
    "assistant": ("assistant", "user", "tool"),
    "tool": ("tool", "assistant"),
}


class _MistralRules(ChatRules):
    body = Shape(
        {
            **{name: ChatRules.body.fields[name] for name in _FIELDS.split()},
            "random_seed": int,
            "safe_prompt": bool,
            "prompt_mode": str,
            "guardrails": list,
        },
        required=("model", "messages"),
    )
    roles = {
        **dict.fromkeys(("system", "user"), Shape({"role": str, "content": _CONTENT}, required=("content",))),
        "assistant": Shape({"role": str, "content": _CONTENT, "tool_calls": list, "prefix": bool}),
        "tool": Shape(
            {"role": str, "content": _CONTENT, "tool_call_id": str, "name": str}, required=("content", "tool_call_id")
        ),
    }
    parts = {
        "system": ("text", "thinking"),
        "user": ("text", "image_url", "document_url", "input_audio", "reference", "file"),
        "assistant": ("text", "thinking", "reference"),
        "tool": ("text", "image_url", "document_url", "reference"),
    }
    call_id = re.compile(r"[a-zA-Z0-9]{9}")
    call_id_form = "must be a-z, A-Z, 0-9, with a length of 9"
    tool_choices = ("auto", "none", "any", "required")
    needs_tools = ()

    def check_format(self, body: dict[str, Any], found: list[str]) -> None:
        super().check_format(body, found)
        kind = mapping(body.get("response_format")).get("type")
        if kind in ("json_object", "json_schema") and body.get("tools"):
            found.append(f"Cannot use {kind} response type with tools.")

    def check_message(self, message: dict[str, Any], where: str, found: list[str]) -> None:
        super().check_message(message, where, found)
        if message.get("role") == "assistant" and not message.get("content") and not message.get("tool_calls"):
            found.append(f"{where}: an assistant message must have either content or tool_calls, but not none")
        if message.get("role") == "tool" and message.get("name") is not None:
            check_names([(f"{where}.name", message["name"])], TOOL_NAME, found)

    def check_part(self, part: dict[str, Any], role: str, where: str, found: list[str]) -> None:
        super().check_part(part, role, where, found)
        if part.get("type") == "thinking":
            Shape({"type": str, "thinking": list, "closed": bool}, required=("thinking",)).check(part, where, found)
            for path, chunk in objects(part.get("thinking"), f"{where}.thinking", found):
                super().check_part(chunk, "system", path, found)

    def check_order(self, messages: list[tuple[str, dict[str, Any]]], found: list[str]) -> None:
        before = ""
        for where, message in messages:
            role = string(message.get("role"))
            if before and role in _FOLLOWERS and role not in _FOLLOWERS.get(before, ()):
                found.append(f"{where}: unexpected role {role!r} after role {before!r}")
            before = role
        if before == "assistant" and messages[-1][1].get("prefix") is not True:
            found.append("messages: expected the last role to be user or tool (or assistant with prefix true)")


class _MistralChunks(ChatChunks):
    def make_id(self) -> str:
        return new_id("", 9)

    def deltas(self, block: Block, number: int) -> Iterator[dict[str, Any]]:
        """Sends a call in one piece, and thinking as parts."""
        if block.kind == "call":
            text = block.text if block.is_closed else block.text[:1]
            function = {"name": block.name, "arguments": text}
            yield {"tool_calls": [{"id": block.call_id, "function": function, "index": number}]}
            return
        for piece in pieces(block.text):
            if block.kind == "thinking":
                yield {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]}
            else:
                yield {"content": piece}

    def end(self, head: dict[str, Any], reply: FakeReply) -> Iterator[bytes]:
        """Sends the usage in the last chunk, not after it."""
        reason = {"stop": "stop", "length": "length", "tool_use": "tool_calls"}.get(reply.reason, "stop")
        yield self.chunk(head, {"content": ""}, reason, usage=self.usage(reply.usage))
        yield sse("[DONE]")


problems = _MistralRules().problems
"""Lists what Mistral would reject in the body of a request, in the order of its checks."""


def _error(status: int, message: str) -> dict[str, Any]:
    if status == 401:
        return {"detail": message}
    return {"object": "error", "message": message, "type": "invalid_request_error", "param": None, "code": "3051"}


API = chat_api(_MistralRules(), _MistralChunks(), _error)
