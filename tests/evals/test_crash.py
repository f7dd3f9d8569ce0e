"""`kill -9` in the middle of a run: finished attempts are kept and not repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from swink_agent.evals import AuditTrail, EvalStore, load_set
from swink_agent.evals.runs.store import PARTIAL

CASES = 12
SET = "\n".join(
    [
        *("id: sums", "name: Sums", "cases:"),
        *(
            f"  - {{id: c{number}, name: C, user_messages: ['1+2?'], expected_response: {{exact: '3'}}}}"
            for number in range(CASES)
        ),
    ]
)

CHILD = """
import asyncio, sys
from pathlib import Path
from swink_agent import Agent
from swink_agent.evals import EvalRunner, EvalStore, load_set
from swink_agent.testing import scripted, stall

folder, patience = Path(sys.argv[1]), int(sys.argv[2])

def make(case, _folder):
    with (folder / "made").open("a") as file:
        file.write(case.id + "\\n")
    # Some hang for as long as this process is to be killed.
    hangs = patience and int(case.id[1:]) >= patience
    return Agent("test:m", stream_fn=scripted(stall() if hangs else "3"))

def report(progress):
    print(progress.done, flush=True)

runner = EvalRunner(make, store=EvalStore(folder / "store"), parallel=3)
run = asyncio.run(runner.run(load_set(folder / "set.yaml"), report, resume=True))
print("over", run.id, flush=True)
"""


def begin(folder: Path, patience: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(folder), str(patience)]
    # What a killed process leaves behind is to lie where the test's own files do.
    surroundings = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=surroundings)


def killed_after(child: subprocess.Popen[str], done: int) -> None:
    """Kills the child as soon as it says that so many cases are done."""
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= done:
            break
    os.kill(child.pid, signal.SIGKILL)
    child.wait(30)
    child.stdout.close()


def test_a_crash_loses_at_most_the_cases_in_flight(tmp_path: Path) -> None:
    (tmp_path / "set.yaml").write_text(SET)
    killed_after(begin(tmp_path, patience=4), 4)
    store = EvalStore(tmp_path / "store")
    (interrupted,) = store.list()
    assert not interrupted.is_complete
    assert {result.case_id for result in store.load(interrupted).results} == {"c0", "c1", "c2", "c3"}
    assert AuditTrail.verify(store.load(interrupted)) == []
    killed_after(begin(tmp_path, patience=9), 9)
    with Path(interrupted.path).open("a") as file:
        file.write('{"case_id":"c9","name":"C","att')  # the disk took a part of the last line
    assert len(store.load(interrupted).results) == 9
    child = begin(tmp_path, patience=0)
    out, _ = child.communicate(timeout=60)
    assert out.split()[-2:] == ["over", interrupted.id]
    run = store.load(interrupted.id)
    assert run.is_complete
    assert [result.case_id for result in run.results] == [case.id for case in load_set(tmp_path / "set.yaml").cases]
    assert run.summary.passed == CASES
    assert AuditTrail.verify(run) == []
    made = Counter((tmp_path / "made").read_text().split())
    assert all(made[f"c{number}"] == 1 for number in range(4)), made  # nothing that was done is done again
    assert max(made.values()) <= 3
    assert not list((tmp_path / "store").rglob(f"*{PARTIAL}"))


def test_an_interrupt_from_the_keyboard_keeps_what_was_done(tmp_path: Path) -> None:
    (tmp_path / "set.yaml").write_text(SET)
    child = begin(tmp_path, patience=5)
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= 5:
            break
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)
    assert child.returncode != 0
    store = EvalStore(tmp_path / "store")
    (interrupted,) = store.list()
    assert len(store.load(interrupted).results) == 5
    found = store.resume("sums")  # the lock is free
    assert found is not None
    found[1].close()
