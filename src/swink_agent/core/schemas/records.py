"""Classes with fields: dataclasses, `TypedDict`s, named tuples and msgspec structs.

Reads their fields, makes a shadow class with the same fields in types that msgspec can decode, and makes instances of
the class from instances of the shadow. `shapes` decides which classes need one.
"""

from __future__ import annotations

import collections
import dataclasses
import inspect
import json
import sys
import typing
from collections.abc import Callable, Sequence
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NotRequired,
    Required,
    TypedDict,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, Struct, UnsetType

from .references import JsonSchema


class RecordField(NamedTuple):
    """One field of a class: its name in Python and in JSON, and its type."""

    name: str
    key: str
    kind: Any
    is_required: bool
    default: JsonSchema  # the schema's keyword for the default, if JSON can represent it


def hints_of_class(owner: type) -> dict[str, Any] | None:
    """The types of a class's fields; `None` if it is not a class with fields, or a hint cannot be resolved."""
    if not (_is_typed_dict(owner) or _is_named_tuple(owner) or _is_struct(owner) or dataclasses.is_dataclass(owner)):
        return None
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except (NameError, TypeError):
        return None  # msgspec will report the error


def fields_of(kind: Any, owner: type) -> list[RecordField]:
    """The fields of the class; in a generic class, its type arguments replace the type variables."""
    if _is_struct(owner):
        return [
            RecordField(one.name, one.encode_name, one.type, one.required, _shown(one.default, one.default_factory))
            for one in msgspec.structs.fields(kind)
        ]
    hints = {name: _substituted(hint, kind, owner) for name, hint in (hints_of_class(owner) or {}).items()}
    if _is_typed_dict(owner):
        required = cast("Any", owner).__required_keys__
        return [RecordField(name, name, *_unwrapped(hint, name in required), {}) for name, hint in hints.items()]
    if _is_named_tuple(owner):
        defaults = cast("Any", owner)._field_defaults
        return [
            RecordField(name, name, hints[name], name not in defaults, _shown(defaults.get(name, NODEFAULT)))
            for name in cast("Any", owner)._fields
        ]
    found: list[RecordField] = []
    for field in dataclasses.fields(cast("Any", owner)):
        if field.init:
            default = NODEFAULT if field.default is dataclasses.MISSING else field.default
            factory: Any = NODEFAULT if field.default_factory is dataclasses.MISSING else field.default_factory
            is_required = default is NODEFAULT and factory is NODEFAULT
            found.append(RecordField(field.name, field.name, hints[field.name], is_required, _shown(default, factory)))
    return found


def shadow_of(owner: type, name: str, fields: Sequence[RecordField]) -> Any:
    """Makes a class with the types of these fields, which msgspec decodes from the same JSON as the owner."""
    if _is_typed_dict(owner):
        keys = {field.key: (Required if field.is_required else NotRequired)[field.kind] for field in fields}
        shadow: Any = TypedDict(name, keys)  # type: ignore[misc] - its fields are computed
        shadow.__doc__ = owner.__doc__
        return shadow
    if _is_named_tuple(owner):
        shadow = collections.namedtuple(  # type: ignore[misc] - its fields are computed
            "Shadow",  # it must be a Python identifier
            cast("Any", [field.name for field in fields]),
            defaults=list(cast("Any", owner)._field_defaults.values()),
        )
        shadow.__annotations__ = {field.name: field.kind for field in fields}
        return shadow
    config = getattr(owner, "__struct_config__", None)
    is_generated = owner.__doc__ is None or owner.__doc__.startswith(f"{owner.__name__}(")  # by the decorator
    return msgspec.defstruct(
        name,
        [_struct_field(field) for field in fields],
        kw_only=config is None or not config.array_like,
        rename={field.name: field.key for field in fields},
        tag=None if config is None else config.tag,
        tag_field=None if config is None else config.tag_field,
        array_like=config is not None and config.array_like,
        forbid_unknown_fields=config is not None and config.forbid_unknown_fields,
        namespace={} if is_generated else {"__doc__": inspect.getdoc(owner)},
    )


def maker_of(owner: type) -> Callable[[Any], Any]:
    """Returns a function that converts an instance of the shadow to one of the class, which sets its own defaults."""
    if _is_typed_dict(owner):
        return lambda value: value
    if _is_named_tuple(owner):
        return lambda value: owner(*value)

    def make(value: Any) -> Any:
        given = {name: item for name in value.__struct_fields__ if (item := getattr(value, name)) is not UNSET}
        return owner(**given)

    return make


def default_of(value: Any) -> JsonSchema:
    """The schema's keyword for a default value. A default that JSON cannot represent works, but is not described."""
    try:
        shown = msgspec.to_builtins(value)
        json.dumps(shown, allow_nan=False)
    except (TypeError, ValueError):
        return {}
    return {"default": shown}


def _shown(default: Any, factory: Any = NODEFAULT) -> JsonSchema:
    if default is not NODEFAULT and default is not UNSET:
        return default_of(default)
    return default_of(factory()) if factory in (list, dict, set) else {}


def _struct_field(field: RecordField) -> Any:
    if field.is_required:
        return (field.name, field.kind)
    kind: Any = Union[field.kind, UnsetType]  # noqa: UP007 - the member is computed
    return (field.name, Annotated[kind, Meta(extra_json_schema=field.default)] if field.default else kind, UNSET)


def _substituted(hint: Any, kind: Any, owner: type) -> Any:
    parameters: tuple[Any, ...] = getattr(owner, "__parameters__", ())
    given: dict[Any, Any] = dict(zip(parameters, get_args(kind), strict=False))
    if isinstance(hint, TypeVar):
        return given.get(hint, Any)
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple([given.get(parameter, Any) for parameter in parameters])] if parameters else hint


def _unwrapped(hint: Any, is_required: bool) -> tuple[Any, bool]:
    """The type of a `TypedDict`'s key, and whether it is required, which the class does not know for quoted hints."""
    while (said := get_origin(hint)) in (Required, NotRequired) or is_read_only(said):
        is_required = is_required if is_read_only(said) else said is Required
        (hint,) = get_args(hint)
    return hint, is_required


def is_read_only(origin: Any) -> bool:
    """Whether it is `ReadOnly`, of `typing` (3.13 and later) or of `typing_extensions`, which is not imported here."""
    modules = (typing, sys.modules.get("typing_extensions"))
    return origin is not None and any(origin is getattr(module, "ReadOnly", None) for module in modules)


def _is_struct(owner: type) -> bool:
    return issubclass(owner, Struct)


def _is_typed_dict(owner: Any) -> bool:
    return issubclass(owner, dict) and hasattr(cast("Any", owner), "__required_keys__")


def _is_named_tuple(owner: Any) -> bool:
    return issubclass(owner, tuple) and hasattr(cast("Any", owner), "_field_defaults")
