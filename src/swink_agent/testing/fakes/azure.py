"""A strict fake of Azure OpenAI's chat completions: OpenAI's rules, at Azure's addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from swink_agent.testing.servers import ReceivedRequest

from .kit.api import needs_bearer
from .kit.chat import ChatChunks, chat_api
from .kit.checks import Shape
from .kit.replies import FakeReply, sse
from .openai import OpenAiRules, error


class _AzureRules(OpenAiRules):
    # The address of a deployment contains the model, so the body need not name it.
    body = Shape(OpenAiRules.body.fields, required=("messages",), unknown=OpenAiRules.body.unknown)


class _AzureChunks(ChatChunks):
    """The same chunks after one with only the filter's results for the prompt."""

    def stream(self, reply: FakeReply, model: str) -> Iterator[bytes]:
        filters = {"hate": {"filtered": False, "severity": "safe"}}
        results = [{"prompt_index": 0, "content_filter_results": filters}]
        yield sse({"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": results})
        yield from super().stream(reply, model)


problems = _AzureRules().problems
"""Lists what Azure would reject in the body of a request, in the order of its checks."""


def _refusal(request: ReceivedRequest, key: str) -> str | None:
    """Checks the key in its own header, or as a token from Entra."""
    return None if request.headers.get("api-key") == key else needs_bearer(request, key)


API = chat_api(
    _AzureRules(),
    _AzureChunks(),
    error,
    path=re.compile(
        r"/openai/v1/chat/completions(?:\?api-version=[a-z0-9-]+)?"
        r"|/openai/deployments/(?P<model>[^/?]+)/chat/completions\?api-version=[a-z0-9-]+"
    ),
    refusal=_refusal,
)
