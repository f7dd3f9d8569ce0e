"""Searches with regular expressions in limited time.

Python's engine has no time limit and cannot be stopped from another thread. So a search that could take long runs in a
separate process, which is killed at the limit. A search that is certainly short runs here.
"""

from __future__ import annotations

import re
import signal
import subprocess

from swink_agent.sandbox.programs import own_interpreter
from swink_agent.sandbox.starting import run_program

_SECONDS = 1
"""CPU time, so that other load on the machine does not matter."""
_PATIENCE = 10
"""Additional seconds by the clock, for starting the process and waiting for it."""
_STEPS = 10_000_000
"""A search of at most so many steps, about a tenth of a second, runs here."""
_REPEATS = re.compile(r"[*+{]")
_OPTIONS = re.compile(r"[?|]")
_INVOLVED = re.compile(r"\)\s*[*+?{]|\\[1-9]|\(\?P=|\(\?[(=!<]")
"""A repeated group, a reference to a group, a look-around: they have no simple bound."""

_PROGRAM = """
import json, re, resource, sys, warnings
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1]) + 1))
warnings.simplefilter("ignore")
pattern, text = json.loads(sys.stdin.buffer.read())
sys.exit(10 if re.search(pattern, text) else 11)
"""


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
    import json

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
