"""How much of a conversation the standard agent sends: the model's window, and how much of it is for messages.

The size of a window comes from a setting, the local model, the catalog or a cautious guess. `SummarizingCompactor` or,
if chosen, `SlidingWindow` shortens a conversation that outgrows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from swink_agent.core.context.context import document_tokens
from swink_agent.core.context.window import SlidingWindow
from swink_agent.core.tool import AgentTool
from swink_agent.core.types import AgentMessage, CustomMessage, Document, Image, ModelSpec

from ..settings.settings import Settings

if TYPE_CHECKING:
    from swink_agent.memory import SummarizingCompactor

_MOST = 100_000
"""Tokens of conversation at most, even if the window is larger: every turn sends them again."""
_LEAST = 1_000
_MOST_RECENT = 20_000
_RECENT_SHARE = 4  # 1/4 of the messages' tokens at most stays word for word when the rest is summarized
_UNKNOWN_WINDOW = 32_768
_OLLAMA_WINDOW = 16_384
_MOST_REPLY = 16_384
_REPLY_SHARE = 4  # at most 1/4 of the window is kept free for the reply
_BYTES_PER_TOKEN = 3
_IMAGE_TOKENS = 1_600
_MESSAGE_TOKENS = 6


def compaction(
    model: ModelSpec, settings: Settings, *, system: str, tools: Sequence[AgentTool], reply: int | None
) -> SlidingWindow | SummarizingCompactor:
    """Keeps the conversation within the model's window, with space for the prompt, the tools and the reply.

    A local model gets a sliding window: reading the text to summarize would take it minutes.
    """
    window, is_known = context_window(model, settings)
    fixed = fixed_tokens(system, tools)
    reply = min(_MOST_REPLY if reply is None else reply, window // _REPLY_SHARE)
    budget = max(window - reply - fixed, min(_LEAST, window))
    overflow = max(1, budget // (2 if is_known else 4))
    if model.provider == "local":
        # Its adapter fits the input into the window, counts the model's own tokens, and reports if that is impossible.
        return SlidingWindow(max(_MOST, window), overflow_tokens=overflow, count=count_tokens)
    if settings.value("context_window") is None:
        budget = min(budget, _MOST)
    if settings.value("compaction") == "window":
        return SlidingWindow(budget, overflow_tokens=overflow, count=count_tokens)
    from swink_agent.memory import SummarizingCompactor

    recent = min(_MOST_RECENT, budget // _RECENT_SHARE)
    return SummarizingCompactor(max_tokens=budget, keep_recent=recent, overflow_tokens=overflow, count=count_tokens)


def context_window(model: ModelSpec, settings: Settings) -> tuple[int, bool]:
    """The model's window in tokens, and whether it is known or only assumed."""
    chosen = settings.value("context_window")
    if chosen is not None:
        return chosen, True
    if model.provider == "local":
        from swink_agent.local.stream import DEFAULT_WINDOW

        return DEFAULT_WINDOW, True
    if model.provider == "ollama":
        return _OLLAMA_WINDOW, True  # requested in `provider_options`
    from swink_agent.adapters.catalog import ModelCatalog

    info = ModelCatalog.load().find(model)
    if info is None or info.context_window is None:
        return _UNKNOWN_WINDOW, False
    return info.context_window, True


def fixed_tokens(system: str, tools: Sequence[AgentTool]) -> int:
    """Estimated tokens of the system prompt and the tools, which every request carries."""
    described = [_tokens_of(msgspec.json.encode((tool.description, tool.parameters_schema))) for tool in tools]
    return _tokens_of(system.encode("utf-8", "surrogatepass")) + sum(described)


def provider_options(model: ModelSpec, settings: Settings) -> dict[str, Any]:
    """Request options that make the provider use the window that we assume.

    By default Ollama chooses a short window, and silently drops the beginning of longer input.
    """
    if model.provider != "ollama":
        return {}
    return {"options": {"num_ctx": context_window(model, settings)[0]}}


def count_tokens(message: AgentMessage) -> int:
    """A cautious estimate: three bytes per token, about right for code and for languages without an alphabet.

    The core's estimate, four characters per token, is less than half of the real number for such languages.
    """
    if isinstance(message, CustomMessage):
        return 0  # it does not reach a model
    attached = sum(
        _IMAGE_TOKENS if isinstance(block, Image) else document_tokens(block)
        for block in message.content
        if isinstance(block, (Image, Document))
    )
    others = [block for block in message.content if not isinstance(block, (Image, Document))]
    return _MESSAGE_TOKENS + attached + _tokens_of(msgspec.json.encode(others))


def _tokens_of(data: bytes) -> int:
    return -(-len(data) // _BYTES_PER_TOKEN)
