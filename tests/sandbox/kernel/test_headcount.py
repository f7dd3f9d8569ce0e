"""Counting the processes of a command: no false alarms, and soon enough that a fork bomb stays small."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from swink_agent.sandbox.kernel.headcount import Headcount, children_of, groups_beneath

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/loadavg"), reason="counted by /proc")


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process that starts the given number of others, each with that many extra threads, in a new session."""
    script = """
import os, sys, threading, time
started = []
for line in sys.stdin:
    processes, threads = map(int, line.split())
    for _ in range(processes):
        pid = os.fork()
        if not pid:
            if not started: os.setsid()
            for _ in range(threads): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            os.write(1, b"x\\n")
            time.sleep(60)
            os._exit(0)
        started.append(pid)
print("done", flush=True)
for pid in started: os.kill(pid, 9)
"""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def start(parent: subprocess.Popen[str], processes: int, threads: int = 0) -> None:
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(f"{processes} {threads}\n")
    parent.stdin.flush()
    for _ in range(processes):
        assert parent.stdout.readline() == "x\n"


def ends_within(seconds: float, headcount: Headcount) -> bool:
    """Whether it tells within the time, asked as often as it wants to be."""
    asked = threading.Event()
    return any(headcount.is_exceeded() or asked.wait(0.02) for _ in range(int(seconds / 0.02)))


def test_one_more_than_the_limit_is_told_and_the_limit_itself_is_not(parent: subprocess.Popen[str]) -> None:
    headcount = Headcount(parent.pid, 3)
    start(parent, 3)
    assert not ends_within(0.7, headcount)
    assert headcount.reason_to_end() == ""
    start(parent, 1)
    assert ends_within(10, headcount)
    assert len(children_of(parent.pid)) == 4


def test_threads_are_counted_too(parent: subprocess.Popen[str]) -> None:
    headcount = Headcount(parent.pid, 2)
    start(parent, 1, 20)
    assert not ends_within(0.7, headcount)
    start(parent, 1, 20)
    assert ends_within(10, headcount)


def test_ended_processes_that_the_root_has_to_reap_do_not_count() -> None:
    script = """
import os, sys
from swink_agent.sandbox.kernel.headcount import Headcount
for _ in range(5):
    if not (pid := os.fork()): os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print(Headcount(os.getpid(), 3).is_exceeded(), Headcount(os.getpid(), 3, root_reaps=True).is_exceeded())
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == "True False\n"


def test_ended_processes_that_a_command_does_not_reap_count() -> None:
    script = """
import os, signal
from swink_agent.sandbox.kernel.headcount import Headcount
ready, told = os.pipe()
command = os.fork()
if not command:
    for _ in range(5):
        if not (pid := os.fork()): os._exit(0)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    os.write(told, b"x")
    signal.pause()
os.read(ready, 1)
print([Headcount(os.getpid(), most, root_reaps=True).is_exceeded() for most in (5, 6)])
os.kill(command, 9)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == "[True, False]\n"


def test_threads_are_counted_beside_ended_processes() -> None:
    script = """
import os, threading, time
from swink_agent.sandbox.kernel import headcount
machine = [(1, 100), (1, 1000)]
headcount.tasks_of_machine = lambda: machine.pop(0)
counted = headcount.Headcount(os.getpid(), 3, root_reaps=True)
before = counted.is_exceeded()
for _ in range(5):
    if not (pid := os.fork()): os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
for _ in range(60): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
time.sleep(0.6)  # until the threads are counted again
print(before, counted.is_exceeded(), flush=True)
os._exit(0)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == "False True\n"


@pytest.mark.sweep
def test_a_process_with_more_children_than_fit_in_a_page_is_counted_whole() -> None:
    script = """
import os
from swink_agent.sandbox.kernel.headcount import Headcount, children_of
ready, closed_at_the_end = os.pipe()
for _ in range(1000):
    if not os.fork():
        os.close(closed_at_the_end)
        os.read(ready, 1)
        os._exit(0)
print(len(children_of(os.getpid())), Headcount(os.getpid(), 999, root_reaps=True).is_exceeded())
"""
    told = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{script}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert told.stdout == "1000 True\n"


@pytest.mark.parametrize("most", [2, 3])
def test_another_system_s_list_of_children_is_taken(most: int) -> None:
    children = {1: [2, 3], 2: [4]}
    assert Headcount(1, most, children=lambda pid: (children.get(pid, []), 1)).is_exceeded() == (most < 3)


def test_nothing_is_counted_without_a_limit() -> None:
    assert not Headcount(1, None).is_exceeded()


@pytest.mark.rows(one_of=10)
@pytest.mark.parametrize(
    ("running", "more", "threads", "is_set_back"),
    [
        (65, 65, 22, True),
        (64, 400, 22, False),
        (500, 64, 22, False),
        (500, 400, 20, False),  # 63 are its own: other programs crowd the machine
        (500, 400, 0, False),
    ],
)
def test_a_command_that_crowds_the_machine_is_set_back_and_nobody_else(
    running: int,
    more: int,
    threads: int,
    is_set_back: bool,
    parent: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = [(1, 1000), (running, 1000 + more)]
    monkeypatch.setattr("swink_agent.sandbox.kernel.headcount.tasks_of_machine", lambda: machine.pop(0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    start(parent, 3, threads)
    headcount = Headcount(parent.pid, 512)
    assert not headcount.is_exceeded()
    assert not headcount.is_exceeded()
    first, *others = children_of(parent.pid)
    assert os.getpriority(os.PRIO_PROCESS, first) == (19 if is_set_back else ours)  # it is in a new session
    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in (*others, parent.pid, os.getpid())} == {ours}
    assert groups_beneath(parent.pid) == {first}
