"""`LoopDetection`: notices a model that makes the same calls again and again.

A repetition is the same calls with the same arguments and the same results: one call or a cycle of several. The policy
reads the calls of the run from the history each time, newest first and no further than needed, so it keeps no state
between turns. It does not use a `RunRecord`: a policy sees turns, not events, and a run without subscribers has no
record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

import msgspec

from swink_agent.core.policy import Inject, PolicyContext, PreDispatchContext, Skip, Stop
from swink_agent.core.types import AgentMessage, AssistantMessage, Text, ToolCall, ToolOutcome, ToolResultMessage


class LoopDetection:
    """Notices a model that goes in circles, tells it, and stops the run if it continues.

    A circle is one call, or a cycle of up to `window / repeats` calls, made `repeats` times in a row with the same
    arguments and the same results. Then `action` decides: `"nudge"` tells the model what it is doing, `"skip"` refuses
    the next round, `"stop"` ends the run. After `stop_after` rounds, by default `2 * repeats`, the run ends in any
    case. With `compare_results=False` only the calls are compared.

    The policy looks at the last `window` calls of the current run. Put it after policies that rewrite results, because
    the history that it compares with holds the rewritten ones. It has no state, so agents can share it.
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
            raise ValueError(f"LoopDetection: action is {action!r}; it must be 'nudge', 'skip' or 'stop'")
        self.repeats = repeats
        self.stop_after = 2 * repeats if stop_after is None else max(repeats, stop_after)
        self.action = action
        self.window = max(window, self.stop_after)
        self._compares_results = compare_results

    def __repr__(self) -> str:
        return f"LoopDetection({self.repeats}, window={self.window}, action={self.action!r})"

    def pre_dispatch(self, ctx: PreDispatchContext) -> Skip | None:
        """Refuses the call that would start another round of a circle."""
        if self.action != "skip" or ctx.is_final_answer:
            return None
        reply = next((message for message in reversed(ctx.messages) if type(message) is AssistantMessage), None)
        calls = () if reply is None else reply.tool_calls
        position = next((place for place, call in enumerate(calls) if call.id == ctx.call_id), None)
        if position is None:
            return None
        # The calls before it in the batch count as made: a circle can close inside one reply.
        made = self._oldest_first(_calls_made(ctx.messages, ctx.turn_index + 1))
        made += [_Made(_signature(call), None) for call in calls[:position]]
        period, rounds = self._circle(made[-self.window :])
        if rounds < self.repeats or _signature(calls[position]) != made[-period].call:
            return None
        return Skip(
            f"this call was made before {rounds} times in a row, with the same result; "
            "do something else, or say what is missing"
        )

    def post_turn(self, ctx: PolicyContext) -> Inject | Stop | None:
        """Tells the model, or stops the run, when a circle has closed often enough."""
        if not ctx.tool_results or not self._may_circle(ctx.messages, ctx.turn_index + 1):
            return None
        made = self._oldest_first(_calls_made(ctx.messages, ctx.turn_index + 1, ctx.tool_results))
        period, rounds = self._circle(made)
        if rounds < self.repeats:
            return None
        names = ", ".join(dict.fromkeys([call.call[0] for call in made[-period:]]))
        if rounds >= self.stop_after or self.action == "stop":
            return Stop(f"the model made the same calls ({names}) {rounds} times in a row, with the same results")
        if self.action == "nudge" and self._circle(made[: -len(ctx.tool_results)])[1] < self.repeats:
            return Inject(
                f"You have made the same calls ({names}) {rounds} times in a row and got the same results each time. "
                "Doing it again will not help: try another way, or say what you have found out and what is missing."
            )
        return None

    def _may_circle(self, messages: Sequence[AgentMessage], turns: int) -> bool:
        """Whether the newest call was also made shortly before, so that a circle may have closed. Most were not."""
        newest: ToolCall | None = None
        left = self.window // self.repeats
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
            if (turns := turns - 1) <= 0:  # older messages belong to earlier runs
                return False
        return False

    def _oldest_first(self, calls: Iterator[tuple[ToolCall, ToolResultMessage]]) -> list[_Made]:
        made = [_Made(_signature(call), self._outcome(result)) for call, result in islice(calls, self.window)]
        return made[::-1]

    def _outcome(self, result: ToolResultMessage) -> Any:
        # A skipped call did not run: if a policy refuses it again, it is still the same circle.
        if not self._compares_results or result.outcome is ToolOutcome.SKIPPED:
            return None
        return result.is_error, tuple([block.text if type(block) is Text else repr(block) for block in result.content])

    def _circle(self, made: Sequence[_Made]) -> tuple[int, int]:
        """The length of the shortest circle at the end that closed often enough, and how often; else `(1, 0)`."""
        for period in range(1, len(made) // self.repeats + 1):
            same = period
            while same < len(made) and made[-same - 1].equals(made[period - same - 1]):
                same += 1
            if same // period >= self.repeats:
                return period, same // period
        return 1, 0


class _Made(NamedTuple):
    """A call and its outcome; `None` for an outcome that is not compared."""

    call: tuple[str, bytes]
    outcome: Any

    def equals(self, other: _Made) -> bool:
        if self.call != other.call:
            return False
        return self.outcome is None or other.outcome is None or self.outcome == other.outcome


def _calls_made(
    messages: Sequence[AgentMessage], turns: int, newest: Sequence[ToolResultMessage] | None = None
) -> Iterator[tuple[ToolCall, ToolResultMessage]]:
    """The calls of the last `turns` replies that have a result, newest first.

    The results of a reply follow it in the order of its calls. `newest` are the results of the last reply with the
    changes of other policies, which the history gets only after the turn.
    """
    results: list[ToolResultMessage] = []
    for message in reversed(messages):
        if type(message) is ToolResultMessage:
            results.append(message)
        elif type(message) is AssistantMessage:
            in_order = results[::-1] if newest is None else newest
            yield from reversed([*zip(message.tool_calls, in_order, strict=False)])
            results, newest = [], None
            turns -= 1
            if turns <= 0:  # older messages belong to earlier runs
                return


def _signature(call: ToolCall) -> tuple[str, bytes]:
    return call.name, msgspec.json.encode(call.arguments, order="sorted")
