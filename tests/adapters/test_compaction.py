"""Long conversations that are compacted: every provider accepts the rest, and most of it stays the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsIndex

import pytest

from swink_agent import (
    Agent,
    AgentToolResult,
    Base64Image,
    ContextCompacted,
    Image,
    ModelSpec,
    SlidingWindow,
    Text,
    ThinkingLevel,
    tool,
)
from swink_agent.memory import SummarizingCompactor
from swink_agent.testing.fakes import APIS, FakeProvider, FakeReply
from tests.request_bytes import changed_bytes

from .each_provider import ADAPTERS, adapter_at

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TURNS = 40
CACHE_MARKS = (b',"cache_control":{"type":"ephemeral"}', b',{"cachePoint":{"type":"default"}}')
"""Where a cache may end moves along; what is in it does not change."""


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "OLLAMA_HOST", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDFAKE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "fake-key")
    return iter(())


@tool
def photograph(subject: str) -> AgentToolResult:
    """Takes a picture."""
    return AgentToolResult([Text(f"a picture of {subject}\n" * 30), Image(Base64Image("image/png", PICTURE))])


@tool
def weigh(thing: str) -> str:
    """Weighs a thing."""
    raise ValueError(f"there is no {thing} to weigh")


class Replies(list[Any]):
    """Thinking, text and parallel calls, turn after turn, with ids that recur; a summary where one is asked for."""

    def __init__(self, fake: FakeProvider) -> None:
        super().__init__(["there is always one"])
        self.fake = fake
        self.turns = self.summaries = 0

    def pop(self, index: SupportsIndex = -1) -> FakeReply:
        if b"boundary lines" in self.fake.requests[-1].body:
            self.summaries += 1
            return FakeReply(text=f"## Goal\nTo see the cats.\n## Done\n{self.turns} turns.")
        self.turns += 1
        if self.turns % 6 == 0:
            return FakeReply(thinking="So many.", text=f"Answer {self.turns}.")
        calls = [("photograph", {"subject": f"cat {self.turns}"}), ("weigh", {"thing": "cat"})]
        return FakeReply(thinking="Which one?", text="A look.", calls=calls[: 1 + self.turns % 2])


def unmarked(body: bytes) -> bytes:
    """A request without the marks of caches."""
    for mark in CACHE_MARKS:
        body = body.replace(mark, b"")
    return body


TRANSFORMS = [SlidingWindow(12_000), SummarizingCompactor(max_tokens=12_000, keep_recent=3_000)]


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=["window", "summary"])
@pytest.mark.parametrize("api", APIS)
async def test_every_provider_takes_the_rest_and_requests_begin_alike_for_many_turns(api: str, transform: Any) -> None:
    cuts: list[ContextCompacted] = []
    async with FakeProvider(api) as fake:
        replies = fake.replies = Replies(fake)
        agent = Agent(
            ModelSpec(api, ADAPTERS[api][2], ThinkingLevel.MEDIUM),
            stream_fn=adapter_at(fake.api, fake.url, fake.key),
            system_prompt="You know cats.",
            tools=[photograph, weigh],
            transform_context=transform,
        )
        agent.subscribe(lambda event: cuts.append(event) if isinstance(event, ContextCompacted) else None)
        while replies.turns < TURNS:
            result = await agent.prompt(f"question {replies.turns}: " + "which cat? " * 20)
            assert fake.rejections == []
            assert result.error is None
        bodies = [request.body for request in fake.requests if b"boundary lines" not in request.body]
    assert len(cuts) >= 2
    assert bool(replies.summaries) == isinstance(transform, SummarizingCompactor)
    again = changed_bytes(map(unmarked, bodies))
    closing = 10  # the brackets at the end
    changes = sum(size > closing for size in again)
    assert len(cuts) <= changes <= TURNS // 6, (
        "only a cut changes what was sent before, and each makes room for many turns"
    )
