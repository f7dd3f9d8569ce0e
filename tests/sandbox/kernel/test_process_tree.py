"""The watch over commands while they run: when it looks, and that its thread does not stay."""

from __future__ import annotations

import threading

from swink_agent.sandbox.kernel.process_tree import Watch


def watching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "swink-sandbox-watch"]


def test_what_a_look_tells_is_handed_on() -> None:
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
