"""`SummarizingCompactor`: replaces the older part of a long conversation with a summary that a model writes.

Owns which messages are kept, which are summarized, and what happens when a summary fails. `summary_text` has the
prompts and texts, the run's `CompactionContext` sends the request, and the core's `SlidingWindow` computes the budgets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from swink_agent.core import types
from swink_agent.core.context.compaction import CompactionContext
from swink_agent.core.context.context import estimate_tokens
from swink_agent.core.context.window import (
    CompactionPlan,
    SlidingWindow,
    last_exchange,
    least_tokens,
    newest_request,
    pair_boundary,
    requests_with,
    room_beside,
)
from swink_agent.core.errors import Aborted, AgentError
from swink_agent.core.loop import run_loop
from swink_agent.core.stream import StreamFn

from .summary_text import SYSTEM_PROMPT, is_summary, record_of, request_for, said_in, summary_message

log = logging.getLogger("swink_agent")

_MOST_REPLY, _LEAST_REPLY = 8_192, 1_024
"""Tokens of a reply that contains a summary, including the reasoning that some models cannot turn off."""
_REPLY_SHARE = 3
"""A reply may take this fraction (a third) of what the run may send, so that both fit into the context window."""
_LEAST_RECORD = 2_000
"""Tokens of the record even if the budget is smaller: a smaller window is not large enough for summaries."""
_LEAST_SUMMARY = 400
_LEAST_SHARE = 8
"""If the kept messages leave less than this fraction (an eighth) of the limit, no summary is written: every turn would
need another one."""
_MOST_WORDS = 1_200
_MOST_PIECES = 8  # the most requests that one compaction makes, to catch up after earlier summaries failed
_TOKENS_PER_WORD = 2


class SummarizingCompactor:
    """A `transform_context` that has a model summarize the older messages of a conversation that is too long.

    Above `max_tokens`, the newest `keep_recent` tokens and the user's newest message stay unchanged; a call stays with
    its results. One message with a summary replaces everything before: goal, decisions, work done, files touched,
    facts, open ends. Each summary includes the previous one, also in a resumed session, and the messages that were left
    out in between because a summary failed. After an overflow the budget is `overflow_tokens`, or `max_tokens` if that
    is less.

    `model` is a `provider:model` string or a `ModelSpec`, called through `stream_fn`; by default both are the agent's.
    `instructions` are added to every request for a summary. Usage and cost of the summary count for the run, policies
    that see every call (`Budget`) apply to it, and an abort stops it. If the request fails, is refused or returns no
    usable summary, the messages are cut as a `SlidingWindow` does it. `count` gives the tokens of one message. The
    compactor has no state, so one object can serve many agents.
    """

    __slots__ = ("_window", "instructions", "keep_recent", "model", "stream_fn")

    def __init__(
        self,
        model: str | types.ModelSpec | None = None,
        max_tokens: int = 100_000,
        keep_recent: int = 20_000,
        stream_fn: StreamFn | None = None,
        instructions: str | None = None,
        *,
        overflow_tokens: int = 50_000,
        count: Callable[[types.AgentMessage], int] = estimate_tokens,
    ) -> None:
        if max_tokens <= 0 or overflow_tokens <= 0 or keep_recent < 0:
            problem = "token budgets must be above zero, and keep_recent must not be negative"
            raise ValueError(f"SummarizingCompactor: {problem}")
        if model is not None and not isinstance(model, (str, types.ModelSpec)):  # pyright: ignore[reportUnnecessaryIsInstance]
            what = f"model must be provider:model or a ModelSpec, not {type(model).__name__}"
            raise TypeError(f"SummarizingCompactor: {what}: pass the budget by name, max_tokens={model}")
        self.model = types.ModelSpec.parse(model) if isinstance(model, str) else model
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
    def count(self) -> Callable[[types.AgentMessage], int]:
        return self._window.count

    async def __call__(self, messages: Sequence[types.AgentMessage], overflow: bool) -> list[types.AgentMessage] | None:
        """Returns the messages to send from now on, or `None` if all fit.

        Outside a run the agent's model is unknown: without a `model` the compactor can then only leave messages out.
        """
        plan = self._window.plan(messages, overflow)
        if plan is None:
            return None
        context = CompactionContext.current()
        if context is None and self.model is not None:
            context = CompactionContext.alone(self.model, run_loop, self.stream_fn)
        return await self._compact(messages, plan, context)

    # -- which messages stay and which are summarized --------------------------------------------------------------

    async def _compact(
        self, messages: Sequence[types.AgentMessage], plan: CompactionPlan, context: CompactionContext | None
    ) -> list[types.AgentMessage] | None:
        last = last_exchange(messages)
        room = room_beside(messages[last:], plan.goal, plan.budget, self.count)
        all_else_fits = sum(map(self.count, messages[:last])) <= room
        if all_else_fits and not (context is not None and context.is_on_demand):  # its results are shortened
            return self._cut_down(messages, plan.budget, plan.goal)
        asked = self._newest_request_range(messages, plan)
        cut = self._cut(messages, asked, plan)
        lost = [] if context is None else _left_out(context, messages)
        if not lost and not _has_news(messages, asked, cut):
            # The previous summary takes up most of the budget: the next one includes everything after it.
            cut = last
        if context is None or not (lost or _has_news(messages, asked, cut)):
            return self._cut_down(messages, plan.budget, plan.goal)
        kept = [*[messages[at] for at in asked if at < cut], *messages[cut:]]
        replaced = sum(self.count(message) for at, message in enumerate(messages[:cut]) if at not in asked)
        replaced += sum(map(self.count, lost))
        room = plan.limit - least_tokens(kept, self.count)
        if room < plan.limit // _LEAST_SHARE:
            return self._cut_down(messages, plan.budget, plan.goal)
        longest = max(min(plan.limit // 2, room, replaced), _LEAST_SUMMARY)
        summary = await self._summary(lost, messages[:cut], longest, plan, context)
        if summary is None:
            return self._cut_down(messages, plan.budget, plan.goal)
        context.covers(summary, _position(context.history, messages[cut] if cut < len(messages) else None))
        kept = [summary, *kept]
        if sum(map(self.count, kept)) > plan.limit:
            return self._cut_down(kept, plan.limit, min(plan.limit, max(plan.goal, plan.limit // 2))) or kept
        return kept

    def _newest_request_range(self, messages: Sequence[types.AgentMessage], plan: CompactionPlan) -> range:
        """Returns the positions of the user's newest request, which stays unchanged. A summary is not a request."""
        first = 1 if messages and is_summary(messages[0]) else 0
        newest, last = newest_request(messages), last_exchange(messages)
        if newest < first:
            return range(0)
        kept = [messages[newest], *messages[last:]] if newest < last else messages[last:]
        room = plan.limit - _LEAST_SUMMARY - least_tokens(kept, self.count)
        return requests_with(messages, newest, first, room, self.count)

    def _cut(self, messages: Sequence[types.AgentMessage], asked: range, plan: CompactionPlan) -> int:
        """Returns where the kept messages begin: as many of the newest as fit, and at least the last exchange."""
        start = last = last_exchange(messages)
        request = sum(self.count(messages[at]) for at in asked if at < last)
        size = sum(map(self.count, messages[last:]))
        if size > plan.goal:
            size = least_tokens(messages[last:], self.count)  # it will be shortened
        room = min(int(self.keep_recent / plan.rate), plan.goal - request) - size
        while start > 0 and (size := 0 if start - 1 in asked else self.count(messages[start - 1])) <= room:
            start, room = start - 1, room - size
        return min(pair_boundary(messages, start), last)

    def _cut_down(
        self, messages: Sequence[types.AgentMessage], budget: int, goal: int
    ) -> list[types.AgentMessage] | None:
        """Cuts the messages as `SlidingWindow` does, but keeps a summary at the beginning."""
        window = self._window
        if messages and is_summary(messages[0]):
            window = SlidingWindow(
                window.max_tokens, overflow_tokens=window.overflow_tokens, keep_first=1, count=window.count
            )
        return window.fit(messages, budget, goal)

    # -- the summary ---------------------------------------------------------------------------------------------

    async def _summary(
        self,
        lost: Sequence[types.AgentMessage],
        messages: Sequence[types.AgentMessage],
        longest: int,
        plan: CompactionPlan,
        context: CompactionContext,
    ) -> types.UserMessage | None:
        """Returns the message that replaces these, or `None` if the model did not write one within `longest` tokens.

        The messages that were left out earlier may not fit into one request. Then several requests summarize them, each
        of which includes the summary before. A request for a summary is never longer than an ordinary request of the
        run: it uses the tokens that system prompt and tools take there.
        """
        room = plan.limit + context.fixed(self.count)
        summaries = [said_in(message) for message in messages if is_summary(message)]
        news = [message for message in messages if not is_summary(message)]
        in_one = room - sum(self.count(types.UserMessage(text)) for text in (SYSTEM_PROMPT, *summaries)) - longest
        for piece in self._pieces(lost, news, max(in_one, _LEAST_RECORD)):
            text = await self._ask_for_summary(piece, summaries, longest, room, context)
            if text is None:
                return None
            summaries = [text]
        # With the newest time of the messages, so that equal summaries of equal messages are equal messages.
        times = [message.timestamp for message in (*lost, *messages) if not isinstance(message, types.CustomMessage)]
        return summary_message(summaries[0], max(times, default=0))

    def _pieces(
        self, lost: Sequence[types.AgentMessage], news: Sequence[types.AgentMessage], room: int
    ) -> list[Sequence[types.AgentMessage]]:
        """Returns the messages of each request: a single request, unless messages were left out earlier."""
        if not lost:
            return [news]
        pieces: list[list[types.AgentMessage]] = [[]]
        size = 0
        for message in (*lost, *news):
            tokens = self.count(types.UserMessage(record_of([message], room, self.count)))  # as the record cuts it
            if size + tokens > room and pieces[-1] and len(pieces) < _MOST_PIECES:
                pieces.append([])
                size = 0
            pieces[-1].append(message)
            size += tokens
        return list(pieces)

    async def _ask_for_summary(
        self,
        messages: Sequence[types.AgentMessage],
        earlier: Sequence[str],
        longest: int,
        room: int,
        context: CompactionContext,
    ) -> str | None:
        """Asks the model for a summary of the messages and the earlier summaries; `None` if the reply is not usable."""
        most = min(max(room // _REPLY_SHARE, _LEAST_REPLY), _MOST_REPLY, context.max_tokens or _MOST_REPLY)
        room -= sum(self.count(types.UserMessage(text)) for text in (SYSTEM_PROMPT, *earlier))
        prompt = request_for(
            record_of(messages, max(room, _LEAST_RECORD), self.count),
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
            text, problem = "", str(error) or type(error).__name__
        else:
            text = types.extract_text(reply.content).strip()
            problem = _problem_with(reply, text)
            if not problem and self.count(summary_message(text, 0)) > longest:
                problem = f"it is longer than {longest} tokens"
        if problem:
            log.warning("the summary failed: %s; older messages are left out until one succeeds", problem)
            return None
        return text


def _left_out(context: CompactionContext, messages: Sequence[types.AgentMessage]) -> list[types.AgentMessage]:
    """Returns the messages of the history that are in neither `messages` nor a summary, because a summary failed.

    The context knows which messages a summary from this process covers. A summary in a resumed session has the time of
    the newest message that it covers, so it covers every message up to that time.
    """
    first = messages[0] if messages else None
    since, start = -1, 0
    if isinstance(first, types.UserMessage) and is_summary(first):
        covered = context.covered_by(first)
        since, start = (first.timestamp, 0) if covered is None else (-1, covered)
    kept = {_identity(message) for message in messages}
    return [
        message
        for message in context.history[start:]
        if isinstance(message, (types.UserMessage, types.AssistantMessage, types.ToolResultMessage))
        and message.timestamp > since
        and _identity(message) not in kept
        and not is_summary(message)
    ]


def _position(history: Sequence[types.AgentMessage], message: types.AgentMessage | None) -> int:
    """Returns the message's position in the history, or the history's length if it is not there or `None`."""
    if message is None:
        return len(history)
    wanted = _identity(message)
    return next((at for at in range(len(history) - 1, -1, -1) if _identity(history[at]) == wanted), len(history))


def _identity(message: types.AgentMessage) -> object:
    """Returns a key that identifies the message. A shortened result is a new object, so its key is not its `id`."""
    return (message.tool_call_id, message.timestamp) if isinstance(message, types.ToolResultMessage) else id(message)


def _has_news(messages: Sequence[types.AgentMessage], asked: range, cut: int) -> bool:
    """Whether there are messages before the cut that no summary covers yet."""
    return any(
        at not in asked and not is_summary(message) and not isinstance(message, types.CustomMessage)
        for at, message in enumerate(messages[:cut])
    )


def _problem_with(reply: types.AssistantMessage, text: str) -> str:
    if reply.stop_reason == types.StopReason.LENGTH:
        return "it was cut off at the length limit"
    if reply.tool_calls:
        return "the model called a tool instead"
    if not text:
        return "the model returned no text"
    return ""
