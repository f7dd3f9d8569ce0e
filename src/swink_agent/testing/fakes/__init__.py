"""Strict fakes of LLM providers, for tests: servers on loopback that reject what the real ones reject.

async with FakeProvider("anthropic", [FakeReply(thinking="Hm.", calls=[("add", {"a": 2})]), "5"]) as fake:
    agent = Agent("anthropic:claude-sonnet-4-6", stream_fn=AnthropicStreamFn(fake.url, fake.key), tools=[add])
    await agent.prompt("2+3?")
assert not fake.rejections

Each API has a file with a pure validator, `problems(body)`: `anthropic`, `openai`, `openai_responses`, `azure`, `xai`,
`mistral`, `gemini`, `ollama`, `bedrock`. Use `fakes.kit` to make a fake of your own API.
"""

from .kit.replies import FakeFailure, FakeReply
from .provider import APIS, FakeProvider

__all__ = ["APIS", "FakeFailure", "FakeProvider", "FakeReply"]
