"""Validates JSON against a JSON Schema and describes problems field by field. Only this module uses `jsonschema_rs`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

_MOST_PROBLEMS = 100


class InvalidSchema(ValueError):
    """A schema that cannot be used. `reason` is the cause, without the name of the schema."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"its parameters_schema is not {what}: {reason}")
        self.reason = reason


def compile_schema(schema: dict[str, Any]) -> Any:
    """Returns a validator for the schema, compiled once for each schema. Raises `InvalidSchema`."""
    try:
        return _compiled(msgspec.json.encode(schema))
    except TypeError as error:
        raise InvalidSchema("JSON", str(error)) from error


@lru_cache(maxsize=1024)
def _compiled(schema: bytes) -> Any:
    import jsonschema_rs  # on first use: a run without tools does not need it

    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema), retriever=_no_remote_schemas)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise InvalidSchema("valid JSON Schema", str(error).splitlines()[0]) from error


def _no_remote_schemas(uri: str) -> Any:
    raise ValueError(f"a schema refers to {uri}, and schemas are not fetched: put the definition into $defs")


def describe_problems(validator: Any, value: Any) -> str:
    """Describes all problems in one line, each with the path of its field."""
    problems = list(islice(_problems(validator.iter_errors(value), ()), _MOST_PROBLEMS + 1))
    shown = sorted(set(problems[:_MOST_PROBLEMS]))
    return "; ".join([*shown, "… and more"] if len(problems) > _MOST_PROBLEMS else shown)


def _problems(errors: Iterable[Any], above: tuple[object, ...]) -> Iterator[str]:
    for error in errors:
        where = (*above, *error.instance_path)
        path = ".".join(str(part) for part in where)
        message = error.message if len(error.message) <= 300 else f"{error.message[:120]}…{error.message[-150:]}"
        yield f"{path}: {message}" if path else message
        # For a choice between schemas, list the problems with each, since the intended one is unknown.
        for branch in getattr(error.kind, "context", None) or ():
            nested = [item for item in branch if item.instance_path]
            yield from _problems(nested, above)
