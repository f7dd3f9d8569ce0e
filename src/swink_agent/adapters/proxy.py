"""The proxy's client: a stream function that asks our proxy server, which asks the provider.

Defines the format that both share: one JSON document as the request, and server-sent stream events as the answer. It
contains no keys of providers, no headers and no partial messages.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field

from swink_agent.core.context.context import failed_before
from swink_agent.core.stream import (
    AssistantMessageEvent,
    StreamDone,
    StreamFailed,
    StreamOptions,
    TextDelta,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    prompt_text,
)
from swink_agent.core.tool import AgentToolResult, ToolContext
from swink_agent.core.types import AgentContext, Cost, LlmMessage, ModelSpec, Usage
from swink_agent.core.values.decoders import json_decoder

from . import registry
from .kit.bodies import EncodedMessages, json_array, json_object, short_id
from .kit.documents import UNREADABLE
from .kit.errors import NotConfigured
from .kit.frames import FrameError, FrameParser, ShapeError, SseFrames
from .kit.http import HttpStreamFn
from .kit.keyed import JSON_HEADERS
from .kit.transport import HttpRequest, Limits, Transport

PATH = "/v1/stream"


class ToolDescription(Struct, frozen=True, kw_only=True):
    """A tool as the proxy sees it: enough to describe it to a model, but not to run it."""

    name: str
    description: str = ""
    parameters_schema: dict[str, Any] = {}
    label: str = ""
    requires_approval: bool = False

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        raise RuntimeError(f"{self.name} runs where the agent runs, not at the proxy")


class ProxyOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options that are sent to the proxy: neither keys nor headers."""

    temperature: float | None = None
    max_tokens: int | None = None
    session_id: str | None = None
    tool_choice: str = "auto"
    cache: str = "auto"
    extra: dict[str, Any] = {}
    output_schema: dict[str, Any] | None = None
    web_search: bool = False


class ProxyRequest(Struct, frozen=True, kw_only=True):
    """The request of one call."""

    model: ModelSpec
    messages: list[LlmMessage]
    system_prompt: str = ""
    tools: list[ToolDescription] = []
    options: ProxyOptions = field(default_factory=ProxyOptions)
    answered: int = 0
    """How many of the messages came before a reply that failed, which is not one of the messages."""


class ProxyStreamFn(HttpStreamFn):
    """Any model through a proxy. The URL comes from `SWINK_PROXY_URL`, the token from `SWINK_PROXY_TOKEN`."""

    description = registry.proxy
    is_bound: ClassVar[bool] = False
    keeps_own_ids: ClassVar[bool] = True
    is_relay: ClassVar[bool] = True

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        transport: Transport | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(transport=transport, limits=limits)
        self.base_url = (base_url or os.environ.get("SWINK_PROXY_URL") or "").rstrip("/").removesuffix("/v1")
        self.address_source = "base_url" if base_url else "SWINK_PROXY_URL"
        self._token = api_key or os.environ.get("SWINK_PROXY_TOKEN") or None
        self.encoded = EncodedMessages()

    def serves(self, provider: str) -> bool:
        return True  # the proxy can ask any provider

    def searches_web(self, model: ModelSpec, has_tools: bool) -> bool:
        return True  # the proxy finds out

    def check(self, model: ModelSpec, options: StreamOptions) -> None:
        self._bearer(options)
        self.server()

    def _bearer(self, options: StreamOptions) -> str:
        token = options.api_key or self._token
        if not self.base_url:
            also = "" if token else " and SWINK_PROXY_TOKEN"
            raise NotConfigured(f"no address for the proxy: set SWINK_PROXY_URL{also}", "base_url")
        if token is None:
            raise NotConfigured("no token for the proxy: set SWINK_PROXY_TOKEN", "api_key")
        return token

    def build(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> HttpRequest:
        token = self._bearer(options)
        sent = {name: getattr(options, name) for name in ProxyOptions.__struct_fields__}
        if options.session_id:
            sent["session_id"] = short_id(options.session_id, "session")
        fields = {
            "model": _behind_the_proxy(model),
            "system_prompt": prompt_text(context.system_prompt),
            "tools": [
                ToolDescription(name=tool.name, description=tool.description, parameters_schema=tool.parameters_schema)
                for tool in context.tools
            ],
            "options": ProxyOptions(**sent),
            "answered": failed_before(context.messages) or None,
            "messages": json_array([self.encoded.encode(message, lambda same: same) for message in context.messages]),
        }
        headers = {**JSON_HEADERS, "authorization": f"Bearer {token}"}
        return HttpRequest(
            url=self.server() + PATH, headers=headers, body=json_object(fields), limits=self.limits_for(options)
        )

    def cost(self, model: ModelSpec, usage: Usage) -> Cost:
        return Cost()  # the proxy reports the cost

    def parser(self, model: ModelSpec, headers: dict[str, str]) -> ProxyParser:
        return ProxyParser()


def _behind_the_proxy(model: ModelSpec) -> ModelSpec:
    """`proxy:anthropic:claude` asks the proxy for `anthropic:claude`."""
    provider, colon, model_id = model.model_id.partition(":")
    if model.provider != "proxy" or not colon:
        return model
    return msgspec.structs.replace(model, provider=provider, model_id=model_id)


_decode_event = json_decoder(AssistantMessageEvent).decode


class ProxyParser(FrameParser[tuple[bytes, bytes]]):
    """Reads the proxy's stream events and writes them again, so that their order is always valid.

    The proxy reports the usage in the terminal event.
    """

    def __init__(self) -> None:
        super().__init__(SseFrames())

    def take(self, frame: tuple[bytes, bytes], /) -> None:
        payload = frame[1]
        if self.writer.is_finished or not payload.strip():
            return
        try:
            event = _decode_event(payload)
        except msgspec.ValidationError as error:
            raise ShapeError(f"an event that cannot be read: {error}") from error
        except UNREADABLE as error:
            raise FrameError(f"an event that cannot be read: {error}") from error
        writer = self.writer
        match event:
            case TextDelta():
                writer.text(event.delta)
            case ThinkingDelta():
                writer.thinking(event.delta)
            case ToolCallDelta():
                writer.arguments(event.index, event.delta)
            case ToolCallStart():
                writer.start_call(event.index, event.id, event.name)
            case ToolCallEnd():
                writer.end_call(event.index)
            case TextStart() | ThinkingStart():
                writer.end_speech()
            case ThinkingEnd():
                writer.signature(event.signature or "")
                writer.end_speech()
            case StreamDone():
                writer.answered_by(event.served_model, event.response_id)
                writer.done(event.stop_reason, event.usage, event.cost)
            case StreamFailed():
                wait = event.retry_after if event.retry_after is not None and event.retry_after >= 0 else None
                writer.fail(event.message, event.kind, retry_after=wait, usage=event.usage, cost=event.cost)
            case _:
                pass
