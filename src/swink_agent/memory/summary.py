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
from swink_agent.core.window import CompactionPlan, SlidingWindow, last_exchange, pair_boundary

from .summary_text import SYSTEM_PROMPT, is_summary, record_of, request_for, said_in, summary_message

__all__ = ["SummarizingCompactor"]

log = logging.getLogger("swink_agent")

_MOST_REPLY = 8_192
"""Tokens of a reply with a summary in it, reasoning included where a model insists on that."""
_LEAST_RECORD = 4_000
"""Tokens of the record that any model can read, however small the budget."""
_LEAST_SUMMARY = 400
_MOST_WORDS = 1_200


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
        cut = self._cut(messages, plan)
        request = _newest_request(messages)
        old = [message for at, message in enumerate(messages[:cut]) if at != request]
        if not any(not is_summary(message) and not isinstance(message, CustomMessage) for message in old):
            return self._cut_down(messages, plan.budget, plan.goal)  # at most a result is too long
        summary = None if context is None else await self._summary(messages[:cut], plan, context)
        if summary is None:
            return self._cut_down(messages, plan.budget, plan.goal)
        asked = [messages[request]] if 0 <= request < cut else []
        kept = [summary, *asked, *messages[cut:]]
        if sum(map(self.count, kept)) > plan.limit:
            return self._cut_down(kept, plan.limit, min(plan.limit, max(plan.goal, plan.limit // 2))) or kept
        return kept

    def _cut(self, messages: Sequence[AgentMessage], plan: CompactionPlan) -> int:
        """Where what stays begins: as many of the newest messages as may be, and at least the last exchange."""
        start = last = last_exchange(messages)
        room = min(int(self.keep_recent / plan.rate), plan.goal) - sum(map(self.count, messages[last:]))
        while start > 0 and (size := self.count(messages[start - 1])) <= room:
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
        self, messages: Sequence[AgentMessage], plan: CompactionPlan, context: CompactionContext
    ) -> UserMessage | None:
        """The message that takes the place of these, or `None` if nobody could write it."""
        longest = max(plan.limit // 2, _LEAST_SUMMARY)
        prompt = request_for(
            record_of(
                [message for message in messages if not is_summary(message)],
                max(plan.limit, _LEAST_RECORD),
                self.count,
            ),
            earlier=[said_in(message) for message in messages if is_summary(message)],
            instructions=(self.instructions, context.instructions),
            words=min(longest // 2, _MOST_WORDS),
        )
        try:
            reply = await context.ask(
                context.redact(prompt),
                system_prompt=SYSTEM_PROMPT,
                model=self.model,
                stream_fn=self.stream_fn,
                max_tokens=_MOST_REPLY,
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


def _newest_request(messages: Sequence[AgentMessage]) -> int:
    """Where the newest message of the user is, a summary being none; -1 if there is none."""
    requests = [at for at, message in enumerate(messages) if isinstance(message, UserMessage)]
    return next((at for at in reversed(requests) if not is_summary(messages[at])), -1)


def _newest_time(messages: Sequence[AgentMessage]) -> int:
    """That of what is summed up, so that the same summary of the same messages is the same message."""
    return max((message.timestamp for message in messages if not isinstance(message, CustomMessage)), default=0)


def _problem_with(reply: AssistantMessage, text: str) -> str:
    if reply.stop_reason == StopReason.LENGTH:
        return "it was cut off"
    if not text:
        return "the model said nothing"
    return ""
