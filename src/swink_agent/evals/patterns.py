"""Regular expressions that cannot hang a run.

Owns the search in limited time. Python's engine can neither be stopped from another thread nor told when to give up, so
a search that could take long is made in a process of its own, which is killed. One that cannot is made here, in
microseconds.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys

__all__ = ["PatternTimeout", "found_within", "is_quick"]

_SECONDS = 1
"""Of the processor: how busy the machine is with other things decides nothing."""
_PATIENCE = 10
"""Seconds by the clock that the other process may take beyond that, to begin with and to be waited for."""
_STEPS = 10_000_000
"""Steps of the engine, about a tenth of a second, up to which a search is made here."""
_REPEATS = re.compile(r"[*+{]")
_OPTIONS = re.compile(r"[?|]")
_INVOLVED = re.compile(r"\)\s*[*+?{]|\\[1-9]|\(\?P=|\(\?[(=!<]")
"""A group that is repeated, a reference to one, looking around: what no simple bound holds for."""

_PROGRAM = """
import json, re, resource, sys, warnings
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1]) + 1))
warnings.simplefilter("ignore")
pattern, text = json.loads(sys.stdin.buffer.read())
sys.exit(10 if re.search(pattern, text) else 11)
"""


class PatternTimeout(Exception):
    """The search took longer than it may."""


def found_within(pattern: str, text: str, seconds: int = _SECONDS) -> bool:
    """Whether the pattern is found in the text, in so many seconds of the processor. Raises `PatternTimeout`."""
    if is_quick(pattern, len(text)):
        return re.search(pattern, text) is not None
    return _found_elsewhere(pattern, text, seconds)


def is_quick(pattern: str, length: int) -> bool:
    """Whether a search in a text of this length is short, whatever the text."""
    if _INVOLVED.search(pattern):
        return False
    # Each repetition may be tried at each length, from each start; each option doubles the ways. Escaped ones count
    # too: this errs on the side of the slower way.
    repeats, options = len(_REPEATS.findall(pattern)), len(_OPTIONS.findall(pattern))
    return (length + len(pattern) + 1) ** (repeats + 1) * 2**options <= _STEPS


def _found_elsewhere(pattern: str, text: str, seconds: int) -> bool:
    import json

    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(seconds)],
            input=json.dumps([pattern, text]).encode("utf-8", "surrogatepass"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=seconds + _PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _too_long(pattern, seconds) from error
    if done.returncode in (10, 11):
        return done.returncode == 10
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise _too_long(pattern, seconds)
    said = done.stderr.decode(errors="replace").strip().splitlines()
    raise RuntimeError(f"the search for {pattern[:80]!r} failed: {said[-1] if said else done.returncode}")


def _too_long(pattern: str, seconds: int) -> PatternTimeout:
    return PatternTimeout(f"the search for {pattern[:80]!r} found no end in {seconds} s; write a simpler pattern")
