"""Compares the agent's calls with the expected ones, and searches with regular expressions in limited time.

Owns the comparison of JSON values and the three ways to match. Each finds the largest number of expectations that are
met if one call meets one expectation.
"""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol, cast

from swink_agent.sandbox.programs import own_interpreter
from swink_agent.sandbox.starting import run_program

from ..cases.cases import ExpectedCall, ExpectedTrajectory, TrajectoryMatch

_SECONDS = 1  # CPU time, so that other load on the machine does not matter
_PATIENCE = 10  # additional seconds by the clock, for starting the process and waiting for it
_STEPS = 10_000_000  # a search of at most this many steps, about a tenth of a second, runs in this process
_REPEATS = re.compile(r"[*+{]")
_OPTIONS = re.compile(r"[?|]")
_INVOLVED = re.compile(r"\)\s*[*+?{]|\\[1-9]|\(\?P=|\(\?[(=!<]|\(\?[a-zA-Z]*x")
"""A repeated group, a reference to a group, a look-around: they have no simple bound. With the flag `x`, a comment may
stand between a group and its repetition."""

_PROGRAM = """
import json, re, resource, sys, warnings
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1]) + 1))
warnings.simplefilter("ignore")
pattern, text = json.loads(sys.stdin.buffer.read())
sys.exit(10 if re.search(pattern, text) else 11)
"""


class MadeCall(Protocol):
    """The parts of a call that are compared."""

    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> dict[str, Any]: ...


def canonical(value: Any) -> Hashable:
    """A key that is equal for values that are equal as JSON: `true` is not 1, 1 is 1.0, order in objects is ignored."""
    if value is None or isinstance(value, (bool, str)):
        return (type(value).__name__, value)
    if isinstance(value, (int, float)):
        # NaN is not equal to itself; here it is.
        return ("number", "nan" if isinstance(value, float) and math.isnan(value) else value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value)
        return ("object", frozenset([(name, canonical(item)) for name, item in items.items()]))
    if isinstance(value, (list, tuple)):
        return ("array", tuple([canonical(item) for item in cast("Sequence[Any]", value)]))
    return (type(value).__name__, repr(value))


def trajectory_value(expected: ExpectedTrajectory, made: Sequence[MadeCall]) -> float:
    """The share of expectations that are met; with `exact`, each additional call lowers it."""
    whole = len(expected.calls)
    if expected.match is TrajectoryMatch.EXACT:
        whole = max(whole, len(made))
    return matched(expected, made) / whole if whole else 1.0


def matched(expected: ExpectedTrajectory, made: Sequence[MadeCall]) -> int:
    if expected.match is TrajectoryMatch.ANY_ORDER:
        return _in_any_order(expected.calls, made)
    return _in_order(expected.calls, made)


def _in_order(expected: Sequence[ExpectedCall], made: Sequence[MadeCall]) -> int:
    """The length of the longest common subsequence."""
    wanted = [(call.name, None if call.arguments is None else canonical(call.arguments)) for call in expected]
    row = [0] * (len(wanted) + 1)
    for call in made:
        arguments = canonical(call.arguments)
        diagonal = 0
        for position, (name, given) in enumerate(wanted, 1):
            above = row[position]
            if name == call.name and (given is None or given == arguments):
                row[position] = diagonal + 1
            elif row[position - 1] > above:
                row[position] = row[position - 1]
            diagonal = above
    return row[-1]


def _in_any_order(expected: Sequence[ExpectedCall], made: Sequence[MadeCall]) -> int:
    """The size of a largest matching.

    A call fits at most one expectation with arguments, and any without arguments for its tool. So the matching is
    largest if expectations with arguments choose first.
    """
    given: Counter[tuple[str, Hashable]] = Counter()
    open_ended: Counter[str] = Counter()
    for call in expected:
        if call.arguments is None:
            open_ended[call.name] += 1
        else:
            given[call.name, canonical(call.arguments)] += 1
    calls = Counter([(call.name, canonical(call.arguments)) for call in made])
    left = Counter([call.name for call in made])
    total = 0
    for key, count in given.items():
        met = min(count, calls[key])
        total += met
        left[key[0]] -= met
    return total + sum(min(count, left[name]) for name, count in open_ended.items())


class PatternTimeout(Exception):
    """The search exceeded its time limit."""


def found_within(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text. Raises `PatternTimeout` after a second of CPU time."""
    if is_quick(pattern, len(text)):
        return re.search(pattern, text) is not None
    return _found_elsewhere(pattern, text)


def is_quick(pattern: str, length: int) -> bool:
    """Whether a search is certainly short in any text of this length."""
    if _INVOLVED.search(pattern):
        return False
    # Each repetition may be tried at each length, from each start; each option doubles the number of ways. Escaped
    # characters are counted too, which only overestimates.
    repeats, options = len(_REPEATS.findall(pattern)), len(_OPTIONS.findall(pattern))
    return (length + len(pattern) + 1) ** (repeats + 1) * 2**options <= _STEPS


def _found_elsewhere(pattern: str, text: str) -> bool:
    try:
        done = run_program(
            [own_interpreter(), "-I", "-S", "-c", _PROGRAM, str(_SECONDS)],
            given=json.dumps([pattern, text]).encode("utf-8", "surrogatepass"),
            timeout=_SECONDS + _PATIENCE,
        )
    except subprocess.TimeoutExpired as error:
        raise _too_long(pattern) from error
    if done.returncode in (10, 11):
        return done.returncode == 10
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise _too_long(pattern)
    said = done.stderr.decode(errors="replace").strip().splitlines()
    raise RuntimeError(f"the search for {pattern[:80]!r} failed: {said[-1] if said else done.returncode}")


def _too_long(pattern: str) -> PatternTimeout:
    return PatternTimeout(f"the search for {pattern[:80]!r} did not end in {_SECONDS} s; write a simpler pattern")
