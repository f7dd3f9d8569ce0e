"""Public names have their hints for `inspect` and `typing`, which documentation and frameworks use."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from swink_agent import Agent

from .test_exports import exported


def functions_of(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties that a class of this package defines."""
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


def looked_at(entry: str) -> dict[str, Any]:
    """The class or function of that name, and all that the class defines."""
    module, _, name = entry.rpartition(".")
    value = getattr(import_module(module), name)
    if inspect.isclass(value):
        return {entry: value, **dict(functions_of(entry, value))}
    return {entry: value} if inspect.isfunction(value) else {}


def test_the_list_of_public_names_is_not_empty() -> None:
    everything = {name for entry in exported() for name in looked_at(entry)}
    assert {"swink_agent.Agent", "swink_agent.Agent.__init__", "swink_agent.tool"} <= everything
    assert len(everything) > 300


@pytest.mark.table
@pytest.mark.parametrize("entry", exported())
def test_type_hints_can_be_read(entry: str) -> None:
    for name, value in looked_at(entry).items():
        assert isinstance(typing.get_type_hints(value, include_extras=True), dict), name


@pytest.mark.table
@pytest.mark.parametrize("entry", exported())
def test_signatures_can_be_read(entry: str) -> None:
    for name, value in looked_at(entry).items():
        assert isinstance(inspect.signature(value), inspect.Signature), name


def test_a_signature_can_be_evaluated() -> None:
    parameters = inspect.signature(Agent, eval_str=True).parameters
    assert parameters["execution_root"].annotation == Path | None
