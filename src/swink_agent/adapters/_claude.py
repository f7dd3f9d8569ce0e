"""The rules for Claude models at every provider.

They cover how each model thinks, which signed reasoning may be sent back, and the form of a conversation: alternating
roles, valid ids, and cache marks. The wire formats are in `anthropic` and `bedrock`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from swink_agent.core.stream import StreamOptions, prompt_text
from swink_agent.core.types import (
    AgentContext,
    AgentMessage,
    AssistantMessage,
    ModelSpec,
    Text,
    Thinking,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from swink_agent.core.values.checks import a_kind

from .kit.bodies import EncodedMessages, json_array
from .kit.documents import mapping
from .kit.searches import is_kept, kept_parts

REDACTED = "redacted:"
"""The beginning of a thinking block's signature if it holds only reasoning that the provider encrypted."""

# -- conversations -------------------------------------------------------------------------------------------


class ClaudeWire(NamedTuple):
    """How a provider writes the content of messages."""

    user_blocks: Callable[[Sequence[Any]], list[dict[str, Any]]]
    assistant_block: Callable[[Text | Thinking | ToolCall], dict[str, Any]]
    tool_result: Callable[[ToolResultMessage], dict[str, Any]]
    marked: Callable[[bytes], bytes]
    """Adds the cache mark to a content."""
    filler: bytes
    """A block of text where a user turn is missing before, between or after replies, so that roles alternate."""
    takes_thinking: bool = True

    def content(
        self, message: AgentMessage, *, with_thinking: bool, with_searches: bool = False
    ) -> list[dict[str, Any]]:
        """Returns the content blocks of one message, with its reasoning and its web searches or without."""
        if isinstance(message, UserMessage):
            return self.user_blocks(message.content)
        if isinstance(message, AssistantMessage):
            blocks: list[dict[str, Any]] = []
            for block in _sendable(message, with_thinking=with_thinking, with_searches=with_searches):
                if isinstance(block, Thinking) and is_kept(block):
                    blocks += kept_parts(block)
                else:
                    blocks.append(self.assistant_block(block))
            return blocks
        if isinstance(message, ToolResultMessage):
            return [self.tool_result(message)]
        raise TypeError(f"{a_kind(message)} is not a message for a provider")


def arguments_of(call: ToolCall) -> dict[str, Any]:
    return {} if call.is_incomplete else call.arguments


def called_tools(messages: Sequence[AgentMessage]) -> list[str]:
    """Returns the names of the called tools, each once: a request with calls must define their tools."""
    replies = [message for message in messages if isinstance(message, AssistantMessage)]
    return list(dict.fromkeys(call.name for reply in replies for call in reply.tool_calls))


def system_text(context: AgentContext) -> str:
    """Returns the system prompt, or an empty string if it is blank, which the provider refuses."""
    prompt = prompt_text(context.system_prompt)
    return prompt if prompt.strip() else ""


def with_extra(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Adds the caller's fields: an object is merged with an existing one, anything else replaces the field."""
    for name, value in extra.items():
        known, own = mapping(fields.get(name)), mapping(value)
        fields[name] = {**known, **own} if known and own else value
    return fields


def is_signed_for(message: AssistantMessage, model: ModelSpec) -> bool:
    """Whether the model accepts the reasoning in the message: any Claude accepts Claude's, others only their own."""
    if claude_of(message.model_id) is not None and claude_of(model.model_id) is not None:
        return True
    return message.provider == model.provider and message.model_id in ("", model.model_id)


def _sendable(
    message: AssistantMessage, *, with_thinking: bool, with_searches: bool = False
) -> list[Text | Thinking | ToolCall]:
    """Returns the blocks of a reply to send back: no blank text, no unsigned reasoning, no reasoning at its end.

    Searches go back to the model that can search: the others would refuse them.
    """
    blocks: list[Text | Thinking | ToolCall] = []
    for block in message.content:
        if isinstance(block, Text):
            if block.text.strip():
                blocks.append(block)
        elif isinstance(block, ToolCall) or (
            isinstance(block, Thinking) and with_thinking and block.signature and (with_searches or not is_kept(block))
        ):
            blocks.append(block)
    while blocks and type(blocks[-1]) is Thinking:
        blocks.pop()
    return blocks


def conversation(
    model: ModelSpec,
    messages: Sequence[AgentMessage],
    encoded: EncodedMessages,
    wire: ClaudeWire,
    *,
    is_marked: bool,
    with_searches: bool = False,
) -> bytes:
    """Encodes the messages as one JSON array; user and assistant alternate, and the user is first and last.

    Consecutive user messages and results are one turn. With `is_marked`, two turns have a cache mark: the last one, and
    the last one of the previous request. A mark finds an earlier one only twenty blocks back, and a reply with its
    results may be longer. `with_searches`: the request offers web search, so earlier searches can be sent back.
    """
    turns: list[tuple[bytes, list[bytes]]] = []
    for message in messages:
        is_reply = type(message) is AssistantMessage
        with_thinking = is_reply and wire.takes_thinking and is_signed_for(message, model)
        with_parts = with_thinking and with_searches
        encode = partial(wire.content, with_thinking=with_thinking, with_searches=with_parts)
        content = encoded.encode(message, encode, "searches" if with_parts else with_thinking)[1:-1]
        if not content:
            continue
        follows_user = bool(turns) and turns[-1][0] == b"user"
        if is_reply:
            if not follows_user:
                turns.append((b"user", [wire.filler]))
            turns.append((b"assistant", [content]))
        elif follows_user:
            turns[-1][1].append(content)
        else:
            turns.append((b"user", [content]))
    if turns and turns[-1][0] == b"assistant":
        turns.append((b"user", [wire.filler]))
    contents = [json_array(pieces) for _, pieces in turns]
    for position in (len(turns) - 1, len(turns) - 3) if is_marked else ():
        if position >= 0:
            contents[position] = wire.marked(contents[position])
    return json_array(
        b'{"role":"%b","content":%b}' % (role, content) for (role, _), content in zip(turns, contents, strict=True)
    )


# -- thinking ------------------------------------------------------------------------------------------------

_FAMILIES = ("opus", "sonnet", "haiku", "fable", "mythos")
_VERSION = re.compile(r"claude-v?(?:[a-z]+-v?)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_BUDGETS = {
    ThinkingLevel.MINIMAL: 1_024,
    ThinkingLevel.LOW: 4_096,
    ThinkingLevel.MEDIUM: 8_192,
    ThinkingLevel.HIGH: 16_384,
    ThinkingLevel.EXTRA_HIGH: 32_768,
}
EFFORT = {
    ThinkingLevel.MINIMAL: "low",
    ThinkingLevel.LOW: "low",
    ThinkingLevel.MEDIUM: "medium",
    ThinkingLevel.HIGH: "high",
    ThinkingLevel.EXTRA_HIGH: "xhigh",
}
_LEAST_BUDGET = 1_024
_LEAST_ANSWER = 1_024


class Claude(NamedTuple):
    """A Claude model, as parsed from its name."""

    family: str
    version: tuple[int, int]

    @property
    def is_adaptive(self) -> bool:
        """Whether it decides itself how long to think, and takes an effort instead of a number of tokens."""
        return self.version >= (4, 6)

    @property
    def thinks_always(self) -> bool:
        is_small = self.family in ("sonnet", "haiku")
        return self.family in ("fable", "mythos") or (not is_small and self.version >= (5, 5))

    @property
    def off(self) -> str | None:
        """The setting that turns thinking off, if one is needed."""
        if self.version < (5, 0) or self.thinks_always:
            return None
        return "between_tools" if self.family == "sonnet" and self.version >= (5, 5) else "disabled"

    @property
    def can_be_forced(self) -> bool:
        """Whether a call may be forced: only for models whose thinking can be turned off completely."""
        return not self.thinks_always and self.off != "between_tools"

    @property
    def takes_schemas(self) -> bool:
        """Whether its replies can be held to a JSON Schema."""
        return self.version >= (4, 5)

    @property
    def most_output(self) -> int:
        if self.version < (3, 5):
            return 4_096
        if self.version < (3, 7):
            return 8_192
        return 32_000 if self.family == "opus" and self.version < (4, 5) else 64_000


@lru_cache(maxsize=256)
def claude_of(model_id: str) -> Claude | None:
    """Parses the name of a Claude model, at any provider; without a version, it is the first adaptive one."""
    name = model_id.lower()
    if "claude" not in name:
        return None
    family = next((family for family in _FAMILIES if family in name), "")
    found = _VERSION.search(name)
    return Claude(family, (int(found[1]), int(found[2] or 0)) if found is not None else (4, 6))


class ThinkingPlan(NamedTuple):
    """The settings of a request that concern thinking or depend on it."""

    fields: dict[str, Any]
    max_tokens: int
    tool_choice: str
    temperature: float | None


def plan_thinking(model: ModelSpec, context: AgentContext, options: StreamOptions) -> ThinkingPlan:
    """Plans the thinking of a request. With a forced call it is off if the two exclude each other."""
    claude = claude_of(model.model_id)
    budgets = model.thinking_budgets
    budget = budgets.get(model.thinking_level) if budgets is not None else None
    if claude is None or not claude.is_adaptive or (budget is not None and claude.version == (4, 6)):
        return _plan_budget(model, context, options, budget)
    is_forced = _is_forced(context, options)
    choice = options.tool_choice if claude.can_be_forced or not is_forced else "auto"
    max_tokens = options.max_tokens or claude.most_output
    fields: dict[str, Any] = {}
    effort = EFFORT.get(model.thinking_level)
    if effort is None or (is_forced and claude.can_be_forced):
        if claude.off is not None:
            fields["thinking"] = {"type": claude.off}
        elif claude.thinks_always:
            fields["output_config"] = {"effort": "low"}
        return ThinkingPlan(fields, max_tokens, choice, options.temperature if claude.version < (4, 7) else None)
    fields["thinking"] = {"type": "adaptive", "display": "summarized"}
    fields["output_config"] = {"effort": "max" if effort == "xhigh" and claude.version == (4, 6) else effort}
    return ThinkingPlan(fields, max_tokens, choice, None)


def _plan_budget(model: ModelSpec, context: AgentContext, options: StreamOptions, budget: int | None) -> ThinkingPlan:
    """Plans thinking by a number of tokens, which count towards the limit of the whole reply."""
    claude = claude_of(model.model_id)
    budget = _BUDGETS.get(model.thinking_level, 0) if budget is None else budget
    most = claude.most_output if claude is not None else 8_192 + budget
    max_tokens = options.max_tokens or most
    budget = min(budget, max_tokens - _LEAST_ANSWER)
    is_able = claude is None or claude.version >= (3, 7)
    is_able = is_able and not _is_forced(context, options) and not _goes_on_without_thinking(model, context.messages)
    if not is_able or budget < _LEAST_BUDGET:
        return ThinkingPlan({}, max_tokens, options.tool_choice, options.temperature)
    fields = {"thinking": {"type": "enabled", "budget_tokens": budget}}
    return ThinkingPlan(fields, max_tokens, options.tool_choice, None)


def _is_forced(context: AgentContext, options: StreamOptions) -> bool:
    return bool(context.tools) and options.tool_choice not in ("auto", "none")


def _goes_on_without_thinking(model: ModelSpec, messages: Sequence[AgentMessage]) -> bool:
    """Whether the reply continues after calls that no signed thinking precedes: then it cannot start to think."""
    has_results = False
    for message in reversed(messages):
        if type(message) is AssistantMessage:
            blocks = _sendable(message, with_thinking=is_signed_for(message, model))
            return has_results and bool(blocks) and type(blocks[0]) is not Thinking
        has_results = has_results or type(message) is ToolResultMessage
    return False
