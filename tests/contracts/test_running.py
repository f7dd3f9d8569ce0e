"""How the tests themselves are run: what each worker gets, what has its turn on which day, and what changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.changed import ALSO, folders_of, that_fit
from tests.shares import SECONDS, Share, owners
from tests.turns import TURNS, has_turn, mark_turns, turn_of

TESTS = Path(__file__).parents[1]
DAYS = [date(2026, 2, 25) + timedelta(days) for days in range(TURNS)]


class Row:
    """As much of a test as is asked about here."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid = nodeid
        self.name = nodeid.rpartition("::")[2]
        self.marks = [mark.mark for mark in marks]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)


def marked(day: date, ids: list[str], *marks: pytest.MarkDecorator, whole: bool = False) -> dict[str, set[str]]:
    rows: list[Any] = [Row(f"test_a.py::{name}", *marks) for name in ids]
    mark_turns(rows, turn_of(day), lambda row: whole)
    return {row.name: {mark.name for mark in row.marks} & {"sweep", "turn"} for row in rows}


# -- shares ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_each_file_belongs_to_one_worker(workers: int) -> None:
    files = sorted(TESTS.rglob("test_*.py"))
    shares = [Share.of([str(TESTS)], TESTS, worker, workers, seconds={}) for worker in range(workers)]
    assert {sum(share.has(file) for share in shares) for file in files} == {1}
    assert all(any(share.has(file) for file in files) for share in shares)


def test_a_file_that_an_argument_names_belongs_to_one_worker() -> None:
    names = [f"{__file__}::test_a_file_that_an_argument_names_belongs_to_one_worker", str(TESTS / "skills")]
    shares = [Share.of(names, TESTS, worker, 3, seconds={}) for worker in range(3)]
    files = [Path(__file__), *(TESTS / "skills").glob("test_*.py")]
    assert [sum(share.has(file) for share in shares) for file in files] == [1] * len(files)


def test_workers_get_as_much_to_do() -> None:
    files = [Path(f"/t/{folder}/test_{number}.py") for folder in "ab" for number in range(9)]
    weights = {file: 10.0 if "/a/" in str(file) else 1.0 for file in files}
    found = owners(files, weights, 3)
    loads = [sum(weights[file] for file in files if found[file] == worker) for worker in range(3)]
    assert max(loads) - min(loads) <= 20, "each boundary lies within a file"
    assert [found[file] for file in files] == sorted(found.values()), "each has files that follow one another"


def test_every_folder_of_tests_has_its_seconds() -> None:
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")}
    assert folders - {"integration", "wire"} == set(SECONDS)


# -- turns -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 35])
def test_all_rows_of_a_long_table_run_within_ten_days(count: int) -> None:
    ids = [f"test_x[{number}]" for number in range(count)]
    run: set[str] = set()
    for day in DAYS:
        marks = marked(day, ids, pytest.mark.rows(one_of=10))
        today = {name for name, found in marks.items() if "sweep" not in found}
        assert 1 <= len(today) <= count // 10 + 1
        assert not any("turn" in found for found in marks.values()), "a row has no second turn"
        run |= today
    assert run == {*ids}


def test_every_test_of_the_sweep_has_its_turn_within_ten_days() -> None:
    ids = [*(f"test_x[{number}]" for number in range(25)), *(f"test_{name}" for name in "abcdefghij")]
    turns = [{name for name, found in marked(day, ids, pytest.mark.sweep).items() if "turn" in found} for day in DAYS]
    assert sorted(name for names in turns for name in names) == sorted(ids)
    assert max(map(len, turns)) < len(ids) / 2, "not all on one day"


def test_in_full_every_test_of_the_sweep_and_every_row_has_its_turn() -> None:
    ids = [f"test_x[{number}]" for number in range(25)]
    assert all("turn" in found for found in marked(DAYS[0], ids, pytest.mark.sweep, whole=True).values())
    rows = marked(DAYS[0], ids, pytest.mark.rows(one_of=10), whole=True)
    assert {"turn" in found for found in rows.values() if "sweep" in found} == {True}


@pytest.mark.parametrize("one_of", [1, 4, 5, 10])
def test_one_test_in_so_many_runs_today_and_all_within_ten_days(one_of: int) -> None:
    ids = [f"test_x[{number}]" for number in range(200)]
    days = [{name for name in ids if has_turn(name, turn_of(day), one_of)} for day in DAYS]
    assert set().union(*days) == {*ids}
    assert max(map(len, days)) < 2 * len(ids) / one_of


# -- changes -----------------------------------------------------------------------------------------------------------


def files() -> Iterator[str]:
    yield "src/swink_agent/core/loop.py"
    yield "src/swink_agent/__init__.py"
    yield "tests/web/test_access.py"
    yield "tests/conftest.py"
    yield "docs/web.md"


def test_a_folder_changed_if_it_or_what_it_tests_did() -> None:
    assert folders_of(files(), SECONDS) == ["chaos", "core", "properties", "web"]
    assert {*ALSO} | {name for names in ALSO.values() for name in names} <= {*SECONDS}


def test_folders_that_do_not_fit_wait_for_another_day() -> None:
    seconds = {"a": 400.0, "b": 100.0, "c": 300.0}
    days = [that_fit(["a", "b", "c"], seconds, 450, day) for day in range(3)]
    assert days == [["a"], ["b", "c"], ["b", "c"]]
    assert that_fit(["a", "b", "c"], seconds, 350, 0) == ["b"], "what never fits has its tenth each day"
    assert that_fit([], seconds, 450, 1) == []
