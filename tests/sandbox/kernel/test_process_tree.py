"""The watch over running commands: when it looks, and that its thread ends."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading

import pytest

from swink_agent.sandbox.kernel import process_tree
from swink_agent.sandbox.kernel.process_tree import Watch, parent_of


def watching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "swink-sandbox-watch"]


def test_results_of_a_look_are_handed_on() -> None:
    watch, looks, told = Watch(), iter(["", "", "too many"]), threading.Event()
    reasons: list[str] = []

    def end(reason: str) -> None:
        reasons.append(reason)
        watch.remove("command")
        told.set()

    watch.add("command", lambda: next(looks), end)
    assert told.wait(10)
    assert reasons == ["too many"]
    watch.close()


def test_the_thread_ends_with_what_it_watches_and_at_once_when_closed() -> None:
    before = set(watching())
    watch, looked = Watch(), threading.Event()
    watch.add("command", lambda: looked.set() or "", lambda reason: None)
    assert looked.wait(10)
    (thread,) = set(watching()) - before
    watch.remove("command")
    thread.join(10)
    assert not thread.is_alive()
    watch.add("another", lambda: "", lambda reason: None)
    (thread,) = set(watching()) - before
    watch.close()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such scheduling")
def test_the_thread_and_its_children_have_no_real_time_priority() -> None:
    watch, looked = Watch(), threading.Event()
    found: list[int] = []

    def look() -> str:
        child = subprocess.run(
            [sys.executable, "-c", "import os; print(os.sched_getscheduler(0))"], capture_output=True, check=True
        )
        found.extend([os.sched_getscheduler(0), int(child.stdout)])
        looked.set()
        return ""

    watch.add("command", look, lambda reason: None)
    assert looked.wait(10)
    watch.close()
    assert found[:2] == [os.SCHED_OTHER, os.SCHED_OTHER]


def test_postponed_work_is_done_in_its_thread_or_here_without_one() -> None:
    watch, done = Watch(), threading.Event()
    threads: list[str] = []
    watch.call_later(lambda: threads.append(threading.current_thread().name))
    watch.add("command", lambda: "", lambda reason: None)
    watch.remove("command")
    watch.call_later(lambda: os.close(-1))  # it fails, and what follows is done all the same
    watch.call_later(lambda: threads.append(threading.current_thread().name) or done.set())
    watch.close()
    assert done.wait(10)
    assert threads == [threading.current_thread().name, "swink-sandbox-watch"]
    watch.call_later(lambda: os.close(-1))  # the thread has ended: it is called here, and its failure is logged


def test_a_command_is_ended_though_what_could_wait_takes_long() -> None:
    watch, ended, is_busy, is_free = Watch(), threading.Event(), threading.Event(), threading.Event()
    watch.add("command", lambda: "too many" if is_busy.is_set() else "", lambda reason: ended.set())

    def take_long() -> None:
        is_busy.set()
        is_free.wait(10)

    watch.call_later(take_long)
    try:
        assert ended.wait(5)
    finally:
        is_free.set()
        watch.close()


def test_processes_that_cannot_be_watched_are_ended_and_others_are_watched() -> None:
    watch, told, ended = Watch(), threading.Event(), threading.Event()
    reasons: list[str] = []

    def fail() -> str:
        raise RuntimeError("no look")

    def end_without_success(reason: str) -> None:
        reasons.append(reason)
        ended.set()
        raise OSError("no end")

    watch.add("blind", fail, end_without_success)
    watch.add("other", lambda: "too many" if ended.is_set() else "", lambda reason: told.set())
    assert told.wait(10)
    assert reasons[0] == "it could no longer be watched (no look)"
    watch.close()


def test_where_no_thread_can_be_started_the_next_command_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, told = Watch(), threading.Event()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            watch.add("first", lambda: "", lambda reason: None)
    watch.add("second", lambda: "too many", lambda reason: told.set())
    assert told.wait(10)
    watch.close()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs descriptors of processes")
@pytest.mark.parametrize("is_old", [False, True])
def test_the_parent_of_a_process_is_known_until_it_is_gone(is_old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_old:  # a kernel before Linux 6.13

        def unknown(process: int, wanted: int = 0) -> tuple[int, int, int]:
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))

        monkeypatch.setattr(process_tree, "_info_of", unknown)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        process = os.pidfd_open(child.pid)
        assert parent_of(child.pid, process) == os.getpid()
    try:
        assert parent_of(child.pid, process) is None
    finally:
        os.close(process)
