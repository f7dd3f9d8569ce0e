"""Reads the metadata of `Annotated`: bounds, lengths, patterns, tests, and descriptions.

Understands `msgspec.Meta`, `annotated_types` and `pydantic.Field`. The last two are recognised by their attributes and
never imported; a program that uses them has loaded them. `shapes` applies the constraints.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from msgspec import UNSET, Meta

_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (operator.ge, ">="),
    "gt": (operator.gt, ">"),
    "le": (operator.le, "<="),
    "lt": (operator.lt, "<"),
}
_LENGTHS = ("min_length", "max_length")
_WORDS = ("description", "title", "examples")

Check = Callable[[Any], "str | None"]
"""Returns what is wrong with a value, or `None`."""


class Constraints:
    """The combined metadata of one `Annotated`."""

    __slots__ = ("extra", "lengths", "numbers", "pattern", "tests", "words")

    def __init__(self) -> None:
        self.numbers: dict[str, Any] = {}
        """`ge`, `gt`, `le`, `lt` and `multiple_of`."""
        self.lengths: dict[str, int] = {}
        self.pattern: str | None = None
        self.tests: list[Check] = []
        """Checks that a schema cannot express."""
        self.words: dict[str, Any] = {}
        self.extra: dict[str, Any] = {}
        """Further keywords of the schema."""

    @property
    def limits_values(self) -> bool:
        return bool(self.numbers or self.lengths or self.pattern is not None or self.tests)

    def add(self, item: object) -> bool:
        """Adds one piece of metadata; returns whether it means anything."""
        if isinstance(item, str):
            if item:
                self.words.setdefault("description", item)
            return bool(item)
        found = False
        for name in (*_BOUNDS, "multiple_of"):
            found |= self._add_number(name, _said(item, name))
        for name in _LENGTHS:
            found |= self._add_length(name, _said(item, name))
        pattern = _said(item, "pattern")
        if pattern is not None:
            found = True
            text = getattr(pattern, "pattern", pattern)
            if self.pattern is None:
                self.pattern = text
            else:
                self.tests.append(_matching(text))
        if type(item).__name__ in ("Predicate", "Not") and callable(test := getattr(item, "func", None)):
            found = True
            self.tests.append(_test_of(test, is_negated=type(item).__name__ == "Not"))
        return self._add_words(item) or found

    def _add_words(self, item: object) -> bool:
        words = {name: value for name in _WORDS if (value := _said(item, name)) is not None}
        text = _said(item, "documentation")  # typing_extensions.Doc and annotated_types.doc
        if isinstance(text, str):
            words["description"] = text
        for name, value in words.items():
            self.words.setdefault(name, value)
        extra = _said(item, "extra_json_schema") or _said(item, "json_schema_extra")
        if not isinstance(extra, dict):
            return bool(words)
        self.extra |= cast("dict[str, Any]", extra)
        return True

    def _add_number(self, name: str, bound: Any) -> bool:
        if bound is None:
            return False
        known = self.numbers.get(name)
        if known is None:
            self.numbers[name] = bound
        elif name == "multiple_of":
            self.tests.append(_multiple_of(bound))
        else:
            # The stricter of two bounds on one side wins.
            self.numbers[name] = max(known, bound) if name in ("ge", "gt") else min(known, bound)
        for open_end, closed_end, holds in (("gt", "ge", operator.ge), ("lt", "le", operator.le)):
            if open_end in self.numbers and closed_end in self.numbers:
                is_stricter = holds(self.numbers[open_end], self.numbers[closed_end])
                del self.numbers[closed_end if is_stricter else open_end]
        return True

    def _add_length(self, name: str, length: Any) -> bool:
        if not isinstance(length, int) or (name == "min_length" and length == 0):
            return False
        known = self.lengths.get(name, length)
        self.lengths[name] = max(known, length) if name == "min_length" else min(known, length)
        return True

    def split(self, kind: Any) -> tuple[dict[str, Any], list[Check]]:
        """Divides the constraints on a value of this kind into those that msgspec checks and other checks."""
        native: dict[str, Any] = {}
        checks = list(self.tests)
        if kind in (int, float) and all(type(bound) in (int, float) for bound in self.numbers.values()):
            native |= self.numbers
        else:
            checks += [
                _multiple_of(bound) if name == "multiple_of" else _bound(name, bound)
                for name, bound in self.numbers.items()
            ]
        if kind in _SIZED:
            native |= self.lengths
        else:
            checks += [_length(name, length) for name, length in self.lengths.items()]
        if self.pattern is not None:
            if kind is str and _compiles(self.pattern):
                native["pattern"] = self.pattern
            else:
                checks.append(_matching(self.pattern))
        return native, checks

    def misplaced(self, kinds: Sequence[Any]) -> str | None:
        """Returns a constraint that certainly cannot apply to any of these kinds of values, or `None`."""
        if not all(kind in _PLAIN for kind in kinds):
            return None
        has_number = any(kind in _NUMBERS for kind in kinds)
        for name, bound in self.numbers.items():
            if type(bound) in _NUMBERS and not has_number:
                return f"{name}={bound}"
        has_length = any(kind in _SIZED for kind in kinds)
        for name, length in self.lengths.items():
            if not has_length:
                return f"{name}={length}"
        return None if self.pattern is None or str in kinds else f"pattern={self.pattern!r}"

    def meta(self, native: dict[str, Any]) -> Meta | None:
        """Converts the constraints that msgspec checks, and the descriptions, to msgspec's form."""
        words = {name: value for name, value in self.words.items() if name in ("description", "examples")}
        extra = dict(self.extra)
        if "title" in self.words:
            extra["$title"] = self.words["title"]  # distinguishes it from titles that msgspec generates
        if not native and not words and not extra:
            return None
        return Meta(**native, **words, extra_json_schema=extra or None)


_SIZED = (str, bytes, bytearray, list, tuple, set, frozenset, dict)
_NUMBERS = (int, float, bool)
_PLAIN = (*_SIZED, *_NUMBERS, type(None))


def read_constraints(metadata: Iterable[Any]) -> Constraints:
    """Reads the metadata of an `Annotated`, in any of the vocabularies."""
    constraints = Constraints()
    for item in _flat(metadata):
        constraints.add(item)
    return constraints


def wants_pydantic(metadata: Iterable[Any]) -> bool:
    """Whether only pydantic can apply the metadata, as with `AfterValidator`."""
    return any(hasattr(item, "__get_pydantic_core_schema__") and not _is_group(item) for item in _flat(metadata))


def _flat(metadata: Iterable[Any]) -> Iterator[Any]:
    for item in metadata:
        yield item
        if _is_group(item):  # annotated_types.Len, Interval; pydantic.StringConstraints
            yield from _flat(cast("Iterable[Any]", item))
        elif type(item).__module__.startswith("pydantic") and isinstance(getattr(item, "metadata", None), list):
            yield from _flat(item.metadata)  # pydantic.Field


def _is_group(item: object) -> bool:
    return bool(getattr(item, "__is_annotated_types_grouped_metadata__", False))


def _said(item: Any, name: str) -> Any:
    """The value of a constraint in a piece of metadata, or `None` if it has none or is not metadata."""
    if isinstance(item, type) or not (
        isinstance(item, Meta)
        or type(item).__module__.partition(".")[0] in ("annotated_types", "pydantic")
        or (name == "documentation" and type(item).__name__ == "Doc")
        or (name == "description" and isinstance(getattr(item, "description", None), str))
    ):
        return None
    if _is_group(item):
        return None  # its parts are read separately
    value = getattr(item, name, None)
    return None if value is UNSET or type(value).__name__ == "PydanticUndefinedType" else value


def _check(holds: Callable[[Any], object], problem: str) -> Check:
    def check(value: Any) -> str | None:
        try:
            return None if holds(value) else problem
        except TypeError:
            return None  # a value of another member of a union, to which the constraint does not apply

    return check


def _bound(name: str, bound: Any) -> Check:
    holds, sign = _BOUNDS[name]
    return _check(lambda value: holds(value, bound), f"it must be {sign} {bound}")


def _multiple_of(factor: Any) -> Check:
    return _check(lambda value: not value % factor, f"it must be a multiple of {factor}")


def _length(name: str, length: int) -> Check:
    if name == "min_length":
        return _check(lambda value: len(value) >= length, f"its length must be at least {length}")
    return _check(lambda value: len(value) <= length, f"its length must be at most {length}")


def _matching(pattern: str) -> Check:
    # If Python cannot compile the pattern, the schema's validator may have understood and checked it.
    compiled = re.compile(pattern if _compiles(pattern) else "")
    return _check(lambda value: not isinstance(value, str) or compiled.search(value), f"it must match {pattern!r}")


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _test_of(test: Callable[[Any], Any], *, is_negated: bool) -> Check:
    name = getattr(test, "__qualname__", type(test).__name__).replace("<locals>.", "")

    def check(value: Any) -> str | None:
        try:
            if bool(test(value)) is not is_negated:
                return None
        except Exception as error:
            return f"{name} failed: {error}"
        return f"{name} must {'not ' if is_negated else ''}hold for it"

    return check
