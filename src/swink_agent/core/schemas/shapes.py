"""Translates types that msgspec cannot decode by itself.

msgspec decodes builtins, enums and classes, with its own constraints. A type that it does not know is replaced by a
`Marker` class, for which msgspec calls us: a choice between classes, a value with a test, a class with such fields, a
pydantic type. Each marker has a shape, which makes its schema and converts JSON to its values. `schema` uses this for
functions.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable, Collection, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence, Set
from pathlib import PurePath
from typing import Annotated, Any, NotRequired, Required, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta

from ..values.decoders import json_decoder, learn
from .constraints import Check, read_constraints, wants_pydantic
from .docstrings import parse_docstring
from .records import RecordField, fields_of, hints_of_class, is_read_only, maker_of, shadow_of
from .references import JsonSchema, inline
from .validation import compile_schema

_CONTAINERS: dict[Any, Any] = {
    **{kind: kind for kind in (list, tuple, set, frozenset, dict)},
    **dict.fromkeys((Collection, Sequence, MutableSequence), list),
    **dict.fromkeys((Set, MutableSet), set),
    **dict.fromkeys((Mapping, MutableMapping), dict),
}
"""Generic collections, each with the type that msgspec decodes it to."""

_PATH = re.compile(r" - at `\$(.*?)`")


class _Anything(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return True  # msgspec checks that the converted value is an instance of the marker


class Marker(metaclass=_Anything):
    """Replaces a type for which msgspec calls us."""

    shape: Any


class Choice:
    """A union whose members msgspec cannot tell apart; the member that fits best is chosen."""

    def __init__(self, shapes: Shapes, members: Sequence[Any]) -> None:
        self.shapes = shapes
        self.parts = tuple(members)
        self._known: list[tuple[Any, Any, Collection[str]]] = []

    def schema(self, parts: Sequence[JsonSchema]) -> JsonSchema:
        return {"anyOf": list(parts)}

    def convert(self, value: Any) -> Any:
        """Converts to the first member whose schema fits; for an object, to the one that knows most of its keys."""
        if not self._known:
            schemas = [(member, self.shapes.schema_of(member)) for member in self.parts]
            self._known = [
                (member, compile_schema(schema), schema.get("properties", {}).keys()) for member, schema in schemas
            ]
        fitting: list[tuple[int, Any]] = []
        problems: list[str] = []
        for member, validator, keys in self._known:
            if not validator.is_valid(value):
                continue
            try:
                converted = self.shapes.convert(value, member)
            except ValueError as error:
                problems.append(str(error))
                continue
            known = sum(key in keys for key in cast("dict[str, Any]", value)) if isinstance(value, dict) else 0
            fitting.append((-known, converted))
        if not fitting:
            raise ValueError(problems[0] if problems else "it fits none of the possible types")
        return min(fitting, key=lambda item: item[0])[1]


class Tested:
    """A value with checks that msgspec does not know."""

    def __init__(self, shapes: Shapes, kind: Any, checks: Sequence[Check]) -> None:
        self.shapes = shapes
        self.parts = (kind,)
        self.checks = checks

    def schema(self, parts: Sequence[JsonSchema]) -> JsonSchema:
        return parts[0]

    def convert(self, value: Any) -> Any:
        converted = self.shapes.convert(value, self.parts[0])
        for check in self.checks:
            if (problem := check(converted)) is not None:
                raise ValueError(problem)
        return converted


class Record:
    """A class with fields that need translation: decoded as its shadow class, then converted."""

    parts: tuple[Any, ...] = ()
    make: Callable[[Any], Any]

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes

    def schema(self, parts: Sequence[JsonSchema]) -> JsonSchema:
        return parts[0]

    def convert(self, value: Any) -> Any:
        return self.make(self.shapes.convert(value, self.parts[0]))


class Adapted:
    """A type that pydantic converts."""

    parts: tuple[Any, ...] = ()

    def __init__(self, kind: Any) -> None:
        self._adapter = sys.modules["pydantic"].TypeAdapter(kind)

    def schema(self, parts: Sequence[JsonSchema]) -> JsonSchema:
        schema = self._adapter.json_schema(ref_template="#/$defs/{model}")
        return inline(schema, schema.pop("$defs", {}))

    def convert(self, value: Any) -> Any:
        try:
            return self._adapter.validate_python(value)
        except ValueError as error:
            raise ValueError(_pydantic_problems(error)) from error


class Shapes:
    """The translated types of one tool or answer: their schemas, and the conversion of JSON to them."""

    def __init__(self) -> None:
        self._markers: list[type[Marker]] = []
        self._records: dict[Any, type[Marker]] = {}
        self._notes: dict[type, dict[str, str]] = {}
        self._seen: set[Any] = set()

    # -- translation ---------------------------------------------------------------------------------------------

    def translate(self, kind: Any) -> Any:
        """Returns a type that msgspec can decode, with descriptions where msgspec expects them."""
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self._translate_annotated(kind, arguments[0], arguments[1:])
        if origin in (Union, types.UnionType):
            return self._union([self.translate(item) for item in arguments])
        if origin in (Required, NotRequired) or is_read_only(origin):
            return self.translate(arguments[0])
        if origin in _CONTAINERS and arguments:
            inner = tuple([item if item is Ellipsis else self.translate(item) for item in arguments])
            return origin[inner]
        hidden = _hidden(kind)
        if hidden is not None:
            return self.translate(hidden) if _needs_help(hidden) else kind
        owner = origin or kind
        if not isinstance(owner, type):
            return kind
        if _is_pydantics_own(owner):
            return self._mark(owner.__name__, Adapted(kind))
        if hints_of_class(owner) is not None:
            if _needs_help(kind):
                return self._translate_class(kind, owner)
            self._note_fields(owner)
        return kind

    def _translate_annotated(self, whole: Any, kind: Any, metadata: tuple[Any, ...]) -> Any:
        if wants_pydantic(metadata):
            inner: Any = self._mark("pydantic", Adapted(whole))
            meta = read_constraints([item for item in metadata if not hasattr(item, "__get_pydantic_core_schema__")])
            words = meta.meta({})
            return inner if words is None else Annotated[inner, words]
        constraints = read_constraints(metadata)
        members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
        misplaced = constraints.misplaced([_bare(member) for member in members])
        if misplaced is not None:  # the author relies on this check, so it must not be dropped silently
            raise TypeError(f"{misplaced} does not apply to a value of {_type_name(kind)}")
        limited: list[Any] = []
        for member in members:
            inner = self.translate(member)
            native, checks = constraints.split(_bare(member))
            if native:
                inner = Annotated[inner, Meta(**native)]
            if checks and member is not types.NoneType:  # a missing value is not checked
                inner = self._mark("tested", Tested(self, inner, checks))
            limited.append(inner)
        words = constraints.meta({})
        inner = self._union(limited)
        return inner if words is None else Annotated[inner, words]

    def _union(self, members: Sequence[Any]) -> Any:
        union = Union[tuple(members)]  # noqa: UP007 - the members are computed
        if len(members) == 1 or _msgspec_reads(union):
            return union
        return self._mark("choice", Choice(self, members))

    def _mark(self, name: str, shape: Any) -> type[Marker]:
        marker: Any = _Anything(f"{re.sub(r'[^a-zA-Z0-9._-]', '_', name)}-{len(self._markers)}", (Marker,), {})
        marker.shape = shape
        self._markers.append(marker)
        return marker

    def _translate_class(self, kind: Any, owner: type) -> Any:
        if kind not in self._records:
            record = Record(self)
            # Registered before its fields are translated, which may refer to it.
            self._records[kind] = self._mark(owner.__qualname__, record)
            _, notes = parse_docstring(inspect.getdoc(owner) or "")
            fields: list[RecordField] = []
            for field in fields_of(kind, owner):
                described = Annotated[field.kind, notes[field.name]] if field.name in notes else field.kind
                fields.append(field._replace(kind=self.translate(described)))
            record.parts = (shadow_of(owner, f"{self._records[kind].__name__}-fields", fields),)
            record.make = maker_of(owner)
        return self._records[kind]

    def _note_fields(self, owner: type) -> None:
        """Stores the descriptions of the fields of a class that msgspec decodes by itself."""
        if owner in self._seen:
            return
        self._seen.add(owner)
        _, notes = parse_docstring(inspect.getdoc(owner) or "")
        for name, hint in (hints_of_class(owner) or {}).items():
            self.translate(hint)
            metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
            if isinstance(text := read_constraints(metadata).words.get("description"), str):
                notes[name] = text
        if notes:
            self._notes[owner] = notes

    # -- schemas -------------------------------------------------------------------------------------------------

    def schema_of(self, kind: Any) -> JsonSchema:
        (schema,), definitions = self.schemas([kind])
        return schema | {"$defs": definitions} if definitions else schema

    def schemas(self, kinds: Sequence[Any]) -> tuple[list[JsonSchema], JsonSchema]:
        """Returns the schemas of translated types, and the definitions of those that contain themselves."""
        parts = [part for marker in self._markers for part in marker.shape.parts]
        for kind in (*kinds, *parts):
            learn(kind)  # any thread may call `convert`
        try:
            schemas, components = msgspec.json.schema_components(
                [*kinds, *parts], schema_hook=_schema_of_foreign, ref_template="#/$defs/{name}"
            )
        except TypeError as error:
            names = ", ".join(_type_name(kind) for kind in kinds)
            raise TypeError(f"{names} has no JSON Schema: {str(error).splitlines()[-1]}") from error
        except KeyError as error:  # msgspec raises it
            raise TypeError(f"two classes are both named {error}: rename one of them") from error
        self._describe(components)
        rest = iter(schemas[len(kinds) :])
        for marker in self._markers:
            components[marker.__name__] = marker.shape.schema([next(rest) for _ in marker.shape.parts])
        inlined = [inline(schema, components) for schema in schemas[: len(kinds)]]
        definitions: JsonSchema = {}
        for schema in inlined:
            definitions |= schema.pop("$defs", {})
        return inlined, definitions

    def _describe(self, components: dict[str, JsonSchema]) -> None:
        for owner, fields in self._notes.items():
            # msgspec lists a class by its name, or by its full name if two classes share the short one.
            full = re.sub(r"[^a-zA-Z0-9.\-_]", "_", f"{owner.__module__}.{owner.__qualname__}")
            component = components.get(full) or components.get(owner.__name__, {})
            properties = component.get("properties", {})
            for field_name, text in fields.items():
                if field_name in properties:
                    properties[field_name].setdefault("description", text)

    # -- conversion ----------------------------------------------------------------------------------------------

    def convert(self, value: Any, kind: Any) -> Any:
        """Converts JSON data to the translated type. Raises `ValueError`, which names the field."""
        try:
            try:
                return msgspec.convert(value, kind, dec_hook=_from_json)
            except msgspec.ValidationError:
                # An integer may come as 5.0, which JSON Schema allows: accept it if the strict conversion fails.
                return msgspec.convert(value, kind, strict=False, dec_hook=_from_json)
        except msgspec.ValidationError as error:
            raise ValueError(_one_path(str(error))) from error


# -- which types msgspec decodes by itself ---------------------------------------------------------------------------


def _needs_help(kind: Any, seen: set[Any] | None = None) -> bool:
    """Whether any part of the type, at any depth, needs translation."""
    seen = set() if seen is None else seen
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _metadata_need_help(arguments[0], arguments[1:]) or _needs_help(arguments[0], seen)
    if origin in (Union, types.UnionType):
        return not _msgspec_reads(kind) or any(_needs_help(item, seen) for item in arguments)
    hidden = _hidden(kind)
    if hidden is not None:
        is_known = id(kind) in seen
        seen.add(id(kind))
        return not is_known and _needs_help(hidden, seen)
    if is_read_only(origin):
        return True
    owner = origin or kind
    if isinstance(owner, type):
        if _is_pydantics_own(owner):
            return True
        hints = None if owner in seen else hints_of_class(owner)  # a class may contain itself
        seen.add(owner)
        fields = () if hints is None else hints.values()
        return any(_needs_help(item, seen) for item in (*fields, *arguments))
    return any(_needs_help(item, seen) for item in arguments) if origin in (Required, NotRequired) else False


def _metadata_need_help(kind: Any, metadata: tuple[Any, ...]) -> bool:
    foreign = read_constraints([item for item in metadata if not isinstance(item, Meta)])
    if wants_pydantic(metadata) or foreign.limits_values or foreign.extra or "examples" in foreign.words:
        return True
    constraints = read_constraints(metadata)
    is_union = get_origin(kind) in (Union, types.UnionType)
    return "title" in constraints.words or (is_union and constraints.limits_values)


def _msgspec_reads(kind: Any) -> bool:
    try:
        json_decoder(kind)
    except TypeError:
        return False
    except Exception:
        return True  # for example an unresolved name, which is reported when the schema is made
    return True


def _hidden(kind: Any) -> Any:
    """The type that a `NewType` or a `type` statement names; `None` for any other type."""
    if isinstance(kind, type):
        return None
    return getattr(kind, "__supertype__", None) or getattr(kind, "__value__", None)


def _bare(kind: Any) -> Any:
    """The type without aliases, annotations and type arguments, by which constraints are chosen."""
    while (hidden := _hidden(kind)) is not None or get_origin(kind) is Annotated:
        kind = get_args(kind)[0] if hidden is None else hidden
    return _CONTAINERS.get(get_origin(kind) or kind, kind)


# -- types for which msgspec calls us --------------------------------------------------------------------------------


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def _is_pydantics_own(kind: type) -> bool:
    """Whether only pydantic can convert it: its dataclasses, and types such as `HttpUrl`; not its models."""
    has_hook = hasattr(kind, "__get_pydantic_core_schema__") or hasattr(kind, "__pydantic_validator__")
    return has_hook and not _is_model(kind) and "pydantic" in sys.modules


def _schema_of_foreign(kind: type) -> JsonSchema:
    if issubclass(kind, Marker):
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if _is_model(kind):
        # Its definitions get names that no other type uses.
        prefix = re.sub(r"\W", "_", f"{kind.__module__}_{kind.__qualname__}_")
        schema = cast("Any", kind).model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
        components = {prefix + name: component for name, component in schema.pop("$defs", {}).items()}
        return inline(schema, components)
    if issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError(f"{kind.__qualname__} is not a type that JSON can carry")


def _from_json(kind: type, value: Any) -> Any:
    if issubclass(kind, Marker):
        return kind.shape.convert(value)
    if _is_model(kind):
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


def _one_path(text: str) -> str:
    """Joins the paths that nested conversions added to a message."""
    parts = _PATH.split(text)
    paths = parts[1::2]
    return f"{parts[0]} - at `${''.join(reversed(paths))}`" if len(paths) > 1 else text


def _type_name(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) else str(kind)
