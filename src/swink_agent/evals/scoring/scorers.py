"""The built-in evaluators that need no model.

Each turns one expectation of a case into a score with a reason. `matching` compares calls and searches regular
expressions, `judge` has the evaluator that asks a model.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

import msgspec

from swink_agent.core.machine.beneath import opened_folder, read_beneath
from swink_agent.core.schemas.validation import compile_schema, describe_problems

from ..cases.cases import EvalCase, ExpectedFile, ResponseCriteria, SimilarityMeasure
from ..runs.guard import BudgetGuard
from ..types import Invocation, Score
from .matching import MadeCall, PatternTimeout, canonical, found_within, is_quick, matched, trajectory_value

_LARGEST_FILE = 16 * 1024 * 1024
_LONGEST_SHOWN = 200
_LINE_END = re.compile(r"\r?\n")
_FENCE = re.compile(r" {0,3}(`{3,})([^`]*)")
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?<=\d)(?:[eE][-+]?\d+)?(?!\w)")
_ONE_BY_ONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
"""Kana and Chinese characters, which are written without spaces: each counts as a word."""
_WORD = re.compile(rf"[{_ONE_BY_ONE}]|[^\W{_ONE_BY_ONE}]+")
_SIMILAR = 0.8
_ROUNDING = 1e-12
_CENT_FRACTION = 1e-9


class _Quick:
    """An evaluator that needs no thread."""

    def may_block(self, case: EvalCase, invocation: Invocation) -> bool:
        return False


class TrajectoryEvaluator(_Quick):
    """Whether the expected calls were made. The value is the share of them that were."""

    name = "trajectory"

    def evaluate(self, case: EvalCase, invocation: Invocation) -> Score | None:
        expected = case.expected_trajectory
        if expected is None:
            return None
        made = invocation.tool_calls
        count = matched(expected, made)
        reason = f"{count} of {len(expected.calls)} expected calls, {len(made)} made, {expected.match.value}"
        value = trajectory_value(expected, made)
        if value < 1:
            reason += f"; expected {_names(expected.calls)}; made {_names(made)}"
        return Score(value, reason=reason)


class ResponseEvaluator:
    """Whether the last reply is as expected."""

    name = "response"

    def may_block(self, case: EvalCase, invocation: Invocation) -> bool:
        regex = None if case.expected_response is None else case.expected_response.regex
        return regex is not None and not is_quick(regex, len(invocation.response))

    def evaluate(self, case: EvalCase, invocation: Invocation) -> Score | None:
        expected = case.expected_response
        if expected is None:
            return None
        if expected.schema is not None and invocation.has_value:
            return None  # the agent gave a value, which `structured` scores; the reply may be its text
        return _response_score(expected, invocation.response)


class StructuredEvaluator(_Quick):
    """Whether the agent's value is valid under the expected schema.

    The value is that of `structured_output`, if there was one, else the last reply as JSON.
    """

    name = "structured"

    def evaluate(self, case: EvalCase, invocation: Invocation) -> Score | None:
        if case.expected_response is None or case.expected_response.schema is None:
            return None
        if invocation.has_value:
            return _schema_score(case.expected_response.schema, invocation.value)
        return _response_score(case.expected_response, invocation.response)


class BudgetEvaluator(_Quick):
    """Whether the case kept its budget: 1 if it did, else the smallest ratio of limit to use."""

    name = "budget"

    def evaluate(self, case: EvalCase, invocation: Invocation) -> Score | None:
        budget = case.budget
        if budget is None:
            return None
        used = {
            "cost": invocation.cost.amount,
            "tokens": invocation.usage.tokens,
            "turns": invocation.turns,
            "seconds": invocation.seconds,
        }
        value, reasons = 1.0, list[str]()
        for name, amount in used.items():
            limit = getattr(budget, name)
            if limit is not None and amount > limit + _CENT_FRACTION:
                value = min(value, limit / amount)
                reasons.append(f"{name} {_figure(amount)} of {_figure(limit)}")
        stopped = invocation.stopped_by
        if stopped is not None and stopped.policy == BudgetGuard.name and invocation.turns == budget.turns:
            # The guard stopped the case before another turn, which is not in the figures.
            value = min(value, invocation.turns / (invocation.turns + 1))
            reasons.append(f"turns, ended by its guard after {invocation.turns} of {budget.turns}")
        return Score(value, reason=f"exceeded: {', '.join(reasons)}" if reasons else "within budget")


class EfficiencyEvaluator(_Quick):
    """How direct the agent's way was: 0.6 * unique/total calls + 0.4 * ideal/actual turns (at most 1).

    The ideal number of turns is the budget's, else the number of unique calls. Does not apply without calls.
    """

    name = "efficiency"

    def __init__(self, threshold: float = 0.5) -> None:
        self.threshold = threshold

    def evaluate(self, case: EvalCase, invocation: Invocation) -> Score | None:
        calls = invocation.tool_calls
        if not calls:
            return None
        unique = len({(call.name, canonical(call.arguments)) for call in calls})
        ideal = case.budget.turns if case.budget is not None and case.budget.turns is not None else unique
        actual = max(invocation.turns, 1)
        value = 0.6 * (unique / len(calls)) + 0.4 * min(1.0, ideal / actual)
        reason = f"{unique} unique of {len(calls)} calls, {actual} turns where {ideal} would do"
        return Score(min(value, 1.0), self.threshold, reason)


class FilesEvaluator:
    """Whether the expected files are in the case's folder. The value is the share of them that are as expected."""

    name = "files"
    needs_folder = True

    def may_block(self, case: EvalCase, invocation: Invocation) -> bool:
        return bool(case.expected_files)

    def evaluate(self, case: EvalCase, invocation: Invocation) -> Score | None:
        if not case.expected_files:
            return None
        if invocation.folder is None:
            return Score(0.0, reason="there is no folder to check")
        problems = [_file_problem(invocation.folder, file) for file in case.expected_files]
        wrong = [problem for problem in problems if problem is not None]
        value = 1 - len(wrong) / len(problems)
        return Score(value, reason="; ".join(wrong) or f"{len(problems)} files as expected")


# -- replies ---------------------------------------------------------------------------------------------------------


def _response_score(expected: ResponseCriteria, response: str) -> Score:
    if expected.exact is not None:
        return _all_or_nothing(response == expected.exact, f"exactly {_short(expected.exact)}", response)
    if expected.contains is not None:
        return _all_or_nothing(expected.contains in response, f"one with {_short(expected.contains)}", response)
    if expected.regex is not None:
        try:
            is_found = found_within(expected.regex, response)
        except PatternTimeout as error:
            return Score(0.0, reason=str(error))
        return _all_or_nothing(is_found, f"one that matches {_short(expected.regex)}", response)
    if expected.number is not None:
        return _number_score(expected.number, expected.tolerance or 0.0, response)
    if expected.similar is not None:
        measure = expected.measure or SimilarityMeasure.WORDS
        value = similarity(expected.similar, response, measure)
        threshold = _SIMILAR if expected.threshold is None else expected.threshold
        reason = f"similarity {value:.3f} by {measure.value} to {_short(expected.similar)}"
        return Score(value, threshold, reason if value >= threshold else f"{reason}, the reply is {_short(response)}")
    fenced = _last_fenced(response)
    try:
        value = msgspec.json.decode(response if fenced is None else fenced)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Score(0.0, reason=f"the reply is not JSON: {error}; it is {_short(response)}")
    return _schema_score(expected.schema or {}, value)


def _last_fenced(text: str) -> str | None:
    """The last whole block between two lines with a fence. Earlier ones may be intermediate results."""
    last: str | None = None
    block: list[str] = []
    fence = ""
    for line in _LINE_END.split(text):
        mark = _FENCE.fullmatch(line)
        if not fence:
            if mark is not None:
                fence, block = mark[1], []
        elif mark is not None and mark[1].startswith(fence) and not mark[2].strip():
            last, fence = "\n".join(block), ""
        else:
            block.append(line)
    return last


def _number_score(expected: float, tolerance: float, response: str) -> Score:
    """Whether the last number of the reply is near enough. Earlier numbers may be intermediate results."""
    found = _NUMBER.findall(response.replace("\u2212", "-"))
    wanted = f"{expected:.15g}" + (f" ± {tolerance:.15g}" if tolerance else "")
    if not found:
        return Score(0.0, reason=f"expected the number {wanted}, the reply has none: {_short(response)}")
    value = float(found[-1].replace(",", ""))
    is_near = abs(value - expected) <= tolerance + _ROUNDING * max(abs(expected), tolerance)
    return _all_or_nothing(is_near, f"one whose last number is {wanted}", response)


def similarity(expected: str, given: str, measure: SimilarityMeasure) -> float:
    """The similarity of two texts, from 0 to 1: F1 over their words, or over their longest common subsequence."""
    wanted, said = [_WORD.findall(normalize("NFKC", text).casefold()) for text in (expected, given)]
    if not wanted or not said:
        return float(wanted == said)
    if measure is SimilarityMeasure.SEQUENCE:
        common = _longest_common(wanted, said)
    else:
        common = (Counter(wanted) & Counter(said)).total()
    return 2 * common / (len(wanted) + len(said))


def _longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common subsequence, computed with one bit per word for speed."""
    places: dict[str, int] = {}
    for position, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << position
    whole = (1 << len(one)) - 1
    row = whole
    for word in other:
        met = row & places.get(word, 0)
        row = ((row + met) | (row - met)) & whole
    return len(one) - row.bit_count()


def _schema_score(schema: dict[str, Any], value: Any) -> Score:
    validator = compile_schema(schema)
    if validator.is_valid(value):
        return Score(1.0, reason="valid under the schema")
    return Score(0.0, reason=f"not valid under the schema: {_cut(describe_problems(validator, value), 1000)}")


def _all_or_nothing(is_met: bool, expected: str, response: str) -> Score:
    if is_met:
        return Score(1.0, reason=f"the reply is {expected}")
    return Score(0.0, reason=f"expected {expected}, the reply is {_short(response)}")


# -- files -----------------------------------------------------------------------------------------------------------


def _file_problem(folder: Path, expected: ExpectedFile) -> str | None:
    try:
        content = _content(folder, expected.path)
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno).lower() if isinstance(error, OSError) and error.errno else str(error)
        return f"{expected.path}: {reason}"
    if expected.content is None and expected.regex is None:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"{expected.path}: not UTF-8 text"
    if expected.content is not None:
        if text == expected.content:
            return None
        return f"{expected.path}: expected {_short(expected.content)}, found {_short(text)}"
    try:
        if found_within(expected.regex or "", text):
            return None
    except PatternTimeout as error:
        return f"{expected.path}: {error}"
    return f"{expected.path}: nothing matches {_short(expected.regex or '')}, found {_short(text)}"


def _content(folder: Path, path: str) -> bytes:
    """The content of a file inside the folder. Raises `ValueError` for a link out of it, which an agent can leave."""
    given = Path(os.path.abspath(folder))
    root = given.parent.resolve(strict=True) / given.name  # if the folder itself is a link, it is not followed
    place = (root / path).resolve(strict=True)
    if not place.is_relative_to(root):
        raise ValueError("a link out of the folder")
    try:
        # No link is followed: a process of the agent may have replaced a folder with one.
        with opened_folder(root) as opened:
            return read_beneath(opened, place.relative_to(root).parts, _LARGEST_FILE)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.EINVAL):
            raise ValueError("not a file") from error
        if error.errno == errno.EFBIG:
            raise ValueError(f"larger than {_LARGEST_FILE >> 20} MiB") from error
        raise


# -- words -----------------------------------------------------------------------------------------------------------


def _names(calls: Sequence[Any | MadeCall]) -> str:
    shown = [
        call.name if call.arguments is None else f"{call.name}{_cut(msgspec.json.encode(call.arguments).decode(), 80)}"
        for call in calls[:8]
    ]
    if len(calls) > 8:
        shown.append(f"…+{len(calls) - 8}")
    return ", ".join(shown) or "none"


def _short(text: str) -> str:
    return repr(text) if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]!r}…+{len(text) - _LONGEST_SHOWN}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _figure(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.4g}"
