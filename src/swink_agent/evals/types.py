"""What came of running cases: calls, invocations, scores, attempts, results, runs.

Owns the values, and the figures that are reckoned from them. What was asked is in `cases`, how a run comes about in
`runner`, how it is kept in `store`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import field
from msgspec.structs import force_setattr

from swink_agent.core.types import (
    AgentMessage,
    Cost,
    PolicyStop,
    StopReason,
    ToolOutcome,
    Usage,
)
from swink_agent.core.values.value import Value, frozen_json

from .cases import EvalCase

__all__ = [
    "Attempt",
    "CaseResult",
    "EvalRun",
    "EvalTask",
    "Invocation",
    "Progress",
    "RunInfo",
    "Score",
    "StoredTrajectory",
    "Summary",
    "ToolCallRecord",
    "Versions",
]


class Score(Value, frozen=True):
    """How well one metric was met: a value from 0 to 1, passed when it reaches the threshold.

    Raises `ValueError` for a value or threshold outside.
    """

    value: float
    threshold: float = 1.0
    reason: str = ""
    """In words, for people: what was missing, what was found, what a judge thought."""
    cost: float = 0.0
    """US dollars that the scoring itself took, as a judge does."""
    tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("value", "threshold"):
            number = getattr(self, name)
            if not 0.0 <= number <= 1.0:
                raise ValueError(f"a score's {name} lies between 0 and 1, not at {number}")

    @property
    def passed(self) -> bool:
        return self.value >= self.threshold


class ToolCallRecord(Value, frozen=True, omit_defaults=True):
    """One call that the agent made, with what came of it."""

    name: str
    arguments: dict[str, Any] = {}
    """As the tool got them; as the model gave them where it never ran."""
    result: str = ""
    """The text of the result; the blocks themselves are in the messages."""
    seconds: float = 0.0
    is_error: bool = False
    outcome: ToolOutcome = ToolOutcome.RAN
    call_id: str = ""
    turn: int = 0
    """The number of the turn, from 1."""

    def __post_init__(self) -> None:
        force_setattr(self, "arguments", frozen_json(self.arguments))


class Invocation(Value, frozen=True, tag_field="kind", tag="invocation", omit_defaults=True):
    """What an agent did with a case: everything that an evaluator may look at."""

    messages: tuple[AgentMessage, ...] = ()
    """All that was added to the history, in order, the user's messages included."""
    turns: int = 0
    """How many replies the model was asked for."""
    tool_calls: tuple[ToolCallRecord, ...] = ()
    """In the order in which the model made them."""
    response: str = ""
    """The text of the last reply."""
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    seconds: float = 0.0
    stop_reason: StopReason = StopReason.STOP
    error: str | None = None
    """What ended it, if it did not end by itself."""
    folder: Path | None = None
    """The case's own folder, while it is scored; it may be gone later."""
    stopped_by: PolicyStop | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            messages: Sequence[AgentMessage] = ...,
            turns: int = ...,
            tool_calls: Sequence[ToolCallRecord | Mapping[str, Any]] = ...,
            response: str = ...,
            usage: Usage = ...,
            cost: Cost = ...,
            seconds: float = ...,
            stop_reason: StopReason = ...,
            error: str | None = ...,
            folder: Path | str | None = ...,
            stopped_by: PolicyStop | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        force_setattr(self, "messages", tuple(self.messages))
        calls: Sequence[Any] = self.tool_calls
        force_setattr(self, "tool_calls", tuple([_record(call) for call in calls]))
        if self.folder is not None:
            force_setattr(self, "folder", Path(self.folder))


class StoredTrajectory(Value, frozen=True, tag_field="kind", tag="stored"):
    """Where an invocation lies in a stored run, to be read when somebody looks at it."""

    path: str
    offset: int
    length: int

    def load(self) -> Invocation:
        """Reads it. Raises `EvalStoreError` if the file is gone or was changed beyond reading."""
        from .codec import load_trajectory

        return load_trajectory(self)


class Versions(Value, frozen=True):
    """What exactly was run: two attempts with equal versions asked the same model in the same way."""

    model: str = ""
    """`provider:model_id`."""
    system_prompt: str = ""
    """SHA-256 of the instructions."""
    tools: dict[str, str] = {}
    """The tools' names, each with the SHA-256 of its description and schema."""
    swink_agent: str = ""
    """The version of this package."""


class Attempt(Value, frozen=True, omit_defaults=True):
    """One run of one case, scored."""

    number: int
    """From 1; above 1 only with repeats."""
    scores: dict[str, Score] = {}
    """By the evaluators' names; only those that applied."""
    error: str | None = None
    """Why it failed whatever the scores say: an error of the model or the factory, or nothing that could be scored."""
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    """Of the agent alone; what judges cost is in the scores."""
    turns: int = 0
    calls: int = 0
    """How many tool calls there were."""
    seconds: float = 0.0
    """Of the agent alone."""
    stop_reason: StopReason = StopReason.STOP
    started: int = 0
    """Milliseconds since the epoch."""
    versions: Versions = field(default_factory=Versions)
    chain: tuple[str, ...] = ()
    """The audit chain: a SHA-256 of what was run, one for each turn over it and the one before, and one that seals."""
    trajectory: Invocation | StoredTrajectory = field(default_factory=Invocation)
    case: EvalCase | None = None
    """What was asked, without the secrets that the agent's redactor knew."""

    @property
    def invocation(self) -> Invocation:
        """What the agent did; read from the store at each look, if it lies there."""
        trajectory = self.trajectory
        return trajectory.load() if isinstance(trajectory, StoredTrajectory) else trajectory

    @property
    def passed(self) -> bool:
        """Whether there was no error, something was scored, and every score reached its threshold."""
        return self.error is None and bool(self.scores) and all(score.passed for score in self.scores.values())

    @property
    def value(self) -> float:
        """The mean of the scores; 0 when there was an error or nothing to score."""
        if self.error is not None or not self.scores:
            return 0.0
        return fmean(score.value for score in self.scores.values())

    @property
    def total_cost(self) -> float:
        """US dollars, for the agent and its judges."""
        return self.cost.total + sum(score.cost for score in self.scores.values())

    @property
    def total_tokens(self) -> int:
        return self.usage.total + sum(score.tokens for score in self.scores.values())


class CaseResult(Value, frozen=True):
    """All attempts at one case. It passes when every attempt does."""

    case_id: str
    attempts: tuple[Attempt, ...] = ()
    name: str = ""

    @property
    def passed(self) -> bool:
        return bool(self.attempts) and all(attempt.passed for attempt in self.attempts)

    @property
    def error(self) -> str | None:
        """The first error of an attempt."""
        return next((attempt.error for attempt in self.attempts if attempt.error is not None), None)

    @property
    def scores(self) -> dict[str, Score]:
        """By name, the worst of the attempts: the one that decides whether the case passes."""
        worst: dict[str, Score] = {}
        for attempt in self.attempts:
            for name, score in attempt.scores.items():
                held = worst.get(name)
                if held is None or (score.passed, score.value) < (held.passed, held.value):
                    worst[name] = score
        return worst

    @property
    def mean(self) -> float:
        """The mean of the attempts' values."""
        return fmean([attempt.value for attempt in self.attempts]) if self.attempts else 0.0

    @property
    def standard_error(self) -> float:
        """Of the mean, from the sample's deviation (n - 1); 0 for a single attempt."""
        count = len(self.attempts)
        return stdev(attempt.value for attempt in self.attempts) / math.sqrt(count) if count > 1 else 0.0

    def pass_at(self, k: int) -> float:
        """The chance that one of `k` attempts passes, estimated without bias from those that were made.

        Raises `ValueError` unless 1 <= k <= the number of attempts.
        """
        count = len(self.attempts)
        if not 1 <= k <= count:
            raise ValueError(f"pass_at({k}) cannot be told from {count} attempts; give 1 to {count}")
        failed = sum(not attempt.passed for attempt in self.attempts)
        return 1.0 - math.comb(failed, k) / math.comb(count, k)

    @property
    def case(self) -> EvalCase | None:
        """What was asked, as the first attempt has it."""
        return self.attempts[0].case if self.attempts else None

    @property
    def cost(self) -> float:
        """US dollars, of all attempts and their judges."""
        return sum(attempt.total_cost for attempt in self.attempts)

    @property
    def tokens(self) -> int:
        return sum(attempt.total_tokens for attempt in self.attempts)

    @property
    def seconds(self) -> float:
        """Of all attempts, as if they were made one after the other."""
        return sum(attempt.seconds for attempt in self.attempts)


class Summary(Value, frozen=True):
    """A run in figures."""

    total: int = 0
    passed: int = 0
    failed: int = 0
    cost: float = 0.0
    """US dollars, judges included."""
    tokens: int = 0
    seconds: float = 0.0
    """By the clock on the wall; of a resumed run, of its parts together."""

    @property
    def pass_rate(self) -> float:
        """The part of the cases that passed; 0 of none."""
        return self.passed / self.total if self.total else 0.0

    @classmethod
    def of(cls, results: Iterable[CaseResult], seconds: float = 0.0) -> Summary:
        """The figures of these results."""
        total = passed = tokens = 0
        cost = 0.0
        for result in results:
            total += 1
            passed += result.passed
            cost += result.cost
            tokens += result.tokens
        return cls(total, passed, total - passed, cost, tokens, seconds)


class EvalRun(Value, frozen=True):
    """A set that was run: its results in the order of the set, and their summary."""

    id: str
    set_id: str
    results: tuple[CaseResult, ...] = ()
    summary: Summary = field(default_factory=Summary)
    set_name: str = ""
    set_digest: str = ""
    """SHA-256 of the set as it was run."""
    created: int = 0
    """Milliseconds since the epoch."""
    cases: int = 0
    """How many cases the set has; more than there are results when the run was interrupted."""
    repeat: int = 1
    is_complete: bool = True
    """Whether every attempt at every case was made."""
    chain: str = ""
    """SHA-256 over the audit chains of all attempts: kept elsewhere, it shows that nothing was exchanged here."""
    path: str = ""
    """The file that the run lies in, if it does."""

    def __post_init__(self) -> None:
        force_setattr(self, "results", tuple(self.results))

    def result(self, case_id: str) -> CaseResult:
        """The result of one case. Raises `KeyError`."""
        for result in self.results:
            if result.case_id == case_id:
                return result
        raise KeyError(case_id)


class RunInfo(Value, frozen=True):
    """What a store lists of a run, without its results."""

    id: str
    set_id: str
    set_name: str = ""
    created: int = 0
    summary: Summary | None = None
    """`None` while the run is not complete."""
    cases: int = 0
    repeat: int = 1
    is_complete: bool = True
    path: str = ""


class EvalTask(Value, frozen=True):
    """One attempt at one case, to be made anywhere: the unit that an executor is given. Its files are in the case."""

    run_id: str
    set_id: str
    case: EvalCase
    number: int = 1
    """Which attempt it is, from 1."""


class Progress(Value, frozen=True):
    """How far a run is: reported after each attempt, and before the first to displays that have a `begin`."""

    done: int
    """Cases that are finished."""
    total: int
    passed: int
    failed: int
    cost: float
    seconds: float
    """Since the run began, or went on."""
    attempts_done: int = 0
    attempts_total: int = 0
    resumed: int = 0
    """Attempts that an earlier part of the run had made: those that took none of these seconds."""
    running: tuple[str, ...] = ()
    """Ids of the cases under way."""
    latest: CaseResult | None = None
    """The case that this report is about, with its attempts so far; `None` for the report at the beginning."""


def _record(given: Any) -> ToolCallRecord:
    return given if isinstance(given, ToolCallRecord) else msgspec.convert(given, ToolCallRecord)
