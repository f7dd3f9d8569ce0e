"""Which rows of long tables run, and which part of the sweep: another tenth each day, so all of them in ten days."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from zlib import crc32

import pytest

TURNS = 10


def turn_of(day: date) -> int:
    return day.toordinal() % TURNS


def mark_turns(items: Sequence[pytest.Item], turn: int, in_full: Callable[[pytest.Item], bool]) -> None:
    """Marks what does not run by default as `sweep`, and the tests of the sweep whose turn it is as `turn`.

    All rows of a long table run within ten days, so those that rest have no second turn in the sweep. `in_full`: the
    tests that have a turn each day.
    """
    _mark(_twins(items), pytest.mark.sweep)
    tables: dict[tuple[str, bool], list[pytest.Item]] = {}
    others: dict[str, list[pytest.Item]] = {}
    for item in items:
        test = item.nodeid.partition("[")[0]
        if item.get_closest_marker("sweep") is not None:
            others.setdefault(test, []).append(item)
        elif item.get_closest_marker("rows") is not None:
            tables.setdefault((test, "landlock" in item.name), []).append(item)
    for rows in tables.values():
        _mark((row for number, row in enumerate(rows) if not _runs(row, number, len(rows), turn)), pytest.mark.sweep)
    for test, rows in others.items():
        first = crc32(test.encode())  # so that tests of one row have their turns on different days
        _mark((row for number, row in enumerate(rows, first) if number % TURNS == turn), pytest.mark.turn)
    _mark((item for item in items if item.get_closest_marker("sweep") and in_full(item)), pytest.mark.turn)


def has_turn(nodeid: str, turn: int, one_of: int) -> bool:
    """Whether it is among the tests of one in so many that run today; all of them do within ten days."""
    return crc32(nodeid.encode()) % one_of == turn % one_of


def _runs(row: pytest.Item, number: int, rows: int, turn: int) -> bool:
    mark = row.get_closest_marker("rows")
    assert mark is not None
    one_of = mark.kwargs["one_of"]
    return number % one_of == turn % min(one_of, rows)


def _twins(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The rows with the sandbox that few machines use, where the same row runs with the usual one."""
    if shutil.which("bwrap") is None:
        return []
    ids = {item.nodeid for item in items}
    return [
        item
        for item in items
        if "landlock" in item.name
        and any(
            item.nodeid.removesuffix(item.name) + item.name.replace("landlock", usual) in ids
            for usual in ("bubblewrap", "auto")
        )
    ]


def _mark(items: Iterable[pytest.Item], mark: pytest.MarkDecorator) -> None:
    for item in items:
        item.add_marker(mark)
