"""What is particular to Claude wherever it is served.

Owns which models think how, whose signed reasoning goes back to whom, and conversations as Claude's servers take
them: roles in turn, ids of one form, cache marks on what stays. The wire formats are in `anthropic` and `bedrock`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import uuid4

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
)

from .kit.bodies import json_array
from .kit.documents import mapping

__all__ = [
    "REDACTED",
    "Claude",
    "ThinkingPlan",
    "arguments_of",
    "call_id",
    "called_tools",
    "claude_of",
    "conversation",
    "is_signed_for",
    "plan_thinking",
    "sendable",
    "system_text",
    "unused_id",
    "with_extra",
]

REDACTED = "redacted:"
"""How the signature of a thinking block starts that holds nothing but reasoning which only the provider can read."""

# -- conversations -------------------------------------------------------------------------------------------

_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def call_id(given: str) -> str:
    """The id of a call or result if it is one that the provider takes, else one made of it: always the same."""
    if _PLAIN_ID.fullmatch(given):
        return given
    return f"call_{hashlib.sha256(given.encode(errors='replace')).hexdigest()[:32]}"


def unused_id(given: str | None, used: set[str]) -> str:
    """The id that a reply gives a call, or a new one if it gives none or one that it gave already."""
    call = given if given and given not in used else f"call_{uuid4().hex[:24]}"
    used.add(call)
    return call


def arguments_of(call: ToolCall) -> dict[str, Any]:
    return {} if call.is_incomplete else call.arguments


def called_tools(messages: Sequence[AgentMessage]) -> list[str]:
    """The names of the tools that were called, each once: where there are calls, a request must define tools."""
    replies = [message for message in messages if isinstance(message, AssistantMessage)]
    return list(dict.fromkeys(call.name for reply in replies for call in reply.tool_calls))


def system_text(context: AgentContext) -> str:
    """The system prompt, or nothing if it is blank, which is refused."""
    prompt = prompt_text(context.system_prompt)
    return prompt if prompt.strip() else ""


def with_extra(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """The fields with the caller's own: an object joins one that is there already, anything else replaces it."""
    for name, value in extra.items():
        known, own = mapping(fields.get(name)), mapping(value)
        fields[name] = {**known, **own} if known and own else value
    return fields


def is_signed_for(message: AssistantMessage, model: ModelSpec) -> bool:
    """Whether the model takes back the reasoning in the message: Claude's anywhere by any Claude, else only its own."""
    if claude_of(message.model_id) is not None and claude_of(model.model_id) is not None:
        return True
    return message.provider == model.provider and message.model_id in ("", model.model_id)


def sendable(message: AssistantMessage, *, with_thinking: bool) -> list[Text | Thinking | ToolCall]:
    """What of a reply goes back to a model: no blank text, no reasoning that is unsigned or led to nothing."""
    blocks: list[Text | Thinking | ToolCall] = []
    for block in message.content:
        if isinstance(block, Text):
            if block.text.strip():
                blocks.append(block)
        elif isinstance(block, ToolCall) or (isinstance(block, Thinking) and with_thinking and block.signature):
            blocks.append(block)
    while blocks and type(blocks[-1]) is Thinking:
        blocks.pop()
    return blocks


def conversation(
    model: ModelSpec,
    messages: Sequence[AgentMessage],
    content_of: Callable[[AgentMessage, bool], bytes],
    *,
    filler: bytes,
    mark: Callable[[bytes], bytes] | None,
) -> bytes:
    """The messages as one JSON array, the user's and the assistant's in turn, the user's first and last.

    `content_of` gives the content of one message, with or without its reasoning, and `mark` puts the cache mark on a
    content. Marked are the last message and the one that was last in the request before: a mark finds what was
    written at another one only twenty blocks back, and a reply with its results may be longer.
    """
    turns = _alternating(model, messages, content_of, filler)
    marked = (len(turns) - 1, len(turns) - 3) if mark is not None else ()
    encoded: list[bytes] = []
    for position, (role, pieces) in enumerate(turns):
        content = json_array(pieces)
        if mark is not None and position in marked:
            content = mark(content)
        encoded.append(b'{"role":"%b","content":%b}' % (role, content))
    return json_array(encoded)


def _alternating(
    model: ModelSpec,
    messages: Sequence[AgentMessage],
    content_of: Callable[[AgentMessage, bool], bytes],
    filler: bytes,
) -> list[tuple[bytes, list[bytes]]]:
    """The roles of the turns, with the blocks in them; what the user's side says in a row is one turn.

    Where it says nothing before, between or after replies, `filler` stands for it: there, and not only at the end, so
    that what was sent once is sent the same again.
    """
    turns: list[tuple[bytes, list[bytes]]] = []
    for message in messages:
        is_reply = type(message) is AssistantMessage
        content = content_of(message, is_reply and is_signed_for(message, model))[1:-1]
        if not content:
            continue
        follows_user = bool(turns) and turns[-1][0] == b"user"
        if is_reply:
            if not follows_user:
                turns.append((b"user", [filler]))
            turns.append((b"assistant", [content]))
        elif follows_user:
            turns[-1][1].append(content)
        else:
            turns.append((b"user", [content]))
    if turns and turns[-1][0] == b"assistant":
        turns.append((b"user", [filler]))
    return turns


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
_EFFORT = {
    ThinkingLevel.MINIMAL: "low",
    ThinkingLevel.LOW: "low",
    ThinkingLevel.MEDIUM: "medium",
    ThinkingLevel.HIGH: "high",
    ThinkingLevel.EXTRA_HIGH: "xhigh",
}
_LEAST_BUDGET = 1_024
_LEAST_ANSWER = 1_024


class Claude(NamedTuple):
    """A Claude model, by what its name says."""

    family: str
    version: tuple[int, int]

    @property
    def is_adaptive(self) -> bool:
        """Whether it decides itself how long to think, and is told an effort, not a number of tokens."""
        return self.version >= (4, 6)

    @property
    def thinks_always(self) -> bool:
        is_small = self.family in ("sonnet", "haiku")
        return self.family in ("fable", "mythos") or (not is_small and self.version >= (5, 5))

    @property
    def off(self) -> str | None:
        """What keeps it from thinking, if it must be told."""
        if self.version < (5, 0) or self.thinks_always:
            return None
        return "between_tools" if self.family == "sonnet" and self.version >= (5, 5) else "disabled"

    @property
    def can_be_forced(self) -> bool:
        """Whether a call may be forced: not on models that then would still think."""
        return not self.thinks_always and self.off != "between_tools"

    @property
    def most_output(self) -> int:
        if self.version < (3, 5):
            return 4_096
        if self.version < (3, 7):
            return 8_192
        return 32_000 if self.family == "opus" and self.version < (4, 5) else 64_000


@lru_cache(maxsize=256)
def claude_of(model_id: str) -> Claude | None:
    """The Claude model that a name stands for, at any provider; without a version, the first of the adaptive ones."""
    name = model_id.lower()
    if "claude" not in name:
        return None
    family = next((family for family in _FAMILIES if family in name), "")
    found = _VERSION.search(name)
    return Claude(family, (int(found[1]), int(found[2] or 0)) if found is not None else (4, 6))


class ThinkingPlan(NamedTuple):
    """What a request says about thinking, and what depends on that."""

    fields: dict[str, Any]
    max_tokens: int
    tool_choice: str
    temperature: float | None


def plan_thinking(model: ModelSpec, context: AgentContext, options: StreamOptions) -> ThinkingPlan:
    """How the model is asked to think. Under a forced call it does not think where the two exclude each other."""
    claude = claude_of(model.model_id)
    budgets = model.thinking_budgets
    budget = budgets.get(model.thinking_level) if budgets is not None else None
    if claude is None or not claude.is_adaptive or (budget is not None and claude.version == (4, 6)):
        return _plan_budget(model, context, options, budget)
    is_forced = _is_forced(context, options)
    choice = options.tool_choice if claude.can_be_forced or not is_forced else "auto"
    max_tokens = options.max_tokens or claude.most_output
    fields: dict[str, Any] = {}
    effort = _EFFORT.get(model.thinking_level)
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
    """Thinking in a number of tokens, which counts towards the limit of the whole reply."""
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
    """Whether the reply goes on after calls that no signed thinking led to: then it cannot start to think."""
    has_results = False
    for message in reversed(messages):
        if type(message) is AssistantMessage:
            blocks = sendable(message, with_thinking=is_signed_for(message, model))
            return has_results and bool(blocks) and type(blocks[0]) is not Thinking
        has_results = has_results or type(message) is ToolResultMessage
    return False
