"""A table of quick rows as one test: pytest does more around each test than such a row takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from types import FunctionType
from typing import Any

import pytest

RunFn = Callable[[Callable[..., Any], Mapping[str, Any]], None]


def as_one_test(test: FunctionType, run: RunFn) -> Callable[..., None]:
    """Returns a test that runs every row of the parametrized one, and then fails with what each failed row raised.

    Fixtures are made once, for all rows. A row that skips is left out; if all of them skip, so does the test. What it
    runs for each row is in `row`.
    """
    tables = [mark for mark in test.pytestmark if mark.name == "parametrize"]
    names = {name for mark in tables for name in _names(mark)}

    def all_rows(**fixtures: Any) -> None:
        failures: list[BaseException] = []
        skips: list[BaseException] = []
        rows = list(_rows(tables))
        for row in rows:
            try:
                run(test, {**fixtures, **row})
            except pytest.skip.Exception as skip:
                skips.append(skip)
            except (Exception, pytest.fail.Exception) as failure:
                failure.add_note(f"row: {row!r}")
                failures.append(failure)
        if failures:
            raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} rows failed", failures)
        if len(skips) == len(rows):
            pytest.skip(str(skips[0]) if skips else "the table has no rows")

    signature = inspect.signature(test)
    left = [parameter for name, parameter in signature.parameters.items() if name not in names]
    all_rows.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
    all_rows.pytestmark = [mark for mark in test.pytestmark if mark.name != "parametrize"]  # type: ignore[attr-defined]
    all_rows.row = test  # type: ignore[attr-defined]
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(all_rows, name, getattr(test, name))
    return all_rows


def _names(mark: pytest.Mark) -> list[str]:
    given: str | Sequence[str] = mark.args[0]
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)


def _rows(tables: Sequence[pytest.Mark]) -> Iterator[dict[str, Any]]:
    for row in product(*[_rows_of(table) for table in reversed(tables)]):
        yield {name: value for part in row for name, value in part.items()}


def _rows_of(table: pytest.Mark) -> Iterator[dict[str, Any]]:
    assert not table.kwargs.keys() - {"ids"}, "a table has no rows by way of fixtures"
    names = _names(table)
    is_single = isinstance(table.args[0], str) and len(names) == 1
    for row in table.args[1]:
        is_param = isinstance(row, type(pytest.param()))
        assert not (is_param and row.marks), "a row of a table has no marks of its own"
        values = row.values if is_param else (row,) if is_single else tuple(row)
        yield dict(zip(names, values, strict=True))
