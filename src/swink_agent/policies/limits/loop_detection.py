"""`LoopDetection`: notices a model that makes the same calls again and again.

A repetition is the same calls with the same arguments and the same results: one call or a cycle of several. The policy
remembers the latest calls of each run, as the record of each turn has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from swink_agent.core.policy import Inject, PolicyContext, PreDispatchContext, Skip, Stop
from swink_agent.core.record import CallRecord
from swink_agent.core.types import AssistantMessage, Text, ToolOutcome
from swink_agent.core.values.checks import check_switch, check_whole


class LoopDetection:
    """Notices a model that goes in circles, tells it, and stops the run if it continues.

    A circle is one call, or a cycle of up to `window / repeats` calls, made `repeats` times in a row with the same
    arguments and the same results. Then `action` decides: `"nudge"` tells the model what it is doing, `"skip"` refuses
    the next round, `"stop"` ends the run. After `stop_after` rounds, by default `2 * repeats`, the run ends in any
    case. With `compare_results=False` only the calls are compared.

    The policy looks at the last `window` calls of a run, as they ran. Agents can share it.
    """

    name = "loop_detection"
    own_run_only = True
    __slots__ = ("_calls", "_compares_results", "action", "repeats", "stop_after", "window")

    def __init__(
        self,
        repeats: int = 3,
        *,
        window: int = 30,
        action: Literal["nudge", "skip", "stop"] = "nudge",
        stop_after: int | None = None,
        compare_results: bool = True,
    ) -> None:
        for name, number in (("repeats", repeats), ("window", window), ("stop_after", stop_after)):
            if number is not None:
                check_whole(f"LoopDetection: {name}", number, 0)
        check_switch("LoopDetection: compare_results", compare_results)
        if repeats < 2:
            raise ValueError(f"LoopDetection: repeats is {repeats}; a repetition takes at least 2")
        if action not in ("nudge", "skip", "stop"):
            raise ValueError(f"LoopDetection: action is {action!r}; it must be 'nudge', 'skip' or 'stop'")
        self.repeats = repeats
        self.stop_after = 2 * repeats if stop_after is None else max(repeats, stop_after)
        self.action = action
        self.window = max(window, self.stop_after)
        self._compares_results = compare_results
        self._calls: dict[str, list[CallRecord]] = {}
        """The latest calls of each run, by the run's id: at least as many as the window has."""

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
        made = list(map(self._made, self._calls.get(ctx.run_id, ())))[-self.window :]
        made += [_Made(_signature(call.name, call.arguments)) for call in calls[:position]]
        period, rounds = self._circle(made[-self.window :])
        if rounds < self.repeats or made[-period].call != _signature(ctx.name, ctx.arguments):
            return None
        return Skip(
            f"this call was made before {rounds} times in a row, with the same result; "
            "do something else, or say what is missing"
        )

    def post_turn(self, ctx: PolicyContext) -> Inject | Stop | None:
        """Tells the model, or stops the run, when a circle has closed often enough."""
        if not (new := ctx.calls):
            return None
        calls = self._calls.setdefault(ctx.run_id, [])
        calls += new
        if len(calls) > 2 * self.window:  # some at a time: less work than after each turn
            del calls[: -self.window]
        if not self._may_circle(calls):
            return None
        made = list(map(self._made, calls[-self.window :]))
        period, rounds = self._circle(made)
        if rounds < self.repeats:
            return None
        names = ", ".join(dict.fromkeys([call.name for call in calls[-period:]]))
        if rounds >= self.stop_after or self.action == "stop":
            return Stop(f"the model made the same calls ({names}) {rounds} times in a row, with the same results")
        if self.action == "nudge" and self._circle(made[: -len(new)])[1] < self.repeats:
            return Inject(
                f"You have made the same calls ({names}) {rounds} times in a row and got the same results each time. "
                "Doing it again will not help: try another way, or say what you have found out and what is missing."
            )
        return None

    def run_over(self, run_id: str) -> None:
        """Forgets the calls of a run."""
        self._calls.pop(run_id, None)

    def _may_circle(self, calls: Sequence[CallRecord]) -> bool:
        """Whether the newest call was also made shortly before, so that a circle may have closed. Most were not."""
        name, arguments = calls[-1].name, calls[-1].arguments
        for call in calls[-1 - self.window // self.repeats : -1]:
            if call.name == name and call.arguments == arguments:
                return True
        return False

    def _made(self, call: CallRecord) -> _Made:
        signature, result = _signature(call.name, call.arguments), call.result
        # A skipped call did not run: if a policy refuses it again, it is still the same circle.
        if not self._compares_results or result is None or call.outcome is ToolOutcome.SKIPPED:
            return _Made(signature)
        texts = tuple([block.text if type(block) is Text else repr(block) for block in result.content])
        return _Made(signature, (result.is_error, texts))

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
    outcome: Any = None

    def equals(self, other: _Made) -> bool:
        if self.call != other.call:
            return False
        return self.outcome is None or other.outcome is None or self.outcome == other.outcome


def _signature(name: str, arguments: dict[str, Any]) -> tuple[str, bytes]:
    return name, msgspec.json.encode(arguments, order="sorted")
