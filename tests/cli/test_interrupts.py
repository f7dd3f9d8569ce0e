"""Signals after the run is over: the process exits, and its exit code does not change."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import os, signal, sys
from swink_agent.cli.process.interrupts import interruptible

def interrupt(kill=os.kill, me=os.getpid(), number=signal.SIGINT):
    kill(me, number)

class Last:
    def __del__(self, interrupt=interrupt):
        interrupt()  # Python has given the handlers back by now

with interruptible(lambda: None, lambda: None):
    if {times} > 0:
        interrupt()
if {times} > 1:
    interrupt()
    while True:
        signal.pause()
if {at_the_end}:
    sys.last = Last()
sys.exit(130)
"""


def ended(times: int, *, at_the_end: bool = False) -> int:
    script = _SCRIPT.format(times=times, at_the_end=at_the_end)
    return subprocess.run([sys.executable, "-c", script], timeout=60, check=False, stderr=subprocess.DEVNULL).returncode


@pytest.mark.parametrize("times", [1, 2])
def test_a_second_signal_ends_the_process_also_when_the_run_is_over(times: int) -> None:
    assert ended(times) == 130


def test_a_signal_that_comes_while_python_ends_is_not_what_it_dies_of() -> None:
    assert ended(0, at_the_end=True) == -2  # so it is where nobody looks after it
    assert ended(1, at_the_end=True) == 130


_BROKEN = """
import os, signal
from swink_agent.cli.process.interrupts import interruptible

read, write = os.pipe()
os.close(read)
os.dup2(write, 2)
stopped = []
with interruptible(lambda: stopped.append(True), lambda: None, is_told=True):
    os.kill(os.getpid(), signal.SIGINT)
print("stopped" if stopped else "goes on")
"""


def test_a_signal_stops_the_run_also_when_nobody_reads_stderr() -> None:
    done = subprocess.run([sys.executable, "-c", _BROKEN], timeout=60, check=False, stdout=subprocess.PIPE, text=True)
    assert done.stdout == "stopped\n"
