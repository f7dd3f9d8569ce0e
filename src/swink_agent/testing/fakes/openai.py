"""A strict fake of OpenAI's chat completions: which models accept which options, and the form of errors."""

from __future__ import annotations

import re
from typing import Any

from .kit.chat import ChatChunks, ChatRules, chat_api
from .kit.checks import string

_REASONING = re.compile(r"(?:^|/)(?:o\d|gpt-5(?!-chat)|gpt-[6-9]|gpt-oss)")
_NOT_REASONING = re.compile(r"(?:^|/)(?:gpt-[34]|chatgpt)")
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")


class OpenAiRules(ChatRules):
    """OpenAI's rules, which Azure shares. If the name is not that of a model, as with deployments, all options pass."""

    def check_options(self, body: dict[str, Any], found: list[str]) -> None:
        super().check_options(body, found)
        model, effort = string(body.get("model")), body.get("reasoning_effort")
        if effort is not None and effort not in _EFFORTS:
            found.append(f"reasoning_effort: {effort!r} is not one of {', '.join(_EFFORTS)}")
        if effort is not None and _NOT_REASONING.search(model):
            found.append(f"reasoning_effort: not supported by {model}")
        if _REASONING.search(model) and body.get("max_tokens") is not None:
            found.append(f"max_tokens: not supported by {model}; use max_completion_tokens instead")


problems = OpenAiRules().problems
"""Lists what OpenAI would reject in the body of a request, in the order of its checks."""


def error(status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = "invalid_api_key" if status == 401 else None
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


API = chat_api(OpenAiRules(), ChatChunks(), error)
