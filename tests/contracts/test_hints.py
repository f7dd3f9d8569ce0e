"""Whoever looks at a public name with `inspect` or `typing`, as documentation and frameworks do, sees its hints."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from .test_exports import exported


def functions_of(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    """What a class of ours defines that can be called or read."""
    for owner in kind.__mro__:
        if not owner.__module__.startswith("swink_agent"):
            continue
        for member, value in vars(owner).items():
            if isinstance(value, (classmethod, staticmethod)):
                value = value.__func__
            elif isinstance(value, property):
                value = value.fget
            if inspect.isfunction(value) and value.__module__.startswith("swink_agent"):
                yield f"{name}.{member}", value


def looked_at() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in exported():
        module, _, name = entry.rpartition(".")
        value = getattr(import_module(module), name)
        if inspect.isclass(value) or inspect.isfunction(value):
            found[entry] = value
        if inspect.isclass(value):
            found |= functions_of(entry, value)
    return found


EVERYTHING = looked_at()


def test_there_is_something_to_look_at() -> None:
    assert {"swink_agent.Agent", "swink_agent.Agent.__init__", "swink_agent.tool"} <= EVERYTHING.keys()
    assert len(EVERYTHING) > 300


@pytest.mark.parametrize("name", EVERYTHING)
def test_type_hints_can_be_read(name: str) -> None:
    typing.get_type_hints(EVERYTHING[name], include_extras=True)


@pytest.mark.parametrize("name", EVERYTHING)
def test_signatures_can_be_read(name: str) -> None:
    assert isinstance(inspect.signature(EVERYTHING[name]), inspect.Signature)


def test_a_signature_can_be_evaluated() -> None:
    from pathlib import Path

    parameters = inspect.signature(import_module("swink_agent").Agent, eval_str=True).parameters
    assert parameters["execution_root"].annotation == Path | None
