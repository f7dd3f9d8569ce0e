"""Reads rows of CSV and JSONL files, and fills templates of cases with rows.

A table is read line by line. In a template, `{{name}}` is replaced by a value; no code is run, and values are not
searched for further places. `cases` defines what a case may contain.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from ..errors import EvalSetError
from .documents import DocumentError, parse_json

TABLES = (".csv", ".jsonl", ".ndjson")
_PLACE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_NAME = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*")
_LONGEST_LINE = 4 * 1024 * 1024
_MOST_ROWS = 1_000_000
_TEXTS = frozenset({"id", "name", "description", "system_prompt"})
_LISTS = frozenset({"tags", "evaluators"})


class Row(NamedTuple):
    """One row of a table, with its first line. In CSV, all cells are texts (`is_text`)."""

    line: int
    values: dict[str, Any]
    is_text: bool


def rows_of(path: str | os.PathLike[str]) -> Iterator[Row]:
    """Yields the rows of a CSV or JSONL file as it reads them. Raises `EvalSetError` with the line."""
    suffix = Path(path).suffix.lower()
    if suffix not in TABLES:
        raise EvalSetError("is not a table: give a .csv or .jsonl file", path=path)
    try:
        with open(path, "rb") as file:
            lines = _lines(file, path)
            for count, row in enumerate(_csv_rows(lines, path) if suffix == ".csv" else _json_rows(lines, path)):
                if count >= _MOST_ROWS:
                    raise EvalSetError(f"has more than {_MOST_ROWS:,} rows; split it", path=path, line=row.line)
                yield row
    except OSError as error:
        raise EvalSetError(f"cannot be read: {os.strerror(error.errno or 0)}", path=path) from error


def _lines(file: Any, path: str | os.PathLike[str]) -> Iterator[str]:
    number = 0
    while data := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(data) > _LONGEST_LINE:
            raise EvalSetError(f"the line is longer than {_LONGEST_LINE >> 20} MiB", path=path, line=number)
        try:
            yield data.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise EvalSetError("is not UTF-8 text", path=path, line=number) from error


def _csv_rows(lines: Iterator[str], path: str | os.PathLike[str]) -> Iterator[Row]:
    reader = csv.reader(lines, strict=True)
    names: list[str] | None = None
    line = 1
    try:
        for cells in reader:
            begun, line = line, reader.line_num + 1
            if not any(cells):
                continue
            if names is None:
                names = [cell.strip() for cell in cells]
                bad = next((name for name in names if not name or names.count(name) > 1), None)
                if bad is not None:
                    told = f"two columns are called {bad!r}" if bad else "a column has no name"
                    raise EvalSetError(f"{told}; the first row names the columns", path=path, line=begun)
                if len(names) == 1 and (other := next((mark for mark in ";\t|" if mark in names[0]), None)):
                    told = "a tab" if other == "\t" else repr(other)
                    raise EvalSetError(f"columns must be separated by commas, not by {told}", path=path, line=begun)
                continue
            if len(cells) != len(names):
                told = f"the row has {len(cells)} cells for {len(names)} columns; quote a text with commas"
                raise EvalSetError(told, path=path, line=begun)
            yield Row(begun, dict(zip(names, cells, strict=True)), True)
    except csv.Error as error:
        raise EvalSetError(f"is not CSV: {error}", path=path, line=line) from error


def _json_rows(lines: Iterator[str], path: str | os.PathLike[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = parse_json(line).data
        except DocumentError as error:
            raise EvalSetError(str(error), path=path, line=number) from error
        if not isinstance(data, dict):
            raise EvalSetError("each line must be a JSON object", path=path, line=number)
        yield Row(number, cast("dict[str, Any]", data), False)


def case_of_row(row: Row, path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of the case in a row; `name` defaults to the id. Raises `EvalSetError`.

    In CSV a column is a field, or `field.part`. The cell of a structured field is JSON. `tags` are separated by commas.
    A prompt is the text of its cell, also if that is JSON; only a list of texts is several prompts.
    """
    if not row.is_text:
        return {"name": row.values["id"], **row.values} if "id" in row.values else row.values
    case: dict[str, Any] = {}
    for column, cell in row.values.items():
        if not cell:
            continue
        place, _, last = column.rpartition(".")
        inside: Any = case
        for step in place.split(".") if place else ():
            inside = cast("dict[str, Any]", inside).setdefault(step, {})
            if not isinstance(inside, dict):
                raise EvalSetError(f"the columns {step!r} and {column!r} exclude each other", path=path, line=row.line)
        if last in inside:
            raise EvalSetError(f"the column {column!r} repeats another one", path=path, line=row.line)
        inside[last] = _cell(column, cell, row.line, path)
    if "id" in case:
        case.setdefault("name", case["id"])
    return case


def _cell(column: str, cell: str, line: int, path: str | os.PathLike[str]) -> Any:
    if column == "user_messages":
        return _texts(cell) or [cell]
    if column in _LISTS:
        texts = _texts(cell)
        return [part.strip() for part in cell.split(",") if part.strip()] if texts is None else texts
    is_structured = "." not in column and column not in _TEXTS
    if (is_structured and cell.lstrip()[:1] in ("[", "{")) or column.endswith((".calls", ".rubrics", ".schema")):
        try:
            return parse_json(cell).data
        except DocumentError as error:
            raise EvalSetError(f"the cell of {column!r}: {error}", path=path, line=line) from error
    return cell


def _texts(cell: str) -> list[str] | None:
    """The texts of a JSON list that has only texts; `None` for any other cell."""
    if not cell.lstrip().startswith("["):
        return None
    try:
        data: Any = parse_json(cell).data
    except DocumentError:
        return None
    is_texts = isinstance(data, list) and all(isinstance(item, str) for item in cast("list[Any]", data))
    return cast("list[str]", data) if is_texts else None


# -- templates -----------------------------------------------------------------------------------------------


def names_in(value: Any) -> Iterator[str]:
    """The names in a template; an invalid name is returned unchanged."""
    if isinstance(value, str):
        for found in _PLACE.finditer(value):
            named = _NAME.fullmatch(found.group(1))
            yield named.group(1) if named else found.group(1)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield from names_in(key)
            yield from names_in(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from names_in(item)


def filled(value: Any, values: dict[str, Any]) -> Any:
    """The template with values instead of `{{name}}`. A text that is only `{{name}}` becomes the value itself, a number
    for instance; inside a text, the value is written as text."""

    def put(found: re.Match[str]) -> str:
        one = values[found.group(1).strip()]
        return one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)

    if isinstance(value, str):
        alone = _PLACE.fullmatch(value)
        if alone is not None and _NAME.fullmatch(alone.group(1)):
            return values[alone.group(1).strip()]
        return _PLACE.sub(put, value)
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {_PLACE.sub(put, key): filled(item, values) for key, item in items}
    if isinstance(value, list):
        return [filled(item, values) for item in cast("list[Any]", value)]
    return value
