"""Tests that need the whole machine run alone, and do not wait forever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..alone import taken


class Worker:
    """Wants the room in a thread of its own, and stays until it is told to leave."""

    def __init__(self, folder: Path, *, alone: bool) -> None:
        self.is_in, self.may_leave = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, args=(folder, alone))
        self._thread.start()

    def _work(self, folder: Path, alone: bool) -> None:
        with taken(folder, alone=alone):
            self.is_in.set()
            self.may_leave.wait(20)

    def leave(self) -> None:
        self.may_leave.set()
        self._thread.join(20)


@contextmanager
def workers(folder: Path, *alone: bool) -> Iterator[list[Worker]]:
    made: list[Worker] = []
    try:
        for is_alone in alone:
            made.append(Worker(folder, alone=is_alone))
            made[-1].is_in.wait(0.1)
        yield made
    finally:
        for worker in made:
            worker.leave()


def test_others_are_in_together(tmp_path: Path) -> None:
    with workers(tmp_path, False, False) as (one, other):
        assert one.is_in.wait(20)
        assert other.is_in.wait(20)


@pytest.mark.parametrize("second", [True, False])
def test_nobody_is_in_with_who_is_alone(tmp_path: Path, second: bool) -> None:
    with workers(tmp_path, True, second) as (alone, other):
        assert alone.is_in.is_set()
        assert not other.is_in.is_set()
        alone.leave()
        assert other.is_in.wait(20)


def test_a_test_that_waits_to_be_alone_comes_before_later_ones(tmp_path: Path) -> None:
    with workers(tmp_path, False, True, False) as (first, alone, late):
        assert first.is_in.is_set()
        assert not alone.is_in.is_set()
        assert not late.is_in.is_set()
        first.leave()
        assert alone.is_in.wait(20)
        assert not late.is_in.is_set()
        alone.leave()
        assert late.is_in.wait(20)
