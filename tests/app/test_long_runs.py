"""Hundreds of turns through the standard agent: every request is valid and fits, whatever the tools return."""

from __future__ import annotations

from pathlib import Path
from typing import Any, SupportsIndex

import msgspec
import pytest

from swink_agent import ContextCompacted, ModelSpec, SlidingWindow, Usage, extract_text
from swink_agent.adapters import AnthropicStreamFn, GeminiStreamFn, OpenAiStreamFn
from swink_agent.app.agent.context import compaction, count_tokens
from swink_agent.app.agent.standard import AgentOptions, StandardAgent, standard_agent
from swink_agent.app.keys.credentials import Credentials
from swink_agent.app.runs.headless import HeadlessRun
from swink_agent.app.settings.settings import load_settings
from swink_agent.memory import SummarizingCompactor
from swink_agent.testing import FakeFailure, FakeProvider, FakeReply, scripted

WINDOW = 40_000
TURNS = 200
BYTES_PER_TOKEN = 2.4
"""Fewer than the standard agent counts with: the provider's own numbers have to be heeded."""


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").mkdir()
    monkeypatch.setenv("SWINK_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("SWINK_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for number in range(8):
        lines = [f"{number}:{line} some words of the file, about as many as there are in a line" for line in range(900)]
        (folder / f"{number}.txt").write_text("\n".join(lines))
    return folder


class Provider(list[Any]):
    """The replies of a provider with a window: what is longer is refused, and every reply says what it read."""

    def __init__(self, fake: FakeProvider) -> None:
        super().__init__(["there is always one"])
        self.fake = fake
        self.sizes: list[int] = []
        self.summaries = self.refused = self.turns = 0

    def pop(self, index: SupportsIndex = -1) -> FakeReply | FakeFailure:
        body = msgspec.json.encode(self.fake.bodies[-1])
        tokens = int(len(body) / BYTES_PER_TOKEN)
        if tokens > WINDOW:
            self.refused += 1
            return FakeFailure(400, f"prompt is too long: {tokens} tokens > {WINDOW} maximum")
        self.sizes.append(tokens)
        usage = Usage(tokens, 20, total=tokens + 20)
        if b"boundary lines" in body:
            self.summaries += 1
            return FakeReply(text=f"## Goal\nRead everything.\n## Done\n{self.turns} turns.", usage=usage)
        self.turns += 1
        if self.turns >= TURNS:
            return FakeReply(text="All read.", usage=usage)
        paths = [f"{(self.turns + offset) % 8}.txt" for offset in range(1 + self.turns % 3)]
        lines = 30 if self.turns % 20 else 900  # now and then more than would fit
        calls = [("read_file", {"path": path, "limit": lines}) for path in paths]
        return FakeReply(text=f"Turn {self.turns}.", calls=calls, usage=usage)


def made(root: Path, model: ModelSpec, stream_fn: Any, **chosen: Any) -> StandardAgent:
    settings = load_settings(path=Path("/no/such"), environ={}, flags={"max_turns": 2 * TURNS, **chosen})
    credentials = Credentials(root.parent / "keys.json", environ={})
    return standard_agent(
        AgentOptions(settings=settings, credentials=credentials, folder=root, model=model, stream_fn=stream_fn)
    )


@pytest.mark.parametrize(
    ("api", "model", "adapter", "chosen"),
    [
        ("anthropic", "claude-sonnet-4-6", AnthropicStreamFn, "summary"),
        ("openai", "gpt-4o", OpenAiStreamFn, "summary"),
        ("gemini", "gemini-2.5-flash", GeminiStreamFn, "summary"),
        ("anthropic", "claude-sonnet-4-6", AnthropicStreamFn, "window"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.sweep
async def test_hundreds_of_turns_with_long_results_stay_within_the_window(
    root: Path, api: str, model: str, adapter: Any, chosen: str
) -> None:
    async with FakeProvider(api) as fake:
        provider = fake.replies = Provider(fake)
        agent = made(root, ModelSpec(api, model), adapter(fake.url, fake.key), context_window=WINDOW, compaction=chosen)
        compacted: list[ContextCompacted] = []
        with agent:
            agent.agent.subscribe(
                lambda event: compacted.append(event) if isinstance(event, ContextCompacted) else None
            )
            outcome = await HeadlessRun(agent.agent).run("Read everything.")
    assert outcome.text == "All read.", outcome.error
    assert fake.rejections == [], "every request is one that the provider takes"
    assert max(provider.sizes) <= WINDOW
    assert provider.refused <= 1, "what the provider counts is known after its first reply"
    assert 5 <= len(compacted) <= TURNS // 4, "each makes room for many turns"
    assert bool(provider.summaries) == (chosen == "summary")
    assert provider.summaries <= len(compacted)
    assert outcome.usage.input >= sum(provider.sizes) * 0.99, "what the summaries read is counted too"


def test_a_setting_chooses_the_strategy_and_the_local_model_has_the_window() -> None:
    def chosen(model: str, **flags: Any) -> SlidingWindow | SummarizingCompactor:
        settings = load_settings(path=Path("/no/such"), environ={}, flags=flags)
        return compaction(ModelSpec.parse(model), settings, system="Be brief.", tools=(), reply=None)

    summary = chosen("anthropic:claude-sonnet-4-6")
    assert isinstance(summary, SummarizingCompactor)
    assert (summary.max_tokens, summary.keep_recent, summary.model) == (100_000, 20_000, None)
    assert summary.count is count_tokens
    small = chosen("anthropic:claude-sonnet-4-6", context_window=16_000)
    assert isinstance(small, SummarizingCompactor)
    assert small.max_tokens < 16_000 - 3_000
    assert small.keep_recent == small.max_tokens // 4
    assert isinstance(chosen("anthropic:claude-sonnet-4-6", compaction="window"), SlidingWindow)
    assert isinstance(chosen("local:qwen2.5-coder-1.5b"), SlidingWindow)


async def test_the_standard_agent_compacts_on_demand(root: Path) -> None:
    script = scripted("one", "two", "three", "the summary", "fine")
    with made(root, ModelSpec("test", "model"), script) as agent:
        for number in range(3):
            await agent.agent.prompt(f"question {number}")
        report = await agent.agent.compact("Keep the numbers.")
        assert report is not None
        assert "Keep the numbers." in extract_text(script.requests[3].messages[0].content)  # type: ignore[union-attr]
        assert (await agent.agent.prompt("and now?")).text == "fine"
