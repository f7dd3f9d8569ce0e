"""The hints of a tool's function, and the type of the dependencies that its context names.

That type need not exist when the tool is made: it may be imported for type checkers only, or defined later. Only the
error for missing dependencies shows it.
"""

from __future__ import annotations

import builtins
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin

_NoneType = type(None)


class UnknownType:
    """A type in a hint that does not exist at run time."""

    __slots__ = ("_text", "admits_none")

    def __init__(self, text: str, admits_none: bool = False) -> None:
        self._text = text
        self.admits_none = admits_none

    def __repr__(self) -> str:
        return self._text

    def __getattr__(self, name: str) -> UnknownType:
        if name.startswith("__"):  # `typing` looks for such attributes
            raise AttributeError(name)
        return UnknownType(f"{self._text}.{name}")

    def __getitem__(self, item: object) -> UnknownType:
        return UnknownType(f"{self._text}[…]")

    def __or__(self, other: Any) -> UnknownType:
        return UnknownType(f"{self} | {name_of(other)}", self.admits_none or admits_none(other))

    def __ror__(self, other: Any) -> UnknownType:
        return UnknownType(f"{name_of(other)} | {self}", self.admits_none or admits_none(other))


class _Names(dict[str, Any]):
    """The names that a hint may use; an unknown name becomes an `UnknownType`."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name) if hasattr(builtins, name) else UnknownType(name)


def hints_of(function: Callable[..., Any], names: dict[str, Any] | None, context_type: type) -> dict[str, Any]:
    """Returns the type hints. Raises `TypeError` for one that cannot be evaluated, unless it is the context's."""
    try:
        return typing.get_type_hints(function, localns=names or None, include_extras=True)
    except NameError as error:
        hints: dict[str, Any] = {}
        known = _Names({**getattr(function, "__globals__", {}), **(names or {})})
        for name, hint in function.__annotations__.items():
            one: Any = types.SimpleNamespace(__annotations__={name: hint})
            try:
                hints |= typing.get_type_hints(one, dict(known), include_extras=True)
            except NameError:
                hints[name] = eval(hint, {}, known) if isinstance(hint, str) else hint
                if context_deps(hints[name], context_type) is None:
                    raise TypeError(
                        f"{function.__name__}: {error}; a tool's type hints are read when it is made, so import them "
                        "for real, not under TYPE_CHECKING"
                    ) from error
        return hints


def context_deps(hint: Any, context_type: type) -> tuple[Any] | None:
    """Returns the type of the dependencies that a context's hint names, `Any` if it names none.

    Returns `None` for a hint of something else.
    """
    if hint is context_type:
        return (Any,)
    origin = get_origin(hint)
    if origin is context_type:
        return (get_args(hint)[0],)
    if origin in (Annotated, Union, types.UnionType):
        return next((deps for item in get_args(hint) if (deps := context_deps(item, context_type)) is not None), None)
    return None


def admits_none(kind: Any) -> bool:
    """Whether `None` is a value of the type."""
    if kind is None or kind in (Any, object, _NoneType):
        return True
    if isinstance(kind, UnknownType):
        return kind.admits_none
    if isinstance(kind, (str, ForwardRef)):
        text = kind if isinstance(kind, str) else kind.__forward_arg__
        return "None" in text.replace("|", " ").split() or "Optional[" in text
    if isinstance(kind, TypeVar):
        return any(map(admits_none, kind.__constraints__ or (kind.__bound__,)))
    if (value := getattr(kind, "__value__", None)) is not None:  # of a `type` statement
        return admits_none(value)
    origin, items = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return admits_none(items[0])
    return origin in (Union, types.UnionType, Literal) and any(map(admits_none, items))


def name_of(kind: Any) -> str:
    """Returns the type as it is written in source code."""
    if isinstance(kind, ForwardRef):
        return kind.__forward_arg__
    if kind is _NoneType:
        return "None"
    return kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else str(kind)
