"""The client's end of the proxy: a stream function that asks a server of ours, which asks the provider.

Owns the format of the exchange, which both ends share: one JSON document there, server-sent stream events back. No
key of a provider, no header and no partial message travels in it.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from swink_agent.core.errors import AuthError
from swink_agent.core.providers import ProviderDescription
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
from swink_agent.core.tool import AgentTool, AgentToolResult, ToolContext
from swink_agent.core.types import AgentContext, Cost, LlmMessage, ModelSpec, Usage

from . import registry
from .kit.bodies import EncodedMessages, json_array, json_object, short_id
from .kit.documents import UNREADABLE
from .kit.frames import FrameError, ShapeError, SseFrames
from .kit.http import HttpStreamFn
from .kit.reply import ReplyWriter
from .kit.transport import HttpRequest, Limits, Transport

__all__ = ["PATH", "ProxyRequest", "ProxyStreamFn", "ToolDescription"]

PATH = "/v1/stream"


class ToolDescription(Struct, frozen=True, kw_only=True):
    """A tool as the far end knows it: enough to tell a model about, not to run."""

    name: str
    description: str = ""
    parameters_schema: dict[str, Any] = {}
    label: str = ""
    requires_approval: bool = False

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext, /) -> AgentToolResult:
        raise RuntimeError(f"{self.name} runs where the agent runs, not at the proxy")


class ProxyOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of the options that travels: neither keys nor headers."""

    temperature: float | None = None
    max_tokens: int | None = None
    session_id: str | None = None
    tool_choice: str = "auto"
    cache: str = "auto"
    extra: dict[str, Any] = {}


class ProxyRequest(Struct, frozen=True, kw_only=True):
    """What one call asks for."""

    model: ModelSpec
    messages: list[LlmMessage]
    system_prompt: str = ""
    tools: list[ToolDescription] = []
    options: ProxyOptions = ProxyOptions()


class ProxyStreamFn(HttpStreamFn):
    """Any model behind a proxy. The URL comes from `SWINK_PROXY_URL`, the token from `SWINK_PROXY_TOKEN`."""

    description: ClassVar[ProviderDescription] = registry.proxy
    is_bound: ClassVar[bool] = False
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
        self._token = api_key or os.environ.get("SWINK_PROXY_TOKEN")
        self.encoded = EncodedMessages()

    def serves(self, provider: str) -> bool:
        return True  # the server behind it asks them all

    def check(self, model: ModelSpec, options: StreamOptions) -> None:
        self._bearer(options)
        self.server()

    def _bearer(self, options: StreamOptions) -> str:
        token = options.api_key or self._token
        if not self.base_url:
            raise AuthError("no address for the proxy: set SWINK_PROXY_URL, or pass base_url")
        if token is None:
            raise AuthError("no token for the proxy: set SWINK_PROXY_TOKEN, or pass api_key")
        return token

    def build(self, model: ModelSpec, context: AgentContext, options: StreamOptions) -> HttpRequest:
        token = self._bearer(options)
        travelling = ProxyOptions(
            temperature=options.temperature,
            max_tokens=options.max_tokens,
            session_id=short_id(options.session_id, "session") if options.session_id else None,
            tool_choice=options.tool_choice,
            cache=options.cache,
            extra=options.extra,
        )
        fields = {
            "model": _behind_the_proxy(model),
            "system_prompt": prompt_text(context.system_prompt),
            "tools": [_describe(tool) for tool in context.tools],
            "options": travelling,
            "messages": json_array([self.encoded.encode(message, _as_it_is) for message in context.messages]),
        }
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "authorization": f"Bearer {token}",
        }
        return HttpRequest(
            url=self.server() + PATH, headers=headers, body=json_object(fields), limits=self.limits_for(options)
        )

    def cost(self, model: ModelSpec, usage: Usage) -> Cost:
        return Cost()  # the proxy has said what it cost

    def parser(self, model: ModelSpec, headers: dict[str, str]) -> ProxyParser:
        return ProxyParser()


def _behind_the_proxy(model: ModelSpec) -> ModelSpec:
    """`proxy:anthropic:claude` asks the proxy for `anthropic:claude`."""
    provider, colon, model_id = model.model_id.partition(":")
    if model.provider != "proxy" or not colon:
        return model
    return msgspec.structs.replace(model, provider=provider, model_id=model_id)


def _describe(tool: AgentTool) -> ToolDescription:
    return ToolDescription(name=tool.name, description=tool.description, parameters_schema=tool.parameters_schema)


def _as_it_is(message: object) -> object:
    return message


_decode_event = msgspec.json.Decoder(AssistantMessageEvent).decode


class ProxyParser:
    """Stream events, as the proxy sends them; they are written anew, so that their order is right here too."""

    def __init__(self) -> None:
        self.writer = ReplyWriter()
        self._frames = SseFrames()

    def feed(self, data: bytes) -> bool:
        frames = self._frames.feed(data)
        for _, payload in frames:
            self._take(payload)
        return bool(frames)

    def end(self) -> None:
        for _, payload in self._frames.end():
            try:
                self._take(payload)
            except ShapeError:
                raise
            except FrameError:
                pass  # a body that was cut ends inside a frame

    def usage_so_far(self) -> Usage | None:
        return None  # the proxy tells it with the terminal event

    def _take(self, payload: bytes) -> None:
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
                writer.done(event.stop_reason, event.usage, event.cost)
            case StreamFailed():
                wait = event.retry_after if event.retry_after is not None and event.retry_after >= 0 else None
                writer.fail(event.message, event.kind, retry_after=wait, usage=event.usage, cost=event.cost)
            case _:
                pass
