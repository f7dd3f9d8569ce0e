"""JSON Schema from Python types, and Python values from JSON.

Makes the schema of a function's signature, and converts a model's arguments to the types that the function declares.
Arguments are validated in `tool`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from ..values.decoders import learn
from .dependencies import context_deps, hints_of
from .docstrings import parse_docstring
from .records import default_of
from .references import JsonSchema
from .shapes import Shapes


class ValueSchema:
    """The schema of one type, and the conversion of JSON data to it."""

    def __init__(self, kind: Any) -> None:
        """Raises `TypeError` for a type that JSON cannot represent."""
        self._shapes = Shapes()
        self._kind = self._shapes.translate(kind)
        self.schema = self._shapes.schema_of(self._kind)

    def convert(self, value: Any) -> Any:
        """Converts JSON data to the type. Raises `ValueError`, which names the field."""
        return self._shapes.convert(value, self._kind)


def type_schema(kind: Any) -> JsonSchema:
    """Returns the JSON Schema of a type. Raises `TypeError`."""
    return ValueSchema(kind).schema


class FunctionSchema:
    """A function's parameters: their schema, their descriptions, and the conversion of arguments to their types."""

    def __init__(
        self,
        function: Callable[..., Any],
        context_type: type,
        is_method: bool = False,
        names: dict[str, Any] | None = None,
    ) -> None:
        """`is_method` skips the first parameter; hints may use `names` in addition to those of the module."""
        hints = hints_of(function, names, context_type)
        self.description, notes = parse_docstring(inspect.getdoc(function) or "")
        self.context_parameter: str | None = None
        self.deps_type: Any = Any  # the type of the dependencies that the context's hint names
        self._shapes = Shapes()
        self._positional: list[str] = []
        self._defaults: dict[str, Any] = {}
        self._made: dict[str, Callable[[], Any]] = {}
        kinds: dict[str, Any] = {}
        for parameter in list(inspect.signature(function).parameters.values())[int(is_method) :]:
            name, hint = parameter.name, hints.get(parameter.name, Any)
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"{function.__name__}: a tool's parameters need names, *{name} has none")
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self._positional.append(name)
            if (deps := context_deps(hint, context_type)) is not None:
                self.context_parameter = name
                [self.deps_type] = deps
            else:
                kinds[name] = self._with_default(name, hint, parameter.default)
        # Parameters whose JSON value is the Python value, so that there is nothing to convert.
        self._plain = {name: kind for name, kind in kinds.items() if kind in (str, int, float, bool)}
        translated = self._translated(function.__name__, kinds)
        self._struct = msgspec.defstruct(
            function.__name__,
            [
                (name, Union[kind, UnsetType], UNSET) if name in self._defaults else (name, kind)  # noqa: UP007
                for name, kind in translated.items()
            ],
            kw_only=True,
        )
        learn(self._struct)
        self.schema = self._make_schema(translated, notes)

    def _with_default(self, name: str, hint: Any, default: Any) -> Any:
        """Stores the default and returns the hint, with the constraints of a `pydantic.Field` that is the default."""
        field = default if _is_pydantic_field(default) else None
        for item in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
            if default is inspect.Parameter.empty and _is_pydantic_field(item):
                field = item
        if field is not None:
            if field is default:
                hint = Annotated[hint, field]
            if field.is_required():
                return hint
            self._made[name] = lambda: field.get_default(call_default_factory=True)
            default = None if field.default_factory is not None else field.default
        if default is not inspect.Parameter.empty:
            self._defaults[name] = default
        return hint

    def _translated(self, owner: str, kinds: dict[str, Any]) -> dict[str, Any]:
        """Translates the types for msgspec; tries each one alone first, to name the parameter with a wrong type."""
        for name, kind in kinds.items():
            try:
                type_schema(kind)
            except TypeError as error:
                raise TypeError(f"{owner}: parameter {name}: {error}") from error
        return {name: self._shapes.translate(kind) for name, kind in kinds.items()}

    def _make_schema(self, kinds: dict[str, Any], notes: dict[str, str]) -> JsonSchema:
        properties: JsonSchema = {}
        # All at once, so that types with the same name in several parameters get different definitions.
        schemas, definitions = self._shapes.schemas(list(kinds.values()))
        for name, schema in zip(kinds, schemas, strict=True):
            if name in notes:
                schema = {"description": notes[name]} | schema
            if name in self._defaults:
                schema |= default_of(self._defaults[name])
            properties[name] = schema
        required = [name for name in kinds if name not in self._defaults]
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return schema | {"$defs": definitions} if definitions else schema

    def bind(self, arguments: dict[str, Any], context: Any) -> tuple[Sequence[Any], dict[str, Any]]:
        """Converts the arguments to the declared types and adds the context. Raises `ValueError`."""
        given = arguments
        for name, value in arguments.items():
            if type(value) is not self._plain.get(name):
                given = asdict(self._shapes.convert(arguments, self._struct))
                if self._defaults:
                    given = {name: value for name, value in given.items() if value is not UNSET}
                break
        if self._made:
            given = {**{name: make() for name, make in self._made.items() if name not in given}, **given}
        if self.context_parameter is not None:
            given = {**given, self.context_parameter: context}
        if not self._positional:
            return (), given
        given = {**{name: self._defaults[name] for name in self._positional if name in self._defaults}, **given}
        return [given.pop(name) for name in self._positional], given


def _is_pydantic_field(value: object) -> bool:
    kind = type(value)
    return kind.__name__ == "FieldInfo" and kind.__module__.startswith("pydantic")
