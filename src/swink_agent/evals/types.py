"""The results of running cases: calls, invocations, scores, attempts, results, runs.

Owns the values and the figures that are computed from them. `cases` has the tasks, `runs/runner` runs a set,
`runs/store` keeps the results.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from msgspec import field
from msgspec.structs import force_setattr, replace

from swink_agent.core.errors import ErrorKind
from swink_agent.core.types import AgentMessage, Cost, PolicyStop, StopReason, ToolOutcome, Usage
from swink_agent.core.values.checks import check_text, check_whole, is_not
from swink_agent.core.values.data import as_json_data
from swink_agent.core.values.decoders import converted
from swink_agent.core.values.value import Value

from .cases.cases import EvalCase, Verdict

_Z = 1.959963984540054  # 95 % of a normal distribution are within this many standard deviations


class Score(Value, frozen=True):
    """The result of one metric: a value from 0 to 1, which passes if it reaches the threshold.

    Raises `ValueError` for a value or threshold out of range, `TypeError` for one that is not a number.
    """

    value: float
    threshold: float = 1.0
    reason: str = ""
    """The explanation for people: what was missing or found, or the reasoning of a judge."""
    cost: float = 0.0
    """US dollars for the scoring itself, by a judge."""
    tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("value", "threshold"):
            number = _plain(getattr(self, name), f"a score's {name}")
            if not 0.0 <= number <= 1.0:
                raise ValueError(f"a score's {name} must be between 0 and 1, not {number}")
            force_setattr(self, name, number)
        cost = _plain(self.cost, "a score's cost")
        if not math.isfinite(cost):
            raise ValueError(f"a score's cost must be an amount of dollars, not {cost}")
        force_setattr(self, "cost", cost)
        check_text("a score's reason", self.reason)
        check_whole("a score's tokens", self.tokens, least=0)

    @property
    def passed(self) -> bool:
        return self.value >= self.threshold


def _plain(number: object, name: str) -> float:
    """A number of any kind as a float, which every store and report can write: a bool, or one of numpy."""
    if not isinstance(number, Real):
        raise is_not(name, number, "a number")
    return float(number)


Scored: TypeAlias = Score | dict[str, Score] | None
"""What an evaluator returns: a score, several scores by the names of their parts, or nothing."""


class ToolCallRecord(Value, frozen=True, omit_defaults=True):
    """One call that the agent made, with its result."""

    name: str
    arguments: dict[str, Any] = {}
    """As the tool got them, or would have got them."""
    result: str = ""
    """The text of the result; the messages have its blocks."""
    seconds: float = 0.0
    is_error: bool = False
    outcome: ToolOutcome = ToolOutcome.RAN
    call_id: str = ""
    turn: int = 0
    """The number of the turn, from 1."""

    def __post_init__(self) -> None:
        force_setattr(self, "arguments", as_json_data(self.arguments))


class Invocation(Value, frozen=True, tag_field="kind", tag="invocation", omit_defaults=True):
    """What an agent did with a case: everything that an evaluator may look at."""

    later_fields: ClassVar = ("error_kind", "value", "has_value")
    """Fields that earlier versions did not record: the audit chain hashes them only if they are not the default."""

    messages: tuple[AgentMessage, ...] = ()
    """All messages that were added to the history, in order, including the user's."""
    turns: int = 0
    """The number of replies that the model was asked for."""
    tool_calls: tuple[ToolCallRecord, ...] = ()
    """In the order in which the model made them."""
    response: str = ""
    """The text of the last reply."""
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    seconds: float = 0.0
    stop_reason: StopReason = StopReason.STOP
    error: str | None = None
    """The error that ended the run, if there was one."""
    folder: Path | None = None
    """The case's folder. It exists while the case is scored, and may be deleted later."""
    stopped_by: PolicyStop | None = None
    error_kind: ErrorKind | None = None
    value: Any = None
    """The last structured output as JSON, if there was one (`has_value`)."""
    has_value: bool = False

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
            error_kind: ErrorKind | None = ...,
            value: Any = ...,
            has_value: bool = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        force_setattr(self, "messages", tuple(self.messages))
        calls: list[Any] = list(self.tool_calls)
        records = [call if isinstance(call, ToolCallRecord) else converted(call, ToolCallRecord) for call in calls]
        force_setattr(self, "tool_calls", tuple(records))
        if self.folder is not None:
            force_setattr(self, "folder", Path(self.folder))


class StoredTrajectory(Value, frozen=True, tag_field="kind", tag="stored"):
    """The place of an invocation in a stored run, from which it is read on demand."""

    path: str
    offset: int
    length: int

    def load(self) -> Invocation:
        """Reads the invocation. Raises `EvalStoreError` if the file is missing or damaged."""
        from .runs.codec import load_trajectory

        return load_trajectory(self)


class Versions(Value, frozen=True):
    """What exactly was run: attempts with equal versions had the same model, instructions and tools."""

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

    later_fields: ClassVar = ("is_measured", "tries", "lost_cost", "lost_tokens")
    """As `Invocation.later_fields`."""

    number: int
    """From 1; above 1 only with repeats."""
    scores: dict[str, Score] = {}
    """By the name of the evaluator; only those that applied."""
    error: str | None = None
    """Why the attempt failed regardless of scores: an error of the model or the factory, or nothing to score."""
    usage: Usage = field(default_factory=Usage)
    cost: Cost = field(default_factory=Cost)
    """Of the agent only; the cost of judges is in the scores."""
    turns: int = 0
    calls: int = 0
    """The number of tool calls."""
    seconds: float = 0.0
    """Of the agent only."""
    stop_reason: StopReason = StopReason.STOP
    started: int = 0
    """Milliseconds since the epoch."""
    versions: Versions = field(default_factory=Versions)
    chain: tuple[str, ...] = ()
    """The audit chain: a SHA-256 of what was run, one for each turn and the link before it, and a seal."""
    trajectory: Invocation | StoredTrajectory = field(default_factory=Invocation)
    case: EvalCase | None = None
    """The case, with the secrets masked that the agent's redactor knew."""
    is_measured: bool = True
    """`False` if the provider failed (throttled, overloaded, out of reach), which says nothing about the agent."""
    tries: int = 1
    """How often the attempt was started; above 1 if the provider failed before."""
    lost_cost: float = 0.0
    """US dollars for the earlier tries."""
    lost_tokens: int = 0

    @property
    def invocation(self) -> Invocation:
        """What the agent did; if it is in a store, it is read from there each time."""
        trajectory = self.trajectory
        return trajectory.load() if isinstance(trajectory, StoredTrajectory) else trajectory

    @property
    def passed(self) -> bool:
        """Whether there was no error, there are scores, and all of them passed."""
        return self.error is None and bool(self.scores) and all(score.passed for score in self.scores.values())

    @property
    def value(self) -> float:
        """The mean of the scores; 0 if there was an error or there are none."""
        if self.error is not None or not self.scores:
            return 0.0
        return fmean(score.value for score in self.scores.values())

    @property
    def total_cost(self) -> float:
        """US dollars for the agent, its judges and earlier tries."""
        return self.cost.amount + self.lost_cost + sum(score.cost for score in self.scores.values())

    @property
    def total_tokens(self) -> int:
        return self.usage.tokens + self.lost_tokens + sum(score.tokens for score in self.scores.values())


class CaseResult(Value, frozen=True):
    """All attempts at one case. `verdict` is how they become one verdict.

    Attempts that were not measured count neither for nor against it.
    """

    case_id: str
    attempts: tuple[Attempt, ...] = ()
    name: str = ""
    verdict: Verdict = Verdict.ALL

    @property
    def measured(self) -> tuple[Attempt, ...]:
        return tuple([attempt for attempt in self.attempts if attempt.is_measured])

    @property
    def is_measured(self) -> bool:
        """Whether an attempt was measured, or there are none."""
        return not self.attempts or any(attempt.is_measured for attempt in self.attempts)

    @property
    def passed(self) -> bool:
        attempts = self.measured
        if not attempts:
            return False
        if self.verdict is Verdict.MEAN:
            scores = self.scores
            return bool(scores) and all(score.passed for score in scores.values())
        passed = sum(attempt.passed for attempt in attempts)
        if self.verdict is Verdict.ANY:
            return passed > 0
        return 2 * passed > len(attempts) if self.verdict is Verdict.MAJORITY else passed == len(attempts)

    @property
    def error(self) -> str | None:
        """The first error of an attempt."""
        return next((attempt.error for attempt in self.attempts if attempt.error is not None), None)

    @property
    def scores(self) -> dict[str, Score]:
        """The deciding scores by name: the worst of the attempts, the best for `any`, the median for `majority` (the
        lower of two), the mean for `mean`."""
        found: dict[str, list[Score]] = {}
        for attempt in self.measured:
            for name, score in attempt.scores.items():
                found.setdefault(name, []).append(score)
        if self.verdict is Verdict.MEAN:
            errors = sum(attempt.error is not None for attempt in self.measured)
            return {name: self._mean_score(name, scores, errors) for name, scores in found.items()}
        decisive: dict[str, Score] = {}
        for name, scores in found.items():
            scores.sort(key=lambda score: (score.passed, score.value))
            last = len(scores) - 1
            place = {Verdict.ANY: last, Verdict.MAJORITY: last // 2}.get(self.verdict, 0)
            decisive[name] = scores[place]
        return decisive

    def _mean_score(self, name: str, scores: Sequence[Score], errors: int) -> Score:
        # An attempt with an error counts as 0, whatever its scores.
        values = [
            attempt.scores[name].value for attempt in self.measured if not attempt.error and name in attempt.scores
        ]
        values += [0.0] * errors
        value = min(1.0, fmean(values))
        threshold = max(score.threshold for score in scores)
        shown = ", ".join([f"{value:g}" for value in values])
        return Score(value, threshold, f"the mean of {len(values)} attempts: {shown}")

    @property
    def mean(self) -> float:
        """The mean of the attempts' values."""
        measured = self.measured
        return fmean([attempt.value for attempt in measured]) if measured else 0.0

    @property
    def standard_error(self) -> float:
        """Of the mean, from the sample's deviation (n - 1); 0 for a single attempt."""
        measured = self.measured
        count = len(measured)
        return stdev(attempt.value for attempt in measured) / math.sqrt(count) if count > 1 else 0.0

    def pass_at(self, k: int) -> float:
        """The probability that one of `k` attempts passes: the unbiased estimate from the measured attempts.

        Raises `ValueError` unless 1 <= k <= the number of these.
        """
        measured = self.measured
        count = len(measured)
        if not 1 <= k <= count:
            raise ValueError(f"pass_at({k}) needs at least {k} attempts; there are {count}, so give 1 to {count}")
        failed = sum(not attempt.passed for attempt in measured)
        return 1.0 - math.comb(failed, k) / math.comb(count, k)

    @property
    def case(self) -> EvalCase | None:
        """The case, as the first attempt has it."""
        return self.attempts[0].case if self.attempts else None

    @property
    def tags(self) -> tuple[str, ...]:
        return () if self.case is None else self.case.tags

    @property
    def cost(self) -> float:
        """US dollars for all attempts and their judges."""
        return sum(attempt.total_cost for attempt in self.attempts)

    @property
    def tokens(self) -> int:
        return sum(attempt.total_tokens for attempt in self.attempts)

    @property
    def seconds(self) -> float:
        """The sum over all attempts."""
        return sum(attempt.seconds for attempt in self.attempts)


class Summary(Value, frozen=True):
    """The figures of a run."""

    total: int = 0
    passed: int = 0
    failed: int = 0
    cost: float = 0.0
    """US dollars, including judges."""
    tokens: int = 0
    seconds: float = 0.0
    """By the clock, summed over the parts of a resumed run. For a tag, the sum over its cases."""
    not_measured: int = 0
    """Cases without a measured attempt, because the provider failed: neither passed nor failed."""
    tags: dict[str, Summary] = {}
    """The same figures for the cases of each tag."""

    @property
    def measured(self) -> int:
        """The number of cases in the pass rate."""
        return self.total - self.not_measured

    @property
    def pass_rate(self) -> float:
        """The share of measured cases that passed; 0 if there are none."""
        return self.passed / self.measured if self.measured else 0.0

    @property
    def pass_rate_low(self) -> float:
        """With `pass_rate_high`, the 95 % confidence interval of the pass rate (Wilson's interval).

        A case is one observation however often it was repeated, because its repeats are not independent: more cases
        make the interval narrower, more repeats do not.
        """
        return self._interval()[0]

    @property
    def pass_rate_high(self) -> float:
        return self._interval()[1]

    def _interval(self) -> tuple[float, float]:
        count = self.measured
        if not count:
            return 0.0, 1.0
        rate, square = self.pass_rate, _Z * _Z
        middle = (rate + square / (2 * count)) / (1 + square / count)
        half = _Z * math.sqrt(rate * (1 - rate) / count + square / (4 * count * count)) / (1 + square / count)
        # At the ends the formula gives 0 and 1, except for rounding.
        low = 0.0 if not self.passed else middle - half
        high = 1.0 if self.passed == count else middle + half
        return max(0.0, low), min(1.0, high)

    @classmethod
    def of(cls, results: Iterable[CaseResult], seconds: float = 0.0) -> Summary:
        """The figures of these results, and of each of their tags."""
        every = tuple(results)
        tags: dict[str, list[CaseResult]] = {}
        for result in every:
            for tag in result.tags:
                tags.setdefault(tag, []).append(result)
        figures = {tag: cls._figures(some, sum(one.seconds for one in some)) for tag, some in tags.items()}
        return replace(cls._figures(every, seconds), tags=figures)

    @classmethod
    def _figures(cls, results: Sequence[CaseResult], seconds: float) -> Summary:
        total, passed = len(results), sum(result.passed for result in results)
        missing = sum(not result.is_measured for result in results)
        cost, tokens = sum((result.cost for result in results), 0.0), sum(result.tokens for result in results)
        return cls(total, passed, total - passed - missing, cost, tokens, seconds, missing)


class EvalRun(Value, frozen=True):
    """A run of a set: its results in the order of the set, and their summary."""

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
    """The number of cases in the set; more than `results` if the run was interrupted."""
    repeat: int = 1
    is_complete: bool = True
    """Whether all attempts at all cases were made."""
    chain: str = ""
    """SHA-256 over the audit chains of all attempts: a copy kept elsewhere proves that nothing was replaced here."""
    path: str = ""
    """The file of the run, if it is stored."""
    verdict: Verdict = Verdict.ALL
    """How repeats become a verdict, unless the case has its own."""
    variant: str = ""
    """The name of the model or agent in a grid."""
    grid: str = ""
    """The id of the grid that contains the run."""
    origin: str = ""
    """The id of the run that this one scores again."""

    def __post_init__(self) -> None:
        force_setattr(self, "results", tuple(self.results))

    def result(self, case_id: str) -> CaseResult:
        """Returns the result of a case. Raises `KeyError`."""
        for result in self.results:
            if result.case_id == case_id:
                return result
        raise KeyError(case_id)


class EvalGrid(Value, frozen=True):
    """Several runs of one set with different variants: models or agents. The others are compared with the first."""

    id: str
    runs: tuple[EvalRun, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "runs", tuple(self.runs))

    @property
    def variants(self) -> tuple[str, ...]:
        """The names in order; a run without a variant has its id as name."""
        return tuple([run.variant or run.id for run in self.runs])

    def __getitem__(self, variant: str) -> EvalRun:
        """Returns the run of a variant. Raises `KeyError`."""
        for name, run in zip(self.variants, self.runs, strict=True):
            if name == variant:
                return run
        raise KeyError(variant)

    @property
    def case_ids(self) -> tuple[str, ...]:
        """The ids of all cases in the runs, in order of first occurrence."""
        return tuple(dict.fromkeys([result.case_id for run in self.runs for result in run.results]))


class RunInfo(Value, frozen=True):
    """What a store lists about a run, without its results."""

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
    variant: str = ""
    grid: str = ""
    origin: str = ""


class EvalTask(Value, frozen=True):
    """One attempt at one case, for an executor. Its files are in the case."""

    run_id: str
    set_id: str
    case: EvalCase
    number: int = 1
    """The number of the attempt, from 1."""


class Progress(Value, frozen=True):
    """The progress of a run: reported after each attempt, and before the first one to displays that have `begin`."""

    done: int
    """Finished cases."""
    total: int
    passed: int
    failed: int
    cost: float
    seconds: float
    """Since the run began, or was resumed."""
    attempts_done: int = 0
    attempts_total: int = 0
    resumed: int = 0
    """Attempts of an earlier part of the run, which are not in `seconds`."""
    running: tuple[str, ...] = ()
    """Ids of the cases in progress."""
    latest: CaseResult | None = None
    """The latest case, with its attempts so far; `None` in the first report."""
    not_measured: int = 0
    """Finished cases without a verdict, because the provider failed."""
    variant: str = ""
    """The variant of a grid."""
