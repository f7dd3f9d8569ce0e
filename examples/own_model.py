"""Uses your own model: a stream function is any async generator that yields the stream events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from swink_agent import (
    Agent,
    AgentContext,
    AssistantMessageEvent,
    CancellationToken,
    ModelSpec,
    StreamDone,
    StreamOptions,
    StreamStart,
    TextDelta,
    TextEnd,
    TextStart,
    UserMessage,
    extract_text,
)
from swink_agent.testing import check_stream_fn


async def parrot(
    model: ModelSpec, context: AgentContext, options: StreamOptions, cancel: CancellationToken
) -> AsyncIterator[AssistantMessageEvent]:
    """Repeats the last user message, a word at a time."""
    last = next(message for message in reversed(context.messages) if isinstance(message, UserMessage))
    yield StreamStart()
    yield TextStart(0)
    for word in extract_text(last.content).split():
        yield TextDelta(0, f"{word} ")
        await asyncio.sleep(0)
    yield TextEnd(0)
    yield StreamDone()


async def main() -> None:
    await check_stream_fn(lambda: parrot)  # checks the rules: order, one end, cancellation
    result = await Agent("birds:parrot", stream_fn=parrot).prompt("Pretty Polly")
    print(result.text)


if __name__ == "__main__":
    asyncio.run(main())
