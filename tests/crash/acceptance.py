"""Checks whether providers would accept a history: all strict fakes, in their own event loop.

Owns the fakes and one request to each. The history goes to the adapters unchanged: no pairing, no dropped messages.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from swink_agent import AgentContext, AgentMessage, CancellationToken, ModelSpec, StreamOptions, UserMessage
from swink_agent.core.stream import StreamFailed, StreamFn
from swink_agent.testing.fakes import APIS, FakeProvider, FakeReply

ADAPTERS = {
    "anthropic": ("anthropic", "AnthropicStreamFn", "claude-sonnet-4-5"),
    "openai": ("openai", "OpenAiStreamFn", "gpt-5"),
    "openai-responses": ("openai_responses", "OpenAiResponsesStreamFn", "gpt-5"),
    "azure": ("azure", "AzureStreamFn", "gpt-5"),
    "xai": ("xai", "XAiStreamFn", "grok-4.3"),
    "mistral": ("mistral", "MistralStreamFn", "magistral-medium-latest"),
    "gemini": ("gemini", "GeminiStreamFn", "gemini-3-pro-preview"),
    "ollama": ("ollama", "OllamaStreamFn", "qwen3"),
    "bedrock": ("bedrock", "BedrockStreamFn", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
}


class Loop:
    """An event loop in a thread, for as long as its `with` block lasts."""

    def __enter__(self) -> Loop:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fakes")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(_settled())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(50)


async def _settled() -> None:
    """Waits for what closes itself."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        await asyncio.wait(left, timeout=5)
    await asyncio.get_running_loop().shutdown_asyncgens()


class Providers:
    """One strict fake of each provider."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._fakes = [FakeProvider(api) for api in APIS]
        self._adapters: list[StreamFn] = []

    def __enter__(self) -> Providers:
        self._loop.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._stop())

    async def _start(self) -> None:
        for fake in self._fakes:
            await fake.__aenter__()
            self._adapters.append(_adapter(fake))

    async def _stop(self) -> None:
        for fake in self._fakes:
            await fake.__aexit__(None, None, None)

    def check(self, messages: Sequence[AgentMessage]) -> None:
        """Raises `AssertionError` unless every one of them takes the history, with one more question behind it."""
        self._loop.run(self._check((*messages, UserMessage("and now?"))))

    async def _check(self, messages: Sequence[AgentMessage]) -> None:
        await asyncio.gather(*[_ask(*pair, messages) for pair in zip(self._fakes, self._adapters, strict=True)])


async def _ask(fake: FakeProvider, adapter: StreamFn, messages: Sequence[AgentMessage]) -> None:
    fake.replies = ["fine"]
    fake.rejections.clear()
    context: Any = AgentContext("You work.", messages, ())
    last: Any = None
    model = ModelSpec(fake.api, ADAPTERS[fake.api][2])
    async for event in adapter(model, context, StreamOptions(), CancellationToken()):
        last = event
    assert not fake.rejections, f"{fake.api} refuses the history: {fake.rejections}"
    assert not isinstance(last, StreamFailed), f"{fake.api}: {last}"


def _adapter(fake: FakeProvider) -> StreamFn:
    module, name, _ = ADAPTERS[fake.api]
    adapter = getattr(import_module(f"swink_agent.adapters.{module}"), name)
    return adapter(region="eu-west-1", base_url=fake.url) if fake.api == "bedrock" else adapter(fake.url, fake.key)


class Planned(list[Any]):
    """Replies that a fake of Anthropic gives: not one after another, but what the last request is due."""

    def __init__(self, fake: FakeProvider, reply_to: Any) -> None:
        super().__init__([None])
        self._fake, self._reply_to = fake, reply_to

    def pop(self, _: Any = -1) -> FakeReply:
        return self._reply_to(self._fake.bodies[-1])
