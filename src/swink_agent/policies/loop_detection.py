"""`LoopDetection`: the same calls, over and over.

Owns what counts as a repetition: the same calls with the same arguments and the same results, one call or a cycle of
several. It is read off the history each time, so nothing is remembered between turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from swink_agent.core.policy import Inject, PolicyContext, PreDispatchContext, Skip, Stop
from swink_agent.core.types import AgentMessage, AssistantMessage, Text, ToolCall, ToolOutcome, ToolResultMessage

__all__ = ["LoopDetection"]

_NEVER_MADE = frozenset({ToolOutcome.SKIPPED})
"""Outcomes that say nothing of what the call would have done: refused once more, it is still the same circle."""


class LoopDetection:
    """Notices a model that goes round in circles, tells it, and stops the run if it goes on.

    A circle is one call, or a cycle of up to `window / repeats` calls, made `repeats` times on end with the same
    arguments and the same results. `action` says what happens then: `"nudge"` tells the model what it is doing,
    `"skip"` refuses the next round, `"stop"` ends the run. After `stop_after` rounds, by default twice as many, the run
    ends in any case. With `compare_results=False` the calls alone count, whatever they return.

    Only the calls of the current run are looked at, the last `window` of them. Put it behind policies that rewrite
    results: what it compares with has been rewritten. Nothing is remembered, so the object can be shared.
    """

    name = "loop_detection"
    __slots__ = ("_compares_results", "action", "repeats", "stop_after", "window")

    def __init__(
        self,
        repeats: int = 3,
        *,
        window: int = 30,
        action: Literal["nudge", "skip", "stop"] = "nudge",
        stop_after: int | None = None,
        compare_results: bool = True,
    ) -> None:
        if repeats < 2:
            raise ValueError(f"LoopDetection: repeats is {repeats}; a repetition takes at least 2")
        if action not in ("nudge", "skip", "stop"):
            raise ValueError(f"LoopDetection: action is {action!r}; it is 'nudge', 'skip' or 'stop'")
        self.repeats = repeats
        self.stop_after = 2 * repeats if stop_after is None else max(repeats, stop_after)
        self.action = action
        self.window = max(window, self.stop_after)
        self._compares_results = compare_results

    def __repr__(self) -> str:
        return f"LoopDetection({self.repeats}, window={self.window}, action={self.action!r})"

    def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
        """Refuses the call that would go once more round a circle."""
        if self.action != "skip" or ctx.is_final_answer:
            return None
        calls, position = _asked(ctx.messages, ctx.call_id)
        if position < 0:
            return None
        # The calls before it in the batch count as made: a circle can close inside one reply.
        made = [
            *self._made(ctx.messages, ctx.turn_index),
            *[_Made(_signature(call), None) for call in calls[:position]],
        ]
        period, rounds = self._circle(made[-self.window :])
        if rounds < self.repeats or _signature(calls[position]) != made[-period].call:
            return None
        return Skip(
            f"this call was made before {rounds} times on end, with the same result; "
            "do something else, or say what is missing"
        )

    def post_turn(self, ctx: PolicyContext) -> Inject | Stop | None:
        """Tells the model, or stops the run, when a circle has closed often enough."""
        if not ctx.tool_results or not self._may_circle(ctx.messages, ctx.turn_index):
            return None
        made = self._made(ctx.messages, ctx.turn_index, ctx.tool_results)[-self.window :]
        period, rounds = self._circle(made)
        if rounds < self.repeats:
            return None
        names = ", ".join(dict.fromkeys([call.call[0] for call in made[-period:]]))
        if rounds >= self.stop_after or self.action == "stop":
            return Stop(f"the model made the same calls ({names}) {rounds} times on end, with the same results")
        if self.action == "nudge" and self._circle(made[: -len(ctx.tool_results)])[1] < self.repeats:
            return Inject(
                f"You have made the same calls ({names}) {rounds} times on end and got the same results each time. "
                "Doing it again will not help: try another way, or say what you have found out and what is missing."
            )
        return None

    def _may_circle(self, messages: Sequence[AgentMessage], turn_index: int) -> bool:
        """Whether the newest call was made before, so near that a circle can have closed: nearly all were not."""
        newest: ToolCall | None = None
        left, turns = self.window // self.repeats, turn_index + 1
        for message in reversed(messages):
            if type(message) is not AssistantMessage:
                continue
            for call in reversed(message.content):
                if type(call) is not ToolCall:
                    continue
                if newest is None:
                    newest = call
                elif call.name == newest.name and call.arguments == newest.arguments:
                    return True
                elif (left := left - 1) <= 0:
                    return False
            if (turns := turns - 1) <= 0:  # what lies before the run is no part of a circle, however long it is
                return False
        return False

    def _made(
        self,
        messages: Sequence[AgentMessage],
        turn_index: int,
        replaced: Sequence[ToolResultMessage] = (),
    ) -> list[_Made]:
        """The last calls of this run that have a result, oldest first.

        `replaced` are the newest results as other policies left them: in the history they are so only later.
        """
        results: dict[str, ToolResultMessage] = {}
        made: list[_Made] = []
        turns = turn_index + 1
        for message in reversed(messages):
            if type(message) is ToolResultMessage:
                results[message.tool_call_id] = message
            elif type(message) is AssistantMessage:
                results.update((result.tool_call_id, result) for result in replaced)
                replaced = ()
                for call in reversed(message.tool_calls):
                    if (result := results.get(call.id)) is not None:
                        made.append(_Made(_signature(call), self._outcome(result)))
                results = {}
                turns -= 1
                if turns <= 0 or len(made) >= self.window:
                    break
        made.reverse()
        return made

    def _outcome(self, result: ToolResultMessage) -> Any:
        if not self._compares_results:
            return None
        if result.outcome in _NEVER_MADE:
            return None
        return result.is_error, tuple([block.text if type(block) is Text else repr(block) for block in result.content])

    def _circle(self, made: Sequence[_Made]) -> tuple[int, int]:
        """The length of the shortest circle at the end that closed often enough, and how often; else `(1, rounds)`."""
        for period in range(1, len(made) // self.repeats + 1):
            same = period
            while same < len(made) and made[-same - 1].equals(made[period - same - 1]):
                same += 1
            if same // period >= self.repeats:
                return period, same // period
        return 1, 0


class _Made(NamedTuple):
    """A call and what came of it; `None` for an outcome that does not count."""

    call: tuple[str, bytes]
    outcome: Any

    def equals(self, other: _Made) -> bool:
        if self.call != other.call:
            return False
        return self.outcome is None or other.outcome is None or self.outcome == other.outcome


def _asked(messages: Sequence[AgentMessage], call_id: str) -> tuple[tuple[ToolCall, ...], int]:
    """The calls of the reply that is being dispatched, and the place of one of them; -1 if it is not there."""
    for message in reversed(messages):
        if type(message) is AssistantMessage:
            calls = message.tool_calls
            return calls, next((place for place, call in enumerate(calls) if call.id == call_id), -1)
    return (), -1


def _signature(call: ToolCall) -> tuple[str, bytes]:
    return call.name, msgspec.json.encode(call.arguments, order="sorted")
