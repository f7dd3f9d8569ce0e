"""The sliding window: keeps a conversation within a budget of tokens, and never separates a call from its result.

Tokens are estimated in `context`; `compaction` gives transforms facts about their run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import NamedTuple

import msgspec

from ..types import (
    AgentMessage,
    AssistantMessage,
    CustomMessage,
    Image,
    ModelSpec,
    Text,
    ToolResultMessage,
    UserBlock,
    UserMessage,
)
from .compaction import CompactionContext
from .context import estimate_tokens

_ATTACHED = (ToolResultMessage, CustomMessage)
"""Messages that belong to the one before them: a cut comes after these, never before."""

_SHARE = 8  # an older tool result may take up to 1/8 of the goal
_OTHERS_SHARE = 3
"""If the last exchange alone is too long, other messages get 1/3 of the budget. In the next turn that exchange is
shortened; then they fit into half the budget and are not cut again."""
_LEAST_RESULT = 250  # results are not shortened below this number of tokens
_LEAST_WINDOW = 1_000  # no model has a smaller window, in tokens: with a smaller budget, all that can be cut is cut

_LOWEST_RATE, _HIGHEST_RATE = 0.5, 4.0  # the bounds of the correction of a count
_LEAST_PLAUSIBLE, _MOST_PLAUSIBLE = 0.33, 8.0
"""A provider's report outside these bounds is about something else, and is ignored."""


def tokens_per_count(
    messages: Sequence[AgentMessage],
    sizes: Sequence[int],
    *,
    fixed: int = 0,
    fresh_from: int = 0,
    model: ModelSpec | None = None,
) -> float:
    """Returns the real tokens for each counted token, by the provider's report on the last request; 1 without a report.

    The usage of the last reply is the real number of tokens before it. `sizes` are the counts of the messages, and
    `fixed` is that of the rest of the request. Replies before `fresh_from` are ignored, since they were made from other
    messages. Replies of another `model` are ignored, since it counts differently. The result is bounded, and
    implausible reports are ignored.
    """
    for position in range(len(messages) - 1, max(fresh_from, 1) - 1, -1):
        message = messages[position]
        if type(message) is AssistantMessage and not message.is_failed and _may_be_of(message, model):
            reported = message.usage.input + message.usage.cache_read + message.usage.cache_write
            counted = fixed + sum(sizes[:position])
            if counted <= 0 or not _LEAST_PLAUSIBLE <= reported / counted <= _MOST_PLAUSIBLE:
                return 1.0
            return min(max(reported / counted, _LOWEST_RATE), _HIGHEST_RATE)
    return 1.0


def _may_be_of(message: AssistantMessage, model: ModelSpec | None) -> bool:
    if model is None or not message.model_id:
        return True
    return (message.provider, message.model_id) == (model.provider, model.model_id)


class CompactionPlan(NamedTuple):
    """How far to cut a conversation down, in counted tokens."""

    goal: int  # the target, if the messages that must stay allow it
    budget: int  # the target for which even messages that must stay are shortened
    limit: int  # the most that may be sent
    rate: float  # real tokens for each counted token


class SlidingWindow:
    """A `transform_context` that keeps a conversation within a budget of estimated tokens.

    Above `max_tokens` it cuts the conversation to about half of that, so that the requests of many turns then begin
    with the same messages, which providers can cache. It shortens long tool results first, then drops the oldest
    messages; a call goes with its results. The user's newest message and the last exchange always stay, and so do the
    first `keep_first` messages, usually the task, unless they alone exceed the window. After an overflow the budget is
    the smaller of `overflow_tokens` and `max_tokens`; if the conversation is already within it, the budget is half of
    the conversation. On demand (`Agent.compact`) it cuts the conversation to half its size. `count` returns the tokens
    of one message; the provider's report on the last request corrects it.
    """

    __slots__ = ("count", "keep_first", "max_tokens", "overflow_tokens")

    def __init__(
        self,
        max_tokens: int = 100_000,
        *,
        overflow_tokens: int = 50_000,
        keep_first: int = 2,
        count: Callable[[AgentMessage], int] = estimate_tokens,
    ) -> None:
        if max_tokens <= 0 or overflow_tokens <= 0 or keep_first < 0:
            raise ValueError("SlidingWindow: token budgets must be above zero, and keep_first must not be negative")
        self.max_tokens = max_tokens
        self.overflow_tokens = min(overflow_tokens, max_tokens)
        self.keep_first = keep_first
        self.count = count

    def __repr__(self) -> str:
        return f"SlidingWindow({self.max_tokens})"

    def __call__(self, messages: Sequence[AgentMessage], overflow: bool) -> list[AgentMessage] | None:
        """Returns the messages to keep, or `None` if all fit."""
        plan = self.plan(messages, overflow)
        return None if plan is None else self.fit(messages, plan.budget, plan.goal)

    def plan(self, messages: Sequence[AgentMessage], overflow: bool) -> CompactionPlan | None:
        """Returns how far to cut, or `None` if all messages fit."""
        context = CompactionContext.current()
        is_on_demand = context is not None and context.is_on_demand
        is_forced = overflow or is_on_demand
        sizes = list(map(self.count, messages)) if context is None else context.sizes(messages, self.count)
        total = sum(sizes)
        if not is_forced and total * _HIGHEST_RATE <= self.max_tokens:
            return None
        if context is None:
            rate = tokens_per_count(messages, sizes)
        else:
            fixed = context.fixed(self.count)
            rate = tokens_per_count(messages, sizes, fixed=fixed, fresh_from=context.fresh_from, model=context.model)
        if not is_forced and total * rate <= self.max_tokens:
            return None
        budget = max(1, int(self.max_tokens / rate))
        if not is_forced:
            return CompactionPlan(max(1, budget // 2), budget, budget, rate)
        if is_on_demand:
            half = max(1, min(budget, total) // 2)
            return CompactionPlan(half, half, budget, rate)
        # The provider counted more tokens than we did, so its earlier reports may only lower the budget.
        most = max(1, int(self.overflow_tokens / max(rate, 1.0)))
        most = most if total > most else max(1, total // 2)
        return CompactionPlan(most, most, most, rate)

    def fit(self, messages: Sequence[AgentMessage], budget: int, goal: int) -> list[AgentMessage] | None:
        """Cuts the messages down to `goal` or, if that is impossible, to `budget`; `None` if nothing can be cut."""
        last = last_exchange(messages)
        kept = self._shortened(messages, 0, last, max(goal // _SHARE, _LEAST_RESULT))
        if sum(map(self.count, kept)) > goal:
            kept = self._newest(kept, last, goal, budget)
        kept = self._fitted(kept, budget)
        return None if len(kept) == len(messages) and all(map(is_, kept, messages)) else kept

    def _newest(self, messages: Sequence[AgentMessage], last: int, goal: int, budget: int) -> list[AgentMessage]:
        """Returns the messages that must stay and as many of the newest others as fit."""
        newest = newest_request(messages)
        first = self._first(messages, last, newest, budget)
        start = max(first, last)
        others = [messages[newest]] if first <= newest < start else []
        spare = budget - least_tokens([*messages[:first], *others, *messages[start:]], self.count)
        asked = requests_with(messages, newest, first, spare, self.count)
        room = room_beside(messages[start:], goal, budget, self.count) - sum(map(self.count, messages[:first]))
        room -= sum(self.count(messages[at]) for at in asked if first <= at < start)
        while start > first:
            size = 0 if start - 1 in asked else self.count(messages[start - 1])
            if size > room:
                break
            start -= 1
            room -= size
        start = min(pair_boundary(messages, start), max(first, last))
        if not any(type(message) is UserMessage for message in messages[:first]):
            while start < asked.start and type(messages[start]) is not UserMessage:
                start += 1  # providers reject a conversation that begins with a reply
        return [*messages[:first], *[messages[at] for at in asked if first <= at < start], *messages[start:]]

    def _first(self, messages: Sequence[AgentMessage], last: int, request: int, budget: int) -> int:
        """How many messages stay at the start: none if they alone exceed the window and the rest does not."""
        first = min(pair_boundary(messages, self.keep_first), len(messages))
        start = [message for at, message in enumerate(messages[: min(first, last)]) if at != request]
        if self.max_tokens < _LEAST_WINDOW or least_tokens(start, self.count) <= self.max_tokens:
            return first
        needed = [message for at, message in enumerate(messages) if at >= last or at == request]
        return 0 if least_tokens(needed, self.count) <= budget else first

    def _fitted(self, messages: list[AgentMessage], budget: int) -> list[AgentMessage]:
        """Shortens results until the messages that must stay fit the budget."""
        sizes = [self.count(message) if type(message) is ToolResultMessage else 0 for message in messages]
        room = budget - sum(map(self.count, messages)) + sum(sizes)
        if room >= sum(sizes):
            return messages
        longest, left = 0, sum(1 for size in sizes if size)
        for size in sorted(filter(None, sizes)):  # short results stay whole and leave their share to the others
            longest = max(room // left, _LEAST_RESULT)
            if size > longest:
                break
            room, left = room - size, left - 1
        return self._shortened(messages, 0, len(messages), longest)

    def _shortened(self, messages: Sequence[AgentMessage], start: int, end: int, longest: int) -> list[AgentMessage]:
        """Cuts results between `start` and `end` that have more than `longest` tokens down to that."""
        return [
            _shorter(message, longest, self.count)
            if start <= at < end and type(message) is ToolResultMessage and self.count(message) > longest
            else message
            for at, message in enumerate(messages)
        ]


def newest_request(messages: Sequence[AgentMessage]) -> int:
    """The position of the user's newest message, or -1."""
    return max((at for at, message in enumerate(messages) if type(message) is UserMessage), default=-1)


def requests_with(
    messages: Sequence[AgentMessage], newest: int, first: int, room: int, count: Callable[[AgentMessage], int]
) -> range:
    """The user's newest message and the user messages directly before it, which are one request, as far as they fit.

    Messages before `first` do not count.
    """
    start = newest
    while start > max(first, 0) and type(messages[start - 1]) is UserMessage:
        room -= count(messages[start - 1])
        if room < 0:
            break
        start -= 1
    return range(start, newest + 1)


def room_beside(last: Sequence[AgentMessage], goal: int, budget: int, count: Callable[[AgentMessage], int]) -> int:
    """The tokens left for messages other than the last exchange, whose results are shortened if it is too long."""
    size = sum(map(count, last))
    return goal - size if size <= goal else min(goal, budget // _OTHERS_SHARE) - least_tokens(last, count)


def least_tokens(messages: Sequence[AgentMessage], count: Callable[[AgentMessage], int]) -> int:
    """The tokens of messages with their results as short as possible."""
    return sum(
        min(count(message), _LEAST_RESULT) if type(message) is ToolResultMessage else count(message)
        for message in messages
    )


def pair_boundary(messages: Sequence[AgentMessage], position: int) -> int:
    """The next position at which a cut separates no call from its results."""
    while position < len(messages) and isinstance(messages[position], _ATTACHED):
        position += 1
    return position


def last_exchange(messages: Sequence[AgentMessage]) -> int:
    """The position where the last exchange begins. It is always sent, even if it exceeds the budget."""
    for position in range(len(messages) - 1, -1, -1):
        if not isinstance(messages[position], _ATTACHED):
            return position
    return 0


def _shorter(message: ToolResultMessage, longest: int, count: Callable[[AgentMessage], int]) -> ToolResultMessage:
    """Keeps the beginning and the end of a result, which matter most, and adds a note about the rest.

    Images and documents stay as long as they leave some space for the text.
    """
    whole = "\n".join([block.text for block in message.content if isinstance(block, Text)])
    others = [block for block in message.content if not isinstance(block, Text)]
    most = longest - min(longest // 2, _LEAST_RESULT)
    left_out: list[UserBlock] = []
    while others and count(msgspec.structs.replace(message, content=tuple(others))) > most:
        left_out.append(others.pop())
    nouns = "images" if all(isinstance(block, Image) for block in left_out) else "images or documents"
    note = f"[… {len(left_out):,} {nouns} left out to save room …]" if left_out else ""

    def with_ends(half: int) -> ToolResultMessage:
        text = "\n".join(filter(None, (_ends(whole, half), note)))
        return msgspec.structs.replace(message, content=(Text(text), *others))

    least, half = count(with_ends(0)), (len(whole) + 1) // 2
    shorter = with_ends(half)
    while (size := count(shorter)) > longest and half:  # counted each time: the ends may be denser in tokens
        half = min(half - 1, max(0, int(half * (longest - least) / max(1, size - least))))
        shorter = with_ends(half)
    return shorter if size < count(message) else message


def _ends(text: str, half: int) -> str:
    left_out = len(text) - 2 * half
    if left_out <= 0:
        return text
    note = f"\n[… {left_out:,} characters left out to save room; call the tool again if they are needed …]\n"
    return text[:half] + note + text[len(text) - half :]
