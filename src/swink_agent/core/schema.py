"""JSON Schema from Python types, and Python values from JSON.

Owns the way from a function's signature to the schema a model is shown, and from the model's arguments to the
types the function declares. Validation against a schema is in `tool`.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict

from .value import copy_json

__all__ = ["FunctionSchema", "convert_value", "type_schema", "type_schemas"]

JsonSchema = dict[str, Any]


def type_schema(kind: Any) -> JsonSchema:
    """The JSON Schema of a type, with references resolved where they do not recur. Raises `TypeError`."""
    (schema,), definitions = type_schemas([kind])
    return schema | {"$defs": definitions} if definitions else schema


def type_schemas(kinds: Sequence[Any]) -> tuple[list[JsonSchema], JsonSchema]:
    """The schemas of types, and the definitions that those of them that contain themselves refer to."""
    descriptions: dict[type, dict[str, str]] = {}
    prepared = [_prepare(kind, descriptions, set()) for kind in kinds]
    try:
        schemas, components = msgspec.json.schema_components(
            prepared, schema_hook=_schema_of_foreign, ref_template="#/$defs/{name}"
        )
    except TypeError as error:
        names = ", ".join(_type_name(kind) for kind in kinds)
        raise TypeError(f"{names} has no JSON Schema: {str(error).splitlines()[-1]}") from error
    for owner, fields in descriptions.items():
        # A class is listed by its name, or by its full one where two share the short one.
        full = re.sub(r"[^a-zA-Z0-9.\-_]", "_", f"{owner.__module__}.{owner.__qualname__}")
        component = components.get(full) or components.get(owner.__name__, {})
        properties = component.get("properties", {})
        for field_name, text in fields.items():
            if field_name in properties:
                properties[field_name].setdefault("description", text)
    inlined = [_inline(schema, components) for schema in schemas]
    definitions: JsonSchema = {}
    for schema in inlined:
        definitions |= schema.pop("$defs", {})
    return inlined, definitions


def convert_value(value: Any, kind: Any) -> Any:
    """JSON data as a value of the declared type. Raises `ValueError` that names the field."""
    try:
        try:
            return msgspec.convert(value, kind, dec_hook=_foreign_from_json)
        except msgspec.ValidationError:
            # What JSON Schema calls an integer may come as 5.0: take it, after the exact reading has failed.
            return msgspec.convert(value, kind, strict=False, dec_hook=_foreign_from_json)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


class FunctionSchema:
    """A function's parameters: their schema, their descriptions, and the conversion of arguments to their types."""

    __slots__ = ("_defaults", "_plain", "_positional", "_struct", "context_parameter", "description", "schema")

    def __init__(
        self,
        function: Callable[..., Any],
        context_type: type,
        is_method: bool = False,
        names: dict[str, Any] | None = None,
    ) -> None:
        """`is_method` leaves the first parameter out; `names` are known to the hints besides those of the module."""
        hints = _hints_of(function, names)
        self.description, notes = parse_docstring(inspect.getdoc(function) or "")
        self.context_parameter: str | None = None
        self._positional: list[str] = []
        fields: list[tuple[str, Any, Any]] = []
        defaults: dict[str, Any] = {}
        for parameter in list(inspect.signature(function).parameters.values())[int(is_method) :]:
            name, hint = parameter.name, hints.get(parameter.name, Any)
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"{function.__name__}: a tool's parameters need names, *{name} has none")
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self._positional.append(name)
            if _mentions(hint, context_type):
                self.context_parameter = name
                continue
            if parameter.default is not parameter.empty:
                defaults[name] = parameter.default
                fields.append((name, Union[hint, UnsetType], UNSET))  # noqa: UP007 - the member is computed
            else:
                fields.append((name, hint, msgspec.NODEFAULT))
        plain = [
            (name, kind) if default is msgspec.NODEFAULT else (name, kind, default) for name, kind, default in fields
        ]
        # Parameters for which the JSON value is the Python value: nothing to convert.
        self._plain = {name: kind for name, kind, _ in fields if kind in (str, int, float, bool)}
        self._defaults = defaults
        self._struct = msgspec.defstruct(function.__name__, plain, kw_only=True)
        self.schema = self._make_schema(function.__name__, fields, defaults, notes)

    def _make_schema(
        self, owner: str, fields: list[tuple[str, Any, Any]], defaults: dict[str, Any], notes: dict[str, str]
    ) -> JsonSchema:
        properties: JsonSchema = {}
        for name, kind, _ in fields:
            try:
                type_schema(kind)
            except TypeError as error:
                raise TypeError(f"{owner}: parameter {name}: {error}") from error
        # All at once, so that types of one name in several parameters are told apart.
        schemas, definitions = type_schemas([kind for _, kind, _ in fields])
        for (name, _, _), schema in zip(fields, schemas, strict=True):
            if name in notes:
                schema = {"description": notes[name]} | schema
            if name in defaults:
                schema |= _default_of(defaults[name])
            properties[name] = schema
        required = [name for name, _, _ in fields if name not in defaults]
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return schema | {"$defs": definitions} if definitions else schema

    def bind(self, arguments: dict[str, Any], context: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments converted to the declared types, with the context among them. Raises `ValueError`."""
        given = arguments
        for name, value in arguments.items():
            if type(value) is not self._plain.get(name):
                given = asdict(convert_value(arguments, self._struct))
                break
        if self._defaults:
            given = {name: value for name, value in given.items() if value is not UNSET}
        if self.context_parameter is not None:
            given = {**given, self.context_parameter: context}
        if not self._positional:
            return [], given
        given = {**{name: self._defaults[name] for name in self._positional if name in self._defaults}, **given}
        return [given.pop(name) for name in self._positional], given


# -- types ---------------------------------------------------------------------------------------------------


def _hints_of(function: Callable[..., Any], names: dict[str, Any] | None) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, localns=names or None, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{function.__name__}: {error}; a tool's type hints are read when it is made, so import them for real, "
            "not under TYPE_CHECKING"
        ) from error


def _mentions(hint: Any, kind: type) -> bool:
    if hint is kind:
        return True
    return get_origin(hint) in (Annotated, Union, types.UnionType) and any(
        _mentions(item, kind) for item in get_args(hint)
    )


def _prepare(kind: Any, descriptions: dict[type, dict[str, str]], seen: set[Any]) -> Any:
    """The type with `Annotated[..., "text"]` turned into descriptions that msgspec reads; notes those in classes."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner = _prepare(arguments[0], descriptions, seen)
        text = _description_in(arguments[1:])
        kept = [item for item in arguments[1:] if isinstance(item, Meta)]
        if text is not None:
            kept.append(Meta(description=text))
        return Annotated[(inner, *kept)] if kept else inner
    if origin in (Union, types.UnionType):
        return Union[tuple(_prepare(item, descriptions, seen) for item in arguments)]  # noqa: UP007 - computed
    if origin in (list, tuple, set, frozenset, dict) and arguments:
        prepared = tuple(item if item is Ellipsis else _prepare(item, descriptions, seen) for item in arguments)
        return cast("Any", origin)[prepared]
    if (
        isinstance(kind, type)
        and kind not in seen
        and not _is_pydantic(kind)
        and getattr(kind, "__annotations__", None)
    ):
        seen.add(kind)
        _note_fields(kind, descriptions, seen)
    return kind


def _note_fields(kind: type, descriptions: dict[type, dict[str, str]], seen: set[Any]) -> None:
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return  # msgspec will say what is wrong with it
    _, notes = parse_docstring(inspect.getdoc(kind) or "")
    for name, hint in hints.items():
        _prepare(hint, descriptions, seen)
        text = _description_in(get_args(hint)[1:]) if get_origin(hint) is Annotated else None
        if text is not None:
            notes[name] = text
    if notes:
        descriptions[kind] = notes


def _description_in(metadata: Iterable[Any]) -> str | None:
    """The text among an annotation's metadata: a plain string, or what has a `description`, as pydantic's Field."""
    for item in metadata:
        text = item if isinstance(item, str) else getattr(item, "description", None)
        if isinstance(text, str) and text:
            return text
    return None


def _is_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def _schema_of_foreign(kind: type) -> JsonSchema:
    if _is_pydantic(kind):
        # Its definitions get names that no other type's have.
        prefix = re.sub(r"\W", "_", f"{kind.__module__}_{kind.__qualname__}_")
        schema = cast("Any", kind).model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
        components = {prefix + name: component for name, component in schema.pop("$defs", {}).items()}
        return _inline(schema, components)
    if issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError(f"{kind.__qualname__} is not a type that JSON can carry")


def _foreign_from_json(kind: type, value: Any) -> Any:
    if _is_pydantic(kind):
        try:
            return cast("Any", kind).model_validate(value)
        except ValueError as error:
            raise ValueError(_pydantic_problems(error)) from error
    if issubclass(kind, PurePath):
        return kind(value)
    raise NotImplementedError(f"{kind.__qualname__} is not a type that JSON can carry")


def _pydantic_problems(error: Any) -> str:
    problems = [f"{'.'.join(map(str, item['loc'])) or 'value'}: {item['msg']}" for item in error.errors()]
    return "; ".join(problems)


def _type_name(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) else str(kind)


def _default_of(value: Any) -> JsonSchema:
    try:
        return {"default": msgspec.to_builtins(value)}
    except TypeError:
        return {}  # a default that JSON cannot show still works, it is just not described


# -- references ----------------------------------------------------------------------------------------------


def _inline(schema: JsonSchema, components: dict[str, JsonSchema]) -> JsonSchema:
    """The schema with each `$ref` replaced by what it names: not every provider follows references.

    Types that contain themselves keep theirs, with the definitions that they need beside them.
    """
    recurring: set[str] = set()
    definitions: JsonSchema = {}

    def resolve(node: Any, path: tuple[str, ...]) -> Any:
        if isinstance(node, list):
            return [resolve(item, path) for item in cast("list[Any]", node)]
        if not isinstance(node, dict):
            return node
        fields = cast("JsonSchema", node)
        definitions.update(fields.get("$defs", {}))  # of a part that brought its own
        name = str(fields.get("$ref", "")).rpartition("/")[2]
        if name in components:
            if name in path or name in recurring:
                recurring.add(name)
                return fields
            rest = {key: resolve(value, path) for key, value in fields.items() if key != "$ref"}
            return resolve(components[name], (*path, name)) | rest
        return {key: resolve_field(key, value, path) for key, value in fields.items() if key not in ("title", "$defs")}

    def resolve_field(key: str, value: Any, path: tuple[str, ...]) -> Any:
        if key in ("default", "const", "enum", "examples"):
            return value
        if key in ("properties", "patternProperties") and isinstance(value, dict):
            return {name: resolve(item, path) for name, item in cast("JsonSchema", value).items()}
        return resolve(value, path)

    resolved = resolve(copy_json(schema), ())
    while missing := recurring - definitions.keys():
        for name in missing:
            definitions[name] = resolve(components[name], (name,))
    return resolved | {"$defs": definitions} if definitions else resolved


# -- docstrings ----------------------------------------------------------------------------------------------

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Examples?|Notes?|Attributes):\s*$")
_GOOGLE_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\(.*?\))?:\s*(.*)$")
_REST_ENTRY = re.compile(r"^:param\s+(?:[\w\[\], |.]+\s+)?(\w+):\s*(.*)$")


def parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, and the text of each parameter, from a Google or reST docstring."""
    description: list[str] = []
    notes: dict[str, str] = {}
    section, current, entry_indent = "", "", 0
    for line in text.splitlines():
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if header := _SECTION.match(line):
            section, current, entry_indent = header[1], "", 0
        elif rest := _REST_ENTRY.match(stripped):
            section, current = "rest", rest[1]
            notes[current] = rest[2]
        elif stripped.startswith(":") and section in ("", "rest"):
            section, current = "rest", ""
        elif not section:
            description.append(line)
        elif section in ("Args", "Arguments", "Parameters", "Attributes") and stripped:
            entry_indent = entry_indent or indent
            if indent == 0:
                section, current = "", ""
                description.append(line)
            elif indent <= entry_indent and (entry := _GOOGLE_ENTRY.match(stripped)):
                current = entry[1]
                notes[current] = entry[2]
            elif current:
                notes[current] = f"{notes[current]} {stripped}".strip()
        elif section == "rest" and current and stripped:
            notes[current] = f"{notes[current]} {stripped}".strip()
        elif indent == 0 and stripped and section not in ("rest",):
            section = ""
            description.append(line)
    return "\n".join(description).strip(), notes
