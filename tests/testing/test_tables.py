"""Rows that run as one test: each row runs with its own fixtures, and each failure is reported."""

from __future__ import annotations

import asyncio
from types import FunctionType
from typing import Any

import pytest

from ..conftest import _run
from ..tables import as_one_test

SEEN: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


def table(test: FunctionType) -> Any:
    return as_one_test(test, _run)


def test_every_row_runs_and_every_one_that_fails_is_told() -> None:
    @pytest.mark.parametrize(("a", "b"), [(1, 2), pytest.param(3, 4, id="x")])
    @pytest.mark.parametrize("c", [5, 6])
    def sums(a: int, b: int, c: int) -> None:
        SEEN.append((a, b, c))
        assert c == 5
        with pytest.raises(ValueError, match="never"):
            assert a == 1

    with pytest.raises(BaseExceptionGroup, match="4 of 4 rows failed") as raised:
        table(sums)()
    assert SEEN == [(1, 2, 5), (1, 2, 6), (3, 4, 5), (3, 4, 6)]
    assert [failure.__notes__ for failure in raised.value.exceptions] == [
        [f"row: {{'a': {a}, 'b': {b}, 'c': {c}}}"] for a, b, c in SEEN
    ]


def test_each_row_has_an_event_loop_that_it_leaves_empty() -> None:
    @pytest.mark.parametrize("n", [1, 2, 3])
    async def leaves(n: int) -> None:
        SEEN.append(asyncio.get_running_loop())
        if n == 2:
            SEEN.append(asyncio.create_task(asyncio.sleep(60)))

    with pytest.raises(BaseExceptionGroup, match="1 of 3 rows failed") as raised:
        table(leaves)()
    assert "left tasks running" in str(raised.value.exceptions[0])
    assert len(set(map(id, SEEN))) == 4


def test_a_row_may_skip_and_fixtures_are_given_to_each() -> None:
    @pytest.mark.parametrize("n", [1, 2])
    def skips(n: int, fixture: str, which: set[int]) -> None:
        if n in which:
            pytest.skip("not here")
        SEEN.append((n, fixture))

    table(skips)(fixture="f", which={1})
    assert SEEN == [(2, "f")]
    with pytest.raises(pytest.skip.Exception, match="not here"):
        table(skips)(fixture="f", which={1, 2})


def test_a_table_without_rows_is_skipped() -> None:
    @pytest.mark.parametrize("n", [])
    def none(n: int) -> None:
        SEEN.append(n)

    with pytest.raises(pytest.skip.Exception, match="no rows"):
        table(none)()


@pytest.mark.table
@pytest.mark.parametrize("n", range(3))
def test_pytest_runs_a_table_as_one_test(n: int, request: pytest.FixtureRequest) -> None:
    SEEN.append(n)
    is_one = not request.config.getoption("each_row")
    assert ([*range(n + 1)] if is_one else [n]) == SEEN
