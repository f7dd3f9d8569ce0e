"""`SummarizingCompactor`: what a conversation has no more room for is summed up by a model.

Owns what is kept, what is summed up, and what happens when that fails. The words are in `summary_text`, the request
goes through the run's own `CompactionContext`, and the budgets are those of the core's `SlidingWindow`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from swink_agent.core.compaction import CompactionContext
from swink_agent.core.context import estimate_tokens
from swink_agent.core.errors import Aborted, AgentError
from swink_agent.core.loop import run_loop
from swink_agent.core.stream import StreamFn
from swink_agent.core.types import (
    AgentMessage,
    AssistantMessage,
    CustomMessage,
    ModelSpec,
    StopReason,
    UserMessage,
    extract_text,
)
from swink_agent.core.window import (
    CompactionPlan,
    SlidingWindow,
    last_exchange,
    least_tokens,
    newest_request,
    pair_boundary,
    requests_with,
    room_beside,
)

from .summary_text import SYSTEM_PROMPT, is_summary, record_of, request_for, said_in, summary_message

__all__ = ["SummarizingCompactor"]

log = logging.getLogger("swink_agent")

_MOST_REPLY, _LEAST_REPLY = 8_192, 1_024
"""Tokens of a reply with a summary in it, reasoning included where a model insists on that."""
_REPLY_SHARE = 3
"""A reply may be one part in so many of what the run may send: together they are what models have room for."""
_LEAST_RECORD = 2_000
"""Tokens of the record, however small the budget: a window with less room has none for summaries."""
_LEAST_SUMMARY = 400
_ROOM_SHARE = 8
"""Where what must stay leaves less than one part in so many, nothing is summed up: it would be so with every turn."""
_MOST_WORDS = 1_200
_TOKENS_PER_WORD = 2


class SummarizingCompactor:
    """A `transform_context` that has a model sum up what there is no more room for.

    Above `max_tokens`, the newest `keep_recent` tokens stay as they are, and so does the newest message of the user; a
    call goes with its results. All that came before is replaced by one message with a summary: goal, decisions, what
    was done, files touched, facts, open ends. The next summary takes in the one before, also in a session that was
    resumed. After an overflow the budget is `overflow_tokens`, or `max_tokens` if that is less.

    `model` is a `provider:model` string or a `ModelSpec`, asked through `stream_fn`; by default both are the agent's.
    `instructions` are added to every request for a summary. What it uses counts into the run, policies that see every
    call (`Budget`) decide about it, and an abort ends it. Where there is no summary, because the request failed, was
    refused, or brought nothing of use, the messages are cut as a `SlidingWindow` does it. `count` gives the tokens of
    one message. It keeps nothing to itself, so one object can serve many agents.
    """

    __slots__ = ("_window", "instructions", "keep_recent", "model", "stream_fn")

    def __init__(
        self,
        model: str | ModelSpec | None = None,
        max_tokens: int = 100_000,
        keep_recent: int = 20_000,
        stream_fn: StreamFn | None = None,
        instructions: str | None = None,
        *,
        overflow_tokens: int = 50_000,
        count: Callable[[AgentMessage], int] = estimate_tokens,
    ) -> None:
        if max_tokens <= 0 or overflow_tokens <= 0 or keep_recent < 0:
            raise ValueError("SummarizingCompactor: token budgets are above zero and keep_recent is not negative")
        if model is not None and not isinstance(model, (str, ModelSpec)):  # pyright: ignore[reportUnnecessaryIsInstance]
            what = f"a model is provider:model or a ModelSpec, not {type(model).__name__}"
            raise TypeError(f"SummarizingCompactor: {what}: the budget is given by name, max_tokens={model}")
        self.model = ModelSpec.parse(model) if isinstance(model, str) else model
        self.stream_fn = stream_fn
        self.keep_recent = keep_recent
        self.instructions = instructions
        self._window = SlidingWindow(max_tokens, overflow_tokens=overflow_tokens, count=count)

    def __repr__(self) -> str:
        return f"SummarizingCompactor({str(self.model) if self.model else None!r}, {self.max_tokens})"

    @property
    def max_tokens(self) -> int:
        return self._window.max_tokens

    @property
    def overflow_tokens(self) -> int:
        return self._window.overflow_tokens

    @property
    def count(self) -> Callable[[AgentMessage], int]:
        return self._window.count

    async def __call__(self, messages: Sequence[AgentMessage], overflow: bool) -> list[AgentMessage] | None:
        """The messages to send from now on, or `None` if all fit.

        Called by hand there is no agent: without a `model` of its own nothing can be summed up, only left out.
        """
        plan = self._window.plan(messages, overflow)
        if plan is None:
            return None
        context = CompactionContext.current()
        if context is None and self.model is not None:
            context = CompactionContext.alone(self.model, run_loop, self.stream_fn)
        return await self._compact(messages, plan, context)

    # -- what stays, and what is summed up -----------------------------------------------------------------------

    async def _compact(
        self, messages: Sequence[AgentMessage], plan: CompactionPlan, context: CompactionContext | None
    ) -> list[AgentMessage] | None:
        if self._is_last_too_long(messages, plan) and not (context is not None and context.is_on_demand):
            return self._cut_down(messages, plan.budget, plan.goal)
        asked = self._asked(messages, plan)
        cut = self._cut(messages, asked, plan)
        if not _has_news(messages, asked, cut):
            # The summary from before takes up most: what stands behind it goes into the next one.
            cut = last_exchange(messages)
        if context is None or not _has_news(messages, asked, cut):
            return self._cut_down(messages, plan.budget, plan.goal)
        kept = [*[messages[at] for at in asked if at < cut], *messages[cut:]]
        replaced = sum(self.count(message) for at, message in enumerate(messages[:cut]) if at not in asked)
        room = plan.limit - least_tokens(kept, self.count)
        if room < plan.limit // _ROOM_SHARE:
            return self._cut_down(messages, plan.budget, plan.goal)
        longest = max(min(plan.limit // 2, room, replaced), _LEAST_SUMMARY)
        summary = await self._summary(messages[:cut], longest, plan, context)
        if summary is None:
            return self._cut_down(messages, plan.budget, plan.goal)
        kept = [summary, *kept]
        if sum(map(self.count, kept)) > plan.limit:
            return self._cut_down(kept, plan.limit, min(plan.limit, max(plan.goal, plan.limit // 2))) or kept
        return kept

    def _is_last_too_long(self, messages: Sequence[AgentMessage], plan: CompactionPlan) -> bool:
        """Whether it is enough to shorten results of the last exchange: all that came before it can stay."""
        last = last_exchange(messages)
        room = room_beside(messages[last:], plan.goal, plan.budget, self.count)
        return sum(map(self.count, messages[:last])) <= room

    def _asked(self, messages: Sequence[AgentMessage], plan: CompactionPlan) -> range:
        """Where the newest request is, which stays word for word. A summary is none, and stands first."""
        first = 1 if messages and is_summary(messages[0]) else 0
        newest, last = newest_request(messages), last_exchange(messages)
        if newest < first:
            return range(0)
        kept = [messages[newest], *messages[last:]] if newest < last else messages[last:]
        room = plan.limit - _LEAST_SUMMARY - least_tokens(kept, self.count)
        return requests_with(messages, newest, first, room, self.count)

    def _cut(self, messages: Sequence[AgentMessage], asked: range, plan: CompactionPlan) -> int:
        """Where what stays begins: as many of the newest messages as may be, and at least the last exchange."""
        start = last = last_exchange(messages)
        request = sum(self.count(messages[at]) for at in asked if at < last)
        size = sum(map(self.count, messages[last:]))
        if size > plan.goal:
            size = least_tokens(messages[last:], self.count)  # it will be shortened
        room = min(int(self.keep_recent / plan.rate), plan.goal - request) - size
        while start > 0 and (size := 0 if start - 1 in asked else self.count(messages[start - 1])) <= room:
            start, room = start - 1, room - size
        return min(pair_boundary(messages, start), last)

    def _cut_down(self, messages: Sequence[AgentMessage], budget: int, goal: int) -> list[AgentMessage] | None:
        """The window's way. A summary that is there stays."""
        window = self._window
        if messages and is_summary(messages[0]):
            window = SlidingWindow(
                window.max_tokens, overflow_tokens=window.overflow_tokens, keep_first=1, count=window.count
            )
        return window.fit(messages, budget, goal)

    # -- the summary ---------------------------------------------------------------------------------------------

    async def _summary(
        self, messages: Sequence[AgentMessage], longest: int, plan: CompactionPlan, context: CompactionContext
    ) -> UserMessage | None:
        """The message that takes the place of these, or `None` if nobody could write it in `longest` tokens.

        The request is no longer than one of the run's own: what these have besides messages, it has room for.
        """
        room = plan.limit + context.fixed(self.count)
        most = min(max(room // _REPLY_SHARE, _LEAST_REPLY), _MOST_REPLY, context.max_tokens or _MOST_REPLY)
        earlier = [said_in(message) for message in messages if is_summary(message)]
        room -= sum(self.count(UserMessage(text)) for text in (SYSTEM_PROMPT, *earlier))
        prompt = request_for(
            record_of(
                [message for message in messages if not is_summary(message)], max(room, _LEAST_RECORD), self.count
            ),
            earlier=earlier,
            instructions=(self.instructions, context.instructions),
            words=min(longest // _TOKENS_PER_WORD, most // _TOKENS_PER_WORD, _MOST_WORDS),
        )
        try:
            reply = await context.ask(
                context.redact(prompt),
                system_prompt=SYSTEM_PROMPT,
                model=self.model,
                stream_fn=self.stream_fn,
                max_tokens=most,
            )
        except Aborted:
            raise
        except AgentError as error:
            if context.is_refused:
                raise
            log.warning("no summary: %s; older messages are left out instead", error)
            return None
        text = extract_text(reply.content).strip()
        if problem := _problem_with(reply, text):
            log.warning("no summary: %s; older messages are left out instead", problem)
            return None
        summary = summary_message(text, _newest_time(messages))
        if self.count(summary) > longest:
            log.warning("no summary: it is longer than %d tokens; older messages are left out instead", longest)
            return None
        return summary


def _has_news(messages: Sequence[AgentMessage], asked: range, cut: int) -> bool:
    """Whether there is anything to sum up before the cut that is in no summary yet."""
    return any(
        at not in asked and not is_summary(message) and not isinstance(message, CustomMessage)
        for at, message in enumerate(messages[:cut])
    )


def _newest_time(messages: Sequence[AgentMessage]) -> int:
    """That of what is summed up, so that the same summary of the same messages is the same message."""
    return max((message.timestamp for message in messages if not isinstance(message, CustomMessage)), default=0)


def _problem_with(reply: AssistantMessage, text: str) -> str:
    if reply.stop_reason == StopReason.LENGTH:
        return "it was cut off"
    if reply.tool_calls:
        return "the model called a tool instead"
    if not text:
        return "the model said nothing"
    return ""
