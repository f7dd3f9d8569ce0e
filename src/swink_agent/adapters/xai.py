"""xAI's chat completions."""

from __future__ import annotations

from typing import ClassVar

from .openai import OpenAiStreamFn

__all__ = ["XAiStreamFn"]


class XAiStreamFn(OpenAiStreamFn):
    """Grok, by chat completions. Its Responses endpoint is reached with `OpenAiResponsesStreamFn` and a `base_url`."""

    provider: ClassVar[str] = "xai"
    default_url: ClassVar[str] = "https://api.x.ai/v1"
    key_variable: ClassVar[str] = "XAI_API_KEY"
    url_variable: ClassVar[str] = "XAI_BASE_URL"
