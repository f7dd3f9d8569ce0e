"""Loads sets from files: `load_set`, and `case_schema` for editors.

Turns a file into an `EvalSet` and reports errors with file and line. `documents` parses the text; `cases` defines what
a set may contain.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from swink_agent.core.texts.likeness import close_names
from swink_agent.core.values.decoders import converted
from swink_agent.core.values.value import Value

from ..errors import EvalSetError
from .cases import (
    BadValue,
    EvalCase,
    EvalSet,
    ResponseCriteria,
    SimilarityMeasure,
    TrajectoryMatch,
    Verdict,
    checked_path,
)
from .documents import Document, Place, parse, read_text
from .tables import TABLES, Row, case_of_row, filled, names_in, rows_of

T = TypeVar("T")
_WHERE = re.compile(r" - at `\$?(.*)`$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_NOT_ONE_OF = re.compile(r"Invalid enum value (.*)", re.DOTALL)
_CHOICES = {"verdict": tuple(Verdict), "match": tuple(TrajectoryMatch), "measure": tuple(SimilarityMeasure)}
_NOT_A_NUMBER = re.compile(r"Expected `(int|float)(?: \| null)?`, got `str`")
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_WHAT_A_SET_IS = "a set is a file .yaml, .yml, .json, .jsonl or .csv"
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)


def load_set(path: str | os.PathLike[str]) -> EvalSet:
    """Loads a set from a file, by its suffix: `.json`, `.csv`, `.jsonl`, else YAML. A row of CSV or a line of JSONL is
    a case, and the name of such a file is that of the set.

    Raises `EvalSetError`, with the file and the line, for any error in it.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in TABLES:
        return read_set(read_text(path), path, is_json=suffix == ".json")
    cases: list[EvalCase] = []
    lines: list[int] = []
    for row in rows_of(path):
        cases.append(_row_case(case_of_row(row, path), row, path))
        lines.append(row.line)
    if not cases:
        raise EvalSetError("the set has no cases", path=path, line=1)
    name = Path(path).stem
    return _set_of({"id": name, "name": name}, cases, lines, path)


def read_set(text: str, path: str | os.PathLike[str] = "", *, is_json: bool = False) -> EvalSet:
    """Reads a set from a text; `path` is the file that errors name. Raises `EvalSetError`."""
    hint = "" if not path or Path(path).suffix.lower() in _SUFFIXES else f"; {_WHAT_A_SET_IS}"
    document = parse(text, path, is_json=is_json, hint=hint)
    data: Any = document.data
    if isinstance(data, dict) and "templates" in data:
        return _expanded(document, path)
    eval_set = _converted(document, EvalSet, path)
    if not eval_set.cases:
        raise EvalSetError("the set has no cases", path=path, line=document.line(("cases",)))
    return eval_set


def _converted(document: Document, kind: type[T], path: str | os.PathLike[str]) -> T:
    try:
        return converted(document.data, kind)
    except msgspec.ValidationError as error:
        message, place = _explained(error, document.data)
        raise EvalSetError(message, path=path, line=document.line(place)) from error


# -- tables and templates -------------------------------------------------------------------------------------


def _row_case(data: dict[str, Any], row: Row, path: str | os.PathLike[str], told: str = "") -> EvalCase:
    try:
        return converted(data, EvalCase, strict=not row.is_text)
    except msgspec.ValidationError as error:
        message, place = _explained(error, {"cases": [data]}, ("cases", 0))
        is_unknown = len(place) == 3 and place[2] not in EvalCase.__struct_fields__
        is_column = row.is_text and is_unknown and not told
        line = 1 if is_column else row.line  # the first row names the columns
        raise EvalSetError(message.removeprefix("cases[0]").lstrip(".: ") + told, path=path, line=line) from error


def _set_of(
    head: dict[str, Any], cases: list[EvalCase], lines: Sequence[int | None], path: str | os.PathLike[str]
) -> EvalSet:
    try:
        return EvalSet(**head, cases=cases)
    except BadValue as error:
        at = error.at
        line = lines[at[1]] if len(at) > 1 and isinstance(at[1], int) else None
        raise EvalSetError(str(error), path=path, line=line) from error


class _Template(Value, frozen=True, forbid_unknown_fields=True):
    case: dict[str, Any]
    variables: list[dict[str, Any]] | str


class _Head(Value, frozen=True, forbid_unknown_fields=True):
    """A set whose templates are not filled yet."""

    id: str
    name: str
    templates: tuple[_Template, ...]
    cases: tuple[EvalCase, ...] = ()
    description: str = ""
    verdict: Verdict | None = None


def _expanded(document: Document, path: str | os.PathLike[str]) -> EvalSet:
    """The set with a case for each row of each template, after its other cases."""
    head = _converted(document, _Head, path)
    cases = list(head.cases)
    lines = [document.line(("cases", position, "id")) for position in range(len(cases))]
    for number, template in enumerate(head.templates):
        for case, line in _filled(template, document, ("templates", number), path):
            cases.append(case)
            lines.append(line)
    if not cases:
        raise EvalSetError("the set has no cases", path=path, line=document.line(("templates",)))
    said = {"id": head.id, "name": head.name, "description": head.description, "verdict": head.verdict}
    return _set_of(said, cases, lines, path)


def _filled(
    template: _Template, document: Document, place: Place, path: str | os.PathLike[str]
) -> Iterator[tuple[EvalCase, int | None]]:
    used = dict.fromkeys(names_in(template.case))
    line = document.line((*place, "case"))
    table: str | os.PathLike[str] = path
    if isinstance(template.variables, str):
        try:
            table = Path(path).parent / checked_path(template.variables)
        except BadValue:
            told = f"the table {template.variables!r} is not beside the set: give a relative path without .."
            raise EvalSetError(told, path=path, line=document.line((*place, "variables"))) from None
        rows: Iterable[Row] = rows_of(table)
    else:
        rows = [
            Row(document.line((*place, "variables", number)) or 0, values, False)
            for number, values in enumerate(template.variables)
        ]
    is_empty = True
    for row in rows:
        is_empty = False
        missing = next((name for name in used if name not in row.values), None)
        if missing is not None:
            told = f"the template uses {{{{{missing}}}}}, but the variables are {', '.join(row.values) or 'none'}"
            where = line if table is path else row.line
            raise EvalSetError(told, path=table, line=where)
        unused = next((name for name in row.values if name not in used), None)
        if unused is not None:
            told = f"the template does not use the variable {unused!r}; use it or remove it"
            raise EvalSetError(told, path=table, line=row.line)
        yield _row_case(filled(template.case, row.values), row, table, " (in the template)"), row.line
    if is_empty:
        line = document.line((*place, "variables"))
        raise EvalSetError("the table of variables is empty: give at least one row", path=path, line=line)


def _explained(error: msgspec.ValidationError, data: Any, start: Place = ()) -> tuple[str, Place]:
    """The error in words, and the place of the value at fault."""
    message = str(error)
    where = _WHERE.search(message)
    place: Place = start
    if where is not None:
        message = message[: where.start()]
        place += _place(where.group(1), _at(data, start))
    cause = error.__cause__
    if isinstance(cause, BadValue):
        place += cause.at
    elif unknown := _UNKNOWN.match(message):
        near = close_names(unknown.group(1), _fields_beside(place))
        message = f"unknown field {unknown.group(1)!r}{f'; did you mean {near[0]}?' if near else ''}"
        place += (unknown.group(1),)
        return _named(message, place[:-1]), place
    elif missing := _MISSING.match(message):
        message = f"the field {missing.group(1)!r} is missing"
    elif (choice := _NOT_ONE_OF.match(message)) and place and (choices := _CHOICES.get(str(place[-1]))):
        message = f"{choice.group(1)} is not one of {', '.join(choices)}"
    elif number := _NOT_A_NUMBER.match(message):
        noun = "a whole number" if number.group(1) == "int" else "a number"
        message = f"{str(_at(data, place))[:60]!r} is not {noun}"
    return _named(message, place), place


def _at(data: Any, place: Place) -> Any:
    for step in place:
        data = data[step]
    return data


def _named(message: str, place: Place) -> str:
    """The message with the path to the value."""
    way = "".join([f"[{step}]" if isinstance(step, int) else f".{step}" for step in place]).lstrip(".")
    return f"{way}: {message}" if way else message


def _place(path: str, value: Any) -> Place:
    place: Place = ()
    for step in _STEP.finditer(path):
        name, index = step.groups()
        if index is not None:
            key: str | int = int(index)
        elif name is not None:
            key = name
        else:  # a value of a mapping, without its key: the first value that is not a text is the wrong one
            items = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
            key = next((key for key, item in items.items() if not isinstance(item, str)), "")
        place += (key,)
        try:
            value = cast("Any", value)[key]
        except (LookupError, TypeError):
            value = None
    return place


def _fields_beside(place: Place) -> list[str]:
    """The names of the fields that are allowed at a place."""
    schema: Any = case_schema()
    here = schema
    for step in place:
        here = _resolved(here.get("items", {}) if isinstance(step, int) else here["properties"].get(step, {}), schema)
    return list(here.get("properties", ()))


def _resolved(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    for choice in (part, *part.get("anyOf", ())):
        reference = choice.get("$ref")
        if reference is not None:
            return schema["$defs"][reference.rpartition("/")[2]]
    return part


def case_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a whole set, for editors. A new dict at each call."""
    definitions = msgspec.json.schema(EvalSet)["$defs"]
    whole = definitions.pop("EvalSet")
    criteria = definitions["ResponseCriteria"]
    # Checks of the constructors that a schema can express.
    criteria["oneOf"] = [{"required": [name]} for name in ResponseCriteria.kinds]
    definitions["JudgeRubric"]["oneOf"] = [{"required": ["rubric"]}, {"required": ["rubrics"]}]
    whole["properties"]["templates"] = _TEMPLATES
    whole["required"].remove("cases")
    whole["anyOf"] = [{"required": ["cases"]}, {"required": ["templates"]}]
    definitions["ExpectedFile"]["not"] = {"required": ["content", "regex"]}
    for part in criteria["properties"].values():  # without null, which means nothing in a file
        choices = [choice for choice in part.get("anyOf", ()) if choice.get("type") != "null"]
        if len(choices) == 1:
            del part["anyOf"], part["default"]
            part |= choices[0]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **whole,
        "title": "A set of evaluation cases",
        "$defs": definitions,
    }


_TEMPLATES: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "description": "Cases with {{name}} in their texts, each filled with every row of its variables.",
    "items": {
        "type": "object",
        "required": ["case", "variables"],
        "additionalProperties": False,
        "properties": {
            "case": {"type": "object", "description": "A case with places: {{name}}."},
            "variables": {
                "anyOf": [{"type": "array", "minItems": 1, "items": {"type": "object"}}, {"type": "string"}],
                "description": "Rows of values by name, or a .csv or .jsonl file beside the set.",
            },
        },
    },
}
